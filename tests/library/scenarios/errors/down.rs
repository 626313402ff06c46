//! A store that does not answer. The server starts on it all the same: there seems to be nothing to recover.

use async_trait::async_trait;
use attache::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use attache::store::{
    Batch, Error, Folded, Head, Key, NewTask, Opened, Page, Push, Query, Registered, Result, Seen,
    Store, Which,
};

pub(super) struct Down;

fn down<T>() -> Result<T> {
    Err(Error::Failed("cannot reach hunter2@db".into()))
}

#[async_trait]
impl Store for Down {
    async fn create(&self, _: &NewTask) -> Result<Opened> {
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
    async fn list(&self, _: &Scope, _: &Query) -> Result<Page> {
        down()
    }
    async fn unfinished(&self, _: Option<&TaskId>, _: usize) -> Result<Vec<Head>> {
        Ok(Vec::new())
    }
    async fn ended(&self, _: Timestamp, _: usize) -> Result<Vec<Head>> {
        down()
    }
    async fn count_ended(&self) -> Result<u64> {
        down()
    }
    async fn seen(&self, _: &Scope, _: &Key) -> Result<Option<Seen>> {
        down()
    }

    async fn keep(&self, _: &Head, _: Seq, _: &Folded) -> Result<()> {
        down()
    }
    async fn kept(&self, _: &Head) -> Result<Option<(Seq, Folded)>> {
        down()
    }
    async fn remove(&self, _: &[Head]) -> Result<()> {
        down()
    }
    async fn put_config(&self, _: &Head, _: &Registered) -> Result<()> {
        down()
    }
    async fn configs(&self, _: &Head) -> Result<Vec<Registered>> {
        down()
    }
    async fn delete_config(&self, _: &Head, _: &PushConfigId) -> Result<()> {
        down()
    }
    async fn pushes(&self, _: Which, _: Option<u64>, _: usize) -> Result<Vec<Push>> {
        down()
    }
    async fn push(&self, _: &Head, _: &PushConfigId) -> Result<Option<Push>> {
        down()
    }
    async fn record_delivery(&self, _: &Push) -> Result<bool> {
        down()
    }
}
