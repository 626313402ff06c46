//! Replicas of one memory store, for tests of several engines in one process.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;

use super::Memory;
use super::cluster_state::{ClusterState, ReplicaRecord};
use super::stored_batch::BatchForm;
use super::task_record::{TaskRecord, webhook_id, webhook_matches};
use crate::model::{Caller, Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use crate::rt::lock;
use crate::store::failure_detector::FailureDetector;
use crate::store::{
    Batch, CreateResult, DeliveryState, Error, Head, Heartbeat, Holder, IdempotencyKey,
    IdempotencyRecord, NewTask, Notification, Notifier, PushRegistration, ReadLimit, ReplicaInfo,
    Result, Snapshot, Store, TaskCounts, TaskPage, TaskQuery, Webhook, WebhookFilter, WriterRole,
};

/// Capacity of the channel that carries notifications. A slower receiver gets a gap.
const MAX_NOTIFICATIONS: usize = 1024;

/// Largest notification in bytes.
const MAX_NOTIFICATION_BYTES: usize = 4096;

/// Handle of one replica on a memory store that several replicas share.
///
/// It behaves like one process on a shared database: it joins with its first heartbeat, holds the tasks that it runs, and
/// is evicted if its heartbeats stop. Tests run several engines on the replicas of one store.
#[derive(Debug)]
pub struct MemoryReplica {
    cluster: Arc<MemoryCluster>,
    membership: Mutex<Membership>,
}

/// Store and membership that all replicas share.
#[derive(Debug)]
struct MemoryCluster {
    memory: Memory,
    /// Locked before the tables of `memory`.
    state: Mutex<ClusterState>,
    lease: Duration,
    /// Creation of the cluster on the monotonic clock and on the wall clock.
    created: (Instant, Timestamp),
    notifications: broadcast::Sender<Arc<[u8]>>,
}

/// State of one handle.
#[derive(Debug)]
struct Membership {
    /// Id of the replica. `None` before it has joined.
    replica: Option<u64>,
    agents: Vec<Arc<str>>,
    detector: FailureDetector,
}

impl Memory {
    /// Creates an empty store for several replicas, and returns the handle of the first one.
    ///
    /// `time` is the wall-clock time at creation. The clock of the store advances with the runtime's clock, so tests with
    /// paused time are deterministic.
    #[must_use]
    pub fn shared(lease: Duration, time: Timestamp) -> MemoryReplica {
        let (notifications, _) = broadcast::channel(MAX_NOTIFICATIONS);
        let cluster = MemoryCluster {
            memory: Self::new(),
            state: Mutex::default(),
            lease,
            created: (Instant::now(), time),
            notifications,
        };
        MemoryReplica::new(Arc::new(cluster))
    }
}

impl MemoryReplica {
    fn new(cluster: Arc<MemoryCluster>) -> Self {
        let membership = Membership {
            replica: None,
            agents: Vec::new(),
            detector: FailureDetector::new(cluster.lease),
        };
        Self {
            cluster,
            membership: Mutex::new(membership),
        }
    }

    /// Returns the handle of another replica on the same store.
    #[must_use]
    pub fn replica(&self) -> Self {
        Self::new(self.cluster.clone())
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        lock(&self.membership)
    }

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        lock(&self.cluster.state)
    }

    fn memory(&self) -> &Memory {
        &self.cluster.memory
    }

    /// Returns the id of this replica, if it has joined and was not evicted.
    fn live_id(&self, state: &ClusterState) -> Option<u64> {
        let replica = self.membership().replica;
        replica.filter(|replica| state.is_live(*replica))
    }

    /// Returns a holder as this replica sees it.
    fn relative(&self, holder: Option<u64>) -> Holder {
        match holder {
            None => Holder::None,
            holder if holder == self.membership().replica => Holder::Local,
            Some(_) => Holder::Remote,
        }
    }

    fn with_holder(&self, mut head: Head) -> Head {
        let holder = self.state().holder(&head.id);
        head.holder = self.relative(holder);
        head
    }

    fn with_holders(&self, heads: Vec<Head>) -> Vec<Head> {
        heads
            .into_iter()
            .map(|head| self.with_holder(head))
            .collect()
    }

    fn with_webhook_holders(&self, webhooks: Vec<Webhook>) -> Vec<Webhook> {
        let with_holder = |webhook: Webhook| {
            let holder = self.state().webhook_holders.get(&webhook.number).copied();
            Webhook {
                holder: self.relative(holder),
                task: self.with_holder(webhook.task),
                ..webhook
            }
        };
        webhooks.into_iter().map(with_holder).collect()
    }

    fn database_time(&self) -> Timestamp {
        self.database_time_at(Instant::now())
    }

    fn database_time_at(&self, now: Instant) -> Timestamp {
        let (instant, time) = self.cluster.created;
        let elapsed = now.saturating_duration_since(instant).as_millis();
        let elapsed = i64::try_from(elapsed).unwrap_or(i64::MAX);
        Timestamp::from_millis(time.as_millis().saturating_add(elapsed)).unwrap_or(time)
    }
}

