//! Logs that somebody works on: their fold and their tail, kept in memory for as long as that lasts.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;

use super::log::Log;
use super::recorded::Recorded;
use super::{Accepted, Result};
use crate::model::{Call, Message, Object, Seq, Task, TaskId};
use crate::store::Key;

/// What others want of the one who works on a task.
pub(super) enum Wish {
    /// Take this message.
    Message(Box<Incoming>),
    /// Stop, and end as canceled.
    Cancel { metadata: Option<Object>, until: Instant, answer: oneshot::Sender<Result<Task>> },
    /// Its agent has said something after the end of its turn: record that it was ignored.
    Late,
    /// Nobody worked on it when we came: do as the policy says. The place among those that do is given back then.
    Recover(Option<OwnedSemaphorePermit>),
    /// It may wait, or be silent, for too long: do as the policy says.
    Expire,
    /// Too many like it wait for somebody outside: fail, if it does so too.
    GiveWay,
}

/// A message on its way to a task, and who waits to hear that it arrived.
pub(super) struct Incoming {
    pub(super) call: Call,
    pub(super) message: Message,
    pub(super) key: Option<Key>,
    pub(super) until: Instant,
    pub(super) answer: oneshot::Sender<Result<Accepted>>,
}

/// A log that somebody works on.
pub(super) struct Live {
    wishes: mpsc::Sender<Wish>,
    tail: Mutex<Tail>,
}

struct Tail {
    log: Option<Log>,
    /// A copy of the fold, made for those who asked and shared by all who ask until there is more: theirs is the
    /// price of it, never that of an append.
    shown: Option<Log>,
    /// Up to where the fold is kept in the store, or short enough to do without.
    kept: Seq,
    entries: VecDeque<Arc<Recorded>>,
    /// Of all entries together, in bytes.
    weight: usize,
    limits: Limits,
    /// The store cannot be written; those who follow are told, and come back later.
    lost: bool,
}

/// How many entries a tail may have, and how many bytes.
type Limits = (usize, usize);

impl Live {
    fn new(queue: usize, limits: Limits) -> (Arc<Self>, mpsc::Receiver<Wish>) {
        let (wishes, wished) = mpsc::channel(queue.max(1));
        let tail = Tail {
            log: None,
            shown: None,
            kept: Seq(0),
            entries: VecDeque::new(),
            weight: 0,
            limits,
            lost: false,
        };
        (Arc::new(Self { wishes, tail: Mutex::new(tail) }), wished)
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        // Every section below leaves the tail whole, so a panic elsewhere spoils nothing.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what is durable now. The fold is our own, so that an append costs what it adds and no more.
    pub(super) fn publish(&self, entries: impl IntoIterator<Item = Arc<Recorded>>) {
        let mut tail = self.tail();
        tail.shown = None;
        tail.lost = false;
        for entry in entries {
            if entry.seq == Seq(1) {
                tail.log = Some(Log::empty());
            }
            let Some(log) = &mut tail.log else { return };
            // What does not fit was recorded as ignored, so this cannot fail; if it did, the store has the truth.
            if log.apply(&entry).is_err() {
                tail.log = None;
                tail.clear();
                return;
            }
            tail.push(entry);
        }
        tail.cut();
    }

    /// Begins again from what the store has.
    pub(super) fn reset(&self, log: &Log) {
        let mut tail = self.tail();
        tail.clear();
        (tail.log, tail.shown) = (Some(log.clone()), None);
        tail.kept = log.at;
        tail.lost = false;
    }

    /// Says that nothing can be recorded for now.
    pub(super) fn lose(&self) {
        self.tail().lost = true;
    }

    /// Whether nothing can be recorded for now.
    pub(super) fn is_lost(&self) -> bool {
        self.tail().lost
    }

    /// The fold so far.
    pub(super) fn log(&self) -> Option<Log> {
        let tail = &mut *self.tail();
        let log = tail.log.as_ref()?;
        if tail.shown.as_ref().is_none_or(|shown| shown.at != log.at) {
            tail.shown = Some(log.copied());
        }
        tail.shown.clone()
    }

    /// Whether so much has come since the fold was last kept that it should be again. What is kept has the size of
    /// the task, so the steps grow with the log: all that is ever kept is a few times as long as the log itself.
    pub(super) fn should_be_kept(&self, long: u64, turn_ended: bool) -> bool {
        let tail = self.tail();
        let Some(log) = &tail.log else { return false };
        let step = match turn_ended {
            true if log.task.is_ended() => long,
            true => long.max(log.at.0 / 8),
            false => tail.kept.0.max(8 * long),
        };
        log.at.0.saturating_sub(tail.kept.0) >= step
    }

    /// The fold, to be kept.
    pub(super) fn log_to_keep(&self) -> Option<Log> {
        let log = self.log()?;
        self.tail().kept = log.at;
        Some(log)
    }

    /// The entries after `at`, none if the reader has them all; `None` when the tail does not reach back so far.
    pub(super) fn after(&self, at: Seq, limit: usize) -> Option<Vec<Arc<Recorded>>> {
        let tail = self.tail();
        if tail.log.as_ref()?.at <= at {
            return Some(Vec::new());
        }
        let first = tail.entries.front()?.seq;
        let skip = usize::try_from(at.0.checked_sub(first.0.checked_sub(1)?)?).ok()?;
        Some(tail.entries.iter().skip(skip).take(limit).cloned().collect())
    }
}

impl Tail {
    fn push(&mut self, entry: Arc<Recorded>) {
        self.weight += entry.event.weight();
        self.entries.push_back(entry);
    }

