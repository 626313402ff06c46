//! LRU cache of folded tasks that have no runner, with their wire encodings.

use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashMap};
use hashlink::LruCache;

use super::folded_log::FoldedLog;
use super::large_encodings::{LargeEncodings, is_large};
use super::shared_entry::EncodingCache;
use crate::model::{self, CallerKey, Scope, Seq, Task, TaskId};
use crate::rt::{ByteBudget, Reservation, lock};
use crate::store::Head;

/// Number of version counters. Tasks share them by hash.
const VERSION_SLOTS: usize = 256;

/// LRU cache of folded logs and of their tasks' encodings, bounded in bytes.
///
/// If this process is the only writer, a cached task is current:
/// - The runner of a stored task calls [`forget`](Self::forget) before its first append, and so does a deletion.
/// - A reader calls [`begin_read`](Self::begin_read), then checks that the task has no runner, then reads the store. Its
///   [`put`](Self::put) is refused if the task was forgotten in between. So an older state never replaces a newer one.
///
/// If there are other writers, a cached task may be outdated, and readers compare its position with that of the head.
#[derive(Clone)]
pub(super) struct TaskCache(Arc<Mutex<CacheState>>);

struct CacheState {
    tasks: LruCache<TaskId, CacheEntry>,
    /// Large tasks outside the cache that readers hold: too large for it, evicted, or with a runner.
    in_use: HashMap<TaskId, Weak<CachedTask>>,
    /// Total size of the entries.
    bytes: usize,
    max_bytes: usize,
    /// How often a task of each slot was forgotten.
    versions: Box<[u64; VERSION_SLOTS]>,
    /// Selects the slot of a task.
    hasher: DefaultHashBuilder,
}

struct CacheEntry {
    task: Arc<CachedTask>,
    /// Size of the task and its encodings.
    bytes: usize,
}

/// A folded log with its scope, and the encodings of its task.
pub(super) struct CachedTask {
    scope: Scope,
    pub(super) log: FoldedLog,
    /// Size of the task.
    bytes: usize,
    encodings: EncodingCache<Bytes>,
    large_encodings: LargeEncodings,
    /// Whether the cache holds the task, and counts its encodings.
    is_in_cache: AtomicBool,
}

/// Version of a task's slot before a read of the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadVersion {
    slot: usize,
    version: u64,
}

impl CachedTask {
    fn new(head: &Head, log: &FoldedLog, bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            scope: head.scope.clone(),
            log: log.clone(),
            bytes,
            encodings: EncodingCache::default(),
            large_encodings: LargeEncodings::default(),
            is_in_cache: AtomicBool::new(false),
        })
    }

    /// Records that the cache does not count the encodings any more. Only those with readers remain.
    fn leave_cache(&self) {
        self.is_in_cache.store(false, Ordering::SeqCst);
        self.large_encodings.remove_unread();
    }

    pub(super) fn is_in_scope(&self, scope: &Scope) -> bool {
        self.scope == *scope
    }

    pub(super) fn head(&self) -> Head {
        self.log.head(self.scope.clone())
    }
}

impl TaskCache {
    /// Creates a cache of at most `max_bytes` (`task_cache_bytes`). The least recently used tasks are evicted.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(CacheState {
            tasks: LruCache::new_unbounded(),
            in_use: HashMap::new(),
            bytes: 0,
            max_bytes,
            versions: Box::new([0; VERSION_SLOTS]),
            hasher: DefaultHashBuilder::default(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        lock(&self.0)
    }

    /// Returns the cached task.
    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<CachedTask>> {
        self.state().tasks.get(id).map(|entry| entry.task.clone())
    }

    /// Starts a read of a task from the store: returns the version for [`put`](Self::put).
    pub(super) fn begin_read(&self, id: &TaskId) -> ReadVersion {
        let state = self.state();
        let slot = state.slot(id);
        ReadVersion {
            slot,
            version: state.versions[slot],
        }
    }

    /// Caches a task that was read, unless it may have changed since, is larger than the cache, or a newer fold is cached.
    pub(super) fn put(&self, version: ReadVersion, head: &Head, log: &FoldedLog) {
        let bytes = log.task.memory_size();
        let mut state = self.state();
        let is_outdated = state.versions[version.slot] != version.version
            || state
                .tasks
                .peek(&head.id)
                .is_some_and(|cached| cached.task.log.position >= log.position);
        if is_outdated || bytes > state.max_bytes {
            return;
        }
        let task = CachedTask::new(head, log, bytes);
        state.insert(&head.id, CacheEntry { task, bytes });
    }

