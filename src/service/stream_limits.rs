//! How many may read streams at the same time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::model::{Caller, Error, ErrorKind, Result, TaskId};
use crate::telemetry::metrics;

/// How long a caller who finds no place is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How many streams there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamLimits {
    pub(crate) total: usize,
    pub(crate) per_task: usize,
    /// Of a caller whom we know: everybody else is one and the same.
    pub(crate) per_caller: usize,
}

/// The streams that there are.
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

/// A place among those who read; given back when dropped.
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

    /// A place for one more.
    ///
    /// # Errors
    /// Unavailable: there are enough, of this caller or in all.
    pub(super) fn acquire(self: &Arc<Self>, caller: &Caller) -> Result<StreamPermit> {
        let caller = (*caller != Caller::anonymous()).then(|| caller.clone());
        let mut counts = self.counts();
        let caller_streams = caller
            .as_ref()
            .and_then(|caller| counts.by_caller.get(caller))
            .copied();
        if caller_streams.unwrap_or_default() >= self.limits.per_caller {
            return Err(limit_reached(
                "the caller has as many streams as max_streams_per_caller allows",
                "max_streams_per_caller",
            ));
        }
        if counts.total >= self.limits.total {
            return Err(limit_reached(
                "there are as many streams as max_streams allows",
                "max_streams",
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
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamPermit {
    /// The place, at a task.
    ///
    /// # Errors
    /// Unavailable: the task has enough streams.
    pub(super) fn for_task(mut self, task: &TaskId) -> Result<Self> {
        let mut counts = self.limiter.counts();
        let task_streams = counts.by_task.entry(task.clone()).or_default();
        if *task_streams >= self.limiter.limits.per_task {
            return Err(limit_reached(
                "the task has as many streams as max_streams_per_task allows",
                "max_streams_per_task",
            ));
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

fn limit_reached(message: &'static str, limit: &'static str) -> Error {
    metrics::record_limit_hit(limit);
    Error::new(ErrorKind::Unavailable)
        .with_message(message)
        .with_retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s64_streams_are_counted_by_task_by_caller_and_in_all() {
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
        let (known, unknown) = (Caller::new("ann"), Caller::anonymous());
        let first = acquire("a", &unknown).unwrap();
        let _second = acquire("a", &unknown).unwrap();
        assert_eq!(
            acquire("a", &unknown).unwrap_err().kind(),
            ErrorKind::Unavailable
        );
        drop(first);
        let mine: Vec<_> = ["a", "b", "b"]
            .map(|id| acquire(id, &known).unwrap())
            .into();
        let refused = acquire("c", &known).unwrap_err();
        assert!(
            refused.message().contains("max_streams_per_caller"),
            "{refused}"
        );
        let refused = acquire("c", &unknown).unwrap_err();
        assert!(
            refused.message().contains("max_streams allows"),
            "{refused}"
        );
        assert_eq!(refused.retry_after(), Some(RETRY_AFTER));
        drop(mine);
        assert_eq!(limiter.counts().by_caller.len(), 0);
        assert!(acquire("c", &known).is_ok());
    }
}
