//! What nobody asks for: tasks that were cut off, that wait too long, that are too old or too many.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::MissedTickBehavior;

use super::active_tasks::{Dispatch, RunnerCommand};
use super::clock::SteadyClock;
use super::{Engine, Result, UnansweredPolicy};
use crate::model::{Caller, Scope, TaskId, TaskState, Timestamp};
use crate::store::{Head, TaskQuery};

/// How long to wait before trying again where the store has failed.
pub(super) const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
pub(super) const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// How many tasks are looked at together.
const SWEEP_PAGE_TASKS: usize = 500;

/// How many tasks are read and seen to at the same time after a restart: as many as the store commits together.
const MAX_CONCURRENT_RECOVERIES: usize = 256;

/// Tasks that have ended, or begun to wait for strangers, since the last sweep, and whether there are so many that it should
/// come sooner.
#[derive(Debug, Default)]
pub(super) struct SweepTriggers {
    ended: AtomicU64,
    parked: AtomicU64,
    /// Where strangers have left tasks waiting: as many as there are agents and tenants.
    anonymous_scopes: Mutex<HashSet<Scope>>,
    due: Notify,
}

impl SweepTriggers {
    /// Counts one more, and calls for a sweep if there are a tenth more than may be kept.
    fn count(&self, counted: &AtomicU64, most: u64) {
        if counted.fetch_add(1, Ordering::Relaxed) + 1 >= (most / 10).max(100) {
            counted.store(0, Ordering::Relaxed);
            self.due.notify_one();
        }
    }

    fn anonymous_scopes(&self) -> MutexGuard<'_, HashSet<Scope>> {
        // A scope is put in whole.
        self.anonymous_scopes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which tasks are looked for.
#[derive(Clone, Copy)]
enum SweepKind {
    /// Those with work left, also where they wait for somebody outside: a message may have come that nobody worked on.
    Interrupted,
    /// Those that may wait, or be silent, for too long.
    Overdue,
}

impl Engine {
    /// A task has ended. Where only so many are kept, they must not pile up between two sweeps.
    pub(super) fn count_ended(&self) {
        if let Some(most) = self.settings.max_tasks {
            self.sweep_triggers.count(&self.sweep_triggers.ended, most);
        }
    }

    /// A task waits for somebody outside. Strangers have no allowance, so they must not pile these up either.
    pub(super) fn count_parked(&self, scope: &Scope) {
        if scope.owner == Caller::anonymous() {
            self.sweep_triggers.anonymous_scopes().insert(scope.clone());
            self.sweep_triggers.count(
                &self.sweep_triggers.parked,
                self.settings.max_anonymous_waiting_tasks,
            );
        }
    }

    /// Looks at every task that has not ended and has nobody who works on it, and does as the policy says. Call it
    /// once before serving.
    pub(crate) async fn recover(&self) -> Result<()> {
        if let Some(newest) = self.journal.store.latest_time().await? {
            self.retention_clock.start_at(newest, &*self.clock);
        }
        self.sweep_tasks(SweepKind::Interrupted).await
    }

    /// Sees to what waits or is silent too long, and forgets what is too old or too many, for as long as it runs.
    pub(crate) async fn run_maintenance(&self) -> Infallible {
        let mut every =
            tokio::time::interval(self.settings.sweep_every.max(Duration::from_millis(1)));
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let swept = tokio::select! {
                biased;
                _ = every.tick() => self.sweep().await,
                () = self.sweep_triggers.due.notified() => self.enforce_limits().await,
            };
            if let Err(error) = swept {
                tracing::warn!(error = &error as &dyn std::error::Error, "sweep failed");
            }
        }
    }

    /// One sweep.
    pub(crate) async fn sweep(&self) -> Result<()> {
        let ages = self
            .settings
            .max_parked_age
            .or(self.settings.orphan_timeout);
        if ages.is_some() || self.agents.has_unanswered_timeout(&self.settings) {
            self.sweep_tasks(SweepKind::Overdue).await?;
        }
        if let Some(age) = self.settings.max_age {
            // What is forgotten does not come back, so this time is not taken from the clock alone, not even at the start.
            self.delete_ended_before(self.time_before_on(&self.retention_clock, age))
                .await?;
        }
        self.enforce_limits().await
    }

    async fn enforce_limits(&self) -> Result<()> {
        self.delete_oldest_ended().await?;
        let anonymous_scopes: Vec<Scope> = self
            .sweep_triggers
            .anonymous_scopes()
            .iter()
            .cloned()
            .collect();
        for scope in anonymous_scopes {
            self.expire_oldest_waiting(&scope).await?;
        }
        Ok(())
    }

