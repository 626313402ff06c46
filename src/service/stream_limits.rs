//! Limits of concurrent streams: per server, per task and per caller.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::model::{CallerKey, Error, ErrorKind, Result, TaskId};
use crate::rt::lock;
use crate::telemetry::metrics;

/// `Retry-After` of a refused stream.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Maximum numbers of concurrent streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamLimits {
    pub(crate) total: usize,
    pub(crate) per_task: usize,
    /// Per authenticated caller, and per address of anonymous callers.
    pub(crate) per_caller: usize,
}

/// Counts open streams and enforces [`StreamLimits`].
#[derive(Debug)]
pub(crate) struct StreamLimiter {
    limits: StreamLimits,
    counts: Mutex<StreamCounts>,
}

#[derive(Debug, Default)]
struct StreamCounts {
    total: usize,
    by_task: HashMap<TaskId, usize>,
    by_caller: HashMap<CallerKey, usize>,
}

/// Slot of one open stream; released on drop.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    limiter: Arc<StreamLimiter>,
    caller: CallerKey,
    task: Option<TaskId>,
}

impl StreamLimiter {
    pub(crate) fn new(limits: StreamLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            counts: Mutex::default(),
        })
    }

    /// Acquires a slot.
    ///
    /// # Errors
    /// Unavailable: the caller or the server has reached its limit.
    pub(crate) fn acquire(self: &Arc<Self>, caller: CallerKey) -> Result<StreamPermit> {
        let mut counts = self.counts();
        let caller_streams = counts.by_caller.get(&caller).copied();
        if caller_streams.unwrap_or_default() >= self.limits.per_caller {
            let max = self.limits.per_caller;
            return Err(limit_reached("this caller", "max_streams_per_caller", max));
        }
        if counts.total >= self.limits.total {
            return Err(limit_reached(
                "this server",
                "max_streams",
                self.limits.total,
            ));
        }
        counts.total += 1;
        *counts.by_caller.entry(caller.clone()).or_default() += 1;
        drop(counts);
        metrics::record_stream_opened();
        Ok(StreamPermit {
            limiter: self.clone(),
            caller,
            task: None,
        })
    }

    fn counts(&self) -> MutexGuard<'_, StreamCounts> {
        lock(&self.counts)
    }
}

impl StreamPermit {
    /// Returns the caller of the stream.
    pub(super) fn caller(&self) -> &CallerKey {
        &self.caller
    }

    /// Counts the stream against the limit of a task.
    ///
    /// # Errors
    /// Unavailable: the task has reached its limit. The slot is released.
    pub(super) fn for_task(mut self, task: &TaskId) -> Result<Self> {
        let mut counts = self.limiter.counts();
        let task_streams = counts.by_task.entry(task.clone()).or_default();
        if *task_streams >= self.limiter.limits.per_task {
            let max = self.limiter.limits.per_task;
            return Err(limit_reached("this task", "max_streams_per_task", max));
        }
        *task_streams += 1;
        drop(counts);
        self.task = Some(task.clone());
        Ok(self)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        metrics::record_stream_closed();
        let mut counts = self.limiter.counts();
        counts.total -= 1;
        if let Some(task) = &self.task {
            decrement(&mut counts.by_task, task);
        }
        decrement(&mut counts.by_caller, &self.caller);
    }
}

fn decrement<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn limit_reached(subject: &str, setting: &'static str, max: usize) -> Error {
    metrics::record_limit_hit(setting);
    Error::new(ErrorKind::Unavailable)
        .with_message(format!(
            "too many open streams for {subject} (limit: {setting} = {max})"
        ))
        .with_retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Caller, ClientAddress};

    #[test]
    fn s64_streams_are_limited_per_task_per_caller_and_in_total() {
        let limiter = StreamLimiter::new(StreamLimits {
            total: 4,
            per_task: 2,
            per_caller: 3,
        });
        let acquire = |id: &str, caller: &CallerKey| {
            limiter
                .acquire(caller.clone())
                .and_then(|permit| permit.for_task(&id.into()))
        };
        let ann = CallerKey::Caller(Caller::new("ann"));
        let anonymous = CallerKey::Address(ClientAddress::from_ipv6([1; 16]));
        let first = acquire("a", &anonymous).unwrap();
        let _second = acquire("a", &anonymous).unwrap();
        assert_eq!(
            acquire("a", &anonymous).unwrap_err().kind(),
            ErrorKind::Unavailable
        );
        drop(first);
        let mine: Vec<_> = ["a", "b", "b"].map(|id| acquire(id, &ann).unwrap()).into();
        let refused = acquire("c", &ann).unwrap_err();
        assert!(
            refused.message().contains("max_streams_per_caller = 3"),
            "{refused}"
        );
        let refused = acquire("c", &anonymous).unwrap_err();
        assert!(refused.message().contains("max_streams = 4"), "{refused}");
        assert_eq!(refused.retry_after(), Some(RETRY_AFTER));
        drop(mine);
        assert_eq!(limiter.counts().by_caller.len(), 1);
        assert!(acquire("c", &ann).is_ok());
    }

    #[test]
    fn d05_streams_are_limited_per_address_of_anonymous_callers() {
        let limiter = StreamLimiter::new(StreamLimits {
            total: 4,
            per_task: 4,
            per_caller: 2,
        });
        let at = |last: u8| {
            let octets = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last];
            CallerKey::Address(ClientAddress::from_ipv6(octets))
        };
        let _held = [1, 1].map(|last| limiter.acquire(at(last)).unwrap());
        let refused = limiter.acquire(at(1)).unwrap_err();
        assert!(
            refused.message().contains("max_streams_per_caller = 2"),
            "{refused}"
        );
        assert!(limiter.acquire(at(2)).is_ok());
    }
}
