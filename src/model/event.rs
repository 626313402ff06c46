//! All that can happen to a task, and what of it callers are told.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{
    Artifact, ContextId, Message, Object, Task, TaskId, TaskStatus, Timestamp, TraceContext,
    or_default,
};

/// A position in the log of a task; the first entry is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seq(pub u64);

/// One entry in the log of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its place in the log.
    pub seq: Seq,
    /// When it was recorded. Order comes from `seq`, never from this.
    pub time: Timestamp,
    /// What happened.
    pub event: Event,
}

/// All that can happen to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The task exists and is submitted.
    Created {
        /// Its id.
        id: TaskId,
        /// The conversation it belongs to.
        context_id: ContextId,
        /// What was known of it from the start.
        metadata: Option<Object>,
    },
    /// A message came in.
    Message(Arc<Message>),
    /// The trace that the message before this belongs to.
    TraceContext(TraceContext),
    /// An agent began to work on the messages so far.
    TurnStarted,
    /// The task has a new status.
    Status {
        /// The status.
        status: TaskStatus,
        /// Merged into the task's metadata.
        metadata: Option<Object>,
    },
    /// An artifact, or a chunk of one.
    Artifact {
        /// The artifact or the chunk.
        artifact: Artifact,
        /// Whether it goes behind what is there under the same id.
        append: bool,
        /// Whether it is the last chunk.
        last_chunk: bool,
        /// Metadata of the event itself.
        metadata: Option<Object>,
    },
    /// Somebody asked for the task to be canceled.
    CancelRequested {
        /// What they said with it.
        metadata: Option<Object>,
    },
    /// Something came too late, or was not allowed, and had no effect.
    Ignored {
        /// Why, in a word.
        reason: String,
    },
    /// The agent's turn is over.
    TurnEnded,
}

impl Entry {
    /// What callers are told of this entry; most entries are nobody's business.
    #[must_use]
    pub fn update(&self, id: &TaskId, context_id: &ContextId) -> Option<StreamResponse> {
        let (task_id, context_id) = (id.clone(), context_id.clone());
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
            | Event::TurnStarted
            | Event::CancelRequested { .. }
            | Event::Ignored { .. }
            | Event::TurnEnded => None,
        }
    }
}

/// A task has a new status.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatusUpdateEvent {
    /// The task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// Its conversation.
    #[serde(default, alias = "context_id", deserialize_with = "or_default")]
    pub context_id: ContextId,
    /// The status.
    #[serde(default, deserialize_with = "or_default")]
    pub status: TaskStatus,
    /// Merged into the task's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

/// A task has an artifact, or a chunk of one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskArtifactUpdateEvent {
    /// The task.
    #[serde(default, alias = "task_id", deserialize_with = "or_default")]
    pub task_id: TaskId,
    /// Its conversation.
    #[serde(default, alias = "context_id", deserialize_with = "or_default")]
    pub context_id: ContextId,
    /// The artifact or the chunk.
    #[serde(default, deserialize_with = "or_default")]
    pub artifact: Artifact,
    /// Whether it goes behind what is there under the same id.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub append: bool,
    /// Whether it is the last chunk.
    #[serde(
        default,
        alias = "last_chunk",
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub last_chunk: bool,
    /// Metadata of the event itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// What a stream or a webhook carries.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamResponse {
    /// The task as it stands.
    Task(Task),
    /// A plain answer; no task was made.
    Message(Message),
    /// A new status.
    StatusUpdate(TaskStatusUpdateEvent),
    /// An artifact, or a chunk of one.
    ArtifactUpdate(TaskArtifactUpdateEvent),
}

impl<'de> Deserialize<'de> for StreamResponse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(StreamResponseVisitor)
    }
}

/// Reads the one member straight into its place: four that could be there are four times as large.
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
