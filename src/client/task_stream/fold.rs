//! Fold of stream events into the task as the client knows it.
//!
//! Peers differ: some repeat events after a reconnect, some skip events, some omit task ids, some answer in messages
//! beside the task. The fold drops duplicates and records when only the peer can supply the complete task.

use super::received_messages::ReceivedMessages;
use crate::model::{ContextId, FoldError, Message, Seq, StreamResponse, Task, TaskId, TaskState};

/// Task or message as known from the events so far.
#[derive(Debug, Default)]
pub(in crate::client) struct TaskFold {
    id: Option<TaskId>,
    task: Option<Task>,
    /// Messages of the stream, of the task or without one.
    messages: ReceivedMessages,
    position: Option<Seq>,
    /// Events may have been missed or applied twice; `GetTask` returns the correct task.
    pub(super) needs_refetch: bool,
    /// The stream started behind a position, so earlier events are missing from the task.
    pub(super) is_partial: bool,
    /// The known state predates the message that was sent, so it is not the outcome of that message.
    pub(super) is_stale: bool,
    /// Set between a reconnect and its first event.
    resumption: Option<Resumption>,
    /// Set after the first reconnect: the peer may send known events again.
    may_repeat: bool,
}

/// Position at which a reopened stream continues.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Resumption {
    /// Directly behind the last received event: nothing is missing.
    AtPosition,
    /// Unknown. A conforming peer starts with a snapshot of the task.
    Unknown,
}

impl TaskFold {
    /// Returns a fold of an existing task, from behind `position` if there is one.
    pub(super) fn for_task(id: TaskId, position: Option<Seq>) -> Self {
        Self {
            id: Some(id),
            position,
            is_partial: position.is_some(),
            ..Self::default()
        }
    }

    pub(super) fn id(&self) -> Option<&TaskId> {
        self.id.as_ref()
    }

    pub(super) fn task(&self) -> Option<&Task> {
        self.task.as_ref()
    }

    /// Returns the answer without a task, if the peer sent one.
    pub(super) fn message(&self) -> Option<Message> {
        self.messages.joined().filter(|_| self.task.is_none())
    }

    /// Whether the peer answered with a message and without a task.
    pub(super) fn is_message(&self) -> bool {
        self.task.is_none() && !self.messages.is_empty()
    }

    pub(super) fn position(&self) -> Option<Seq> {
        self.position
    }

    pub(super) fn state(&self) -> TaskState {
        self.task
            .as_ref()
            .map(|task| task.status.state)
            .unwrap_or_default()
    }

    /// Records that the stream was reopened, behind the last position if the peer sent one.
    pub(super) fn mark_resumed(&mut self) {
        self.may_repeat = true;
        self.resumption = Some(if self.position.is_some() {
            Resumption::AtPosition
        } else {
            Resumption::Unknown
        });
    }

    /// Applies an event and returns it, unless it is a duplicate or belongs to another task.
    pub(super) fn apply(
        &mut self,
        position: Option<Seq>,
        event: StreamResponse,
    ) -> Option<StreamResponse> {
        if position.is_some() && position <= self.position && self.task.is_some() {
            return None;
        }
        self.position = position.or(self.position);
        if self.resumption.take() == Some(Resumption::Unknown)
            && !matches!(event, StreamResponse::Task(_))
        {
            self.needs_refetch = true;
        }
        match event {
            StreamResponse::Message(message) => self.apply_message(message),
            event => {
                let event = self.with_own_task_id(event)?;
                self.update(event)
            }
        }
    }

    /// Adds a message. Some peers send messages in the stream of a task, and some of those in chunks.
    fn apply_message(&mut self, message: Message) -> Option<StreamResponse> {
        let is_other_task = message.task_id.is_some() && message.task_id != self.id;
        if self.id.is_some() && is_other_task {
            return None;
        }
        if self.may_repeat && self.messages.contains_id(&message.message_id) {
            return None;
        }
        self.messages.push(&message, self.task.as_mut());
        Some(StreamResponse::Message(message))
    }

    /// Returns the peer's copy of the task with the messages that only its stream contained.
    pub(super) fn with_received(&self, mut task: Task) -> Task {
        if let Some(known) = &self.task {
            if task.history.is_empty() {
                task.history.clone_from(&known.history);
            }
            if task.artifacts.is_empty() {
                task.artifacts.clone_from(&known.artifacts);
            }
        }
        self.messages.restore(&mut task);
        task
    }

    /// Replaces the task by the peer's complete copy and returns it if its status or artifacts changed.
    pub(super) fn replace(&mut self, task: Task) -> Option<StreamResponse> {
        self.needs_refetch = false;
        self.is_partial = false;
        self.is_stale = false;
        self.id.get_or_insert_with(|| task.id.clone());
        let task = self.with_received(task);
        let known = self.task.replace(task.clone());
        let has_changed = known
            .is_none_or(|known| known.status != task.status || known.artifacts != task.artifacts);
        has_changed.then_some(StreamResponse::Task(task))
    }

    /// Fills in a missing task id. Returns `None` for events of other tasks.
    fn with_own_task_id(&mut self, mut event: StreamResponse) -> Option<StreamResponse> {
        let id = match &mut event {
            StreamResponse::Task(task) => &mut task.id,
            StreamResponse::StatusUpdate(event) => &mut event.task_id,
            StreamResponse::ArtifactUpdate(event) => &mut event.task_id,
            StreamResponse::Message(_) => return Some(event),
        };
        let own = self.id.get_or_insert_with(|| id.clone());
        if id.as_str().is_empty() {
            id.clone_from(own);
        }
        (id == own).then_some(event)
    }

    fn update(&mut self, event: StreamResponse) -> Option<StreamResponse> {
        self.is_partial &= !matches!(event, StreamResponse::Task(_));
        let Some(task) = &mut self.task else {
            self.start_from(&event);
            return Some(event);
        };
        if self.may_repeat && is_duplicate(task, &event) {
            return None;
        }
        match task.apply_update(&event) {
            Ok(()) => {
                if matches!(event, StreamResponse::Task(_)) {
                    self.messages.restore(task);
                }
                Some(event)
            }
            // A terminal state is final; later events do not change it.
            Err(FoldError::TaskEnded(_)) => {
                self.needs_refetch |= matches!(event, StreamResponse::ArtifactUpdate(_));
                None
            }
            Err(_) => {
                self.needs_refetch = true;
                Some(event)
            }
        }
    }

    /// Creates the task from the first event. Not every peer starts a stream with the task itself.
    fn start_from(&mut self, event: &StreamResponse) {
        let mut task = match event {
            StreamResponse::Task(task) => task.clone(),
            StreamResponse::StatusUpdate(update) => empty_task(&update.context_id),
            StreamResponse::ArtifactUpdate(update) => empty_task(&update.context_id),
            StreamResponse::Message(_) => return,
        };
        task.id = self.id.clone().unwrap_or_default();
        if !matches!(event, StreamResponse::Task(_)) {
            self.needs_refetch |= task.apply_update(event).is_err();
        }
        self.messages.restore(&mut task);
        self.task = Some(task);
    }
}

fn empty_task(context_id: &ContextId) -> Task {
    Task {
        context_id: context_id.clone(),
        ..Task::default()
    }
}

fn is_duplicate(task: &Task, event: &StreamResponse) -> bool {
    match event {
        StreamResponse::Task(received) => {
            received.status == task.status && received.artifacts == task.artifacts
        }
        StreamResponse::StatusUpdate(event) => event.status == task.status,
        StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => false,
    }
}
