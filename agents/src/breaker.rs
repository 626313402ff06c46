//! A peer that fails again and again is left alone for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attache::Error;
use attache::model::ErrorKind;
use tokio::time::Instant;

/// Counts how often in a row a peer was not there. After so many times nobody asks it until a pause is over; then one
/// does, and if that goes well all do again.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures: u32,
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failed: u32,
    /// Until then nobody asks.
    until: Option<Instant>,
}

impl Breaker {
    /// Opens after so many failures in a row, for so long; never with 0.
    pub(crate) fn new(failures: u32, pause: Duration) -> Self {
        Self {
            failures,
            pause,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Two numbers are whole between any two statements, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the peer may be asked now. Who may, says afterwards how it went.
    pub(crate) fn allows(&self) -> bool {
        let mut state = self.state();
        match state.until {
            Some(until) if Instant::now() < until => false,
            // This one tries; the others wait for what comes of it, or for another pause.
            Some(_) => {
                state.until = Some(Instant::now() + self.pause);
                true
            }
            None => true,
        }
    }

    /// What became of a call: whether nobody was there, or nobody spoke, or else whatever they said.
    pub(crate) fn note(&self, error: Option<&Error>) {
        let kind = error.map(Error::kind);
        match matches!(
            kind,
            Some(ErrorKind::Unavailable | ErrorKind::DeadlineExceeded)
        ) {
            true => self.failed(),
            false => self.answered(),
        }
    }

    /// The peer was there, whatever it said.
    pub(crate) fn answered(&self) {
        *self.state() = State::default();
    }

    /// The peer was not there, or did not answer.
    pub(crate) fn failed(&self) {
        let mut state = self.state();
        state.failed = state.failed.saturating_add(1);
        if self.failures > 0 && state.failed >= self.failures {
            state.until = Some(Instant::now() + self.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r35_a_peer_that_fails_is_left_alone_and_then_tried_by_one() {
        let breaker = Breaker::new(2, Duration::from_secs(30));
        breaker.failed();
        breaker.answered();
        breaker.failed();
        assert!(breaker.allows(), "only failures in a row count");
        breaker.failed();
        assert!(!breaker.allows());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(breaker.allows());
        assert!(!breaker.allows(), "one tries, the others wait");
        breaker.failed();
        assert!(!breaker.allows());
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(breaker.allows());
        breaker.answered();
        assert!(breaker.allows() && breaker.allows());
    }

    #[tokio::test(start_paused = true)]
    async fn it_can_be_left_out() {
        let breaker = Breaker::new(0, Duration::from_secs(30));
        (0..100).for_each(|_| breaker.failed());
        assert!(breaker.allows());
    }
}
