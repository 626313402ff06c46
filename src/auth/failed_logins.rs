//! Whoever shows one credential after the other is not heard for a while (S41).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::ip_key::ip_key;
use crate::model::{Error, ErrorKind, Result};

/// So long a wrong credential is held against its address.
const LOCKOUT_WINDOW: Duration = Duration::from_secs(60);
/// So many addresses are remembered.
const MAX_TRACKED_ADDRESSES: usize = 10_000;

/// Who has guessed, and how often.
pub(super) struct FailedLogins {
    max_per_window: u32,
    failures: Mutex<HashMap<IpAddr, FailureCount>>,
}

/// What an address has shown since then.
struct FailureCount {
    since: Instant,
    count: u32,
}

impl FailedLogins {
    /// So many a minute are looked at.
    pub(super) fn new(max_per_window: u32) -> Self {
        Self {
            max_per_window,
            failures: Mutex::default(),
        }
    }

    /// Whether an address is heard, before anything that it shows is looked at.
    ///
    /// # Errors
    /// Rate limited: it has guessed too often.
    pub(super) fn check(&self, peer: IpAddr) -> Result<()> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.get(&ip_key(peer)) {
            Some(FailureCount { since, count })
                if *count >= self.max_per_window && since.elapsed() < LOCKOUT_WINDOW =>
            {
                Err(Error::new(ErrorKind::RateLimited)
                    .with_message(
                        "Too many requests: too many credentials from this address were not good",
                    )
                    .with_retry_after(LOCKOUT_WINDOW.saturating_sub(since.elapsed())))
            }
            _ => Ok(()),
        }
    }

    /// An address has shown something that is not good.
    pub(super) fn record_failure(&self, peer: IpAddr) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
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
    async fn s41_who_guesses_is_not_heard_until_the_minute_is_over() {
        let failed_logins = FailedLogins::new(2);
        let (attacker, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
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
            "a new minute begins anew"
        );
    }

    #[test]
    fn s41_a_network_of_addresses_is_one_guesser() {
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
    fn s41_not_more_addresses_are_remembered_than_there_is_room_for() {
        let failed_logins = FailedLogins::new(1);
        for number in 0..u32::try_from(MAX_TRACKED_ADDRESSES).unwrap() + 5 {
            failed_logins.record_failure(IpAddr::from(number.to_be_bytes()));
        }
        assert!(failed_logins.failures.lock().unwrap().len() <= MAX_TRACKED_ADDRESSES);
    }
}
