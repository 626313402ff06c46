//! Write pipeline of one log.
//!
//! An event passes three stages: *staged* (folded, in memory), *in flight* (in a batch handed to the store) and
//! *durable* (committed, then published to readers).

use super::create::CreateParams;
use crate::engine::folded_log::FoldedLog;
use crate::engine::journal::SizedBatch;
use crate::model::{Event, Seq, Timestamp};
use crate::store::{Batch, Head, IdempotencyKey, WriterRole};

/// Capacity in events that an empty buffer keeps while the task is idle.
const IDLE_CAPACITY: usize = 4;

/// Staged events and the durable end of one log.
pub(in crate::engine) struct CommitPipeline {
    /// Events that are folded and not yet handed to the store.
    pub(super) staged: Vec<Event>,
    staged_bytes: usize,
    /// Time of the first staged event.
    staged_since: Timestamp,
    /// Empty buffer of an earlier batch, for reuse.
    pub(super) spare_buffer: Vec<Event>,
    /// Position of the newest durable entry. 0 before the task is created.
    pub(super) durable_position: Seq,
    /// Approximate size of the task in bytes, including staged events.
    pub(super) task_bytes: usize,
    pub(super) log_state: LogState,
}

/// Whether the log exists in the store.
pub(super) enum LogState {
    /// The first commit creates it.
    New(CreateParams),
    Open(Head),
    /// It does not exist, or it is not known whether it does.
    Missing,
}

impl CommitPipeline {
    pub(super) fn new(log_state: LogState) -> Self {
        Self {
            staged: Vec::new(),
            staged_bytes: 0,
            staged_since: Timestamp::default(),
            spare_buffer: Vec::new(),
            durable_position: Seq(0),
            task_bytes: 0,
            log_state,
        }
    }

    /// Head of the log, if it exists.
    pub(in crate::engine) fn head(&self) -> Option<&Head> {
        match &self.log_state {
            LogState::Open(head) => Some(head),
            LogState::New(_) | LogState::Missing => None,
        }
    }

    /// Takes the parameters for the creation of the log, once.
    pub(super) fn take_create_params(&mut self) -> Option<CreateParams> {
        match std::mem::replace(&mut self.log_state, LogState::Missing) {
            LogState::New(params) => Some(params),
            other => {
                self.log_state = other;
                None
            }
        }
    }

    /// Appends `events` to the staged ones, and leaves an empty buffer in their place.
    pub(super) fn take_events(&mut self, events: &mut Vec<Event>) {
        if self.staged.is_empty() {
            std::mem::swap(&mut self.staged, events);
        } else if self.staged.len() < events.len() {
            // Moves the smaller part: the buffer of the larger one has room for most of it.
            events.splice(..0, self.staged.drain(..));
            std::mem::swap(&mut self.staged, events);
        } else {
            self.staged.append(events);
        }
    }

    /// Folds the staged events from index `first` on, which are `bytes` in total.
    pub(super) fn fold(&mut self, log: &mut FoldedLog, first: usize, bytes: usize, now: Timestamp) {
        if first == 0 {
            self.staged_since = now;
        }
        self.staged[first..]
            .iter_mut()
            .for_each(|event| log.apply_next(now, event));
        self.task_bytes += bytes;
        self.staged_bytes += bytes;
    }

    /// Takes all staged events as a batch. The caller writes it or stages its events again.
    pub(super) fn take_batch(
        &mut self,
        log: &FoldedLog,
        key: Option<IdempotencyKey>,
    ) -> SizedBatch {
        let status = &log.task.status;
        let buffer = std::mem::take(&mut self.spare_buffer);
        let batch = Batch {
            time: self.staged_since,
            events: std::mem::replace(&mut self.staged, buffer),
            state: status.state,
            status_time: status.timestamp.unwrap_or(self.staged_since),
            parked: log.is_parked(),
            key,
            turn: log.newest_turn(),
            writer: WriterRole::Holder,
        };
        SizedBatch {
            batch,
            bytes: std::mem::take(&mut self.staged_bytes),
        }
    }

    /// Restarts at the end of a log that was read from the store. Staged events are dropped.
    pub(super) fn reset(&mut self, log: &FoldedLog) {
        self.durable_position = log.position;
        self.staged = Vec::new();
        self.staged_bytes = 0;
        self.task_bytes = log.task.memory_size();
    }

    /// Frees the memory of large empty buffers.
    pub(super) fn shrink(&mut self) {
        shrink_if_empty(&mut self.spare_buffer);
        shrink_if_empty(&mut self.staged);
    }
}

/// Frees the memory of an empty buffer that is larger than an idle task needs.
pub(in crate::engine) fn shrink_if_empty(events: &mut Vec<Event>) {
    if events.is_empty() && events.capacity() > IDLE_CAPACITY {
        *events = Vec::new();
    }
}
