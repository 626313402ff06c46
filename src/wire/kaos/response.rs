//! Responses to KAOS clients: a bare task whose answer is in the history and in `output` (09, 0.9).

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::model::{Artifact, Content, Message, Part, Role, Task, TaskState, TaskStatus};
use crate::wire::lenient::{v03_role_name, v03_state_name};
use crate::wire::v03::{Audience, V03, V03List, non_empty_metadata};

/// Status message of a completed task.
const DONE: &str = "Done";

/// Task for a KAOS client.
pub(in crate::wire) struct KaosTask<'a>(pub(in crate::wire) &'a Task);

impl Serialize for KaosTask<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &task.id)?;
        map.serialize_entry("sessionId", &task.context_id)?;
        map.serialize_entry("status", &KaosStatus(&task.status))?;
        map.serialize_entry("history", &KaosHistory(task))?;
        let output = task.text();
        if !output.is_empty() {
            map.serialize_entry("output", &output)?;
        }
        if !task.artifacts.is_empty() {
            map.serialize_entry("artifacts", &V03List(&task.artifacts, Audience::Kaos))?;
        }
        if let Some(metadata) = non_empty_metadata(&task.metadata) {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

/// Direct reply for a KAOS client, which expects a task. No task of this id exists.
pub(in crate::wire) struct KaosMessage<'a>(pub(in crate::wire) &'a Message);

impl Serialize for KaosMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &message.message_id)?;
        if let Some(context) = &message.context_id {
            map.serialize_entry("sessionId", context)?;
        }
        let status = TaskStatus::new(TaskState::Completed);
        map.serialize_entry("status", &KaosStatus(&status))?;
        map.serialize_entry("history", &[HistoryMessage::from(message)])?;
        map.serialize_entry("output", &message.text())?;
        map.end()
    }
}

struct KaosStatus<'a>(&'a TaskStatus);

impl Serialize for KaosStatus<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let status = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", v03_state_name(status.state))?;
        if status.state == TaskState::Completed {
            map.serialize_entry("message", DONE)?;
        } else if let Some(message) = &status.message {
            map.serialize_entry("message", &message.text())?;
        }
        if let Some(time) = &status.timestamp {
            map.serialize_entry("timestamp", time)?;
        }
        map.end()
    }
}

/// Messages of a task. The last one is the agent's answer or question, also if it is an artifact.
struct KaosHistory<'a>(&'a Task);

impl Serialize for KaosHistory<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = self.0;
        let mut list = serializer.serialize_seq(None)?;
        for message in &task.history {
            list.serialize_element(&HistoryMessage::from(&**message))?;
        }
        let status = task.status.message.as_deref().map(HistoryMessage::from);
        let answer = answer_parts(&task.artifacts);
        let answer = (!answer.is_empty()).then_some(HistoryMessage {
            role: Role::Agent,
            parts: &answer,
            message: None,
        });
        let last = if task.is_ended() {
            [status, answer]
        } else {
            [answer, status]
        };
        for message in last.into_iter().flatten() {
            list.serialize_element(&message)?;
        }
        list.end()
    }
}

/// Returns the content of the artifacts as the parts of a message: the text of each, which may have come
/// in many chunks, then its other parts.
fn answer_parts(artifacts: &[Artifact]) -> Vec<Part> {
    let mut parts = Vec::new();
    for artifact in artifacts {
        let text = artifact.as_text();
        if !text.is_empty() {
            parts.push(Part::text(text));
        }
        let is_text = |part: &&Part| matches!(part.content, Content::Text(_));
        parts.extend(artifact.parts.iter().filter(|part| !is_text(part)).cloned());
    }
    parts
}

struct HistoryMessage<'a> {
    role: Role,
    parts: &'a [Part],
    /// Source of further members.
    message: Option<&'a Message>,
}

impl<'a> From<&'a Message> for HistoryMessage<'a> {
    fn from(message: &'a Message) -> Self {
        Self {
            role: message.role,
            parts: &message.parts,
            message: Some(message),
        }
    }
}

impl Serialize for HistoryMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", v03_role_name(self.role))?;
        let parts: Vec<_> = self
            .parts
            .iter()
            .map(|part| V03(part, Audience::Kaos))
            .collect();
        map.serialize_entry("parts", &parts)?;
        let metadata = self
            .message
            .and_then(|message| non_empty_metadata(&message.metadata));
        if let Some(metadata) = metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}
