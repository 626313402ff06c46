//! LRU cache of task heads.
//!
//! The writer thread is the only writer of the file. It updates the cache after each commit and before it replies, so a
//! cached head is never older than an acknowledged write.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use crate::model::{Scope, Seq, TaskId, TaskState, Timestamp};
use crate::rt::lock;
use crate::store::{Head, LruCache};

/// Number of version counters. Tasks share them by hash.
const VERSION_SLOTS: usize = 256;

/// Bounded cache of heads, filled by reads.
pub(super) struct HeadCache(Mutex<HeadCacheState>);

struct HeadCacheState {
    heads: LruCache<Head>,
    /// Number of changes to the tasks of each slot.
    versions: Box<[u64; VERSION_SLOTS]>,
}

/// Change of a task by a transaction.
#[derive(Debug)]
pub(super) struct HeadChange {
    pub(super) id: TaskId,
    /// New position, state and status time; `None` if the task was removed.
    pub(super) to: Option<(Seq, TaskState, Timestamp)>,
}

/// Version of a task's slot before a read.
pub(super) struct ReadVersion {
    slot: usize,
    version: u64,
}

impl HeadCache {
    /// Creates a cache of at most `capacity` heads.
    pub(super) fn new(capacity: usize) -> Self {
        let state = HeadCacheState {
            heads: LruCache::new(capacity),
            versions: Box::new([0; VERSION_SLOTS]),
        };
        Self(Mutex::new(state))
    }

    /// Returns the cached head; `None` if it is not cached or of another scope, where the id may be an alias.
    pub(super) fn get(&self, scope: &Scope, id: &TaskId) -> Option<Head> {
        lock(&self.0)
            .heads
            .get(id)
            .filter(|head| head.scope == *scope)
            .cloned()
    }

    /// Returns the position of the cached head.
    pub(super) fn position(&self, scope: &Scope, id: &TaskId) -> Option<Seq> {
        lock(&self.0)
            .heads
            .get(id)
            .filter(|head| head.scope == *scope)
            .map(|head| head.position)
    }

    /// Starts a read of a task from the file: returns the version for [`insert_if_unchanged`](Self::insert_if_unchanged).
    pub(super) fn begin_read(&self, id: &TaskId) -> ReadVersion {
        let slot = slot(id);
        ReadVersion {
            slot,
            version: lock(&self.0).versions[slot],
        }
    }

    /// Inserts a head that was read, unless a commit may have changed the task since: it would stay stale.
    pub(super) fn insert_if_unchanged(&self, version: &ReadVersion, head: &Head) {
        let mut state = lock(&self.0);
        if state.versions[version.slot] == version.version {
            state.heads.put(&head.id, 1, head.clone());
        }
    }

    /// Applies the changes of a commit. Call it before the callers get their replies.
    pub(super) fn apply_commit(&self, changes: impl Iterator<Item = HeadChange>) {
        let mut state = lock(&self.0);
        for HeadChange { id, to } in changes {
            state.versions[slot(&id)] += 1;
            match to {
                None => state.heads.remove(&id),
                Some(to) => {
                    if let Some(head) = state.heads.get_mut(&id) {
                        let (position, state, status_time) = to;
                        head.position = position;
                        head.state = state;
                        head.status_time = status_time;
                    }
                }
            }
        }
    }

    /// Evicts the tasks of a failed transaction, so that the next read goes to the file.
    pub(super) fn apply_rollback(&self, changes: impl Iterator<Item = HeadChange>) {
        self.apply_commit(changes.map(|change| HeadChange { to: None, ..change }));
    }
}

fn slot(id: &TaskId) -> usize {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    (hasher.finish() % VERSION_SLOTS as u64) as usize
}

impl fmt::Debug for HeadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadCache").finish_non_exhaustive()
    }
}
