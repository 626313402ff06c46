//! Store, bus and caches as one log: append, read, follow.
//!
//! The tail of an active log is in memory, so a reader that keeps up never reads the store. The fold of an inactive
//! log comes from the task cache, or from the last snapshot and the entries after it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::active_tasks::{ActiveTask, ActiveTasks};
use super::folded_log::FoldedLog;
use super::follow::{Follow, LogPage, TailSubscription};
use super::follower_cache::FollowerCache;
use super::snapshots::{MIN_SNAPSHOT_ENTRIES, Snapshotter};
use super::tail::{SnapshotOccasion, TailLimits};
use super::task_cache::{CachedTask, TaskCache, TaskView};
use super::{Error, Result, Settings};
use crate::bus::Bus;
use crate::model::{Caller, Entry, Event, Scope, Seq, Task, TaskId};
use crate::rt::{FairPermit, FairSemaphore};
use crate::store::{
    self, Batch, CreateResult, Head, NewTask, ReadLimit, Store, StoreFuture, TaskPage, TaskQuery,
};

/// Limit of one read of the store for a fold.
pub(super) const FOLD_PAGE: ReadLimit = ReadLimit {
    entries: 1000,
    bytes: 1 << 20,
};

/// Limit of one read for a fold that has the permit for large logs. A store that decodes whole batches decodes a batch
/// again for each page of it, so large pages save work.
const LARGE_FOLD_PAGE: ReadLimit = ReadLimit {
    entries: 1000,
    bytes: 8 << 20,
};

/// Number of logs of more than one page that are folded at the same time. One caller uses at most half.
const CONCURRENT_LARGE_READS: usize = 4;

/// Access to the logs of all tasks.
pub(crate) struct Journal {
    pub(super) store: Arc<dyn Store>,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) active_tasks: ActiveTasks,
    /// Tails of logs that other replicas write. `None` on stores of one process.
    pub(super) follower_cache: Option<FollowerCache>,
    pub(super) task_cache: TaskCache,
    snapshotter: Arc<Snapshotter>,
    /// Permits to fold logs of more than one page.
    large_reads: FairSemaphore<Caller>,
    /// Minimum number of entries for a snapshot.
    pub(super) snapshot_min_entries: u64,
    /// How long subscribers wait for a read of the store.
    pub(super) store_timeout: Duration,
    /// Cancelled at shutdown.
    pub(super) stop: CancellationToken,
}

/// A batch of events and its size in bytes.
#[derive(Debug)]
pub(super) struct SizedBatch {
    pub(super) batch: Batch,
    pub(super) bytes: usize,
}

