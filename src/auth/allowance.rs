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
use crate::metrics;
use crate::model::measure::{Count, SizeOrUnlimited};
use crate::model::{Caller, Error, ErrorKind, Result};

/// How often those who have not called for a while are forgotten: once in so many calls.
const FORGET_EVERY: usize = 1024;
/// How long a caller with too many calls at the same time is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How much each caller may do with one agent. Those whom nobody knows are told apart by their address. `None`: as much as they
/// like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Allowance {
    /// Calls in a second, in the long run.
    #[serde(with = "Count")]
    pub calls_per_second: Option<NonZeroU32>,
    /// Calls at once, after a pause.
    pub burst: NonZeroU32,
    /// Bytes of requests in a minute, and also at once.
    #[serde(with = "SizeOrUnlimited")]
    pub bytes_per_minute: Option<NonZeroU32>,
    /// Calls that wait for their answer at the same time; streams are counted apart.
    #[serde(with = "Count")]
    pub concurrent_calls: Option<usize>,
    /// Tasks that have not ended.
    #[serde(with = "Count")]
    pub open_tasks: Option<u64>,
    /// Tasks that wait for their caller: with more than these nobody opens another.
    #[serde(with = "Count")]
    pub parked_tasks: Option<u64>,
    /// Tasks of all callers of a tenant together that have not ended. Callers of no tenant are one.
    #[serde(with = "Count")]
    pub tenant_open_tasks: Option<u64>,
    /// Tasks of all callers of a tenant together that are kept, ended or not: with more than these nobody of it opens another.
    #[serde(with = "Count")]
    pub tenant_tasks: Option<u64>,
}

const fn some(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            calls_per_second: Some(some(100)),
            burst: some(400),
            bytes_per_minute: Some(some(256 << 20)),
            concurrent_calls: Some(256),
            open_tasks: Some(10_000),
            parked_tasks: Some(1_000),
            tenant_open_tasks: None,
            tenant_tasks: None,
        }
    }
}

/// Whose allowance it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spender(Arc<str>, Who);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    Known(Caller),
    Somewhere(IpAddr),
}

impl Spender {
    pub(crate) fn new(agent: Arc<str>, identity: &Identity, peer: IpAddr) -> Self {
        let who = match identity.is_anonymous() {
            true => Who::Somewhere(network(peer)),
            false => Who::Known(identity.caller().clone()),
        };
        Self(agent, who)
    }
}

/// Somebody with one address of IPv6 has all that begin alike.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

type Limiter =
    RateLimiter<Spender, DashMapStateStore<Spender>, DefaultClock, StateInformationMiddleware>;

/// Counts what callers do.
pub(crate) struct Meter {
    calls: Option<Limiter>,
    bytes: Option<Limiter>,
    most_at_once: Option<usize>,
    at_once: Arc<Mutex<HashMap<Spender, usize>>>,
    counted: AtomicUsize,
    clock: DefaultClock,
}

/// What is left of an allowance of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// When all of it is there again.
    pub(crate) reset: Duration,
}

/// One call among those at the same time; over when dropped.
pub(crate) struct UnderWay(Arc<Mutex<HashMap<Spender, usize>>>, Spender);

impl Meter {
    pub(crate) fn new(allowance: &Allowance) -> Self {
        let limiter =
            |quota| RateLimiter::dashmap(quota).with_middleware::<StateInformationMiddleware>();
        let calls = allowance
            .calls_per_second
            .map(|rate| Quota::per_second(rate).allow_burst(allowance.burst));
        Self {
            calls: calls.map(limiter),
            bytes: allowance
                .bytes_per_minute
                .map(Quota::per_minute)
                .map(limiter),
            most_at_once: allowance.concurrent_calls,
            at_once: Arc::default(),
            counted: AtomicUsize::new(0),
            clock: DefaultClock::default(),
        }
    }

