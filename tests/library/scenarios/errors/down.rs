//! A store whose operations fail. Only `list_unfinished` succeeds, so that the server starts with nothing to recover.

use async_trait::async_trait;
use attache::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use attache::store::{
    Batch, CreateResult, Error, Head, IdempotencyKey, IdempotencyRecord, NewTask, PushRegistration,
    ReadLimit, Result, Snapshot, Store, TaskPage, TaskQuery, Webhook, WebhookFilter,
};

/// Store that is unavailable.
pub(super) struct UnavailableStore;

fn unavailable<T>() -> Result<T> {
    Err(Error::Failed("cannot reach hunter2@db".into()))
}

#[async_trait]
impl Store for UnavailableStore {
    async fn create(&self, _: &NewTask) -> Result<CreateResult> {
        unavailable()
    }
    async fn append(&self, _: &Head, _: Seq, _: &Batch) -> Result<Seq> {
        unavailable()
    }
    async fn read(&self, _: &Head, _: Seq, _: ReadLimit) -> Result<Vec<Entry>> {
        unavailable()
    }
    async fn find(&self, _: &Scope, _: &TaskId) -> Result<Option<Head>> {
        unavailable()
    }
    async fn list(&self, _: &Scope, _: &TaskQuery) -> Result<TaskPage> {
        unavailable()
    }
    async fn list_unfinished(&self, _: Option<&TaskId>, _: usize) -> Result<Vec<Head>> {
        Ok(Vec::new())
    }
    async fn list_ended(&self, _: Timestamp, _: usize) -> Result<Vec<Head>> {
        unavailable()
    }
    async fn count_ended(&self) -> Result<u64> {
        unavailable()
    }
    async fn find_by_key(
        &self,
        _: &Scope,
        _: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>> {
        unavailable()
    }

    async fn remove_keys(&self, _: Timestamp, _: usize) -> Result<usize> {
        unavailable()
    }

    async fn save_snapshot(&self, _: &Head, _: Seq, _: &Snapshot) -> Result<()> {
        unavailable()
    }
    async fn load_snapshot(&self, _: &Head, _: usize) -> Result<Option<(Seq, Snapshot)>> {
        unavailable()
    }
    async fn remove(&self, _: &[Head]) -> Result<()> {
        unavailable()
    }
    async fn put_config(&self, _: &Head, _: &PushRegistration) -> Result<()> {
        unavailable()
    }
    async fn list_configs(&self, _: &Head) -> Result<Vec<PushRegistration>> {
        unavailable()
    }
    async fn delete_config(&self, _: &Head, _: &PushConfigId) -> Result<()> {
        unavailable()
    }
    async fn list_webhooks(
        &self,
        _: WebhookFilter,
        _: Option<u64>,
        _: usize,
    ) -> Result<Vec<Webhook>> {
        unavailable()
    }
    async fn find_webhook(&self, _: &Head, _: &PushConfigId) -> Result<Option<Webhook>> {
        unavailable()
    }
    async fn record_delivery(&self, _: &Webhook) -> Result<bool> {
        unavailable()
    }
}
