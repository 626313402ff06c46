//! Maintenance of tasks without a runner: startup recovery, expiry of unanswered and orphaned tasks, retention.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::MissedTickBehavior;

use super::active_tasks::Dispatch;
use super::clock::SteadyClock;
use super::inbox::RunnerCommand;
use super::{Engine, Result, UnansweredPolicy};
use crate::model::{Caller, Scope, TaskId, TaskState, Timestamp};
use crate::rt::lock;
use crate::store::{Head, Holder, TaskQuery};

/// First delay of the exponential backoff after a store failure.
pub(super) const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Longest delay of the exponential backoff after a store failure.
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Number of tasks per read of the store, and of idempotency keys per removal.
const SWEEP_PAGE_TASKS: usize = 500;

/// Maximum number of tasks that are recovered at the same time: as many as the store commits in one group.
pub(super) const MAX_CONCURRENT_RECOVERIES: usize = 256;

/// Job of the store whose claim lets one replica sweep.
const SWEEP_JOB: &str = "sweep";

/// Clock skew above which a replica does not sweep: deletion cannot be undone.
const MAX_SWEEP_SKEW: Duration = Duration::from_secs(60);

/// Counters that trigger a sweep before its interval has passed.
#[derive(Debug, Default)]
pub(super) struct SweepTriggers {
    /// Tasks that have ended since the last trigger.
    ended: AtomicU64,
    /// Tasks of anonymous callers that were parked since the last trigger.
    parked: AtomicU64,
    /// Scopes with parked tasks of anonymous callers: one per agent and tenant.
    anonymous_scopes: Mutex<HashSet<Scope>>,
    due: Notify,
}

impl SweepTriggers {
    /// Increments a counter. Triggers a sweep at a tenth of `limit`, at least 100.
    fn count(&self, counter: &AtomicU64, limit: u64) {
        if counter.fetch_add(1, Ordering::Relaxed) + 1 >= (limit / 10).max(100) {
            counter.store(0, Ordering::Relaxed);
            self.due.notify_one();
        }
    }

    fn anonymous_scopes(&self) -> MutexGuard<'_, HashSet<Scope>> {
        lock(&self.anonymous_scopes)
    }
}

/// Selection of tasks for a sweep.
#[derive(Clone, Copy)]
enum SweepKind {
    /// Tasks with an unanswered message or a started turn. An `input-required` task may have one, too.
    Runnable,
    /// Tasks that may be unanswered or orphaned for too long.
    Overdue,
}

impl Engine {
    /// Counts an ended task, so that more than `max_tasks` trigger a sweep.
    pub(super) fn count_ended(&self) {
        if let Some(max_tasks) = self.inner.settings.max_tasks {
            let triggers = &self.inner.sweep_triggers;
            triggers.count(&triggers.ended, max_tasks);
        }
    }

    /// Counts a parked task of an anonymous caller, so that more than `max_anonymous_waiting_tasks` trigger a sweep.
    pub(super) fn count_parked(&self, scope: &Scope) {
        if scope.owner == Caller::anonymous() {
            let triggers = &self.inner.sweep_triggers;
            triggers.anonymous_scopes().insert(scope.clone());
            let limit = self.inner.settings.max_anonymous_waiting_tasks;
            triggers.count(&triggers.parked, limit);
        }
    }

    /// Applies `on_restart` to all tasks that a previous process has left unfinished. Call it once before serving.
    ///
    /// On a shared store it only joins the cluster: the server starts without its database, and the membership takes over
    /// tasks of removed replicas.
    pub(crate) async fn recover(&self) -> Result<()> {
        if self.inner.lease.is_shared() {
            self.join_cluster().await;
            return Ok(());
        }
        self.start_retention_clock().await?;
        self.sweep_tasks(SweepKind::Runnable).await
    }

    /// Starts the clock for deletions no later than at the newest entry of the store.
    async fn start_retention_clock(&self) -> Result<()> {
        if let Some(newest) = self.inner.journal.store.latest_time().await? {
            let clock = &*self.inner.clock;
            self.inner.retention_clock.start_at(newest, clock);
        }
        Ok(())
    }

