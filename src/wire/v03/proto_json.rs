//! Serialization for 0.3 REST: the ProtoJSON of `a2a.v1`, which the official SDKs use there. Their
//! readers reject unknown members, so only members of the proto are written.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::message::non_empty_metadata;
use super::push::ProtoPushConfigBody;
use super::request::zero_as_absent;
use crate::model::{
    Artifact, Content, ListPushConfigsResponse, Message, Object, Part, PushConfig,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use crate::wire::part::WRAPPED_DATA_KEY;

/// Value of the model, serialized for 0.3 REST.
pub(in crate::wire) struct V03ProtoJson<'a, T: ?Sized>(pub(in crate::wire) &'a T);

struct ProtoJsonList<'a, T>(&'a [T]);

impl<T> Serialize for ProtoJsonList<'_, T>
where
    for<'b> V03ProtoJson<'b, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(V03ProtoJson))
    }
}

/// Returns the name of a state in `a2a.v1`, where one is spelled with two l's.
fn state(state: TaskState) -> &'static str {
    match state {
        TaskState::Canceled => "TASK_STATE_CANCELLED",
        TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::InputRequired
        | TaskState::Rejected
        | TaskState::AuthRequired => state.as_str(),
    }
}

impl Serialize for V03ProtoJson<'_, Part> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let part = self.0;
        let mut map = serializer.serialize_map(None)?;
        let mut metadata = part.metadata().cloned();
        match &part.content {
            Content::Text(text) => map.serialize_entry("text", text)?,
            Content::Raw(bytes) => map.serialize_entry(
                "file",
                &ProtoJsonFile(part, "fileWithBytes", bytes.as_str()),
            )?,
            Content::Url(url) => {
                map.serialize_entry("file", &ProtoJsonFile(part, "fileWithUri", url))?
            }
            Content::Data(data) => {
                let object = Object::try_from(data.clone()).unwrap_or_else(|_| {
                    metadata
                        .get_or_insert_default()
                        .insert(WRAPPED_DATA_KEY, serde_json::Value::Bool(true));
                    [("value", data.clone())].into_iter().collect()
                });
                map.serialize_entry("data", &[("data", object)].into_iter().collect::<Object>())?;
            }
        }
        if let Some(metadata) = non_empty_metadata(&metadata) {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

struct ProtoJsonFile<'a>(&'a Part, &'static str, &'a str);

impl Serialize for ProtoJsonFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(part, name, content) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(name, content)?;
        if let Some(media_type) = part.media_type() {
            map.serialize_entry("mimeType", media_type)?;
        }
        if let Some(name) = part.filename() {
            map.serialize_entry("name", name)?;
        }
        map.end()
    }
}

impl Serialize for V03ProtoJson<'_, Arc<Message>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        V03ProtoJson(&**self.0).serialize(serializer)
    }
}

impl Serialize for V03ProtoJson<'_, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("messageId", &message.message_id)?;
        if let Some(id) = &message.context_id {
            map.serialize_entry("contextId", id)?;
        }
        if let Some(id) = &message.task_id {
            map.serialize_entry("taskId", id)?;
        }
        map.serialize_entry("role", &message.role)?;
        map.serialize_entry("content", &ProtoJsonList(&message.parts))?;
        if let Some(metadata) = non_empty_metadata(&message.metadata) {
            map.serialize_entry("metadata", metadata)?;
        }
        if !message.extensions.is_empty() {
            map.serialize_entry("extensions", &message.extensions)?;
        }
        map.end()
    }
}

impl Serialize for V03ProtoJson<'_, Artifact> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let artifact = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("artifactId", &artifact.artifact_id)?;
        if let Some(name) = &artifact.name {
            map.serialize_entry("name", name)?;
        }
        if let Some(description) = &artifact.description {
            map.serialize_entry("description", description)?;
        }
        map.serialize_entry("parts", &ProtoJsonList(&artifact.parts))?;
        if let Some(metadata) = non_empty_metadata(&artifact.metadata) {
            map.serialize_entry("metadata", metadata)?;
        }
        if !artifact.extensions.is_empty() {
            map.serialize_entry("extensions", &artifact.extensions)?;
        }
        map.end()
    }
}

impl Serialize for V03ProtoJson<'_, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", state(self.0.state))?;
        if let Some(message) = &self.0.message {
            map.serialize_entry("message", &V03ProtoJson(message))?;
        }
        if let Some(time) = &self.0.timestamp {
            map.serialize_entry("timestamp", time)?;
        }
        map.end()
    }
}

