//! Polling of logs whose announcements may be lost.
//!
//! The bus between replicas may lose messages. Polling bounds the latency that a lost message costs.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{Engine, Result};
use crate::model::{Seq, TaskId};
use crate::store::Head;

/// Interval at which logs of other replicas that are followed here are polled.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Interval while the bus between replicas is down.
const DEGRADED_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Number of polls of followed logs per poll of the logs that this replica writes. Remote commands are appended to these.
const POLLS_PER_OWN_POLL: u32 = 5;

/// Number of logs per call of the store.
const POLL_PAGE_TASKS: usize = 1000;

/// A log to poll, and the position up to which it is known here.
struct PolledLog {
    head: Head,
    known: Seq,
}

impl Engine {
    /// Polls the logs that are followed or written here, and announces those that have grown. Runs without end.
    pub(super) async fn poll_logs(&self) -> Infallible {
        let bus = &self.inner.journal.bus;
        let mut gaps = bus.gaps();
        let mut last_success = Instant::now();
        for round in 1_u32.. {
            let interval = if bus.is_up() {
                POLL_INTERVAL
            } else {
                DEGRADED_POLL_INTERVAL
            };
            let had_gap = tokio::select! {
                biased;
                () = wait_for_gap(&mut gaps) => true,
                () = sleep(interval) => false,
            };
            let polls_own = had_gap || !bus.is_up() || round.is_multiple_of(POLLS_PER_OWN_POLL);
            match self.poll_logs_once(polls_own).await {
                Ok(()) => last_success = Instant::now(),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "logs not polled");
                    self.wake_followers_after(last_success);
                }
            }
        }
        std::future::pending().await
    }

    async fn poll_logs_once(&self, polls_own: bool) -> Result<()> {
        let journal = &self.inner.journal;
        let mut logs = self.followed_logs();
        if polls_own {
            let active = journal.active_tasks.heads().into_iter();
            logs.extend(active.map(|head| PolledLog {
                known: head.position,
                head,
            }));
        }
        for page in logs.chunks(POLL_PAGE_TASKS) {
            let heads: Vec<Head> = page.iter().map(|log| log.head.clone()).collect();
            let positions = async { Ok(journal.store.positions(&heads).await?) };
            let positions = self.with_store_timeout(positions).await?;
            for (log, position) in page.iter().zip(positions) {
                // A removed log is announced, too: its followers get an error.
                if position.is_none_or(|position| position > log.known) {
                    self.wake(&log.head.id, position.unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    fn followed_logs(&self) -> Vec<PolledLog> {
        let follower_cache = self.inner.journal.follower_cache.as_ref();
        let followed = follower_cache.map(|cache| cache.followed());
        let followed = followed.into_iter().flatten();
        followed
            .map(|log| PolledLog {
                head: log.head().clone(),
                known: log.end(),
            })
            .collect()
    }

    /// Wakes all followers of other replicas' logs if no poll has succeeded for one lease: their reads fail, and streams end
    /// with an error.
    fn wake_followers_after(&self, last_success: Instant) {
        let lease = self.inner.journal.store.lease();
        if lease.is_some_and(|lease| last_success.elapsed() >= lease) {
            for log in self.followed_logs() {
                self.wake(&log.head.id, Seq(0));
            }
        }
    }

    fn wake(&self, task: &TaskId, position: Seq) {
        self.inner.journal.bus.announce_locally(task, position);
    }
}

/// Waits until messages may have been lost. Without a bus between replicas, waits without end.
async fn wait_for_gap(gaps: &mut Option<watch::Receiver<u64>>) {
    let is_open = match gaps {
        Some(gaps) => gaps.changed().await.is_ok(),
        None => false,
    };
    if !is_open {
        std::future::pending().await
    }
}
