//! What another agent tells of its task, said again of ours.

use std::collections::HashMap;

use attache::model::{
    Artifact, ArtifactId, Message, MessageId, Object, Part, Role, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus,
};
use attache::{Outcome, Question, Turn};

use super::record::{Record, foreign};
use crate::lineage::Cost;

/// Passes on what comes, each thing once.
pub(super) struct Passing<'a> {
    turn: &'a Turn,
    record: Record,
    /// Results that our task has, as the other agent has them.
    results: HashMap<ArtifactId, Artifact>,
    /// The last words that were passed on.
    said: Option<MessageId>,
    metadata: Option<Object>,
}

impl<'a> Passing<'a> {
    pub(super) fn new(turn: &'a Turn, record: Record) -> Self {
        let results = turn.task().artifacts.iter();
        let results = results
            .map(|artifact| (artifact.artifact_id.clone(), artifact.clone()))
            .collect();
        Self {
            turn,
            record,
            results,
            said: None,
            metadata: None,
        }
    }

    /// Passes on one event; how the turn ends is said elsewhere.
    pub(super) async fn pass(&mut self, event: StreamResponse) {
        match event {
            StreamResponse::Task(task) => {
                self.remember(&task).await;
                self.metadata(task.metadata.as_ref()).await;
                self.status(&task.status).await;
                for artifact in task.artifacts {
                    self.whole(artifact).await;
                }
            }
            StreamResponse::StatusUpdate(event) => {
                let seen = Task {
                    id: event.task_id,
                    context_id: event.context_id,
                    ..Task::default()
                };
                self.remember(&seen).await;
                self.metadata(event.metadata.as_ref()).await;
                self.status(&event.status).await;
            }
            StreamResponse::ArtifactUpdate(event) => {
                let seen = Task {
                    id: event.task_id.clone(),
                    context_id: event.context_id.clone(),
                    ..Task::default()
                };
                self.remember(&seen).await;
                self.chunk(event).await;
            }
            StreamResponse::Message(message) => {
                self.record.context_id = message.context_id.or(self.record.context_id.take());
                self.arrived().await;
            }
        }
    }

    /// Keeps which task it is, the first time that it is heard of.
    async fn remember(&mut self, seen: &Task) {
        let before = self.record.clone();
        if !seen.id.as_str().is_empty() {
            self.record.task_id = Some(seen.id.clone());
        }
        if !seen.context_id.is_empty() {
            self.record.context_id = Some(seen.context_id.clone());
        }
        self.record.arrived(self.turn);
        if self.record != before {
            self.turn.metadata(self.record.to_metadata()).await;
        }
    }

    async fn arrived(&mut self) {
        self.record.arrived(self.turn);
        self.turn.metadata(self.record.to_metadata()).await;
    }

    async fn metadata(&mut self, said: Option<&Object>) {
        let mut passed = said.and_then(foreign);
        if let Some(passed) = &mut passed {
            Cost::before(self.turn).add_to(passed);
        }
        if passed.is_some() && passed != self.metadata {
            self.metadata.clone_from(&passed);
            self.turn.metadata(passed.unwrap_or_default()).await;
        }
    }

    /// What is said of a task that goes on. What it ends with, or waits for, is the outcome of the turn.
    async fn status(&mut self, status: &TaskStatus) {
        let Some(message) = status.message.as_deref() else {
            return;
        };
        if self.said.as_ref() == Some(&message.message_id) && !message.message_id.is_empty() {
            return;
        }
        let Some(words) = words(message) else { return };
        match status.state {
            TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
                self.turn.say_message(words).await;
            }
            // Its turn may go on while credentials come from elsewhere.
            TaskState::AuthRequired => self.turn.auth_required_message(words).await,
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Canceled
            | TaskState::InputRequired
            | TaskState::Rejected => return,
        }
        self.said = Some(message.message_id.clone());
    }

    /// A result as it stands.
    async fn whole(&mut self, artifact: Artifact) {
        let known = self.results.get(&artifact.artifact_id);
        if artifact.parts.is_empty() || known.is_some_and(|known| known.parts == artifact.parts) {
            return;
        }
        self.results
            .insert(artifact.artifact_id.clone(), artifact.clone());
        self.turn.artifact(artifact).await;
    }

    /// A piece of a result. One for a result that we do not have begins it, and one that is empty only ends it.
    async fn chunk(&mut self, event: TaskArtifactUpdateEvent) {
        let TaskArtifactUpdateEvent {
            mut artifact,
            append,
            last_chunk,
            ..
        } = event;
        let append = append && self.results.contains_key(&artifact.artifact_id);
        if artifact.parts.is_empty() {
            if !(append && last_chunk) {
                return;
            }
            artifact.parts.push(Part::text(""));
        }
        match self
            .results
            .get_mut(&artifact.artifact_id)
            .filter(|_| append)
        {
            Some(known) => known.extend(&artifact),
            None => {
                self.results
                    .insert(artifact.artifact_id.clone(), artifact.clone());
            }
        }
        self.turn.artifact_chunk(artifact, append, last_chunk).await;
    }
}

/// How our turn ends when the task behind it has come to rest.
pub(super) fn outcome(status: &TaskStatus) -> Outcome {
    let said = status.message.as_deref().and_then(words);
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
pub(super) fn words(message: &Message) -> Option<Message> {
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
