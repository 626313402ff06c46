//! Store in a PostgreSQL database, shared by several processes (feature `postgres`).
//!
//! Each connection has one job: writers commit groups (`writer.rs`), readers serve reads, one connection has the membership of
//! this replica (`membership.rs`), one the notifications (`notifier.rs`). Every append names its replica, and the statement checks
//! the holder of the task and the membership of the replica, so an evicted replica cannot write.

mod database_url;
mod error;
mod health;
mod membership;
mod notifier;
mod number_cache;
mod options;
mod read;
mod row;
mod schema;
mod session;
mod statement;
mod write_command;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::encoded::{self, EncodedBatch, EncodedConfig, EncodedTask};
use super::secret_box::SecretBox;
use super::{
    Batch, CreateResult, Error, Head, HealthProblem, Heartbeat, Holder, IdempotencyKey,
    IdempotencyRecord, NewTask, Notifier, PushRegistration, ReadLimit, ReplicaInfo, Result,
    Snapshot, Store, TaskCounts, TaskPage, TaskQuery, Webhook, WebhookFilter, codec,
};
use crate::model::{Caller, Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use error::DatabaseError;
use health::Health;
use membership::Membership;
use notifier::ChannelNotifier;
use number_cache::NumberCache;
use read::Readers;
use session::Connector;
use write_command::{
    Answer, AppendWrite, Command, CommandQueue, DeliveryUpdate, SingleWrite, TaskKey, Write,
    not_a_member,
};
use writer::{Writer, WriterContext};

pub use database_url::DatabaseUrl;
pub use error::OpenError;
pub use options::{Migrate, Options, WebhookKey};

/// Attempts of a create whose idempotency key was in use and then removed with its task.
const MAX_CREATE_ATTEMPTS: usize = 5;

/// Store in a PostgreSQL database, for several processes (replicas).
///
/// Writes that are queued when the store is dropped are still executed, in the background of the runtime.
pub struct Postgres {
    connector: Arc<Connector>,
    writes: mpsc::Sender<Command>,
    readers: Readers,
    membership: Membership,
    notifier: OnceLock<Arc<ChannelNotifier>>,
    secrets: Arc<SecretBox>,
    health: Arc<Health>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("url", &self.connector.options().url)
            .field("replica", &self.membership.replica())
            .finish_non_exhaustive()
    }
}

impl Postgres {
    /// Connects to a database, creates or migrates its schema, and joins the cluster. Must be called in a Tokio runtime.
    ///
    /// # Errors
    /// The database cannot be used. The message says why and what to do. With [`Options::start_unreachable`], an error that
    /// may pass ([`OpenError::is_transient`]) is logged, and heartbeats open the database later.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let store = Self::new(options).await?;
        match store.membership.open().await {
            Err(error) if error.is_transient() && store.connector.options().start_unreachable => {
                store.health.report(error.health_problem());
                tracing::warn!(%error, "starting without the database");
            }
            opened => opened?,
        }
        Ok(store)
    }

    async fn new(options: Options) -> Result<Self, OpenError> {
        schema::check_name(&options.schema)?;
        let secrets = SecretBox::new(options.webhook_key.bytes())
            .map_err(|_| OpenError::InvalidWebhookKey)?;
        let secrets = Arc::new(secrets);
        let connector = Arc::new(Connector::new(options).await?);
        let options = connector.options();
        let health = Arc::new(Health::default());
        let replica = Arc::new(AtomicI64::new(0));
        let (writes, queue) = mpsc::channel(options.queue_capacity.max(1));
        let queue = CommandQueue::new(queue);
        let numbers = Arc::new(NumberCache::default());
        // A shard of the counters has a number below 256.
        for index in 0..options.writers.clamp(1, 256) {
            let context = WriterContext {
                queue: queue.clone(),
                connector: Arc::clone(&connector),
                numbers: Arc::clone(&numbers),
                replica: Arc::clone(&replica),
                health: Arc::clone(&health),
            };
            connector.tracker().spawn(Writer::new(context, index).run());
        }
        let membership = Membership::new(
            Arc::clone(&connector),
            Arc::clone(&secrets),
            Arc::clone(&health),
            replica,
        );
        let readers = Readers::new(&connector, Arc::clone(&secrets));
        Ok(Self {
            connector,
            writes,
            readers,
            membership,
            notifier: OnceLock::new(),
            secrets,
            health,
        })
    }

    /// Sends a write to the writers and awaits its answer. Once queued, it is executed even if this future is dropped.
    async fn write(&self, write: Write) -> Result<Answer> {
        let replica = self.membership.replica();
        if replica == 0 {
            return Err(match write {
                Write::Append(_) => Error::Fenced,
                Write::Create(_) | Write::Single(_) => not_a_member(),
            });
        }
        let is_append = matches!(write, Write::Append(_));
        let deadline = Instant::now() + self.connector.options().write_timeout;
        let (command, answer) = Command::new(write, replica, deadline);
        let waiting = async {
            // Fails only if the writers have ended.
            let _ = self.writes.send(command).await;
            answer.await.unwrap_or_else(|_| Err(closed()))
        };
        if is_append {
            return waiting.await;
        }
        // The writer gives up at the deadline, unless it is busy with other commands.
        let limit = deadline + self.connector.options().statement_timeout;
        match tokio::time::timeout_at(limit, waiting).await {
            Ok(answer) => answer,
            Err(_) => Err(DatabaseError::late().into()),
        }
    }

    async fn write_single(&self, write: SingleWrite) -> Result<u64> {
        match self.write(Write::Single(write)).await? {
            Answer::Changed(rows) => Ok(rows),
            Answer::Committed(_) | Answer::Replayed => Ok(0),
        }
    }
}

