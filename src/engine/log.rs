//! The log of one task, folded: where the task stands and which messages still wait for their turn.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use crate::model::{
    Broken, Entry, Event, Message, Seq, Task, TaskState, TaskStatus, Timestamp, Trace,
};
use crate::store::Folded;

/// What is there before the first entry; everybody begins with the same.
static NOTHING: LazyLock<Arc<Task>> = LazyLock::new(Arc::default);

/// A task of which nothing is known.
pub(super) fn nothing() -> Arc<Task> {
    NOTHING.clone()
}

/// A log up to one of its positions.
///
/// Turns take messages in the order they came, one each, so the n-th `TurnEnded` answers the n-th message. A
/// message that is not answered yet waits; while one waits, somebody works on the task.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    /// Shared with those it was given to: as long as one of them has it, the next change makes a copy.
    pub(crate) task: Arc<Task>,
    pub(crate) at: Seq,
    waiting: VecDeque<Arc<Message>>,
    /// The traces of messages that wait, and of the last one that had any, by the number of their turn.
    traces: VecDeque<(u64, Trace)>,
    turns_ended: u64,
    /// How often the turn of the first waiting message was begun.
    pub(super) attempts: u32,
}

impl Log {
    /// A log of no entries yet.
    pub(super) fn empty() -> Self {
        let (waiting, traces) = (VecDeque::new(), VecDeque::new());
        Self {
            task: nothing(),
            at: Seq(0),
            waiting,
            traces,
            turns_ended: 0,
            attempts: 0,
        }
    }

    /// A log that was kept at a position.
    pub(super) fn kept(at: Seq, folded: Folded) -> Self {
        let Folded {
            task,
            waiting,
            traces,
            turns_ended,
            attempts,
        } = folded;
        Self {
            task,
            at,
            waiting: waiting.into(),
            traces: traces.into(),
            turns_ended,
            attempts,
        }
    }

    /// What can be kept of it.
    pub(super) fn folded(&self) -> Folded {
        Folded {
            task: self.task.clone(),
            waiting: self.waiting.iter().cloned().collect(),
            traces: self.traces.iter().cloned().collect(),
            turns_ended: self.turns_ended,
            attempts: self.attempts,
        }
    }

    /// The same log, for others to hold: what is appended here later makes no copy for their sake.
    pub(super) fn copied(&self) -> Self {
        let mut copy = self.clone();
        if !copy.task.is_ended() {
            copy.task = Arc::new(Task::clone(&self.task));
        }
        copy
    }

    /// Takes in the next entry; on an error the log is as it was.
    pub(super) fn apply(&mut self, entry: &Entry) -> Result<(), Broken> {
        self.apply_event(entry.seq, entry.time, &entry.event)
    }

