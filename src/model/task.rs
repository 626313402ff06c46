//! Tasks: state machine, status, and the fold of events into a task.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::ser::Serializer;
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    Artifact, ArtifactId, ContextId, Entry, Event, Json, Message, Object, Part, StreamResponse,
    TaskId, Timestamp, or_default,
};

/// Metadata key of a task without its content.
const OMITTED_KEY: &str = "attache.omitted";
/// Size up to which a task without its content keeps the message of its status.
#[cfg(feature = "server")]
const MAX_SUMMARY_BYTES: usize = 2 << 10;

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TaskState {
    /// Not specified by the peer, or unknown. Never written; neither terminal nor interrupted.
    #[default]
    Unspecified,
    /// Accepted, not started.
    Submitted,
    /// In progress.
    Working,
    /// Finished successfully. Terminal.
    Completed,
    /// Finished with an error. Terminal.
    Failed,
    /// Canceled by the client. Terminal.
    Canceled,
    /// Waiting for a message from the client. Interrupted.
    InputRequired,
    /// Declined by the agent. Terminal.
    Rejected,
    /// Waiting for credentials. Interrupted.
    AuthRequired,
}

impl TaskState {
    /// Every state except `Unspecified`.
    pub const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Working,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::InputRequired,
        Self::Rejected,
        Self::AuthRequired,
    ];

    /// Returns the name in A2A 1.0.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "TASK_STATE_UNSPECIFIED",
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Rejected => "TASK_STATE_REJECTED",
            Self::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
        }
    }

    /// Whether the state is terminal. A task never leaves a terminal state.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected
        )
    }

    /// Whether the task is waiting for input or credentials.
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Whether the transition to `next` is allowed (07 §2).
    #[must_use]
    pub fn can_become(self, next: Self) -> bool {
        if self.is_terminal() || next == Self::Unspecified {
            return false;
        }
        next != Self::Submitted || matches!(self, Self::Submitted | Self::Unspecified)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for TaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// State of a task with its message and timestamp.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// State.
    #[serde(default, deserialize_with = "or_default")]
    pub state: TaskState,
    /// Message of the agent about the state.
    #[serde(
        default,
        deserialize_with = "deserialize_shared",
        skip_serializing_if = "Option::is_none"
    )]
    pub message: Option<Arc<Message>>,
    /// Time of recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// Deserializes directly into the `Arc`. The `Arc` deserializer of serde would allocate a `Box`
/// first.
fn deserialize_shared<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<Message>>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(Arc::new))
}

impl TaskStatus {
    /// Creates a status without message and timestamp.
    #[must_use]
    pub fn new(state: TaskState) -> Self {
        Self {
            state,
            message: None,
            timestamp: None,
        }
    }

    /// Sets the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Arc<Message>>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Sets the timestamp.
    #[must_use]
    pub fn with_timestamp(mut self, time: Timestamp) -> Self {
        self.timestamp = Some(time);
        self
    }
}

/// Unit of work: status, history and artifacts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Id, generated by the server.
    #[serde(default, deserialize_with = "or_default")]
    pub id: TaskId,
    /// Context (conversation). Empty only if a peer omitted it.
    #[serde(
        default,
        alias = "context_id",
        deserialize_with = "or_default",
        skip_serializing_if = "ContextId::is_empty"
    )]
    pub context_id: ContextId,
    /// Current status.
    #[serde(default, deserialize_with = "or_default")]
    pub status: TaskStatus,
    /// Artifacts.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub artifacts: Vec<Artifact>,
    /// Messages, oldest first. The message of the current status is appended when the next status
    /// or message arrives.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub history: Vec<Arc<Message>>,
    /// Metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

