//! Store and bus as one log: append, read, follow. The tail of a log that somebody works on is in memory, so a
//! reader that keeps up never touches the store.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::live::{Live, Registry};
use super::log::Log;
use super::recorded::Recorded;
use super::{Error, Result};
use crate::bus::Bus;
use crate::model::{Event, Message, Scope, Seq, TaskId};
use crate::store::{self, Batch, Head, NewTask, Opened, Page, Query, Store};

/// How many entries are read at once.
const PAGE: usize = 1000;

#[derive(Clone)]
pub(crate) struct Journal {
    pub(super) store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
    pub(super) registry: Arc<Registry>,
    stop: CancellationToken,
}

impl Journal {
    pub(super) fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        registry: Registry,
        stop: CancellationToken,
    ) -> Self {
        Self { store, bus, registry: Arc::new(registry), stop }
    }

    pub(super) async fn open(&self, task: NewTask) -> store::Result<Opened> {
        self.store.create(task).await
    }

    pub(super) async fn find(&self, scope: &Scope, task: &TaskId) -> store::Result<Option<Head>> {
        self.store.find(scope, task).await
    }

    pub(super) async fn list(&self, scope: &Scope, query: &Query) -> store::Result<Page> {
        self.store.list(scope, query).await
    }

    /// Adds a batch after `at`; readers hear of it only once it is durable.
    pub(super) async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> store::Result<()> {
        self.store.append(task, at, batch).await.map(|_| ())
    }

    /// Lets readers see what is durable now.
    pub(super) fn publish(&self, task: &TaskId, live: &Live, at: Seq, batch: &Batch) {
        live.publish(batch.entries(at).map(|entry| Arc::new(Recorded::new(entry))));
        self.announce(task, Seq(at.0 + batch.events.len() as u64));
    }

    /// Wakes those who follow the task.
    pub(super) fn announce(&self, task: &TaskId, at: Seq) {
        self.bus.announce(task, at);
    }

    /// The whole log, folded: from memory if somebody works on it, else from what was kept and what came after.
    pub(super) async fn log(&self, task: &Head) -> Result<Log> {
        match self.registry.get(&task.id).and_then(|live| live.log()) {
            Some(log) => Ok(log),
            None => self.stored(task).await,
        }
    }

    /// The log as the store has it.
    pub(super) async fn stored(&self, task: &Head) -> Result<Log> {
        let mut log = Log::empty();
        loop {
            let entries = self.store.read(task, log.at, PAGE).await?;
            for entry in &entries {
                log.apply(entry)?;
            }
            if entries.len() < PAGE {
                return if log.at == Seq(0) { Err(Error::Gone) } else { Ok(log) };
            }
        }
    }

    /// Wakes when anybody, here or elsewhere, has added to the log.
    pub(super) fn watch(&self, task: &TaskId) -> watch::Receiver<Seq> {
        self.bus.watch(task)
    }

    /// The number of the turn that takes a message which is in the log: the n-th turn takes the n-th message.
    pub(super) async fn turn_of(&self, task: &Head, message: &Message) -> Result<Option<u64>> {
        let (mut at, mut turn, mut alike) = (Seq(0), 0, None);
        loop {
            let entries = self.store.read(task, at, PAGE).await?;
            for entry in &entries {
                let Event::Message(known) = &entry.event else { continue };
                turn += 1;
                if known.parts == message.parts {
                    if known.message_id == message.message_id {
                        return Ok(Some(turn));
                    }
                    // A client of the first days gives its messages no ids.
                    alike = alike.or(Some(turn));
                }
            }
            match entries.last() {
                Some(last) if entries.len() == PAGE => at = last.seq,
                _ => return Ok(alike),
            }
        }
    }

    /// Every entry after `at`, as it comes.
    pub(super) fn follow(&self, task: &Head, at: Seq) -> Follow {
        Follow { journal: self.clone(), task: task.clone(), at, wake: self.bus.watch(&task.id) }
    }
}

/// A reader of one log, at its own pace. It slows nobody, and nobody slows it.
pub(crate) struct Follow {
    journal: Journal,
    task: Head,
    at: Seq,
    wake: watch::Receiver<Seq>,
}

impl Follow {
    /// The next entries, at least one; waits for them.
    ///
    /// # Errors
    /// The task is gone, the engine stops, or nothing can be recorded for now. Nothing was skipped: whoever calls
    /// again goes on where they were.
    pub(crate) async fn next(&mut self) -> Result<Vec<Arc<Recorded>>> {
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

    async fn read(&self) -> Result<Vec<Arc<Recorded>>> {
        if let Some(live) = self.journal.registry.get(&self.task.id) {
            match live.after(self.at, PAGE) {
                Some(entries) if entries.is_empty() && live.is_lost() => return Err(Error::Lost),
                Some(entries) => return Ok(entries),
                None => {}
            }
        }
        let entries = self.journal.store.read(&self.task, self.at, PAGE).await?;
        if entries.is_empty() && !self.is_there().await? {
            return Err(Error::Gone);
        }
        Ok(entries.into_iter().map(|entry| Arc::new(Recorded::new(entry))).collect())
    }

    /// Whether the log is there at all: a task is removed whole or not.
    async fn is_there(&self) -> Result<bool> {
        Ok(!self.journal.store.read(&self.task, Seq(0), 1).await?.is_empty())
    }
}
