//! Fold of a task's log: the task, and the messages that wait for their turn.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use crate::model::{
    CallMetadata, Entry, Event, FoldError, Message, Scope, Seq, Task, TaskState, TaskStatus,
    Timestamp, TraceContext,
};
use crate::store::{Head, Holder, Snapshot};

/// The task before the first entry, shared by all empty folds.
static EMPTY_TASK: LazyLock<Arc<Task>> = LazyLock::new(Arc::default);

/// Returns the task before the first entry.
pub(super) fn empty_task() -> Arc<Task> {
    EMPTY_TASK.clone()
}

/// Fold of a task's log up to a position.
///
/// Turns answer messages in log order, one each: the n-th `TurnEnded` answers the n-th message. While a message is
/// unanswered, a runner works on the task.
#[derive(Debug, Clone)]
pub(crate) struct FoldedLog {
    /// Copy-on-write: a change clones the task while readers hold it.
    pub(crate) task: Arc<Task>,
    pub(crate) position: Seq,
    unanswered: VecDeque<Arc<Message>>,
    /// Trace contexts of unanswered messages, and of the newest message that had one, by turn number.
    traces: VecDeque<(u64, TraceContext)>,
    turns_ended: u64,
    /// Number of times that the turn of the first unanswered message was started. 0: it is not running.
    pub(super) attempts: u32,
    /// Whether a client has requested the cancellation. A task that is recovered ends as canceled then.
    pub(super) cancel_requested: bool,
    /// Call metadata of unanswered messages by turn number. Empty on stores of one process.
    calls: Vec<(u64, CallMetadata)>,
}

impl FoldedLog {
    /// Returns the fold of an empty log.
    pub(super) fn empty() -> Self {
        Self {
            task: empty_task(),
            position: Seq(0),
            unanswered: VecDeque::new(),
            traces: VecDeque::new(),
            turns_ended: 0,
            attempts: 0,
            cancel_requested: false,
            calls: Vec::new(),
        }
    }

    /// Restores the fold from a snapshot at a position.
    pub(super) fn from_snapshot(position: Seq, snapshot: Snapshot) -> Self {
        let Snapshot {
            task,
            unanswered,
            traces,
            turns_ended,
            attempts,
            cancel_requested,
            calls,
        } = snapshot;
        Self {
            task,
            position,
            unanswered: unanswered.into(),
            traces: traces.into(),
            turns_ended,
            attempts,
            cancel_requested,
            calls,
        }
    }

    /// Returns the fold in the form that the store saves.
    pub(super) fn to_snapshot(&self) -> Snapshot {
        Snapshot {
            task: self.task.clone(),
            unanswered: self.unanswered.iter().cloned().collect(),
            traces: self.traces.iter().cloned().collect(),
            turns_ended: self.turns_ended,
            attempts: self.attempts,
            cancel_requested: self.cancel_requested,
            calls: self.calls.clone(),
        }
    }

    /// Returns a copy that does not share the task, so that later changes of `self` need not clone it. Ended tasks do
    /// not change and are shared.
    pub(super) fn deep_copy(&self) -> Self {
        let mut copy = self.clone();
        if !copy.task.is_ended() {
            copy.task = Arc::new(Task::clone(&self.task));
        }
        copy
    }

    /// Applies the next entry. On an error the fold is unchanged.
    pub(super) fn apply(&mut self, entry: &Entry) -> Result<(), FoldError> {
        self.apply_event(entry.seq, entry.time, &entry.event)
    }

