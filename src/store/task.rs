//! Tasks as a store sees them: heads, batches, idempotency keys, snapshots, queries and counts.

use std::sync::Arc;

use super::{Holder, PushRegistration, WriterRole};
use crate::model::{
    CallMetadata, ContextId, Entry, Event, Message, Scope, Seq, Task, TaskId, TaskState, Timestamp,
    TraceContext,
};

/// Summary of a task that is available without reading its log.
///
/// Heads come from [`create`](super::Store::create), [`find`](super::Store::find), [`list`](super::Store::list) and the
/// sweeps. A caller therefore cannot read a log without naming its scope. Two heads are equal if they describe the same
/// state of the task, whatever replica holds it.
#[derive(Debug, Clone)]
pub struct Head {
    /// Id of the task.
    pub id: TaskId,
    /// Agent, tenant and owner of the task.
    pub scope: Scope,
    /// Context that the task belongs to.
    pub context_id: ContextId,
    /// Position of the last entry at the time of the read.
    pub position: Seq,
    /// State of the task at that position.
    pub state: TaskState,
    /// Time at which the task entered that state.
    pub status_time: Timestamp,
    /// Replica that runs the task at the time of the read.
    pub holder: Holder,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            id,
            scope,
            context_id,
            position,
            state,
            status_time,
            holder: _,
        } = self;
        *id == other.id
            && *scope == other.scope
            && *context_id == other.context_id
            && *position == other.position
            && *state == other.state
            && *status_time == other.status_time
    }
}

/// Parameters of [`Store::create`](super::Store::create).
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Id of the task; must be unique over all scopes.
    pub id: TaskId,
    /// Agent, tenant and owner of the task.
    pub scope: Scope,
    /// Context that the task belongs to.
    pub context_id: ContextId,
    /// Id that the client chose for the task (`tasks/send` of early protocol versions); unique within the scope.
    pub alias: Option<TaskId>,
    /// Webhook that receives every entry from the first on.
    pub config: Option<Box<PushRegistration>>,
    /// First entries of the log, with the idempotency key of the message that creates the task.
    pub batch: Batch,
}

impl NewTask {
    /// Returns the head of the task after its first batch, which ends at `position`.
    #[must_use]
    pub fn head(&self, position: Seq) -> Head {
        Head {
            id: self.id.clone(),
            scope: self.scope.clone(),
            context_id: self.context_id.clone(),
            position,
            state: self.batch.state,
            status_time: self.batch.status_time,
            holder: Holder::None,
        }
    }
}

/// Result of [`Store::create`](super::Store::create).
#[derive(Debug, Clone, PartialEq)]
pub enum CreateResult {
    /// The task was created.
    Created(Head),
    /// The scope had used the idempotency key with the same body. Nothing was written.
    Replayed(IdempotencyRecord),
}

/// Idempotency key of a message: a message that is sent twice under one key is applied once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    /// Key chosen by the caller; unique within a scope.
    pub text: String,
    /// SHA-256 digest of the request body. It distinguishes a repeated message from a reused key.
    pub body: [u8; 32],
    /// Earliest time of a valid record. A record whose [`Batch::time`] is earlier has expired: the key counts as unused,
    /// and a write with the key replaces the record.
    pub oldest_valid: Timestamp,
}

/// Outcome recorded for an idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub struct IdempotencyRecord {
    /// Current head of the task that the message created or continued.
    pub head: Head,
    /// [`Batch::turn`] recorded with the key.
    pub turn: u64,
}

/// Events that one commit appends to a log, with the resulting state of the task.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Time of the commit.
    pub time: Timestamp,
    /// Events in order. They get the positions that follow the end of the log.
    pub events: Vec<Event>,
    /// State of the task after the batch.
    pub state: TaskState,
    /// Time at which the task entered that state.
    pub status_time: Timestamp,
    /// Whether the task then waits for input or authentication from outside, with no unanswered message and no running
    /// turn.
    pub parked: bool,
    /// Idempotency key of the message in the batch.
    pub key: Option<IdempotencyKey>,
    /// Number of the turn that handles that message. The store returns it with the key and does not interpret it.
    pub turn: u64,
    /// Role of the replica that appends the batch.
    pub writer: WriterRole,
}

