//! Tasks and stream events in 0.3 JSON.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};

use super::message::{V03Artifact, V03List, V03MessageOrText};
use super::part::V03Part;
use super::{Audience, V03, V03Message};
use crate::model::{
    Artifact, ArtifactId, ContextId, Json, OUTPUT_KEY, Object, Task, TaskArtifactUpdateEvent,
    TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp, int32, non_empty, or_default,
};
use crate::wire::json::{field_error, nested_field_error, read};
use crate::wire::lenient::v03_state_name;

/// Returns the name of a state. 0.1 lacks two states.
fn state(state: TaskState, audience: Audience<'_>) -> &'static str {
    match (state, audience) {
        (TaskState::Rejected, Audience::V01(_)) => v03_state_name(TaskState::Failed),
        (TaskState::AuthRequired, Audience::V01(_)) => v03_state_name(TaskState::InputRequired),
        (state, _) => v03_state_name(state),
    }
}

impl Serialize for V03<'_, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status, audience) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", state(status.state, audience))?;
        if let Some(message) = &status.message {
            map.serialize_entry("message", &V03(message, audience))?;
        }
        if let Some(time) = &status.timestamp {
            map.serialize_entry("timestamp", time)?;
        }
        map.end()
    }
}

impl Serialize for V03<'_, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(task, audience) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", "task")?;
        match audience {
            Audience::V01(Some(id)) => map.serialize_entry("id", id)?,
            Audience::V01(None) | Audience::V03 | Audience::Tools | Audience::Kaos => {
                map.serialize_entry("id", &task.id)?
            }
        }
        map.serialize_entry("contextId", &task.context_id)?;
        if audience.is_v01() {
            map.serialize_entry("sessionId", &task.context_id)?;
        }
        map.serialize_entry("status", &V03(&task.status, audience))?;
        if !task.artifacts.is_empty() {
            map.serialize_entry("artifacts", &V03List(&task.artifacts, audience))?;
        }
        if !task.history.is_empty() {
            map.serialize_entry("history", &V03List(&task.history, audience))?;
        }
        if let Some(metadata) = &*audience.metadata(&task.metadata) {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// Writes the common members of both stream events.
fn begin_event<M: SerializeMap>(
    map: &mut M,
    kind: &str,
    task: &TaskId,
    context: &ContextId,
    audience: Audience<'_>,
) -> Result<(), M::Error> {
    map.serialize_entry("kind", kind)?;
    if let Audience::V01(alias) = audience {
        map.serialize_entry("id", alias.unwrap_or(task))?;
    }
    map.serialize_entry("taskId", task)?;
    map.serialize_entry("contextId", context)
}

/// Status event with the flag `final`.
pub(in crate::wire) struct V03StatusEventWriter<'a> {
    pub(in crate::wire) event: &'a TaskStatusUpdateEvent,
    pub(in crate::wire) closes: bool,
    pub(in crate::wire) audience: Audience<'a>,
}

