//! Tail of an active log: its newest durable entries in memory, and the fold for readers of the whole task.

use std::collections::VecDeque;

use super::folded_log::FoldedLog;
use super::follow::LogPage;
use super::shared_entry::{EntryBatch, SharedEntry};
use crate::model::{Entry, Event, Scope, Seq, Timestamp};
use crate::store::{Head, ReadLimit};

/// Bounds of a tail. Older entries are dropped from memory; readers find them in the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct TailLimits {
    pub(super) max_entries: usize,
    pub(super) max_bytes: usize,
}

/// The newest durable entries of a log.
///
/// Only the runner appends. Entries stay in the batches in which they were committed: one allocation each, dropped as
/// a whole.
pub(super) struct Tail {
    /// Fold up to the first entry of the tail or beyond. `None` until a reader needs it and has read the store.
    log: Option<FoldedLog>,
    /// Position of the newest durable entry. 0 if unknown.
    end: Seq,
    /// Copy of the fold for readers, shared by all of them until the next append. So readers pay for copies, appends
    /// do not.
    shared_copy: Option<FoldedLog>,
    /// Position of the last snapshot, or of the log when its runner started.
    snapshot_position: Seq,
    /// Batches with their sizes in bytes, oldest first.
    batches: VecDeque<(EntryBatch, usize)>,
    entry_count: usize,
    bytes: usize,
    limits: TailLimits,
    /// Whether the store cannot be written. Subscribers get an error and retry later.
    is_unwritable: bool,
}

/// The event at which a snapshot is considered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SnapshotOccasion {
    TaskEnded,
    TurnEnded,
    WithinTurn,
}

impl Tail {
    pub(super) fn new(limits: TailLimits) -> Self {
        Self {
            log: None,
            end: Seq(0),
            shared_copy: None,
            snapshot_position: Seq(0),
            batches: VecDeque::new(),
            entry_count: 0,
            bytes: 0,
            limits,
            is_unwritable: false,
        }
    }

    /// Position of the newest durable entry. 0 if unknown.
    pub(super) fn end(&self) -> Seq {
        self.end
    }

    pub(super) fn is_unwritable(&self) -> bool {
        self.is_unwritable
    }

    pub(super) fn mark_unwritable(&mut self) {
        self.is_unwritable = true;
    }

    /// Appends durable entries of `bytes` in total.
    pub(super) fn publish(&mut self, entries: impl Iterator<Item = Entry>, bytes: usize) {
        self.shared_copy = None;
        self.is_unwritable = false;
        if bytes <= self.limits.max_bytes / 4 {
            self.push(SharedEntry::batch(entries), bytes);
        } else {
            // Split: a batch is dropped as a whole, and this one would take too large a part of the tail with it.
            for entry in entries {
                let bytes = entry.event.memory_size();
                self.push(SharedEntry::batch([entry]), bytes);
            }
        }
    }

    /// Advances over durable events that have no subscriber, without buffering them. Keeps the fold current if a
    /// reader has requested it before.
    pub(super) fn advance(&mut self, position: Seq, time: Timestamp, events: &[Event]) {
        self.shared_copy = None;
        self.is_unwritable = false;
        self.fold_all();
        self.clear();
        self.fold_events(position, time, events);
    }

    /// Adopts a fold that was read from the store, if the tail has none and continues it without a gap.
    pub(super) fn adopt_fold(&mut self, log: &FoldedLog) {
        let start = self
            .batches
            .front()
            .map_or(self.end, |(batch, _)| Seq(batch[0].seq.0 - 1));
        if self.log.is_none() && self.end > Seq(0) && start <= log.position {
            self.log = Some(log.deep_copy());
        }
    }

    /// Restarts the tail at the end of a log that was read from the store.
    pub(super) fn reset(&mut self, log: &FoldedLog) {
        self.clear();
        self.drop_fold();
        self.end = log.position;
        self.snapshot_position = log.position;
        self.is_unwritable = false;
    }

    /// Starts an empty tail after this position.
    pub(super) fn start_at(&mut self, position: Seq) {
        self.end = position;
    }

    /// Drops the fold, and keeps the entries for subscribers that have not read them.
    pub(super) fn drop_fold(&mut self) {
        self.log = None;
        self.shared_copy = None;
    }

    /// Returns the fold of all durable entries. `None` if the tail has none.
    pub(super) fn log(&mut self) -> Option<FoldedLog> {
        self.fold_all();
        let log = self.log.as_ref()?;
        if self
            .shared_copy
            .as_ref()
            .is_none_or(|copy| copy.position != log.position)
        {
            self.shared_copy = Some(log.deep_copy());
        }
        self.shared_copy.clone()
    }

