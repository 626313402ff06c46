//! Semaphore that shares its permits fairly among keys, such as the callers of a server.
//!
//! ```text
//! acquire(key) ── a permit is free, and the key is below its share ──► permit
//!      │
//!      └── otherwise ──► queue of the key (FIFO)
//!                          │  on release: the key with the fewest permits,
//!                          └─ among equals the one served least recently ──► permit
//! ```
//!
//! Holders are not preempted. A key never holds more than its share, so that permits remain for other keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use hashbrown::HashMap;
use slab::Slab;
use tokio::sync::oneshot;

use super::lock;

/// Number of keys from which on keys without permits and waiters are removed. Up to it they are kept, so that a
/// frequent key is not added again for each permit.
const MAX_IDLE_KEYS: usize = 1024;

/// Semaphore with one FIFO queue per key. A released permit goes to the waiting key that holds the fewest.
///
/// A key never holds more than its share of the permits. Clones share one state.
///
/// ```
/// use attache::{FairSemaphore, Turn, model::CallerKey};
///
/// async fn use_scarce_resource(slots: &FairSemaphore<CallerKey>, turn: &Turn) {
///     let _permit = slots.acquire(turn.call().caller_key()).await;
/// }
/// # let _ = FairSemaphore::<CallerKey>::new(64, None);
/// ```
pub struct FairSemaphore<K> {
    queues: Arc<Mutex<KeyQueues<K>>>,
}

/// Permit of a [`FairSemaphore`]. Dropping it releases the permit.
#[must_use]
pub struct FairPermit<K> {
    queues: Arc<Mutex<KeyQueues<K>>>,
    /// Index of the key's entry.
    entry: usize,
}

/// Permits and waiters of all keys.
///
/// Invariant: while a permit is free, `candidates` is empty.
struct KeyQueues<K> {
    free: usize,
    max_per_key: usize,
    /// Index of each key's entry.
    indices: HashMap<K, usize>,
    entries: Slab<KeyEntry<K>>,
    /// Number of entries at which idle ones are removed.
    cleanup_at: usize,
    /// Keys below their share that have waiters. The first one receives the next permit.
    candidates: BTreeSet<Candidate>,
    /// Number of tickets issued. A ticket identifies a waiter or a grant, and orders them.
    tickets: u64,
}

/// Permits and waiters of one key.
struct KeyEntry<K> {
    permits: usize,
    /// Ticket of the newest permit that a waiter has received.
    last_served: u64,
    waiters: BTreeMap<u64, oneshot::Sender<FairPermit<K>>>,
}

/// Key that may receive the next permit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    permits: usize,
    last_served: u64,
    entry: usize,
}

/// Waiter in the queue of a key. Dropping it leaves the queue.
struct Waiter<K> {
    queues: Arc<Mutex<KeyQueues<K>>>,
    entry: usize,
    ticket: u64,
    granted: oneshot::Receiver<FairPermit<K>>,
}

impl<K: Eq + Hash> FairSemaphore<K> {
    /// Creates a semaphore with this number of permits, at least one.
    ///
    /// `max_per_key` is the share of one key, at least one permit. `None`: half of the permits, rounded up.
    #[must_use]
    pub fn new(permits: usize, max_per_key: Option<usize>) -> Self {
        let permits = permits.max(1);
        let share = max_per_key.unwrap_or(permits.div_ceil(2));
        Self {
            queues: Arc::new(Mutex::new(KeyQueues {
                free: permits,
                max_per_key: share.clamp(1, permits),
                indices: HashMap::new(),
                entries: Slab::new(),
                cleanup_at: MAX_IDLE_KEYS,
                candidates: BTreeSet::new(),
                tickets: 0,
            })),
        }
    }

    /// Acquires a permit if one is free and the key is below its share.
    #[must_use]
    pub fn try_acquire(&self, key: K) -> Option<FairPermit<K>> {
        let mut queues = lock(&self.queues);
        let entry = queues.entry(key);
        let is_granted = queues.try_take(entry);
        drop(queues);
        is_granted.then(|| self.permit(entry))
    }

    /// Waits for a permit. The wait ends if the future is dropped.
    pub async fn acquire(&self, key: K) -> FairPermit<K> {
        let mut waiter = match self.enqueue(key) {
            Ok(permit) => return permit,
            Err(waiter) => waiter,
        };
        let granted = (&mut waiter.granted).await;
        granted.expect("the sender stays in the queue until it has sent")
    }

    /// Returns the number of free permits.
    #[must_use]
    pub fn free_permits(&self) -> usize {
        lock(&self.queues).free
    }