#[async_trait]
impl Store for MemoryReplica {
    fn is_durable(&self) -> bool {
        self.memory().is_durable()
    }

    async fn create(&self, task: &NewTask) -> Result<CreateResult> {
        let form = BatchForm::new(&task.batch);
        let mut state = self.state();
        let replica = self.live_id(&state).ok_or_else(not_a_member)?;
        let mut tables = self.memory().tables();
        match tables.create(task, form)? {
            CreateResult::Created(mut head) => {
                state.hold_after(&task.id, &task.batch, replica);
                for webhook in tables.webhooks_of(&head) {
                    state.webhook_holders.insert(webhook.number, replica);
                }
                head.holder = self.relative(state.holder(&head.id));
                Ok(CreateResult::Created(head))
            }
            CreateResult::Replayed(mut record) => {
                record.head.holder = self.relative(state.holder(&record.head.id));
                Ok(CreateResult::Replayed(record))
            }
        }
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        let form = BatchForm::new(batch);
        let mut state = self.state();
        let replica = self.live_id(&state).ok_or(Error::Fenced)?;
        let mut tables = self.memory().tables();
        let holder = state.holder(&task.id);
        let may_append =
            batch.writer == WriterRole::Remote || holder.is_none_or(|id| id == replica);
        if !may_append {
            if tables.find_key(&task.scope, batch.key.as_ref())?.is_some() {
                return Err(Error::AlreadyApplied);
            }
            let record = tables.record(task).ok_or(Error::Conflict)?;
            let is_end = record.head.position == at;
            return Err(if is_end {
                Error::Fenced
            } else {
                Error::Conflict
            });
        }
        let position = tables.append(task, at, batch, form)?;
        if batch.writer == WriterRole::Holder {
            state.hold_after(&task.id, batch, replica);
        }
        Ok(position)
    }

    async fn read(&self, task: &Head, after: Seq, limit: ReadLimit) -> Result<Vec<Entry>> {
        self.memory().read(task, after, limit).await
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        let head = self.memory().find(scope, task).await?;
        Ok(head.map(|head| self.with_holder(head)))
    }

    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>> {
        let record = self.memory().find_by_key(scope, key).await?;
        Ok(record.map(|record| IdempotencyRecord {
            head: self.with_holder(record.head),
            ..record
        }))
    }

    async fn remove_keys(&self, before: Timestamp, limit: usize) -> Result<usize> {
        self.memory().remove_keys(before, limit).await
    }

    async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage> {
        let page = self.memory().list(scope, query).await?;
        Ok(TaskPage {
            tasks: self.with_holders(page.tasks),
            ..page
        })
    }

