//! Storage of task logs: the [`Store`] trait, its conformance suites and three implementations.
//!
//! A log is a numbered, append-only list of entries. A store persists logs with their idempotency keys, webhooks and
//! snapshots, and finds them again. It does not fold events and applies no protocol rules: the engine does both.
//!
//! [`Memory`] is the default. [`Sqlite`] (feature `sqlite`) persists everything in one file. [`Postgres`] (feature `postgres`)
//! is shared by several processes.
//! To add a store, implement [`Store`] and run [`conformance()`] on it in a test.

mod cluster;
mod codec;
mod conformance;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod encoded;
mod error;
mod failure_detector;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod log_row;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod secret_box;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod task;
mod webhook;

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::model::{Caller, Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};

pub use cluster::{Heartbeat, Holder, Notification, Notifier, ReplicaInfo, WriterRole};
pub use conformance::{conformance, conformance_shared};
pub use error::{Error, HealthProblem, Result};
pub use memory::{Memory, MemoryReplica};
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
#[cfg(feature = "sqlite")]
pub use sqlite::Sqlite;
pub use task::{
    Batch, CreateResult, Head, IdempotencyKey, IdempotencyRecord, NewTask, ReadLimit, Snapshot,
    TaskCounts, TaskPage, TaskQuery,
};
pub use webhook::{DeliveryProgress, DeliveryState, PushRegistration, Webhook, WebhookFilter};