    /// Waits until a shared store answers, and starts the clock for deletions.
    async fn await_shared_store(&self) {
        let mut delay = MIN_RETRY_DELAY;
        loop {
            self.inner.lease.wait_until_valid().await;
            let started = self.with_store_timeout(self.start_retention_clock());
            let Err(error) = started.await else { return };
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "maintenance waits for the store"
            );
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_RETRY_DELAY);
        }
    }

    /// Runs sweeps at their interval and when triggered. Failures are logged.
    pub(crate) async fn run_maintenance(&self) -> Infallible {
        if self.inner.lease.is_shared() {
            self.await_shared_store().await;
        }
        let interval = self.inner.settings.sweep_every;
        let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let swept = tokio::select! {
                biased;
                _ = ticks.tick() => self.sweep_if_due(interval).await,
                () = self.inner.sweep_triggers.due.notified() => self.enforce_limits().await,
            };
            if let Err(error) = swept {
                tracing::warn!(error = &error as &dyn std::error::Error, "sweep failed");
            }
        }
    }

    /// Runs a sweep, unless another replica has run one within `interval`.
    pub(super) async fn sweep_if_due(&self, interval: Duration) -> Result<()> {
        if !self.inner.lease.is_valid() {
            return Ok(());
        }
        if self.clock_skew() > MAX_SWEEP_SKEW {
            tracing::warn!("sweep left to other replicas: the clock differs from the database's");
            return Ok(());
        }
        let store = &self.inner.journal.store;
        // Replicas sweep at different times: the period of the job is shorter than their interval, so that one that is a
        // little early does not skip its turn.
        let period = interval - interval / 10;
        if store.claim_job(SWEEP_JOB, period).await? {
            self.sweep().await?;
        }
        Ok(())
    }

    /// Runs one sweep: expires overdue tasks, deletes old tasks and idempotency keys, enforces limits.
    pub(crate) async fn sweep(&self) -> Result<()> {
        let settings = &self.inner.settings;
        let has_age_limit = settings.max_parked_age.is_some() || settings.orphan_timeout.is_some();
        if has_age_limit || self.inner.agents.has_unanswered_timeout(settings) {
            self.sweep_tasks(SweepKind::Overdue).await?;
        }
        if let Some(age) = settings.max_age {
            // Deletion cannot be undone, so it uses the clock that also resists a wrong time at startup.
            let time = self.time_before_on(&self.inner.retention_clock, age);
            self.delete_ended_before(time).await?;
        }
        self.remove_expired_keys().await?;
        self.enforce_limits().await
    }

    /// Returns the earliest time of an idempotency key that has not expired.
    pub(crate) fn oldest_valid_key(&self) -> Timestamp {
        let age = self.inner.settings.idempotency_max_age;
        age.map_or_else(Timestamp::default, |age| {
            self.time_before_on(&self.inner.retention_clock, age)
        })
    }

    /// Deletes expired idempotency keys, a page at a time.
    async fn remove_expired_keys(&self) -> Result<()> {
        if self.inner.settings.idempotency_max_age.is_none() {
            return Ok(());
        }
        let store = &self.inner.journal.store;
        let before = self.oldest_valid_key();
        while store.remove_keys(before, SWEEP_PAGE_TASKS).await? == SWEEP_PAGE_TASKS {}
        Ok(())
    }

    /// Deletes and expires the oldest tasks beyond the limits.
    async fn enforce_limits(&self) -> Result<()> {
        self.delete_oldest_ended().await?;
        let triggers = &self.inner.sweep_triggers;
        let scopes: Vec<Scope> = triggers.anonymous_scopes().iter().cloned().collect();
        for scope in scopes {
            self.expire_oldest_waiting(&scope).await?;
        }
        Ok(())
    }

    /// Fails the oldest parked tasks of a scope beyond `max_anonymous_waiting_tasks`.
    async fn expire_oldest_waiting(&self, scope: &Scope) -> Result<()> {
        let store = &self.inner.journal.store;
        let mut waiting = 0;
        for state in [TaskState::InputRequired, TaskState::AuthRequired] {
            let query = TaskQuery {
                state: Some(state),
                limit: 1,
                ..TaskQuery::default()
            };
            waiting += store.list(scope, &query).await?.total;
        }
        let mut excess = waiting.saturating_sub(self.inner.settings.max_anonymous_waiting_tasks);
        while excess > 0 {
            let limit = page_limit(excess);
            let oldest = store.list_parked(scope, limit).await?;
            for head in &oldest {
                self.send_command(head, RunnerCommand::ExpireOverQuota)
                    .await?;
            }
            if oldest.len() < limit {
                // The others are not parked any more. The next sweep counts again.
                return Ok(());
            }
            excess -= limit as u64;
        }
        Ok(())
    }

    /// Returns how long a parked task of this scope may wait.
    fn unanswered_timeout(&self, scope: &Scope) -> Option<Duration> {
        let settings = &self.inner.settings;
        let policy = match self.inner.agents.agent_for(scope).on_waiting(settings) {
            UnansweredPolicy::Stay => None,
            UnansweredPolicy::ContinueAfter(time) | UnansweredPolicy::FailAfter(time) => Some(time),
        };
        policy.into_iter().chain(settings.max_parked_age).min()
    }

    /// Returns whether a task may be unanswered or orphaned for too long. Its runner checks the log.
    fn is_overdue(&self, head: &Head) -> bool {
        let orphan_timeout = self.inner.settings.orphan_timeout;
        let limit = if head.state.is_interrupted() {
            let unanswered_timeout = self.unanswered_timeout(&head.scope);
            unanswered_timeout.into_iter().chain(orphan_timeout).min()
        } else {
            orphan_timeout
        };
        // A task with a runner has limits of its own.
        limit.is_some_and(|time| head.status_time < self.time_before(time))
            && head.holder != Holder::Remote
            && self.inner.journal.active_tasks.get(&head.id).is_none()
    }

    /// Returns the time `age` ago, on the clock that resists forward jumps.
    pub(super) fn time_before(&self, age: Duration) -> Timestamp {
        self.time_before_on(&self.inner.steady_clock, age)
    }

    fn time_before_on(&self, clock: &SteadyClock, age: Duration) -> Timestamp {
        let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let now = clock.now(&*self.inner.clock);
        Timestamp::from_millis(now.as_millis().saturating_sub(millis)).unwrap_or_default()
    }

    /// Starts a runner for each selected task of any scope that has none.
    async fn sweep_tasks(&self, kind: SweepKind) -> Result<()> {
        let store = &self.inner.journal.store;
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_RECOVERIES));
        let mut after = None::<TaskId>;
        loop {
            let heads = match kind {
                SweepKind::Runnable => {
                    let heads = store
                        .list_runnable(after.as_ref(), SWEEP_PAGE_TASKS)
                        .await?;
                    for head in &heads {
                        self.recover_task(head, &permits).await;
                    }
                    heads
                }
                SweepKind::Overdue => {
                    let heads = store
                        .list_unfinished(after.as_ref(), SWEEP_PAGE_TASKS)
                        .await?;
                    for head in heads.iter().filter(|head| self.is_overdue(head)) {
                        self.expire_task(head).await;
                    }
                    heads
                }
            };
            match heads.last() {
                Some(last) if heads.len() == SWEEP_PAGE_TASKS => after = Some(last.id.clone()),
                _ => return Ok(()),
            }
        }
    }

    /// Starts the recovery of a task as soon as a permit is available.
    pub(super) async fn recover_task(&self, head: &Head, permits: &Arc<Semaphore>) {
        let permit = permits.clone().acquire_owned().await.ok();
        let active_tasks = &self.inner.journal.active_tasks;
        if let Dispatch::NoRunner(command, inbox) =
            active_tasks.dispatch(head, RunnerCommand::Recover)
        {
            self.start_runner(head, command, inbox, permit).await;
        }
    }

    async fn expire_task(&self, head: &Head) {
        let active_tasks = &self.inner.journal.active_tasks;
        if let Dispatch::NoRunner(command, inbox) =
            active_tasks.dispatch(head, RunnerCommand::Expire)
        {
            self.start_runner(head, command, inbox, None).await;
        }
    }

    async fn delete_ended_before(&self, time: Timestamp) -> Result<()> {
        let journal = &self.inner.journal;
        loop {
            let ended = journal.store.list_ended(time, SWEEP_PAGE_TASKS).await?;
            journal.delete(&ended).await?;
            if ended.len() < SWEEP_PAGE_TASKS {
                return Ok(());
            }
        }
    }

    /// Deletes the oldest ended tasks beyond `max_tasks`.
    async fn delete_oldest_ended(&self) -> Result<()> {
        let Some(max_tasks) = self.inner.settings.max_tasks else {
            return Ok(());
        };
        let journal = &self.inner.journal;
        loop {
            let excess = journal.store.count_ended().await?.saturating_sub(max_tasks);
            if excess == 0 {
                return Ok(());
            }
            let limit = page_limit(excess);
            let oldest = journal.store.list_ended(Timestamp::MAX, limit).await?;
            if oldest.is_empty() {
                return Ok(());
            }
            journal.delete(&oldest).await?;
        }
    }
}

/// Returns the number of tasks to read, at most a page.
fn page_limit(tasks: u64) -> usize {
    usize::try_from(tasks)
        .unwrap_or(SWEEP_PAGE_TASKS)
        .min(SWEEP_PAGE_TASKS)
}