    /// Returns the fold of a large task that readers hold, if it is at least as new as `head`.
    pub(super) fn in_use_since(&self, head: &Head) -> Option<Arc<CachedTask>> {
        let task = self.state().in_use.get(&head.id)?.upgrade()?;
        (task.log.position >= head.position).then_some(task)
    }

    /// Returns the view of a task that is not cached. All readers of a large task share its fold and encodings.
    pub(super) fn uncached_view(&self, head: &Head, log: FoldedLog) -> TaskView {
        let bytes = log.task.memory_size();
        if !is_large(bytes) {
            return TaskView::Owned(log.task, log.position);
        }
        let mut state = self.state();
        let in_use = state.in_use.get(&head.id).and_then(Weak::upgrade);
        let task = match in_use.filter(|task| task.log.position == log.position) {
            Some(task) => task,
            None => {
                let task = CachedTask::new(head, &log, bytes);
                state.add_in_use(&task);
                task
            }
        };
        drop(state);
        TaskView::cached(task, self)
    }

    /// Removes a task that is going to change or was deleted, and refuses the results of reads that have begun.
    pub(super) fn forget(&self, id: &TaskId) {
        let mut state = self.state();
        let slot = state.slot(id);
        state.versions[slot] += 1;
        state.in_use.remove(id);
        if let Some(entry) = state.tasks.remove(id) {
            state.bytes -= entry.bytes;
            entry.task.leave_cache();
        }
    }

    /// Adds the size of a new encoding, if the task is still cached.
    fn add_bytes(&self, task: &Arc<CachedTask>, bytes: usize) {
        let mut guard = self.state();
        let state = &mut *guard;
        let id = &task.log.task.id;
        let Some(entry) = state
            .tasks
            .get_mut(id)
            .filter(|entry| Arc::ptr_eq(&entry.task, task))
        else {
            return;
        };
        entry.bytes += bytes;
        state.bytes += bytes;
        if entry.bytes > state.max_bytes
            && let Some(entry) = state.tasks.remove(id)
        {
            state.drop_entry(&entry);
        }
        state.evict();
    }
}

impl CacheState {
    fn slot(&self, id: &TaskId) -> usize {
        let hash = self.hasher.hash_one(id);
        (hash % VERSION_SLOTS as u64) as usize
    }

    /// Inserts or replaces an entry that fits into the cache.
    fn insert(&mut self, id: &TaskId, entry: CacheEntry) {
        self.bytes += entry.bytes;
        entry.task.is_in_cache.store(true, Ordering::SeqCst);
        if let Some(replaced) = self.tasks.insert(id.clone(), entry) {
            self.bytes -= replaced.bytes;
            replaced.task.leave_cache();
        }
        self.evict();
    }

    /// Evicts the least recently used tasks beyond the size of the cache.
    fn evict(&mut self) {
        while self.bytes > self.max_bytes
            && let Some((_, evicted)) = self.tasks.remove_lru()
        {
            self.drop_entry(&evicted);
        }
    }

    /// Counts out an entry that has left the cache. Readers of a large task continue to share it.
    fn drop_entry(&mut self, entry: &CacheEntry) {
        self.bytes -= entry.bytes;
        entry.task.leave_cache();
        if is_large(entry.task.bytes) && Arc::strong_count(&entry.task) > 1 {
            self.add_in_use(&entry.task);
        }
    }

    fn add_in_use(&mut self, task: &Arc<CachedTask>) {
        self.in_use.retain(|_, task| task.strong_count() > 0);
        let id = task.log.task.id.clone();
        self.in_use.insert(id, Arc::downgrade(task));
    }
}

/// The current state of a task, for a reader.
pub(crate) enum TaskView {
    /// Not cached: the task has a runner. With its position.
    Owned(Arc<Task>, Seq),
    /// Shared with the cache, or with other readers of a large task.
    Cached(CacheHandle),
}

