//! Logs that nobody works on, folded: as many as fit, for those who ask again.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::log::Log;
use super::recorded::Places;
use crate::model::{Task, TaskId};
use crate::store::Recent;

/// A bounded memory of folded logs, and of what their tasks look like on the wire; those that nobody has asked for again
/// go first.
///
/// A log only grows, so none of them is ever wrong: at most entries came behind it, and its position tells.
#[derive(Clone)]
pub(super) struct Resting {
    shelf: Arc<Mutex<Recent<Arc<Rest>>>>,
}

/// A log that was read, with room for the forms in which its task goes out.
pub(super) struct Rest {
    pub(super) log: Log,
    forms: Places<Bytes>,
}

impl Resting {
    /// All of them may weigh so much, in bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            shelf: Arc::new(Mutex::new(Recent::new(most))),
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Recent<Arc<Rest>>> {
        // Every section below leaves the shelf whole, so a panic elsewhere spoils nothing.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log as it was when somebody read it last.
    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<Rest>> {
        self.shelf().get(id).cloned()
    }

    /// Remembers a log, in the place of an older one of the same task, if it is not too large.
    pub(super) fn put(&self, id: &TaskId, log: &Log) {
        let weight = log.task.weight();
        let mut shelf = self.shelf();
        if shelf.get_mut(id).is_some_and(|rest| rest.log.at >= log.at) {
            return;
        }
        shelf.put(
            id,
            weight,
            Arc::new(Rest {
                log: log.clone(),
                forms: Places::default(),
            }),
        );
    }

    /// Forgets a log.
    pub(super) fn remove(&self, id: &TaskId) {
        self.shelf().remove(id);
    }

    /// Counts a form that was kept with a log, if that is still the one that is remembered.
    fn grow(&self, rest: &Arc<Rest>, by: usize) {
        let (id, mut shelf) = (&rest.log.task.id, self.shelf());
        if shelf
            .get_mut(id)
            .is_some_and(|known| Arc::ptr_eq(known, rest))
        {
            shelf.grow(id, by);
        }
    }
}

/// A task as it stands, for one who reads it.
pub(crate) enum Standing {
    /// As it was read: somebody works on it, or it is too large to be remembered.
    Read(Arc<Task>),
    /// As it is remembered.
    Rests(Remembered),
}

/// A log that is remembered, and by whom.
pub(crate) struct Remembered {
    rest: Arc<Rest>,
    resting: Resting,
}

impl Standing {
    pub(super) fn rests(rest: Arc<Rest>, resting: &Resting) -> Self {
        Self::Rests(Remembered {
            rest,
            resting: resting.clone(),
        })
    }

    /// The task in a wire form: as long as it rests the first who asks has it written, and the others share that. What a
    /// form is, is nothing that we need to know.
    pub(crate) fn form(&self, form: u8, write: impl FnOnce(&Task, &mut Vec<u8>)) -> Bytes {
        let written = || {
            let mut out = Vec::with_capacity(1024);
            write(self, &mut out);
            out
        };
        let Self::Rests(Remembered { rest, resting }) = self else {
            return written().into();
        };
        let mut grown = 0;
        let place = rest.forms.place(form);
        let bytes = place.get_or_init(|| {
            // Kept for long: as large as it is, and no larger.
            let bytes = Bytes::from(written().into_boxed_slice());
            grown = bytes.len();
            bytes
        });
        if grown > 0 {
            resting.grow(rest, grown);
        }
        bytes.clone()
    }
}

impl Deref for Standing {
    type Target = Task;

