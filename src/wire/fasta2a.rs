//! Responses to clients of fasta2a: the wrappers and parts of 1.0 with the states and roles of 0.x
//! (08 §7).

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::lenient::{v03_role_name, v03_state_name};
use crate::model::{
    Message, SendMessageResponse, StreamResponse, Task, TaskStatus, TaskStatusUpdateEvent,
};

/// Value of the model for a client of fasta2a.
pub(super) struct Fasta2a<'a, T: ?Sized>(pub(super) &'a T);

impl Serialize for Fasta2a<'_, SendMessageResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0 {
            SendMessageResponse::Task(task) => map.serialize_entry("task", &Fasta2a(task))?,
            SendMessageResponse::Message(message) => {
                map.serialize_entry("message", &Fasta2a(message))?;
            }
        }
        map.end()
    }
}

impl Serialize for Fasta2a<'_, StreamResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self.0 {
            StreamResponse::Task(task) => map.serialize_entry("task", &Fasta2a(task))?,
            StreamResponse::Message(message) => {
                map.serialize_entry("message", &Fasta2a(message))?;
            }
            StreamResponse::StatusUpdate(event) => {
                map.serialize_entry("statusUpdate", &Fasta2a(event))?;
            }
            // Artifacts have no states and roles.
            StreamResponse::ArtifactUpdate(event) => {
                map.serialize_entry("artifactUpdate", event)?
            }
        }
        map.end()
    }
}

impl Serialize for Fasta2a<'_, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let task = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &task.id)?;
        map.serialize_entry("contextId", &task.context_id)?;
        map.serialize_entry("status", &Fasta2a(&task.status))?;
        if !task.artifacts.is_empty() {
            map.serialize_entry("artifacts", &task.artifacts)?;
        }
        if !task.history.is_empty() {
            let history = task.history.iter().map(|message| Fasta2a(&**message));
            map.serialize_entry("history", &history.collect::<Vec<_>>())?;
        }
        if let Some(metadata) = &task.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

impl Serialize for Fasta2a<'_, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let status = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", v03_state_name(status.state))?;
        if let Some(message) = &status.message {
            map.serialize_entry("message", &Fasta2a(&**message))?;
        }
        if let Some(time) = &status.timestamp {
            map.serialize_entry("timestamp", time)?;
        }
        map.end()
    }
}

impl Serialize for Fasta2a<'_, TaskStatusUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("taskId", &event.task_id)?;
        map.serialize_entry("contextId", &event.context_id)?;
        map.serialize_entry("status", &Fasta2a(&event.status))?;
        if let Some(metadata) = &event.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

impl Serialize for Fasta2a<'_, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("messageId", &message.message_id)?;
        map.serialize_entry("role", v03_role_name(message.role))?;
        map.serialize_entry("parts", &message.parts)?;
        if let Some(id) = &message.context_id {
            map.serialize_entry("contextId", id)?;
        }
        if let Some(id) = &message.task_id {
            map.serialize_entry("taskId", id)?;
        }
        if !message.reference_task_ids.is_empty() {
            map.serialize_entry("referenceTaskIds", &message.reference_task_ids)?;
        }
        if !message.extensions.is_empty() {
            map.serialize_entry("extensions", &message.extensions)?;
        }
        if let Some(metadata) = &message.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}