impl Serialize for V03StatusEventWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            event,
            closes,
            audience,
        } = *self;
        let mut map = serializer.serialize_map(None)?;
        begin_event(
            &mut map,
            "status-update",
            &event.task_id,
            &event.context_id,
            audience,
        )?;
        map.serialize_entry("status", &V03(&event.status, audience))?;
        map.serialize_entry("final", &closes)?;
        if let Some(metadata) = &*audience.metadata(&event.metadata) {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

impl Serialize for V03<'_, TaskArtifactUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(event, audience) = *self;
        let mut map = serializer.serialize_map(None)?;
        begin_event(
            &mut map,
            "artifact-update",
            &event.task_id,
            &event.context_id,
            audience,
        )?;
        map.serialize_entry("artifact", &V03(&event.artifact, audience))?;
        map.serialize_entry("append", &event.append)?;
        map.serialize_entry("lastChunk", &event.last_chunk)?;
        if let Some(metadata) = &*audience.metadata(&event.metadata) {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

#[derive(Deserialize)]
struct V03Status<const PROTO: bool> {
    #[serde(default, deserialize_with = "or_default")]
    state: TaskState,
    #[serde(default, alias = "update")]
    message: Option<V03MessageOrText<PROTO>>,
    #[serde(default)]
    timestamp: Option<Timestamp>,
}

impl<const PROTO: bool> Default for V03Status<PROTO> {
    fn default() -> Self {
        Self {
            state: TaskState::Unspecified,
            message: None,
            timestamp: None,
        }
    }
}

impl<const PROTO: bool> From<V03Status<PROTO>> for TaskStatus {
    fn from(read: V03Status<PROTO>) -> Self {
        let message = read.message.map(|message| Arc::new(message.0.0));
        Self {
            state: read.state,
            message,
            timestamp: read.timestamp,
        }
    }
}

/// Task of 0.1 to 0.3.
pub(in crate::wire) struct V03Task<const PROTO: bool>(pub(in crate::wire) Task);

impl<'de, const PROTO: bool> Deserialize<'de> for V03Task<PROTO> {
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
            status: V03Status<PROTO>,
            #[serde(default, deserialize_with = "or_default")]
            artifacts: Vec<V03Artifact<PROTO>>,
            #[serde(default, deserialize_with = "or_default")]
            history: Vec<V03Message<PROTO>>,
            metadata: Option<Object>,
            output: Option<Json>,
        }
        let read = Members::<PROTO>::deserialize(deserializer)?;
        check_kind(read.kind, "task")?;
        let mut metadata = read.metadata;
        if let Some(output) = read.output {
            metadata.get_or_insert_default().insert(OUTPUT_KEY, output);
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
        Some(kind) if kind != wanted => Err(field_error("kind", format_args!("must be {wanted}"))),
        _ => Ok(()),
    }
}

/// Status event of 0.1 to 0.3. `final` is ignored; the state determines whether the task has ended.
pub(in crate::wire) struct V03StatusEvent<const PROTO: bool>(
    pub(in crate::wire) TaskStatusUpdateEvent,
);

impl<'de, const PROTO: bool> Deserialize<'de> for V03StatusEvent<PROTO> {
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
            status: V03Status<PROTO>,
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

/// Artifact event of 0.1 to 0.3.
pub(in crate::wire) struct V03ArtifactEvent<const PROTO: bool>(
    pub(in crate::wire) TaskArtifactUpdateEvent,
);

impl<'de, const PROTO: bool> Deserialize<'de> for V03ArtifactEvent<PROTO> {
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
            artifact: Option<V03Artifact<PROTO>>,
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
        let found = match (read.artifact, read.part) {
            (Some(artifact), _) => artifact,
            (None, Some(part)) => artifact_from_part(&part, read.index)?,
            (None, None) => return Err(field_error("artifact", "is required")),
        };
        Ok(Self(TaskArtifactUpdateEvent {
            task_id: read.task_id.or(read.id).unwrap_or_default(),
            context_id: read.context_id,
            artifact: found.artifact,
            append: read.append.unwrap_or(found.append),
            last_chunk: read.last_chunk.unwrap_or(found.last_chunk),
            metadata: read.metadata,
        }))
    }
}

/// Converts the numbered part that RxJS agents send instead of an artifact, with `append` inside it
/// (09, 2.6).
fn artifact_from_part<E: serde::de::Error, const PROTO: bool>(
    part: &Object,
    index: Option<i32>,
) -> Result<V03Artifact<PROTO>, E> {
    let append = part
        .get("append")
        .is_some_and(|append| append.get() == "true");
    let part: V03Part<PROTO> =
        read(part.as_str()).map_err(|error| nested_field_error("part", &error))?;
    let artifact_id = ArtifactId::from(format!("artifact-{}", index.unwrap_or_default()));
    let artifact = Artifact {
        artifact_id,
        parts: vec![part.part],
        ..Artifact::default()
    };
    Ok(V03Artifact {
        artifact,
        append,
        last_chunk: false,
    })
}