    /// Lets the oldest of a scope's tasks that wait for somebody outside fail, as long as there are too many.
    async fn expire_oldest_waiting(&self, scope: &Scope) -> Result<()> {
        let mut over = 0;
        for state in [TaskState::InputRequired, TaskState::AuthRequired] {
            let query = TaskQuery {
                state: Some(state),
                limit: 1,
                ..TaskQuery::default()
            };
            over += self.journal.store.list(scope, &query).await?.total;
        }
        over = over.saturating_sub(self.settings.max_anonymous_waiting_tasks);
        while over > 0 {
            let limit = usize::try_from(over)
                .unwrap_or(SWEEP_PAGE_TASKS)
                .min(SWEEP_PAGE_TASKS);
            let oldest = self.journal.store.list_parked(scope, limit).await?;
            for head in &oldest {
                self.send_command(head, RunnerCommand::ExpireOverQuota)
                    .await?;
            }
            // Some may have gone on meanwhile, or be about to: the next sweep counts anew.
            over = if oldest.len() < limit {
                0
            } else {
                over - limit as u64
            };
        }
        Ok(())
    }

    /// How long a task may wait for somebody outside before something happens.
    fn unanswered_timeout(&self, scope: &Scope) -> Option<Duration> {
        let policy = match self.agents.agent_for(scope).on_waiting(&self.settings) {
            UnansweredPolicy::Stay => None,
            UnansweredPolicy::ContinueAfter(time) | UnansweredPolicy::FailAfter(time) => Some(time),
        };
        policy.into_iter().chain(self.settings.max_parked_age).min()
    }

    /// Whether a task may have waited, or been silent, for too long; its log knows for sure.
    fn is_overdue(&self, head: &Head) -> bool {
        let limit = if head.state.is_interrupted() {
            self.unanswered_timeout(&head.scope)
                .into_iter()
                .chain(self.settings.orphan_timeout)
                .min()
        } else {
            self.settings.orphan_timeout
        };
        // Whoever works on a task has limits of their own.
        limit.is_some_and(|time| head.status_time < self.time_before(time))
            && self.journal.active_tasks.get(&head.id).is_none()
    }

    /// So long ago. A clock that jumps makes nothing old.
    pub(super) fn time_before(&self, time: Duration) -> Timestamp {
        self.time_before_on(&self.steady_clock, time)
    }

    fn time_before_on(&self, steady_clock: &SteadyClock, time: Duration) -> Timestamp {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let now = steady_clock.now(&*self.clock);
        Timestamp::from_millis(now.as_millis().saturating_sub(millis)).unwrap_or_default()
    }

    /// Goes through tasks of every scope and does as the policy says with those that nobody works on.
    async fn sweep_tasks(&self, kind: SweepKind) -> Result<()> {
        let (mut after, permits) = (
            None::<TaskId>,
            Arc::new(Semaphore::new(MAX_CONCURRENT_RECOVERIES)),
        );
        loop {
            let heads = match kind {
                SweepKind::Interrupted => {
                    self.journal
                        .store
                        .list_runnable(after.as_ref(), SWEEP_PAGE_TASKS)
                        .await?
                }
                SweepKind::Overdue => {
                    self.journal
                        .store
                        .list_unfinished(after.as_ref(), SWEEP_PAGE_TASKS)
                        .await?
                }
            };
            for head in &heads {
                let permit = permits.clone().acquire_owned().await.ok();
                let command = match kind {
                    SweepKind::Interrupted => Some(RunnerCommand::Recover(permit)),
                    SweepKind::Overdue => self.is_overdue(head).then_some(RunnerCommand::Expire),
                };
                if let Some(command) = command
                    && let Dispatch::NoRunner(command, active, inbox) =
                        self.journal.active_tasks.dispatch(&head.id, command)
                {
                    self.start_runner(head, command, (active, inbox)).await;
                }
            }
            match heads.last() {
                Some(last) if heads.len() == SWEEP_PAGE_TASKS => after = Some(last.id.clone()),
                _ => return Ok(()),
            }
        }
    }

    async fn delete_ended_before(&self, time: Timestamp) -> Result<()> {
        loop {
            let old = self
                .journal
                .store
                .list_ended(time, SWEEP_PAGE_TASKS)
                .await?;
            self.journal.delete(&old).await?;
            if old.len() < SWEEP_PAGE_TASKS {
                return Ok(());
            }
        }
    }

    async fn delete_oldest_ended(&self) -> Result<()> {
        let Some(most) = self.settings.max_tasks else {
            return Ok(());
        };
        loop {
            let over = self.journal.store.count_ended().await?.saturating_sub(most);
            let limit = usize::try_from(over)
                .unwrap_or(SWEEP_PAGE_TASKS)
                .min(SWEEP_PAGE_TASKS);
            if limit == 0 {
                return Ok(());
            }
            let oldest = self.journal.store.list_ended(Timestamp::MAX, limit).await?;
            if oldest.is_empty() {
                return Ok(());
            }
            self.journal.delete(&oldest).await?;
        }
    }
}
