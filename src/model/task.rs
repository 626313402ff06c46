//! A task: the fold of its events.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::ser::Serializer;
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    Artifact, ArtifactId, ContextId, Entry, Event, Json, Message, Object, Part, Role,
    StreamResponse, TaskId, Timestamp, or_default,
};

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TaskState {
    /// Left out, or unknown to us; only ever read. Neither terminal nor interrupted.
    #[default]
    Unspecified,
    /// Taken on, not begun.
    Submitted,
    /// Being worked on.
    Working,
    /// Done.
    Completed,
    /// Not done, by a fault.
    Failed,
    /// Stopped by request.
    Canceled,
    /// Waits for another message.
    InputRequired,
    /// Declined by the agent.
    Rejected,
    /// Waits for credentials.
    AuthRequired,
}

impl TaskState {
    /// Every state that is written.
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

    /// The name 1.0 gives it.
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

    /// Whether the task has ended; it never starts again.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected
        )
    }

    /// Whether the task waits for somebody outside.
    #[must_use]
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Whether a task in this state may take the next one.
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

/// Where a task stands, since when, and why.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// The state.
    #[serde(default, deserialize_with = "or_default")]
    pub state: TaskState,
    /// What the agent says about it.
    #[serde(
        default,
        deserialize_with = "shared",
        skip_serializing_if = "Option::is_none"
    )]
    pub message: Option<Arc<Message>>,
    /// When it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// Reads straight into the shared place; serde would make another one on the way.
fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Message>>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(Arc::new))
}

impl TaskStatus {
    /// A status without a message.
    #[must_use]
    pub fn new(state: TaskState) -> Self {
        Self {
            state,
            message: None,
            timestamp: None,
        }
    }

    /// Adds what the agent says about it.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Arc<Message>>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Says when it was recorded.
    #[must_use]
    pub fn with_timestamp(mut self, time: Timestamp) -> Self {
        self.timestamp = Some(time);
        self
    }
}

/// A unit of work: what was said, what was made, and where it stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Made by the server.
    #[serde(default, deserialize_with = "or_default")]
    pub id: TaskId,
    /// The conversation it belongs to; empty only if a peer left it out.
    #[serde(
        default,
        alias = "context_id",
        deserialize_with = "or_default",
        skip_serializing_if = "ContextId::is_empty"
    )]
    pub context_id: ContextId,
    /// Where it stands.
    #[serde(default, deserialize_with = "or_default")]
    pub status: TaskStatus,
    /// What was made.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub artifacts: Vec<Artifact>,
    /// What was said, oldest first; the message of the current status is not in it yet.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub history: Vec<Arc<Message>>,
    /// Whatever else is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
}

/// An event that a task cannot take: a fault of the agent that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoldError {
    /// The task had ended.
    TaskEnded(TaskState),
    /// No task goes from this state to that.
    InvalidTransition(TaskState, TaskState),
    /// A chunk for an artifact that is not there.
    UnknownArtifact(ArtifactId),
    /// An artifact without parts.
    EmptyArtifact(ArtifactId),
    /// An event of another task.
    WrongTask(TaskId),
    /// A plain message where a task is.
    UnexpectedMessage,
}

impl Task {
    /// A task that was just taken on.
    #[must_use]
    pub fn submitted(id: TaskId, context_id: ContextId, time: Timestamp) -> Self {
        Self {
            id,
            context_id,
            status: TaskStatus::new(TaskState::Submitted).with_timestamp(time),
            ..Self::default()
        }
    }

    /// Folds a log; `None` when it does not begin with `Created`.
    ///
    /// # Errors
    /// An entry does not fit the ones before it.
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

    /// Takes in the next entry of the log; on an error the task is as it was.
    ///
    /// # Errors
    /// The entry does not fit.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), FoldError> {
        self.apply_event(entry.time, &entry.event)
    }

    /// The same for an event that was recorded at this time.
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
            | Event::TurnStarted
            | Event::CancelRequested { .. }
            | Event::Ignored { .. }
            | Event::TurnEnded => Ok(()),
        }
    }

    /// Takes in what a stream told of it, as a client that follows it does.
    ///
    /// # Errors
    /// The update does not fit, or is of another task.
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

    /// A task seen again replaces status and metadata, and each artifact by its id; also one that has ended, since a
    /// server may close a stream with it (05 §1).
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

    /// Whether a state that a peer names tells us nothing: it is unknown to us, or goes back to the beginning
    /// (07 §2: ignored rather than failing).
    fn is_ignored_state(&self, state: TaskState) -> bool {
        let back = state == TaskState::Submitted && self.status.state != state;
        !self.is_ended() && (back || state == TaskState::Unspecified)
    }

    /// Each in the place of the one with its id; a map finds it, since a peer may send any number.
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
        let stamped = message.task_id.as_ref() == Some(&self.id)
            && message.context_id.as_ref().map_or("", ContextId::as_str)
                == self.context_id.as_str();
        self.history.push(if stamped {
            message.clone()
        } else {
            Arc::new(self.stamp(message))
        });
        Ok(())
    }

    fn stamp(&self, message: &Message) -> Message {
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
        // 07 §2: the move back to submitted is ignored rather than failing.
        if status.state == TaskState::Submitted
            && self.status.state != status.state
            && !self.is_ended()
        {
            return Ok(());
        }
        self.check_transition(status.state)?;
        self.archive_status_message();
        // Within a task time does not go back, whatever the clocks say; a status without a time has none.
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
                // Most tasks have one.
                if self.artifacts.is_empty() {
                    self.artifacts.reserve_exact(1);
                }
                self.artifacts.push(artifact.clone());
            }
        }
    }

    /// The message of a status moves to the history when the next status or message arrives.
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

    /// Whether the task has ended; it never starts again.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.status.state.is_terminal()
    }

    /// The answer as text: from artifacts, else the status message, else the last thing the agent said.
    #[must_use]
    pub fn text(&self) -> String {
        let artifacts: Vec<_> = self
            .artifacts
            .iter()
            .map(Artifact::as_text)
            .filter(|text| !text.is_empty())
            .collect();
        if !artifacts.is_empty() {
            return artifacts.join("\n");
        }
        let agent_messages = self
            .history
            .iter()
            .rev()
            .filter(|message| message.role == Role::Agent);
        let mut texts = self
            .status
            .message
            .iter()
            .chain(agent_messages)
            .map(|message| message.text());
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// The task as one message, for those who want no task: what its artifacts hold, then what its status says. How
    /// it ended is in the metadata, unless it ended well.
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

    /// Keeps the last `length` messages of the history; `None` keeps all.
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
            Self::TaskEnded(state) => write!(f, "the task has ended as {state}"),
            Self::InvalidTransition(from, to) => {
                write!(f, "a task does not go from {from} to {to}")
            }
            Self::UnknownArtifact(id) => write!(f, "append to an artifact that is not there: {id}"),
            Self::EmptyArtifact(id) => write!(f, "an artifact without parts: {id}"),
            Self::WrongTask(id) => write!(f, "an event of another task: {id}"),
            Self::UnexpectedMessage => f.write_str("a plain message where a task is"),
        }
    }
}

impl std::error::Error for FoldError {}
