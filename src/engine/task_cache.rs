//! LRU cache of folded tasks that have no runner, with their wire encodings.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

use super::folded_log::FoldedLog;
use super::shared_entry::EncodingCache;
use crate::model::{Task, TaskId};
use crate::rt::lock;
use crate::store::LruCache;

/// LRU cache of folded logs and of their tasks' encodings, bounded in bytes.
///
/// A log is append-only, so a cached fold is never wrong, at most outdated. Readers compare its position with that of
/// the task's head.
#[derive(Clone)]
pub(super) struct TaskCache {
    lru: Arc<Mutex<LruCache<Arc<CachedTask>>>>,
}

/// A folded log and the encodings of its task.
pub(super) struct CachedTask {
    pub(super) log: FoldedLog,
    encodings: EncodingCache<Bytes>,
}

impl TaskCache {
    /// Creates a cache of at most `max_bytes` (`task_cache_bytes`). The least recently used tasks are evicted.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            lru: Arc::new(Mutex::new(LruCache::new(max_bytes))),
        }
    }

    fn lru(&self) -> MutexGuard<'_, LruCache<Arc<CachedTask>>> {
        lock(&self.lru)
    }

    /// Returns the cached fold of a task. It may be outdated.
    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<CachedTask>> {
        self.lru().get(id).cloned()
    }

    /// Caches a fold, unless it is larger than the cache or a newer one of the task is cached.
    pub(super) fn put(&self, id: &TaskId, log: &FoldedLog) {
        let bytes = log.task.memory_size();
        let mut lru = self.lru();
        if lru
            .get_mut(id)
            .is_some_and(|cached| cached.log.position >= log.position)
        {
            return;
        }
        lru.put(
            id,
            bytes,
            Arc::new(CachedTask {
                log: log.clone(),
                encodings: EncodingCache::default(),
            }),
        );
    }

    /// Removes a task.
    pub(super) fn remove(&self, id: &TaskId) {
        self.lru().remove(id);
    }

    /// Adds the size of a new encoding, if the task is still cached.
    fn add_bytes(&self, task: &Arc<CachedTask>, bytes: usize) {
        let id = &task.log.task.id;
        let mut lru = self.lru();
        if lru
            .get_mut(id)
            .is_some_and(|cached| Arc::ptr_eq(cached, task))
        {
            lru.grow(id, bytes);
        }
    }
}

/// The current state of a task, for a reader.
pub(crate) enum TaskView {
    /// Not cached: the task has a runner, or is larger than the cache.
    Owned(Arc<Task>),
    /// Shared with the cache.
    Cached(CacheHandle),
}

/// A cached task, and the cache that counts its encodings.
pub(crate) struct CacheHandle {
    task: Arc<CachedTask>,
    cache: TaskCache,
}

impl TaskView {
    pub(super) fn cached(task: Arc<CachedTask>, cache: &TaskCache) -> Self {
        Self::Cached(CacheHandle {
            task,
            cache: cache.clone(),
        })
    }

    /// Returns the encoding of the task in this format.
    ///
    /// The encoding of a cached task is made once and shared. The meaning of the format number is up to the caller.
    pub(crate) fn encoded(&self, format: u8, encode: impl FnOnce(&Task, &mut Vec<u8>)) -> Bytes {
        let encode_task = || {
            let mut out = Vec::with_capacity(1024);
            encode(self, &mut out);
            out
        };
        let Self::Cached(CacheHandle { task, cache }) = self else {
            return encode_task().into();
        };
        let mut added_bytes = 0;
        let cell = task.encodings.cell(format);
        let bytes = cell.get_or_init(|| {
            // Shrunk to its length, because it stays in the cache.
            let bytes = Bytes::from(encode_task().into_boxed_slice());
            added_bytes = bytes.len();
            bytes
        });
        if added_bytes > 0 {
            cache.add_bytes(task, added_bytes);
        }
        bytes.clone()
    }
}

impl Deref for TaskView {
    type Target = Task;

