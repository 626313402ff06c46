//! Request params in the JSON of 0.3 and 0.1.

use serde::Deserialize;
use serde::ser::{SerializeMap, Serializer};

use super::push::V03PushConfigBody;
use super::{V03PushConfig, V03SentMessage};
use crate::model::{
    ClientDialect, ContextId, Error, MessageId, Object, PushConfigId, SendMessageConfiguration,
    SendMessageRequest, TaskId, int32, non_empty, or_default,
};

/// Params of `message/send` and its older names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::wire) struct V03SendParams<const PROTO: bool> {
    // Named `request` in 0.2 REST.
    #[serde(alias = "request")]
    message: Option<V03SentMessage<PROTO>>,
    configuration: Option<V03SendConfiguration>,
    metadata: Option<Object>,
    /// Beside the message in requests of KAOS and selectools (09, 0.8).
    #[serde(default, alias = "context_id", deserialize_with = "non_empty")]
    context_id: Option<ContextId>,
    /// Beside the message in official samples (09, 1.28).
    #[serde(default, alias = "message_id", deserialize_with = "non_empty")]
    message_id: Option<MessageId>,
    /// 0.1: task id chosen by the client.
    #[serde(default, deserialize_with = "non_empty")]
    id: Option<TaskId>,
    #[serde(default, deserialize_with = "non_empty")]
    session_id: Option<ContextId>,
    #[serde(default, deserialize_with = "int32")]
    history_length: Option<i32>,
    push_notification: Option<V03PushConfig>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct V03SendConfiguration {
    #[serde(
        default,
        alias = "accepted_output_modes",
        deserialize_with = "or_default"
    )]
    accepted_output_modes: Vec<String>,
    #[serde(
        alias = "push_notification_config",
        alias = "pushNotification",
        alias = "push_notification",
        // Name of 1.0, from clients that mix versions.
        alias = "taskPushNotificationConfig"
    )]
    push_notification_config: Option<V03PushConfig>,
    #[serde(default, alias = "history_length", deserialize_with = "int32")]
    history_length: Option<i32>,
    blocking: Option<bool>,
    /// Name of 1.0 with the opposite meaning, from clients that mix versions.
    #[serde(alias = "return_immediately")]
    return_immediately: Option<bool>,
}

impl V03SendConfiguration {
    /// Converts to the model. `blocks` is the meaning of an absent flag.
    fn into_model(self, blocks: bool) -> SendMessageConfiguration {
        let blocking = self
            .blocking
            .or(self.return_immediately.map(|immediately| !immediately))
            // The webhook reports the result, so the caller need not wait for it (09, 1.33).
            .or(self.push_notification_config.as_ref().map(|_| false));
        SendMessageConfiguration {
            accepted_output_modes: self.accepted_output_modes,
            task_push_notification_config: self.push_notification_config.map(|config| config.0),
            history_length: zero_as_absent(self.history_length),
            return_immediately: !blocking.unwrap_or(blocks),
        }
    }
}

/// Converts 0 to `None`: in 0.3 a length of 0 means all.
pub(in crate::wire) fn zero_as_absent(length: Option<i32>) -> Option<i32> {
    length.filter(|length| *length != 0)
}

impl<const PROTO: bool> V03SendParams<PROTO> {
    /// Whether the body has the shape of 0.1, and not a newer one under an old method name.
    pub(in crate::wire) fn is_v01(&self) -> bool {
        self.message.as_ref().is_none_or(|sent| {
            let message = &sent.message;
            message.message_id.is_empty()
                && message.context_id.is_none()
                && message.task_id.is_none()
        }) && self.message_id.is_none()
    }

    /// Whether the message has the form of fasta2a: parts of 1.0 in a call of 0.3, without any `kind`.
    pub(in crate::wire) fn is_fasta2a(&self) -> bool {
        self.message.as_ref().is_some_and(|sent| !sent.has_kinds)
    }