    fn deref(&self) -> &Task {
        match self {
            Self::Read(task) => task,
            Self::Rests(remembered) => &remembered.rest.log.task,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Artifact, Entry, Event, Part, Seq, Timestamp};

    fn log(id: &str, at: u64, text: usize) -> Log {
        let created = Event::Created {
            id: id.into(),
            context_id: "c".into(),
            metadata: None,
        };
        let artifact = Artifact {
            parts: vec![Part::text("x".repeat(text))],
            ..Artifact::default()
        };
        let artifact = Event::Artifact {
            artifact,
            append: false,
            last_chunk: true,
            metadata: None,
        };
        let mut log = Log::empty();
        for (seq, event) in (1..).zip([created, artifact]) {
            log.apply(&Entry {
                seq: Seq(seq),
                time: Timestamp::default(),
                event,
            })
            .unwrap();
        }
        log.at = Seq(at);
        log
    }

    fn there(resting: &Resting, ids: &[&str]) -> Vec<u64> {
        let found = ids.iter().map(|id| {
            resting
                .get(&TaskId::from(*id))
                .map_or(0, |rest| rest.log.at.0)
        });
        found.collect()
    }

    fn written(standing: &Standing, form: u8, text: &str) -> String {
        let bytes = standing.form(form, |_, out| out.extend_from_slice(text.as_bytes()));
        String::from_utf8(bytes.into()).unwrap()
    }

    #[test]
    fn as_many_are_remembered_as_fit() {
        let resting = Resting::new(35_000);
        for id in ["a", "b", "c"] {
            resting.put(&id.into(), &log(id, 2, 10_000));
        }
        assert_eq!(there(&resting, &["a", "c"]), [2, 2]);
        resting.put(&"d".into(), &log("d", 2, 10_000));
        assert_eq!(there(&resting, &["a", "b", "c", "d"]), [2, 0, 2, 2]);
        resting.put(&"e".into(), &log("e", 2, 40_000));
        assert_eq!(
            there(&resting, &["a", "c", "d", "e"]),
            [2, 2, 2, 0],
            "what is too large moves nobody"
        );
    }

    #[test]
    fn the_newest_of_a_task_is_remembered() {
        let resting = Resting::new(35_000);
        for at in [5, 9, 7] {
            resting.put(&"a".into(), &log("a", at, 30_000));
        }
        assert_eq!(there(&resting, &["a"]), [9]);
        resting.remove(&"a".into());
        assert_eq!(there(&resting, &["a"]), [0]);
    }

    #[test]
    fn a_form_is_written_once_and_goes_with_its_log() {
        let resting = Resting::new(35_000);
        let standing = |at| {
            resting.put(&"a".into(), &log("a", at, 10));
            Standing::rests(resting.get(&"a".into()).unwrap(), &resting)
        };
        let first = standing(5);
        for (form, text, expected) in [(1, "one", "one"), (2, "two", "two"), (1, "again", "one")] {
            assert_eq!(written(&first, form, text), expected);
        }
        assert_eq!(written(&standing(6), 1, "new"), "new");
        assert_eq!(written(&standing(6), 1, "again"), "new");
        assert_eq!(
            written(&first, 1, "again"),
            "one",
            "whoever holds the old one reads the old one"
        );
    }

    #[test]
    fn forms_count_towards_the_bound() {
        let resting = Resting::new(35_000);
        resting.put(&"a".into(), &log("a", 2, 10_000));
        resting.put(&"b".into(), &log("b", 2, 10_000));
        let standing = Standing::rests(resting.get(&"b".into()).unwrap(), &resting);
        let long = "x".repeat(12_000);
        written(&standing, 1, &long);
        assert_eq!(there(&resting, &["b"]), [2]);
        written(&standing, 2, "x");
        assert_eq!(there(&resting, &["a", "b"]), [2, 2]);
        written(&standing, 3, &long);
        let there = there(&resting, &["a", "b"]);
        assert!(
            there.contains(&0),
            "both with all forms would be more than fits: {there:?}"
        );
        written(&standing, 4, &long);
        assert_eq!(written(&standing, 5, &long).len(), long.len());
        assert_eq!(
            self::there(&resting, &["b"]),
            [0],
            "one alone is more than fits"
        );
    }
}
