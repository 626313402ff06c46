//! Bounded cache of resolved names.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of names. The oldest is removed first.
const MAX_NAMES: usize = 1024;
/// Longest time for which a failed lookup is remembered. A name that is registered meanwhile is found after it.
const MAX_FAILURE_TIME: Duration = Duration::from_secs(5);

/// Addresses of a name, or the kind of error of its lookup.
pub(super) type CachedLookup = Result<Arc<[IpAddr]>, io::ErrorKind>;

/// Results of name lookups, each for a limited time.
pub(super) struct LookupCache {
    time: Duration,
    entries: HashMap<Arc<str>, CacheEntry>,
    /// Names in the order of insertion, with the number of their entry.
    queue: VecDeque<(Arc<str>, u64)>,
    last_number: u64,
}

struct CacheEntry {
    lookup: CachedLookup,
    expires: Instant,
    number: u64,
}

impl LookupCache {
    /// Creates a cache that keeps addresses for `time`.
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time,
            entries: HashMap::new(),
            queue: VecDeque::new(),
            last_number: 0,
        }
    }

    /// Returns the result of a lookup that has not expired.
    pub(super) fn get(&self, name: &str, now: Instant) -> Option<CachedLookup> {
        let entry = self.entries.get(name)?;
        (now < entry.expires).then(|| entry.lookup.clone())
    }

    /// Inserts or replaces the result of a lookup.
    pub(super) fn insert(&mut self, name: Box<str>, lookup: CachedLookup, now: Instant) {
        let name: Arc<str> = name.into();
        let time = match lookup {
            Ok(_) => self.time,
            Err(_) => self.time.min(MAX_FAILURE_TIME),
        };
        self.last_number += 1;
        let entry = CacheEntry {
            lookup,
            expires: now + time,
            number: self.last_number,
        };
        self.entries.insert(name.clone(), entry);
        self.queue.push_back((name, self.last_number));
        while self.queue.len() > MAX_NAMES {
            self.remove_oldest();
        }
    }

    /// Removes the oldest entry, unless its name was inserted again since.
    fn remove_oldest(&mut self) {
        let Some((name, number)) = self.queue.pop_front() else {
            return;
        };
        if self
            .entries
            .get(&name)
            .is_some_and(|entry| entry.number == number)
        {
            self.entries.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> CachedLookup {
        Ok(Arc::from([IpAddr::from([192, 0, 2, 1])]))
    }

    #[test]
    fn results_expire_and_failures_sooner() {
        let start = Instant::now();
        let mut cache = LookupCache::new(Duration::from_secs(30));
        cache.insert("a".into(), address(), start);
        cache.insert("b".into(), Err(io::ErrorKind::NotFound), start);
        let is_known = |name, seconds| {
            cache
                .get(name, start + Duration::from_secs(seconds))
                .is_some()
        };
        assert!(is_known("a", 29) && !is_known("a", 30));
        assert!(is_known("b", 4) && !is_known("b", 5));
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let start = Instant::now();
        let mut cache = LookupCache::new(Duration::from_secs(30));
        for number in 0..3 * MAX_NAMES {
            cache.insert(number.to_string().into(), address(), start);
            cache.insert("again".into(), address(), start);
        }
        assert!(cache.entries.len() <= MAX_NAMES && cache.queue.len() <= MAX_NAMES);
        assert!(cache.get("again", start).is_some());
    }
}
