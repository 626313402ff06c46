//! Tails of logs that other replicas write and that are followed here.
//!
//! After a wake-up the first follower reads the store once, and all others share its entries. So 500 subscribers of one
//! task cause one read per commit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::watch;

use super::follow::{LogPage, STREAM_PAGE};
use super::shared_entry::SharedEntry;
use super::tail::{Tail, TailLimits};
use super::{Error, Result};
use crate::bus::Bus;
use crate::model::{Entry, Seq, TaskId};
use crate::rt::lock;
use crate::store::{Head, ReadLimit, Store};

/// Number of logs at which those without a follower are removed first.
const MIN_SWEEP_THRESHOLD: usize = 64;

/// Logs that are followed here and held elsewhere.
pub(super) struct FollowerCache {
    logs: Mutex<FollowedLogs>,
    limits: TailLimits,
}

#[derive(Default)]
struct FollowedLogs {
    by_task: HashMap<TaskId, Weak<FollowedLog>>,
    /// Number of logs at which those without a follower are removed. Grows with the map.
    sweep_threshold: usize,
}

/// Tail of one log, shared by its followers and dropped with the last of them.
pub(super) struct FollowedLog {
    head: Head,
    tail: Mutex<Tail>,
    /// Locked during a read of the store.
    read_state: tokio::sync::Mutex<ReadState>,
}

/// Whether the tail may be behind the log.
struct ReadState {
    /// Announcements since the last read began.
    announcements: watch::Receiver<Seq>,
    /// Whether the last read has reached the end of the log.
    has_reached_end: bool,
}

impl FollowerCache {
    pub(super) fn new(limits: TailLimits) -> Self {
        Self {
            logs: Mutex::default(),
            limits,
        }
    }

    fn logs(&self) -> MutexGuard<'_, FollowedLogs> {
        lock(&self.logs)
    }

    /// Returns the tail of a task, for one more follower.
    pub(super) fn follow(&self, head: &Head, bus: &dyn Bus) -> Arc<FollowedLog> {
        let mut logs = self.logs();
        if let Some(log) = logs.by_task.get(&head.id).and_then(Weak::upgrade) {
            return log;
        }
        logs.sweep();
        let log = Arc::new(FollowedLog {
            head: head.clone(),
            tail: Mutex::new(Tail::new(self.limits)),
            read_state: tokio::sync::Mutex::new(ReadState {
                announcements: bus.watch(&head.id),
                has_reached_end: false,
            }),
        });
        logs.by_task.insert(head.id.clone(), Arc::downgrade(&log));
        log
    }

    /// Returns the followed logs.
    pub(super) fn followed(&self) -> Vec<Arc<FollowedLog>> {
        let logs = self.logs();
        logs.by_task.values().filter_map(Weak::upgrade).collect()
    }
}

impl FollowedLogs {
    fn sweep(&mut self) {
        if self.by_task.len() >= self.sweep_threshold {
            self.by_task.retain(|_, log| log.strong_count() > 0);
            self.sweep_threshold = MIN_SWEEP_THRESHOLD.max(self.by_task.len() * 2);
        }
    }
}

impl ReadState {
    /// Returns whether the last read has reached the end of the log, and nothing was announced since it began.
    fn is_current(&self) -> bool {
        self.has_reached_end && matches!(self.announcements.has_changed(), Ok(false))
    }
}

impl FollowedLog {
    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// Position of the newest entry that was read. 0 if unknown.
    pub(super) fn end(&self) -> Seq {
        self.tail().end()
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        lock(&self.tail)
    }

    /// Returns the entries after `position`. Empty if there are none.
    ///
    /// # Errors
    /// The task was deleted, or the store failed.
    pub(super) async fn entries_after(&self, store: &dyn Store, position: Seq) -> Result<LogPage> {
        if let Some(page) = self.cached(position) {
            return Ok(page);
        }
        let mut state = self.read_state.lock().await;
        if let Some(page) = self.cached(position) {
            return Ok(page);
        }
        let is_at_end = self.tail().end() == position;
        if is_at_end && state.is_current() {
            return Ok(LogPage::default());
        }
        state.announcements.mark_unchanged();
        state.has_reached_end = false;
        let entries = store.read(&self.head, position, STREAM_PAGE).await?;
        if entries.is_empty() && !self.exists(store).await? {
            return Err(Error::Deleted);
        }
        state.has_reached_end = !STREAM_PAGE.is_reached(&entries);
        Ok(self.publish(position, entries))
    }

    /// Returns entries of the tail. `None` if it has none after `position`.
    fn cached(&self, position: Seq) -> Option<LogPage> {
        let page = self.tail().entries_after(position, STREAM_PAGE)?;
        let has_entries = !page.entries.is_empty();
        has_entries.then_some(page)
    }

    /// Adds entries that were read after `position` to the tail, if they continue it, and returns them. A follower behind the
    /// tail reads for itself.
    fn publish(&self, position: Seq, entries: Vec<Entry>) -> LogPage {
        let bytes = entries.iter().map(|entry| entry.event.memory_size()).sum();
        let batch = SharedEntry::batch(entries);
        let page = LogPage {
            entries: SharedEntry::iter_from(&batch, 0).collect(),
            bytes,
        };
        let mut tail = self.tail();
        if tail.end() == Seq(0) {
            tail.start_at(position);
        }
        if tail.end() == position && !page.entries.is_empty() {
            tail.push(batch, bytes);
            tail.drop_fold();
        }
        page
    }

    /// Returns whether the log exists. Logs are deleted as a whole, so the first entry decides.
    async fn exists(&self, store: &dyn Store) -> Result<bool> {
        let limit = ReadLimit::entries(1);
        let first = store.read(&self.head, Seq(0), limit).await?;
        Ok(!first.is_empty())
    }
}
