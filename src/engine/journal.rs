//! Store and bus as one log: append, read, follow. The tail of a log that somebody works on is in memory, so a
//! reader that keeps up never touches the store. A log that rests is folded from what was kept of it and what came
//! behind that, never from its beginning if it is long.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::active_tasks::{ActiveTask, ActiveTasks};
use super::folded_log::FoldedLog;
use super::shared_entry::SharedEntry;
use super::snapshots::{MIN_SNAPSHOT_ENTRIES, Snapshotter};
use super::task_cache::{TaskCache, TaskView};
use super::{Error, Result};
use crate::bus::Bus;
use crate::model::{Entry, Event, Scope, Seq, Task, TaskId};
use crate::store::{
    self, Batch, CreateResult, Head, NewTask, Store, StoreFuture, TaskPage, TaskQuery,
};

/// How many entries are read at once.
const READ_PAGE_ENTRIES: usize = 1000;

pub(crate) struct Journal {
    pub(super) store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
    pub(super) active_tasks: ActiveTasks,
    pub(super) task_cache: TaskCache,
    snapshotter: Arc<Snapshotter>,
    /// The fold of a log of so many entries is worth keeping.
    pub(super) snapshot_min_entries: u64,
    /// How long those who follow wait for the store to answer.
    store_timeout: Duration,
    stop: CancellationToken,
}

