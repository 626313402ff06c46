//! Circuit breaker: stops calls to a peer that fails repeatedly (R35).

use std::sync::Mutex;
use std::time::Duration;

use attache::Error;
use attache::model::ErrorKind;
use tokio::time::Instant;

use crate::lock::lock;

/// Circuit breaker of one peer.
///
/// It opens after a number of consecutive failures and refuses calls during a pause. After the pause it is half-open:
/// it admits one call. If that call succeeds, the breaker closes; otherwise the pause starts again.
#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    max_failures: u32,
    pause: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    consecutive_failures: u32,
    /// End of the pause, if the breaker is open.
    open_until: Option<Instant>,
}

impl CircuitBreaker {
    /// Creates a closed breaker that opens after `max_failures` consecutive failures, for `pause`. With 0 it never opens.
    pub(crate) fn new(max_failures: u32, pause: Duration) -> Self {
        Self {
            max_failures,
            pause,
            state: Mutex::default(),
        }
    }

    /// Returns whether the peer may be called now. The caller must record the result of an admitted call.
    pub(crate) fn try_acquire(&self) -> bool {
        let mut state = lock(&self.state);
        match state.open_until {
            Some(open_until) if Instant::now() < open_until => false,
            // Half-open: this call is the probe. All others are refused until it succeeds or another pause has passed.
            Some(_) => {
                state.open_until = Some(Instant::now() + self.pause);
                true
            }
            None => true,
        }
    }

    /// Records the result of a call. Only an unreachable peer and a timeout count as failures.
    pub(crate) fn record_result(&self, error: Option<&Error>) {
        match error.map(Error::kind) {
            Some(ErrorKind::Unavailable | ErrorKind::DeadlineExceeded) => self.record_failure(),
            _ => self.record_success(),
        }
    }

    /// Records that the peer responded, and closes the breaker.
    pub(crate) fn record_success(&self) {
        *lock(&self.state) = BreakerState::default();
    }

    /// Records that the peer was unreachable or did not respond in time.
    pub(crate) fn record_failure(&self) {
        let mut state = lock(&self.state);
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
    async fn r35_an_open_breaker_admits_one_probe_after_its_pause() {
        let breaker = CircuitBreaker::new(2, Duration::from_secs(30));
        breaker.record_failure();
        breaker.record_success();
        breaker.record_failure();
        assert!(breaker.try_acquire(), "only consecutive failures count");
        breaker.record_failure();
        assert!(!breaker.try_acquire());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(breaker.try_acquire());
        assert!(!breaker.try_acquire(), "only one probe is admitted");
        breaker.record_failure();
        assert!(!breaker.try_acquire());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(breaker.try_acquire());
        breaker.record_success();
        assert!(breaker.try_acquire() && breaker.try_acquire());
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_of_zero_disables_the_breaker() {
        let breaker = CircuitBreaker::new(0, Duration::from_secs(30));
        (0..100).for_each(|_| breaker.record_failure());
        assert!(breaker.try_acquire());
    }
}
