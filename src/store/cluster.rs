//! Types of stores that several processes (replicas) share: holders, heartbeats and notifications.

use async_trait::async_trait;

use super::Result;
use crate::model::Timestamp;

/// Replica that runs a task, seen from the replica that read the head.
///
/// A commit with [`WriterRole::Holder`] makes its replica the holder while the task has work left. The commit that ends or
/// parks the task clears the holder. [`Store::take_over`](super::Store::take_over) changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Holder {
    /// No replica runs the task. Single-process stores return nothing else.
    #[default]
    None,
    /// This replica runs the task.
    Local,
    /// Another replica runs the task.
    Remote,
}

/// Role of the replica that appends a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriterRole {
    /// The writer runs the task: it needs a task without a holder, or with itself as holder.
    #[default]
    Holder,
    /// The writer adds a message or a cancel request to a task of any holder. The holder does not change.
    Remote,
}

/// Result of [`Store::heartbeat`](super::Store::heartbeat).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heartbeat {
    /// One process uses the store. It holds every task until it ends.
    SingleProcess,
    /// The other replicas have evicted this one: it holds nothing. The next heartbeat joins under a new replica id.
    Evicted,
    /// The replica is a member of the cluster.
    Member {
        /// Id of this replica, never reused by another.
        replica: u64,
        /// Number of live replicas, this one included.
        replicas: usize,
        /// Whether a removed replica is still in the table: its tasks and webhooks may need a takeover.
        has_orphans: bool,
        /// Newest log format that may be written: every live replica reads it.
        format_level: u8,
        /// Clock of the database at the time of the call.
        database_time: Timestamp,
    },
}

/// A replica in the table of members, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// Id, never reused.
    pub id: u64,
    /// Name, by default host and process id.
    pub name: String,
    /// Version of the program.
    pub program_version: String,
    /// Newest log format that the program reads.
    pub format_level: u8,
    /// Time of the join.
    pub joined: Timestamp,
    /// Number of heartbeats.
    pub heartbeat: u64,
    /// Time of the departure or eviction. `None`: live.
    pub removed: Option<Timestamp>,
    /// Number of tasks with work left that it holds.
    pub tasks: u64,
    /// Number of active webhooks that it holds.
    pub webhooks: u64,
    /// Whether it is the replica that has read the table.
    pub is_local: bool,
}

/// Transport of small messages between the replicas of one store.
///
/// A message reaches every replica, its sender included, at most a few times. It may be lost, delayed or repeated: the log
/// is the only source of truth.
#[async_trait]
pub trait Notifier: Send + Sync + 'static {
    /// Returns the largest size of a message in bytes.
    fn max_bytes(&self) -> usize;

    /// Sends a message to every replica.
    ///
    /// # Errors
    /// The message may be lost. The caller does not need to repeat it.
    async fn publish(&self, message: &[u8]) -> Result<()>;

    /// Waits for the next notification. One task calls it in a loop. Dropping the future loses no notification.
    async fn receive(&self) -> Notification;
}

/// Result of [`Notifier::receive`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// Message of a replica.
    Message(Vec<u8>),
    /// The transport is down: messages are lost until it returns `Gap`.
    Down,
    /// The transport works. Messages sent before may have been lost.
    Gap,
}
