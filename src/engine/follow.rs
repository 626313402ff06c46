//! Reader of one log: returns durable entries in order, and waits for new ones.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;

use super::active_tasks::ActiveTask;
use super::follower_cache::FollowedLog;
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

/// Entries that were read together.
#[derive(Debug, Default)]
pub(super) struct LogPage {
    pub(super) entries: Vec<SharedEntry>,
    /// Memory that the reader of the page takes, about: its entries unless they are shared, and their encoding.
    pub(super) bytes: usize,
}

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
    /// Position before the last returned page.
    page_start: Seq,
    /// Size of the last returned page, before it that of `buffered`.
    page_bytes: usize,
    /// Limit of one page.
    page_limit: &'static ReadLimit,
    /// Entries to return first.
    buffered: Box<[SharedEntry]>,
    announcements: watch::Receiver<Seq>,
    /// The tail that it reads. Held so that the rest of the tail stays readable after the runner has retired.
    active: Option<Arc<ActiveTask>>,
    /// The shared tail of a log that another replica writes.
    followed: Option<Arc<FollowedLog>>,
}

impl Follow {
    pub(super) fn new(
        journal: Arc<Journal>,
        task: Head,
        position: Seq,
        buffered: LogPage,
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
            page_start: position,
            page_bytes: buffered.bytes,
            page_limit: &STREAM_PAGE,
            buffered: buffered.entries.into(),
            announcements,
            active,
            followed: None,
        }
    }

    /// Limits the pages, for a reader that holds them for long.
    pub(crate) fn with_page_limit(self, page_limit: &'static ReadLimit) -> Self {
        Self { page_limit, ..self }
    }

    /// Returns the memory that the last returned page takes, about.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Goes back before the last returned page. The next read returns it again.
    pub(crate) fn rewind(&mut self) {
        self.position = self.page_start;
        self.buffered = Box::default();
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
            let page = self.read_next().await?;
            if !page.entries.is_empty() {
                return Ok(self.advance(page));
            }
            if self.followed.is_some() {
                self.journal.bus.request_announcements(&self.task.id);
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
        let page = self.read_next().await?;
        Ok(self.advance(page))
    }

    /// Returns the next entries like [`try_next`](Self::try_next), as a part of the page that was returned before.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    pub(crate) async fn try_more(&mut self) -> Result<Vec<SharedEntry>> {
        let page = self.read_next().await?;
        self.page_bytes += page.bytes;
        if let Some(last) = page.entries.last() {
            self.position = last.seq;
        }
        Ok(page.entries)
    }

    /// Moves behind a page and returns its entries.
    fn advance(&mut self, page: LogPage) -> Vec<SharedEntry> {
        self.page_start = self.position;
        self.page_bytes = page.bytes;
        if let Some(last) = page.entries.last() {
            self.position = last.seq;
        }
        page.entries
    }

    async fn read_next(&mut self) -> Result<LogPage> {
        if !self.buffered.is_empty() {
            let entries = std::mem::take(&mut self.buffered).into_vec();
            let bytes = self.page_bytes;
            return Ok(LogPage { entries, bytes });
        }
        if let Some(page) = self.read_tail()? {
            return Ok(page);
        }
        if self.journal.follower_cache.is_some() {
            // Boxed: future size.
            let followed = Box::pin(timeout(self.journal.store_timeout, self.read_followed()));
            return followed.await.unwrap_or(Err(Error::StoreUnavailable));
        }
        // Boxed: future size.
        let stored = Box::pin(timeout(self.journal.store_timeout, self.read_store()));
        let entries = stored.await.unwrap_or(Err(Error::StoreUnavailable))?;
        let sizes = entries.iter().map(|entry| entry.event.memory_size());
        // The entries and their encoding.
        let bytes = 2 * sizes.sum::<usize>();
        let entries = SharedEntry::unshared(entries);
        Ok(LogPage { entries, bytes })
    }

    /// Returns the next entries of the tail. `None` if there is no tail, or it does not reach back that far.
    fn read_tail(&mut self) -> Result<Option<LogPage>> {
        let held = self.active.take();
        let usable =
            held.filter(|active| !active.is_closed() || active.has_entries_after(self.position));
        match usable.or_else(|| self.journal.active_tasks.get(&self.task.id)) {
            Some(active) => self.read_tail_of(active),
            None => Ok(None),
        }
    }

    fn read_tail_of(&mut self, active: Arc<ActiveTask>) -> Result<Option<LogPage>> {
        let page = active.entries_after(self.position, *self.page_limit);
        if page.is_some() {
            self.followed = None;
        }
        let is_empty = page.as_ref().is_some_and(|page| page.entries.is_empty());
        if is_empty && active.is_unwritable() {
            return Err(Error::StoreUnavailable);
        }
        self.active = Some(active);
        Ok(page)
    }

    /// Reads through the tail that all followers of the log share.
    async fn read_followed(&mut self) -> Result<LogPage> {
        let journal = self.journal.clone();
        let Some(follower_cache) = &journal.follower_cache else {
            return Ok(LogPage::default());
        };
        let followed = self
            .followed
            .get_or_insert_with(|| follower_cache.follow(&self.task, &*journal.bus));
        followed.entries_after(&*journal.store, self.position).await
    }

    async fn read_store(&self) -> Result<Vec<Entry>> {
        let store = &self.journal.store;
        let entries = store
            .read(&self.task, self.position, *self.page_limit)
            .await?;
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
