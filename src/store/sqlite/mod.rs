//! Store in one SQLite file (feature `sqlite`).
//!
//! One thread writes, with group commit: it executes all queued commands in one transaction and replies after the commit
//! (`writer.rs`). Under load, many tasks share one fsync. Reads use a pool of read-only connections; the file is in WAL
//! mode, so readers and the writer do not block each other.

mod error;
mod file_lock;
mod list;
mod maintenance;
mod open;
mod options;
mod prepared_statement;
mod read;
mod reader_pool;
mod row;
mod schema;
mod webhook_key;
mod webhooks;
mod write;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::encoded::{self, EncodedBatch, EncodedConfig, EncodedTask};
use super::secret_box::SecretBox;
use super::{
    Batch, CreateResult, Error, Head, HealthProblem, IdempotencyKey, IdempotencyRecord, NewTask,
    PushRegistration, ReadLimit, Result, Snapshot, Store, TaskCounts, TaskPage, TaskQuery, Webhook,
    WebhookFilter, codec,
};
use crate::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use file_lock::FileIdentity;
use read::KeyLookup;
use reader_pool::ReaderPool;
use writer::WriterHandle;

pub use error::OpenError;
pub use maintenance::{DatabaseLock, Inspection};
pub use options::{Options, Synchronous};
pub use writer::CommitCounter;

/// Store in a SQLite file, for one process at a time.
///
/// Dropping it blocks until the queued writes are committed. [`Sqlite::close`] does the same without blocking.
#[derive(Debug)]
pub struct Sqlite {
    writer: WriterHandle,
    reader_pool: Arc<ReaderPool>,
    secret_box: Arc<SecretBox>,
    path: Arc<Path>,
    identity: FileIdentity,
    min_free_bytes: u64,
}

/// Scope and id of a task, owned by a command or a read.
#[derive(Debug, Clone)]
struct TaskKey {
    scope: Scope,
    id: TaskId,
}

impl From<&Head> for TaskKey {
    fn from(head: &Head) -> Self {
        Self {
            scope: head.scope.clone(),
            id: head.id.clone(),
        }
    }
}

impl Sqlite {
    /// Opens a store, or creates one if the file does not exist. On Unix, new files have mode 600.
    ///
    /// A file with an older schema is backed up beside itself and then migrated. Blocks until that is done.
    ///
    /// # Errors
    /// The file cannot be used. The message says why and what to do. The file is unchanged.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::from_database(open::open(path.as_ref(), &options)?, &options)
    }

    fn from_database(database: open::OpenDatabase, options: &Options) -> Result<Self, OpenError> {
        let reader_pool = Arc::new(ReaderPool::new(&database, options));
        let secret_box = Arc::clone(&database.secret_box);
        let path = Arc::clone(&database.path);
        let identity = database.identity;
        let writer = WriterHandle::start(database, options)?;
        Ok(Self {
            writer,
            reader_pool,
            secret_box,
            path,
            identity,
            min_free_bytes: options.min_free_bytes,
        })
    }

    /// Commits the queued writes, moves the write-ahead log into the file and releases the file. Later calls fail.
    pub async fn close(&self) {
        self.reader_pool.close().await;
        self.writer.close().await;
    }

    /// Returns a counter of the commits. It stays valid after the store was moved into a server.
    #[must_use]
    pub fn commit_counter(&self) -> CommitCounter {
        self.writer.commit_counter()
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // The writer must close the last connection: only that one can checkpoint the write-ahead log.
        self.reader_pool.close_idle();
        self.writer.shut_down();
    }
}