    pub(super) fn apply_event(
        &mut self,
        seq: Seq,
        time: Timestamp,
        event: &Event,
    ) -> Result<(), FoldError> {
        match event {
            Event::Created {
                id,
                context_id,
                metadata,
            } if self.position == Seq(0) => {
                let mut task = Task::submitted(id.clone(), context_id.clone(), time);
                task.metadata.clone_from(metadata);
                self.task = Arc::new(task);
            }
            Event::Created { .. }
            | Event::Message(_)
            | Event::Status { .. }
            | Event::Artifact { .. } => {
                Arc::make_mut(&mut self.task).apply_event(time, event)?;
            }
            // These do not change the task. `make_mut` would clone it if readers hold it.
            Event::TraceContext(_)
            | Event::CallMetadata(_)
            | Event::TurnStarted
            | Event::CancelRequested { .. }
            | Event::Ignored { .. }
            | Event::TurnEnded => {}
        }
        match event {
            Event::Message(message) => self.unanswered.push_back(message.clone()),
            Event::TraceContext(trace) => self.set_newest_trace(trace),
            Event::CallMetadata(call) => {
                let turn = self.newest_turn();
                self.calls.push((turn, call.clone()));
            }
            Event::CancelRequested { .. } => self.cancel_requested = true,
            Event::TurnStarted => self.attempts += 1,
            Event::TurnEnded => {
                self.unanswered.pop_front();
                self.turns_ended += 1;
                self.attempts = 0;
                let ended = self.turns_ended;
                self.calls.retain(|(turn, _)| *turn > ended);
            }
            Event::Created { .. }
            | Event::Status { .. }
            | Event::Artifact { .. }
            | Event::Ignored { .. } => {}
        }
        self.position = seq;
        Ok(())
    }

    /// Applies an event as the next entry, and changes it to the form to be recorded. A status gets its timestamp; an
    /// event that cannot be applied becomes `Ignored`.
    pub(super) fn apply_next(&mut self, time: Timestamp, event: &mut Event) {
        let seq = Seq(self.position.0 + 1);
        if let Event::Status { status, .. } = event {
            // Timestamps within a task never decrease, although clocks may.
            status.timestamp =
                Some(status.timestamp.unwrap_or(time)).max(self.task.status.timestamp);
        }
        if let Err(error) = self.apply_event(seq, time, event) {
            *event = Event::Ignored {
                reason: error.to_string(),
            };
            self.position = seq;
        }
    }

    /// Returns the head of the task at the position of this fold.
    pub(super) fn head(&self, scope: Scope) -> Head {
        let status = &self.task.status;
        Head {
            id: self.task.id.clone(),
            scope,
            context_id: self.task.context_id.clone(),
            position: self.position,
            state: status.state,
            status_time: status.timestamp.unwrap_or_default(),
            holder: Holder::None,
        }
    }

    /// Records the trace context of the newest message, and drops those of ended turns.
    fn set_newest_trace(&mut self, trace: &TraceContext) {
        let ended = self.turns_ended;
        let newest = self.newest_turn();
        self.traces
            .retain(|(turn, _)| *turn > ended && *turn != newest);
        self.traces.push_back((newest, trace.clone()));
    }

    /// Returns the trace context of the message that a turn answers.
    pub(super) fn trace_for_turn(&self, turn: u64) -> Option<&TraceContext> {
        self.traces
            .iter()
            .find(|(number, _)| *number == turn)
            .map(|(_, trace)| trace)
    }

    /// Returns the trace context of the newest message that had one.
    pub(super) fn newest_trace(&self) -> Option<&TraceContext> {
        self.traces.back().map(|(_, trace)| trace)
    }

    /// Returns the call metadata of a turn's message, if they were recorded.
    pub(super) fn call_metadata(&self, turn: u64) -> Option<&CallMetadata> {
        let mut calls = self.calls.iter();
        calls
            .find(|(number, _)| *number == turn)
            .map(|(_, call)| call)
    }

    /// Returns the message of the current turn. `None` if no message is unanswered or the task has ended.
    pub(super) fn next_message(&self) -> Option<&Arc<Message>> {
        self.unanswered.front().filter(|_| !self.task.is_ended())
    }

    /// Number of unanswered messages, including that of the running turn.
    pub(super) fn backlog(&self) -> usize {
        self.unanswered.len()
    }