/// Event that violates the protocol: an error of the agent that produced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoldError {
    /// The task is in a terminal state.
    TaskEnded(TaskState),
    /// The state machine does not allow this transition.
    InvalidTransition(TaskState, TaskState),
    /// Chunk for an artifact that does not exist.
    UnknownArtifact(ArtifactId),
    /// Artifact without parts.
    EmptyArtifact(ArtifactId),
    /// Event of another task.
    WrongTask(TaskId),
    /// Direct message on the stream of a task.
    UnexpectedMessage,
}

impl Task {
    /// Creates a task in state submitted.
    #[must_use]
    pub fn submitted(id: TaskId, context_id: ContextId, time: Timestamp) -> Self {
        Self {
            id,
            context_id,
            status: TaskStatus::new(TaskState::Submitted).with_timestamp(time),
            ..Self::default()
        }
    }

    /// Folds a log into a task. Returns `None` if the log does not start with `Created`.
    ///
    /// # Errors
    /// An entry does not follow from the preceding ones.
    pub fn fold<'a>(
        entries: impl IntoIterator<Item = &'a Entry>,
    ) -> Result<Option<Self>, FoldError> {
        let mut entries = entries.into_iter();
        let Some(Entry {
            time,
            event:
                Event::Created {
                    id,
                    context_id,
                    metadata,
                },
            ..
        }) = entries.next()
        else {
            return Ok(None);
        };
        let mut task = Self::submitted(id.clone(), context_id.clone(), *time);
        task.metadata.clone_from(metadata);
        for entry in entries {
            task.apply(entry)?;
        }
        Ok(Some(task))
    }

    /// Applies the next entry of the log. Leaves the task unchanged on error.
    ///
    /// # Errors
    /// The entry does not follow from the preceding ones.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), FoldError> {
        self.apply_event(entry.time, &entry.event)
    }

    /// Applies an event that was recorded at `time`. See [`apply`](Self::apply).
    pub(crate) fn apply_event(&mut self, time: Timestamp, event: &Event) -> Result<(), FoldError> {
        match event {
            Event::Created { id, .. } => Err(FoldError::WrongTask(id.clone())),
            Event::Message(message) => self.apply_message(message),
            Event::Status { status, metadata } => {
                self.apply_status(status, metadata.as_ref(), Some(time))
            }
            Event::Artifact {
                artifact, append, ..
            } => self.apply_artifact(artifact, *append),
            Event::TraceContext(_)
            | Event::CallMetadata(_)
            | Event::TurnStarted
            | Event::CancelRequested { .. }
            | Event::Ignored { .. }
            | Event::TurnEnded => Ok(()),
        }
    }

    /// Applies a stream event, as a client does that follows a task.
    ///
    /// # Errors
    /// The update is invalid or belongs to another task.
    pub fn apply_update(&mut self, update: &StreamResponse) -> Result<(), FoldError> {
        match update {
            StreamResponse::Task(task) => self.apply_task(task),
            StreamResponse::Message(_) => Err(FoldError::UnexpectedMessage),
            StreamResponse::StatusUpdate(event) if self.is_ignored_state(event.status.state) => {
                self.check_id(&event.task_id)
            }
            StreamResponse::StatusUpdate(event) => {
                self.check_id(&event.task_id)?;
                self.apply_status(&event.status, event.metadata.as_ref(), None)
            }
            StreamResponse::ArtifactUpdate(event) => {
                self.check_id(&event.task_id)?;
                self.apply_artifact(&event.artifact, event.append)
            }
        }
    }

    /// Applies a task snapshot from a stream: replaces status and metadata, and each artifact by
    /// id. Accepts a terminal task, because a server may close a stream with a snapshot (05 §1).
    fn apply_task(&mut self, update: &Self) -> Result<(), FoldError> {
        self.check_id(&update.id)?;
        if !self.is_ignored_state(update.status.state) {
            if update.status.state != self.status.state {
                self.check_transition(update.status.state)?;
            }
            self.status.clone_from(&update.status);
        }
        self.metadata.clone_from(&update.metadata);
        if !update.history.is_empty() {
            self.history.clone_from(&update.history);
        }
        self.replace_artifacts(&update.artifacts);
        Ok(())
    }

    /// Whether a state from a peer is ignored: it is unknown, or returns to submitted (07 §2).
    fn is_ignored_state(&self, state: TaskState) -> bool {
        let back = state == TaskState::Submitted && self.status.state != state;
        !self.is_ended() && (back || state == TaskState::Unspecified)
    }

    /// Replaces or appends artifacts by id. Uses a map, because a peer may send any number of them.
    fn replace_artifacts(&mut self, update: &[Artifact]) {
        let ids = self
            .artifacts
            .iter()
            .map(|artifact| artifact.artifact_id.clone());
        let mut places: HashMap<ArtifactId, usize> = ids.zip(0..).collect();
        for artifact in update {
            match places.get(&artifact.artifact_id) {
                Some(&place) => self.artifacts[place].clone_from(artifact),
                None => {
                    places.insert(artifact.artifact_id.clone(), self.artifacts.len());
                    self.artifacts.push(artifact.clone());
                }
            }
        }
    }

    fn apply_message(&mut self, message: &Arc<Message>) -> Result<(), FoldError> {
        if self.status.state.is_terminal() {
            return Err(FoldError::TaskEnded(self.status.state));
        }
        self.archive_status_message();
        self.keep_dialect(message);
        let has_task_ids = message.task_id.as_ref() == Some(&self.id)
            && message.context_id.as_ref().map_or("", ContextId::as_str)
                == self.context_id.as_str();
        self.history.push(if has_task_ids {
            message.clone()
        } else {
            Arc::new(self.with_task_ids(message))
        });
        Ok(())
    }

    fn with_task_ids(&self, message: &Message) -> Message {
        let context_id = (!self.context_id.is_empty()).then(|| self.context_id.clone());
        Message {
            task_id: Some(self.id.clone()),
            context_id,
            ..message.clone()
        }
    }

    fn apply_status(
        &mut self,
        status: &TaskStatus,
        metadata: Option<&Object>,
        recorded: Option<Timestamp>,
    ) -> Result<(), FoldError> {
        // A transition back to submitted is ignored instead of rejected (07 §2).
        if status.state == TaskState::Submitted
            && self.status.state != status.state
            && !self.is_ended()
        {
            return Ok(());
        }
        self.check_transition(status.state)?;
        self.archive_status_message();
        // Timestamps of a task never decrease, even if the clock does. A status without a time
        // stays without one.
        let timestamp = status
            .timestamp
            .or(recorded)
            .map(|time| time.max(self.status.timestamp.unwrap_or(time)));
        self.status = TaskStatus {
            timestamp,
            ..status.clone()
        };
        match (&mut self.metadata, metadata) {
            (Some(merged), Some(more)) => merged.merge(more),
            (None, Some(more)) => self.metadata = Some(more.clone()),
            (_, None) => {}
        }
        Ok(())
    }

    fn apply_artifact(&mut self, artifact: &Artifact, append: bool) -> Result<(), FoldError> {
        if self.is_ended() {
            return Err(FoldError::TaskEnded(self.status.state));
        }
        if artifact.parts.is_empty() {
            return Err(FoldError::EmptyArtifact(artifact.artifact_id.clone()));
        }
        if !append {
            self.put_artifact(artifact);
            return Ok(());
        }
        let known = self
            .artifacts
            .iter_mut()
            .find(|known| known.artifact_id == artifact.artifact_id);
        known
            .ok_or_else(|| FoldError::UnknownArtifact(artifact.artifact_id.clone()))?
            .extend(artifact);
        Ok(())
    }

    fn put_artifact(&mut self, artifact: &Artifact) {
        match self
            .artifacts
            .iter_mut()
            .find(|known| known.artifact_id == artifact.artifact_id)
        {
            Some(known) => known.clone_from(artifact),
            None => {
                // Most tasks have exactly one artifact.
                if self.artifacts.is_empty() {
                    self.artifacts.reserve_exact(1);
                }
                self.artifacts.push(artifact.clone());
            }
        }
    }

    /// Moves the status message to the history. Called when the next status or message arrives.
    fn archive_status_message(&mut self) {
        self.history.extend(self.status.message.take());
    }

    fn check_id(&self, id: &TaskId) -> Result<(), FoldError> {
        if *id == self.id {
            Ok(())
        } else {
            Err(FoldError::WrongTask(id.clone()))
        }
    }

    fn check_transition(&self, next: TaskState) -> Result<(), FoldError> {
        if self.is_ended() {
            return Err(FoldError::TaskEnded(self.status.state));
        }
        if self.status.state.can_become(next) {
            Ok(())
        } else {
            Err(FoldError::InvalidTransition(self.status.state, next))
        }
    }

    /// Whether the state is terminal. A task never leaves a terminal state.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.status.state.is_terminal()
    }

    /// Converts the task to a direct message for clients that cannot handle tasks. Its parts are
    /// those of the artifacts, then those of the status message. The state is in the metadata
    /// unless the task completed.
    #[must_use]
    pub fn into_message(self) -> Message {
        let mut parts: Vec<Part> = self
            .artifacts
            .into_iter()
            .flat_map(|artifact| artifact.parts)
            .collect();
        parts.extend(
            self.status
                .message
                .iter()
                .flat_map(|message| message.parts.iter().cloned()),
        );
        if parts.is_empty() {
            parts.push(Part::text(""));
        }
        let mut message = Message::agent("");
        message.parts = parts;
        message.context_id = (!self.context_id.is_empty()).then_some(self.context_id);
        if self.status.state != TaskState::Completed {
            let metadata = message.metadata.get_or_insert_default();
            metadata.insert("attache.state", Json::from(self.status.state.as_str()));
        }
        message
    }

    /// Returns id, context and state of the task, and the message of its status if that is small. The metadata key
    /// `attache.omitted` lists what is missing.
    #[cfg(feature = "server")]
    pub(crate) fn without_content(&self) -> Self {
        let mut summary = Self {
            id: self.id.clone(),
            context_id: self.context_id.clone(),
            status: self.status.clone(),
            ..Self::default()
        };
        let mut omitted = vec!["artifacts", "history", "metadata"];
        if summary.memory_size() > MAX_SUMMARY_BYTES {
            summary.status.message = None;
            omitted.push("status.message");
        }
        summary.copy_dialect(self);
        let metadata = summary.metadata.get_or_insert_default();
        metadata.insert(OMITTED_KEY, serde_json::Value::from(omitted));
        summary
    }

    /// Whether the server left the content out, because the memory for responses was exhausted. `GetTask` returns it.
    #[must_use]
    pub fn is_content_omitted(&self) -> bool {
        let metadata = self.metadata.as_ref();
        metadata.is_some_and(|metadata| metadata.get(OMITTED_KEY).is_some())
    }

    /// Truncates the history to the last `length` messages; `None` keeps all.
    pub fn limit_history(&mut self, length: Option<i32>) {
        let Some(keep) = length.and_then(|length| usize::try_from(length).ok()) else {
            return;
        };
        self.history
            .drain(..self.history.len().saturating_sub(keep));
    }
}

impl fmt::Display for FoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TaskEnded(state) => write!(f, "task has already ended as {state}"),
            Self::InvalidTransition(from, to) => {
                write!(f, "invalid state transition from {from} to {to}")
            }
            Self::UnknownArtifact(id) => write!(f, "chunk for unknown artifact {id}"),
            Self::EmptyArtifact(id) => write!(f, "artifact {id} has no parts"),
            Self::WrongTask(id) => write!(f, "event of another task: {id}"),
            Self::UnexpectedMessage => f.write_str("direct message on the stream of a task"),
        }
    }
}

impl std::error::Error for FoldError {}