/// A cached task, and the cache that counts its encodings.
pub(crate) struct CacheHandle {
    task: Arc<CachedTask>,
    cache: TaskCache,
    /// Part of the byte budget for the encoding of a large task. Boxed: future size.
    reservation: Option<Box<Reservation>>,
    /// Reservation of the readers whose encoding this one shares. Held so that they do not release it before.
    shared_reservation: Option<Arc<Reservation>>,
}

/// Bytes of an encoding that hold the task, so that readers who come later share both.
struct HeldEncoding {
    bytes: Bytes,
    task: Arc<CachedTask>,
    /// `None` during the drop.
    reservation: Option<Arc<Reservation>>,
}

impl Drop for HeldEncoding {
    fn drop(&mut self) {
        self.reservation = None;
        // Readers of other formats may hold the task. They have not reserved these bytes.
        if !self.task.is_in_cache.load(Ordering::SeqCst) {
            self.task.large_encodings.remove_unread();
        }
    }
}

impl AsRef<[u8]> for HeldEncoding {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl TaskView {
    pub(super) fn cached(task: Arc<CachedTask>, cache: &TaskCache) -> Self {
        Self::Cached(CacheHandle {
            task,
            cache: cache.clone(),
            reservation: None,
            shared_reservation: None,
        })
    }

    /// Returns the position of the task.
    pub(crate) fn position(&self) -> Seq {
        match self {
            Self::Owned(_, position) => *position,
            Self::Cached(handle) => handle.task.log.position,
        }
    }

    /// Returns the size of a large task. Its encodings count against the byte budget.
    pub(crate) fn large_size(&self) -> Option<usize> {
        let bytes = match self {
            Self::Owned(..) => return None,
            Self::Cached(handle) => handle.task.bytes,
        };
        is_large(bytes).then_some(bytes)
    }

    /// Whether readers hold an encoding of a large task. It counts against the byte budget already.
    pub(crate) fn has_readers(&self) -> bool {
        match self {
            Self::Owned(..) => false,
            Self::Cached(handle) => handle.task.large_encodings.has_readers(),
        }
    }

    /// Adds the part of the byte budget that the encoding takes.
    pub(crate) fn with_reservation(mut self, reservation: Reservation) -> Self {
        self.set_reservation(reservation);
        self
    }

    /// Returns the size of a large task whose encoding in this format has neither a reservation nor readers. `None` as the
    /// format: the encoding is not shared.
    pub(crate) fn missing_bytes(&mut self, format: Option<u8>) -> Option<usize> {
        let bytes = self.large_size()?;
        let Self::Cached(handle) = self else {
            return None;
        };
        if handle.reservation.is_some() {
            return None;
        }
        handle.shared_reservation =
            format.and_then(|format| handle.task.large_encodings.shared_reservation(format));
        handle.shared_reservation.is_none().then_some(2 * bytes)
    }

    /// Sets the part of the byte budget that the encoding takes.
    pub(crate) fn set_reservation(&mut self, reservation: Reservation) {
        if let Self::Cached(handle) = self {
            handle.reservation = Some(Box::new(reservation));
        }
    }

    /// Returns the part of the byte budget, for an encoding that is not shared.
    pub(crate) fn take_reservation(&mut self) -> Option<Box<Reservation>> {
        match self {
            Self::Owned(..) => None,
            Self::Cached(handle) => handle.reservation.take(),
        }
    }

