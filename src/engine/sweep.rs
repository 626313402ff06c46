//! What nobody asks for: tasks that were cut off, that wait too long, that are too old or too many.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::MissedTickBehavior;

use super::live::{Passed, Wish};
use super::runner::Runner;
use super::{Engine, Result, Waiting};
use crate::model::{Scope, Timestamp};
use crate::store::Head;

/// How long to wait before trying again where the store has failed.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How many tasks are looked at together.
const PAGE: usize = 500;

/// How many tasks are read and seen to at the same time after a restart: as many as the store commits together.
const AT_ONCE: usize = 256;

/// Tasks that have ended since the last sweep, and whether there are so many that it should come sooner.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    ended: AtomicU64,
    news: Notify,
}

impl Engine {
    /// A task has ended. Where only so many are kept, they must not pile up between two sweeps.
    pub(super) fn count_end(&self) {
        let Some(most) = self.settings.max_tasks else { return };
        if self.crowd.ended.fetch_add(1, Ordering::Relaxed) + 1 >= (most / 10).max(100) {
            self.crowd.ended.store(0, Ordering::Relaxed);
            self.crowd.news.notify_one();
        }
    }

    /// Looks at every task that has not ended and has nobody who works on it, and does as the policy says. Call it
    /// once before serving.
    pub(crate) async fn recover(&self) -> Result<()> {
        // Those parked on somebody outside too: a message may have come that nobody worked on.
        self.each_unfinished(|_, place| Some(Wish::Recover(place))).await
    }

    /// Sees to what waits or is silent too long, and forgets what is too old or too many, for as long as it runs.
    pub(crate) async fn keep_house(&self) -> Infallible {
        let mut every = tokio::time::interval(self.settings.sweep_every.max(Duration::from_millis(1)));
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let swept = tokio::select! {
                biased;
                _ = every.tick() => self.sweep().await,
                () = self.crowd.news.notified() => self.forget_oldest().await,
            };
            if let Err(error) = swept {
                tracing::warn!(error = &error as &dyn std::error::Error, "sweep failed");
            }
        }
    }

    /// One sweep.
    pub(crate) async fn sweep(&self) -> Result<()> {
        let ages = self.settings.max_parked_age.or(self.settings.max_silent_age);
        if ages.is_some() || self.staff.any_waits_only_so_long(&self.settings) {
            self.each_unfinished(|head, _| self.is_overdue(head).then_some(Wish::Expire)).await?;
        }
        if let Some(age) = self.settings.max_age {
            self.forget_before(self.before(age)).await?;
        }
        self.forget_oldest().await
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
            self.waiting_time(&head.scope).into_iter().chain(self.settings.max_silent_age).min()
        } else {
            self.settings.max_silent_age
        };
        // Whoever works on a task has limits of their own.
        limit.is_some_and(|time| head.status_time < self.before(time))
            && self.journal.registry.get(&head.id).is_none()
    }

    /// So long ago. A clock that jumps makes nothing old.
    pub(super) fn before(&self, time: Duration) -> Timestamp {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let now = self.calendar.now(&*self.clock);
        Timestamp::from_millis(now.as_millis().saturating_sub(millis)).unwrap_or_default()
    }

    async fn each_unfinished(
        &self,
        wish: impl Fn(&Head, Option<OwnedSemaphorePermit>) -> Option<Wish>,
    ) -> Result<()> {
        let (mut after, places) = (None, Arc::new(Semaphore::new(AT_ONCE)));
        loop {
            let heads = self.journal.store.unfinished(after.as_ref(), PAGE).await?;
            for head in &heads {
                let place = places.clone().acquire_owned().await.ok();
                if let Some(wish) = wish(head, place)
                    && let Passed::Back(wish, live, wished) = self.journal.registry.pass(&head.id, wish)
                {
                    let runner = Runner::resuming(self.clone(), head.clone(), live, wished);
                    self.own(runner.run_from(wish)).await;
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
        let Some(most) = self.settings.max_tasks else { return Ok(()) };
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
