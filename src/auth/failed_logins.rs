//! Lockout of an address after too many failed logins within a minute (S41).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::ip_key::ip_key;
use crate::model::{Error, ErrorKind, Result};
use crate::rt::lock;

/// Window in which failures are counted. A locked-out address is free again when it ends.
const LOCKOUT_WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses that are tracked.
const MAX_TRACKED_ADDRESSES: usize = 10_000;

/// Failed logins by address, in a fixed window per address.
pub(super) struct FailedLogins {
    max_per_window: u32,
    failures: Mutex<HashMap<IpAddr, FailureCount>>,
}

/// Failures of one address since the start of its window.
struct FailureCount {
    since: Instant,
    count: u32,
}

impl FailedLogins {
    /// Locks an address out after `max_per_window` failures within [`LOCKOUT_WINDOW`].
    pub(super) fn new(max_per_window: u32) -> Self {
        Self {
            max_per_window,
            failures: Mutex::default(),
        }
    }

    /// Checks that an address is not locked out. Called before any credential is verified.
    ///
    /// # Errors
    /// Rate limited: the address is locked out.
    pub(super) fn check(&self, peer: IpAddr) -> Result<()> {
        let failures = lock(&self.failures);
        let Some(failure) = failures.get(&ip_key(peer)) else {
            return Ok(());
        };
        let elapsed = failure.since.elapsed();
        if failure.count < self.max_per_window || elapsed >= LOCKOUT_WINDOW {
            return Ok(());
        }
        Err(Error::new(ErrorKind::RateLimited)
            .with_message(format!(
                "too many failed logins from this address (limit: max_failed_logins_per_minute = {})",
                self.max_per_window
            ))
            .with_retry_after(LOCKOUT_WINDOW.saturating_sub(elapsed)))
    }

    /// Records a failed login. At the address limit, expired entries are evicted, then all.
    pub(super) fn record_failure(&self, peer: IpAddr) {
        let mut failures = lock(&self.failures);
        if failures.len() >= MAX_TRACKED_ADDRESSES {
            failures.retain(|_, failure| failure.since.elapsed() < LOCKOUT_WINDOW);
        }
        if failures.len() >= MAX_TRACKED_ADDRESSES {
            failures.clear();
        }
        let now = Instant::now();
        let failure = failures.entry(ip_key(peer)).or_insert(FailureCount {
            since: now,
            count: 0,
        });
        if failure.since.elapsed() >= LOCKOUT_WINDOW {
            *failure = FailureCount {
                since: now,
                count: 0,
            };
        }
        failure.count = failure.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s41_an_address_is_locked_out_until_the_window_ends() {
        let failed_logins = FailedLogins::new(2);
        let attacker = "192.0.2.1".parse().unwrap();
        let other = "192.0.2.2".parse().unwrap();
        failed_logins.record_failure(attacker);
        assert!(failed_logins.check(attacker).is_ok());
        tokio::time::advance(Duration::from_secs(20)).await;
        failed_logins.record_failure(attacker);
        let refused = failed_logins.check(attacker).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::RateLimited);
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(40)));
        assert!(failed_logins.check(other).is_ok());
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(failed_logins.check(attacker).is_ok());
        failed_logins.record_failure(attacker);
        assert!(
            failed_logins.check(attacker).is_ok(),
            "a new window starts at zero"
        );
    }

    #[test]
    fn s41_a_network_is_locked_out_as_one_address() {
        let failed_logins = FailedLogins::new(1);
        failed_logins.record_failure("2001:db8::1".parse().unwrap());
        assert!(
            failed_logins
                .check("2001:db8::ffff:2".parse().unwrap())
                .is_err()
        );
        assert!(
            failed_logins
                .check("2001:db8:0:1::1".parse().unwrap())
                .is_ok()
        );
        failed_logins.record_failure("::ffff:192.0.2.1".parse().unwrap());
        assert!(failed_logins.check("192.0.2.1".parse().unwrap()).is_err());
    }

    #[test]
    fn s41_the_number_of_tracked_addresses_is_bounded() {
        let failed_logins = FailedLogins::new(1);
        for number in 0..u32::try_from(MAX_TRACKED_ADDRESSES).unwrap() + 5 {
            failed_logins.record_failure(IpAddr::from(number.to_be_bytes()));
        }
        assert!(failed_logins.failures.lock().unwrap().len() <= MAX_TRACKED_ADDRESSES);
    }
}
