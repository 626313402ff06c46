//! Logs in one SQLite file.
//!
//! One thread writes. It takes every command that waits, does them all in one transaction and answers when that is on
//! disk: under load a flush is shared by many tasks. Readers have connections of their own and wait for nobody.

mod error;
mod head_cache;
mod id_filter;
mod id_index;
mod maintenance;
mod open;
mod read;
mod reader_pool;
mod schema;
mod secret_box;
mod sorted_pages;
mod webhooks;
mod write;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    Batch, CreateResult, Head, HealthProblem, IdempotencyKey, IdempotencyRecord, NewTask,
    PushRegistration, Result, Snapshot, Store, TaskCounts, TaskPage, TaskQuery, Webhook,
    WebhookFilter, codec,
};
use crate::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use head_cache::HeadCache;
use reader_pool::ReaderPool;
use secret_box::SecretBox;
use write::{EncodedBatch, EncodedTask};
use writer::WriterHandle;

pub use error::OpenError;
pub use maintenance::Inspection;
pub use writer::CommitCounter;

/// Keeps logs in a SQLite file, for one process at a time.
///
/// Dropping it finishes what was asked for and waits for that; [`Sqlite::close`] does the same without blocking.
#[derive(Debug)]
pub struct Sqlite {
    writer: WriterHandle,
    reader_pool: Arc<ReaderPool>,
    head_cache: Arc<HeadCache>,
    secret_box: Arc<SecretBox>,
    path: Arc<Path>,
    min_free_bytes: u64,
}

/// How a [`Sqlite`] store works. The defaults suit most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What a commit waits for.
    pub synchronous: Synchronous,
    /// How many commands may wait for the writer; whoever comes later waits for a place.
    pub queue_capacity: usize,
    /// How many reads may run at a time.
    pub max_readers: usize,
    /// How long to wait for another program that has locked the file, such as a shell or a backup.
    pub busy_timeout: Duration,
    /// With fewer bytes left on the disk than this, the store says that it is not well, while it still can write.
    pub min_free_bytes: u64,
    /// Of how many tasks that were read the store remembers where they stand: to read one of them again it need not ask the
    /// file. Each takes about half a kilobyte.
    pub max_known_tasks: usize,
}

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Until the disk has it: what was acknowledged survives a loss of power.
    #[default]
    Full,
    /// Until the operating system has it. Faster where commits are rare. What was acknowledged survives the end of the
    /// process, however it ends; a loss of power may take the last commits, whole ones, and damages nothing.
    Normal,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            queue_capacity: 1024,
            max_readers: 4,
            busy_timeout: Duration::from_secs(5),
            min_free_bytes: 256 << 20,
            max_known_tasks: 10_000,
        }
    }
}

impl Sqlite {
    /// Opens a store, or makes one where there is no file yet; only its owner may read it, on Unix.
    ///
    /// A file of an older version is brought up to date, after a copy was put beside it. Blocks while it does that.
    ///
    /// # Errors
    /// The file cannot be used; the message says why and what to do. It is as it was.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::from_database(open::open(path.as_ref(), &options)?, &options)
    }

    fn from_database(database: open::OpenDatabase, options: &Options) -> Result<Self, OpenError> {
        let reader_pool = Arc::new(ReaderPool::new(&database, options));
        let (secret_box, path) = (Arc::clone(&database.secret_box), Arc::clone(&database.path));
        let head_cache = Arc::new(HeadCache::new(options.max_known_tasks));
        let writer = WriterHandle::start(database, Arc::clone(&head_cache), options)?;
        Ok(Self {
            writer,
            reader_pool,
            head_cache,
            secret_box,
            path,
            min_free_bytes: options.min_free_bytes,
        })
    }

    /// Finishes what was asked for, moves it into the main file and lets go of it. Later calls fail.
    pub async fn close(&self) {
        self.reader_pool.close().await;
        self.writer.close().await;
    }

    /// Counts the commits, also once the store belongs to a server.
    #[must_use]
    pub fn commit_counter(&self) -> CommitCounter {
        self.writer.commit_counter()
    }

    /// What is known of a task; nothing once the store was closed.
    fn cached<T>(&self, read: impl FnOnce(&HeadCache) -> Option<T>) -> Option<T> {
        if self.reader_pool.is_closed() {
            None
        } else {
            read(&self.head_cache)
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // The last connection tidies up; that is the writer's.
        self.reader_pool.close_idle();
        self.writer.shut_down();
    }
}

#[async_trait]
impl Store for Sqlite {
    fn has_external_writers(&self) -> bool {
        false
    }

    async fn check_health(&self) -> Result<(), HealthProblem> {
        if let Some(problem) = self.writer.health_problem() {
            let probed = self.writer.run(|transaction| transaction.probe()).await;
            probed.map_err(|_| self.writer.health_problem().unwrap_or(problem))?;
        }
        // Also where writes get through again: what is small may fit where the last one did not.
        let is_low =
            maintenance::free_disk_bytes(&self.path).is_some_and(|free| free < self.min_free_bytes);
        if is_low {
            Err(HealthProblem::AlmostFull)
        } else {
            Ok(())
        }
    }

    async fn create(&self, task: &NewTask) -> Result<CreateResult> {
        let task = EncodedTask::new(task, &self.secret_box)?;
        self.writer
            .run(move |transaction| transaction.create(&task))
            .await
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        let (id, scope, batch) = (
            task.id.clone(),
            task.scope.clone(),
            EncodedBatch::new(batch)?,
        );
        self.writer
            .run(move |transaction| transaction.append(&scope, &id, at, &batch))
            .await
    }