/// Creates or migrates the schema of a database, whatever [`Options::migrate`] is. Returns the versions before and after; the
/// first is 0 if the schema had no tables.
///
/// # Errors
/// The database cannot be used, or a live replica is too old for the new schema.
pub async fn migrate(options: Options) -> Result<(u32, u32), OpenError> {
    schema::migrate(options).await
}

/// The store was closed.
fn closed() -> Error {
    Error::Failed(Box::new(io::Error::other("the store is closed")))
}

#[async_trait]
impl Store for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.connector.options().lease)
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        let notifier = self
            .notifier
            .get_or_init(|| Arc::new(ChannelNotifier::start(&self.connector)));
        Some(Arc::clone(notifier) as Arc<dyn Notifier>)
    }

    async fn check_health(&self) -> Result<(), HealthProblem> {
        let lease = self.connector.options().lease;
        if let Some(problem) = self.health.problem() {
            if self.membership.replica() == 0 {
                return Err(problem);
            }
            let probed = self.write_single(SingleWrite::Probe).await;
            probed.map_err(|_| self.health.problem().unwrap_or(problem))?;
        }
        if self.membership.replica() == 0 || !self.health.has_lease(lease) {
            return Err(HealthProblem::Unreachable);
        }
        if self.health.is_almost_full() {
            return Err(HealthProblem::AlmostFull);
        }
        Ok(())
    }

    async fn create(&self, task: &NewTask) -> Result<CreateResult> {
        for _ in 0..MAX_CREATE_ATTEMPTS {
            let encoded = EncodedTask::new(task, &self.secrets)?;
            match self.write(Write::Create(Box::new(encoded))).await? {
                Answer::Committed(position) => {
                    let has_work = !task.batch.state.is_terminal() && !task.batch.parked;
                    let holder = if has_work {
                        Holder::Local
                    } else {
                        Holder::None
                    };
                    let head = Head {
                        holder,
                        ..task.head(position)
                    };
                    return Ok(CreateResult::Created(head));
                }
                Answer::Replayed | Answer::Changed(_) => {}
            }
            if let Some(key) = &task.batch.key
                && let Some(record) = self.find_by_key(&task.scope, key).await?
            {
                return Ok(CreateResult::Replayed(record));
            }
            // The task of the key was removed in the meantime, and the key with it.
        }
        Err(Error::Conflict)
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        let append = AppendWrite {
            task: TaskKey::from(task),
            at,
            batch: EncodedBatch::new(batch)?,
            role: batch.writer,
        };
        match self.write(Write::Append(Box::new(append))).await? {
            Answer::Committed(position) => Ok(position),
            Answer::Replayed | Answer::Changed(_) => Err(Error::AlreadyApplied),
        }
    }

    async fn read(&self, task: &Head, after: Seq, limit: ReadLimit) -> Result<Vec<Entry>> {
        self.readers.entries(task, after, limit).await
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        let replica = self.membership.replica();
        self.readers.find(scope, task, replica).await
    }

    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>> {
        let replica = self.membership.replica();
        self.readers.find_by_key(scope, key, replica).await
    }

    async fn remove_keys(&self, before: Timestamp, limit: usize) -> Result<usize> {
        let removed = self
            .write_single(SingleWrite::RemoveKeys { before, limit })
            .await?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }

    async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage> {
        let replica = self.membership.replica();
        self.readers.list(scope, query, replica).await
    }

    async fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let replica = self.membership.replica();
        self.readers
            .list_by_id(&statement::LIST_UNFINISHED, after, limit, replica)
            .await
    }

    async fn list_runnable(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let replica = self.membership.replica();
        self.readers
            .list_by_id(&statement::LIST_RUNNABLE, after, limit, replica)
            .await
    }

    async fn list_parked(&self, scope: &Scope, limit: usize) -> Result<Vec<Head>> {
        let replica = self.membership.replica();
        self.readers.list_parked(scope, limit, replica).await
    }

    async fn latest_time(&self) -> Result<Option<Timestamp>> {
        self.readers.latest_time().await
    }

    async fn list_ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        let replica = self.membership.replica();
        self.readers.list_ended(before, limit, replica).await
    }

    async fn count_ended(&self) -> Result<u64> {
        self.readers.count_ended().await
    }

    async fn count_tasks(&self, agent: &str, tenant: &str) -> Result<Option<TaskCounts>> {
        self.readers.count_tasks(agent, tenant).await.map(Some)
    }

    async fn save_snapshot(&self, task: &Head, at: Seq, snapshot: &Snapshot) -> Result<()> {
        let encoded = codec::encode_snapshot(snapshot);
        let body = encoded::check_row_size(codec::with_checksum(encoded))?;
        let task = TaskKey::from(task);
        self.write_single(SingleWrite::SaveSnapshot { task, at, body })
            .await?;
        Ok(())
    }

    async fn load_snapshot(
        &self,
        task: &Head,
        max_bytes: usize,
    ) -> Result<Option<(Seq, Snapshot)>> {
        self.readers.load_snapshot(task, max_bytes).await
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        let tasks = tasks.iter().map(TaskKey::from).collect();
        self.write_single(SingleWrite::Remove(tasks)).await?;
        Ok(())
    }

    async fn put_config(&self, task: &Head, config: &PushRegistration) -> Result<()> {
        let config = EncodedConfig::new(config, &self.secrets)?;
        let task = TaskKey::from(task);
        self.write_single(SingleWrite::PutConfig { task, config })
            .await?;
        Ok(())
    }

    async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>> {
        self.readers.list_configs(task).await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        let task = TaskKey::from(task);
        let id = id.clone();
        self.write_single(SingleWrite::DeleteConfig { task, id })
            .await?;
        Ok(())
    }

    async fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        let replica = self.membership.replica();
        self.readers
            .list_webhooks(filter, after, limit, replica)
            .await
    }

    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>> {
        let replica = self.membership.replica();
        self.readers.find_webhook(task, id, replica).await
    }

    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool> {
        let update = DeliveryUpdate::new(webhook);
        let recorded = self
            .write_single(SingleWrite::RecordDelivery(update))
            .await?;
        Ok(recorded > 0)
    }

    async fn heartbeat(&self) -> Result<Heartbeat> {
        self.membership.heartbeat().await
    }

    async fn take_over(&self, agents: &[Arc<str>], limit: usize) -> Result<Vec<Head>> {
        self.membership.take_over(agents, limit).await
    }

    async fn list_replicas(&self) -> Result<Vec<ReplicaInfo>> {
        self.readers.list_replicas(self.membership.replica()).await
    }

    async fn list_held(&self, known: &HashSet<TaskId>) -> Result<Vec<Head>> {
        match self.membership.replica() {
            0 => Ok(Vec::new()),
            replica => self.readers.list_held(known, replica).await,
        }
    }

    async fn leave_cluster(&self) -> Result<()> {
        let left = self.membership.leave().await;
        self.readers.close().await;
        left
    }

    async fn set_agents(&self, agents: &[Arc<str>]) -> Result<()> {
        self.membership.set_agents(agents).await
    }

    async fn claim_job(&self, job: &'static str, period: Duration) -> Result<bool> {
        self.membership.claim_job(job, period).await
    }

    async fn positions(&self, tasks: &[Head]) -> Result<Vec<Option<Seq>>> {
        self.readers.positions(tasks).await
    }

    async fn read_many(&self, tasks: &[Head], max_bytes: usize) -> Result<Vec<Vec<Entry>>> {
        self.readers.read_many(tasks, max_bytes).await
    }

    async fn count_open_webhooks(&self, caller: &Caller) -> Result<Option<u64>> {
        self.readers.count_open_webhooks(caller).await.map(Some)
    }

    async fn take_over_webhooks(&self, limit: usize) -> Result<Vec<Webhook>> {
        self.membership.take_over_webhooks(limit).await
    }
}
