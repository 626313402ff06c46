//! How much each caller may do: calls, bytes and calls at the same time, by agent.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{NotUntil, Quota, RateLimiter};
use serde::{Deserialize, Serialize};

use super::Identity;
use super::ip_key::ip_key;
use crate::model::units::{ByteSizeOrUnlimited, CountOrUnlimited};
use crate::model::{Caller, Error, ErrorKind, Result};
use crate::telemetry::metrics;

/// How often those who have not called for a while are forgotten: once in so many calls.
const CLEANUP_EVERY_CALLS: usize = 1024;
/// How long a caller with too many calls at the same time is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How much each caller may do with one agent. Those whom nobody knows are told apart by their address. `None`: as much as they
/// like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CallerLimits {
    /// Calls in a second, in the long run.
    #[serde(with = "CountOrUnlimited")]
    pub calls_per_second: Option<NonZeroU32>,
    /// Calls at once, after a pause.
    pub burst: NonZeroU32,
    /// Bytes of requests in a minute, and also at once.
    #[serde(with = "ByteSizeOrUnlimited")]
    pub bytes_per_minute: Option<NonZeroU32>,
    /// Calls that wait for their answer at the same time; streams are counted apart.
    #[serde(with = "CountOrUnlimited")]
    pub concurrent_calls: Option<usize>,
    /// Tasks that have not ended.
    #[serde(with = "CountOrUnlimited")]
    pub open_tasks: Option<u64>,
    /// Tasks that wait for their caller: with more than these nobody opens another.
    #[serde(with = "CountOrUnlimited")]
    pub waiting_tasks: Option<u64>,
    /// Tasks of all callers of a tenant together that have not ended. Callers of no tenant are one.
    #[serde(with = "CountOrUnlimited")]
    pub tenant_open_tasks: Option<u64>,
    /// Tasks of all callers of a tenant together that are kept, ended or not: with more than these nobody of it opens another.
    #[serde(with = "CountOrUnlimited")]
    pub tenant_tasks: Option<u64>,
}

const fn non_zero(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

impl Default for CallerLimits {
    fn default() -> Self {
        Self {
            calls_per_second: Some(non_zero(100)),
            burst: non_zero(400),
            bytes_per_minute: Some(non_zero(256 << 20)),
            concurrent_calls: Some(256),
            open_tasks: Some(10_000),
            waiting_tasks: Some(1_000),
            tenant_open_tasks: None,
            tenant_tasks: None,
        }
    }
}

/// Whose limits it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RateLimitKey(Arc<str>, RateLimitSubject);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RateLimitSubject {
    Caller(Caller),
    Address(IpAddr),
}

impl RateLimitKey {
    pub(crate) fn new(agent: Arc<str>, identity: &Identity, peer: IpAddr) -> Self {
        let subject = match identity.is_anonymous() {
            true => RateLimitSubject::Address(ip_key(peer)),
            false => RateLimitSubject::Caller(identity.caller().clone()),
        };
        Self(agent, subject)
    }
}

type Limiter = RateLimiter<
    RateLimitKey,
    DashMapStateStore<RateLimitKey>,
    DefaultClock,
    StateInformationMiddleware,
>;

/// Counts what callers do.
pub(crate) struct CallLimiter {
    calls: Option<Limiter>,
    bytes: Option<Limiter>,
    max_concurrent: Option<usize>,
    concurrent: Arc<Mutex<HashMap<RateLimitKey, usize>>>,
    call_count: AtomicUsize,
    clock: DefaultClock,
}

/// What is left of an limits of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimitStatus {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// When all of it is there again.
    pub(crate) reset: Duration,
}

/// One call among those at the same time; over when dropped.
pub(crate) struct CallPermit(Arc<Mutex<HashMap<RateLimitKey, usize>>>, RateLimitKey);

impl CallLimiter {
    pub(crate) fn new(limits: &CallerLimits) -> Self {
        let limiter =
            |quota| RateLimiter::dashmap(quota).with_middleware::<StateInformationMiddleware>();
        let calls = limits
            .calls_per_second
            .map(|rate| Quota::per_second(rate).allow_burst(limits.burst));
        Self {
            calls: calls.map(limiter),
            bytes: limits.bytes_per_minute.map(Quota::per_minute).map(limiter),
            max_concurrent: limits.concurrent_calls,
            concurrent: Arc::default(),
            call_count: AtomicUsize::new(0),
            clock: DefaultClock::default(),
        }
    }

