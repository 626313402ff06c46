//! Logs that somebody works on: the tail for those who follow them, and the fold for those who ask.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::log::Log;
use super::recorded::{Recorded, Sheet};
use super::{Accepted, Result};
use crate::model::{Call, Entry, Event, Message, Object, Seq, Task, TaskId, Timestamp};
use crate::store::Key;

/// What others want of the one who works on a task.
pub(super) enum Wish {
    /// Take this message.
    Message(Box<Incoming>),
    /// Stop, and end as canceled.
    Cancel {
        metadata: Option<Object>,
        until: Instant,
        answer: oneshot::Sender<Result<Task>>,
    },
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
    pub(super) answer: oneshot::Sender<Result<Box<Accepted>>>,
}

/// A log that somebody works on.
pub(super) struct Live {
    wishes: Mutex<Wishes>,
    wished: Notify,
    tail: Mutex<Tail>,
}

/// Wishes on their way, as many as may wait. Most tasks never have one, so there is no channel.
struct Wishes {
    waiting: VecDeque<Wish>,
    most: usize,
    /// Nobody is there to grant them any more.
    closed: bool,
}

/// The place of the one who works on a task: where wishes arrive.
pub(super) struct Wished(Arc<Live>);

impl Wished {
    /// The next wish; waits for it.
    pub(super) async fn next(&mut self) -> Wish {
        loop {
            if self.is_wanted() {
                // So many of them that there is always one must not keep others from running.
                tokio::task::coop::consume_budget().await;
            }
            if let Some(wish) = self.ready() {
                return wish;
            }
            // One that has come in between has left word.
            self.0.wished.notified().await;
        }
    }

    /// Whether there is a wish.
    pub(super) fn is_wanted(&self) -> bool {
        !self.0.wishes().waiting.is_empty()
    }

    /// The next wish, if there is one.
    fn ready(&mut self) -> Option<Wish> {
        self.0.wishes().waiting.pop_front()
    }
}

impl Drop for Wished {
    /// Those who still wish for something are told so by the end of their wish.
    fn drop(&mut self) {
        let mut wishes = self.0.wishes();
        wishes.closed = true;
        let unheard = std::mem::take(&mut wishes.waiting);
        drop(wishes);
        drop(unheard);
    }
}

struct Tail {
    /// The fold up to where the tail begins, or beyond, if somebody has asked for it: most of what is said nobody asks for.
    log: Option<Log>,
    /// The end of what is durable; 0 where that is not known.
    end: Seq,
    /// A copy of the fold, made for those who asked and shared by all who ask until there is more: theirs is the
    /// price of it, never that of an append.
    shown: Option<Log>,
    /// Up to where the fold is kept in the store, or short enough to do without.
    kept: Seq,
    /// What was recorded together stays together: a batch costs one allocation, and goes as it came.
    sheets: VecDeque<(Sheet, usize)>,
    /// Of all entries together.
    length: usize,
    /// The same in bytes.
    weight: usize,
    limits: Limits,
    /// The store cannot be written; those who follow are told, and come back later.
    lost: bool,
}

/// How many entries a tail may have, and how many bytes.
type Limits = (usize, usize);

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("end", &self.tail().end)
            .finish_non_exhaustive()
    }
}

