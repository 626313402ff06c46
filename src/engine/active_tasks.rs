//! Registry of active tasks: tasks that have a runner in this process.
//!
//! It decides who runs a task. Callers dispatch a command to the runner; if there is none, the caller gets the task's
//! inbox and becomes the runner. So a log has one writer per process.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::folded_log::FoldedLog;
use super::follow::LogPage;
use super::inbox::{Inbox, InboxSender, RunnerCommand};
use super::tail::{SnapshotOccasion, Tail, TailLimits};
use crate::model::{ContextId, Entry, Event, Scope, Seq, TaskId, TaskState, Timestamp};
use crate::rt::lock;
use crate::store::{Head, Holder, ReadLimit};

/// In-memory state of a task that has a runner: the inbox of the runner, and the tail for readers.
///
/// Readers may hold it after the runner has retired, to read the rest of the tail.
pub(super) struct ActiveTask {
    scope: Scope,
    /// Position that the log has after all appends that the runner has started.
    appended: AtomicU64,
    inbox: InboxSender,
    tail: Mutex<Tail>,
}

impl fmt::Debug for ActiveTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveTask")
            .field("end", &self.tail().end())
            .finish_non_exhaustive()
    }
}

impl ActiveTask {
    fn new(scope: Scope, inbox_capacity: usize, limits: TailLimits) -> Self {
        Self {
            scope,
            appended: AtomicU64::new(0),
            inbox: InboxSender::new(inbox_capacity),
            tail: Mutex::new(Tail::new(limits)),
        }
    }

    pub(super) fn inbox(&self) -> &InboxSender {
        &self.inbox
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        lock(&self.tail)
    }

    /// Appends durable entries of `bytes` in total to the tail.
    pub(super) fn publish(&self, entries: impl Iterator<Item = Entry>, bytes: usize) {
        self.tail().publish(entries, bytes);
    }

    /// Advances the tail over durable events that have no subscriber, without buffering them.
    pub(super) fn advance(&self, position: Seq, time: Timestamp, events: &[Event]) {
        self.tail().advance(position, time, events);
    }

    /// Gives the tail a fold that was read from the store.
    pub(super) fn adopt_fold(&self, log: &FoldedLog) {
        self.tail().adopt_fold(log);
    }

    /// Restarts the tail at the end of a log that was read from the store.
    pub(super) fn reset(&self, log: &FoldedLog) {
        self.tail().reset(log);
        self.begin_append(log.position);
    }

    /// Marks the log as not writable until the next append.
    pub(super) fn mark_unwritable(&self) {
        self.tail().mark_unwritable();
    }

    /// Returns whether the log cannot be written at present.
    pub(super) fn is_unwritable(&self) -> bool {
        self.tail().is_unwritable()
    }

    /// Records that the runner starts an append that ends at `position`.
    pub(super) fn begin_append(&self, position: Seq) {
        self.appended.store(position.0, Ordering::Release);
    }

    /// Returns the head of the task after all durable entries.
    ///
    /// `None` if the scope is another, the tail has no fold, or an append is not published yet: the store may be ahead.
    pub(super) fn head(&self, scope: &Scope) -> Option<Head> {
        if self.scope != *scope {
            return None;
        }
        let head = self.tail().head(scope)?;
        (head.position.0 >= self.appended.load(Ordering::Acquire)).then_some(head)
    }

    /// Returns a head that identifies the log, with the position that the runner has reached.
    fn identify(&self, id: &TaskId) -> Head {
        Head {
            id: id.clone(),
            scope: self.scope.clone(),
            context_id: ContextId::from(""),
            position: Seq(self.appended.load(Ordering::Acquire)),
            state: TaskState::Unspecified,
            status_time: Timestamp::default(),
            holder: Holder::Local,
        }
    }

    /// Drops the fold of a deleted task: readers use the store.
    pub(super) fn drop_fold(&self) {
        self.tail().drop_fold();
    }

    /// Closes the inbox and drops the fold. The entries stay for subscribers that have not read them.
    fn close(&self) {
        self.inbox.close();
        self.tail().drop_fold();
    }

    /// Returns whether the runner has retired.
    pub(super) fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Returns whether the tail has entries after `position`.
    pub(super) fn has_entries_after(&self, position: Seq) -> bool {
        self.tail().end() > position
    }

    /// Returns the fold of all durable entries. `None` if the tail has none.
    pub(super) fn log(&self) -> Option<FoldedLog> {
        self.tail().log()
    }

    /// Returns whether a snapshot should be saved; see [`Tail::is_snapshot_due`].
    pub(super) fn is_snapshot_due(&self, min_entries: u64, occasion: SnapshotOccasion) -> bool {
        self.tail().is_snapshot_due(min_entries, occasion)
    }

    /// Records that a snapshot of all durable entries is being saved.
    pub(super) fn mark_snapshotted(&self) {
        self.tail().mark_snapshotted();
    }

