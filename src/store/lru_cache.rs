//! A bounded memory by task: what nobody has asked for again goes first.

use std::collections::{HashMap, VecDeque};

use crate::model::TaskId;

/// Remembers something of as many tasks as fit.
///
/// What was asked for since its turn to go last came stays for another round. That is nearly the order of use, and to ask
/// costs no more than a look and a mark.
#[derive(Debug)]
pub(crate) struct LruCache<T> {
    /// The most that all of it may weigh.
    capacity: usize,
    weight: usize,
    entries: HashMap<TaskId, LruEntry<T>>,
    /// Who goes next, by the number of the place: a task that was forgotten and came again has another.
    queue: VecDeque<(TaskId, u64)>,
    last_number: u64,
}

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

    /// What is remembered of a task, for one who asks for it.
    pub(crate) fn get(&mut self, id: &TaskId) -> Option<&T> {
        let entry = self.entries.get_mut(id)?;
        entry.is_referenced = true;
        Some(&entry.value)
    }

    /// The same, for one who keeps it up to date.
    pub(crate) fn get_mut(&mut self, id: &TaskId) -> Option<&mut T> {
        self.entries.get_mut(id).map(|entry| &mut entry.value)
    }

    /// Remembers something, in the place of what was remembered of the same task, if it fits at all.
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

    /// Takes note that what is remembered of a task has become heavier.
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

    /// Forgets a task.
    pub(crate) fn remove(&mut self, id: &TaskId) {
        let Some(entry) = self.entries.remove(id) else {
            return;
        };
        self.weight -= entry.weight;
        // Those who were forgotten before their turn still stand in the queue: not for ever.
        if self.queue.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.queue.retain(|(id, number)| {
                entries.get(id).is_some_and(|entry| entry.number == *number)
            });
        }
    }

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
    fn what_nobody_asked_for_again_goes_first() {
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
            "as many go as must"
        );
    }

    #[test]
    fn what_is_too_large_is_not_remembered_and_moves_nobody() {
        let mut cache = LruCache::new(35);
        cache.put(&"a".into(), 10, 1);
        cache.put(&"b".into(), 40, 2);
        assert_eq!(present(&mut cache, &["a", "b"]), [1, 0]);
    }

    #[test]
    fn what_becomes_heavier_makes_others_go_and_at_last_goes_itself() {
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
    fn a_task_that_comes_and_goes_leaves_nothing_behind() {
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