    async fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let heads = self.memory().list_unfinished(after, limit).await?;
        Ok(self.with_holders(heads))
    }

    async fn list_runnable(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let heads = self.memory().list_runnable(after, limit).await?;
        Ok(self.with_holders(heads))
    }

    async fn list_parked(&self, scope: &Scope, limit: usize) -> Result<Vec<Head>> {
        self.memory().list_parked(scope, limit).await
    }

    async fn latest_time(&self) -> Result<Option<Timestamp>> {
        self.memory().latest_time().await
    }

    async fn list_ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        self.memory().list_ended(before, limit).await
    }

    async fn count_ended(&self) -> Result<u64> {
        self.memory().count_ended().await
    }

    async fn count_tasks(&self, agent: &str, tenant: &str) -> Result<Option<TaskCounts>> {
        self.memory().count_tasks(agent, tenant).await
    }

    async fn save_snapshot(&self, task: &Head, at: Seq, snapshot: &Snapshot) -> Result<()> {
        self.memory().save_snapshot(task, at, snapshot).await
    }

    async fn load_snapshot(
        &self,
        task: &Head,
        max_bytes: usize,
    ) -> Result<Option<(Seq, Snapshot)>> {
        self.memory().load_snapshot(task, max_bytes).await
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        let mut state = self.state();
        let mut tables = self.memory().tables();
        for head in tasks {
            tables.remove(head);
            state.holders.remove(&head.id);
        }
        let webhooks = &tables.webhooks;
        let is_stored = |number: &u64| webhooks.contains_key(number);
        state.webhook_holders.retain(|number, _| is_stored(number));
        Ok(())
    }

    async fn put_config(&self, task: &Head, config: &PushRegistration) -> Result<()> {
        let mut state = self.state();
        let replica = self.live_id(&state).ok_or_else(not_a_member)?;
        let mut tables = self.memory().tables();
        let Some(number) = tables.number(task) else {
            return Ok(());
        };
        let position = tables.tasks[number].head.position;
        tables.put_webhook(number, config, position);
        let id = config.config.id.as_ref();
        let webhooks = tables.webhooks_of(task).iter();
        for webhook in webhooks.filter(|webhook| webhook_id(webhook) == id) {
            state.webhook_holders.insert(webhook.number, replica);
        }
        Ok(())
    }

    async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>> {
        self.memory().list_configs(task).await
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        self.memory().delete_config(task, id).await?;
        let mut state = self.state();
        let tables = self.memory().tables();
        let is_stored = |number: &u64| tables.webhooks.contains_key(number);
        state.webhook_holders.retain(|number, _| is_stored(number));
        Ok(())
    }

    async fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        let webhooks = self.memory().list_webhooks(filter, after, limit).await?;
        Ok(self.with_webhook_holders(webhooks))
    }

    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>> {
        let webhook = self.memory().find_webhook(task, id).await?;
        let found = webhook.into_iter().collect();
        Ok(self.with_webhook_holders(found).pop())
    }

    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool> {
        let mut state = self.state();
        let replica = self.live_id(&state).ok_or_else(not_a_member)?;
        let holder = state.webhook_holders.get(&webhook.number).copied();
        let is_remote = holder.is_some_and(|holder| holder != replica);
        if is_remote || !self.memory().tables().record_delivery(webhook) {
            return Ok(false);
        }
        match webhook.delivery.state {
            DeliveryState::Active => state.webhook_holders.insert(webhook.number, replica),
            DeliveryState::Finished | DeliveryState::Failed(_) => {
                state.webhook_holders.remove(&webhook.number)
            }
        };
        Ok(true)
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.cluster.lease)
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        Some(Arc::new(MemoryNotifier {
            sender: self.cluster.notifications.clone(),
            receiver: tokio::sync::Mutex::new(self.cluster.notifications.subscribe()),
        }))
    }

    async fn heartbeat(&self) -> Result<Heartbeat> {
        let mut state = self.state();
        let mut membership = self.membership();
        let replica = match membership.replica {
            Some(replica) if !state.is_live(replica) => {
                membership.replica = None;
                return Ok(Heartbeat::Evicted);
            }
            Some(replica) => replica,
            None => {
                membership.detector = FailureDetector::new(self.cluster.lease);
                state.join(&membership.agents)
            }
        };
        membership.replica = Some(replica);
        state.beat(replica);
        let silent = membership
            .detector
            .observe(Instant::now(), &state.counters(replica));
        for (evicted, _) in silent {
            state.remove(evicted.cast_unsigned());
        }
        state.forget_removed();
        let live = state.live_count();
        Ok(Heartbeat::Member {
            replica,
            replicas: live,
            has_orphans: live < state.replicas.len(),
            format_level: 1,
            database_time: self.database_time(),
        })
    }

    async fn take_over(&self, agents: &[Arc<str>], limit: usize) -> Result<Vec<Head>> {
        let mut state = self.state();
        let Some(replica) = self.live_id(&state) else {
            return Ok(Vec::new());
        };
        let is_orphan = |record: &TaskRecord| {
            let head = &record.head;
            !record.parked && state.is_orphan(&head.id) && state.serves(&head.scope.agent, agents)
        };
        let mut heads = self.memory().tables().unfinished(None, limit, is_orphan);
        for head in &mut heads {
            state.holders.insert(head.id.clone(), replica);
            head.holder = Holder::Local;
        }
        Ok(heads)
    }

    async fn list_held(&self, known: &HashSet<TaskId>) -> Result<Vec<Head>> {
        let state = self.state();
        let replica = self.live_id(&state);
        let is_unknown = |record: &TaskRecord| {
            let holder = state.holder(&record.head.id);
            holder.is_some() && holder == replica && !known.contains(&record.head.id)
        };
        let mut heads = self
            .memory()
            .tables()
            .unfinished(None, usize::MAX, is_unknown);
        heads
            .iter_mut()
            .for_each(|head| head.holder = Holder::Local);
        Ok(heads)
    }

    async fn leave_cluster(&self) -> Result<()> {
        let mut state = self.state();
        if let Some(replica) = self.membership().replica.take() {
            state.remove(replica);
            state.release(replica);
        }
        Ok(())
    }

    async fn set_agents(&self, agents: &[Arc<str>]) -> Result<()> {
        let mut state = self.state();
        let mut membership = self.membership();
        membership.agents = agents.to_vec();
        if let Some(replica) = membership.replica {
            state.set_agents(replica, agents);
        }
        Ok(())
    }

    async fn list_replicas(&self) -> Result<Vec<ReplicaInfo>> {
        let state = self.state();
        let own = self.membership().replica;
        let count = |holders: &mut dyn Iterator<Item = &u64>, id: u64| {
            holders.filter(|holder| **holder == id).count() as u64
        };
        let info = |(&id, record): (&u64, &ReplicaRecord)| ReplicaInfo {
            id,
            name: format!("replica {id}"),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            format_level: 1,
            joined: self.database_time_at(record.joined.unwrap_or(self.cluster.created.0)),
            heartbeat: record.heartbeat,
            removed: record.removed.map(|at| self.database_time_at(at)),
            tasks: count(&mut state.holders.values(), id),
            webhooks: count(&mut state.webhook_holders.values(), id),
            is_local: own == Some(id),
        };
        Ok(state.replicas.iter().map(info).collect())
    }

    async fn claim_job(&self, job: &'static str, period: Duration) -> Result<bool> {
        let mut state = self.state();
        let now = Instant::now();
        let is_due = state.jobs.get(job).is_none_or(|due| *due <= now);
        if is_due {
            state.jobs.insert(job, now + period);
        }
        Ok(is_due)
    }

    async fn count_open_webhooks(&self, caller: &Caller) -> Result<Option<u64>> {
        let tables = self.memory().tables();
        let tasks = tables.webhooks.values().collect::<HashSet<_>>();
        let records = tasks.into_iter().map(|number| &tables.tasks[*number]);
        let owned = records.filter(|record| record.head.scope.owner == *caller);
        let active = owned.map(|record| {
            let webhooks = record.webhooks.iter();
            let is_active = |webhook: &&Webhook| webhook_matches(webhook, WebhookFilter::Active);
            webhooks.filter(is_active).count() as u64
        });
        Ok(Some(active.sum()))
    }

    async fn take_over_webhooks(&self, limit: usize) -> Result<Vec<Webhook>> {
        let active = self
            .memory()
            .list_webhooks(WebhookFilter::Active, None, usize::MAX)
            .await?;
        let mut state = self.state();
        let Some(replica) = self.live_id(&state) else {
            return Ok(Vec::new());
        };
        let is_orphan = |webhook: &Webhook| {
            let holder = state.webhook_holders.get(&webhook.number);
            holder.is_none_or(|holder| !state.is_live(*holder))
        };
        let mut orphans: Vec<Webhook> = active.into_iter().filter(is_orphan).take(limit).collect();
        for webhook in &mut orphans {
            state.webhook_holders.insert(webhook.number, replica);
            webhook.holder = Holder::Local;
            webhook.task.holder = self.relative(state.holder(&webhook.task.id));
        }
        Ok(orphans)
    }
}

