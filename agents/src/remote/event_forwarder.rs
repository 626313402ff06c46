//! What another agent tells of its task, said again of ours.

use std::collections::HashMap;

use attache::model::{
    Artifact, ArtifactId, Message, MessageId, Object, Part, Role, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus,
};
use attache::{Outcome, Question, Turn};

use super::task_link::{RemoteTaskLink, without_reserved_keys};
use crate::lineage::Cost;

/// Passes on what comes, each thing once.
pub(super) struct EventForwarder<'a> {
    turn: &'a Turn,
    link: RemoteTaskLink,
    /// Results that our task has, as the other agent has them.
    artifacts: HashMap<ArtifactId, Artifact>,
    /// The last words that were passed on.
    last_message_id: Option<MessageId>,
    metadata: Option<Object>,
}

impl<'a> EventForwarder<'a> {
    pub(super) fn new(turn: &'a Turn, link: RemoteTaskLink) -> Self {
        let artifacts = turn.task().artifacts.iter();
        let artifacts = artifacts
            .map(|artifact| (artifact.artifact_id.clone(), artifact.clone()))
            .collect();
        Self {
            turn,
            link,
            artifacts,
            last_message_id: None,
            metadata: None,
        }
    }

    /// Passes on one event; how the turn ends is said elsewhere.
    pub(super) async fn forward(&mut self, event: StreamResponse) {
        match event {
            StreamResponse::Task(task) => {
                self.update_link(&task).await;
                self.forward_metadata(task.metadata.as_ref()).await;
                self.forward_status(&task.status).await;
                for artifact in task.artifacts {
                    self.forward_artifact(artifact).await;
                }
            }
            StreamResponse::StatusUpdate(event) => {
                let seen = Task {
                    id: event.task_id,
                    context_id: event.context_id,
                    ..Task::default()
                };
                self.update_link(&seen).await;
                self.forward_metadata(event.metadata.as_ref()).await;
                self.forward_status(&event.status).await;
            }
            StreamResponse::ArtifactUpdate(event) => {
                let seen = Task {
                    id: event.task_id.clone(),
                    context_id: event.context_id.clone(),
                    ..Task::default()
                };
                self.update_link(&seen).await;
                self.forward_chunk(event).await;
            }
            StreamResponse::Message(message) => {
                self.link.context_id = message.context_id.or(self.link.context_id.take());
                self.record_delivery().await;
            }
        }
    }

    /// Keeps which task it is, the first time that it is heard of.
    async fn update_link(&mut self, seen: &Task) {
        let before = self.link.clone();
        if !seen.id.as_str().is_empty() {
            self.link.task_id = Some(seen.id.clone());
        }
        if !seen.context_id.is_empty() {
            self.link.context_id = Some(seen.context_id.clone());
        }
        self.link.record_delivery(self.turn);
        if self.link != before {
            self.turn.add_metadata(self.link.to_metadata()).await;
        }
    }

    async fn record_delivery(&mut self) {
        self.link.record_delivery(self.turn);
        self.turn.add_metadata(self.link.to_metadata()).await;
    }

    async fn forward_metadata(&mut self, metadata: Option<&Object>) {
        let mut passed = metadata.and_then(without_reserved_keys);
        if let Some(passed) = &mut passed {
            Cost::routing_cost(self.turn).add_to(passed);
        }
        if passed.is_some() && passed != self.metadata {
            self.metadata.clone_from(&passed);
            self.turn.add_metadata(passed.unwrap_or_default()).await;
        }
    }

    /// What is said of a task that goes on. What it ends with, or waits for, is the outcome of the turn.
    async fn forward_status(&mut self, status: &TaskStatus) {
        let Some(message) = status.message.as_deref() else {
            return;
        };
        if self.last_message_id.as_ref() == Some(&message.message_id)
            && !message.message_id.is_empty()
        {
            return;
        }
        let Some(words) = forwarded_message(message) else {
            return;
        };
        match status.state {
            TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
                self.turn.say_message(words).await;
            }
            // Its turn may go on while credentials come from elsewhere.
            TaskState::AuthRequired => self.turn.require_auth_message(words).await,
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Canceled
            | TaskState::InputRequired
            | TaskState::Rejected => return,
        }
        self.last_message_id = Some(message.message_id.clone());
    }

    /// A result as it stands.
    async fn forward_artifact(&mut self, artifact: Artifact) {
        let known = self.artifacts.get(&artifact.artifact_id);
        if artifact.parts.is_empty() || known.is_some_and(|known| known.parts == artifact.parts) {
            return;
        }
        self.artifacts
            .insert(artifact.artifact_id.clone(), artifact.clone());
        self.turn.add_artifact(artifact).await;
    }

    /// A piece of a result. One for a result that we do not have begins it, and one that is empty only ends it.
    async fn forward_chunk(&mut self, event: TaskArtifactUpdateEvent) {
        let TaskArtifactUpdateEvent {
            mut artifact,
            append,
            last_chunk,
            ..
        } = event;
        let append = append && self.artifacts.contains_key(&artifact.artifact_id);
        if artifact.parts.is_empty() {
            if !(append && last_chunk) {
                return;
            }
            artifact.parts.push(Part::text(""));
        }
        match self
            .artifacts
            .get_mut(&artifact.artifact_id)
            .filter(|_| append)
        {
            Some(known) => known.extend(&artifact),
            None => {
                self.artifacts
                    .insert(artifact.artifact_id.clone(), artifact.clone());
            }
        }
        self.turn
            .add_artifact_chunk(artifact, append, last_chunk)
            .await;
    }
}

/// How our turn ends when the task behind it has come to rest.
pub(super) fn status_outcome(status: &TaskStatus) -> Outcome {
    let said = status.message.as_deref().and_then(forwarded_message);
    let or = |text: &str| said.clone().unwrap_or_else(|| Message::agent(text));
    match status.state {
        TaskState::Completed => said.map_or(Outcome::Completed, Outcome::CompletedWith),
        TaskState::InputRequired => {
            let message = or("The agent behind needs to know more, and does not say what.");
            Outcome::InputRequired(Question {
                message,
                request: None,
            })
        }
        TaskState::AuthRequired => Outcome::AuthRequired(or(
            "The agent behind needs credentials, and does not say which.",
        )),
        TaskState::Rejected => {
            Outcome::Rejected(or("the agent behind declines, and does not say why"))
        }
        TaskState::Failed => Outcome::Failed(or("the agent behind failed, and does not say why")),
        TaskState::Canceled => Outcome::Failed(or("the agent behind canceled the task")),
        TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
            Outcome::failed("the agent behind broke off")
        }
    }
}

/// The words of another agent as ours: its ids of tasks mean nothing here. Nothing if it said nothing.
pub(super) fn forwarded_message(message: &Message) -> Option<Message> {
    if message.parts.is_empty() {
        return None;
    }
    Some(Message {
        role: Role::Agent,
        task_id: None,
        context_id: None,
        reference_task_ids: Vec::new(),
        ..message.clone()
    })
}
