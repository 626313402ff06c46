//! Logs that nobody works on, folded: as many as fit, for those who ask again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::log::Log;
use crate::model::TaskId;

/// A bounded memory of folded logs; those that were asked for longest ago go first.
///
/// A log only grows, so none of them is ever wrong: at most entries came behind it, and its position tells.
pub(super) struct Resting {
    /// The most that all of them may weigh, in bytes.
    most: usize,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    logs: HashMap<TaskId, Place>,
    /// In the order in which they were asked for last.
    by_use: BTreeMap<u64, TaskId>,
    weight: usize,
    uses: u64,
}

struct Place {
    log: Log,
    weight: usize,
    used: u64,
}

impl Resting {
    pub(super) fn new(most: usize) -> Self {
        Self { most, shelf: Mutex::default() }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Every section below leaves the shelf whole, so a panic elsewhere spoils nothing.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log as it was when somebody read it last.
    pub(super) fn get(&self, id: &TaskId) -> Option<Log> {
        let mut shelf = self.shelf();
        let shelf = &mut *shelf;
        let place = shelf.logs.get_mut(id)?;
        shelf.by_use.remove(&place.used);
        shelf.uses += 1;
        place.used = shelf.uses;
        shelf.by_use.insert(place.used, id.clone());
        Some(place.log.clone())
    }

    /// Remembers a log, in the place of an older one of the same task.
    pub(super) fn put(&self, id: &TaskId, log: &Log) {
        let weight = log.task.weight();
        let mut shelf = self.shelf();
        if shelf.logs.get(id).is_some_and(|place| place.log.at >= log.at) {
            return;
        }
        shelf.remove(id);
        if weight > self.most {
            return;
        }
        shelf.uses += 1;
        let used = shelf.uses;
        shelf.weight += weight;
        shelf.by_use.insert(used, id.clone());
        shelf.logs.insert(id.clone(), Place { log: log.clone(), weight, used });
        while shelf.weight > self.most {
            let Some((_, oldest)) = shelf.by_use.pop_first() else { return };
            shelf.remove(&oldest);
        }
    }

    /// Forgets a log.
    pub(super) fn remove(&self, id: &TaskId) {
        self.shelf().remove(id);
    }
}

impl Shelf {
    fn remove(&mut self, id: &TaskId) {
        if let Some(place) = self.logs.remove(id) {
            self.by_use.remove(&place.used);
            self.weight -= place.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Artifact, Entry, Event, Part, Seq, Timestamp};

    fn log(id: &str, at: u64, text: usize) -> Log {
        let created = Event::Created { id: id.into(), context_id: "c".into(), metadata: None };
        let artifact = Artifact { parts: vec![Part::text("x".repeat(text))], ..Artifact::default() };
        let artifact = Event::Artifact { artifact, append: false, last_chunk: true, metadata: None };
        let mut log = Log::empty();
        for (seq, event) in (1..).zip([created, artifact]) {
            log.apply(&Entry { seq: Seq(seq), time: Timestamp::default(), event }).unwrap();
        }
        log.at = Seq(at);
        log
    }

    fn there(resting: &Resting, ids: &[&str]) -> Vec<u64> {
        let found = ids.iter().map(|id| resting.get(&TaskId::from(*id)).map_or(0, |log| log.at.0));
        found.collect()
    }

    #[test]
    fn what_was_asked_for_longest_ago_goes_first() {
        let resting = Resting::new(35_000);
        for id in ["a", "b", "c"] {
            resting.put(&id.into(), &log(id, 2, 10_000));
        }
        assert_eq!(there(&resting, &["c", "b", "a"]), [2, 2, 2]);
        resting.put(&"d".into(), &log("d", 2, 10_000));
        assert_eq!(there(&resting, &["a", "b", "c", "d"]), [2, 2, 0, 2]);
        resting.put(&"e".into(), &log("e", 2, 25_000));
        assert_eq!(there(&resting, &["a", "b", "d", "e"]), [0, 0, 0, 2], "as many go as must");
    }

    #[test]
    fn what_is_too_large_is_not_remembered_and_moves_nobody() {
        let resting = Resting::new(35_000);
        resting.put(&"a".into(), &log("a", 2, 10_000));
        resting.put(&"b".into(), &log("b", 2, 40_000));
        assert_eq!(there(&resting, &["a", "b"]), [2, 0]);
        Resting::new(0).put(&"a".into(), &log("a", 2, 0));
    }

    #[test]
    fn the_newest_of_a_task_is_remembered_and_counted_once() {
        let resting = Resting::new(35_000);
        for at in [5, 9, 7] {
            resting.put(&"a".into(), &log("a", at, 30_000));
        }
        assert_eq!(there(&resting, &["a"]), [9]);
        resting.remove(&"a".into());
        resting.remove(&"a".into());
        assert_eq!(there(&resting, &["a"]), [0]);
        let shelf = resting.shelf();
        assert_eq!((shelf.weight, shelf.by_use.len(), shelf.logs.len()), (0, 0, 0));
    }
}