    /// Acquires a permit, or adds a waiter to the queue of the key.
    fn enqueue(&self, key: K) -> Result<FairPermit<K>, Waiter<K>> {
        let mut queues = lock(&self.queues);
        let entry = queues.entry(key);
        if queues.try_take(entry) {
            drop(queues);
            return Ok(self.permit(entry));
        }
        let ticket = queues.next_ticket();
        let (sender, granted) = oneshot::channel();
        queues.update(entry, |key| {
            key.waiters.insert(ticket, sender);
        });
        Err(Waiter {
            queues: self.queues.clone(),
            entry,
            ticket,
            granted,
        })
    }

    fn permit(&self, entry: usize) -> FairPermit<K> {
        FairPermit {
            queues: self.queues.clone(),
            entry,
        }
    }
}

impl<K> KeyQueues<K> {
    /// Takes a free permit for a key that is below its share.
    fn try_take(&mut self, entry: usize) -> bool {
        let max_per_key = self.max_per_key;
        let key = &mut self.entries[entry];
        let is_granted = self.free > 0 && key.permits < max_per_key;
        if is_granted {
            key.permits += 1;
            self.free -= 1;
        }
        is_granted
    }

    /// Returns a permit of a key. If a key waits for it, takes it for that key, and returns its entry and its waiter.
    fn release(&mut self, entry: usize) -> Option<(usize, oneshot::Sender<FairPermit<K>>)> {
        self.free += 1;
        self.update(entry, |key| key.permits -= 1);
        let next = self.candidates.first()?.entry;
        let ticket = self.next_ticket();
        self.free -= 1;
        let waiter = self.update(next, |key| {
            key.permits += 1;
            key.last_served = ticket;
            key.waiters.pop_first()
        });
        waiter.map(|(_, sender)| (next, sender))
    }

    /// Changes an entry, and updates its place among the candidates.
    fn update<T>(&mut self, entry: usize, change: impl FnOnce(&mut KeyEntry<K>) -> T) -> T {
        let max_per_key = self.max_per_key;
        let key = &mut self.entries[entry];
        let before = key.candidate(entry, max_per_key);
        let result = change(key);
        let after = key.candidate(entry, max_per_key);
        if before != after {
            before.map(|before| self.candidates.remove(&before));
            self.candidates.extend(after);
        }
        result
    }

    fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

impl<K: Eq + Hash> KeyQueues<K> {
    /// Returns the index of the key's entry, and adds one if there is none.
    fn entry(&mut self, key: K) -> usize {
        if let Some(entry) = self.indices.get(&key) {
            return *entry;
        }
        if self.entries.len() >= self.cleanup_at {
            self.remove_idle();
        }
        let entry = self.entries.insert(KeyEntry {
            permits: 0,
            last_served: 0,
            waiters: BTreeMap::new(),
        });
        self.indices.insert(key, entry);
        entry
    }

    /// Removes entries without permits and waiters. Called again when the number of entries has doubled.
    fn remove_idle(&mut self) {
        self.entries.retain(|_, key| !key.is_idle());
        let entries = &self.entries;
        self.indices.retain(|_, entry| entries.contains(*entry));
        self.cleanup_at = MAX_IDLE_KEYS.max(2 * self.entries.len());
    }
}

impl<K> KeyEntry<K> {
    fn is_idle(&self) -> bool {
        self.permits == 0 && self.waiters.is_empty()
    }

    /// Returns the place of this key among the candidates, if it may receive a permit.
    fn candidate(&self, entry: usize, max_per_key: usize) -> Option<Candidate> {
        let is_candidate = self.permits < max_per_key && !self.waiters.is_empty();
        is_candidate.then_some(Candidate {
            permits: self.permits,
            last_served: self.last_served,
            entry,
        })
    }
}

impl<K> Drop for FairPermit<K> {
    /// Passes the permit on to a waiter, or makes it free.
    fn drop(&mut self) {
        let next = lock(&self.queues).release(self.entry);
        if let Some((entry, sender)) = next {
            let queues = self.queues.clone();
            // If the waiter has just been dropped, this drops the permit, which serves the next waiter.
            let _ = sender.send(FairPermit { queues, entry });
        }
    }
}

impl<K> Drop for Waiter<K> {
    fn drop(&mut self) {
        let ticket = self.ticket;
        let mut queues = lock(&self.queues);
        // The entry may be gone, or belong to another key: tickets are unique.
        if queues.entries.contains(self.entry) {
            queues.update(self.entry, |key| key.waiters.remove(&ticket));
        }
    }
}

impl<K> Clone for FairSemaphore<K> {
    fn clone(&self) -> Self {
        Self {
            queues: self.queues.clone(),
        }
    }
}

impl<K> fmt::Debug for FairSemaphore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = lock(&self.queues);
        f.debug_struct("FairSemaphore")
            .field("free", &queues.free)
            .field("max_per_key", &queues.max_per_key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::BoxFuture;

    type Permit = FairPermit<&'static str>;

    fn take(
        semaphore: &FairSemaphore<&'static str>,
        key: &'static str,
        count: usize,
    ) -> Vec<Permit> {
        let permits = (0..count).map(|_| semaphore.try_acquire(key).expect("a permit"));
        permits.collect()
    }

    /// Starts to wait.
    fn wait(
        semaphore: &FairSemaphore<&'static str>,
        key: &'static str,
    ) -> BoxFuture<'static, Permit> {
        let semaphore = semaphore.clone();
        let mut waiting = async move { semaphore.acquire(key).await }.boxed();
        assert!(
            (&mut waiting).now_or_never().is_none(),
            "{key} has a permit"
        );
        waiting
    }