    pub(super) fn apply_event(
        &mut self,
        seq: Seq,
        time: Timestamp,
        event: &Event,
    ) -> Result<(), Broken> {
        match event {
            Event::Created {
                id,
                context_id,
                metadata,
            } if self.at == Seq(0) => {
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
            Event::Traced(_)
            | Event::TurnStarted
            | Event::CancelRequested { .. }
            | Event::Ignored { .. }
            | Event::TurnEnded => {}
        }
        match event {
            Event::Message(message) => self.waiting.push_back(message.clone()),
            Event::Traced(trace) => self.trace_last(trace),
            Event::TurnStarted => self.attempts += 1,
            Event::TurnEnded => {
                self.waiting.pop_front();
                self.turns_ended += 1;
                self.attempts = 0;
            }
            Event::Created { .. }
            | Event::Status { .. }
            | Event::Artifact { .. }
            | Event::CancelRequested { .. }
            | Event::Ignored { .. } => {}
        }
        self.at = seq;
        Ok(())
    }

    /// Takes an event in as the next entry and leaves it as it is to be recorded: a status with its time, and what does
    /// not fit as ignored.
    pub(super) fn take(&mut self, time: Timestamp, event: &mut Event) {
        let seq = Seq(self.at.0 + 1);
        if let Event::Status { status, .. } = event {
            // Within a task time does not go back, whatever the clocks say.
            status.timestamp =
                Some(status.timestamp.unwrap_or(time)).max(self.task.status.timestamp);
        }
        if let Err(broken) = self.apply_event(seq, time, event) {
            *event = Event::Ignored {
                reason: broken.to_string(),
            };
            self.at = seq;
        }
    }

    /// Notes the trace of the newest message. Those of turns that are over are nobody's any more.
    fn trace_last(&mut self, trace: &Trace) {
        let (ended, last) = (self.turns_ended, self.last_turn());
        self.traces
            .retain(|(turn, _)| *turn > ended && *turn != last);
        self.traces.push_back((last, trace.clone()));
    }

    /// The trace of the message that a turn takes.
    pub(super) fn trace_of(&self, turn: u64) -> Option<&Trace> {
        self.traces
            .iter()
            .find(|(number, _)| *number == turn)
            .map(|(_, trace)| trace)
    }

    /// The trace of the newest message that had one.
    pub(super) fn last_trace(&self) -> Option<&Trace> {
        self.traces.back().map(|(_, trace)| trace)
    }

    /// The message whose turn it is, if there is work left to do.
    pub(super) fn waiting(&self) -> Option<&Arc<Message>> {
        self.waiting.front().filter(|_| !self.task.is_ended())
    }

    /// How many messages are not answered yet, the one being worked on included.
    pub(super) fn backlog(&self) -> usize {
        self.waiting.len()
    }

    /// The number of the turn that runs, or comes next.
    pub(super) fn turn(&self) -> u64 {
        self.turns_ended + 1
    }

    /// The number of the turn that takes the newest message.
    pub(super) fn last_turn(&self) -> u64 {
        self.turns_ended + self.waiting.len() as u64
    }

    /// Whether a turn was begun that has not ended.
    pub(super) fn turn_runs(&self) -> bool {
        self.attempts > 0
    }

    /// Whether only somebody outside can move the task: it has not ended, and there is nothing to do for it.
    pub(super) fn is_parked(&self) -> bool {
        !self.task.is_ended() && self.waiting.is_empty() && !self.turn_runs()
    }

    /// Whether `entry`, just taken in, is what a caller of this turn waits for: the task ended, or the turn stopped
    /// to ask.
    pub(super) fn settles(&self, turn: u64, entry: &Entry) -> bool {
        let asks =
            matches!(entry.event, Event::Status { .. }) && self.task.status.state.is_interrupted();
        self.task.is_ended() || (asks && self.turn() == turn)
    }

    /// Whether what a caller of this turn waits for has happened already.
    pub(super) fn has_settled(&self, turn: u64) -> bool {
        let asks = self.turn_runs() && self.task.status.state.is_interrupted();
        self.task.is_ended() || self.turns_ended >= turn || (asks && self.turn() == turn)
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

    fn extend(log: &mut Log, events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let mut events: Vec<_> = events.into_iter().collect();
        events
            .iter_mut()
            .for_each(|event| log.take(Timestamp::default(), event));
        events
    }

    fn opened() -> Log {
        let mut log = Log::empty();
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
        assert_eq!((log.at, log.last_turn()), (Seq(3), 1));
        extend(&mut log, [message()]);
        assert_eq!(log.last_turn(), 2);
        let ask = Entry {
            seq: Seq(5),
            time: Timestamp::default(),
            event: status(TaskState::InputRequired),
        };
        log.apply(&ask).unwrap();
        assert!(log.settles(1, &ask) && !log.settles(2, &ask));
        extend(&mut log, [Event::TurnEnded]);
        assert!(log.waiting().is_some());
        assert_eq!(
            log.turn_start().collect::<Vec<_>>(),
            [Event::TurnStarted, status(TaskState::Working)]
        );
    }

    #[test]
    fn what_comes_too_late_is_recorded_as_ignored() {
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
        assert_eq!((log.at, log.waiting()), (Seq(6), None));
    }
}
