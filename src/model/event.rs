//! Events of a task's log, and the updates that streams derive from them.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{
    Artifact, ContextId, Message, Object, Task, TaskId, TaskStatus, Timestamp, TraceContext,
    Version, or_default,
};

/// Position in the log of a task. The first entry is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seq(pub u64);

/// Entry in the log of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Position in the log.
    pub seq: Seq,
    /// Time of recording. Only `seq` defines the order.
    pub time: Timestamp,
    /// Recorded event.
    pub event: Event,
}

/// Event in the log of a task. A [`Task`] is the fold of its events.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// First entry of every log: the task is created in state submitted.
    Created {
        /// Id of the task.
        id: TaskId,
        /// Context (conversation) of the task.
        context_id: ContextId,
        /// Initial metadata.
        metadata: Option<Object>,
    },
    /// Message from the client.
    Message(Arc<Message>),
    /// W3C trace context of the preceding message.
    TraceContext(TraceContext),
    /// Protocol version and extensions of the call that sent the preceding message, if they differ from a plain 1.0 call.
    /// Recorded on shared stores, where another replica may run the turn.
    CallMetadata(CallMetadata),
    /// An agent started a turn for the messages so far.
    TurnStarted,
    /// Change of status.
    Status {
        /// New status.
        status: TaskStatus,
        /// Metadata to merge into that of the task.
        metadata: Option<Object>,
    },
    /// Artifact or chunk of an artifact.
    Artifact {
        /// Artifact or chunk.
        artifact: Artifact,
        /// Whether the parts are appended to the artifact with the same id.
        append: bool,
        /// Whether this is the last chunk.
        last_chunk: bool,
        /// Metadata of the event.
        metadata: Option<Object>,
    },
    /// A client requested cancellation.
    CancelRequested {
        /// Metadata of the cancel request.
        metadata: Option<Object>,
    },
    /// An event was rejected, because it came too late or violated the protocol. No effect on the
    /// task.
    Ignored {
        /// Short reason for the log.
        reason: String,
    },
    /// The turn ended.
    TurnEnded,
}

/// Properties of a call that its turn needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallMetadata {
    /// Protocol version of the call.
    pub version: Version,
    /// URIs of the active extensions.
    pub extensions: Vec<String>,
}

impl Entry {
    /// Returns the stream event for this entry, or `None` for entries that are internal to the
    /// server.
    #[must_use]
    pub fn update(&self, id: &TaskId, context_id: &ContextId) -> Option<StreamResponse> {
        let task_id = id.clone();
        let context_id = context_id.clone();
        match &self.event {
            Event::Status { status, metadata } => {
                Some(StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                    task_id,
                    context_id,
                    status: TaskStatus {
                        timestamp: status.timestamp.or(Some(self.time)),
                        ..status.clone()
                    },
                    metadata: metadata.clone(),
                }))
            }
            Event::Artifact {
                artifact,
                append,
                last_chunk,
                metadata,
            } => Some(StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id,
                context_id,
                artifact: artifact.clone(),
                append: *append,
                last_chunk: *last_chunk,
                metadata: metadata.clone(),
            })),
            Event::Created { .. }
            | Event::Message(_)
            | Event::TraceContext(_)
            | Event::CallMetadata(_)
            | Event::TurnStarted
            | Event::CancelRequested { .. }
            | Event::Ignored { .. }
            | Event::TurnEnded => None,
        }
    }
}

/// Stream event: change of status.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatusUpdateEvent {
    /// Id of the task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// Context of the task.
    #[serde(default, alias = "context_id", deserialize_with = "or_default")]
    pub context_id: ContextId,
    /// New status.
    #[serde(default, deserialize_with = "or_default")]
    pub status: TaskStatus,
    /// Metadata to merge into that of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

/// Stream event: artifact or chunk of an artifact.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskArtifactUpdateEvent {
    /// Id of the task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// Context of the task.
    #[serde(default, alias = "context_id", deserialize_with = "or_default")]
    pub context_id: ContextId,
    /// Artifact or chunk.
    #[serde(default, deserialize_with = "or_default")]
    pub artifact: Artifact,
    /// Whether the parts are appended to the artifact with the same id.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub append: bool,
    /// Whether this is the last chunk.
    #[serde(
        default,
        alias = "last_chunk",
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub last_chunk: bool,
    /// Metadata of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// Payload of a stream event or push notification.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamResponse {
    /// Current task.
    Task(Task),
    /// Direct message; the agent created no task.
    Message(Message),
    /// Change of status.
    StatusUpdate(TaskStatusUpdateEvent),
    /// Artifact or chunk of an artifact.
    ArtifactUpdate(TaskArtifactUpdateEvent),
}

impl<'de> Deserialize<'de> for StreamResponse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StreamResponseVisitor)
    }
}

/// Deserializes the single member directly. A struct with four optional members would need four
/// times the stack space.
struct StreamResponseVisitor;

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum StreamResponseField {
    Task,
    Message,
    #[serde(alias = "status_update")]
    StatusUpdate,
    #[serde(alias = "artifact_update")]
    ArtifactUpdate,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for StreamResponseVisitor {
    type Value = StreamResponse;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StreamResponse, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key()? {
            let member = match name {
                StreamResponseField::Task => {
                    map.next_value::<Option<_>>()?.map(StreamResponse::Task)
                }
                StreamResponseField::Message => {
                    map.next_value::<Option<_>>()?.map(StreamResponse::Message)
                }
                StreamResponseField::StatusUpdate => map
                    .next_value::<Option<_>>()?
                    .map(StreamResponse::StatusUpdate),
                StreamResponseField::ArtifactUpdate => map
                    .next_value::<Option<_>>()?
                    .map(StreamResponse::ArtifactUpdate),
                StreamResponseField::Other => map.next_value::<IgnoredAny>().map(|_| None)?,
            };
            if found.is_some() && member.is_some() {
                return Err(not_exactly_one());
            }
            found = found.or(member);
        }
        found.ok_or_else(not_exactly_one)
    }
}

fn not_exactly_one<E: de::Error>() -> E {
    E::custom("must have exactly one of task, message, statusUpdate, artifactUpdate")
}
