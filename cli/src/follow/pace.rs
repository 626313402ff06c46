//! How often to look, and how long to wait after a failure.

use std::time::Duration;

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

    /// How long to wait before looking again.
    pub(super) fn before_look(&mut self) -> Duration {
        let wait = self.interval.max(self.penalty());
        if !self.fixed {
            self.interval = self.interval.mul_f32(1.5).min(LONGEST_INTERVAL);
        }
        wait
    }

    /// How long to wait before a stream is opened again: a server that cuts each of them is not asked all the time.
    pub(super) fn before_retry(&mut self) -> Duration {
        let cut = FIRST_RETRY.saturating_mul(1 << self.cuts.min(8));
        self.cuts += 1;
        cut.max(self.penalty()).min(LONGEST_RETRY)
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

    #[test]
    fn task_poll_002_an_interval_that_was_asked_for_is_kept_and_the_default_stretches() {
        let mut asked = Pace::new(Some(Duration::from_secs(3)));
        assert!((0..3).all(|_| asked.before_look() == Duration::from_secs(3)));
        let mut own = Pace::new(None);
        let waits: Vec<_> = (0..6).map(|_| own.before_look().as_millis()).collect();
        assert_eq!(waits, [2000, 3000, 4500, 6750, 10_000, 10_000]);
    }

    #[test]
    fn task_poll_002_failures_are_waited_out_longer_and_longer_but_not_for_ever() {
        let mut pace = Pace::new(Some(Duration::from_millis(100)));
        assert!(pace.failed(Some(Duration::from_secs(7))));
        assert_eq!(pace.before_look(), Duration::from_secs(7));
        assert!((0..3).all(|_| pace.failed(None)));
        assert_eq!(pace.before_look(), Duration::from_secs(4));
        assert!(!pace.failed(None));
        pace.worked();
        assert!(pace.failed(None));
    }
}
