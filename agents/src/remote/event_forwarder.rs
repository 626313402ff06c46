//! Forwarding of remote events to our task.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use attache::model::{
    Artifact, ArtifactId, ContextId, Message, MessageId, Object, Part, Role, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus,
};
use attache::{Outcome, Question, Turn};

use super::task_link::{RemoteTaskLink, without_reserved_keys};
use crate::cost::Cost;

/// Forwards the events of a remote task, each of them once.
///
/// A stream may repeat events after a reconnect, so the forwarder compares them with the state of our task.
pub(super) struct EventForwarder<'a> {
    turn: &'a Turn,
    link: RemoteTaskLink,
    /// Artifacts that were forwarded, by their remote id.
    artifacts: HashMap<ArtifactId, Artifact>,
    /// Id of the last status message that was forwarded.
    last_message_id: Option<MessageId>,
    /// Messages that were forwarded: by their id or, without one, by their text.
    messages: HashSet<String>,
    /// Metadata that was forwarded last.
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
            messages: HashSet::new(),
            metadata: None,
        }
    }

    /// Forwards one event, except final states: those become the outcome of the turn. `has_task` is whether the remote
    /// agent has a task; a message without one is the outcome too.
    pub(super) async fn forward(&mut self, event: StreamResponse, has_task: bool) {
        match event {
            StreamResponse::Task(task) => {
                self.update_link(&task.id, &task.context_id).await;
                self.forward_metadata(task.metadata.as_ref()).await;
                self.forward_status(&task.status).await;
                for artifact in task.artifacts {
                    self.forward_artifact(artifact).await;
                }
            }
            StreamResponse::StatusUpdate(event) => {
                self.update_link(&event.task_id, &event.context_id).await;
                self.forward_metadata(event.metadata.as_ref()).await;
                self.forward_status(&event.status).await;
            }
            StreamResponse::ArtifactUpdate(event) => {
                self.update_link(&event.task_id, &event.context_id).await;
                self.forward_chunk(event).await;
            }
            StreamResponse::Message(message) if has_task => self.forward_message(message).await,
            StreamResponse::Message(message) => {
                self.link.context_id = message.context_id.or(self.link.context_id.take());
                self.link.record_delivery(self.turn);
                self.store_link().await;
            }
        }
    }

    /// Records ids of the remote task in the link, and stores the link if it changed.
    async fn update_link(&mut self, task_id: &TaskId, context_id: &ContextId) {
        let before = self.link.clone();
        if !task_id.as_str().is_empty() {
            self.link.task_id = Some(task_id.clone());
        }
        if !context_id.is_empty() {
            self.link.context_id = Some(context_id.clone());
        }
        self.link.record_delivery(self.turn);
        if self.link != before {
            self.store_link().await;
        }
    }

    async fn store_link(&mut self) {
        self.turn.add_metadata(self.link.to_metadata()).await;
    }

    /// Merges remote metadata into our task's, with the cost of routing added to the usage.
    async fn forward_metadata(&mut self, metadata: Option<&Object>) {
        let Some(mut forwarded) = metadata.and_then(without_reserved_keys) else {
            return;
        };
        Cost::of_routing(self.turn).add_to(&mut forwarded);
        if self.metadata.as_ref() != Some(&forwarded) {
            self.metadata = Some(forwarded.clone());
            self.turn.add_metadata(forwarded).await;
        }
    }

    /// Forwards the message of a state that does not end the turn.
    async fn forward_status(&mut self, status: &TaskStatus) {
        let Some(message) = status.message.as_deref() else {
            return;
        };
        if self.last_message_id.as_ref() == Some(&message.message_id)
            && !message.message_id.is_empty()
        {
            return;
        }
        let Some(mut forwarded) = forwarded_message(message) else {
            return;
        };
        // Clients of a delegating agent find its subtasks here (09, 2.16).
        forwarded.reference_task_ids = self.link.task_id.iter().cloned().collect();
        match status.state {
            TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
                self.turn.say_message(forwarded).await;
            }
            // The remote turn may continue by itself once the credentials arrive out of band.
            TaskState::AuthRequired => self.turn.require_auth_message(forwarded).await,
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Canceled
            | TaskState::InputRequired
            | TaskState::Rejected => return,
        }
        self.last_message_id = Some(message.message_id.clone());
        self.messages.insert(message_key(message));
    }

    /// Forwards a message beside the remote task as an artifact. Messages with the same id are chunks of one.
    async fn forward_message(&mut self, message: Message) {
        let Some(message) = forwarded_message(&message) else {
            return;
        };
        let id = ArtifactId::from(format!("message-{}", message.message_id));
        self.messages.insert(message_key(&message));
        let append = self.artifacts.contains_key(&id) && !message.message_id.is_empty();
        let id = if message.message_id.is_empty() {
            ArtifactId::random()
        } else {
            id
        };
        let artifact = Artifact {
            artifact_id: id.clone(),
            name: Some("message".to_owned()),
            parts: message.parts,
            extensions: message.extensions,
            metadata: message.metadata,
            ..Artifact::default()
        };
        self.artifacts.entry(id).or_insert_with(|| artifact.clone());
        self.turn.add_artifact_chunk(artifact, append, false).await;
    }

    /// Returns the part of a completed task's answer that was not forwarded yet, as one message.
    pub(super) fn missing_answer(&self, task: &Task) -> Option<Message> {
        let result = task.result();
        let is_missing = |message: &&&Arc<Message>| {
            let is_status = task.status.message.as_ref() == Some(**message);
            is_status || !self.messages.contains(&message_key(message))
        };
        let mut missing = result.messages.iter().filter(is_missing);
        let mut answer = match &result.output {
            Some(output) => Message::agent(output.clone()),
            None => forwarded_message(missing.next()?)?,
        };
        answer
            .parts
            .extend(missing.flat_map(|message| message.parts.iter().cloned()));
        Some(answer)
    }

    /// Forwards a complete artifact, unless our task already has it.
    async fn forward_artifact(&mut self, artifact: Artifact) {
        let known = self.artifacts.get(&artifact.artifact_id);
        if artifact.parts.is_empty() || known.is_some_and(|known| known.parts == artifact.parts) {
            return;
        }
        self.artifacts
            .insert(artifact.artifact_id.clone(), artifact.clone());
        self.turn.add_artifact(artifact).await;
    }

    /// Forwards a chunk of an artifact. A chunk of an unknown artifact starts it; an empty last chunk only ends it.
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

