//! Tasks and their events in 0.3 JSON.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};

use super::message::{ArtifactIn, List, MessageOrText};
use super::read::PartIn;
use super::{Age, MessageIn, V03};
use crate::model::{
    Artifact, ArtifactId, ContextId, Json, Object, Task, TaskArtifactUpdateEvent, TaskId,
    TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp, int32, non_empty, or_default,
};
use crate::wire::json::{at, below, read};
use crate::wire::spelling::state_v03;

/// 0.1 had fewer states.
fn state(state: TaskState, age: Age<'_>) -> &'static str {
    match (state, age) {
        (TaskState::Rejected, Age::First(_)) => state_v03(TaskState::Failed),
        (TaskState::AuthRequired, Age::First(_)) => state_v03(TaskState::InputRequired),
        (state, _) => state_v03(state),
    }
}

impl Serialize for V03<'_, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (status, age) = (self.0, self.1);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", state(status.state, age))?;
        if let Some(message) = &status.message {
            map.serialize_entry("message", &V03(message, age))?;
        }
        if let Some(time) = &status.timestamp {
            map.serialize_entry("timestamp", time)?;
        }
        map.end()
    }
}

impl Serialize for V03<'_, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (task, age) = (self.0, self.1);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "task")?;
        match age {
            Age::First(Some(id)) => map.serialize_entry("id", id)?,
            Age::First(None) | Age::Today | Age::Tools => map.serialize_entry("id", &task.id)?,
        }
        map.serialize_entry("contextId", &task.context_id)?;
        if age.is_first() {
            map.serialize_entry("sessionId", &task.context_id)?;
        }
        map.serialize_entry("status", &V03(&task.status, age))?;
        if !task.artifacts.is_empty() {
            map.serialize_entry("artifacts", &List(&task.artifacts, age))?;
        }
        if !task.history.is_empty() {
            map.serialize_entry("history", &List(&task.history, age))?;
        }
        if let Some(metadata) = &task.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// What both events begin with.
fn begin_event<M: SerializeMap>(
    map: &mut M,
    kind: &str,
    ids: (&TaskId, &ContextId),
    age: Age<'_>,
) -> Result<(), M::Error> {
    map.serialize_entry("kind", kind)?;
    if let Age::First(id) = age {
        map.serialize_entry("id", id.unwrap_or(ids.0))?;
    }
    map.serialize_entry("taskId", ids.0)?;
    map.serialize_entry("contextId", ids.1)
}

/// A status event, and whether the stream ends with it.
pub(in crate::wire) struct StatusEventOut<'a>(
    pub(in crate::wire) &'a TaskStatusUpdateEvent,
    pub(in crate::wire) bool,
    pub(in crate::wire) Age<'a>,
);

impl Serialize for StatusEventOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(event, closes, age) = *self;
        let mut map = serializer.serialize_map(None)?;
        begin_event(
            &mut map,
            "status-update",
            (&event.task_id, &event.context_id),
            age,
        )?;
        map.serialize_entry("status", &V03(&event.status, age))?;
        map.serialize_entry("final", &closes)?;
        if let Some(metadata) = &event.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

impl Serialize for V03<'_, TaskArtifactUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (event, age) = (self.0, self.1);
        let mut map = serializer.serialize_map(None)?;
        begin_event(
            &mut map,
            "artifact-update",
            (&event.task_id, &event.context_id),
            age,
        )?;
        map.serialize_entry("artifact", &V03(&event.artifact, age))?;
        map.serialize_entry("append", &event.append)?;
        map.serialize_entry("lastChunk", &event.last_chunk)?;
        if let Some(metadata) = &event.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

#[derive(Deserialize)]
struct StatusIn<const PROTO: bool> {
    #[serde(default, deserialize_with = "or_default")]
    state: TaskState,
    #[serde(default, alias = "update")]
    message: Option<MessageOrText<PROTO>>,
    #[serde(default)]
    timestamp: Option<Timestamp>,
}

impl<const PROTO: bool> Default for StatusIn<PROTO> {
    fn default() -> Self {
        Self {
            state: TaskState::Unspecified,
            message: None,
            timestamp: None,
        }
    }
}

impl<const PROTO: bool> From<StatusIn<PROTO>> for TaskStatus {
    fn from(read: StatusIn<PROTO>) -> Self {
        let message = read.message.map(|message| Arc::new(message.0.0));
        Self {
            state: read.state,
            message,
            timestamp: read.timestamp,
        }
    }
}

/// A task of 0.1 to 0.3.
pub(in crate::wire) struct TaskIn<const PROTO: bool>(pub(in crate::wire) Task);

