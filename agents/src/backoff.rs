//! Exponential backoff between retries.

use std::time::Duration;

use attache::HttpResponse;
use http::header::RETRY_AFTER;

/// Exponential backoff: the delay doubles with every attempt, up to a maximum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    /// Delay before the first retry.
    pub(crate) initial: Duration,
    /// Upper bound of every delay, including one requested by the server.
    pub(crate) max: Duration,
}

impl Backoff {
    /// Returns the delay before retry number `attempt`, counted from 0.
    pub(crate) fn delay(self, attempt: u32) -> Duration {
        self.initial
            .saturating_mul(2_u32.saturating_pow(attempt))
            .min(self.max)
    }

    /// Returns the delay that the server requested, or else [`delay`](Self::delay).
    pub(crate) fn delay_or(self, requested: Option<Duration>, attempt: u32) -> Duration {
        requested.map_or_else(|| self.delay(attempt), |delay| delay.min(self.max))
    }
}

/// Returns the value of `Retry-After` if it is a number of seconds.
pub(crate) fn retry_after(response: &HttpResponse) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(value.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_its_maximum() {
        let backoff = Backoff {
            initial: Duration::from_millis(200),
            max: Duration::from_secs(1),
        };
        let delays = [0, 1, 2, 3, u32::MAX].map(|attempt| backoff.delay(attempt).as_millis());
        assert_eq!(delays, [200, 400, 800, 1000, 1000]);
        let hour = Some(Duration::from_secs(3600));
        assert_eq!(backoff.delay_or(hour, 0), backoff.max);
    }
}