    /// Converts to the model. `blocks` is the meaning of an absent flag in the configuration.
    pub(in crate::wire) fn into_model(self, blocks: bool) -> Result<SendMessageRequest, Error> {
        let Some(sent) = self.message else {
            return Err(Error::invalid("message", "is required"));
        };
        let mut message = sent.message;
        message.context_id = message.context_id.or(self.context_id).or(self.session_id);
        if message.message_id.is_empty() {
            message.message_id = self.message_id.unwrap_or_default();
        }
        let mut configuration = self
            .configuration
            .map(|configuration| configuration.into_model(blocks));
        if self.history_length.is_some() || self.push_notification.is_some() {
            let configuration = configuration.get_or_insert_default();
            configuration.history_length = configuration
                .history_length
                .or(zero_as_absent(self.history_length));
            let push = self.push_notification.map(|config| config.0);
            configuration.task_push_notification_config =
                configuration.task_push_notification_config.take().or(push);
        }
        Ok(SendMessageRequest {
            tenant: None,
            message,
            configuration,
            metadata: self.metadata,
            alias: self.id,
            dialect: (!sent.tool_parts.is_empty()).then_some(ClientDialect::Tools),
            tool_parts: sent.tool_parts,
        })
    }
}

/// Params of the operations on one task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::wire) struct V03TaskParams {
    #[serde(default, deserialize_with = "non_empty")]
    id: Option<TaskId>,
    /// Name used by RxJS clients (09, 2.11).
    #[serde(default, alias = "task_id", deserialize_with = "non_empty")]
    task_id: Option<TaskId>,
    /// Resource name in 0.3 REST: `tasks/{id}`.
    #[serde(default, deserialize_with = "non_empty")]
    name: Option<String>,
    #[serde(default, alias = "history_length", deserialize_with = "int32")]
    pub(in crate::wire) history_length: Option<i32>,
    pub(in crate::wire) metadata: Option<Object>,
}

impl V03TaskParams {
    /// Returns the task id and the member that contains it.
    pub(in crate::wire) fn task(self) -> Result<(TaskId, &'static str), Error> {
        match (self.id, self.task_id, self.name) {
            (Some(id), ..) => Ok((id, "id")),
            (None, Some(id), _) => Ok((id, "taskId")),
            (None, None, Some(name)) => parse_task_name("name", &name).map(|id| (id, "name")),
            (None, None, None) => Ok((TaskId::default(), "id")),
        }
    }
}

/// Parses the resource name of a task.
pub(in crate::wire) fn parse_task_name(field: &str, name: &str) -> Result<TaskId, Error> {
    let id = name.strip_prefix("tasks/").filter(|id| !id.is_empty());
    id.map(TaskId::from)
        .ok_or_else(|| Error::invalid(field, "must be tasks/{id}"))
}

/// Params of the operations on one push configuration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::wire) struct V03PushConfigParams {
    #[serde(default, deserialize_with = "non_empty")]
    id: Option<TaskId>,
    #[serde(default, alias = "task_id", deserialize_with = "non_empty")]
    task_id: Option<TaskId>,
    #[serde(
        default,
        alias = "push_notification_config_id",
        deserialize_with = "non_empty"
    )]
    push_notification_config_id: Option<PushConfigId>,
}

impl V03PushConfigParams {
    /// Returns and validates the ids. Validated here, so that errors use the member names of 0.3.
    pub(in crate::wire) fn ids(self) -> Result<(TaskId, Option<PushConfigId>), Error> {
        let task = self.id.or(self.task_id).unwrap_or_default();
        task.check("id")?;
        if let Some(id) = &self.push_notification_config_id {
            id.check("pushNotificationConfigId")?;
        }
        Ok((task, self.push_notification_config_id))
    }
}

/// Writes a send configuration. Always includes `blocking`, because servers disagree on the
/// default.
pub(in crate::wire) fn write_configuration<S: Serializer>(
    configuration: &SendMessageConfiguration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("blocking", &!configuration.return_immediately)?;
    if let Some(length) = zero_as_absent(configuration.history_length) {
        map.serialize_entry("historyLength", &length)?;
    }
    if !configuration.accepted_output_modes.is_empty() {
        map.serialize_entry("acceptedOutputModes", &configuration.accepted_output_modes)?;
    }
    if let Some(config) = &configuration.task_push_notification_config {
        map.serialize_entry("pushNotificationConfig", &V03PushConfigBody(config))?;
    }
    map.end()
}
