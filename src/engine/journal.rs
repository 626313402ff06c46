//! Store and bus as one log: append, read, follow. The tail of a log that somebody works on is in memory, so a
//! reader that keeps up never touches the store. A log that rests is folded from what was kept of it and what came
//! behind that, never from its beginning if it is long.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::keeper::{Keeper, LONG};
use super::live::{Live, Registry};
use super::log::Log;
use super::recorded::Recorded;
use super::resting::{Resting, Standing};
use super::{Error, Result};
use crate::bus::Bus;
use crate::model::{Entry, Event, Scope, Seq, Task, TaskId};
use crate::store::{self, Batch, Head, NewTask, Opened, Page, Query, Store, Underway};

/// How many entries are read at once.
const PAGE: usize = 1000;

pub(crate) struct Journal {
    pub(super) store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
    pub(super) registry: Registry,
    pub(super) resting: Resting,
    keeper: Arc<Keeper>,
    /// The fold of a log of so many entries is worth keeping.
    pub(super) long: u64,
    /// How long those who follow wait for the store to answer.
    patience: Duration,
    stop: CancellationToken,
}

impl Journal {
    pub(super) fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        (registry, resting): (Registry, Resting),
        patience: Duration,
        (tracker, stop): (TaskTracker, CancellationToken),
    ) -> Self {
        let keeper = Arc::new(Keeper::new(store.clone(), tracker, stop.clone()));
        Self {
            store,
            bus,
            registry,
            resting,
            keeper,
            long: LONG,
            patience,
            stop,
        }
    }

    pub(super) fn open<'a>(&'a self, task: &'a NewTask) -> Underway<'a, store::Result<Opened>> {
        self.store.create(task)
    }

    pub(super) async fn find(&self, scope: &Scope, task: &TaskId) -> store::Result<Option<Head>> {
        self.store.find(scope, task).await
    }

    pub(super) async fn list(&self, scope: &Scope, query: &Query) -> store::Result<Page> {
        self.store.list(scope, query).await
    }

    /// Adds a batch after `at`; readers hear of it only once it is durable.
    pub(super) fn append<'a>(
        &'a self,
        task: &'a Head,
        at: Seq,
        batch: &'a Batch,
    ) -> Underway<'a, store::Result<Seq>> {
        self.store.append(task, at, batch)
    }

    /// Lets readers see what is durable now, and has the fold, which may be ahead of that, kept if much has come since the
    /// last time. Gives back the room that the events had.
    pub(super) fn publish(
        &self,
        task: &Head,
        live: &Live,
        at: Seq,
        (batch, weight): (Batch, usize),
        log: &Log,
    ) -> Vec<Event> {
        let turn_ended = matches!(batch.events.last(), Some(Event::TurnEnded));
        let task_ended = batch.state.is_terminal();
        let end = Seq(at.0 + batch.events.len() as u64);
        let (time, mut events) = (batch.time, batch.events);
        // Whoever comes later begins with the fold, or reads the store.
        match self.bus.is_watched(&task.id) {
            true => {
                let numbered = events.drain(..).zip(at.0 + 1..);
                live.publish(
                    numbered.map(|(event, seq)| Entry {
                        seq: Seq(seq),
                        time,
                        event,
                    }),
                    weight,
                );
            }
            false => {
                live.pass_by(at, time, &events);
                events.clear();
            }
        }
        self.announce(&task.id, end);
        if log.at == end
            && live.should_be_kept(self.long, turn_ended, task_ended)
            && self.keeper.keep(task, log.clone())
        {
            live.is_kept();
        }
        events
    }

    /// Wakes those who follow the task.
    pub(super) fn announce(&self, task: &TaskId, at: Seq) {
        self.bus.announce(task, at);
    }

    /// The whole log, folded, as it was when `task` was found or later: from memory if somebody works on it or has
    /// read it before, else from the store.
    pub(super) async fn log(&self, task: &Head) -> Result<Log> {
        let live = self.registry.get(&task.id).and_then(|live| live.log());
        // What is durable is in the live fold a moment later, and the head may be of that moment.
        if let Some(log) = live.filter(|log| log.at >= task.position) {
            return Ok(log);
        }
        if let Some(rest) = self
            .resting
            .get(&task.id)
            .filter(|rest| rest.log.at == task.position)
        {
            return Ok(rest.log.clone());
        }
        // Watched meanwhile, so that what comes is at hand behind what was read.
        let _watch = self
            .registry
            .get(&task.id)
            .map(|_| self.bus.watch(&task.id));
        let log = self.read(task).await?;
        match self.registry.get(&task.id) {
            Some(live) => live.fold_from(&log),
            None => self.resting.put(&task.id, &log),
        }
        Ok(log)
    }

    /// The task at the end of its log, if it rests and was read before.
    pub(super) fn resting(&self, task: &TaskId, end: Seq) -> Option<Standing> {
        let rest = self.resting.get(task).filter(|rest| rest.log.at == end)?;
        Some(Standing::rests(rest, &self.resting))
    }

    /// The task, as it was when `task` was found or later.
    pub(super) async fn standing(&self, task: &Head) -> Result<Standing> {
        if let Some(standing) = self.resting(&task.id, task.position) {
            return Ok(standing);
        }
        let log = self.log(task).await?;
        Ok(self
            .resting(&task.id, log.at)
            .unwrap_or(Standing::Read(log.task)))
    }

    /// The log as the store has it, for the one who works on it.
    pub(super) async fn stored(&self, task: &Head) -> Result<Log> {
        let log = self.read(task).await?;
        if !log.task.is_ended() {
            self.resting.remove(&task.id);
        }
        Ok(log)
    }

    async fn read(&self, task: &Head) -> Result<Log> {
        let base = self.base(task).await;
        self.read_on(task, base).await
    }

    /// What is known of a log without reading its entries; an empty one if that is nothing.
    async fn base(&self, task: &Head) -> Log {
        if let Some(rest) = self.resting.get(&task.id) {
            return rest.log.clone();
        }
        if task.position.0 < self.long {
            return Log::empty();
        }
        // A cache: where it fails the log itself may be readable, and if not, that says why.
        let kept = self.store.kept(task).await.ok().flatten();
        kept.map_or_else(Log::empty, |(at, folded)| Log::kept(at, folded))
    }

    /// The task as it was at a position.
    pub(super) async fn task_at(&self, task: &Head, at: Seq) -> Result<Arc<Task>> {
        let kept = self
            .store
            .kept(task)
            .await
            .ok()
            .flatten()
            .filter(|(kept, _)| *kept <= at);
        let mut log = kept.map_or_else(Log::empty, |(at, folded)| Log::kept(at, folded));
        while log.at < at {
            let left = usize::try_from(at.0 - log.at.0).unwrap_or(PAGE).min(PAGE);
            let entries = self.store.read(task, log.at, left).await?;
            if entries.is_empty() {
                return Err(Error::Gone);
            }
            for entry in &entries {
                log.apply(entry)?;
            }
        }
        Ok(log.task)
    }

    /// Takes in what came behind a fold.
    async fn read_on(&self, task: &Head, base: Log) -> Result<Log> {
        let (from, mut log) = (base.at, base);
        // With the last that is known: where that is not there, the task was removed.
        let mut after = Seq(from.0.saturating_sub(1));
        loop {
            let entries = self.store.read(task, after, PAGE).await?;
            if entries.is_empty() && log.at == from {
                self.resting.remove(&task.id);
                return Err(Error::Gone);
            }
            for entry in entries.iter().filter(|entry| entry.seq > from) {
                log.apply(entry)?;
            }
            after = log.at;
            if entries.len() < PAGE {
                break;
            }
        }
        if log.at.0 - from.0 >= self.long {
            self.keeper.keep(task, log.clone());
        }
        Ok(log)
    }

    /// Forgets tasks, and lets those who still follow one find out.
    pub(super) async fn remove(&self, tasks: &[Head]) -> store::Result<()> {
        self.store.remove(tasks).await?;
        for head in tasks {
            self.resting.remove(&head.id);
            self.announce(&head.id, head.position);
        }
        Ok(())
    }

    /// The tail of a log, watched from now on.
    pub(super) fn watched(&self, task: &TaskId, live: &Arc<Live>) -> Watched {
        Watched {
            wake: self.bus.watch(task),
            live: live.clone(),
        }
    }

    /// Wakes when anybody, here or elsewhere, has added to the log.
    pub(super) fn watch(&self, task: &TaskId) -> watch::Receiver<Seq> {
        self.bus.watch(task)
    }

    /// Every entry after `at`, as it comes.
    pub(super) fn follow(self: &Arc<Self>, task: &Head, at: Seq) -> Follow {
        self.follow_on(task, at, None)
    }

    /// The same for one who watches it already.
    pub(super) fn follow_on(
        self: &Arc<Self>,
        task: &Head,
        at: Seq,
        tail: Option<Watched>,
    ) -> Follow {
        Follow {
            at,
            ..self.follow_from(task, Vec::new(), tail)
        }
    }

    /// Every entry from the first on, where the first ones are at hand.
    pub(super) fn follow_from(
        self: &Arc<Self>,
        task: &Head,
        known: Vec<Recorded>,
        tail: Option<Watched>,
    ) -> Follow {
        let (wake, live) = match tail {
            Some(Watched { wake, live }) => (wake, Some(live)),
            None => (self.bus.watch(&task.id), self.registry.get(&task.id)),
        };
        let (journal, task) = (self.clone(), task.clone());
        Follow {
            journal,
            task,
            at: Seq(0),
            known,
            wake,
            live,
        }
    }
}

