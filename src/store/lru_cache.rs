//! Bounded cache by task with approximate LRU eviction.

use std::collections::{HashMap, VecDeque};

use crate::model::TaskId;

/// Cache of one value per task, bounded by total weight.
///
/// Evicts by second chance (the CLOCK algorithm): an entry that was read since it last reached the head of the queue is
/// requeued instead. That approximates LRU, and a read only sets a flag.
#[derive(Debug)]
pub(crate) struct LruCache<T> {
    /// Maximum total weight.
    capacity: usize,
    weight: usize,
    entries: HashMap<TaskId, LruEntry<T>>,
    /// Eviction order by task and entry number. A task that was removed and inserted again has a new number.
    queue: VecDeque<(TaskId, u64)>,
    last_number: u64,
}

/// Cached value with its weight.
#[derive(Debug)]
struct LruEntry<T> {
    value: T,
    weight: usize,
    number: u64,
    is_referenced: bool,
}

impl<T> LruCache<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            weight: 0,
            entries: HashMap::new(),
            queue: VecDeque::new(),
            last_number: 0,
        }
    }

    /// Returns the value of a task and marks it as read.
    pub(crate) fn get(&mut self, id: &TaskId) -> Option<&T> {
        let entry = self.entries.get_mut(id)?;
        entry.is_referenced = true;
        Some(&entry.value)
    }

    /// Returns the value of a task for an update. Does not mark it as read.
    pub(crate) fn get_mut(&mut self, id: &TaskId) -> Option<&mut T> {
        self.entries.get_mut(id).map(|entry| &mut entry.value)
    }

    /// Inserts or replaces the value of a task. A value heavier than the capacity is not cached.
    pub(crate) fn put(&mut self, id: &TaskId, weight: usize, value: T) {
        self.remove(id);
        if weight > self.capacity {
            return;
        }
        self.evict(weight);
        self.last_number += 1;
        self.weight += weight;
        self.queue.push_back((id.clone(), self.last_number));
        let entry = LruEntry {
            value,
            weight,
            number: self.last_number,
            is_referenced: false,
        };
        self.entries.insert(id.clone(), entry);
    }

    /// Adds to the weight of a cached value.
    pub(crate) fn grow(&mut self, id: &TaskId, by: usize) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.weight += by;
        self.weight += by;
        if entry.weight > self.capacity {
            self.remove(id);
        }
        self.evict(0);
    }

    /// Removes the value of a task.
    pub(crate) fn remove(&mut self, id: &TaskId) {
        let Some(entry) = self.entries.remove(id) else {
            return;
        };
        self.weight -= entry.weight;
        // The queue keeps numbers of removed entries. Compact it when they outnumber the entries.
        if self.queue.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.queue.retain(|(id, number)| {
                entries.get(id).is_some_and(|entry| entry.number == *number)
            });
        }
    }

    /// Evicts entries until `weight` more fits.
    fn evict(&mut self, weight: usize) {
        while self.weight + weight > self.capacity {
            let Some((id, number)) = self.queue.pop_front() else {
                return;
            };
            match self
                .entries
                .get_mut(&id)
                .filter(|entry| entry.number == number)
            {
                Some(entry) if entry.is_referenced => {
                    entry.is_referenced = false;
                    self.queue.push_back((id, number));
                }
                Some(_) => self.remove(&id),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(cache: &mut LruCache<u32>, ids: &[&str]) -> Vec<u32> {
        ids.iter()
            .map(|id| cache.get(&TaskId::from(*id)).copied().unwrap_or_default())
            .collect()
    }

    #[test]
    fn unread_entries_are_evicted_first() {
        let mut cache = LruCache::new(35);
        for (id, value) in [("a", 1), ("b", 2), ("c", 3)] {
            cache.put(&id.into(), 10, value);
        }
        assert_eq!(present(&mut cache, &["a", "c"]), [1, 3]);
        cache.put(&"d".into(), 10, 4);
        assert_eq!(present(&mut cache, &["a", "b", "c", "d"]), [1, 0, 3, 4]);
        cache.put(&"e".into(), 25, 5);
        assert_eq!(present(&mut cache, &["e"]), [5]);
        assert!(
            cache.weight <= 35 && cache.entries.len() == 2,
            "evicts no more than needed"
        );
    }

    #[test]
    fn a_too_heavy_value_is_not_cached_and_evicts_nothing() {
        let mut cache = LruCache::new(35);
        cache.put(&"a".into(), 10, 1);
        cache.put(&"b".into(), 40, 2);
        assert_eq!(present(&mut cache, &["a", "b"]), [1, 0]);
    }

    #[test]
    fn a_growing_entry_evicts_others_and_finally_itself() {
        let mut cache = LruCache::new(35);
        cache.put(&"a".into(), 10, 1);
        cache.put(&"b".into(), 10, 2);
        present(&mut cache, &["b"]);
        cache.grow(&"b".into(), 20);
        assert_eq!(
            (present(&mut cache, &["a", "b"]), cache.weight),
            (vec![0, 2], 30)
        );
        cache.grow(&"b".into(), 6);
        cache.grow(&"b".into(), 6);
        assert_eq!((present(&mut cache, &["b"]), cache.weight), (vec![0], 0));
    }

    #[test]
    fn repeated_insert_and_remove_does_not_grow_the_queue() {
        let mut cache = LruCache::new(35);
        for value in 1..1_000 {
            cache.put(&"a".into(), 30, value);
            assert_eq!(present(&mut cache, &["a"]), [value]);
            cache.remove(&"a".into());
        }
        assert_eq!((cache.weight, cache.entries.len()), (0, 0));
        assert!(cache.queue.len() <= 16);
    }
}
