//! Logs that somebody works on: the tail for those who follow them, and the fold for those who ask.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::folded_log::FoldedLog;
use super::shared_entry::{EntryBatch, SharedEntry};
use super::{AcceptedMessage, Result};
use crate::model::{Call, Entry, Event, Message, Object, Seq, Task, TaskId, Timestamp};
use crate::store::IdempotencyKey;

/// What others want of the one who works on a task.
pub(super) enum RunnerCommand {
    /// Take this message.
    Message(Box<IncomingMessage>),
    /// Stop, and end as canceled.
    Cancel {
        metadata: Option<Object>,
        deadline: Instant,
        reply: oneshot::Sender<Result<Task>>,
    },
    /// Its agent has said something after the end of its turn: record that it was ignored.
    RecordLate,
    /// Nobody worked on it when we came: do as the policy says. The place among those that do is given back then.
    Recover(Option<OwnedSemaphorePermit>),
    /// It may wait, or be silent, for too long: do as the policy says.
    Expire,
    /// Too many like it wait for somebody outside: fail, if it does so too.
    ExpireOverQuota,
}

/// A message on its way to a task, and who waits to hear that it arrived.
pub(super) struct IncomingMessage {
    pub(super) call: Call,
    pub(super) message: Message,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Box<AcceptedMessage>>>,
}

/// A log that somebody works on.
pub(super) struct ActiveTask {
    queue: Mutex<InboxQueue>,
    command_added: Notify,
    tail: Mutex<Tail>,
}

/// Wishes on their way, as many as may wait. Most tasks never have one, so there is no channel.
struct InboxQueue {
    commands: VecDeque<RunnerCommand>,
    capacity: usize,
    /// Nobody is there to grant them any more.
    closed: bool,
}

/// The place of the one who works on a task: where wishes arrive.
pub(super) struct Inbox(Arc<ActiveTask>);

impl Inbox {
    /// The next wish; waits for it.
    pub(super) async fn recv(&mut self) -> RunnerCommand {
        loop {
            if self.has_commands() {
                // So many of them that there is always one must not keep others from running.
                tokio::task::coop::consume_budget().await;
            }
            if let Some(command) = self.try_recv() {
                return command;
            }
            // One that has come in between has left word.
            self.0.command_added.notified().await;
        }
    }

    /// Whether there is a wish.
    pub(super) fn has_commands(&self) -> bool {
        !self.0.queue().commands.is_empty()
    }

    /// The next wish, if there is one.
    fn try_recv(&mut self) -> Option<RunnerCommand> {
        self.0.queue().commands.pop_front()
    }
}

impl Drop for Inbox {
    /// Those who still wish for something are told so by the end of their wish.
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.closed = true;
        let unprocessed = std::mem::take(&mut queue.commands);
        drop(queue);
        drop(unprocessed);
    }
}

struct Tail {
    /// The fold up to where the tail begins, or beyond, if somebody has asked for it: most of what is said nobody asks for.
    log: Option<FoldedLog>,
    /// The end of what is durable; 0 where that is not known.
    end: Seq,
    /// A copy of the fold, made for those who asked and shared by all who ask until there is more: theirs is the
    /// price of it, never that of an append.
    shared_copy: Option<FoldedLog>,
    /// Up to where the fold is kept in the store, or short enough to do without.
    snapshot_position: Seq,
    /// What was recorded together stays together: a batch costs one allocation, and goes as it came.
    batches: VecDeque<(EntryBatch, usize)>,
    /// Of all entries together.
    entry_count: usize,
    /// The same in bytes.
    bytes: usize,
    limits: TailLimits,
    /// The store cannot be written; those who follow are told, and come back later.
    is_unwritable: bool,
}

/// How many entries a tail may have, and how many bytes.
type TailLimits = (usize, usize);

impl fmt::Debug for ActiveTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("end", &self.tail().end)
            .finish_non_exhaustive()
    }
}

