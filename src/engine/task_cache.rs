//! Logs that nobody works on, folded: as many as fit, for those who ask again.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::folded_log::FoldedLog;
use super::shared_entry::EncodingCache;
use crate::model::{Task, TaskId};
use crate::store::LruCache;

/// A bounded memory of folded logs, and of what their tasks look like on the wire; those that nobody has asked for again
/// go first.
///
/// A log only grows, so none of them is ever wrong: at most entries came behind it, and its position tells.
#[derive(Clone)]
pub(super) struct TaskCache {
    lru: Arc<Mutex<LruCache<Arc<CachedTask>>>>,
}

/// A log that was read, with room for the forms in which its task goes out.
pub(super) struct CachedTask {
    pub(super) log: FoldedLog,
    encodings: EncodingCache<Bytes>,
}

impl TaskCache {
    /// All of them may weigh so much, in bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            lru: Arc::new(Mutex::new(LruCache::new(most))),
        }
    }

    fn lru(&self) -> MutexGuard<'_, LruCache<Arc<CachedTask>>> {
        // Every section below leaves the shelf whole, so a panic elsewhere spoils nothing.
        self.lru.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log as it was when somebody read it last.
    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<CachedTask>> {
        self.lru().get(id).cloned()
    }

    /// Remembers a log, in the place of an older one of the same task, if it is not too large.
    pub(super) fn put(&self, id: &TaskId, log: &FoldedLog) {
        let weight = log.task.memory_size();
        let mut lru = self.lru();
        if lru
            .get_mut(id)
            .is_some_and(|cached| cached.log.position >= log.position)
        {
            return;
        }
        lru.put(
            id,
            weight,
            Arc::new(CachedTask {
                log: log.clone(),
                encodings: EncodingCache::default(),
            }),
        );
    }

    /// Forgets a log.
    pub(super) fn remove(&self, id: &TaskId) {
        self.lru().remove(id);
    }

    /// Counts a form that was kept with a log, if that is still the one that is remembered.
    fn add_weight(&self, cached: &Arc<CachedTask>, by: usize) {
        let (id, mut lru) = (&cached.log.task.id, self.lru());
        if lru
            .get_mut(id)
            .is_some_and(|known| Arc::ptr_eq(known, cached))
        {
            lru.grow(id, by);
        }
    }
}

/// A task as it stands, for one who reads it.
pub(crate) enum TaskView {
    /// As it was read: somebody works on it, or it is too large to be remembered.
    Owned(Arc<Task>),
    /// As it is remembered.
    Cached(CacheHandle),
}

/// A log that is remembered, and by whom.
pub(crate) struct CacheHandle {
    cached: Arc<CachedTask>,
    task_cache: TaskCache,
}

impl TaskView {
    pub(super) fn cached(cached: Arc<CachedTask>, task_cache: &TaskCache) -> Self {
        Self::Cached(CacheHandle {
            cached,
            task_cache: task_cache.clone(),
        })
    }

    /// The task in a wire form: as long as it rests the first who asks has it written, and the others share that. What a
    /// form is, is nothing that we need to know.
    pub(crate) fn encoded(&self, format: u8, encode: impl FnOnce(&Task, &mut Vec<u8>)) -> Bytes {
        let encode_task = || {
            let mut out = Vec::with_capacity(1024);
            encode(self, &mut out);
            out
        };
        let Self::Cached(CacheHandle { cached, task_cache }) = self else {
            return encode_task().into();
        };
        let mut grown = 0;
        let cell = cached.encodings.cell(format);
        let bytes = cell.get_or_init(|| {
            // Kept for long: as large as it is, and no larger.
            let bytes = Bytes::from(encode_task().into_boxed_slice());
            grown = bytes.len();
            bytes
        });
        if grown > 0 {
            task_cache.add_weight(cached, grown);
        }
        bytes.clone()
    }
}

impl Deref for TaskView {
    type Target = Task;

    fn deref(&self) -> &Task {
        match self {
            Self::Owned(task) => task,
            Self::Cached(remembered) => &remembered.cached.log.task,
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

    fn there(task_cache: &TaskCache, ids: &[&str]) -> Vec<u64> {
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
        assert_eq!(there(&task_cache, &["a", "c"]), [2, 2]);
        task_cache.put(&"d".into(), &log("d", 2, 10_000));
        assert_eq!(there(&task_cache, &["a", "b", "c", "d"]), [2, 0, 2, 2]);
        task_cache.put(&"e".into(), &log("e", 2, 40_000));
        assert_eq!(
            there(&task_cache, &["a", "c", "d", "e"]),
            [2, 2, 2, 0],
            "what is too large moves nobody"
        );
    }

    #[test]
    fn the_newest_version_of_a_task_is_cached() {
        let task_cache = TaskCache::new(35_000);
        for position in [5, 9, 7] {
            task_cache.put(&"a".into(), &log("a", position, 30_000));
        }
        assert_eq!(there(&task_cache, &["a"]), [9]);
        task_cache.remove(&"a".into());
        assert_eq!(there(&task_cache, &["a"]), [0]);
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
            "whoever holds the old one reads the old one"
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
        assert_eq!(there(&task_cache, &["b"]), [2]);
        encode_task(&view, 2, "x");
        assert_eq!(there(&task_cache, &["a", "b"]), [2, 2]);
        encode_task(&view, 3, &long);
        let there = there(&task_cache, &["a", "b"]);
        assert!(
            there.contains(&0),
            "both with all forms would be more than fits: {there:?}"
        );
        encode_task(&view, 4, &long);
        assert_eq!(encode_task(&view, 5, &long).len(), long.len());
        assert_eq!(
            self::there(&task_cache, &["b"]),
            [0],
            "one alone is more than fits"
        );
    }
}
