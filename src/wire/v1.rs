//! Request shapes of 1.0 JSON: exact, with the member names of drafts, or in the form of KAOS
//! clients (09, S0).

use serde::Deserialize;

use super::json::read;
use super::kaos::KaosMarks;
use super::v03::V1PushConfig;
use crate::model::{
    ContextId, Error, Message, MessageId, Object, PushConfig, PushConfigId,
    SendMessageConfiguration, SendMessageRequest, TaskId, int32, non_empty, or_default,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct V1SendParams {
    #[serde(default, deserialize_with = "non_empty")]
    tenant: Option<String>,
    message: Option<Message>,
    configuration: Option<V1SendConfiguration>,
    metadata: Option<Object>,
    /// Beside the message in KAOS requests (09, 0.8).
    #[serde(default, alias = "context_id", deserialize_with = "non_empty")]
    context_id: Option<ContextId>,
    /// Beside the message in official samples (09, 1.28).
    #[serde(default, alias = "message_id", deserialize_with = "non_empty")]
    message_id: Option<MessageId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct V1SendConfiguration {
    #[serde(
        default,
        alias = "accepted_output_modes",
        deserialize_with = "or_default"
    )]
    accepted_output_modes: Vec<String>,
    // The last two are names of the draft.
    #[serde(
        alias = "task_push_notification_config",
        alias = "pushNotificationConfig",
        alias = "push_notification_config"
    )]
    task_push_notification_config: Option<V1PushConfig>,
    #[serde(default, alias = "history_length", deserialize_with = "int32")]
    history_length: Option<i32>,
    #[serde(alias = "return_immediately")]
    return_immediately: Option<bool>,
    /// Name of the draft, with the opposite meaning.
    blocking: Option<bool>,
}

impl From<V1SendConfiguration> for SendMessageConfiguration {
    fn from(read: V1SendConfiguration) -> Self {
        let immediately = read
            .return_immediately
            .or(read.blocking.map(|blocking| !blocking));
        Self {
            accepted_output_modes: read.accepted_output_modes,
            task_push_notification_config: read
                .task_push_notification_config
                .map(|config| config.0),
            history_length: read.history_length,
            return_immediately: immediately.unwrap_or_default(),
        }
    }
}

/// Reads the params of `SendMessage` and `SendStreamingMessage`.
pub(super) fn read_send(params: &str) -> Result<Box<SendMessageRequest>, Error> {
    into_send_request(read(params)?, || {
        KaosMarks::read(params).permits_missing_id()
    })
    .ok_or_else(|| Error::invalid("message", "is required"))
}

/// Converts the params; `None` without a message. `has_kaos_marks` is called only if the message
/// has no id.
pub(super) fn into_send_request(
    send: V1SendParams,
    has_kaos_marks: impl FnOnce() -> bool,
) -> Option<Box<SendMessageRequest>> {
    let mut message = send.message?;
    if message.message_id.is_empty() {
        message.message_id = match send.message_id {
            Some(id) => id,
            // 1.0 requires an id. Only KAOS clients, which never send one, get a random id
            // (09, 0.5).
            None if has_kaos_marks() => MessageId::random(),
            None => MessageId::default(),
        };
    }
    message.context_id = message.context_id.or(send.context_id);
    Some(Box::new(SendMessageRequest {
        tenant: send.tenant,
        message,
        configuration: send.configuration.map(Into::into),
        metadata: send.metadata,
        alias: None,
        dialect: None,
        tool_parts: Vec::new(),
    }))
}

/// Reads a push configuration: flat, or nested as in the draft.
pub(super) fn read_push_config(params: &str) -> Result<PushConfig, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DraftPushConfig {
        #[serde(default, deserialize_with = "non_empty")]
        tenant: Option<String>,
        #[serde(default, alias = "task_id", deserialize_with = "non_empty")]
        task_id: Option<TaskId>,
        #[serde(
            default,
            alias = "configId",
            alias = "config_id",
            deserialize_with = "non_empty"
        )]
        id: Option<PushConfigId>,
        #[serde(alias = "pushNotificationConfig", alias = "push_notification_config")]
        config: Option<V1PushConfig>,
    }
    let draft: DraftPushConfig = read(params)?;
    let Some(V1PushConfig(config)) = draft.config else {
        return read(params);
    };
    Ok(PushConfig {
        tenant: draft.tenant,
        id: draft.id.or(config.id),
        task_id: draft.task_id.or(config.task_id),
        ..config
    })
}
