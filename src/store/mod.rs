//! Storage of task logs: the [`Store`] trait, its conformance suite and two implementations.
//!
//! A log is a numbered, append-only list of entries. A store persists logs with their idempotency keys, webhooks and
//! snapshots, and finds them again. It does not fold events and applies no protocol rules: the engine does both.
//!
//! [`Memory`] is the default. [`Sqlite`] (feature `sqlite`) persists everything in one file.
//! To add a store, implement [`Store`] and run [`conformance()`] on it in a test.

mod codec;
mod conformance;
mod error;
mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod task;
mod webhook;

use std::pin::Pin;

use async_trait::async_trait;

use crate::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};

pub use conformance::conformance;
pub use error::{Error, HealthProblem, Result};
pub use memory::Memory;
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
/// [`conformance()`] checks this contract, except durability and the effect of a crash.
#[async_trait]
pub trait Store: Send + Sync + 'static {
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
    /// - [`Error::Failed`]: the store failed. The task may have been created.
    async fn create(&self, task: &NewTask) -> Result<CreateResult>;

    /// Appends a batch to a log that ends at position `at`, in one commit, and returns the position of the new end.
    ///
    /// The idempotency key is checked before the position. Batches of several tasks may share one commit (group commit);
    /// an error of one batch does not affect the others.
    ///
    /// # Errors
    /// - [`Error::AlreadyApplied`]: the scope has used the key with the same body. Nothing is appended.
    /// - [`Error::KeyReused`]: the scope has used the key with another body. Nothing is appended.
    /// - [`Error::Conflict`]: the log does not end at `at`, or the task does not exist. Nothing is appended.
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
    /// Returns `false` and changes nothing if the webhook was deleted, or registered again since `webhook` was read.
    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool>;
}
