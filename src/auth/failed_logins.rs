//! Lockout of an address after too many failed logins within a minute (S41). Valid credentials pass.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::ip_key::ip_key;
use crate::model::{ClientAddress, Error, ErrorKind, Result};
use crate::rt::lock;

/// Window in which failures are counted. A locked-out address is free again when it ends.
const LOCKOUT_WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses that are tracked.
const MAX_TRACKED_ADDRESSES: usize = 10_000;

/// Failed logins by address, in a fixed window per address.
pub(crate) struct FailedLogins {
    max_per_window: u32,
    failures: Mutex<HashMap<ClientAddress, FailureCount>>,
}

/// Failures of one address since the start of its window.
struct FailureCount {
    since: Instant,
    count: u32,
}

impl FailedLogins {
    /// Locks an address out after `max_per_window` failures within [`LOCKOUT_WINDOW`].
    pub(crate) fn new(max_per_window: u32) -> Self {
        Self {
            max_per_window,
            failures: Mutex::default(),
        }
    }

    /// Records a failed login. At the address limit, expired entries are evicted, then all.
    ///
    /// Called after the credential was verified: a lockout never refuses a valid one (D6). Clients
    /// of one address can share it, and a guess is hopeless for keys of 244 random bits.
    ///
    /// # Errors
    /// Rate limited: the address is locked out.
    pub(crate) fn record_failure(&self, client: IpAddr) -> Result<()> {
        let mut failures = lock(&self.failures);
        if failures.len() >= MAX_TRACKED_ADDRESSES {
            failures.retain(|_, failure| failure.since.elapsed() < LOCKOUT_WINDOW);
        }
        if failures.len() >= MAX_TRACKED_ADDRESSES {
            failures.clear();
        }
        let now = Instant::now();
        let failure = failures.entry(ip_key(client)).or_insert(FailureCount {
            since: now,
            count: 0,
        });
        if failure.since.elapsed() >= LOCKOUT_WINDOW {
            *failure = FailureCount {
                since: now,
                count: 0,
            };
        }
        if failure.count >= self.max_per_window {
            return Err(self.locked_out(failure.since.elapsed()));
        }
        failure.count += 1;
        Ok(())
    }

    fn locked_out(&self, elapsed: Duration) -> Error {
        let message = format!(
            "too many failed logins from this address (limit: max_failed_logins_per_minute = {})",
            self.max_per_window
        );
        Error::new(ErrorKind::RateLimited)
            .with_message(message)
            .with_retry_after(LOCKOUT_WINDOW.saturating_sub(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(failed_logins: &FailedLogins, client: &str) -> Result<()> {
        failed_logins.record_failure(client.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn s41_an_address_is_locked_out_until_the_window_ends() {
        let failed_logins = FailedLogins::new(2);
        let attacker = "192.0.2.1";
        record(&failed_logins, attacker).unwrap();
        tokio::time::advance(Duration::from_secs(20)).await;
        record(&failed_logins, attacker).unwrap();
        let refused = record(&failed_logins, attacker).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::RateLimited);
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(40)));
        assert!(record(&failed_logins, "192.0.2.2").is_ok());
        tokio::time::advance(Duration::from_secs(40)).await;
        for _ in 0..2 {
            assert!(record(&failed_logins, attacker).is_ok(), "a new window");
        }
        assert!(record(&failed_logins, attacker).is_err());
    }

    #[test]
    fn s41_a_network_is_locked_out_as_one_address() {
        let failed_logins = FailedLogins::new(1);
        record(&failed_logins, "2001:db8::1").unwrap();
        assert!(record(&failed_logins, "2001:db8::ffff:2").is_err());
        assert!(record(&failed_logins, "2001:db8:0:1::1").is_ok());
        record(&failed_logins, "::ffff:192.0.2.1").unwrap();
        assert!(record(&failed_logins, "192.0.2.1").is_err());
    }

    #[test]
    fn s41_the_number_of_tracked_addresses_is_bounded() {
        let failed_logins = FailedLogins::new(1);
        for number in 0..u32::try_from(MAX_TRACKED_ADDRESSES).unwrap() + 5 {
            let _ = failed_logins.record_failure(IpAddr::from(number.to_be_bytes()));
        }
        assert!(failed_logins.failures.lock().unwrap().len() <= MAX_TRACKED_ADDRESSES);
    }
}