    /// Drops the oldest, until the rest is within bounds. Those who have not read them find them in the store.
    fn cut(&mut self) {
        let (most, heaviest) = self.limits;
        while self.entries.len() > most.max(1) || self.weight > heaviest {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.weight -= oldest.event.weight();
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.weight = 0;
    }
}

/// What became of a wish.
pub(super) enum Passed {
    /// Whoever works on the task has it.
    On,
    /// Nobody works on the task; the wish comes back with the place to do so.
    Back(Wish, Arc<Live>, mpsc::Receiver<Wish>),
    /// Too many wait already.
    Refused,
}

/// Logs by their task.
type Shard = Mutex<HashMap<TaskId, Arc<Live>>>;

/// All logs that somebody works on in this process. There is one worker for each, and this is where that is decided.
pub(super) struct Registry {
    shards: Box<[Shard]>,
    hasher: RandomState,
    queue: usize,
    tail: Limits,
}

impl Registry {
    pub(super) fn new(queue: usize, tail: Limits) -> Self {
        Self { shards: (0..32).map(|_| Mutex::default()).collect(), hasher: RandomState::new(), queue, tail }
    }

    fn shard(&self, id: &TaskId) -> MutexGuard<'_, HashMap<TaskId, Arc<Live>>> {
        let at = usize::try_from(self.hasher.hash_one(id) % 32).unwrap_or_default();
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<Live>> {
        self.shard(id).get(id).cloned()
    }

    /// Makes the caller the one who works on this task; it must be new.
    pub(super) fn claim(&self, id: &TaskId) -> (Arc<Live>, mpsc::Receiver<Wish>) {
        let (live, wished) = Live::new(self.queue, self.tail);
        self.shard(id).insert(id.clone(), live.clone());
        (live, wished)
    }

    /// Passes a wish to whoever works on the task, or makes the caller that one.
    pub(super) fn pass(&self, id: &TaskId, wish: Wish) -> Passed {
        let mut shard = self.shard(id);
        if let Some(live) = shard.get(id) {
            return live.wishes.try_send(wish).map_or(Passed::Refused, |()| Passed::On);
        }
        let (live, wished) = Live::new(self.queue, self.tail);
        shard.insert(id.clone(), live.clone());
        Passed::Back(wish, live, wished)
    }

    /// Stops being the one who works on a task, unless a wish has come meanwhile.
    pub(super) fn retire(&self, id: &TaskId, wished: &mut mpsc::Receiver<Wish>) -> Option<Wish> {
        let mut shard = self.shard(id);
        // Under the lock nobody can send, so an empty queue stays empty.
        match wished.try_recv() {
            Ok(wish) => Some(wish),
            Err(_) => {
                shard.remove(id);
                None
            }
        }
    }
}
