//! Lease of this replica: the period in which it may run its tasks without a further heartbeat.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::settings::LeaseExpiryPolicy;

/// Number of heartbeats per lease.
pub(super) const HEARTBEATS_PER_LEASE: u32 = 6;

/// Number of heartbeat intervals by which this replica's lease ends before other replicas may evict it.
const SAFETY_INTERVALS: u32 = 2;

/// Lease of this replica. On a store of one process it is always valid and costs one comparison.
#[derive(Clone)]
pub(crate) struct Lease(Option<Arc<SharedLease>>);

struct SharedLease {
    started: Instant,
    /// Milliseconds after `started` at which the lease expires. 0 before the first heartbeat.
    expires: AtomicU64,
    /// How long the lease is valid after the send time of a heartbeat.
    validity: Duration,
    state: watch::Sender<LeaseState>,
}

/// Published state of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeaseState {
    /// Number of times that the replica was evicted.
    epoch: u64,
    is_expired: bool,
}

impl Lease {
    /// Creates the lease for a store. `None`: one process uses the store.
    pub(super) fn new(lease: Option<Duration>) -> Self {
        let expired = LeaseState {
            epoch: 0,
            is_expired: true,
        };
        let shared = lease.map(|lease| SharedLease {
            started: Instant::now(),
            expires: AtomicU64::new(0),
            validity: lease - lease / HEARTBEATS_PER_LEASE * SAFETY_INTERVALS,
            state: watch::Sender::new(expired),
        });
        Self(shared.map(Arc::new))
    }

    /// Returns whether several processes share the store.
    pub(super) fn is_shared(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether this replica may run its tasks now.
    pub(super) fn is_valid(&self) -> bool {
        self.0.as_ref().is_none_or(|lease| lease.is_valid())
    }

    /// Returns how long the lease is still valid. Zero on a store of one process.
    pub(super) fn remaining(&self) -> Duration {
        let expiry = self.0.as_ref().map(|lease| lease.expiry());
        expiry.map_or(Duration::ZERO, |expiry| {
            expiry.saturating_duration_since(Instant::now())
        })
    }

    /// Extends the lease after a successful heartbeat that was sent at this time. Returns whether it had expired.
    pub(super) fn renew(&self, sent: Instant) -> bool {
        let Some(lease) = &self.0 else { return false };
        let expires = (sent + lease.validity).saturating_duration_since(lease.started);
        let expires = u64::try_from(expires.as_millis()).unwrap_or(u64::MAX);
        lease.expires.fetch_max(expires, Ordering::Release);
        lease.publish()
    }

    /// Ends the lease after an eviction. Every runner of this replica stops.
    pub(super) fn revoke(&self) {
        if let Some(lease) = &self.0 {
            lease.expires.store(0, Ordering::Release);
            lease.state.send_modify(|state| {
                state.epoch += 1;
                state.is_expired = true;
            });
        }
    }

    /// Publishes the expiry of the lease when it happens. Runs without end.
    pub(super) async fn watch_expiry(&self) {
        let Some(lease) = &self.0 else {
            return std::future::pending().await;
        };
        let mut state = lease.state.subscribe();
        loop {
            if state.borrow_and_update().is_expired {
                let _ = state.changed().await;
                continue;
            }
            sleep_until(lease.expiry()).await;
            if lease.publish() {
                tracing::warn!("lease expired: the store does not answer");
            }
        }
    }

    /// Returns the guard of a runner or a turn. `None` on a store of one process.
    pub(super) fn guard(&self, policy: LeaseExpiryPolicy) -> Option<LeaseGuard> {
        let lease = self.0.clone()?;
        let state = lease.state.subscribe();
        let epoch = state.borrow().epoch;
        Some(LeaseGuard {
            lease,
            state,
            epoch,
            policy,
        })
    }

    /// Waits until the lease is valid.
    pub(super) async fn wait_until_valid(&self) {
        if let Some(lease) = &self.0 {
            lease.wait_until_valid().await;
        }
    }
}

impl SharedLease {
    fn expiry(&self) -> Instant {
        self.started + Duration::from_millis(self.expires.load(Ordering::Acquire))
    }

    fn is_valid(&self) -> bool {
        Instant::now() < self.expiry()
    }