/// The tail of a log that somebody works on: what is added while there is one of these stays in it, within its bounds.
#[derive(Debug)]
pub(super) struct Watched {
    wake: watch::Receiver<Seq>,
    live: Arc<Live>,
}

/// A reader of one log, at its own pace. It slows nobody, and nobody slows it.
pub(crate) struct Follow {
    journal: Arc<Journal>,
    task: Head,
    at: Seq,
    /// What is at hand of what comes next.
    known: Vec<Recorded>,
    wake: watch::Receiver<Seq>,
    /// The tail it reads. Held, so that it is still there for those who have not read the last of it when the work is done.
    live: Option<Arc<Live>>,
}

impl Follow {
    /// The next entries, at least one; waits for them.
    ///
    /// # Errors
    /// The task is gone, the engine stops, or nothing can be recorded for now. Nothing was skipped: whoever calls
    /// again goes on where they were.
    pub(crate) async fn next(&mut self) -> Result<Vec<Recorded>> {
        loop {
            // Seen before reading: what is announced while we read wakes us again.
            self.wake.mark_unchanged();
            let entries = self.read().await?;
            if let Some(last) = entries.last() {
                self.at = last.seq;
                return Ok(entries);
            }
            tokio::select! {
                biased;
                changed = self.wake.changed() => changed.map_err(|_| Error::Stopped)?,
                () = self.journal.stop.cancelled() => return Err(Error::Stopped),
            }
        }
    }