impl ActiveTask {
    fn new(inbox_capacity: usize, limits: TailLimits) -> (Arc<Self>, Inbox) {
        let queue = Mutex::new(InboxQueue {
            commands: VecDeque::new(),
            capacity: inbox_capacity.max(1),
            closed: false,
        });
        let tail = Tail {
            log: None,
            end: Seq(0),
            shared_copy: None,
            snapshot_position: Seq(0),
            batches: VecDeque::new(),
            entry_count: 0,
            bytes: 0,
            limits,
            is_unwritable: false,
        };
        let active = Arc::new(Self {
            queue,
            command_added: Notify::new(),
            tail: Mutex::new(tail),
        });
        (active.clone(), Inbox(active))
    }

    fn queue(&self) -> MutexGuard<'_, InboxQueue> {
        // A queue is whole between any two calls, so a panic elsewhere spoils nothing.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a wish on; `false` where too many wait, or nobody is there.
    fn enqueue(&self, command: RunnerCommand) -> bool {
        let mut queue = self.queue();
        if queue.closed || queue.commands.len() >= queue.capacity {
            return false;
        }
        queue.commands.push_back(command);
        drop(queue);
        self.command_added.notify_one();
        true
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        // Every section below leaves the tail whole, so a panic elsewhere spoils nothing.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what is durable now, and how heavy that is. The fold is our own, so that an append costs what it adds and
    /// no more.
    pub(super) fn publish(&self, entries: impl Iterator<Item = Entry>, bytes: usize) {
        let mut tail = self.tail();
        tail.shared_copy = None;
        tail.is_unwritable = false;
        if bytes <= tail.limits.1 / 4 {
            tail.push(SharedEntry::batch(entries), bytes);
        } else {
            // As a whole it would go too soon.
            for entry in entries {
                let bytes = entry.event.memory_size();
                tail.push(SharedEntry::batch([entry]), bytes);
            }
        }
    }

    /// Takes in what is durable now where nobody follows: it is folded if somebody has asked for the fold before, and in
    /// any case not kept. Whoever wants it later reads the store.
    pub(super) fn advance(&self, position: Seq, time: Timestamp, events: &[Event]) {
        let mut tail = self.tail();
        tail.shared_copy = None;
        tail.is_unwritable = false;
        tail.fold_all();
        tail.clear();
        tail.advance(position, time, events);
    }

    /// Goes on from the fold of somebody who has read the store.
    pub(super) fn adopt_fold(&self, log: &FoldedLog) {
        let mut tail = self.tail();
        let is_adjacent = tail
            .batches
            .front()
            .map_or(tail.end, |(batch, _)| Seq(batch[0].seq.0 - 1))
            <= log.position;
        if tail.log.is_none() && tail.end > Seq(0) && is_adjacent {
            tail.log = Some(log.deep_copy());
        }
    }

    /// Begins again from what the store has.
    pub(super) fn reset(&self, log: &FoldedLog) {
        let mut tail = self.tail();
        tail.clear();
        (tail.log, tail.shared_copy) = (None, None);
        (tail.end, tail.snapshot_position) = (log.position, log.position);
        tail.is_unwritable = false;
    }

    /// Says that nothing can be recorded for now.
    pub(super) fn mark_unwritable(&self) {
        self.tail().is_unwritable = true;
    }

    /// Whether nothing can be recorded for now.
    pub(super) fn is_unwritable(&self) -> bool {
        self.tail().is_unwritable
    }

    /// Nobody works on the task by this any more. What is left is the tail, for those who have not read the last of it.
    fn close(&self) {
        self.queue().closed = true;
        let mut tail = self.tail();
        (tail.log, tail.shared_copy) = (None, None);
    }

    /// Whether nobody works on the task by this any more.
    pub(super) fn is_closed(&self) -> bool {
        self.queue().closed
    }

    /// Whether it has more than a reader who is there.
    pub(super) fn has_entries_after(&self, position: Seq) -> bool {
        self.tail().end > position
    }

    /// The fold so far.
    pub(super) fn log(&self) -> Option<FoldedLog> {
        let tail = &mut *self.tail();
        tail.fold_all();
        let log = tail.log.as_ref()?;
        if tail
            .shared_copy
            .as_ref()
            .is_none_or(|shared_copy| shared_copy.position != log.position)
        {
            tail.shared_copy = Some(log.deep_copy());
        }
        tail.shared_copy.clone()
    }

    /// Whether so much has come since the fold was last kept that it should be again. What is kept has the size of
    /// the task, so the steps grow with the log: all that is ever kept is a few times as long as the log itself.
    pub(super) fn is_snapshot_due(
        &self,
        snapshot_min_entries: u64,
        turn_ended: bool,
        task_ended: bool,
    ) -> bool {
        let tail = self.tail();
        let step = match turn_ended {
            true if task_ended => snapshot_min_entries,
            true => snapshot_min_entries.max(tail.end.0 / 8),
            false => tail.snapshot_position.0.max(8 * snapshot_min_entries),
        };
        tail.end.0.saturating_sub(tail.snapshot_position.0) >= step
    }

    /// It was given away to be kept.
    pub(super) fn mark_snapshotted(&self) {
        let mut tail = self.tail();
        tail.snapshot_position = tail.end;
    }

    /// The entries after `position`, none if the reader has them all; `None` when the tail does not reach back so far.
    pub(super) fn entries_after(&self, position: Seq, limit: usize) -> Option<Vec<SharedEntry>> {
        let tail = self.tail();
        if tail.end > Seq(0) && tail.end <= position {
            return Some(Vec::new());
        }
        // The last sheet that begins no later than what comes next; none if that is not kept any more.
        let next = Seq(position.0 + 1);
        let batch = tail
            .batches
            .partition_point(|(batch, _)| batch[0].seq <= next)
            .checked_sub(1)?;
        let batches = tail.batches.iter().skip(batch).map(|(batch, _)| batch);
        let skip = |batch: &EntryBatch| {
            usize::try_from(next.0.saturating_sub(batch[0].seq.0)).unwrap_or(usize::MAX)
        };
        Some(
            batches
                .flat_map(|batch| SharedEntry::iter_from(batch, skip(batch)))
                .take(limit)
                .collect(),
        )
    }
}

impl Tail {
    /// Takes in what is durable now, and drops the oldest until the rest is within bounds. Those who have not read them find
    /// them in the store.
    fn push(&mut self, batch: EntryBatch, bytes: usize) {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return;
        };
        if first.seq == Seq(1) {
            self.log = Some(FoldedLog::empty());
        }
        if self.end == Seq(0) && first.seq != Seq(1) {
            return;
        }
        self.end = last.seq;
        self.entry_count += batch.len();
        self.bytes += bytes;
        self.batches.push_back((batch, bytes));
        let (max_entries, max_bytes) = self.limits;
        while self.entry_count > max_entries.max(1) || self.bytes > max_bytes {
            let Some((oldest, bytes)) = self.batches.pop_front() else {
                return;
            };
            self.entry_count -= oldest.len();
            self.bytes -= bytes;
            self.fold_batch(&oldest);
        }
    }