impl<'de, const PROTO: bool> Deserialize<'de> for TaskIn<PROTO> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<const PROTO: bool> {
            kind: Option<String>,
            #[serde(default, deserialize_with = "or_default")]
            id: TaskId,
            #[serde(default, alias = "context_id", deserialize_with = "non_empty")]
            context_id: Option<ContextId>,
            #[serde(default, deserialize_with = "non_empty")]
            session_id: Option<ContextId>,
            #[serde(default, deserialize_with = "or_default")]
            status: StatusIn<PROTO>,
            #[serde(default, deserialize_with = "or_default")]
            artifacts: Vec<ArtifactIn<PROTO>>,
            #[serde(default, deserialize_with = "or_default")]
            history: Vec<MessageIn<PROTO>>,
            metadata: Option<Object>,
            output: Option<Json>,
        }
        let read = Members::<PROTO>::deserialize(deserializer)?;
        check_kind(read.kind, "task")?;
        let mut metadata = read.metadata;
        if let Some(output) = read.output {
            metadata.get_or_insert_default().insert("output", output);
        }
        Ok(Self(Task {
            id: read.id,
            context_id: read.context_id.or(read.session_id).unwrap_or_default(),
            status: read.status.into(),
            artifacts: read
                .artifacts
                .into_iter()
                .map(|read| read.artifact)
                .collect(),
            history: read
                .history
                .into_iter()
                .map(|message| Arc::new(message.0))
                .collect(),
            metadata,
        }))
    }
}

fn check_kind<E: serde::de::Error>(kind: Option<String>, wanted: &'static str) -> Result<(), E> {
    match kind {
        Some(kind) if kind != wanted => Err(at("kind", format_args!("must be {wanted}"))),
        _ => Ok(()),
    }
}

/// A status event of 0.1 to 0.3. Whether it said `final` does not matter to us: the state does.
pub(in crate::wire) struct StatusEventIn<const PROTO: bool>(
    pub(in crate::wire) TaskStatusUpdateEvent,
);

impl<'de, const PROTO: bool> Deserialize<'de> for StatusEventIn<PROTO> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<const PROTO: bool> {
            kind: Option<String>,
            #[serde(default, alias = "task_id", deserialize_with = "non_empty")]
            task_id: Option<TaskId>,
            #[serde(default, deserialize_with = "non_empty")]
            id: Option<TaskId>,
            #[serde(default, alias = "context_id", deserialize_with = "or_default")]
            context_id: ContextId,
            #[serde(default, deserialize_with = "or_default")]
            status: StatusIn<PROTO>,
            metadata: Option<Object>,
        }
        let read = Members::<PROTO>::deserialize(deserializer)?;
        check_kind(read.kind, "status-update")?;
        Ok(Self(TaskStatusUpdateEvent {
            task_id: read.task_id.or(read.id).unwrap_or_default(),
            context_id: read.context_id,
            status: read.status.into(),
            metadata: read.metadata,
        }))
    }
}

/// An artifact event of 0.1 to 0.3.
pub(in crate::wire) struct ArtifactEventIn<const PROTO: bool>(
    pub(in crate::wire) TaskArtifactUpdateEvent,
);

impl<'de, const PROTO: bool> Deserialize<'de> for ArtifactEventIn<PROTO> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<const PROTO: bool> {
            kind: Option<String>,
            #[serde(default, alias = "task_id", deserialize_with = "non_empty")]
            task_id: Option<TaskId>,
            #[serde(default, deserialize_with = "non_empty")]
            id: Option<TaskId>,
            #[serde(default, alias = "context_id", deserialize_with = "or_default")]
            context_id: ContextId,
            artifact: Option<ArtifactIn<PROTO>>,
            append: Option<bool>,
            #[serde(alias = "last_chunk")]
            last_chunk: Option<bool>,
            metadata: Option<Object>,
            #[serde(default, deserialize_with = "int32")]
            index: Option<i32>,
            part: Option<Object>,
        }
        let read = Members::<PROTO>::deserialize(deserializer)?;
        check_kind(read.kind, "artifact-update")?;
        let given = match (read.artifact, read.part) {
            (Some(artifact), _) => artifact,
            (None, Some(part)) => lone_part(&part, read.index)?,
            (None, None) => return Err(at("artifact", "is required")),
        };
        Ok(Self(TaskArtifactUpdateEvent {
            task_id: read.task_id.or(read.id).unwrap_or_default(),
            context_id: read.context_id,
            artifact: given.artifact,
            append: read.append.unwrap_or(given.append),
            last_chunk: read.last_chunk.unwrap_or(given.last_chunk),
            metadata: read.metadata,
        }))
    }
}

/// One seed sends a numbered part instead of an artifact, with `append` inside it.
fn lone_part<E: serde::de::Error, const PROTO: bool>(
    part: &Object,
    index: Option<i32>,
) -> Result<ArtifactIn<PROTO>, E> {
    let append = part
        .get("append")
        .is_some_and(|append| append.get() == "true");
    let part: PartIn<PROTO> = read(part.get_text()).map_err(|error| below("part", &error))?;
    let artifact_id = ArtifactId::from(format!("artifact-{}", index.unwrap_or_default()));
    let artifact = Artifact {
        artifact_id,
        parts: vec![part.0],
        ..Artifact::default()
    };
    Ok(ArtifactIn {
        artifact,
        append,
        last_chunk: false,
    })
}