    /// Counts a call of so many bytes.
    ///
    /// # Errors
    /// Rate limited: the caller has to wait.
    pub(crate) fn spend(
        &self,
        spender: &Spender,
        bytes: usize,
    ) -> Result<(Option<Left>, Option<UnderWay>)> {
        if self
            .counted
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(FORGET_EVERY)
        {
            self.forget();
        }
        let left = match &self.calls {
            Some(calls) => {
                let state = calls
                    .check_key(spender)
                    .map_err(|until| self.wait(&until, "calls"))?;
                let (quota, remaining) = (state.quota(), state.remaining_burst_capacity());
                let limit = quota.burst_size().get();
                let reset = quota.replenish_interval() * limit.saturating_sub(remaining);
                Some(Left {
                    limit,
                    remaining,
                    reset,
                })
            }
            None => None,
        };
        let weight = u32::try_from(bytes).ok().and_then(NonZeroU32::new);
        if let (Some(limiter), Some(weight)) = (&self.bytes, weight) {
            match limiter.check_key_n(spender, weight) {
                Ok(Ok(_)) => {}
                Ok(Err(until)) => return Err(self.wait(&until, "bytes")),
                // More than there ever is at once.
                Err(_) => return Err(limited("bytes").with_retry_after(Duration::from_secs(60))),
            }
        }
        Ok((left, self.begin(spender)?))
    }

    fn begin(&self, spender: &Spender) -> Result<Option<UnderWay>> {
        let Some(most) = self.most_at_once else {
            return Ok(None);
        };
        let mut at_once = lock(&self.at_once);
        let count = at_once.entry(spender.clone()).or_default();
        if *count >= most {
            return Err(limited("calls at the same time").with_retry_after(RETRY_AFTER));
        }
        *count += 1;
        Ok(Some(UnderWay(self.at_once.clone(), spender.clone())))
    }

    fn wait(&self, until: &NotUntil<<DefaultClock as Clock>::Instant>, of: &'static str) -> Error {
        let wait = until.wait_time_from(self.clock.now());
        limited(of)
            .with("limit", until.quota().burst_size().to_string())
            .with_retry_after(wait)
    }

    /// Those who have all of their allowance are as if they had never called.
    fn forget(&self) {
        for limiter in [&self.calls, &self.bytes].into_iter().flatten() {
            limiter.retain_recent();
        }
    }
}

fn limited(of: &'static str) -> Error {
    metrics::limit(match of {
        "calls" => "calls_per_second",
        "bytes" => "bytes_per_minute",
        _ => "concurrent_calls",
    });
    Error::new(ErrorKind::RateLimited).with_message(format!(
        "Too many requests: the caller has used up its {of}"
    ))
}

fn lock(counts: &Mutex<HashMap<Spender, usize>>) -> MutexGuard<'_, HashMap<Spender, usize>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut at_once = lock(&self.0);
        if let Some(count) = at_once.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                at_once.remove(&self.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spender(name: &str) -> Spender {
        Spender::new(
            "agent".into(),
            &Identity::named(name),
            [127, 0, 0, 1].into(),
        )
    }

    #[test]
    fn s67_calls_and_bytes_are_counted_by_caller() {
        let allowance = Allowance {
            calls_per_second: Some(some(1)),
            burst: some(2),
            bytes_per_minute: Some(some(100)),
            ..Allowance::default()
        };
        let meter = Meter::new(&allowance);
        let (ann, bob) = (spender("ann"), spender("bob"));
        assert_eq!(meter.spend(&ann, 10).unwrap().0.unwrap().remaining, 1);
        meter.spend(&ann, 10).unwrap();
        let refused = meter.spend(&ann, 10).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::RateLimited);
        assert!(refused.retry_after().unwrap() <= Duration::from_secs(1));
        meter.spend(&bob, 90).unwrap();
        assert!(
            meter
                .spend(&bob, 90)
                .err()
                .unwrap()
                .message()
                .contains("bytes")
        );
        assert!(meter.spend(&spender("eve"), 101).is_err());
    }

    #[test]
    fn s67_calls_at_the_same_time_are_counted_and_given_back() {
        let meter = Meter::new(&Allowance {
            concurrent_calls: Some(1),
            ..Allowance::default()
        });
        let first = meter.spend(&spender("ann"), 0).unwrap();
        assert!(meter.spend(&spender("ann"), 0).is_err());
        meter.spend(&spender("bob"), 0).unwrap();
        drop(first);
        meter.spend(&spender("ann"), 0).unwrap();
        assert!(lock(&meter.at_once).is_empty());
    }

    #[test]
    fn whoever_has_a_network_is_one() {
        let at =
            |text: &str| Spender::new("a".into(), &Identity::anonymous(), text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
        assert_eq!(at("10.0.0.1"), at("::ffff:10.0.0.1"));
    }
}