    #[test]
    fn d09_a_key_holds_at_most_its_share() {
        let semaphore = FairSemaphore::new(4, None);
        let held = take(&semaphore, "a", 2);
        assert!(semaphore.try_acquire("a").is_none());
        let _waiting = wait(&semaphore, "a");
        let others = take(&semaphore, "b", 2);
        assert!(semaphore.try_acquire("c").is_none());
        drop(held);
        // One went to the waiter of `a`, the other is free.
        assert_eq!(semaphore.free_permits(), 1);
        drop(others);
        assert_eq!(semaphore.free_permits(), 3);
    }

    #[test]
    fn d09_a_released_permit_goes_to_the_key_that_holds_the_fewest() {
        let semaphore = FairSemaphore::new(4, Some(3));
        let mut first = take(&semaphore, "a", 3);
        let mut second = take(&semaphore, "b", 1);
        let queued: Vec<_> = (0..10).map(|_| wait(&semaphore, "a")).collect();
        let mut other = wait(&semaphore, "b");
        let mut newest = wait(&semaphore, "c");
        drop(first.pop());
        let served = (&mut newest).now_or_never().expect("c holds none");
        drop(second.pop());
        let also_served = (&mut other).now_or_never().expect("b holds none");
        drop((served, also_served));
        assert_eq!(semaphore.free_permits(), 1, "a holds its share");
        drop(queued);
    }

    #[test]
    fn d09_equal_keys_are_served_in_turn() {
        let semaphore = FairSemaphore::new(1, None);
        let mut permits = take(&semaphore, "x", 1);
        let mut queue = Vec::new();
        for key in ["a", "a", "a", "b", "b", "c"] {
            queue.push((key, wait(&semaphore, key)));
        }
        let mut order = Vec::new();
        while let Some(permit) = permits.pop() {
            drop(permit);
            let served = queue.iter_mut().position(|(key, waiting)| {
                let permit = waiting.now_or_never();
                let is_served = permit.is_some();
                permits.extend(permit);
                order.extend(is_served.then_some(*key));
                is_served
            });
            if let Some(served) = served {
                drop(queue.remove(served));
            }
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
        assert_eq!(semaphore.free_permits(), 1);
    }

    #[test]
    fn dropped_waiters_leave_the_queue_and_lose_no_permit() {
        let semaphore = FairSemaphore::new(1, None);
        let permit = take(&semaphore, "a", 1);
        let granted = wait(&semaphore, "b");
        for _ in 0..100 {
            drop(wait(&semaphore, "b"));
        }
        let waiters = |key: &str| {
            let queues = lock(&semaphore.queues);
            queues.entries[queues.indices[key]].waiters.len()
        };
        assert_eq!(waiters("b"), 1);
        drop(permit);
        assert_eq!((waiters("b"), semaphore.free_permits()), (0, 0));
        // Granted, and never received.
        drop(granted);
        assert_eq!(semaphore.free_permits(), 1);
    }

    #[test]
    fn idle_keys_are_removed() {
        let semaphore = FairSemaphore::new(2, None);
        let _held = semaphore.try_acquire(usize::MAX);
        for key in 0..10 * MAX_IDLE_KEYS {
            drop(semaphore.try_acquire(key).expect("a permit"));
        }
        let queues = lock(&semaphore.queues);
        assert!(queues.entries.len() <= MAX_IDLE_KEYS);
        assert_eq!(queues.entries.len(), queues.indices.len());
        assert!(queues.indices.contains_key(&usize::MAX));
    }
}