    /// Number of the turn that runs or comes next, starting at 1.
    pub(super) fn current_turn(&self) -> u64 {
        self.turns_ended + 1
    }

    /// Number of the turn that answers the newest message.
    pub(super) fn newest_turn(&self) -> u64 {
        self.turns_ended + self.unanswered.len() as u64
    }

    /// Returns whether a turn was started and has not ended.
    pub(super) fn is_turn_running(&self) -> bool {
        self.attempts > 0
    }

    /// Returns whether the task is parked: not ended, and without anything to do until a client sends a message.
    pub(super) fn is_parked(&self) -> bool {
        !self.task.is_ended() && self.unanswered.is_empty() && !self.is_turn_running()
    }

    /// Returns whether `entry`, which was just applied, is the turn result that a blocking caller waits for. That is:
    /// the task ended, or the turn requires input or credentials.
    pub(super) fn is_turn_result(&self, turn: u64, entry: &Entry) -> bool {
        let is_interrupted =
            matches!(entry.event, Event::Status { .. }) && self.task.status.state.is_interrupted();
        self.task.is_ended() || (is_interrupted && self.current_turn() == turn)
    }

    /// Returns whether the result that a blocking caller of this turn waits for is in the log.
    pub(super) fn has_turn_result(&self, turn: u64) -> bool {
        let is_interrupted = self.is_turn_running() && self.task.status.state.is_interrupted();
        self.task.is_ended()
            || self.turns_ended >= turn
            || (is_interrupted && self.current_turn() == turn)
    }

    /// Returns the events that start a turn. An interrupted task becomes `working` again.
    pub(super) fn turn_start(&self) -> impl Iterator<Item = Event> + use<> {
        let working = TaskStatus::new(TaskState::Working);
        let resumes = self.task.status.state.is_interrupted();
        let status = resumes.then_some(Event::Status {
            status: working,
            metadata: None,
        });
        [Event::TurnStarted].into_iter().chain(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TaskId;

    fn status(state: TaskState) -> Event {
        Event::Status {
            status: TaskStatus::new(state),
            metadata: None,
        }
    }

    fn message() -> Event {
        Event::Message(Arc::new(Message::user("hi")))
    }

    fn extend(log: &mut FoldedLog, events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let mut events: Vec<_> = events.into_iter().collect();
        events
            .iter_mut()
            .for_each(|event| log.apply_next(Timestamp::default(), event));
        events
    }

    fn opened() -> FoldedLog {
        let mut log = FoldedLog::empty();
        let created = Event::Created {
            id: TaskId::from("t"),
            context_id: "c".into(),
            metadata: None,
        };
        extend(&mut log, [created, message(), Event::TurnStarted]);
        log
    }

    #[test]
    fn turns_answer_messages_in_log_order() {
        let mut log = opened();
        assert_eq!((log.position, log.newest_turn()), (Seq(3), 1));
        extend(&mut log, [message()]);
        assert_eq!(log.newest_turn(), 2);
        let ask = Entry {
            seq: Seq(5),
            time: Timestamp::default(),
            event: status(TaskState::InputRequired),
        };
        log.apply(&ask).unwrap();
        assert!(log.is_turn_result(1, &ask) && !log.is_turn_result(2, &ask));
        extend(&mut log, [Event::TurnEnded]);
        assert!(log.next_message().is_some());
        assert_eq!(
            log.turn_start().collect::<Vec<_>>(),
            [Event::TurnStarted, status(TaskState::Working)]
        );
    }

    #[test]
    fn late_events_are_recorded_as_ignored() {
        let mut log = opened();
        let late = [
            status(TaskState::Completed),
            status(TaskState::Working),
            message(),
        ];
        let events = extend(&mut log, late);
        assert_eq!(log.task.status.state, TaskState::Completed);
        assert!(matches!(
            events[..],
            [_, Event::Ignored { .. }, Event::Ignored { .. }]
        ));
        assert_eq!((log.position, log.next_message()), (Seq(6), None));
    }
}