impl Journal {
    pub(super) fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        (active_tasks, task_cache): (ActiveTasks, TaskCache),
        store_timeout: Duration,
        (tracker, stop): (TaskTracker, CancellationToken),
    ) -> Self {
        let snapshotter = Arc::new(Snapshotter::new(store.clone(), tracker, stop.clone()));
        Self {
            store,
            bus,
            active_tasks,
            task_cache,
            snapshotter,
            snapshot_min_entries: MIN_SNAPSHOT_ENTRIES,
            store_timeout,
            stop,
        }
    }

    pub(super) fn create<'a>(
        &'a self,
        task: &'a NewTask,
    ) -> StoreFuture<'a, store::Result<CreateResult>> {
        self.store.create(task)
    }

    pub(super) async fn find(&self, scope: &Scope, task: &TaskId) -> store::Result<Option<Head>> {
        self.store.find(scope, task).await
    }

    pub(super) async fn list(&self, scope: &Scope, query: &TaskQuery) -> store::Result<TaskPage> {
        self.store.list(scope, query).await
    }

    /// Adds a batch after `position`; readers hear of it only once it is durable.
    pub(super) fn append<'a>(
        &'a self,
        task: &'a Head,
        position: Seq,
        batch: &'a Batch,
    ) -> StoreFuture<'a, store::Result<Seq>> {
        self.store.append(task, position, batch)
    }

    /// Lets readers see what is durable now, and has the fold, which may be ahead of that, kept if much has come since the
    /// last time. Gives back the room that the events had.
    pub(super) fn publish(
        &self,
        task: &Head,
        active: &ActiveTask,
        position: Seq,
        (batch, weight): (Batch, usize),
        log: &FoldedLog,
    ) -> Vec<Event> {
        let turn_ended = matches!(batch.events.last(), Some(Event::TurnEnded));
        let task_ended = batch.state.is_terminal();
        let end = Seq(position.0 + batch.events.len() as u64);
        let (time, mut events) = (batch.time, batch.events);
        // Whoever comes later begins with the fold, or reads the store.
        match self.bus.is_watched(&task.id) {
            true => {
                let numbered = events.drain(..).zip(position.0 + 1..);
                active.publish(
                    numbered.map(|(event, seq)| Entry {
                        seq: Seq(seq),
                        time,
                        event,
                    }),
                    weight,
                );
            }
            false => {
                active.advance(position, time, &events);
                events.clear();
            }
        }
        self.announce(&task.id, end);
        if log.position == end
            && active.is_snapshot_due(self.snapshot_min_entries, turn_ended, task_ended)
            && self.snapshotter.save(task, log.clone())
        {
            active.mark_snapshotted();
        }
        events
    }

    /// Wakes those who follow the task.
    pub(super) fn announce(&self, task: &TaskId, position: Seq) {
        self.bus.announce(task, position);
    }

    /// The whole log, folded, as it was when `task` was found or later: from memory if somebody works on it or has
    /// read it before, else from the store.
    pub(super) async fn log(&self, task: &Head) -> Result<FoldedLog> {
        let active = self
            .active_tasks
            .get(&task.id)
            .and_then(|active| active.log());
        // What is durable is in the live fold a moment later, and the head may be of that moment.
        if let Some(log) = active.filter(|log| log.position >= task.position) {
            return Ok(log);
        }
        if let Some(cached) = self
            .task_cache
            .get(&task.id)
            .filter(|cached| cached.log.position == task.position)
        {
            return Ok(cached.log.clone());
        }
        // Watched meanwhile, so that what comes is at hand behind what was read.
        let _watch = self
            .active_tasks
            .get(&task.id)
            .map(|_| self.bus.watch(&task.id));
        let log = self.read_log(task).await?;
        match self.active_tasks.get(&task.id) {
            Some(active) => active.adopt_fold(&log),
            None => self.task_cache.put(&task.id, &log),
        }
        Ok(log)
    }

    /// The task at the end of its log, if it rests and was read before.
    pub(super) fn cached_task(&self, task: &TaskId, end: Seq) -> Option<TaskView> {
        let cached = self
            .task_cache
            .get(task)
            .filter(|cached| cached.log.position == end)?;
        Some(TaskView::cached(cached, &self.task_cache))
    }

    /// The task, as it was when `task` was found or later.
    pub(super) async fn task_view(&self, task: &Head) -> Result<TaskView> {
        if let Some(view) = self.cached_task(&task.id, task.position) {
            return Ok(view);
        }
        let log = self.log(task).await?;
        Ok(self
            .cached_task(&task.id, log.position)
            .unwrap_or(TaskView::Owned(log.task)))
    }

    /// The log as the store has it, for the one who works on it.
    pub(super) async fn load_for_runner(&self, task: &Head) -> Result<FoldedLog> {
        let log = self.read_log(task).await?;
        if !log.task.is_ended() {
            self.task_cache.remove(&task.id);
        }
        Ok(log)
    }

    async fn read_log(&self, task: &Head) -> Result<FoldedLog> {
        let base = self.load_base(task).await;
        self.apply_new_entries(task, base).await
    }

    /// What is known of a log without reading its entries; an empty one if that is nothing.
    async fn load_base(&self, task: &Head) -> FoldedLog {
        if let Some(cached) = self.task_cache.get(&task.id) {
            return cached.log.clone();
        }
        if task.position.0 < self.snapshot_min_entries {
            return FoldedLog::empty();
        }
        // A cache: where it fails the log itself may be readable, and if not, that says why.
        let snapshot = self.store.load_snapshot(task).await.ok().flatten();
        snapshot.map_or_else(FoldedLog::empty, |(position, folded)| {
            FoldedLog::from_snapshot(position, folded)
        })
    }

    /// The task as it was at a position.
    pub(super) async fn task_at_position(&self, task: &Head, position: Seq) -> Result<Arc<Task>> {
        let snapshot = self
            .store
            .load_snapshot(task)
            .await
            .ok()
            .flatten()
            .filter(|(snapshot, _)| *snapshot <= position);
        let mut log = snapshot.map_or_else(FoldedLog::empty, |(position, folded)| {
            FoldedLog::from_snapshot(position, folded)
        });
        while log.position < position {
            let left = usize::try_from(position.0 - log.position.0)
                .unwrap_or(READ_PAGE_ENTRIES)
                .min(READ_PAGE_ENTRIES);
            let entries = self.store.read(task, log.position, left).await?;
            if entries.is_empty() {
                return Err(Error::Deleted);
            }
            for entry in &entries {
                log.apply(entry)?;
            }
        }
        Ok(log.task)
    }

    /// Takes in what came behind a fold.
    async fn apply_new_entries(&self, task: &Head, base: FoldedLog) -> Result<FoldedLog> {
        let (from, mut log) = (base.position, base);
        // With the last that is known: where that is not there, the task was removed.
        let mut after = Seq(from.0.saturating_sub(1));
        loop {
            let entries = self.store.read(task, after, READ_PAGE_ENTRIES).await?;
            if entries.is_empty() && log.position == from {
                self.task_cache.remove(&task.id);
                return Err(Error::Deleted);
            }
            for entry in entries.iter().filter(|entry| entry.seq > from) {
                log.apply(entry)?;
            }
            after = log.position;
            if entries.len() < READ_PAGE_ENTRIES {
                break;
            }
        }
        if log.position.0 - from.0 >= self.snapshot_min_entries {
            self.snapshotter.save(task, log.clone());
        }
        Ok(log)
    }

    /// Forgets tasks, and lets those who still follow one find out.
    pub(super) async fn delete(&self, tasks: &[Head]) -> store::Result<()> {
        self.store.remove(tasks).await?;
        for head in tasks {
            self.task_cache.remove(&head.id);
            self.announce(&head.id, head.position);
        }
        Ok(())
    }

    /// The tail of a log, watched from now on.
    pub(super) fn subscribe_tail(
        &self,
        task: &TaskId,
        active: &Arc<ActiveTask>,
    ) -> TailSubscription {
        TailSubscription {
            announcements: self.bus.watch(task),
            active: active.clone(),
        }
    }

    /// Wakes when anybody, here or elsewhere, has added to the log.
    pub(super) fn watch(&self, task: &TaskId) -> watch::Receiver<Seq> {
        self.bus.watch(task)
    }

    /// Every entry after `position`, as it comes.
    pub(super) fn follow(self: &Arc<Self>, task: &Head, position: Seq) -> Follow {
        self.follow_after(task, position, None)
    }

    /// The same for one who watches it already.
    pub(super) fn follow_after(
        self: &Arc<Self>,
        task: &Head,
        position: Seq,
        tail: Option<TailSubscription>,
    ) -> Follow {
        Follow {
            position,
            ..self.follow_from(task, Vec::new(), tail)
        }
    }

    /// Every entry from the first on, where the first ones are at hand.
    pub(super) fn follow_from(
        self: &Arc<Self>,
        task: &Head,
        buffered: Vec<SharedEntry>,
        tail: Option<TailSubscription>,
    ) -> Follow {
        let (announcements, active) = match tail {
            Some(TailSubscription {
                announcements,
                active,
            }) => (announcements, Some(active)),
            None => (self.bus.watch(&task.id), self.active_tasks.get(&task.id)),
        };
        let (journal, task) = (self.clone(), task.clone());
        Follow {
            journal,
            task,
            position: Seq(0),
            buffered,
            announcements,
            active,
        }
    }
}