    fn deref(&self) -> &Task {
        match self {
            Self::Owned(task) => task,
            Self::Cached(handle) => &handle.task.log.task,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Artifact, Entry, Event, Part, Seq, Timestamp};

    fn log(id: &str, position: u64, text: usize) -> FoldedLog {
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
        let mut log = FoldedLog::empty();
        for (seq, event) in (1..).zip([created, artifact]) {
            log.apply(&Entry {
                seq: Seq(seq),
                time: Timestamp::default(),
                event,
            })
            .unwrap();
        }
        log.position = Seq(position);
        log
    }

    fn positions(task_cache: &TaskCache, ids: &[&str]) -> Vec<u64> {
        let found = ids.iter().map(|id| {
            task_cache
                .get(&TaskId::from(*id))
                .map_or(0, |cached| cached.log.position.0)
        });
        found.collect()
    }

    fn encode_task(view: &TaskView, format: u8, text: &str) -> String {
        let bytes = view.encoded(format, |_, out| out.extend_from_slice(text.as_bytes()));
        String::from_utf8(bytes.into()).unwrap()
    }

    #[test]
    fn the_least_recently_used_task_is_evicted() {
        let task_cache = TaskCache::new(35_000);
        for id in ["a", "b", "c"] {
            task_cache.put(&id.into(), &log(id, 2, 10_000));
        }
        assert_eq!(positions(&task_cache, &["a", "c"]), [2, 2]);
        task_cache.put(&"d".into(), &log("d", 2, 10_000));
        assert_eq!(positions(&task_cache, &["a", "b", "c", "d"]), [2, 0, 2, 2]);
        task_cache.put(&"e".into(), &log("e", 2, 40_000));
        assert_eq!(
            positions(&task_cache, &["a", "c", "d", "e"]),
            [2, 2, 2, 0],
            "an oversized task evicts no other"
        );
    }

    #[test]
    fn the_newest_version_of_a_task_is_cached() {
        let task_cache = TaskCache::new(35_000);
        for position in [5, 9, 7] {
            task_cache.put(&"a".into(), &log("a", position, 30_000));
        }
        assert_eq!(positions(&task_cache, &["a"]), [9]);
        task_cache.remove(&"a".into());
        assert_eq!(positions(&task_cache, &["a"]), [0]);
    }

    #[test]
    fn an_encoding_is_made_once_and_evicted_with_its_task() {
        let task_cache = TaskCache::new(35_000);
        let view = |position| {
            task_cache.put(&"a".into(), &log("a", position, 10));
            TaskView::cached(task_cache.get(&"a".into()).unwrap(), &task_cache)
        };
        let first = view(5);
        for (format, text, expected) in [(1, "one", "one"), (2, "two", "two"), (1, "again", "one")]
        {
            assert_eq!(encode_task(&first, format, text), expected);
        }
        assert_eq!(encode_task(&view(6), 1, "new"), "new");
        assert_eq!(encode_task(&view(6), 1, "again"), "new");
        assert_eq!(
            encode_task(&first, 1, "again"),
            "one",
            "an old view keeps its encoding"
        );
    }

    #[test]
    fn encodings_count_towards_the_cache_size() {
        let task_cache = TaskCache::new(35_000);
        task_cache.put(&"a".into(), &log("a", 2, 10_000));
        task_cache.put(&"b".into(), &log("b", 2, 10_000));
        let view = TaskView::cached(task_cache.get(&"b".into()).unwrap(), &task_cache);
        let long = "x".repeat(12_000);
        encode_task(&view, 1, &long);
        assert_eq!(positions(&task_cache, &["b"]), [2]);
        encode_task(&view, 2, "x");
        assert_eq!(positions(&task_cache, &["a", "b"]), [2, 2]);
        encode_task(&view, 3, &long);
        let positions = positions(&task_cache, &["a", "b"]);
        assert!(
            positions.contains(&0),
            "both tasks with all encodings exceed the cache: {positions:?}"
        );
        encode_task(&view, 4, &long);
        assert_eq!(encode_task(&view, 5, &long).len(), long.len());
        assert_eq!(
            self::positions(&task_cache, &["b"]),
            [0],
            "this task alone exceeds the cache"
        );
    }
}