impl Batch {
    /// Converts the batch into the entries it becomes when it is appended after `at`.
    pub fn into_entries(self, at: Seq) -> impl Iterator<Item = Entry> {
        let time = self.time;
        let numbered = self.events.into_iter().zip(at.0 + 1..);
        numbered.map(move |(event, seq)| Entry {
            seq: Seq(seq),
            time,
            event,
        })
    }

    /// Returns the entries that the batch becomes when it is appended after `at`.
    pub fn entries(&self, at: Seq) -> impl Iterator<Item = Entry> {
        let numbered = self.events.iter().zip(at.0 + 1..);
        numbered.map(|(event, seq)| Entry {
            seq: Seq(seq),
            time: self.time,
            event: event.clone(),
        })
    }
}

/// Limit of one [`Store::read`](super::Store::read). The entry that reaches it is the last one of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// Maximum number of entries.
    pub entries: usize,
    /// Size in bytes ([`Event::memory_size`]) at which a page ends. The last entry may exceed it, so a page has at least
    /// one entry, unless the limit is 0.
    pub bytes: usize,
}

impl ReadLimit {
    /// Returns a limit on the number of entries only.
    #[must_use]
    pub const fn entries(entries: usize) -> Self {
        Self {
            entries,
            bytes: usize::MAX,
        }
    }

    /// Returns whether a page has reached the limit. If not, it contains the last entry of the log.
    #[must_use]
    pub fn is_reached(&self, page: &[Entry]) -> bool {
        let sizes = page.iter().map(|entry| entry.event.memory_size());
        page.len() >= self.entries || sizes.sum::<usize>() >= self.bytes
    }
}

/// Entries of one [`Store::read`](super::Store::read), collected up to its limit.
#[derive(Debug)]
pub(super) struct EntryPage {
    limit: ReadLimit,
    entries: Vec<Entry>,
    bytes: usize,
}

impl EntryPage {
    pub(super) fn new(limit: ReadLimit) -> Self {
        Self {
            limit,
            entries: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.limit.entries || self.bytes >= self.limit.bytes
    }

    /// Adds entries until the page is full.
    pub(super) fn extend(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            if self.is_full() {
                return;
            }
            self.bytes += entry.event.memory_size();
            self.entries.push(entry);
        }
    }

    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}

/// Snapshot of a task: the fold of its log up to one position.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// Folded task.
    pub task: Arc<Task>,
    /// Messages that no turn has answered yet, oldest first.
    pub unanswered: Vec<Arc<Message>>,
    /// Trace contexts by turn number, of the unanswered messages and of the latest message that had one.
    pub traces: Vec<(u64, TraceContext)>,
    /// Number of turns that have ended.
    pub turns_ended: u64,
    /// Number of attempts of the running turn; 0 if no turn runs.
    pub attempts: u32,
    /// Whether a client has requested the cancellation of the task.
    pub cancel_requested: bool,
    /// Call metadata of unanswered messages by turn number.
    pub calls: Vec<(u64, CallMetadata)>,
}

/// Filter and cursor of [`Store::list`](super::Store::list).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskQuery {
    /// Only tasks of this context.
    pub context_id: Option<ContextId>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks whose status time is this or later.
    pub since: Option<Timestamp>,
    /// Cursor: only tasks after this status time and id in the order of the list.
    pub after: Option<(Timestamp, TaskId)>,
    /// Maximum number of tasks on the page.
    pub limit: usize,
}

impl TaskQuery {
    /// Returns whether a task passes the filters. The cursor is ignored.
    pub(crate) fn matches(&self, head: &Head) -> bool {
        self.context_id
            .as_ref()
            .is_none_or(|context_id| *context_id == head.context_id)
            && self.state.is_none_or(|state| state == head.state)
            && self.since.is_none_or(|since| head.status_time >= since)
    }
}

/// One page of [`Store::list`](super::Store::list).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskPage {
    /// Heads of the tasks on this page.
    pub tasks: Vec<Head>,
    /// Number of tasks that match the filters, on all pages.
    pub total: u64,
}

/// Task counts of one agent and tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskCounts {
    /// Tasks that have not ended.
    pub open: u64,
    /// All stored tasks, ended or not.
    pub total: u64,
}
