//! What nobody asks for: tasks that were cut off, that wait too long, that are too old or too many.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::MissedTickBehavior;

use super::clock::Calendar;
use super::live::{Passed, Wish};
use super::{Engine, Result, Waiting};
use crate::model::{Caller, Scope, TaskId, TaskState, Timestamp};
use crate::store::{Head, Query};

/// How long to wait before trying again where the store has failed.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How many tasks are looked at together.
const PAGE: usize = 500;

/// How many tasks are read and seen to at the same time after a restart: as many as the store commits together.
const AT_ONCE: usize = 256;

/// Tasks that have ended, or begun to wait for strangers, since the last sweep, and whether there are so many that it should
/// come sooner.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    ended: AtomicU64,
    parked: AtomicU64,
    /// Where strangers have left tasks waiting: as many as there are agents and tenants.
    strangers: Mutex<HashSet<Scope>>,
    news: Notify,
}

impl Crowd {
    /// Counts one more, and calls for a sweep if there are a tenth more than may be kept.
    fn count(&self, counted: &AtomicU64, most: u64) {
        if counted.fetch_add(1, Ordering::Relaxed) + 1 >= (most / 10).max(100) {
            counted.store(0, Ordering::Relaxed);
            self.news.notify_one();
        }
    }

    fn strangers(&self) -> MutexGuard<'_, HashSet<Scope>> {
        // A scope is put in whole.
        self.strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which tasks are looked for.
#[derive(Clone, Copy)]
enum Sought {
    /// Those with work left, also where they wait for somebody outside: a message may have come that nobody worked on.
    CutOff,
    /// Those that may wait, or be silent, for too long.
    Overdue,
}

impl Engine {
    /// A task has ended. Where only so many are kept, they must not pile up between two sweeps.
    pub(super) fn count_end(&self) {
        if let Some(most) = self.settings.max_tasks {
            self.crowd.count(&self.crowd.ended, most);
        }
    }

    /// A task waits for somebody outside. Strangers have no allowance, so they must not pile these up either.
    pub(super) fn count_parked(&self, scope: &Scope) {
        if scope.owner == Caller::anonymous() {
            self.crowd.strangers().insert(scope.clone());
            self.crowd
                .count(&self.crowd.parked, self.settings.max_parked_tasks);
        }
    }

    /// Looks at every task that has not ended and has nobody who works on it, and does as the policy says. Call it
    /// once before serving.
    pub(crate) async fn recover(&self) -> Result<()> {
        if let Some(newest) = self.journal.store.newest().await? {
            self.retention.begin(newest, &*self.clock);
        }
        self.each(Sought::CutOff).await
    }