impl Journal {
    pub(super) fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        settings: &Settings,
        tracker: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let tail_limits = TailLimits {
            max_entries: settings.max_tail_entries,
            max_bytes: settings.max_tail_bytes,
        };
        let follower_cache = store.lease().map(|_| FollowerCache::new(tail_limits));
        let snapshotter = Arc::new(Snapshotter::new(store.clone(), tracker, stop.clone()));
        Self {
            store,
            bus,
            active_tasks: ActiveTasks::new(settings.max_waiting_messages, tail_limits),
            follower_cache,
            task_cache: TaskCache::new(settings.task_cache_bytes),
            snapshotter,
            large_reads: FairSemaphore::new(CONCURRENT_LARGE_READS, None),
            snapshot_min_entries: MIN_SNAPSHOT_ENTRIES,
            store_timeout: settings.store_timeout,
            stop,
        }
    }

    /// Creates a task with its first entries.
    pub(super) fn create<'a>(
        &'a self,
        task: &'a NewTask,
    ) -> StoreFuture<'a, store::Result<CreateResult>> {
        self.store.create(task)
    }

    /// Returns the head of a task, or `None` if the scope does not contain it.
    pub(super) async fn find(&self, scope: &Scope, task: &TaskId) -> store::Result<Option<Head>> {
        match self.known_head(scope, task) {
            Some(head) => Ok(Some(head)),
            None => self.store.find(scope, task).await,
        }
    }

    /// Returns the head of a task of the scope, if it is in memory: of the active task, or from the cache.
    fn known_head(&self, scope: &Scope, task: &TaskId) -> Option<Head> {
        if self.store.has_external_writers() {
            return None;
        }
        if let Some(active) = self.active_tasks.get(task) {
            return active.head(scope);
        }
        let cached = self.task_cache.get(task)?;
        cached.is_in_scope(scope).then(|| cached.head())
    }

    /// Returns a page of the scope's tasks.
    pub(super) async fn list(&self, scope: &Scope, query: &TaskQuery) -> store::Result<TaskPage> {
        self.store.list(scope, query).await
    }

    /// Appends a batch after `position`. Readers do not see it before [`publish`](Self::publish).
    pub(super) fn append<'a>(
        &'a self,
        task: &'a Head,
        position: Seq,
        batch: &'a Batch,
    ) -> StoreFuture<'a, store::Result<Seq>> {
        self.store.append(task, position, batch)
    }

    /// Makes a durable batch visible to readers, and saves a snapshot if one is due.
    ///
    /// `position` is that of the entry before the batch; `log` may be ahead of the batch. Returns the emptied event
    /// buffer for reuse.
    pub(super) fn publish(
        &self,
        task: &Head,
        active: &ActiveTask,
        position: Seq,
        sized_batch: SizedBatch,
        log: &FoldedLog,
    ) -> Vec<Event> {
        let SizedBatch { batch, bytes } = sized_batch;
        let occasion = snapshot_occasion(&batch);
        let end = Seq(position.0 + batch.events.len() as u64);
        let time = batch.time;
        let mut events = batch.events;
        if self.bus.is_watched(&task.id) {
            let numbered = events.drain(..).zip(position.0 + 1..);
            let entries = numbered.map(|(event, seq)| Entry {
                seq: Seq(seq),
                time,
                event,
            });
            active.publish(entries, bytes);
        } else {
            // Not buffered: a later subscriber starts with the fold, or reads the store.
            active.advance(position, time, &events);
            events.clear();
        }
        self.announce(&task.id, end);
        if log.position == end
            && active.is_snapshot_due(self.snapshot_min_entries, occasion)
            && self.snapshotter.save(task, log.clone())
        {
            active.mark_snapshotted();
        }
        events
    }

    /// Notifies subscribers of the task.
    pub(super) fn announce(&self, task: &TaskId, position: Seq) {
        self.bus.announce(task, position);
    }

    /// Returns the fold of the log, at least as new as `task`: of the active task, from the cache, or from the store.
    pub(super) async fn log(&self, task: &Head) -> Result<FoldedLog> {
        // Before the check for a runner: one that starts later forgets the task, and then the read is not cached.
        let version = self.task_cache.begin_read(&task.id);
        let active = self.active_tasks.get(&task.id);
        let active_log = active.as_ref().and_then(|active| active.log());
        // An entry is durable before it is in the tail, so the head may be ahead of the tail's fold.
        if let Some(log) = active_log.filter(|log| log.position >= task.position) {
            return Ok(log);
        }
        if let Some(cached) = self.cached_since(task) {
            return Ok(cached.log.clone());
        }
        // Subscribed during the read, so that the tail buffers entries appended after it.
        let _watch = active.as_ref().map(|_| self.bus.watch(&task.id));
        let log = self.read_log(task).await?;
        if active.is_none() {
            self.task_cache.put(version, task, &log);
        }
        if let Some(active) = self.active_tasks.get(&task.id) {
            active.adopt_fold(&log);
        }
        Ok(log)
    }

    /// Returns the cached task, if it is at least as new as `task`.
    fn cached_since(&self, task: &Head) -> Option<Arc<CachedTask>> {
        let cached = self.task_cache.get(&task.id)?;
        if self.follower_cache.is_some() && cached.log.position > task.position {
            // The head is current on a shared store: a failover of the database has lost the entries.
            self.task_cache.forget(&task.id);
            return None;
        }
        (cached.log.position >= task.position).then_some(cached)
    }

    /// Returns a task of the scope from the cache, if it is certainly current.
    pub(super) fn cached_task(&self, scope: &Scope, task: &TaskId) -> Option<TaskView> {
        if self.store.has_external_writers() {
            return None;
        }
        let cached = self.task_cache.get(task)?;
        cached
            .is_in_scope(scope)
            .then(|| TaskView::cached(cached, &self.task_cache))
    }

    /// Returns the task, at least as new as `task`.
    pub(super) async fn task_view(&self, task: &Head) -> Result<TaskView> {
        let shared = self.cached_since(task);
        if let Some(shared) = shared.or_else(|| self.task_cache.in_use_since(task)) {
            return Ok(TaskView::cached(shared, &self.task_cache));
        }
        let log = self.log(task).await?;
        let cached = self.task_cache.get(&task.id);
        Ok(
            match cached.filter(|cached| cached.log.position == log.position) {
                Some(cached) => TaskView::cached(cached, &self.task_cache),
                None => self.task_cache.uncached_view(task, log),
            },
        )
    }

    /// Reads the log from the store, for its runner. The task is active: it leaves the cache before the runner appends.
    pub(super) async fn load_for_runner(&self, task: &Head) -> Result<FoldedLog> {
        let log = self.read_log(task).await;
        self.task_cache.forget(&task.id);
        log
    }

    async fn read_log(&self, task: &Head) -> Result<FoldedLog> {
        // A long log is read under a permit from the start, any other from its second page on.
        let permit = if task.position.0 < self.snapshot_min_entries {
            None
        } else {
            Some(self.acquire_large_read(task).await)
        };
        let base = match self.fold_of_others(task).filter(|_| permit.is_some()) {
            Some(log) => log,
            None => self.load_base(task).await,
        };
        self.apply_new_entries(task, base, permit).await
    }

    /// Returns a current fold that another reader has made while this one waited for the permit, so that concurrent readers
    /// of one large log fold it once.
    fn fold_of_others(&self, task: &Head) -> Option<FoldedLog> {
        let in_use = self.task_cache.in_use_since(task);
        let cached = in_use.or_else(|| self.cached_since(task));
        let active_log = || self.active_tasks.get(&task.id)?.log();
        cached
            .map(|cached| cached.log.clone())
            .or_else(active_log)
            .filter(|log| log.position >= task.position)
    }

    /// Waits for the permit to read a large log. Few folds of large logs thereby exist that no budget counts yet.
    async fn acquire_large_read(&self, task: &Head) -> FairPermit<Caller> {
        self.large_reads.acquire(task.scope.owner.clone()).await
    }

    /// Returns the newest fold that needs no entries: from the cache, or from a snapshot. Empty if there is none.
    async fn load_base(&self, task: &Head) -> FoldedLog {
        if let Some(cached) = self.task_cache.get(&task.id) {
            return cached.log.clone();
        }
        if task.position.0 < self.snapshot_min_entries {
            return FoldedLog::empty();
        }
        // Errors are ignored: the log may still be readable, and if not, reading it returns the error.
        self.load_snapshot(task, Seq(u64::MAX)).await
    }

    /// Returns the fold of the last snapshot, if there is one at `max_position` or before; else an empty fold.
    async fn load_snapshot(&self, task: &Head, max_position: Seq) -> FoldedLog {
        match self.store.load_snapshot(task, usize::MAX).await {
            Ok(Some((position, snapshot))) if position <= max_position => {
                FoldedLog::from_snapshot(position, snapshot)
            }
            Ok(_) | Err(_) => FoldedLog::empty(),
        }
    }

    /// Returns the state of the task at a position.
    pub(super) async fn task_at_position(&self, task: &Head, position: Seq) -> Result<Arc<Task>> {
        let mut permit = None;
        let mut log = FoldedLog::empty();
        // Only a long log has a snapshot.
        if position.0 >= self.snapshot_min_entries {
            permit = Some(self.acquire_large_read(task).await);
            log = self.load_snapshot(task, position).await;
        }
        while log.position < position {
            // Other logs need a permit from their second page on.
            if permit.is_none() && log.position > Seq(0) {
                permit = Some(self.acquire_large_read(task).await);
            }
            let page = if permit.is_some() {
                LARGE_FOLD_PAGE
            } else {
                FOLD_PAGE
            };
            let missing = usize::try_from(position.0 - log.position.0).unwrap_or(usize::MAX);
            let limit = ReadLimit {
                entries: missing.min(page.entries),
                ..page
            };
            let entries = self.store.read(task, log.position, limit).await?;
            if entries.is_empty() {
                return Err(Error::Deleted);
            }
            for entry in &entries {
                log.apply(entry)?;
            }
        }
        Ok(log.task)
    }

    /// Applies the entries after a fold.
    async fn apply_new_entries(
        &self,
        task: &Head,
        base: FoldedLog,
        mut permit: Option<FairPermit<Caller>>,
    ) -> Result<FoldedLog> {
        let from = base.position;
        let mut log = base;
        // Starts with the last known entry: if it does not exist, the task was deleted.
        let mut after = Seq(from.0.saturating_sub(1));
        loop {
            let limit = if permit.is_some() {
                LARGE_FOLD_PAGE
            } else {
                FOLD_PAGE
            };
            let entries = self.store.read(task, after, limit).await?;
            if entries.is_empty() && log.position == from {
                self.task_cache.forget(&task.id);
                return Err(Error::Deleted);
            }
            for entry in entries.iter().filter(|entry| entry.seq > from) {
                log.apply(entry)?;
            }
            after = log.position;
            if !limit.is_reached(&entries) {
                break;
            }
            if permit.is_none() {
                permit = Some(self.acquire_large_read(task).await);
                if let Some(fold) = self.fold_of_others(task) {
                    log = fold;
                    after = log.position;
                }
            }
        }
        if log.position.0 - from.0 >= self.snapshot_min_entries {
            self.snapshotter.save(task, log.clone());
        }
        Ok(log)
    }

    /// Deletes tasks and notifies their subscribers.
    pub(super) async fn delete(&self, tasks: &[Head]) -> store::Result<()> {
        self.store.remove(tasks).await?;
        for head in tasks {
            self.task_cache.forget(&head.id);
            if let Some(active) = self.active_tasks.get(&head.id) {
                active.drop_fold();
            }
            self.bus.announce_to_all(&head.id, head.position);
        }
        Ok(())
    }

    /// Subscribes to the tail of an active task.
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

    /// Subscribes to announcements of the log's position, of this process and others.
    pub(super) fn watch(&self, task: &TaskId) -> watch::Receiver<Seq> {
        self.bus.watch(task)
    }

    /// Returns a reader of the entries after `position`, present and future.
    pub(super) fn follow(self: &Arc<Self>, task: &Head, position: Seq) -> Follow {
        self.follow_after(task, position, None)
    }

    /// Returns a reader of the entries after `position`, with an existing subscription.
    pub(super) fn follow_after(
        self: &Arc<Self>,
        task: &Head,
        position: Seq,
        tail: Option<TailSubscription>,
    ) -> Follow {
        Follow::new(
            self.clone(),
            task.clone(),
            position,
            LogPage::default(),
            tail,
        )
    }

    /// Returns a reader of all entries, of which the first ones are in `buffered`.
    pub(super) fn follow_from(
        self: &Arc<Self>,
        task: &Head,
        buffered: LogPage,
        tail: Option<TailSubscription>,
    ) -> Follow {
        Follow::new(self.clone(), task.clone(), Seq(0), buffered, tail)
    }
}

fn snapshot_occasion(batch: &Batch) -> SnapshotOccasion {
    if !matches!(batch.events.last(), Some(Event::TurnEnded)) {
        SnapshotOccasion::WithinTurn
    } else if batch.state.is_terminal() {
        SnapshotOccasion::TaskEnded
    } else {
        SnapshotOccasion::TurnEnded
    }
}
