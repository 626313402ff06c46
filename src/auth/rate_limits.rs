//! Rate limits per caller and agent: calls per second, bytes per minute, concurrent calls.
//!
//! Calls and bytes use a token bucket (GCRA, crate `governor`). Anonymous callers are distinguished by address.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{NotUntil, Quota, RateLimiter};
use http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::model::units::{ByteSizeOrUnlimited, CountOrUnlimited};
use crate::model::{CallerKey, Error, ErrorKind, Result};
use crate::rt::lock;
use crate::telemetry::metrics;

/// Number of calls between two removals of idle keys.
const CLEANUP_EVERY_CALLS: usize = 1024;
/// `Retry-After` of a call over the concurrency limit.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Rate limits and task quotas of each caller, per agent. Anonymous callers are distinguished by address. `None`: unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CallerLimits {
    /// Calls per second, on average.
    #[serde(with = "CountOrUnlimited")]
    pub calls_per_second: Option<NonZeroU32>,
    /// Maximum burst of calls.
    pub burst: NonZeroU32,
    /// Request bytes per minute; also the maximum burst.
    #[serde(with = "ByteSizeOrUnlimited")]
    pub bytes_per_minute: Option<NonZeroU32>,
    /// Concurrent calls. Streams are limited separately.
    #[serde(with = "CountOrUnlimited")]
    pub concurrent_calls: Option<usize>,
    /// Open tasks: tasks that have not ended.
    #[serde(with = "CountOrUnlimited")]
    pub open_tasks: Option<u64>,
    /// Tasks that wait for input or authentication. At the limit the caller cannot open another task.
    #[serde(with = "CountOrUnlimited")]
    pub waiting_tasks: Option<u64>,
    /// Open tasks of a tenant, over all its callers. Callers without a tenant form one tenant.
    #[serde(with = "CountOrUnlimited")]
    pub tenant_open_tasks: Option<u64>,
    /// Stored tasks of a tenant, ended or not. At the limit its callers cannot open another task.
    #[serde(with = "CountOrUnlimited")]
    pub tenant_tasks: Option<u64>,
    /// Whether calls, bytes and concurrent calls of anonymous callers on loopback addresses are limited too, and connections
    /// from each of them. Calls always are behind a proxy: with `trusted_proxies`, or a `public_url` of another host.
    pub limit_loopback: bool,
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
            limit_loopback: false,
        }
    }
}

/// Key of the rate limiter: agent and caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RateLimitKey(Arc<str>, CallerKey);

impl RateLimitKey {
    pub(crate) fn new(agent: Arc<str>, caller: CallerKey) -> Self {
        Self(agent, caller)
    }
}

type Limiter = RateLimiter<
    RateLimitKey,
    DashMapStateStore<RateLimitKey>,
    DefaultClock,
    StateInformationMiddleware,
>;

/// Limit over time: a token bucket per key, and its policy for response headers.
struct TimedLimit {
    buckets: Limiter,
    /// Value of `RateLimit-Policy`. Encoded once, because every response has it.
    policy: HeaderValue,
}

impl TimedLimit {
    fn calls(quota: Quota) -> Self {
        Self::new(quota, "\"calls\"", "")
    }

    fn bytes(quota: Quota) -> Self {
        Self::new(quota, "\"bytes\"", ";qu=\"content-bytes\"")
    }

    /// `unit` is the parameter of the policy for a quota of other units than requests.
    fn new(quota: Quota, name: &'static str, unit: &'static str) -> Self {
        let limit = quota.burst_size();
        let window = quota.burst_size_replenished_in().as_secs_f64().ceil();
        let policy = format!("{name};q={limit}{unit};w={window}");
        Self {
            buckets: RateLimiter::dashmap(quota).with_middleware::<StateInformationMiddleware>(),
            policy: HeaderValue::try_from(policy).expect("names and units are ASCII"),
        }
    }
}

/// Enforces [`CallerLimits`] for calls, bytes and concurrency.
pub(crate) struct CallLimiter {
    calls: Option<TimedLimit>,
    bytes: Option<TimedLimit>,
    max_concurrent: Option<usize>,
    concurrent: Arc<Mutex<HashMap<RateLimitKey, usize>>>,
    call_count: AtomicUsize,
    clock: DefaultClock,
}

/// State of the call rate limit, for response headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateLimitStatus {
    /// Value of `RateLimit-Policy`: name, quota and window of the limit.
    pub(crate) policy: HeaderValue,
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// Time until the full burst is available again.
    pub(crate) reset: Duration,
}

/// Permit of one concurrent call; released on drop.
pub(crate) struct CallPermit(Arc<Mutex<HashMap<RateLimitKey, usize>>>, RateLimitKey);