    /// Returns the head of the task after all durable entries, without a copy of the fold. `None` if there is no fold.
    pub(super) fn head(&mut self, scope: &Scope) -> Option<Head> {
        self.fold_all();
        self.log.as_ref().map(|log| log.head(scope.clone()))
    }

    /// Returns whether enough entries were added since the last snapshot.
    ///
    /// A snapshot has the size of the task, so the interval grows with the log. The total size of all snapshots is a
    /// small multiple of the log's size.
    pub(super) fn is_snapshot_due(&self, min_entries: u64, occasion: SnapshotOccasion) -> bool {
        let interval = match occasion {
            SnapshotOccasion::TaskEnded => min_entries,
            SnapshotOccasion::TurnEnded => min_entries.max(self.end.0 / 8),
            SnapshotOccasion::WithinTurn => self.snapshot_position.0.max(8 * min_entries),
        };
        self.end.0.saturating_sub(self.snapshot_position.0) >= interval
    }

    pub(super) fn mark_snapshotted(&mut self) {
        self.snapshot_position = self.end;
    }

    /// Returns the entries after `position`, none if the reader has them all. `None` if the tail does not reach back
    /// that far.
    ///
    /// The page ends with the batch that reaches the limit of bytes: a reader of one entry keeps its batch in memory.
    pub(super) fn entries_after(&self, position: Seq, limit: ReadLimit) -> Option<LogPage> {
        if self.end > Seq(0) && self.end <= position {
            return Some(LogPage::default());
        }
        // The last batch that starts at or before the next entry.
        let next = Seq(position.0 + 1);
        let first_batch = self
            .batches
            .partition_point(|(batch, _)| batch[0].seq <= next)
            .checked_sub(1)?;
        let skipped = |batch: &EntryBatch| {
            usize::try_from(next.0.saturating_sub(batch[0].seq.0)).unwrap_or(usize::MAX)
        };
        let mut entries = Vec::new();
        let mut bytes = 0;
        for (batch, batch_bytes) in self.batches.iter().skip(first_batch) {
            let room = limit.entries - entries.len();
            entries.extend(SharedEntry::iter_from(batch, skipped(batch)).take(room));
            bytes += batch_bytes;
            if bytes >= limit.bytes || entries.len() >= limit.entries {
                break;
            }
        }
        Some(LogPage { entries, bytes })
    }

    /// Appends a batch, and drops the oldest ones until the tail is within its limits.
    pub(super) fn push(&mut self, batch: EntryBatch, bytes: usize) {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return;
        };
        if first.seq == Seq(1) {
            self.log = Some(FoldedLog::empty());
        }
        if self.end == Seq(0) && first.seq != Seq(1) {
            return;
        }
        self.end = last.seq;
        self.entry_count += batch.len();
        self.bytes += bytes;
        self.batches.push_back((batch, bytes));
        while self.entry_count > self.limits.max_entries.max(1)
            || self.bytes > self.limits.max_bytes
        {
            let Some((oldest, bytes)) = self.batches.pop_front() else {
                return;
            };
            self.entry_count -= oldest.len();
            self.bytes -= bytes;
            self.fold_batch(&oldest);
        }
    }

    /// Folds all buffered entries.
    fn fold_all(&mut self) {
        let batches: Vec<EntryBatch> = self
            .batches
            .iter()
            .map(|(batch, _)| batch.clone())
            .collect();
        batches.iter().for_each(|batch| self.fold_batch(batch));
    }

    /// Folds the entries of a batch that are not folded yet.
    ///
    /// Events that cannot be applied were recorded as `Ignored`, so this does not fail. If it did, the tail would be
    /// invalidated and readers would use the store.
    fn fold_batch(&mut self, batch: &EntryBatch) {
        let Some(log) = &mut self.log else { return };
        let folded = log.position;
        let mut new_entries = batch.iter().filter(|entry| entry.seq > folded);
        if new_entries.any(|entry| log.apply(entry).is_err()) {
            self.invalidate();
        }
    }

    /// Folds events that are not buffered. `position` is that of the entry before them.
    fn fold_events(&mut self, position: Seq, time: Timestamp, events: &[Event]) {
        if self.end == Seq(0) && position != Seq(0) {
            return;
        }
        self.end = Seq(position.0 + events.len() as u64);
        let Some(log) = &mut self.log else { return };
        let folded = log.position.0;
        let mut new_events = events
            .iter()
            .zip(position.0 + 1..)
            .filter(|(_, seq)| *seq > folded);
        if new_events.any(|(event, seq)| log.apply_event(Seq(seq), time, event).is_err()) {
            self.invalidate();
        }
    }

    /// Drops everything: readers use the store.
    fn invalidate(&mut self) {
        self.log = None;
        self.end = Seq(0);
        self.clear();
    }

    fn clear(&mut self) {
        self.batches.clear();
        self.entry_count = 0;
        self.bytes = 0;
    }
}
