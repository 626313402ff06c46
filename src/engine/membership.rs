//! Membership of this replica in the cluster: heartbeats, lease, takeover of tasks.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::lease::HEARTBEATS_PER_LEASE;
use super::maintenance::MAX_CONCURRENT_RECOVERIES;
use super::{Engine, Result};
use crate::bus::BusHost;
use crate::model::{TaskId, Timestamp};
use crate::store::{Heartbeat, Store};
use crate::telemetry::metrics;

/// Number of tasks that are taken over in one call of the store.
const TAKEOVER_PAGE_TASKS: usize = 256;

/// Interval at which tasks without a holder, and tasks held without a runner, are looked for.
const TAKEOVER_INTERVAL: Duration = Duration::from_secs(30);

/// Longest time that a heartbeat may take.
const MAX_HEARTBEAT_TIME: Duration = Duration::from_secs(1);

/// Clock skew above which a warning is logged.
const LOGGED_SKEW: Duration = Duration::from_secs(1);

/// Signals between the heartbeat, the takeover and the webhook deliveries.
#[derive(Default)]
pub(super) struct MembershipSignals {
    /// A heartbeat is due before its interval has passed.
    heartbeat_due: Notify,
    /// Tasks may need a takeover.
    takeover_due: Notify,
    /// Webhooks may need a takeover.
    webhook_takeover_due: Notify,
    /// Whether the next heartbeat triggers another check for tasks that are held without a runner.
    has_suspects: AtomicBool,
}

/// State of the takeover between two rounds.
#[derive(Default)]
struct TakeoverState {
    /// Tasks that were held without a runner in the last check.
    suspects: HashSet<TaskId>,
}

impl Engine {
    /// Keeps this replica a member of the cluster, and takes over tasks of removed replicas. On a store of one process it
    /// only waits.
    pub(crate) async fn run_membership(&self) -> Infallible {
        let Some(lease) = self.inner.journal.store.lease() else {
            return std::future::pending().await;
        };
        let heartbeats = self.send_heartbeats(lease / HEARTBEATS_PER_LEASE);
        let expiry = self.inner.lease.watch_expiry();
        let takeovers = self.run_takeovers();
        let polls = self.poll_logs();
        let bus = self.inner.journal.bus.run(self);
        let (never, (), _, _, _) = tokio::join!(heartbeats, expiry, takeovers, polls, bus);
        never
    }

    /// Joins the cluster of a shared store, if the store answers. Nothing on a store of one process.
    pub(super) async fn join_cluster(&self) {
        if let Some(lease) = self.inner.journal.store.lease() {
            self.set_agents(&self.inner.agents.names()).await;
            self.send_heartbeat(lease / HEARTBEATS_PER_LEASE).await;
        }
    }