/// Returns the key by which a message is recognized.
fn message_key(message: &Message) -> String {
    if message.message_id.is_empty() {
        return message.text();
    }
    message.message_id.to_string()
}

/// Returns the outcome of our turn for a remote task that ended or is interrupted.
pub(super) fn status_outcome(status: &TaskStatus) -> Outcome {
    let message = status.message.as_deref().and_then(forwarded_message);
    let message_or = |text: &str| message.clone().unwrap_or_else(|| Message::agent(text));
    match status.state {
        TaskState::Completed => message.map_or(Outcome::Completed, Outcome::CompletedWith),
        TaskState::InputRequired => Outcome::InputRequired(Question {
            message: message_or("The remote agent asks for input without a question."),
            request: None,
        }),
        TaskState::AuthRequired => Outcome::AuthRequired(message_or(
            "The remote agent asks for credentials without naming them.",
        )),
        TaskState::Rejected => Outcome::Rejected(message_or(
            "the remote agent rejected the task without a reason",
        )),
        TaskState::Failed => {
            Outcome::Failed(message_or("the remote agent failed without a reason"))
        }
        TaskState::Canceled => Outcome::Failed(message_or("the remote agent canceled the task")),
        TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
            Outcome::failed("the remote agent broke off")
        }
    }
}

/// Returns a remote message without remote ids; `None` if it has no parts.
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