    async fn read(&self, task: &Head, after: Seq, limit: usize) -> Result<Vec<Entry>> {
        let (id, scope) = (task.id.clone(), task.scope.clone());
        self.reader_pool
            .run(move |connection, id_index| {
                read::entries(connection, id_index, &scope, &id, after, limit)
            })
            .await
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        if let Some(head) = self.cached(|head_cache| head_cache.get(scope, task)) {
            return Ok(Some(head));
        }
        let (id, scope, version) = (
            task.clone(),
            scope.clone(),
            self.head_cache.begin_read(task),
        );
        let read = self
            .reader_pool
            .run(move |connection, id_index| read::find(connection, id_index, &scope, &id));
        let found = read.await?;
        // One that was found by its alias is known by its id only: the alias may be another's id.
        if let Some(head) = found.as_ref().filter(|head| head.id == *task) {
            self.head_cache.insert_if_unchanged(&version, head);
        }
        Ok(found)
    }

    fn position(&self, scope: &Scope, task: &TaskId) -> Option<Seq> {
        self.cached(|head_cache| head_cache.position(scope, task))
    }

    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>> {
        let (scope, key) = (scope.clone(), key.clone());
        self.reader_pool
            .run(move |connection, id_index| read::find_key(connection, id_index, &scope, &key))
            .await?
            .transpose()
    }

    async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage> {
        let (scope, query) = (scope.clone(), query.clone());
        self.reader_pool
            .run(move |connection, _| read::list(connection, &scope, &query))
            .await
    }

    async fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let after = after.cloned();
        self.reader_pool
            .run(move |connection, _| read::list_unfinished(connection, after.as_ref(), limit))
            .await
    }

    async fn list_runnable(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let after = after.cloned();
        self.reader_pool
            .run(move |connection, _| read::list_runnable(connection, after.as_ref(), limit))
            .await
    }

    async fn list_parked(&self, scope: &Scope, limit: usize) -> Result<Vec<Head>> {
        let scope = scope.clone();
        self.reader_pool
            .run(move |connection, _| read::list_parked(connection, &scope, limit))
            .await
    }

    async fn latest_time(&self) -> Result<Option<Timestamp>> {
        self.reader_pool
            .run(|connection, _| read::latest_time(connection))
            .await
    }

    async fn list_ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        self.reader_pool
            .run(move |connection, _| read::list_ended(connection, before, limit))
            .await
    }

    async fn count_ended(&self) -> Result<u64> {
        self.reader_pool
            .run(|connection, _| read::count_ended(connection))
            .await
    }

    async fn count_tasks(&self, agent: &str, tenant: &str) -> Result<Option<TaskCounts>> {
        let (agent, tenant) = (agent.to_owned(), tenant.to_owned());
        let read = move |connection: &mut _, _: &_| read::count_tasks(connection, &agent, &tenant);
        self.reader_pool.run(read).await.map(Some)
    }

    async fn save_snapshot(&self, task: &Head, at: Seq, snapshot: &Snapshot) -> Result<()> {
        let (id, scope) = (task.id.clone(), task.scope.clone());
        let body = write::check_row_size(codec::encode_snapshot(snapshot))?;
        self.writer
            .run(move |transaction| transaction.save_snapshot(&scope, &id, at, &body))
            .await
    }

    async fn load_snapshot(&self, task: &Head) -> Result<Option<(Seq, Snapshot)>> {
        let (id, scope) = (task.id.clone(), task.scope.clone());
        self.reader_pool
            .run(move |connection, id_index| read::load_snapshot(connection, id_index, &scope, &id))
            .await
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        let tasks: Vec<_> = tasks
            .iter()
            .map(|head| (head.scope.clone(), head.id.clone()))
            .collect();
        self.writer
            .run(move |transaction| transaction.remove(&tasks))
            .await
    }

    async fn put_config(&self, task: &Head, config: &PushRegistration) -> Result<()> {
        let (id, scope) = (task.id.clone(), task.scope.clone());
        let config = write::EncodedConfig::new(config, &self.secret_box)?;
        self.writer
            .run(move |transaction| transaction.put_config(&scope, &id, &config))
            .await
    }

    async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>> {
        let (id, scope, secret_box) =
            (task.id.clone(), task.scope.clone(), self.secret_box.clone());
        let read = self.reader_pool.run(move |connection, id_index| {
            read::list_configs(connection, id_index, &secret_box, &scope, &id)
        });
        read.await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        let (task, scope, id) = (task.id.clone(), task.scope.clone(), id.clone());
        self.writer
            .run(move |transaction| transaction.delete_config(&scope, &task, &id))
            .await
    }

    async fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        let secret_box = self.secret_box.clone();
        self.reader_pool
            .run(move |connection, _| webhooks::list(connection, &secret_box, filter, after, limit))
            .await
    }

    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>> {
        let (task, scope, id, secret_box) = (
            task.id.clone(),
            task.scope.clone(),
            id.clone(),
            self.secret_box.clone(),
        );
        let read = self.reader_pool.run(move |connection, id_index| {
            webhooks::find(connection, id_index, &secret_box, (&scope, &task), &id)
        });
        read.await
    }

    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool> {
        let update = webhooks::DeliveryUpdate::new(webhook);
        self.writer
            .run(move |transaction| update.write(transaction.connection))
            .await
    }
}
