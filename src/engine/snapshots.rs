//! Background writer of snapshots: folds of long logs, stored so that a reader need not fold from the first entry.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::folded_log::FoldedLog;
use crate::model::TaskId;
use crate::rt::lock;
use crate::store::{Head, Store};

/// Shorter logs get no snapshot: reading and folding them costs about as much as reading a snapshot.
pub(super) const MIN_SNAPSHOT_ENTRIES: u64 = 256;

/// Maximum number of snapshots that are written at the same time. Others are skipped; a later reader saves them.
const MAX_PENDING_SNAPSHOTS: usize = 64;

/// Saves snapshots in background tasks. No append waits for one, and a failed snapshot fails no append.
pub(super) struct Snapshotter {
    store: Arc<dyn Store>,
    tracker: TaskTracker,
    stop: CancellationToken,
    /// Tasks with a snapshot that is being written.
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

    /// Starts to save a snapshot. Returns `false` if one of this task is pending, or too many are.
    pub(super) fn save(self: &Arc<Self>, task: &Head, log: FoldedLog) -> bool {
        let Some(pending) = PendingSnapshot::new(self, &task.id) else {
            return false;
        };
        let save = pending.save(task.clone(), log);
        self.tracker
            .spawn(self.stop.clone().run_until_cancelled_owned(save));
        true
    }

    fn pending(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        lock(&self.pending)
    }
}

/// Guard that marks a task as having a pending snapshot.
struct PendingSnapshot {
    snapshotter: Arc<Snapshotter>,
    task: TaskId,
}

impl PendingSnapshot {
    fn new(snapshotter: &Arc<Snapshotter>, task: &TaskId) -> Option<Self> {
        let mut pending = snapshotter.pending();
        let is_free = pending.len() < MAX_PENDING_SNAPSHOTS && pending.insert(task.clone());
        is_free.then(|| Self {
            snapshotter: snapshotter.clone(),
            task: task.clone(),
        })
    }

    async fn save(self, task: Head, log: FoldedLog) {
        let snapshot = log.to_snapshot();
        let store = &self.snapshotter.store;
        if let Err(error) = store.save_snapshot(&task, log.position, &snapshot).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(task = %task.id, error, "snapshot not saved");
        }
    }
}

impl Drop for PendingSnapshot {
    fn drop(&mut self) {
        self.snapshotter.pending().remove(&self.task);
    }
}