    async fn send_heartbeats(&self, period: Duration) -> Infallible {
        let mut ticks = interval(period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut agents = None;
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {}
                () = self.inner.membership.heartbeat_due.notified() => {}
            }
            let served = self.inner.agents.names();
            if agents.as_ref() != Some(&served) && self.set_agents(&served).await {
                agents = Some(served);
            }
            self.send_heartbeat(period).await;
        }
    }

    async fn set_agents(&self, agents: &[Arc<str>]) -> bool {
        let set = self.inner.journal.store.set_agents(agents);
        matches!(timeout(MAX_HEARTBEAT_TIME, set).await, Ok(Ok(())))
    }

    /// Sends one heartbeat, and renews or revokes the lease. A failure has no effect: the lease expires by itself.
    async fn send_heartbeat(&self, period: Duration) {
        let sent = Instant::now();
        let sent_time = self
            .inner
            .adjusted_clock
            .as_ref()
            .map(|clock| clock.machine_time());
        let deadline = MAX_HEARTBEAT_TIME.min(period * 2);
        let heartbeat = timeout(deadline, self.inner.journal.store.heartbeat()).await;
        match heartbeat {
            Ok(Ok(Heartbeat::Member {
                has_orphans,
                database_time,
                replica,
                replicas,
                ..
            })) => {
                metrics::record_replicas(replicas);
                if let (Some(clock), Some(sent)) = (&self.inner.adjusted_clock, sent_time) {
                    let skew = clock.adjust(sent, database_time);
                    if skew > LOGGED_SKEW {
                        let skew_ms = u64::try_from(skew.as_millis()).unwrap_or(u64::MAX);
                        tracing::warn!(skew_ms, "clock differs from the database's");
                    }
                }
                let had_expired = self.inner.lease.renew(sent);
                if had_expired {
                    tracing::info!(replica, "lease renewed");
                }
                let has_suspects = self
                    .inner
                    .membership
                    .has_suspects
                    .swap(false, Ordering::Relaxed);
                if has_suspects {
                    self.inner.membership.takeover_due.notify_one();
                }
                if has_orphans || had_expired {
                    self.inner.membership.takeover_due.notify_one();
                    self.inner.membership.webhook_takeover_due.notify_one();
                }
            }
            Ok(Ok(Heartbeat::Evicted)) => {
                tracing::warn!("evicted by another replica: all turns stop");
                self.inner.lease.revoke();
                self.request_heartbeat();
            }
            Ok(Ok(Heartbeat::SingleProcess)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "heartbeat failed");
            }
            Err(_) => tracing::warn!("heartbeat failed: the store does not answer"),
        }
        let held = self.inner.journal.active_tasks.len();
        let lease = self.inner.lease.remaining();
        metrics::record_membership(lease, held, self.clock_skew());
    }

    /// Returns the difference between the clock of the machine and that of a shared store.
    pub(super) fn clock_skew(&self) -> Duration {
        let clock = self.inner.adjusted_clock.as_ref();
        clock.map_or(Duration::ZERO, |clock| clock.skew())
    }

    /// Releases all tasks and webhooks of this replica, after its turns have stopped, and announces it to the others.
    pub(crate) async fn leave_cluster(&self) -> Result<()> {
        if !self.inner.lease.is_shared() {
            return Ok(());
        }
        let journal = &self.inner.journal;
        let left = async { Ok(journal.store.leave_cluster().await?) };
        let left = self.with_store_timeout(left).await;
        journal.bus.announce_departure(self.now()).await;
        left
    }

    /// Returns whether several processes share the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.inner.lease.is_shared()
    }

    /// Waits until this replica may act for its cluster. Returns at once on a store of one process.
    pub(crate) async fn wait_for_lease(&self) {
        self.inner.lease.wait_until_valid().await;
    }

    /// Waits until webhooks may need a takeover. On a store of one process it waits without end.
    pub(crate) async fn wait_for_webhook_takeover(&self) {
        if !self.is_shared() {
            return std::future::pending().await;
        }
        let due = self.inner.membership.webhook_takeover_due.notified();
        let _ = timeout(TAKEOVER_INTERVAL, due).await;
        self.wait_for_lease().await;
    }

    async fn run_takeovers(&self) -> Infallible {
        let mut ticks = interval(TAKEOVER_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = TakeoverState::default();
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {}
                () = self.inner.membership.takeover_due.notified() => {}
            }
            self.inner.lease.wait_until_valid().await;
            if let Err(error) = self.take_over(&mut state).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "takeover failed");
            }
        }
    }

    /// Takes over tasks without a live holder, and recovers tasks that this replica holds without a runner.
    async fn take_over(&self, state: &mut TakeoverState) -> Result<()> {
        let store = &self.inner.journal.store;
        let agents = self.inner.agents.names();
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_RECOVERIES));
        let mut count = 0;
        while self.has_room_for_takeover() {
            let heads = store.take_over(&agents, TAKEOVER_PAGE_TASKS).await?;
            for head in &heads {
                self.recover_task(head, &permits).await;
            }
            count += heads.len();
            if heads.len() < TAKEOVER_PAGE_TASKS {
                break;
            }
        }
        if count > 0 {
            tracing::info!(count, "tasks taken over");
            metrics::record_takeovers(count);
        }
        self.recover_held(&**store, state, &permits).await
    }

    /// Recovers tasks that this replica holds without a runner in two consecutive checks: the answer of a takeover or a
    /// create was lost, or their turn was stopped while the lease was expired.
    async fn recover_held(
        &self,
        store: &dyn Store,
        state: &mut TakeoverState,
        permits: &Arc<Semaphore>,
    ) -> Result<()> {
        let active = self.inner.journal.active_tasks.ids();
        let held = store.list_held(&active).await?;
        let suspects = std::mem::take(&mut state.suspects);
        for head in held {
            if suspects.contains(&head.id) {
                self.recover_task(&head, permits).await;
            } else {
                state.suspects.insert(head.id);
            }
        }
        if !state.suspects.is_empty() {
            // The second check follows the next heartbeat.
            let has_suspects = &self.inner.membership.has_suspects;
            has_suspects.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn has_room_for_takeover(&self) -> bool {
        let waiting = self.inner.waiting_turns.load(Ordering::Relaxed);
        waiting < self.inner.settings.max_waiting_turns
    }
}

impl BusHost for Engine {
    fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    fn request_heartbeat(&self) {
        self.inner.membership.heartbeat_due.notify_one();
    }
}
