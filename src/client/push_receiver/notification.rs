//! One received push notification.

use crate::client::Client;
use crate::model::{GetTaskRequest, Result, StreamResponse, Task, TaskId, Timestamp};

/// Push notification of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct PushNotification {
    /// The event. Agents of A2A 0.3 send the whole task.
    pub event: StreamResponse,
    /// The sender's id of the event, if it has one.
    pub id: Option<String>,
}

impl PushNotification {
    /// Returns the task of the event; a message may belong to none.
    #[must_use]
    pub fn task_id(&self) -> Option<&TaskId> {
        match &self.event {
            StreamResponse::Task(task) => Some(&task.id),
            StreamResponse::Message(message) => message.task_id.as_ref(),
            StreamResponse::StatusUpdate(update) => Some(&update.task_id),
            StreamResponse::ArtifactUpdate(update) => Some(&update.task_id),
        }
    }

    /// Reads the current task from the agent. A notification may be outdated and, without a signature, forged. Returns
    /// `None` for a message that belongs to no task.
    ///
    /// # Errors
    /// As [`Client::get_task`], for example if the agent has no such task.
    pub async fn task(&self, client: &Client) -> Result<Option<Task>> {
        let Some(id) = self.task_id().cloned() else {
            return Ok(None);
        };
        let request = GetTaskRequest {
            id,
            ..GetTaskRequest::default()
        };
        client.get_task(request).await.map(Some)
    }

    /// Returns the time of the event, if it contains one.
    pub(super) fn time(&self) -> Option<Timestamp> {
        match &self.event {
            StreamResponse::Task(task) => task.status.timestamp,
            StreamResponse::StatusUpdate(update) => update.status.timestamp,
            StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => None,
        }
    }

    /// Whether two notifications with the same body may be different events: chunks of an artifact can be equal.
    pub(super) fn may_repeat(&self) -> bool {
        matches!(&self.event, StreamResponse::ArtifactUpdate(update) if update.append)
    }
}
