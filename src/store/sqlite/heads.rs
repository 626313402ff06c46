//! Where tasks stand, for those who ask again. The file has one writer, and that is us: what it commits is known here before
//! anybody is told, so no answer is older than what was acknowledged.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::names;
use crate::model::{Scope, Seq, TaskId, TaskState, Timestamp};
use crate::store::{Head, Recent};

/// So many groups of tasks have a count of their changes.
const GROUPS: usize = 256;

/// A bounded memory of heads, filled by those who read.
pub(super) struct Heads(Mutex<Known>);

struct Known {
    heads: Recent<Head>,
    /// How often a task of each group has changed.
    changes: Box<[u64; GROUPS]>,
}

/// What a transaction does to a task.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) id: TaskId,
    /// Where the task stands then; `None`: it is removed.
    pub(super) to: Option<(Seq, TaskState, Timestamp)>,
}

/// That a task is about to be read.
pub(super) struct Reading {
    group: usize,
    changes: u64,
}

impl Heads {
    /// At most so many of them.
    pub(super) fn new(most: usize) -> Self {
        let known = Known {
            heads: Recent::new(most),
            changes: Box::new([0; GROUPS]),
        };
        Self(Mutex::new(known))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Heads change whole, so a panic elsewhere spoils nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a task stands; `None` for one that is not known, or not in this scope: there its id may be somebody's alias.
    pub(super) fn get(&self, scope: &Scope, id: &TaskId) -> Option<Head> {
        self.known()
            .heads
            .get(id)
            .filter(|head| head.scope == *scope)
            .cloned()
    }

    /// Where its log ends, of the same.
    pub(super) fn position(&self, scope: &Scope, id: &TaskId) -> Option<Seq> {
        self.known()
            .heads
            .get(id)
            .filter(|head| head.scope == *scope)
            .map(|head| head.position)
    }

    /// To be called before a task is read from the file.
    pub(super) fn reading(&self, id: &TaskId) -> Reading {
        let group = group(id);
        Reading {
            group,
            changes: self.known().changes[group],
        }
    }

    /// Takes in what was read, unless it may have changed meanwhile: then it might stay for ever as it was.
    pub(super) fn read(&self, reading: &Reading, head: &Head) {
        let mut known = self.known();
        if known.changes[reading.group] == reading.changes {
            known.heads.put(&head.id, 1, head.clone());
        }
    }

    /// After a commit, before anybody is told.
    pub(super) fn committed(&self, changes: impl Iterator<Item = Change>) {
        let mut known = self.known();
        for Change { id, to } in changes {
            known.changes[group(&id)] += 1;
            match to {
                None => known.heads.remove(&id),
                Some(to) => {
                    if let Some(head) = known.heads.get_mut(&id) {
                        (head.position, head.state, head.status_time) = to;
                    }
                }
            }
        }
    }

    /// After a transaction that failed. It came to nothing, as far as anybody can tell: the file knows.
    pub(super) fn failed(&self, changes: impl Iterator<Item = Change>) {
        self.committed(changes.map(|change| Change { to: None, ..change }));
    }
}

fn group(id: &TaskId) -> usize {
    usize::try_from(names::of_task(id).rem_euclid(GROUPS as i64)).unwrap_or_default()
}

impl fmt::Debug for Heads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heads").finish_non_exhaustive()
    }
}
