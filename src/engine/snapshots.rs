//! Puts folds of long logs into the store, so that whoever reads such a log need not fold it from its beginning.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::folded_log::FoldedLog;
use crate::model::TaskId;
use crate::store::{Head, Store};

/// A log of fewer entries is read and folded about as quickly as its fold.
pub(super) const MIN_SNAPSHOT_ENTRIES: u64 = 256;

/// So many folds may be on their way; beyond that none are kept. Whoever reads such a log later makes up for it.
const MAX_PENDING_SNAPSHOTS: usize = 64;

/// Keeps folds behind everybody's back: no append waits for it, and none fails when it does.
pub(super) struct Snapshotter {
    store: Arc<dyn Store>,
    tracker: TaskTracker,
    stop: CancellationToken,
    /// Tasks whose folds are on their way.
    pending: Mutex<HashSet<TaskId>>,
}

impl Snapshotter {
    pub(super) fn new(
        store: Arc<dyn Store>,
        tracker: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self {
            store,
            tracker,
            stop,
            pending: Mutex::default(),
        }
    }

    /// Keeps the fold of a task; `false` where one is on its way, or too many are.
    pub(super) fn save(self: &Arc<Self>, task: &Head, log: FoldedLog) -> bool {
        let Some(guard) = PendingSnapshot::new(self, &task.id) else {
            return false;
        };
        let task = task.clone();
        self.tracker.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            if let Err(error) = guard.0.store.save_snapshot(&task, log.position, &log.to_snapshot()).await {
                tracing::debug!(task = %task.id, error = &error as &dyn std::error::Error, "fold not kept");
            }
        }));
        true
    }

    fn pending(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task's place among those that are busy, for as long as it lives.
struct PendingSnapshot(Arc<Snapshotter>, TaskId);

impl PendingSnapshot {
    fn new(snapshotter: &Arc<Snapshotter>, task: &TaskId) -> Option<Self> {
        let mut pending = snapshotter.pending();
        let free = pending.len() < MAX_PENDING_SNAPSHOTS && pending.insert(task.clone());
        free.then(|| Self(snapshotter.clone(), task.clone()))
    }
}

impl Drop for PendingSnapshot {
    fn drop(&mut self) {
        self.0.pending().remove(&self.1);
    }
}
