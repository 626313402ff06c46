//! How many may read streams at the same time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::metrics;
use crate::model::{Caller, Error, ErrorKind, Result, TaskId};

/// How long a caller who finds no place is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How many streams there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Most {
    pub(crate) in_all: usize,
    pub(crate) per_task: usize,
    /// Of a caller whom we know: everybody else is one and the same.
    pub(crate) per_caller: usize,
}

/// The streams that there are.
#[derive(Debug)]
pub(crate) struct Places {
    most: Most,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    in_all: usize,
    by_task: HashMap<TaskId, usize>,
    by_caller: HashMap<Caller, usize>,
}

/// A place among those who read; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    caller: Option<Caller>,
    task: Option<TaskId>,
}

impl Places {
    pub(crate) fn new(most: Most) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Mutex::default(),
        })
    }

    /// A place for one more.
    ///
    /// # Errors
    /// Unavailable: there are enough, of this caller or in all.
    pub(super) fn take(self: &Arc<Self>, caller: &Caller) -> Result<Place> {
        let caller = (*caller != Caller::anonymous()).then(|| caller.clone());
        let mut taken = self.taken();
        let of_caller = caller
            .as_ref()
            .and_then(|caller| taken.by_caller.get(caller))
            .copied();
        if of_caller.unwrap_or_default() >= self.most.per_caller {
            return Err(full(
                "the caller has as many streams as max_streams_per_caller allows",
                "max_streams_per_caller",
            ));
        }
        if taken.in_all >= self.most.in_all {
            return Err(full(
                "there are as many streams as max_streams allows",
                "max_streams",
            ));
        }
        taken.in_all += 1;
        if let Some(caller) = &caller {
            *taken.by_caller.entry(caller.clone()).or_default() += 1;
        }
        drop(taken);
        metrics::stream_opened();
        Ok(Place {
            places: self.clone(),
            caller,
            task: None,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The place, at a task.
    ///
    /// # Errors
    /// Unavailable: the task has enough streams.
    pub(super) fn at(mut self, task: &TaskId) -> Result<Self> {
        let mut taken = self.places.taken();
        let of_task = taken.by_task.entry(task.clone()).or_default();
        if *of_task >= self.places.most.per_task {
            return Err(full(
                "the task has as many streams as max_streams_per_task allows",
                "max_streams_per_task",
            ));
        }
        *of_task += 1;
        drop(taken);
        self.task = Some(task.clone());
        Ok(self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::stream_closed();
        let mut taken = self.places.taken();
        taken.in_all -= 1;
        if let Some(task) = self.task.take() {
            one_less(&mut taken.by_task, task);
        }
        if let Some(caller) = self.caller.take() {
            one_less(&mut taken.by_caller, caller);
        }
    }
}

fn one_less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

fn full(message: &'static str, limit: &'static str) -> Error {
    metrics::limit(limit);
    Error::new(ErrorKind::Unavailable)
        .with_message(message)
        .with_retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s64_streams_are_counted_by_task_by_caller_and_in_all() {
        let places = Places::new(Most {
            in_all: 4,
            per_task: 2,
            per_caller: 3,
        });
        let take =
            |id: &str, caller: &Caller| places.take(caller).and_then(|place| place.at(&id.into()));
        let (known, unknown) = (Caller::named("ann"), Caller::anonymous());
        let first = take("a", &unknown).unwrap();
        let _second = take("a", &unknown).unwrap();
        assert_eq!(
            take("a", &unknown).unwrap_err().kind(),
            ErrorKind::Unavailable
        );
        drop(first);
        let mine: Vec<_> = ["a", "b", "b"].map(|id| take(id, &known).unwrap()).into();
        let refused = take("c", &known).unwrap_err();
        assert!(
            refused.message().contains("max_streams_per_caller"),
            "{refused}"
        );
        let refused = take("c", &unknown).unwrap_err();
        assert!(
            refused.message().contains("max_streams allows"),
            "{refused}"
        );
        assert_eq!(refused.retry_after(), Some(RETRY_AFTER));
        drop(mine);
        assert_eq!(places.taken().by_caller.len(), 0);
        assert!(take("c", &known).is_ok());
    }
}