/// Returns the error of a write by a replica that is not a member.
fn not_a_member() -> Error {
    Error::Failed("the replica is not a member of the cluster".into())
}

/// Notifier of one replica: a broadcast channel within the process.
struct MemoryNotifier {
    sender: broadcast::Sender<Arc<[u8]>>,
    receiver: tokio::sync::Mutex<broadcast::Receiver<Arc<[u8]>>>,
}

#[async_trait]
impl Notifier for MemoryNotifier {
    fn max_bytes(&self) -> usize {
        MAX_NOTIFICATION_BYTES
    }

    async fn publish(&self, message: &[u8]) -> Result<()> {
        // An error means that there is no receiver.
        let _ = self.sender.send(message.into());
        Ok(())
    }

    async fn receive(&self) -> Notification {
        match self.receiver.lock().await.recv().await {
            Ok(message) => Notification::Message(message.to_vec()),
            Err(RecvError::Lagged(_)) => Notification::Gap,
            // The cluster is gone.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{conformance, conformance_shared};

    const LEASE: Duration = Duration::from_secs(3);

    #[tokio::test]
    async fn a_replica_passes_the_conformance_suite() {
        conformance(async || {
            let replica = Memory::shared(LEASE, Timestamp::default());
            replica.heartbeat().await.unwrap();
            replica
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_pass_the_suite_of_shared_stores() {
        conformance_shared(async || {
            let replica = Memory::shared(LEASE, Timestamp::default());
            let other = replica.replica();
            (replica, other)
        })
        .await;
    }
}
