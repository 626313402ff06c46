//! A peer that fails again and again is left alone for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attache::Error;
use attache::model::ErrorKind;
use tokio::time::Instant;

/// Counts how often in a row a peer was not there. After so many times nobody asks it until a pause is over; then one
/// does, and if that goes well all do again.
#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    max_failures: u32,
    pause: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    consecutive_failures: u32,
    /// Until then nobody asks.
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Opens after so many failures in a row, for so long; never with 0.
    pub(crate) fn new(failures: u32, pause: Duration) -> Self {
        Self {
            max_failures: failures,
            pause,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        // Two numbers are whole between any two statements, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the peer may be asked now. Who may, says afterwards how it went.
    pub(crate) fn try_acquire(&self) -> bool {
        let mut state = self.state();
        match state.open_until {
            Some(open_until) if Instant::now() < open_until => false,
            // This one tries; the others wait for what comes of it, or for another pause.
            Some(_) => {
                state.open_until = Some(Instant::now() + self.pause);
                true
            }
            None => true,
        }
    }

    /// What became of a call: whether nobody was there, or nobody spoke, or else whatever they said.
    pub(crate) fn record_result(&self, error: Option<&Error>) {
        let kind = error.map(Error::kind);
        match matches!(
            kind,
            Some(ErrorKind::Unavailable | ErrorKind::DeadlineExceeded)
        ) {
            true => self.record_failure(),
            false => self.record_success(),
        }
    }

    /// The peer was there, whatever it said.
    pub(crate) fn record_success(&self) {
        *self.state() = BreakerState::default();
    }

    /// The peer was not there, or did not answer.
    pub(crate) fn record_failure(&self) {
        let mut state = self.state();
        state.consecutive_failures = state.consecutive_failures.saturating_add(1);
        if self.max_failures > 0 && state.consecutive_failures >= self.max_failures {
            state.open_until = Some(Instant::now() + self.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r35_a_peer_that_fails_is_left_alone_and_then_tried_by_one() {
        let breaker = CircuitBreaker::new(2, Duration::from_secs(30));
        breaker.record_failure();
        breaker.record_success();
        breaker.record_failure();
        assert!(breaker.try_acquire(), "only failures in a row count");
        breaker.record_failure();
        assert!(!breaker.try_acquire());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(breaker.try_acquire());
        assert!(!breaker.try_acquire(), "one tries, the others wait");
        breaker.record_failure();
        assert!(!breaker.try_acquire());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(breaker.try_acquire());
        breaker.record_success();
        assert!(breaker.try_acquire() && breaker.try_acquire());
    }

    #[tokio::test(start_paused = true)]
    async fn it_can_be_left_out() {
        let breaker = CircuitBreaker::new(0, Duration::from_secs(30));
        (0..100).for_each(|_| breaker.record_failure());
        assert!(breaker.try_acquire());
    }
}
