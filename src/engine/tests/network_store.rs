//! Shared memory store behind a network that can fail: partitions, lost answers, delays.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::sync::watch;

use super::*;
use crate::model::{Entry, PushConfigId};
use crate::store::{
    Batch, CreateResult, Heartbeat, IdempotencyRecord, MemoryReplica, NewTask, Notifier,
    ReplicaInfo, Snapshot,
};

/// Handle of one replica on a shared memory store, behind a network that the test controls.
pub(super) struct NetworkStore {
    replica: MemoryReplica,
    is_connected: watch::Sender<bool>,
    /// Whether the answers of writes are lost: they are applied and fail.
    loses_answers: AtomicBool,
    reads: AtomicU64,
}

impl NetworkStore {
    pub(super) fn new(replica: MemoryReplica) -> Arc<Self> {
        Arc::new(Self {
            replica,
            is_connected: watch::Sender::new(true),
            loses_answers: AtomicBool::new(false),
            reads: AtomicU64::new(0),
        })
    }

    /// Cuts or heals the network. Calls wait while it is cut.
    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.send_replace(is_connected);
    }

    /// Loses or delivers the answers of writes.
    pub(super) fn lose_answers(&self, loses_answers: bool) {
        self.loses_answers.store(loses_answers, Ordering::SeqCst);
    }

    /// Number of reads of logs.
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    async fn connection(&self) {
        let mut is_connected = self.is_connected.subscribe();
        let _ = is_connected.wait_for(|is_connected| *is_connected).await;
    }

    async fn write<T>(&self, work: impl Future<Output = store::Result<T>>) -> store::Result<T> {
        self.connection().await;
        let result = work.await;
        if self.loses_answers.load(Ordering::SeqCst) {
            return Err(store::Error::Failed("the answer was lost".into()));
        }
        self.connection().await;
        result
    }
}

/// Passes calls to the replica, through the network.
macro_rules! through_network {
    ($($kind:ident fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        #[async_trait]
        impl Store for NetworkStore {
            fn is_durable(&self) -> bool {
                self.replica.is_durable()
            }

            fn lease(&self) -> Option<Duration> {
                self.replica.lease()
            }

            fn notifier(&self) -> Option<Arc<dyn Notifier>> {
                self.replica.notifier()
            }

            async fn read(&self, task: &Head, after: Seq, limit: ReadLimit) -> store::Result<Vec<Entry>> {
                self.connection().await;
                self.reads.fetch_add(1, Ordering::SeqCst);
                self.replica.read(task, after, limit).await
            }

            $(async fn $name(&self, $($arg: $type),*) -> store::Result<$result> {
                through_network!(@$kind self, self.replica.$name($($arg),*))
            })*
        }
    };
    (@write $self:ident, $call:expr) => { $self.write($call).await };
    (@query $self:ident, $call:expr) => {{
        $self.connection().await;
        $call.await
    }};
}

through_network! {
    write fn create(task: &NewTask) -> CreateResult;
    write fn append(task: &Head, at: Seq, batch: &Batch) -> Seq;
    query fn find(scope: &Scope, task: &TaskId) -> Option<Head>;
    query fn find_by_key(scope: &Scope, key: &IdempotencyKey) -> Option<IdempotencyRecord>;
    write fn remove_keys(before: Timestamp, limit: usize) -> usize;
    query fn list(scope: &Scope, query: &TaskQuery) -> TaskPage;
    query fn list_unfinished(after: Option<&TaskId>, limit: usize) -> Vec<Head>;
    query fn list_runnable(after: Option<&TaskId>, limit: usize) -> Vec<Head>;
    query fn list_parked(scope: &Scope, limit: usize) -> Vec<Head>;
    query fn latest_time() -> Option<Timestamp>;
    query fn list_ended(before: Timestamp, limit: usize) -> Vec<Head>;
    query fn count_ended() -> u64;
    query fn count_tasks(agent: &str, tenant: &str) -> Option<TaskCounts>;
    write fn save_snapshot(task: &Head, at: Seq, snapshot: &Snapshot) -> ();
    query fn load_snapshot(task: &Head, max_bytes: usize) -> Option<(Seq, Snapshot)>;
    write fn remove(tasks: &[Head]) -> ();
    write fn put_config(task: &Head, config: &PushRegistration) -> ();
    query fn list_configs(task: &Head) -> Vec<PushRegistration>;
    write fn delete_config(task: &Head, id: &PushConfigId) -> ();
    query fn list_webhooks(filter: WebhookFilter, after: Option<u64>, limit: usize) -> Vec<Webhook>;
    query fn find_webhook(task: &Head, id: &PushConfigId) -> Option<Webhook>;
    write fn record_delivery(webhook: &Webhook) -> bool;
    write fn heartbeat() -> Heartbeat;
    write fn take_over(agents: &[Arc<str>], limit: usize) -> Vec<Head>;
    query fn list_held(known: &HashSet<TaskId>) -> Vec<Head>;
    write fn leave_cluster() -> ();
    write fn set_agents(agents: &[Arc<str>]) -> ();
    write fn claim_job(job: &'static str, period: Duration) -> bool;
    query fn list_replicas() -> Vec<ReplicaInfo>;
    query fn positions(tasks: &[Head]) -> Vec<Option<Seq>>;
    query fn read_many(tasks: &[Head], max_bytes: usize) -> Vec<Vec<Entry>>;
    query fn count_open_webhooks(caller: &Caller) -> Option<u64>;
    write fn take_over_webhooks(limit: usize) -> Vec<Webhook>;
}
