//! A store that does not answer. The server starts on it all the same: there seems to be nothing to recover.

use async_trait::async_trait;
use attache::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use attache::store::{
    Batch, CreateResult, Error, Head, IdempotencyKey, IdempotencyRecord, NewTask, PushRegistration,
    Result, Snapshot, Store, TaskPage, TaskQuery, Webhook, WebhookFilter,
};

pub(super) struct Down;

fn down<T>() -> Result<T> {
    Err(Error::Failed("cannot reach hunter2@db".into()))
}

#[async_trait]
impl Store for Down {
    async fn create(&self, _: &NewTask) -> Result<CreateResult> {
        down()
    }
    async fn append(&self, _: &Head, _: Seq, _: &Batch) -> Result<Seq> {
        down()
    }
    async fn read(&self, _: &Head, _: Seq, _: usize) -> Result<Vec<Entry>> {
        down()
    }
    async fn find(&self, _: &Scope, _: &TaskId) -> Result<Option<Head>> {
        down()
    }
    async fn list(&self, _: &Scope, _: &TaskQuery) -> Result<TaskPage> {
        down()
    }
    async fn list_unfinished(&self, _: Option<&TaskId>, _: usize) -> Result<Vec<Head>> {
        Ok(Vec::new())
    }
    async fn list_ended(&self, _: Timestamp, _: usize) -> Result<Vec<Head>> {
        down()
    }
    async fn count_ended(&self) -> Result<u64> {
        down()
    }
    async fn find_by_key(
        &self,
        _: &Scope,
        _: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>> {
        down()
    }

    async fn save_snapshot(&self, _: &Head, _: Seq, _: &Snapshot) -> Result<()> {
        down()
    }
    async fn load_snapshot(&self, _: &Head) -> Result<Option<(Seq, Snapshot)>> {
        down()
    }
    async fn remove(&self, _: &[Head]) -> Result<()> {
        down()
    }
    async fn put_config(&self, _: &Head, _: &PushRegistration) -> Result<()> {
        down()
    }
    async fn list_configs(&self, _: &Head) -> Result<Vec<PushRegistration>> {
        down()
    }
    async fn delete_config(&self, _: &Head, _: &PushConfigId) -> Result<()> {
        down()
    }
    async fn list_webhooks(
        &self,
        _: WebhookFilter,
        _: Option<u64>,
        _: usize,
    ) -> Result<Vec<Webhook>> {
        down()
    }
    async fn find_webhook(&self, _: &Head, _: &PushConfigId) -> Result<Option<Webhook>> {
        down()
    }
    async fn record_delivery(&self, _: &Webhook) -> Result<bool> {
        down()
    }
}
