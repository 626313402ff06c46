//! Reader of one log: returns durable entries in order, and waits for new ones.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;

use super::active_tasks::ActiveTask;
use super::journal::Journal;
use super::shared_entry::SharedEntry;
use super::{Error, Result};
use crate::model::{Entry, Seq};
use crate::store::{Head, ReadLimit};

/// Limit of one read for a subscriber. A subscriber that does not read keeps one such page in memory.
pub(super) const STREAM_PAGE: ReadLimit = ReadLimit {
    entries: 1000,
    bytes: 64 << 10,
};

/// Subscription to the tail of an active task. While it exists, the tail buffers new entries, within its limits.
#[derive(Debug)]
pub(super) struct TailSubscription {
    pub(super) announcements: watch::Receiver<Seq>,
    pub(super) active: Arc<ActiveTask>,
}

/// Reader of one log. Reads at its own pace: it slows down neither the writer nor other readers.
pub(crate) struct Follow {
    journal: Arc<Journal>,
    task: Head,
    /// Position of the last returned entry.
    position: Seq,
    /// Entries to return first.
    buffered: Vec<SharedEntry>,
    announcements: watch::Receiver<Seq>,
    /// The tail that it reads. Held so that the rest of the tail stays readable after the runner has retired.
    active: Option<Arc<ActiveTask>>,
}

impl Follow {
    pub(super) fn new(
        journal: Arc<Journal>,
        task: Head,
        position: Seq,
        buffered: Vec<SharedEntry>,
        tail: Option<TailSubscription>,
    ) -> Self {
        // Subscribed before the tail is looked up, so that no announcement falls between the two.
        let (announcements, active) = match tail {
            Some(tail) => (tail.announcements, Some(tail.active)),
            None => {
                let announcements = journal.watch(&task.id);
                (announcements, journal.active_tasks.get(&task.id))
            }
        };
        Self {
            journal,
            task,
            position,
            buffered,
            announcements,
            active,
        }
    }

    /// Returns the next entries, at least one. Waits for them.
    ///
    /// # Errors
    /// The task was deleted, the engine is shutting down, or the store is unavailable. No entry is skipped: a later
    /// call continues after the last returned entry.
    pub(crate) async fn next(&mut self) -> Result<Vec<SharedEntry>> {
        loop {
            // Marked before the read: an announcement during the read wakes the wait below.
            self.announcements.mark_unchanged();
            let entries = self.read_next().await?;
            if let Some(last) = entries.last() {
                self.position = last.seq;
                return Ok(entries);
            }
            tokio::select! {
                biased;
                changed = self.announcements.changed() => changed.map_err(|_| Error::ShuttingDown)?,
                () = self.journal.stop.cancelled() => return Err(Error::ShuttingDown),
            }
        }
    }

    /// Returns the next entries without waiting for new ones. Empty if there are none.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    pub(crate) async fn try_next(&mut self) -> Result<Vec<SharedEntry>> {
        let entries = self.read_next().await?;
        if let Some(last) = entries.last() {
            self.position = last.seq;
        }
        Ok(entries)
    }

    async fn read_next(&mut self) -> Result<Vec<SharedEntry>> {
        if !self.buffered.is_empty() {
            return Ok(std::mem::take(&mut self.buffered));
        }
        if let Some(entries) = self.read_tail()? {
            return Ok(entries);
        }
        // Boxed: future size.
        let stored = Box::pin(timeout(self.journal.store_timeout, self.read_store()));
        let entries = stored.await.unwrap_or(Err(Error::StoreUnavailable))?;
        Ok(SharedEntry::unshared(entries))
    }

    /// Returns the next entries of the tail. `None` if there is no tail, or it does not reach back that far.
    fn read_tail(&mut self) -> Result<Option<Vec<SharedEntry>>> {
        let held = self.active.take();
        let usable =
            held.filter(|active| !active.is_closed() || active.has_entries_after(self.position));
        match usable.or_else(|| self.journal.active_tasks.get(&self.task.id)) {
            Some(active) => self.read_tail_of(active),
            None => Ok(None),
        }
    }

    fn read_tail_of(&mut self, active: Arc<ActiveTask>) -> Result<Option<Vec<SharedEntry>>> {
        let entries = active.entries_after(self.position, STREAM_PAGE);
        if entries.as_ref().is_some_and(Vec::is_empty) && active.is_unwritable() {
            return Err(Error::StoreUnavailable);
        }
        self.active = Some(active);
        Ok(entries)
    }

    async fn read_store(&self) -> Result<Vec<Entry>> {
        let store = &self.journal.store;
        let entries = store.read(&self.task, self.position, STREAM_PAGE).await?;
        if entries.is_empty() && !self.exists().await? {
            return Err(Error::Deleted);
        }
        Ok(entries)
    }

    /// Returns whether the log exists. Logs are deleted as a whole, so the first entry decides.
    async fn exists(&self) -> Result<bool> {
        let store = &self.journal.store;
        let first = store
            .read(&self.task, Seq(0), ReadLimit::entries(1))
            .await?;
        Ok(!first.is_empty())
    }
}
