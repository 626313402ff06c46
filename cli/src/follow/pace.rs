//! How often to look, and how long to wait after a failure.

use std::time::Duration;

use tokio::time::sleep;

use crate::settings::POLL_INTERVAL;

const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_millis(250);
const MOST_FAILURES: u32 = 5;

pub(super) struct Pace {
    interval: Duration,
    /// The user said how often.
    fixed: bool,
    failures: u32,
    /// What the agent asked for.
    retry_after: Option<Duration>,
    cuts: u32,
}

impl Pace {
    pub(super) fn new(interval: Option<Duration>) -> Self {
        let fixed = interval.is_some();
        Self { interval: interval.unwrap_or(POLL_INTERVAL), fixed, failures: 0, retry_after: None, cuts: 0 }
    }

    /// Waits until it is time to look again.
    pub(super) async fn before_look(&mut self) {
        sleep(self.interval.max(self.penalty())).await;
        if !self.fixed {
            self.interval = self.interval.mul_f32(1.5).min(LONGEST_INTERVAL);
        }
    }

    /// Waits before a stream is opened again: a server that cuts every one of them is not asked all the time.
    pub(super) async fn before_retry(&mut self) {
        let cut = FIRST_RETRY.saturating_mul(1 << self.cuts.min(8));
        sleep(cut.max(self.penalty()).min(LONGEST_RETRY)).await;
        self.cuts += 1;
    }

    pub(super) fn worked(&mut self) {
        (self.failures, self.retry_after) = (0, None);
    }

    /// Whether it makes sense to try again.
    pub(super) fn failed(&mut self, retry_after: Option<Duration>) -> bool {
        self.failures += 1;
        self.retry_after = retry_after;
        self.failures < MOST_FAILURES
    }

    fn penalty(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            many => {
                self.retry_after.unwrap_or(FIRST_RETRY.saturating_mul(1 << many.min(8))).min(LONGEST_RETRY)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn task_poll_002_an_interval_that_was_asked_for_is_kept_and_the_default_stretches() {
        let start = Instant::now();
        let mut asked = Pace::new(Some(Duration::from_secs(3)));
        for _ in 0..3 {
            asked.before_look().await;
        }
        assert_eq!(start.elapsed().as_secs(), 9);
        let (start, mut own) = (Instant::now(), Pace::new(None));
        for _ in 0..6 {
            own.before_look().await;
        }
        assert_eq!(start.elapsed().as_millis(), 2000 + 3000 + 4500 + 6750 + 10_000 + 10_000);
    }

    #[tokio::test(start_paused = true)]
    async fn task_poll_002_failures_are_waited_out_longer_and_longer_but_not_for_ever() {
        let mut pace = Pace::new(Some(Duration::from_millis(100)));
        assert!(pace.failed(Some(Duration::from_secs(7))));
        let start = Instant::now();
        pace.before_look().await;
        assert_eq!(start.elapsed().as_secs(), 7);
        assert!((0..3).all(|_| pace.failed(None)));
        assert!(!pace.failed(None));
        pace.worked();
        assert!(pace.failed(None));
    }
}