    /// Folds all that is durable.
    fn fold_all(&mut self) {
        let batches: Vec<EntryBatch> = self
            .batches
            .iter()
            .map(|(batch, _)| batch.clone())
            .collect();
        batches.iter().for_each(|batch| self.fold_batch(batch));
    }

    /// Folds what of a sheet is not yet. What does not fit was recorded as ignored, so this cannot fail; if it did, the
    /// store has the truth.
    fn fold_batch(&mut self, batch: &EntryBatch) {
        let Some(log) = &mut self.log else { return };
        let known = log.position;
        let mut new_entries = batch.iter().filter(|entry| entry.seq > known);
        if new_entries.any(|entry| log.apply(entry).is_err()) {
            self.invalidate();
        }
    }

    /// Takes in what nobody reads entry by entry.
    fn advance(&mut self, position: Seq, time: Timestamp, events: &[Event]) {
        if self.end == Seq(0) && position != Seq(0) {
            return;
        }
        self.end = Seq(position.0 + events.len() as u64);
        let Some(log) = &mut self.log else { return };
        let known = log.position.0;
        let mut new_entries = events
            .iter()
            .zip(position.0 + 1..)
            .filter(|(_, seq)| *seq > known);
        if new_entries.any(|(event, seq)| log.apply_event(Seq(seq), time, event).is_err()) {
            self.invalidate();
        }
    }

