//! Where tasks stand, for those who ask again. The file has one writer, and that is us: what it commits is known here before
//! anybody is told, so no answer is older than what was acknowledged.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::id_index;
use crate::model::{Scope, Seq, TaskId, TaskState, Timestamp};
use crate::store::{Head, LruCache};

/// So many groups of tasks have a count of their changes.
const VERSION_SLOTS: usize = 256;

/// A bounded memory of heads, filled by those who read.
pub(super) struct HeadCache(Mutex<HeadCacheState>);

struct HeadCacheState {
    heads: LruCache<Head>,
    /// How often a task of each slot has changed.
    versions: Box<[u64; VERSION_SLOTS]>,
}

/// What a transaction does to a task.
#[derive(Debug)]
pub(super) struct HeadChange {
    pub(super) id: TaskId,
    /// Where the task stands then; `None`: it is removed.
    pub(super) to: Option<(Seq, TaskState, Timestamp)>,
}

/// That a task is about to be read.
pub(super) struct ReadVersion {
    slot: usize,
    version: u64,
}

impl HeadCache {
    /// At most so many of them.
    pub(super) fn new(capacity: usize) -> Self {
        let state = HeadCacheState {
            heads: LruCache::new(capacity),
            versions: Box::new([0; VERSION_SLOTS]),
        };
        Self(Mutex::new(state))
    }

    fn state(&self) -> MutexGuard<'_, HeadCacheState> {
        // Heads change whole, so a panic elsewhere spoils nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a task stands; `None` for one that is not known, or not in this scope: there its id may be somebody's alias.
    pub(super) fn get(&self, scope: &Scope, id: &TaskId) -> Option<Head> {
        self.state()
            .heads
            .get(id)
            .filter(|head| head.scope == *scope)
            .cloned()
    }

    /// Where its log ends, of the same.
    pub(super) fn position(&self, scope: &Scope, id: &TaskId) -> Option<Seq> {
        self.state()
            .heads
            .get(id)
            .filter(|head| head.scope == *scope)
            .map(|head| head.position)
    }

    /// To be called before a task is read from the file.
    pub(super) fn begin_read(&self, id: &TaskId) -> ReadVersion {
        let slot = slot(id);
        ReadVersion {
            slot,
            version: self.state().versions[slot],
        }
    }

    /// Takes in what was read, unless it may have changed meanwhile: then it might stay for ever as it was.
    pub(super) fn insert_if_unchanged(&self, version: &ReadVersion, head: &Head) {
        let mut state = self.state();
        if state.versions[version.slot] == version.version {
            state.heads.put(&head.id, 1, head.clone());
        }
    }

    /// After a commit, before anybody is told.
    pub(super) fn apply_commit(&self, changes: impl Iterator<Item = HeadChange>) {
        let mut state = self.state();
        for HeadChange { id, to } in changes {
            state.versions[slot(&id)] += 1;
            match to {
                None => state.heads.remove(&id),
                Some(to) => {
                    if let Some(head) = state.heads.get_mut(&id) {
                        (head.position, head.state, head.status_time) = to;
                    }
                }
            }
        }
    }

    /// After a transaction that failed. It came to nothing, as far as anybody can tell: the file knows.
    pub(super) fn apply_rollback(&self, changes: impl Iterator<Item = HeadChange>) {
        self.apply_commit(changes.map(|change| HeadChange { to: None, ..change }));
    }
}

fn slot(id: &TaskId) -> usize {
    usize::try_from(id_index::hash_task_id(id).rem_euclid(VERSION_SLOTS as i64)).unwrap_or_default()
}

impl fmt::Debug for HeadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadCache").finish_non_exhaustive()
    }
}
