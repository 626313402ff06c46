//! Health of the store: problem of the last write, size of the database, last heartbeat.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::rt::lock;
use crate::store::HealthProblem;

/// What `check_health` reports.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Problem of the last write, if it failed.
    problem: Mutex<Option<HealthProblem>>,
    /// When the last successful heartbeat was sent.
    last_heartbeat: Mutex<Option<Instant>>,
    is_almost_full: AtomicBool,
}

impl Health {
    pub(super) fn report(&self, problem: HealthProblem) {
        *lock(&self.problem) = Some(problem);
    }

    pub(super) fn clear(&self) {
        *lock(&self.problem) = None;
    }

    pub(super) fn problem(&self) -> Option<HealthProblem> {
        *lock(&self.problem)
    }

    pub(super) fn set_almost_full(&self, is_almost_full: bool) {
        self.is_almost_full.store(is_almost_full, Ordering::Relaxed);
    }

    pub(super) fn is_almost_full(&self) -> bool {
        self.is_almost_full.load(Ordering::Relaxed)
    }

    /// Records a successful heartbeat by its send time. Returns whether the lease had expired before.
    pub(super) fn record_heartbeat(&self, sent: Instant, lease: Duration) -> bool {
        let last = lock(&self.last_heartbeat).replace(sent);
        last.is_some_and(|last| sent.duration_since(last) > own_lease(lease))
    }

    /// Returns whether the last heartbeat is recent enough for this replica to act on its tasks.
    pub(super) fn has_lease(&self, lease: Duration) -> bool {
        let last = *lock(&self.last_heartbeat);
        last.is_some_and(|last| last.elapsed() <= own_lease(lease))
    }
}

/// Returns how long after a heartbeat a replica may act: the lease of the observers minus two intervals.
fn own_lease(lease: Duration) -> Duration {
    lease - lease / 3
}