impl CallLimiter {
    pub(crate) fn new(limits: &CallerLimits) -> Self {
        let calls = limits
            .calls_per_second
            .map(|rate| Quota::per_second(rate).allow_burst(limits.burst));
        let bytes = limits.bytes_per_minute.map(Quota::per_minute);
        Self {
            calls: calls.map(TimedLimit::calls),
            bytes: bytes.map(TimedLimit::bytes),
            max_concurrent: limits.concurrent_calls,
            concurrent: Arc::default(),
            call_count: AtomicUsize::new(0),
            clock: DefaultClock::default(),
        }
    }

    /// Counts a call with a request of `bytes` bytes.
    ///
    /// # Errors
    /// Rate limited: a limit is exceeded. `Retry-After` is set.
    pub(crate) fn check_call(
        &self,
        key: &RateLimitKey,
        bytes: usize,
    ) -> Result<(Option<RateLimitStatus>, Option<CallPermit>)> {
        let number = self.call_count.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(CLEANUP_EVERY_CALLS) {
            self.drop_idle_keys();
        }
        let status = self.count_call(key)?;
        self.count_bytes(key, bytes)?;
        Ok((status, self.acquire_permit(key)?))
    }

    fn count_call(&self, key: &RateLimitKey) -> Result<Option<RateLimitStatus>> {
        let Some(calls) = &self.calls else {
            return Ok(None);
        };
        let state = calls
            .buckets
            .check_key(key)
            .map_err(|until| self.limited_until("calls_per_second", calls, &until))?;
        let quota = state.quota();
        let limit = quota.burst_size().get();
        let remaining = state.remaining_burst_capacity();
        Ok(Some(RateLimitStatus {
            policy: calls.policy.clone(),
            limit,
            remaining,
            reset: quota.replenish_interval() * limit.saturating_sub(remaining),
        }))
    }

    fn count_bytes(&self, key: &RateLimitKey, bytes: usize) -> Result<()> {
        let weight = u32::try_from(bytes).ok().and_then(NonZeroU32::new);
        let (Some(limit), Some(weight)) = (&self.bytes, weight) else {
            return Ok(());
        };
        let setting = "bytes_per_minute";
        match limit.buckets.check_key_n(key, weight) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(until)) => Err(self.limited_until(setting, limit, &until)),
            // The request exceeds the burst and can never pass.
            Err(_) => Err(rate_limited(setting).with_retry_after(Duration::from_secs(60))),
        }
    }

    fn acquire_permit(&self, key: &RateLimitKey) -> Result<Option<CallPermit>> {
        let Some(max) = self.max_concurrent else {
            return Ok(None);
        };
        let mut concurrent = lock(&self.concurrent);
        let count = concurrent.entry(key.clone()).or_default();
        if *count >= max {
            return Err(rate_limited("concurrent_calls").with_retry_after(RETRY_AFTER));
        }
        *count += 1;
        Ok(Some(CallPermit(self.concurrent.clone(), key.clone())))
    }

    fn limited_until(
        &self,
        setting: &'static str,
        limit: &TimedLimit,
        until: &NotUntil<<DefaultClock as Clock>::Instant>,
    ) -> Error {
        let policy = limit.policy.to_str().unwrap_or_default();
        rate_limited(setting)
            .with_detail("limit", until.quota().burst_size().to_string())
            .with_detail("policy", policy)
            .with_retry_after(until.wait_time_from(self.clock.now()))
    }

    /// Drops keys whose bucket is full: their state equals that of a new key.
    fn drop_idle_keys(&self) {
        for limit in [&self.calls, &self.bytes].into_iter().flatten() {
            limit.buckets.retain_recent();
        }
    }
}

/// Error for an exceeded limit. `setting` is its name in the configuration.
fn rate_limited(setting: &'static str) -> Error {
    metrics::record_limit_hit(setting);
    Error::new(ErrorKind::RateLimited).with_message(format!(
        "too many requests of this caller (limit: {setting})"
    ))
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
    use super::super::Identity;
    use super::*;

    fn key(name: &str) -> RateLimitKey {
        RateLimitKey::new(
            "agent".into(),
            Identity::named(name).key([127, 0, 0, 1].into()),
        )
    }

    #[test]
    fn s67_calls_and_bytes_are_limited_per_caller() {
        let limits = CallerLimits {
            calls_per_second: Some(non_zero(1)),
            burst: non_zero(2),
            bytes_per_minute: Some(non_zero(100)),
            ..CallerLimits::default()
        };
        let limiter = CallLimiter::new(&limits);
        let ann = key("ann");
        let bob = key("bob");
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
    fn s67_concurrent_calls_are_limited_and_permits_released() {
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
    fn anonymous_callers_of_one_network_share_a_key() {
        let at = |text: &str| Identity::anonymous().key(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
        assert_eq!(at("10.0.0.1"), at("::ffff:10.0.0.1"));
    }
}
