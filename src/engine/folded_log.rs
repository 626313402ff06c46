//! The log of one task, folded: where the task stands and which messages still wait for their turn.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use crate::model::{
    Entry, Event, FoldError, Message, Seq, Task, TaskState, TaskStatus, Timestamp, TraceContext,
};
use crate::store::Snapshot;

/// What is there before the first entry; everybody begins with the same.
static EMPTY_TASK: LazyLock<Arc<Task>> = LazyLock::new(Arc::default);

/// A task of which nothing is known.
pub(super) fn empty_task() -> Arc<Task> {
    EMPTY_TASK.clone()
}

/// A log up to one of its positions.
///
/// Turns take messages in the order they came, one each, so the n-th `TurnEnded` answers the n-th message. A
/// message that is not answered yet waits; while one waits, somebody works on the task.
#[derive(Debug, Clone)]
pub(crate) struct FoldedLog {
    /// Shared with those it was given to: as long as one of them has it, the next change makes a copy.
    pub(crate) task: Arc<Task>,
    pub(crate) position: Seq,
    unanswered: VecDeque<Arc<Message>>,
    /// The traces of messages that wait, and of the last one that had any, by the number of their turn.
    traces: VecDeque<(u64, TraceContext)>,
    turns_ended: u64,
    /// How often the turn of the first waiting message was begun.
    pub(super) attempts: u32,
}

impl FoldedLog {
    /// A log of no entries yet.
    pub(super) fn empty() -> Self {
        let (unanswered, traces) = (VecDeque::new(), VecDeque::new());
        Self {
            task: empty_task(),
            position: Seq(0),
            unanswered,
            traces,
            turns_ended: 0,
            attempts: 0,
        }
    }

    /// A log that was kept at a position.
    pub(super) fn from_snapshot(position: Seq, folded: Snapshot) -> Self {
        let Snapshot {
            task,
            unanswered,
            traces,
            turns_ended,
            attempts,
        } = folded;
        Self {
            task,
            position,
            unanswered: unanswered.into(),
            traces: traces.into(),
            turns_ended,
            attempts,
        }
    }

    /// What can be kept of it.
    pub(super) fn to_snapshot(&self) -> Snapshot {
        Snapshot {
            task: self.task.clone(),
            unanswered: self.unanswered.iter().cloned().collect(),
            traces: self.traces.iter().cloned().collect(),
            turns_ended: self.turns_ended,
            attempts: self.attempts,
        }
    }

    /// The same log, for others to hold: what is appended here later makes no copy for their sake.
    pub(super) fn deep_copy(&self) -> Self {
        let mut copy = self.clone();
        if !copy.task.is_ended() {
            copy.task = Arc::new(Task::clone(&self.task));
        }
        copy
    }

    /// Takes in the next entry; on an error the log is as it was.
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
            // They change nothing in the task, and so need no copy of it.
            Event::TraceContext(_)
            | Event::TurnStarted
            | Event::CancelRequested { .. }
            | Event::Ignored { .. }
            | Event::TurnEnded => {}
        }
        match event {
            Event::Message(message) => self.unanswered.push_back(message.clone()),
            Event::TraceContext(trace) => self.set_newest_trace(trace),
            Event::TurnStarted => self.attempts += 1,
            Event::TurnEnded => {
                self.unanswered.pop_front();
                self.turns_ended += 1;
                self.attempts = 0;
            }
            Event::Created { .. }
            | Event::Status { .. }
            | Event::Artifact { .. }
            | Event::CancelRequested { .. }
            | Event::Ignored { .. } => {}
        }
        self.position = seq;
        Ok(())
    }

    /// Takes an event in as the next entry and leaves it as it is to be recorded: a status with its time, and what does
    /// not fit as ignored.
    pub(super) fn apply_next(&mut self, time: Timestamp, event: &mut Event) {
        let seq = Seq(self.position.0 + 1);
        if let Event::Status { status, .. } = event {
            // Within a task time does not go back, whatever the clocks say.
            status.timestamp =
                Some(status.timestamp.unwrap_or(time)).max(self.task.status.timestamp);
        }
        if let Err(broken) = self.apply_event(seq, time, event) {
            *event = Event::Ignored {
                reason: broken.to_string(),
            };
            self.position = seq;
        }
    }

    /// Notes the trace of the newest message. Those of turns that are over are nobody's any more.
    fn set_newest_trace(&mut self, trace: &TraceContext) {
        let (ended, last) = (self.turns_ended, self.newest_turn());
        self.traces
            .retain(|(turn, _)| *turn > ended && *turn != last);
        self.traces.push_back((last, trace.clone()));
    }

    /// The trace of the message that a turn takes.
    pub(super) fn trace_for_turn(&self, turn: u64) -> Option<&TraceContext> {
        self.traces
            .iter()
            .find(|(number, _)| *number == turn)
            .map(|(_, trace)| trace)
    }

    /// The trace of the newest message that had one.
    pub(super) fn newest_trace(&self) -> Option<&TraceContext> {
        self.traces.back().map(|(_, trace)| trace)
    }

    /// The message whose turn it is, if there is work left to do.
    pub(super) fn next_message(&self) -> Option<&Arc<Message>> {
        self.unanswered.front().filter(|_| !self.task.is_ended())
    }

    /// How many messages are not answered yet, the one being worked on included.
    pub(super) fn backlog(&self) -> usize {
        self.unanswered.len()
    }

    /// The number of the turn that runs, or comes next.
    pub(super) fn current_turn(&self) -> u64 {
        self.turns_ended + 1
    }

    /// The number of the turn that takes the newest message.
    pub(super) fn newest_turn(&self) -> u64 {
        self.turns_ended + self.unanswered.len() as u64
    }

    /// Whether a turn was begun that has not ended.
    pub(super) fn is_turn_running(&self) -> bool {
        self.attempts > 0
    }

    /// Whether only somebody outside can move the task: it has not ended, and there is nothing to do for it.
    pub(super) fn is_parked(&self) -> bool {
        !self.task.is_ended() && self.unanswered.is_empty() && !self.is_turn_running()
    }

    /// Whether `entry`, just taken in, is what a caller of this turn waits for: the task ended, or the turn stopped
    /// to ask.
    pub(super) fn is_turn_result(&self, turn: u64, entry: &Entry) -> bool {
        let asks =
            matches!(entry.event, Event::Status { .. }) && self.task.status.state.is_interrupted();
        self.task.is_ended() || (asks && self.current_turn() == turn)
    }

    /// Whether what a caller of this turn waits for has happened already.
    pub(super) fn has_turn_result(&self, turn: u64) -> bool {
        let asks = self.is_turn_running() && self.task.status.state.is_interrupted();
        self.task.is_ended() || self.turns_ended >= turn || (asks && self.current_turn() == turn)
    }

    /// What a turn begins with: a task that waited for somebody outside is worked on again.
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
    fn turns_take_messages_in_the_order_they_came() {
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