/// The tail of a log that somebody works on: what is added while there is one of these stays in it, within its bounds.
#[derive(Debug)]
pub(super) struct TailSubscription {
    announcements: watch::Receiver<Seq>,
    active: Arc<ActiveTask>,
}

/// A reader of one log, at its own pace. It slows nobody, and nobody slows it.
pub(crate) struct Follow {
    journal: Arc<Journal>,
    task: Head,
    position: Seq,
    /// What is at hand of what comes next.
    buffered: Vec<SharedEntry>,
    announcements: watch::Receiver<Seq>,
    /// The tail it reads. Held, so that it is still there for those who have not read the last of it when the work is done.
    active: Option<Arc<ActiveTask>>,
}

impl Follow {
    /// The next entries, at least one; waits for them.
    ///
    /// # Errors
    /// The task is gone, the engine stops, or nothing can be recorded for now. Nothing was skipped: whoever calls
    /// again goes on where they were.
    pub(crate) async fn next(&mut self) -> Result<Vec<SharedEntry>> {
        loop {
            // Seen before reading: what is announced while we read wakes us again.
            self.announcements.mark_unchanged();
            let entries = self.read_next().await?;
            if let Some(last) = entries.last() {
                self.position = last.seq;
                return Ok(entries);
            }
            tokio::select! {
                biased;
                changed = self.announcements.changed() => changed.map_err(|_| Error::ShuttingDown)?,
                () = self.journal.stop.cancelled() => return Err(Error::ShuttingDown),
            }
        }
    }

    /// The next entries, none if there are none now; does not wait for them.
    ///
    /// # Errors
    /// As `next`.
    pub(crate) async fn try_next(&mut self) -> Result<Vec<SharedEntry>> {
        let entries = self.read_next().await?;
        if let Some(last) = entries.last() {
            self.position = last.seq;
        }
        Ok(entries)
    }

    async fn read_next(&mut self) -> Result<Vec<SharedEntry>> {
        if !self.buffered.is_empty() {
            return Ok(std::mem::take(&mut self.buffered));
        }
        if let Some(entries) = self.read_tail()? {
            return Ok(entries);
        }
        // Apart: whoever keeps up waits without room for it.
        let stored = Box::pin(timeout(self.journal.store_timeout, self.read_store()));
        let entries = stored.await.unwrap_or(Err(Error::StoreUnavailable))?;
        Ok(SharedEntry::unshared(entries))
    }

    /// The next entries, none if there are none now; `None` where the tail does not reach back so far, or there is none.
    fn read_tail(&mut self) -> Result<Option<Vec<SharedEntry>>> {
        let held = self.active.take();
        if let Some(active) =
            held.filter(|active| !active.is_closed() || active.has_entries_after(self.position))
        {
            return self.read_tail_of(active);
        }
        match self.journal.active_tasks.get(&self.task.id) {
            Some(active) => self.read_tail_of(active),
            None => Ok(None),
        }
    }

    fn read_tail_of(&mut self, active: Arc<ActiveTask>) -> Result<Option<Vec<SharedEntry>>> {
        let entries = active.entries_after(self.position, READ_PAGE_ENTRIES);
        if entries.as_ref().is_some_and(Vec::is_empty) && active.is_unwritable() {
            return Err(Error::StoreUnavailable);
        }
        self.active = Some(active);
        Ok(entries)
    }

    async fn read_store(&self) -> Result<Vec<Entry>> {
        let entries = self
            .journal
            .store
            .read(&self.task, self.position, READ_PAGE_ENTRIES)
            .await?;
        if entries.is_empty() && !self.exists().await? {
            return Err(Error::Deleted);
        }
        Ok(entries)
    }

    /// Whether the log is there at all: a task is removed whole or not.
    async fn exists(&self) -> Result<bool> {
        Ok(!self
            .journal
            .store
            .read(&self.task, Seq(0), 1)
            .await?
            .is_empty())
    }
}