    /// Returns the entries after `position`, up to the limit; see [`Tail::entries_after`].
    pub(super) fn entries_after(&self, position: Seq, limit: ReadLimit) -> Option<LogPage> {
        self.tail().entries_after(position, limit)
    }
}

/// Outcome of dispatching a command.
pub(super) enum Dispatch {
    /// The runner of the task has received it.
    Delivered,
    /// The task had no runner. The caller gets the command back and becomes the runner, with this inbox.
    NoRunner(RunnerCommand, Inbox),
    /// The inbox of the runner is full.
    QueueFull,
}

/// Number of independently locked parts of the registry.
const SHARDS: u64 = 32;

type Shard = Mutex<HashMap<TaskId, Arc<ActiveTask>>>;

/// All tasks that have a runner in this process.
pub(super) struct ActiveTasks {
    shards: Box<[Shard]>,
    hasher: RandomState,
    inbox_capacity: usize,
    tail_limits: TailLimits,
}

impl ActiveTasks {
    pub(super) fn new(inbox_capacity: usize, tail_limits: TailLimits) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            inbox_capacity,
            tail_limits,
        }
    }

    fn shard(&self, id: &TaskId) -> MutexGuard<'_, HashMap<TaskId, Arc<ActiveTask>>> {
        let shard = usize::try_from(self.hasher.hash_one(id) % SHARDS).unwrap_or_default();
        lock(&self.shards[shard])
    }

    fn new_task(&self, scope: &Scope) -> Arc<ActiveTask> {
        let scope = scope.clone();
        Arc::new(ActiveTask::new(
            scope,
            self.inbox_capacity,
            self.tail_limits,
        ))
    }

    /// Returns the active task, if it has a runner.
    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<ActiveTask>> {
        self.shard(id).get(id).cloned()
    }

    /// Returns the ids of all active tasks.
    pub(super) fn ids(&self) -> HashSet<TaskId> {
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| lock(shard).keys().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Returns the number of active tasks.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Returns heads that identify the logs of all active tasks, with the positions that their runners have reached.
    pub(super) fn heads(&self) -> Vec<Head> {
        let shards = self.shards.iter();
        let heads = shards.flat_map(|shard| {
            let tasks = lock(shard);
            let heads = tasks.iter().map(|(id, task)| task.identify(id));
            heads.collect::<Vec<_>>()
        });
        heads.collect()
    }

    /// Makes the caller the runner of a new task.
    pub(super) fn claim(&self, id: &TaskId, scope: &Scope) -> Inbox {
        let task = self.new_task(scope);
        self.shard(id).insert(id.clone(), task.clone());
        Inbox::new(task)
    }

    /// Makes the caller the runner of a task that has none. Returns `None` if it has one.
    pub(super) fn try_claim(&self, id: &TaskId, scope: &Scope) -> Option<Inbox> {
        let mut shard = self.shard(id);
        if shard.contains_key(id) {
            return None;
        }
        let task = self.new_task(scope);
        shard.insert(id.clone(), task.clone());
        Some(Inbox::new(task))
    }

    /// Sends a command to the runner of a task, or makes the caller the runner.
    pub(super) fn dispatch(&self, head: &Head, command: RunnerCommand) -> Dispatch {
        let id = &head.id;
        let mut shard = self.shard(id);
        if let Some(task) = shard.get(id) {
            return if task.inbox.send(command) {
                Dispatch::Delivered
            } else {
                Dispatch::QueueFull
            };
        }
        let task = self.new_task(&head.scope);
        shard.insert(id.clone(), task.clone());
        Dispatch::NoRunner(command, Inbox::new(task))
    }

    /// Returns the next command. If there is none, the task becomes inactive and its runner retires.
    pub(super) fn next_or_retire(&self, id: &TaskId, inbox: &mut Inbox) -> Option<RunnerCommand> {
        let mut shard = self.shard(id);
        // `dispatch` needs the shard's lock, so an empty queue stays empty.
        let command = inbox.try_recv();
        if command.is_none() {
            // Closed before the entry is removed: readers of this tail must know that it is not continued, before
            // another runner can start.
            inbox.task().close();
            shard.remove(id);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Caller;

    #[test]
    fn a_tail_is_closed_before_the_next_runner_can_start() {
        let limits = TailLimits {
            max_entries: 9,
            max_bytes: 9,
        };
        let active_tasks = ActiveTasks::new(1, limits);
        let id = TaskId::from("t");
        let scope = Scope {
            agent: "a".into(),
            tenant: "".into(),
            owner: Caller::anonymous(),
        };
        let mut inbox = active_tasks.claim(&id, &scope);
        let task = inbox.task().clone();
        assert!(task.inbox.send(RunnerCommand::RecordLate));
        assert!(matches!(
            active_tasks.next_or_retire(&id, &mut inbox),
            Some(RunnerCommand::RecordLate)
        ));
        assert!(!task.is_closed());
        assert!(active_tasks.try_claim(&id, &scope).is_none());
        assert!(active_tasks.next_or_retire(&id, &mut inbox).is_none());
        assert!(task.is_closed() && active_tasks.get(&id).is_none());
    }
}