/// Boxed future of a store operation.
pub(crate) type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Storage of task logs.
///
/// # Contract
///
/// - **Scope.** A method that takes a [`Scope`] or a [`Head`] reads and changes tasks of that scope only. A head whose
///   scope differs from the scope of its task is treated like the head of a removed task. The methods that cover several
///   scopes say so; they serve the engine's sweeps, quotas and webhook delivery.
/// - **Atomicity.** [`create`](Self::create) and [`append`](Self::append) apply everything they are given, or nothing. That
///   includes a call that fails, or whose future is dropped.
/// - **Durability.** A write is committed when its future completes. If [`is_durable`](Self::is_durable) is `true`, a
///   committed write survives the end of the process. Snapshots are exempt.
/// - **Freshness.** A read includes every write that was committed before the read began.
///
/// [`conformance()`] checks this contract, except durability and the effect of a crash. [`conformance_shared`] checks the
/// part for several processes.
///
/// # Several processes
///
/// Several processes (replicas) may share a store that returns a [`lease`](Self::lease). Each unfinished task then has at
/// most one [`Holder`], and every append names the [role](WriterRole) of its replica. A replica that sends no heartbeat for
/// one lease is evicted: the store refuses its writes, and the other replicas take over its tasks and webhooks. The methods
/// from [`lease`](Self::lease) on serve such stores. Their defaults serve stores of one process.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the kind of the store, for operators.
    fn kind(&self) -> &'static str {
        "custom"
    }

    /// Returns whether tasks survive the end of the process.
    ///
    /// The default retention depends on it: the engine bounds the number of ended tasks (`Settings::max_tasks`) if `false`,
    /// and their age (`Settings::max_age`) if `true`.
    fn is_durable(&self) -> bool {
        true
    }

    /// Returns whether a task can be read after its turn has ended.
    ///
    /// If `false`, every reply to a caller is a message, never a task.
    fn keeps_tasks(&self) -> bool {
        true
    }

    /// Returns `true` if other processes may append.
    ///
    /// If `false`, the engine pipelines appends to one log: it starts [`append`](Self::append) of batch n + 1 before batch
    /// n is committed. Such a store must apply batches in the order their futures are first polled. It must complete batch
    /// n without batch n + 1 being polled again.
    fn has_external_writers(&self) -> bool {
        true
    }

    /// Checks whether writes succeed. A store may report the result of its last write; if that failed, it attempts another.
    ///
    /// # Errors
    /// The problem. Its text contains no paths or other internals, so health endpoints may show it to any caller.
    async fn check_health(&self) -> Result<(), HealthProblem> {
        Ok(())
    }

    /// Creates a task with its first batch, idempotency key, alias and webhook, in one commit.
    ///
    /// The idempotency key is checked before the id and the alias. If the scope has used the key with the same body,
    /// nothing is written and the result is [`CreateResult::Replayed`].
    ///
    /// # Errors
    /// - [`Error::KeyReused`]: the scope has used the key with another body.
    /// - [`Error::Conflict`]: a task of any scope has the id, or a task of this scope has the alias.
    /// - [`Error::Failed`]: the store failed, or this replica was evicted. The task may have been created.
    async fn create(&self, task: &NewTask) -> Result<CreateResult>;

    /// Appends a batch to a log that ends at position `at`, in one commit, and returns the position of the new end.
    ///
    /// The idempotency key is checked before the position, the position before the holder. Batches of several tasks may share one commit (group commit);
    /// an error of one batch does not affect the others.
    ///
    /// # Errors
    /// - [`Error::AlreadyApplied`]: the scope has used the key with the same body. Nothing is appended.
    /// - [`Error::KeyReused`]: the scope has used the key with another body. Nothing is appended.
    /// - [`Error::Conflict`]: the log does not end at `at`, or the task does not exist. Nothing is appended.
    /// - [`Error::Fenced`]: another replica holds the task and the role is [`WriterRole::Holder`], or this replica was
    ///   evicted. Nothing is appended.
    /// - [`Error::Failed`]: the store failed. The batch is applied entirely or not at all: read the log before a retry.
    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq>;

    /// Returns the entries after position `after`, oldest first, until one of them reaches the limit. A removed task has no
    /// entries.
    async fn read(&self, task: &Head, after: Seq, limit: ReadLimit) -> Result<Vec<Entry>>;

    /// Finds a task of the scope by its id, or else by the alias its client chose.
    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>>;

    /// Finds the task and the turn that were recorded with an idempotency key of the scope. `None`: the key is unused, or its
    /// record has expired ([`IdempotencyKey::oldest_valid`]).
    ///
    /// # Errors
    /// [`Error::KeyReused`]: the scope has used the key with another body.
    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>>;

    /// Removes at most `limit` idempotency keys of every scope that were recorded before this time, and returns their number.
    ///
    /// Their tasks stay. The engine calls it with the time before which keys have expired.
    async fn remove_keys(&self, before: Timestamp, limit: usize) -> Result<usize>;

    /// Lists the tasks of the scope that match the query, and counts the matches on all pages.
    ///
    /// Order: status time descending, then id descending.
    async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage>;

    /// Lists tasks of every scope that have not ended, ordered by id, with ids greater than `after`.
    async fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>>;

    /// Lists the tasks of [`list_unfinished`](Self::list_unfinished) that are not [`parked`](Batch::parked).
    ///
    /// The default lists all unfinished tasks, for stores that do not record `parked`.
    async fn list_runnable(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        self.list_unfinished(after, limit).await
    }

    /// Lists the [`parked`](Batch::parked) tasks of the scope, oldest status first.
    ///
    /// The default is empty, for stores that do not record `parked`.
    async fn list_parked(&self, _scope: &Scope, _limit: usize) -> Result<Vec<Head>> {
        Ok(Vec::new())
    }

    /// Returns the latest recorded status time of any scope, or one close to it.
    ///
    /// The engine compares it with the system clock at startup to detect clock jumps. `None`: the store is empty, or does
    /// not record it.
    async fn latest_time(&self) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    /// Lists tasks of every scope that ended before this time, oldest first.
    async fn list_ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>>;

    /// Counts the ended tasks of every scope.
    async fn count_ended(&self) -> Result<u64>;

    /// Counts the tasks of all owners within one agent and tenant.
    ///
    /// `None`: the store does not count, and tenant quotas are not enforced.
    async fn count_tasks(&self, _agent: &str, _tenant: &str) -> Result<Option<TaskCounts>> {
        Ok(None)
    }

    /// Saves a snapshot: the fold of the log up to position `at`. A snapshot at a later position is not replaced.
    ///
    /// Snapshots are a cache that shortens later reads. A store may drop them at any time. For a removed task this does
    /// nothing.
    async fn save_snapshot(&self, task: &Head, at: Seq, snapshot: &Snapshot) -> Result<()>;

    /// Loads the latest saved snapshot and its position, unless the snapshot is larger than about `max_bytes`.
    async fn load_snapshot(&self, task: &Head, max_bytes: usize)
    -> Result<Option<(Seq, Snapshot)>>;

    /// Removes tasks with their logs, keys, aliases, webhooks and snapshots. Tasks that do not exist are skipped.
    async fn remove(&self, tasks: &[Head]) -> Result<()>;

    /// Registers a webhook of a task, or replaces the one with the same id. For a removed task this does nothing.
    ///
    /// This replica becomes the holder of the webhook.
    ///
    /// A replaced webhook keeps its [`number`](Webhook::number) and delivery position, gets a new
    /// [`generation`](Webhook::generation), and becomes [`Active`](DeliveryState::Active) again with no failed attempts.
    async fn put_config(&self, task: &Head, config: &PushRegistration) -> Result<()>;

    /// Lists the webhooks of a task in the order of their first registration.
    async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>>;

    /// Deletes a webhook. Deleting one that does not exist is no error.
    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()>;

    /// Lists webhooks of every scope that match the filter, ordered by [`number`](Webhook::number), with numbers greater
    /// than `after`.
    async fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>>;

    /// Finds a webhook of a task with its delivery progress.
    ///
    /// Delivery starts at the first entry for a webhook that was created with its task. For a webhook that was registered
    /// later it starts after the entry that was the last at that time.
    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>>;

    /// Records the delivery progress of a webhook.
    ///
    /// This replica becomes the holder of a webhook without one. The holder is cleared with the last delivery.
    ///
    /// Returns `false` and changes nothing if the webhook was deleted, was registered again since `webhook` was read, or is
    /// held by another replica.
    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool>;

    /// Returns the lease of a replica: other replicas evict it if its heartbeats stop for this long.
    ///
    /// `None`: one process uses the store. The engine then sends no heartbeats and takes nothing over.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Returns the notifier that reaches all replicas.
    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        None
    }

    /// Joins the cluster or renews the membership. The result describes the state at the time of the call.
    ///
    /// The store observes the heartbeats of the other replicas here, and evicts those that are silent for one lease.
    async fn heartbeat(&self) -> Result<Heartbeat> {
        Ok(Heartbeat::SingleProcess)
    }

    /// Makes this replica the holder of at most `limit` tasks that have work left, and whose holder is none or removed.
    ///
    /// Tasks of the given agents are taken, and tasks of agents that no live replica serves. Concurrent calls of several
    /// replicas return different tasks. If the call fails, its tasks may be held: [`list_held`](Self::list_held) finds them.
    async fn take_over(&self, _agents: &[Arc<str>], _limit: usize) -> Result<Vec<Head>> {
        Ok(Vec::new())
    }

    /// Lists the tasks that this replica holds and that are not in `known`.
    async fn list_held(&self, _known: &HashSet<TaskId>) -> Result<Vec<Head>> {
        Ok(Vec::new())
    }

    /// Releases the tasks and webhooks of this replica and removes it from the cluster. It is the last call.
    async fn leave_cluster(&self) -> Result<()> {
        Ok(())
    }

    /// Sets the agents that this replica serves from now on.
    async fn set_agents(&self, _agents: &[Arc<str>]) -> Result<()> {
        Ok(())
    }

    /// Lists the replicas by id, with those that were removed within the last minute or still hold tasks or webhooks.
    async fn list_replicas(&self) -> Result<Vec<ReplicaInfo>> {
        Ok(Vec::new())
    }

    /// Returns whether this replica runs the job now. If `true`, no replica runs it again before `period` has passed.
    ///
    /// A job must tolerate two concurrent runs.
    async fn claim_job(&self, _job: &'static str, _period: Duration) -> Result<bool> {
        Ok(true)
    }

    /// Returns the end of each log, in the order of `tasks`. `None`: the task was removed.
    async fn positions(&self, tasks: &[Head]) -> Result<Vec<Option<Seq>>> {
        let mut positions = Vec::with_capacity(tasks.len());
        for task in tasks {
            let found = self.find(&task.scope, &task.id).await?;
            let found = found.filter(|head| head.id == task.id);
            positions.push(found.map(|head| head.position));
        }
        Ok(positions)
    }

    /// Reads several logs from their start, in the order of `tasks`.
    ///
    /// The read ends when its entries reach about `max_bytes` ([`Event::memory_size`](crate::model::Event::memory_size)): a
    /// log that does not reach the [position](Head::position) of its head continues with [`read`](Self::read).
    async fn read_many(&self, tasks: &[Head], max_bytes: usize) -> Result<Vec<Vec<Entry>>> {
        let mut bytes_left = max_bytes;
        let mut logs = Vec::with_capacity(tasks.len());
        for task in tasks {
            let limit = ReadLimit {
                entries: usize::MAX,
                bytes: bytes_left,
            };
            let entries = self.read(task, Seq(0), limit).await?;
            let sizes = entries.iter().map(|entry| entry.event.memory_size());
            bytes_left = bytes_left.saturating_sub(sizes.sum());
            logs.push(entries);
        }
        Ok(logs)
    }

    /// Counts the active webhooks of a caller over all agents and tenants.
    ///
    /// `None`: the store does not count, and the limit applies to this process.
    async fn count_open_webhooks(&self, _caller: &Caller) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Makes this replica the holder of at most `limit` active webhooks whose holder is none or removed, by number.
    async fn take_over_webhooks(&self, _limit: usize) -> Result<Vec<Webhook>> {
        Ok(Vec::new())
    }
}
