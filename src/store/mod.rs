//! Where logs rest.
//!
//! A log is a list of numbered entries that only grows. A store keeps it and finds it again; it never folds one,
//! and knows no rule of the protocol.

mod memory;

use std::fmt;

use async_trait::async_trait;

use crate::model::{ContextId, Entry, Event, Scope, Seq, TaskId, TaskState, Timestamp};

pub use memory::Memory;

/// The result of anything a store does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Keeps the logs of tasks.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Opens a log with its first batch: one commit, all or none. `Conflict` when the id is taken.
    async fn create(&self, task: NewTask) -> Result<Head>;

    /// Adds a batch after `at`, all or none, durable on return; `Conflict` when the log has moved on.
    ///
    /// After any other error the batch is there whole or not at all: read before trying again.
    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq>;

    /// Entries after `after`, oldest first, at most `limit` of them.
    async fn read(&self, task: &Head, after: Seq, limit: usize) -> Result<Vec<Entry>>;

    /// By id; a task of another scope is as good as none.
    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>>;
}

/// What is known of a task without reading its log. Only a store makes one, so whoever has it has passed a scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// The task.
    pub id: TaskId,
    /// Whose it is.
    pub scope: Scope,
    /// Its conversation.
    pub context_id: ContextId,
    /// The position of its last entry when this was made.
    pub position: Seq,
    /// Its state then.
    pub state: TaskState,
    /// When it took that state.
    pub status_time: Timestamp,
}

/// A task to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Its id, which nobody has yet.
    pub id: TaskId,
    /// Whose it is.
    pub scope: Scope,
    /// Its conversation.
    pub context_id: ContextId,
    /// The beginning of its log.
    pub batch: Batch,
}

/// What one commit adds to a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// When it was recorded.
    pub time: Timestamp,
    /// What happened, in order; numbered from the position it is added after.
    pub events: Vec<Event>,
    /// The state of the task behind it.
    pub state: TaskState,
    /// When the task took that state.
    pub status_time: Timestamp,
}

impl Batch {
    /// The entries it becomes when it is added after `at`.
    pub fn entries(&self, at: Seq) -> impl Iterator<Item = Entry> {
        let numbered = self.events.iter().zip(at.0 + 1..);
        numbered.map(|(event, seq)| Entry { seq: Seq(seq), time: self.time, event: event.clone() })
    }
}

/// What went wrong in a store.
#[derive(Debug)]
pub enum Error {
    /// The log has moved on: read, fold, try again.
    Conflict,
    /// The store cannot do its work; the cause is for the log alone.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conflict => "the log has moved on",
            Self::Failed(_) => "the store failed",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Conflict => None,
            Self::Failed(cause) => Some(&**cause),
        }
    }
}