    /// Nothing is known any more: the store has the truth.
    fn invalidate(&mut self) {
        (self.log, self.end) = (None, Seq(0));
        self.clear();
    }

    fn clear(&mut self) {
        self.batches.clear();
        (self.entry_count, self.bytes) = (0, 0);
    }
}

/// What became of a wish.
pub(super) enum Dispatch {
    /// Whoever works on the task has it.
    Delivered,
    /// Nobody works on the task; the wish comes back with the place to do so.
    NoRunner(RunnerCommand, Arc<ActiveTask>, Inbox),
    /// Too many wait already.
    QueueFull,
}

/// Logs by their task.
type Shard = Mutex<HashMap<TaskId, Arc<ActiveTask>>>;

/// All logs that somebody works on in this process. There is one worker for each, and this is where that is decided.
pub(super) struct ActiveTasks {
    shards: Box<[Shard]>,
    hasher: RandomState,
    inbox_capacity: usize,
    tail: TailLimits,
}

impl ActiveTasks {
    pub(super) fn new(inbox_capacity: usize, tail: TailLimits) -> Self {
        Self {
            shards: (0..32).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            inbox_capacity,
            tail,
        }
    }

    fn shard(&self, id: &TaskId) -> MutexGuard<'_, HashMap<TaskId, Arc<ActiveTask>>> {
        let position = usize::try_from(self.hasher.hash_one(id) % 32).unwrap_or_default();
        self.shards[position]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<ActiveTask>> {
        self.shard(id).get(id).cloned()
    }

    /// Makes the caller the one who works on this task; it must be new.
    pub(super) fn claim(&self, id: &TaskId) -> (Arc<ActiveTask>, Inbox) {
        let (active, inbox) = ActiveTask::new(self.inbox_capacity, self.tail);
        self.shard(id).insert(id.clone(), active.clone());
        (active, inbox)
    }

    /// Passes a wish to whoever works on the task, or makes the caller that one.
    pub(super) fn dispatch(&self, id: &TaskId, command: RunnerCommand) -> Dispatch {
        let mut shard = self.shard(id);
        if let Some(active) = shard.get(id) {
            return if active.enqueue(command) {
                Dispatch::Delivered
            } else {
                Dispatch::QueueFull
            };
        }
        let (active, inbox) = ActiveTask::new(self.inbox_capacity, self.tail);
        shard.insert(id.clone(), active.clone());
        Dispatch::NoRunner(command, active, inbox)
    }

    /// Stops being the one who works on a task, unless a wish has come meanwhile.
    pub(super) fn retire(&self, id: &TaskId, inbox: &mut Inbox) -> Option<RunnerCommand> {
        let mut shard = self.shard(id);
        // Under the lock nobody can send, so an empty queue stays empty.
        let command = inbox.try_recv();
        if command.is_none() {
            // Before anybody else can begin: whoever still reads here must see that there may be more elsewhere.
            inbox.0.close();
            shard.remove(id);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_closed_before_the_next_runner_can_start() {
        let (active_tasks, id) = (ActiveTasks::new(1, (9, 9)), TaskId::from("t"));
        let (active, mut inbox) = active_tasks.claim(&id);
        assert!(active.enqueue(RunnerCommand::RecordLate));
        assert!(matches!(
            active_tasks.retire(&id, &mut inbox),
            Some(RunnerCommand::RecordLate)
        ));
        assert!(!active.is_closed());
        assert!(active_tasks.retire(&id, &mut inbox).is_none());
        assert!(active.is_closed() && active_tasks.get(&id).is_none());
    }
}