impl Live {
    fn new(queue: usize, limits: Limits) -> (Arc<Self>, Wished) {
        let wishes = Mutex::new(Wishes {
            waiting: VecDeque::new(),
            most: queue.max(1),
            closed: false,
        });
        let tail = Tail {
            log: None,
            end: Seq(0),
            shown: None,
            kept: Seq(0),
            sheets: VecDeque::new(),
            length: 0,
            weight: 0,
            limits,
            lost: false,
        };
        let live = Arc::new(Self {
            wishes,
            wished: Notify::new(),
            tail: Mutex::new(tail),
        });
        (live.clone(), Wished(live))
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        // A queue is whole between any two calls, so a panic elsewhere spoils nothing.
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a wish on; `false` where too many wait, or nobody is there.
    fn wish(&self, wish: Wish) -> bool {
        let mut wishes = self.wishes();
        if wishes.closed || wishes.waiting.len() >= wishes.most {
            return false;
        }
        wishes.waiting.push_back(wish);
        drop(wishes);
        self.wished.notify_one();
        true
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        // Every section below leaves the tail whole, so a panic elsewhere spoils nothing.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what is durable now, and how heavy that is. The fold is our own, so that an append costs what it adds and
    /// no more.
    pub(super) fn publish(&self, entries: impl Iterator<Item = Entry>, weight: usize) {
        let mut tail = self.tail();
        tail.shown = None;
        tail.lost = false;
        if weight <= tail.limits.1 / 4 {
            tail.push(Recorded::sheet(entries), weight);
        } else {
            // As a whole it would go too soon.
            for entry in entries {
                let weight = entry.event.weight();
                tail.push(Recorded::sheet([entry]), weight);
            }
        }
    }

    /// Takes in what is durable now where nobody follows: it is folded if somebody has asked for the fold before, and in
    /// any case not kept. Whoever wants it later reads the store.
    pub(super) fn pass_by(&self, at: Seq, time: Timestamp, events: &[Event]) {
        let mut tail = self.tail();
        tail.shown = None;
        tail.lost = false;
        tail.fold();
        tail.clear();
        tail.take(at, time, events);
    }

    /// Goes on from the fold of somebody who has read the store.
    pub(super) fn fold_from(&self, log: &Log) {
        let mut tail = self.tail();
        let reaches = tail
            .sheets
            .front()
            .map_or(tail.end, |(sheet, _)| Seq(sheet[0].seq.0 - 1))
            <= log.at;
        if tail.log.is_none() && tail.end > Seq(0) && reaches {
            tail.log = Some(log.copied());
        }
    }

    /// Begins again from what the store has.
    pub(super) fn reset(&self, log: &Log) {
        let mut tail = self.tail();
        tail.clear();
        (tail.log, tail.shown) = (None, None);
        (tail.end, tail.kept) = (log.at, log.at);
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

    /// Nobody works on the task by this any more. What is left is the tail, for those who have not read the last of it.
    fn end(&self) {
        self.wishes().closed = true;
        let mut tail = self.tail();
        (tail.log, tail.shown) = (None, None);
    }

    /// Whether nobody works on the task by this any more.
    pub(super) fn is_over(&self) -> bool {
        self.wishes().closed
    }

    /// Whether it has more than a reader who is there.
    pub(super) fn reaches_beyond(&self, at: Seq) -> bool {
        self.tail().end > at
    }

    /// The fold so far.
    pub(super) fn log(&self) -> Option<Log> {
        let tail = &mut *self.tail();
        tail.fold();
        let log = tail.log.as_ref()?;
        if tail.shown.as_ref().is_none_or(|shown| shown.at != log.at) {
            tail.shown = Some(log.copied());
        }
        tail.shown.clone()
    }

    /// Whether so much has come since the fold was last kept that it should be again. What is kept has the size of
    /// the task, so the steps grow with the log: all that is ever kept is a few times as long as the log itself.
    pub(super) fn should_be_kept(&self, long: u64, turn_ended: bool, task_ended: bool) -> bool {
        let tail = self.tail();
        let step = match turn_ended {
            true if task_ended => long,
            true => long.max(tail.end.0 / 8),
            false => tail.kept.0.max(8 * long),
        };
        tail.end.0.saturating_sub(tail.kept.0) >= step
    }

    /// It was given away to be kept.
    pub(super) fn is_kept(&self) {
        let mut tail = self.tail();
        tail.kept = tail.end;
    }

    /// The entries after `at`, none if the reader has them all; `None` when the tail does not reach back so far.
    pub(super) fn after(&self, at: Seq, limit: usize) -> Option<Vec<Recorded>> {
        let tail = self.tail();
        if tail.end > Seq(0) && tail.end <= at {
            return Some(Vec::new());
        }
        // The last sheet that begins no later than what comes next; none if that is not kept any more.
        let next = Seq(at.0 + 1);
        let sheet = tail
            .sheets
            .partition_point(|(sheet, _)| sheet[0].seq <= next)
            .checked_sub(1)?;
        let sheets = tail.sheets.iter().skip(sheet).map(|(sheet, _)| sheet);
        let skip = |sheet: &Sheet| {
            usize::try_from(next.0.saturating_sub(sheet[0].seq.0)).unwrap_or(usize::MAX)
        };
        Some(
            sheets
                .flat_map(|sheet| Recorded::all(sheet, skip(sheet)))
                .take(limit)
                .collect(),
        )
    }
}

impl Tail {
    /// Takes in what is durable now, and drops the oldest until the rest is within bounds. Those who have not read them find
    /// them in the store.
    fn push(&mut self, sheet: Sheet, weight: usize) {
        let (Some(first), Some(last)) = (sheet.first(), sheet.last()) else {
            return;
        };
        if first.seq == Seq(1) {
            self.log = Some(Log::empty());
        }
        if self.end == Seq(0) && first.seq != Seq(1) {
            return;
        }
        self.end = last.seq;
        self.length += sheet.len();
        self.weight += weight;
        self.sheets.push_back((sheet, weight));
        let (most, heaviest) = self.limits;
        while self.length > most.max(1) || self.weight > heaviest {
            let Some((oldest, weight)) = self.sheets.pop_front() else {
                return;
            };
            self.length -= oldest.len();
            self.weight -= weight;
            self.fold_in(&oldest);
        }
    }

    /// Folds all that is durable.
    fn fold(&mut self) {
        let sheets: Vec<Sheet> = self.sheets.iter().map(|(sheet, _)| sheet.clone()).collect();
        sheets.iter().for_each(|sheet| self.fold_in(sheet));
    }

    /// Folds what of a sheet is not yet. What does not fit was recorded as ignored, so this cannot fail; if it did, the
    /// store has the truth.
    fn fold_in(&mut self, sheet: &Sheet) {
        let Some(log) = &mut self.log else { return };
        let known = log.at;
        let mut news = sheet.iter().filter(|entry| entry.seq > known);
        if news.any(|entry| log.apply(entry).is_err()) {
            self.forget();
        }
    }

    /// Takes in what nobody reads entry by entry.
    fn take(&mut self, at: Seq, time: Timestamp, events: &[Event]) {
        if self.end == Seq(0) && at != Seq(0) {
            return;
        }
        self.end = Seq(at.0 + events.len() as u64);
        let Some(log) = &mut self.log else { return };
        let known = log.at.0;
        let mut news = events
            .iter()
            .zip(at.0 + 1..)
            .filter(|(_, seq)| *seq > known);
        if news.any(|(event, seq)| log.apply_event(Seq(seq), time, event).is_err()) {
            self.forget();
        }
    }

    /// Nothing is known any more: the store has the truth.
    fn forget(&mut self) {
        (self.log, self.end) = (None, Seq(0));
        self.clear();
    }

    fn clear(&mut self) {
        self.sheets.clear();
        (self.length, self.weight) = (0, 0);
    }
}

/// What became of a wish.
pub(super) enum Passed {
    /// Whoever works on the task has it.
    On,
    /// Nobody works on the task; the wish comes back with the place to do so.
    Back(Wish, Arc<Live>, Wished),
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
        Self {
            shards: (0..32).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            queue,
            tail,
        }
    }

    fn shard(&self, id: &TaskId) -> MutexGuard<'_, HashMap<TaskId, Arc<Live>>> {
        let at = usize::try_from(self.hasher.hash_one(id) % 32).unwrap_or_default();
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, id: &TaskId) -> Option<Arc<Live>> {
        self.shard(id).get(id).cloned()
    }

    /// Makes the caller the one who works on this task; it must be new.
    pub(super) fn claim(&self, id: &TaskId) -> (Arc<Live>, Wished) {
        let (live, wished) = Live::new(self.queue, self.tail);
        self.shard(id).insert(id.clone(), live.clone());
        (live, wished)
    }

    /// Passes a wish to whoever works on the task, or makes the caller that one.
    pub(super) fn pass(&self, id: &TaskId, wish: Wish) -> Passed {
        let mut shard = self.shard(id);
        if let Some(live) = shard.get(id) {
            return if live.wish(wish) {
                Passed::On
            } else {
                Passed::Refused
            };
        }
        let (live, wished) = Live::new(self.queue, self.tail);
        shard.insert(id.clone(), live.clone());
        Passed::Back(wish, live, wished)
    }

    /// Stops being the one who works on a task, unless a wish has come meanwhile.
    pub(super) fn retire(&self, id: &TaskId, wished: &mut Wished) -> Option<Wish> {
        let mut shard = self.shard(id);
        // Under the lock nobody can send, so an empty queue stays empty.
        let wish = wished.ready();
        if wish.is_none() {
            // Before anybody else can begin: whoever still reads here must see that there may be more elsewhere.
            wished.0.end();
            shard.remove(id);
        }
        wish
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_reads_a_tail_knows_that_it_is_over_before_another_can_begin() {
        let (registry, id) = (Registry::new(1, (9, 9)), TaskId::from("t"));
        let (live, mut wished) = registry.claim(&id);
        assert!(live.wish(Wish::Late));
        assert!(matches!(
            registry.retire(&id, &mut wished),
            Some(Wish::Late)
        ));
        assert!(!live.is_over());
        assert!(registry.retire(&id, &mut wished).is_none());
        assert!(live.is_over() && registry.get(&id).is_none());
    }
}
