//! Limits of concurrent streams: per server, per task and per caller.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::model::{Caller, Error, ErrorKind, Result, TaskId};
use crate::rt::lock;
use crate::telemetry::metrics;

/// `Retry-After` of a refused stream.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Maximum numbers of concurrent streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamLimits {
    pub(crate) total: usize,
    pub(crate) per_task: usize,
    /// Per authenticated caller. Anonymous callers share one identity and are not counted.
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
    by_caller: HashMap<Caller, usize>,
}

/// Slot of one open stream; released on drop.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    limiter: Arc<StreamLimiter>,
    caller: Option<Caller>,
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
    pub(super) fn acquire(self: &Arc<Self>, caller: &Caller) -> Result<StreamPermit> {
        let caller = (*caller != Caller::anonymous()).then(|| caller.clone());
        let mut counts = self.counts();
        let caller_streams = caller
            .as_ref()
            .and_then(|caller| counts.by_caller.get(caller))
            .copied();
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
        if let Some(caller) = &caller {
            *counts.by_caller.entry(caller.clone()).or_default() += 1;
        }
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
        if let Some(task) = self.task.take() {
            decrement(&mut counts.by_task, task);
        }
        if let Some(caller) = self.caller.take() {
            decrement(&mut counts.by_caller, caller);
        }
    }
}

fn decrement<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
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

    #[test]
    fn s64_streams_are_limited_per_task_per_caller_and_in_total() {
        let limiter = StreamLimiter::new(StreamLimits {
            total: 4,
            per_task: 2,
            per_caller: 3,
        });
        let acquire = |id: &str, caller: &Caller| {
            limiter
                .acquire(caller)
                .and_then(|permit| permit.for_task(&id.into()))
        };
        let ann = Caller::new("ann");
        let anonymous = Caller::anonymous();
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
        assert_eq!(limiter.counts().by_caller.len(), 0);
        assert!(acquire("c", &ann).is_ok());
    }
}