#[async_trait]
impl Store for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn has_external_writers(&self) -> bool {
        false
    }

    async fn check_health(&self) -> Result<(), HealthProblem> {
        if let Some(problem) = self.writer.health_problem() {
            let probed = self
                .writer
                .run(|transaction| transaction.probe_write())
                .await;
            probed.map_err(|_| self.writer.health_problem().unwrap_or(problem))?;
        }
        // Also if the probe succeeds: it is small and may fit where the last batch did not.
        if !self.identity.is_at(&self.path) {
            return Err(HealthProblem::Replaced);
        }
        let free = maintenance::free_disk_bytes(&self.path);
        maintenance::check_free_space(free, self.min_free_bytes)
    }

    async fn create(&self, task: &NewTask) -> Result<CreateResult> {
        let task = EncodedTask::new(task, &self.secret_box)?;
        self.writer
            .run(move |transaction| transaction.create(&task))
            .await
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        let task = TaskKey::from(task);
        let batch = EncodedBatch::new(batch)?;
        self.writer
            .run(move |transaction| transaction.append(&task, at, &batch))
            .await
    }

    async fn read(&self, task: &Head, after: Seq, limit: ReadLimit) -> Result<Vec<Entry>> {
        let task = TaskKey::from(task);
        self.reader_pool
            .run(move |connection| read::entries(connection, &task, after, limit))
            .await
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        let key = TaskKey {
            scope: scope.clone(),
            id: task.clone(),
        };
        self.reader_pool
            .run(move |connection| read::find(connection, &key))
            .await
    }

    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>> {
        let scope = scope.clone();
        let key = key.clone();
        let lookup = self
            .reader_pool
            .run(move |connection| read::find_key(connection, &scope, &key))
            .await?;
        match lookup {
            KeyLookup::Unused => Ok(None),
            KeyLookup::SameBody(record) => Ok(Some(record)),
            KeyLookup::OtherBody => Err(Error::KeyReused),
        }
    }

    async fn remove_keys(&self, before: Timestamp, limit: usize) -> Result<usize> {
        self.writer
            .run(move |transaction| transaction.remove_keys(before, limit))
            .await
    }

    async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage> {
        let scope = scope.clone();
        let query = query.clone();
        self.reader_pool
            .run(move |connection| list::list(connection, &scope, &query))
            .await
    }

    async fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let after = after.cloned();
        self.reader_pool
            .run(move |connection| list::list_unfinished(connection, after.as_ref(), limit))
            .await
    }

    async fn list_runnable(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let after = after.cloned();
        self.reader_pool
            .run(move |connection| list::list_runnable(connection, after.as_ref(), limit))
            .await
    }

    async fn list_parked(&self, scope: &Scope, limit: usize) -> Result<Vec<Head>> {
        let scope = scope.clone();
        self.reader_pool
            .run(move |connection| list::list_parked(connection, &scope, limit))
            .await
    }

    async fn latest_time(&self) -> Result<Option<Timestamp>> {
        self.reader_pool
            .run(|connection| list::latest_time(connection))
            .await
    }

    async fn list_ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        self.reader_pool
            .run(move |connection| list::list_ended(connection, before, limit))
            .await
    }

    async fn count_ended(&self) -> Result<u64> {
        self.reader_pool
            .run(|connection| list::count_ended(connection))
            .await
    }

    async fn count_tasks(&self, agent: &str, tenant: &str) -> Result<Option<TaskCounts>> {
        let agent = agent.to_owned();
        let tenant = tenant.to_owned();
        self.reader_pool
            .run(move |connection| list::count_tasks(connection, &agent, &tenant))
            .await
            .map(Some)
    }

    async fn save_snapshot(&self, task: &Head, at: Seq, snapshot: &Snapshot) -> Result<()> {
        let task = TaskKey::from(task);
        let encoded = codec::encode_snapshot(snapshot);
        let body = encoded::check_row_size(codec::with_checksum(encoded))?;
        self.writer
            .run(move |transaction| transaction.save_snapshot(&task, at, &body))
            .await
    }

    async fn load_snapshot(
        &self,
        task: &Head,
        max_bytes: usize,
    ) -> Result<Option<(Seq, Snapshot)>> {
        let task = TaskKey::from(task);
        self.reader_pool
            .run(move |connection| read::load_snapshot(connection, &task, max_bytes))
            .await
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        let tasks: Vec<_> = tasks.iter().map(TaskKey::from).collect();
        self.writer
            .run(move |transaction| transaction.remove(&tasks))
            .await
    }

    async fn put_config(&self, task: &Head, config: &PushRegistration) -> Result<()> {
        let task = TaskKey::from(task);
        let config = EncodedConfig::new(config, &self.secret_box)?;
        self.writer
            .run(move |transaction| transaction.put_config(&task, &config))
            .await
    }

    async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>> {
        let task = TaskKey::from(task);
        let secret_box = Arc::clone(&self.secret_box);
        self.reader_pool
            .run(move |connection| webhooks::list_configs(connection, &secret_box, &task))
            .await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        let task = TaskKey::from(task);
        let id = id.clone();
        self.writer
            .run(move |transaction| transaction.delete_config(&task, &id))
            .await
    }

    async fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        let secret_box = Arc::clone(&self.secret_box);
        self.reader_pool
            .run(move |connection| webhooks::list(connection, &secret_box, filter, after, limit))
            .await
    }

    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>> {
        let task = TaskKey::from(task);
        let id = id.clone();
        let secret_box = Arc::clone(&self.secret_box);
        self.reader_pool
            .run(move |connection| webhooks::find(connection, &secret_box, &task, &id))
            .await
    }

    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool> {
        let update = webhooks::DeliveryUpdate::new(webhook);
        self.writer
            .run(move |transaction| update.write(transaction.connection))
            .await
    }
}