    /// Sees to what waits or is silent too long, and forgets what is too old or too many, for as long as it runs.
    pub(crate) async fn keep_house(&self) -> Infallible {
        let mut every =
            tokio::time::interval(self.settings.sweep_every.max(Duration::from_millis(1)));
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let swept = tokio::select! {
                biased;
                _ = every.tick() => self.sweep().await,
                () = self.crowd.news.notified() => self.make_room().await,
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
            .or(self.settings.max_silent_age);
        if ages.is_some() || self.staff.any_waits_only_so_long(&self.settings) {
            self.each(Sought::Overdue).await?;
        }
        if let Some(age) = self.settings.max_age {
            // What is forgotten does not come back, so this time is not taken from the clock alone, not even at the start.
            self.forget_before(self.before_in(&self.retention, age))
                .await?;
        }
        self.make_room().await
    }

    async fn make_room(&self) -> Result<()> {
        self.forget_oldest().await?;
        let strangers: Vec<Scope> = self.crowd.strangers().iter().cloned().collect();
        for scope in strangers {
            self.expire_oldest(&scope).await?;
        }
        Ok(())
    }

    /// Lets the oldest of a scope's tasks that wait for somebody outside fail, as long as there are too many.
    async fn expire_oldest(&self, scope: &Scope) -> Result<()> {
        let mut over = 0;
        for state in [TaskState::InputRequired, TaskState::AuthRequired] {
            let query = Query {
                state: Some(state),
                limit: 1,
                ..Query::default()
            };
            over += self.journal.store.list(scope, &query).await?.total;
        }
        over = over.saturating_sub(self.settings.max_parked_tasks);
        while over > 0 {
            let limit = usize::try_from(over).unwrap_or(PAGE).min(PAGE);
            let oldest = self.journal.store.parked(scope, limit).await?;
            for head in &oldest {
                self.wish(head, Wish::GiveWay).await?;
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
    fn waiting_time(&self, scope: &Scope) -> Option<Duration> {
        let policy = match self.staff.of(scope).on_waiting(&self.settings) {
            Waiting::Stay => None,
            Waiting::ContinueAfter(time) | Waiting::FailAfter(time) => Some(time),
        };
        policy.into_iter().chain(self.settings.max_parked_age).min()
    }

    /// Whether a task may have waited, or been silent, for too long; its log knows for sure.
    fn is_overdue(&self, head: &Head) -> bool {
        let limit = if head.state.is_interrupted() {
            self.waiting_time(&head.scope)
                .into_iter()
                .chain(self.settings.max_silent_age)
                .min()
        } else {
            self.settings.max_silent_age
        };
        // Whoever works on a task has limits of their own.
        limit.is_some_and(|time| head.status_time < self.before(time))
            && self.journal.registry.get(&head.id).is_none()
    }

    /// So long ago. A clock that jumps makes nothing old.
    pub(super) fn before(&self, time: Duration) -> Timestamp {
        self.before_in(&self.calendar, time)
    }

    fn before_in(&self, calendar: &Calendar, time: Duration) -> Timestamp {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let now = calendar.now(&*self.clock);
        Timestamp::from_millis(now.as_millis().saturating_sub(millis)).unwrap_or_default()
    }

    /// Goes through tasks of every scope and does as the policy says with those that nobody works on.
    async fn each(&self, sought: Sought) -> Result<()> {
        let (mut after, places) = (None::<TaskId>, Arc::new(Semaphore::new(AT_ONCE)));
        loop {
            let heads = match sought {
                Sought::CutOff => self.journal.store.with_work(after.as_ref(), PAGE).await?,
                Sought::Overdue => self.journal.store.unfinished(after.as_ref(), PAGE).await?,
            };
            for head in &heads {
                let place = places.clone().acquire_owned().await.ok();
                let wish = match sought {
                    Sought::CutOff => Some(Wish::Recover(place)),
                    Sought::Overdue => self.is_overdue(head).then_some(Wish::Expire),
                };
                if let Some(wish) = wish
                    && let Passed::Back(wish, live, wished) =
                        self.journal.registry.pass(&head.id, wish)
                {
                    self.work_on(head, wish, (live, wished)).await;
                }
            }
            match heads.last() {
                Some(last) if heads.len() == PAGE => after = Some(last.id.clone()),
                _ => return Ok(()),
            }
        }
    }

    async fn forget_before(&self, time: Timestamp) -> Result<()> {
        loop {
            let old = self.journal.store.ended(time, PAGE).await?;
            self.journal.remove(&old).await?;
            if old.len() < PAGE {
                return Ok(());
            }
        }
    }

    async fn forget_oldest(&self) -> Result<()> {
        let Some(most) = self.settings.max_tasks else {
            return Ok(());
        };
        loop {
            let over = self.journal.store.count_ended().await?.saturating_sub(most);
            let limit = usize::try_from(over).unwrap_or(PAGE).min(PAGE);
            if limit == 0 {
                return Ok(());
            }
            let oldest = self.journal.store.ended(Timestamp::MAX, limit).await?;
            if oldest.is_empty() {
                return Ok(());
            }
            self.journal.remove(&oldest).await?;
        }
    }
}