    /// Returns the encoding of a large task in this format.
    ///
    /// It is made once, shared by all readers, and counted once against the byte budget until the last of them has
    /// dropped it.
    ///
    /// # Errors
    /// Unavailable: readers hold another format, and the budget does not allow a second one.
    pub(crate) fn encoded_large(
        &mut self,
        format: u8,
        budget: &Arc<ByteBudget>,
        caller: &CallerKey,
        encode: impl FnOnce(&Task, &mut Vec<u8>),
    ) -> model::Result<Bytes> {
        let Self::Cached(handle) = self else {
            return Ok(self.encoded(format, encode));
        };
        let CacheHandle {
            task,
            cache,
            reservation,
            shared_reservation: _,
        } = handle;
        let own_reservation = reservation.take();
        let reserve = || match own_reservation {
            Some(reservation) => Ok(*reservation),
            None => budget.reserve_or_refuse(caller, 2 * task.bytes),
        };
        let encode = || {
            let mut out = Vec::with_capacity(task.bytes);
            encode(&task.log.task, &mut out);
            out
        };
        let read = task.large_encodings.read(format, reserve, encode)?;
        if read.is_new {
            cache.add_bytes(task, read.bytes.len());
        }
        Ok(Bytes::from_owner(HeldEncoding {
            bytes: read.bytes,
            task: task.clone(),
            reservation: Some(read.reservation),
        }))
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
        let Self::Cached(CacheHandle { task, cache, .. }) = self else {
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
            Self::Owned(task, _) => task,
            Self::Cached(handle) => &handle.task.log.task,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Artifact, Caller, Entry, Event, Part, Timestamp};
    use crate::rt::OutgoingLimits;

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

    fn head(id: &str) -> Head {
        let scope = Scope {
            agent: "a".into(),
            tenant: "".into(),
            owner: Caller::anonymous(),
        };
        log(id, 2, 0).head(scope)
    }

    fn put(task_cache: &TaskCache, id: &str, log: &FoldedLog) {
        task_cache.put(task_cache.begin_read(&id.into()), &head(id), log);
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
            put(&task_cache, id, &log(id, 2, 10_000));
        }
        assert_eq!(positions(&task_cache, &["a", "c"]), [2, 2]);
        put(&task_cache, "d", &log("d", 2, 10_000));
        assert_eq!(positions(&task_cache, &["a", "b", "c", "d"]), [2, 0, 2, 2]);
        put(&task_cache, "e", &log("e", 2, 40_000));
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
            put(&task_cache, "a", &log("a", position, 30_000));
        }
        assert_eq!(positions(&task_cache, &["a"]), [9]);
        task_cache.forget(&"a".into());
        assert_eq!(positions(&task_cache, &["a"]), [0]);
    }

    #[test]
    fn a_read_that_began_before_a_change_is_not_cached() {
        let task_cache = TaskCache::new(35_000);
        let id = TaskId::from("a");
        let before = task_cache.begin_read(&id);
        task_cache.forget(&id);
        let after = task_cache.begin_read(&id);
        task_cache.put(before, &head("a"), &log("a", 9, 10));
        assert_eq!(positions(&task_cache, &["a"]), [0]);
        task_cache.put(after, &head("a"), &log("a", 9, 10));
        assert_eq!(positions(&task_cache, &["a"]), [9]);
    }

    #[test]
    fn an_encoding_is_made_once_and_evicted_with_its_task() {
        let task_cache = TaskCache::new(35_000);
        let view = |position| {
            put(&task_cache, "a", &log("a", position, 10));
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
        put(&task_cache, "a", &log("a", 2, 10_000));
        put(&task_cache, "b", &log("b", 2, 10_000));
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

    /// Bytes of an encoding that no reader holds are counted by the cache, or freed.
    #[test]
    fn d02_an_encoding_without_readers_is_freed_with_its_cache_entry() {
        let budget = ByteBudget::new(OutgoingLimits {
            total: 10 << 20,
            per_caller: 10 << 20,
            timeout: Duration::ZERO,
        });
        let caller = CallerKey::Caller(Caller::anonymous());
        let task_cache = TaskCache::new(1 << 20);
        let large = log("a", 2, 100_000);
        let encode = |view: &mut TaskView, format: u8| {
            let encoded = view.encoded_large(format, &budget, &caller, |_, out| {
                out.extend_from_slice(&[format; 100_000]);
            });
            encoded.unwrap()
        };
        let encodings = |view: &TaskView| match view {
            TaskView::Owned(..) => 0,
            TaskView::Cached(handle) => handle.task.large_encodings.len(),
        };
        let mut uncached = task_cache.uncached_view(&head("a"), large.clone());
        let first = encode(&mut uncached, 1);
        drop(encode(&mut uncached, 2));
        assert_eq!(encodings(&uncached), 1, "the second one has no reader");
        drop(first);
        assert_eq!(encodings(&uncached), 0);
        put(&task_cache, "a", &large);
        let mut cached = TaskView::cached(task_cache.get(&"a".into()).unwrap(), &task_cache);
        drop(encode(&mut cached, 1));
        assert_eq!(encodings(&cached), 1, "counted by the cache");
        let second = encode(&mut cached, 2);
        task_cache.forget(&"a".into());
        assert_eq!(encodings(&cached), 1);
        drop(second);
        assert_eq!(encodings(&cached), 0);
        assert_eq!(budget.reserved_bytes(), 0);
    }
}
