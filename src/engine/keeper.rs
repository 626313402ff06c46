//! Puts folds of long logs into the store, so that whoever reads such a log need not fold it from its beginning.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::log::Log;
use crate::model::TaskId;
use crate::store::{Head, Store};

/// A log of fewer entries is read and folded about as quickly as its fold.
pub(super) const LONG: u64 = 256;

/// So many folds may be on their way; beyond that none are kept. Whoever reads such a log later makes up for it.
const MOST: usize = 64;

/// Keeps folds behind everybody's back: no append waits for it, and none fails when it does.
pub(super) struct Keeper {
    store: Arc<dyn Store>,
    tracker: TaskTracker,
    stop: CancellationToken,
    /// Tasks whose folds are on their way.
    busy: Mutex<HashSet<TaskId>>,
}

impl Keeper {
    pub(super) fn new(
        store: Arc<dyn Store>,
        tracker: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self {
            store,
            tracker,
            stop,
            busy: Mutex::default(),
        }
    }

    /// Keeps the fold of a task; `false` where one is on its way, or too many are.
    pub(super) fn keep(self: &Arc<Self>, task: &Head, log: Log) -> bool {
        let Some(place) = Place::new(self, &task.id) else {
            return false;
        };
        let task = task.clone();
        self.tracker.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            if let Err(error) = place.0.store.keep(&task, log.at, &log.folded()).await {
                tracing::debug!(task = %task.id, error = &error as &dyn std::error::Error, "fold not kept");
            }
        }));
        true
    }

    fn busy(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task's place among those that are busy, for as long as it lives.
struct Place(Arc<Keeper>, TaskId);

impl Place {
    fn new(keeper: &Arc<Keeper>, task: &TaskId) -> Option<Self> {
        let mut busy = keeper.busy();
        let free = busy.len() < MOST && busy.insert(task.clone());
        free.then(|| Self(keeper.clone(), task.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.busy().remove(&self.1);
    }
}