impl Serialize for V03ProtoJson<'_, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &task.id)?;
        map.serialize_entry("contextId", &task.context_id)?;
        map.serialize_entry("status", &V03ProtoJson(&task.status))?;
        if !task.artifacts.is_empty() {
            map.serialize_entry("artifacts", &ProtoJsonList(&task.artifacts))?;
        }
        if !task.history.is_empty() {
            map.serialize_entry("history", &ProtoJsonList(&task.history))?;
        }
        if let Some(metadata) = &task.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// Status event with the flag `final`.
struct ProtoJsonStatusEvent<'a> {
    event: &'a TaskStatusUpdateEvent,
    closes: bool,
}

impl Serialize for ProtoJsonStatusEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { event, closes } = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("taskId", &event.task_id)?;
        map.serialize_entry("contextId", &event.context_id)?;
        map.serialize_entry("status", &V03ProtoJson(&event.status))?;
        if closes {
            map.serialize_entry("final", &true)?;
        }
        if let Some(metadata) = &event.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

impl Serialize for V03ProtoJson<'_, TaskArtifactUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("taskId", &event.task_id)?;
        map.serialize_entry("contextId", &event.context_id)?;
        map.serialize_entry("artifact", &V03ProtoJson(&event.artifact))?;
        if event.append {
            map.serialize_entry("append", &true)?;
        }
        if event.last_chunk {
            map.serialize_entry("lastChunk", &true)?;
        }
        if let Some(metadata) = &event.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// Stream event with the flag `final`.
pub(in crate::wire) struct ProtoJsonEvent<'a> {
    pub(in crate::wire) event: &'a StreamResponse,
    pub(in crate::wire) closes: bool,
}

impl Serialize for ProtoJsonEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.event {
            StreamResponse::Task(task) => map.serialize_entry("task", &V03ProtoJson(task))?,
            StreamResponse::Message(message) => {
                map.serialize_entry("message", &V03ProtoJson(message))?
            }
            StreamResponse::StatusUpdate(event) => {
                let closes = self.closes;
                map.serialize_entry("statusUpdate", &ProtoJsonStatusEvent { event, closes })?
            }
            StreamResponse::ArtifactUpdate(event) => {
                map.serialize_entry("artifactUpdate", &V03ProtoJson(event))?
            }
        }
        map.end()
    }
}

impl Serialize for V03ProtoJson<'_, SendMessageResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0 {
            SendMessageResponse::Task(task) => map.serialize_entry("task", &V03ProtoJson(task))?,
            SendMessageResponse::Message(message) => {
                map.serialize_entry("message", &V03ProtoJson(message))?
            }
        }
        map.end()
    }
}

impl Serialize for V03ProtoJson<'_, PushConfig> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("name", &resource_name(self.0))?;
        map.serialize_entry("pushNotificationConfig", &ProtoPushConfigBody(self.0))?;
        map.end()
    }
}

/// Returns the resource name of a push configuration.
pub(in crate::wire) fn resource_name(config: &PushConfig) -> String {
    let task = config.task_id.clone().unwrap_or_default();
    format!(
        "tasks/{task}/pushNotificationConfigs/{}",
        config.id.clone().unwrap_or_default()
    )
}

impl Serialize for V03ProtoJson<'_, ListPushConfigsResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("configs", &ProtoJsonList(&self.0.configs))?;
        map.end()
    }
}

/// Body that creates a push configuration: the whole request of the proto.
pub(in crate::wire) struct ProtoJsonCreateConfig<'a>(pub(in crate::wire) &'a PushConfig);

impl Serialize for ProtoJsonCreateConfig<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let config = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(
            "parent",
            &format!("tasks/{}", config.task_id.clone().unwrap_or_default()),
        )?;
        if let Some(id) = &config.id {
            map.serialize_entry("configId", id)?;
        }
        map.serialize_entry("config", &V03ProtoJson(config))?;
        map.end()
    }
}

impl Serialize for V03ProtoJson<'_, SendMessageRequest> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message", &V03ProtoJson(&request.message))?;
        if let Some(configuration) = &request.configuration {
            map.serialize_entry("configuration", &ProtoJsonConfiguration(configuration))?;
        }
        if let Some(metadata) = &request.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

struct ProtoJsonConfiguration<'a>(&'a SendMessageConfiguration);

impl Serialize for ProtoJsonConfiguration<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let configuration = self.0;
        let mut map = serializer.serialize_map(None)?;
        if !configuration.accepted_output_modes.is_empty() {
            map.serialize_entry("acceptedOutputModes", &configuration.accepted_output_modes)?;
        }
        if let Some(config) = &configuration.task_push_notification_config {
            map.serialize_entry("pushNotification", &ProtoPushConfigBody(config))?;
        }
        if let Some(length) = zero_as_absent(configuration.history_length) {
            map.serialize_entry("historyLength", &length)?;
        }
        // Absent means non-blocking.
        if !configuration.return_immediately {
            map.serialize_entry("blocking", &true)?;
        }
        map.end()
    }
}