    /// Counts a call of so many bytes.
    ///
    /// # Errors
    /// Rate limited: the caller has to wait.
    pub(crate) fn check_call(
        &self,
        key: &RateLimitKey,
        bytes: usize,
    ) -> Result<(Option<RateLimitStatus>, Option<CallPermit>)> {
        if self
            .call_count
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(CLEANUP_EVERY_CALLS)
        {
            self.drop_idle_keys();
        }
        let status = match &self.calls {
            Some(calls) => {
                let state = calls
                    .check_key(key)
                    .map_err(|until| self.limited_until(&until, "calls"))?;
                let (quota, remaining) = (state.quota(), state.remaining_burst_capacity());
                let limit = quota.burst_size().get();
                let reset = quota.replenish_interval() * limit.saturating_sub(remaining);
                Some(RateLimitStatus {
                    limit,
                    remaining,
                    reset,
                })
            }
            None => None,
        };
        let weight = u32::try_from(bytes).ok().and_then(NonZeroU32::new);
        if let (Some(limiter), Some(weight)) = (&self.bytes, weight) {
            match limiter.check_key_n(key, weight) {
                Ok(Ok(_)) => {}
                Ok(Err(until)) => return Err(self.limited_until(&until, "bytes")),
                // More than there ever is at once.
                Err(_) => {
                    return Err(rate_limited("bytes").with_retry_after(Duration::from_secs(60)));
                }
            }
        }
        Ok((status, self.acquire_permit(key)?))
    }

    fn acquire_permit(&self, key: &RateLimitKey) -> Result<Option<CallPermit>> {
        let Some(most) = self.max_concurrent else {
            return Ok(None);
        };
        let mut concurrent = lock(&self.concurrent);
        let count = concurrent.entry(key.clone()).or_default();
        if *count >= most {
            return Err(rate_limited("calls at the same time").with_retry_after(RETRY_AFTER));
        }
        *count += 1;
        Ok(Some(CallPermit(self.concurrent.clone(), key.clone())))
    }

    fn limited_until(
        &self,
        until: &NotUntil<<DefaultClock as Clock>::Instant>,
        of: &'static str,
    ) -> Error {
        let wait = until.wait_time_from(self.clock.now());
        rate_limited(of)
            .with_detail("limit", until.quota().burst_size().to_string())
            .with_retry_after(wait)
    }

    /// Those who have all of their limits are as if they had never called.
    fn drop_idle_keys(&self) {
        for limiter in [&self.calls, &self.bytes].into_iter().flatten() {
            limiter.retain_recent();
        }
    }
}

fn rate_limited(of: &'static str) -> Error {
    metrics::record_limit_hit(match of {
        "calls" => "calls_per_second",
        "bytes" => "bytes_per_minute",
        _ => "concurrent_calls",
    });
    Error::new(ErrorKind::RateLimited).with_message(format!(
        "Too many requests: the caller has used up its {of}"
    ))
}

fn lock(
    counts: &Mutex<HashMap<RateLimitKey, usize>>,
) -> MutexGuard<'_, HashMap<RateLimitKey, usize>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut concurrent = lock(&self.0);
        if let Some(count) = concurrent.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                concurrent.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> RateLimitKey {
        RateLimitKey::new(
            "agent".into(),
            &Identity::named(name),
            [127, 0, 0, 1].into(),
        )
    }

    #[test]
    fn s67_calls_and_bytes_are_counted_by_caller() {
        let limits = CallerLimits {
            calls_per_second: Some(non_zero(1)),
            burst: non_zero(2),
            bytes_per_minute: Some(non_zero(100)),
            ..CallerLimits::default()
        };
        let limiter = CallLimiter::new(&limits);
        let (ann, bob) = (key("ann"), key("bob"));
        assert_eq!(
            limiter.check_call(&ann, 10).unwrap().0.unwrap().remaining,
            1
        );
        limiter.check_call(&ann, 10).unwrap();
        let refused = limiter.check_call(&ann, 10).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::RateLimited);
        assert!(refused.retry_after().unwrap() <= Duration::from_secs(1));
        limiter.check_call(&bob, 90).unwrap();
        assert!(
            limiter
                .check_call(&bob, 90)
                .err()
                .unwrap()
                .message()
                .contains("bytes")
        );
        assert!(limiter.check_call(&key("eve"), 101).is_err());
    }

    #[test]
    fn s67_calls_at_the_same_time_are_counted_and_given_back() {
        let limiter = CallLimiter::new(&CallerLimits {
            concurrent_calls: Some(1),
            ..CallerLimits::default()
        });
        let first = limiter.check_call(&key("ann"), 0).unwrap();
        assert!(limiter.check_call(&key("ann"), 0).is_err());
        limiter.check_call(&key("bob"), 0).unwrap();
        drop(first);
        limiter.check_call(&key("ann"), 0).unwrap();
        assert!(lock(&limiter.concurrent).is_empty());
    }

    #[test]
    fn whoever_has_a_network_is_one() {
        let at = |text: &str| {
            RateLimitKey::new("a".into(), &Identity::anonymous(), text.parse().unwrap())
        };
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
        assert_eq!(at("10.0.0.1"), at("::ffff:10.0.0.1"));
    }
}
