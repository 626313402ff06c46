//! Store and bus as one log: append, read, follow. Every read goes to the store.

use std::sync::Arc;

use tokio::sync::watch;

use super::log::Log;
use super::{Error, Result};
use crate::bus::Bus;
use crate::model::{Entry, Scope, Seq, TaskId};
use crate::store::{self, Batch, Head, NewTask, Opened, Store};

/// How many entries are read at once.
const PAGE: usize = 1000;

#[derive(Clone)]
pub(crate) struct Journal {
    store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
}

impl Journal {
    pub(super) fn new(store: Arc<dyn Store>, bus: Arc<dyn Bus>) -> Self {
        Self { store, bus }
    }

    /// Opens a log. Nobody can follow it yet, so nobody is told.
    pub(super) async fn open(&self, task: NewTask) -> store::Result<Head> {
        match self.store.create(task).await? {
            Opened::New(head) | Opened::Again(head) => Ok(head),
        }
    }

    pub(super) async fn find(&self, scope: &Scope, task: &TaskId) -> store::Result<Option<Head>> {
        self.store.find(scope, task).await
    }

    /// Adds a batch after `at`, then wakes the readers.
    pub(super) async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> store::Result<()> {
        let at = self.store.append(task, at, batch).await?;
        self.bus.announce(&task.id, at);
        Ok(())
    }

    /// The whole log, folded.
    pub(super) async fn log(&self, task: &Head) -> Result<Log> {
        let mut log = Log::empty();
        loop {
            let entries = self.store.read(task, log.at, PAGE).await?;
            for entry in &entries {
                log.apply(entry)?;
            }
            if entries.len() < PAGE {
                return Ok(log);
            }
        }
    }

    /// Every entry after `at`, as it comes.
    pub(super) fn follow(&self, task: &Head, at: Seq) -> Follow {
        let (store, wake) = (self.store.clone(), self.bus.watch(&task.id));
        Follow { store, task: task.clone(), at, wake }
    }
}

/// A reader of one log, at its own pace.
pub(super) struct Follow {
    store: Arc<dyn Store>,
    task: Head,
    at: Seq,
    wake: watch::Receiver<Seq>,
}

impl Follow {
    /// The next entries, at least one; waits for them.
    pub(super) async fn next(&mut self) -> Result<Vec<Entry>> {
        loop {
            // Seen before reading: what is announced while we read wakes us again.
            self.wake.mark_unchanged();
            let entries = self.store.read(&self.task, self.at, PAGE).await?;
            if let Some(last) = entries.last() {
                self.at = last.seq;
                return Ok(entries);
            }
            self.wake.changed().await.map_err(|_| Error::Stopped)?;
        }
    }
}