    /// Publishes whether the lease has expired. Returns whether that has changed.
    fn publish(&self) -> bool {
        let is_expired = !self.is_valid();
        self.state.send_if_modified(|state| {
            std::mem::replace(&mut state.is_expired, is_expired) != is_expired
        })
    }

    async fn wait_until_valid(&self) {
        let mut state = self.state.subscribe();
        while !self.is_valid() {
            // The clock is ahead of the published state if the process was frozen.
            self.publish();
            state.mark_unchanged();
            if self.is_valid() || state.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Lease as a runner sees it: it ends with the membership in which the runner has started.
#[derive(Clone)]
pub(super) struct LeaseGuard {
    lease: Arc<SharedLease>,
    state: watch::Receiver<LeaseState>,
    epoch: u64,
    policy: LeaseExpiryPolicy,
}

impl LeaseGuard {
    /// Waits until the runner must stop: the replica was evicted, or its lease has expired under the policy `stop`.
    pub(super) async fn wait_for_loss(&mut self) {
        loop {
            let state = *self.state.borrow_and_update();
            if self.is_lost_in(state) || self.state.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns whether the runner must stop.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost_in(*self.state.borrow())
    }

    fn is_lost_in(&self, state: LeaseState) -> bool {
        state.epoch != self.epoch || (state.is_expired && self.policy == LeaseExpiryPolicy::Stop)
    }

    /// Polls a future only while the lease is valid. The check precedes each poll: a process that resumes after a freeze
    /// does not act with an expired lease.
    pub(super) async fn run_while_valid<F: Future + Unpin>(&self, future: &mut F) -> F::Output {
        loop {
            let polled = poll_fn(|context| {
                if !self.lease.is_valid() || self.is_lost() {
                    return Poll::Ready(None);
                }
                Pin::new(&mut *future).poll(context).map(Some)
            });
            if let Some(output) = polled.await {
                return output;
            }
            if self.is_lost() {
                return std::future::pending().await;
            }
            self.lease.wait_until_valid().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::within_deadline;

    const LEASE: Duration = Duration::from_secs(3);

    #[test]
    fn a_lease_of_one_process_is_always_valid() {
        let lease = Lease::new(None);
        assert!(lease.is_valid() && !lease.is_shared());
        lease.revoke();
        assert!(lease.is_valid() && lease.guard(LeaseExpiryPolicy::Stop).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_expires_before_other_replicas_may_evict() {
        let lease = Lease::new(Some(LEASE));
        assert!(!lease.is_valid(), "before the first heartbeat");
        assert!(lease.renew(Instant::now()), "it had expired");
        tokio::time::advance(Duration::from_millis(1_999)).await;
        assert!(lease.is_valid());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!lease.is_valid());
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_is_not_polled_while_the_lease_is_expired() {
        let lease = Lease::new(Some(LEASE));
        let guard = lease.guard(LeaseExpiryPolicy::Pause).unwrap();
        let mut polls = 0;
        let mut future = Box::pin(async {
            loop {
                polls += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
                if polls == 2 {
                    return polls;
                }
            }
        });
        let renewed = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            lease.renew(Instant::now());
            tokio::time::sleep(Duration::from_secs(1)).await;
            lease.renew(Instant::now());
            tokio::time::sleep(Duration::from_secs(60)).await;
        };
        let run = async {
            let started = Instant::now();
            let polls = guard.run_while_valid(&mut future).await;
            assert!(started.elapsed() >= Duration::from_secs(62));
            polls
        };
        let (polls, ()) = tokio::join!(run, renewed);
        assert_eq!(polls, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn runners_stop_after_an_eviction_and_at_expiry_if_the_policy_says_so() {
        let lease = Lease::new(Some(LEASE));
        lease.renew(Instant::now());
        let mut stopping = lease.guard(LeaseExpiryPolicy::Stop).unwrap();
        let mut pausing = lease.guard(LeaseExpiryPolicy::Pause).unwrap();
        let expiry = lease.watch_expiry();
        tokio::select! {
            () = expiry => {}
            () = within_deadline(stopping.wait_for_loss()) => {}
        }
        assert!(stopping.is_lost() && !pausing.is_lost());
        lease.revoke();
        within_deadline(pausing.wait_for_loss()).await;
        lease.renew(Instant::now());
        assert!(pausing.is_lost(), "its membership has ended");
        assert!(!lease.guard(LeaseExpiryPolicy::Pause).unwrap().is_lost());
    }
}