    /// The next entries, none if there are none now; does not wait for them.
    ///
    /// # Errors
    /// As `next`.
    pub(crate) async fn ready(&mut self) -> Result<Vec<Recorded>> {
        let entries = self.read().await?;
        if let Some(last) = entries.last() {
            self.at = last.seq;
        }
        Ok(entries)
    }

    async fn read(&mut self) -> Result<Vec<Recorded>> {
        if !self.known.is_empty() {
            return Ok(std::mem::take(&mut self.known));
        }
        if let Some(entries) = self.tail()? {
            return Ok(entries);
        }
        // Apart: whoever keeps up waits without room for it.
        let stored = Box::pin(timeout(self.journal.patience, self.stored()));
        let entries = stored.await.unwrap_or(Err(Error::Lost))?;
        Ok(Recorded::own(entries))
    }

    /// The next entries, none if there are none now; `None` where the tail does not reach back so far, or there is none.
    fn tail(&mut self) -> Result<Option<Vec<Recorded>>> {
        let held = self.live.take();
        if let Some(live) = held.filter(|live| !live.is_over() || live.reaches_beyond(self.at)) {
            return self.tail_of(live);
        }
        match self.journal.registry.get(&self.task.id) {
            Some(live) => self.tail_of(live),
            None => Ok(None),
        }
    }

    fn tail_of(&mut self, live: Arc<Live>) -> Result<Option<Vec<Recorded>>> {
        let entries = live.after(self.at, PAGE);
        if entries.as_ref().is_some_and(Vec::is_empty) && live.is_lost() {
            return Err(Error::Lost);
        }
        self.live = Some(live);
        Ok(entries)
    }

    async fn stored(&self) -> Result<Vec<Entry>> {
        let entries = self.journal.store.read(&self.task, self.at, PAGE).await?;
        if entries.is_empty() && !self.is_there().await? {
            return Err(Error::Gone);
        }
        Ok(entries)
    }

    /// Whether the log is there at all: a task is removed whole or not.
    async fn is_there(&self) -> Result<bool> {
        Ok(!self
            .journal
            .store
            .read(&self.task, Seq(0), 1)
            .await?
            .is_empty())
    }
}
