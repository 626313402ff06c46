//! Store in memory. Tasks are lost when the process ends.
//!
//! Logs are kept in the binary form of [`codec`](super::codec), which takes a quarter of the memory, and decoded on read.
//! A message over 64 KiB is shared instead of copied.

mod cluster_state;
mod replica;
mod stored_batch;
mod tables;
mod task_record;

use std::cmp::Ordering;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;

use self::stored_batch::{BatchForm, decode_entries};
use self::tables::Tables;
use self::task_record::{TaskRecord, webhook_id, webhook_matches};
use super::{
    Batch, CreateResult, Error, Head, IdempotencyKey, IdempotencyRecord, NewTask, PushRegistration,
    ReadLimit, Result, Snapshot, Store, TaskCounts, TaskPage, TaskQuery, Webhook, WebhookFilter,
};
use crate::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use crate::rt::lock;

pub use replica::MemoryReplica;

/// Store in memory. Tasks are lost when the process ends.
#[derive(Debug, Default)]
pub struct Memory {
    tables: Mutex<Tables>,
    is_ephemeral: bool,
}

impl Memory {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a store that keeps a task only while its turn runs. Replies are messages, and tasks cannot be read.
    #[must_use]
    pub fn ephemeral() -> Self {
        Self {
            is_ephemeral: true,
            ..Self::default()
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }
}

#[async_trait]
impl Store for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn has_external_writers(&self) -> bool {
        false
    }

    fn is_durable(&self) -> bool {
        false
    }

    fn keeps_tasks(&self) -> bool {
        !self.is_ephemeral
    }

    async fn create(&self, task: &NewTask) -> Result<CreateResult> {
        let first = BatchForm::new(&task.batch);
        self.tables().create(task, first)
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        let form = BatchForm::new(batch);
        self.tables().append(task, at, batch, form)
    }

    async fn read(&self, task: &Head, after: Seq, limit: ReadLimit) -> Result<Vec<Entry>> {
        let batches = match self.tables().record(task) {
            Some(record) => record.batches(after, limit.entries).to_vec(),
            None => return Ok(Vec::new()),
        };
        // The lock is released: decoding takes longer than copying the references.
        decode_entries(&batches, after, limit).map_err(|corrupt| Error::Failed(Box::new(corrupt)))
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        Ok(self.tables().find(scope, task).cloned())
    }

    async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<IdempotencyRecord>> {
        self.tables().find_key(scope, Some(key))
    }

    async fn remove_keys(&self, before: Timestamp, limit: usize) -> Result<usize> {
        Ok(self.tables().remove_keys(before, limit))
    }

    async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage> {
        let tables = self.tables();
        if query.state.is_some_and(|state| !state.is_terminal()) {
            return Ok(page(tables.unfinished_in_scope(scope), query));
        }
        Ok(page(tables.in_scope(scope), query))
    }

    async fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        Ok(self.tables().unfinished(after, limit, |_| true))
    }

    async fn list_runnable(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let is_runnable = |record: &TaskRecord| !record.parked;
        Ok(self.tables().unfinished(after, limit, is_runnable))
    }

    async fn list_parked(&self, scope: &Scope, limit: usize) -> Result<Vec<Head>> {
        let tables = self.tables();
        let parked = tables.unfinished_in_scope(scope);
        let mut heads: Vec<_> = parked
            .filter(|record| record.parked)
            .map(|record| &record.head)
            .collect();
        heads.sort_unstable_by(|one, other| newest_first(other, one));
        Ok(heads.into_iter().take(limit).cloned().collect())
    }

    async fn latest_time(&self) -> Result<Option<Timestamp>> {
        let tables = self.tables();
        let times = tables.tasks.iter();
        Ok(times.map(|(_, record)| record.head.status_time).max())
    }

    async fn list_ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        let tables = self.tables();
        let ended = tables.ended.iter().take_while(|(time, _)| *time < before);
        let heads = ended.map(|(_, number)| tables.tasks[*number].head.clone());
        Ok(heads.take(limit).collect())
    }

    async fn count_ended(&self) -> Result<u64> {
        Ok(self.tables().ended.len() as u64)
    }

    async fn count_tasks(&self, agent: &str, tenant: &str) -> Result<Option<TaskCounts>> {
        Ok(Some(self.tables().count_tasks(agent, tenant)))
    }

    async fn save_snapshot(&self, task: &Head, at: Seq, snapshot: &Snapshot) -> Result<()> {
        if let Some(record) = self.tables().record_mut(task) {
            let saved = &mut record.snapshot;
            if saved.as_ref().is_none_or(|saved| saved.0 <= at) {
                *saved = Some(Box::new((at, snapshot.clone())));
            }
        }
        Ok(())
    }

    async fn load_snapshot(
        &self,
        task: &Head,
        max_bytes: usize,
    ) -> Result<Option<(Seq, Snapshot)>> {
        let tables = self.tables();
        let record = tables.record(task);
        let saved = record.and_then(|record| record.snapshot.as_deref());
        Ok(saved
            .filter(|(_, snapshot)| snapshot.task.memory_size() <= max_bytes)
            .cloned())
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        let mut tables = self.tables();
        tasks.iter().for_each(|head| tables.remove(head));
        Ok(())
    }

    async fn put_config(&self, task: &Head, config: &PushRegistration) -> Result<()> {
        let mut tables = self.tables();
        if let Some(number) = tables.number(task) {
            let position = tables.tasks[number].head.position;
            tables.put_webhook(number, config, position);
        }
        Ok(())
    }

    async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>> {
        let tables = self.tables();
        let webhooks = tables.webhooks_of(task).iter();
        Ok(webhooks
            .map(|webhook| webhook.registration.clone())
            .collect())
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        let tables = &mut *self.tables();
        if let Some(number) = tables.number(task) {
            let webhooks = &mut tables.tasks[number].webhooks;
            for webhook in webhooks.extract_if(.., |webhook| webhook_id(webhook) == Some(id)) {
                tables.webhooks.remove(&webhook.number);
            }
        }
        Ok(())
    }

    async fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        let tables = self.tables();
        let numbers = tables.webhooks.range(after.map_or(0, |after| after + 1)..);
        let wanted = numbers.filter_map(|(number, task)| {
            let record = &tables.tasks[*task];
            let is_wanted =
                |webhook: &Webhook| webhook.number == *number && webhook_matches(webhook, filter);
            record.webhook(is_wanted)
        });
        Ok(wanted.take(limit).collect())
    }

    async fn find_webhook(&self, task: &Head, id: &PushConfigId) -> Result<Option<Webhook>> {
        let tables = self.tables();
        let record = tables.record(task);
        Ok(record.and_then(|record| record.webhook(|webhook| webhook_id(webhook) == Some(id))))
    }

    async fn record_delivery(&self, webhook: &Webhook) -> Result<bool> {
        Ok(self.tables().record_delivery(webhook))
    }
}

/// Returns the page of a query among the tasks of a scope.
fn page<'a>(records: impl Iterator<Item = &'a TaskRecord>, query: &TaskQuery) -> TaskPage {
    let heads = records.map(|record| &record.head);
    let mut heads: Vec<_> = heads.filter(|head| query.matches(head)).collect();
    let total = heads.len() as u64;
    if let Some((time, id)) = &query.after {
        heads.retain(|head| (head.status_time, &head.id) < (*time, id));
    }
    // Sorts the page alone: the other tasks of the scope may be many.
    if heads.len() > query.limit {
        heads.select_nth_unstable_by(query.limit, |one, other| newest_first(one, other));
        heads.truncate(query.limit);
    }
    heads.sort_unstable_by(|one, other| newest_first(one, other));
    TaskPage {
        tasks: heads.into_iter().cloned().collect(),
        total,
    }
}

/// Order of a list: status time descending, then id descending.
fn newest_first(one: &Head, other: &Head) -> Ordering {
    (other.status_time, &other.id).cmp(&(one.status_time, &one.id))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Caller, ContextId, Event, Message, TaskState};
    use crate::store::{WriterRole, conformance};

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_passes_the_conformance_suite() {
        conformance(async || Memory::new()).await;
    }

    fn batch(number: u64) -> Batch {
        // Some batches are large, and some have a message that is shared instead of encoded.
        let text = "x".repeat(if number % 90 == 50 { 20_000 } else { 150 });
        let mut events = vec![
            Event::Ignored {
                reason: format!("{number} {text}")
            };
            2
        ];
        if number % 90 == 70 {
            events[1] = Event::Message(Arc::new(Message::user("y".repeat(100_000))));
        }
        Batch {
            time: Timestamp::default(),
            events,
            state: TaskState::Working,
            status_time: Timestamp::default(),
            parked: false,
            key: None,
            turn: 0,
            writer: WriterRole::Holder,
        }
    }

    #[tokio::test]
    async fn a_log_of_many_batches_is_read_from_any_position() {
        let scope = Scope {
            agent: "a".into(),
            tenant: "".into(),
            owner: Caller::anonymous(),
        };
        let id = TaskId::from("t");
        let context_id = ContextId::from("c");
        let created = Event::Created {
            id: id.clone(),
            context_id: context_id.clone(),
            metadata: None,
        };
        let first = Batch {
            events: vec![created],
            ..batch(0)
        };
        let mut all: Vec<Entry> = first.entries(Seq(0)).collect();
        let store = Memory::new();
        let task = NewTask {
            id,
            scope,
            context_id,
            alias: None,
            config: None,
            batch: first,
        };
        let CreateResult::Created(head) = store.create(&task).await.unwrap() else {
            panic!("the id is unused")
        };
        for number in 0..400 {
            let at = Seq(all.len() as u64);
            let batch = batch(number);
            store.append(&head, at, &batch).await.unwrap();
            all.extend(batch.entries(at));
        }
        for after in (0..all.len() + 3).step_by(7) {
            for limit in [0, 1, 2, 100, usize::MAX] {
                let read = store
                    .read(&head, Seq(after as u64), ReadLimit::entries(limit))
                    .await
                    .unwrap();
                let expected: Vec<_> = all.iter().skip(after).take(limit).cloned().collect();
                assert!(read == expected, "{limit} after {after}");
            }
        }
        let found = store.find(&head.scope, &head.id).await.unwrap().unwrap();
        assert_eq!(
            found,
            Head {
                position: Seq(801),
                state: TaskState::Working,
                ..head
            }
        );
    }

    /// Creates a task with this message.
    async fn opened_by(store: &Memory, message: &Arc<Message>) -> Head {
        let scope = Scope {
            agent: "a".into(),
            tenant: "".into(),
            owner: Caller::anonymous(),
        };
        let id = TaskId::random();
        let context_id = ContextId::from("c");
        let created = Event::Created {
            id: id.clone(),
            context_id: context_id.clone(),
            metadata: None,
        };
        let batch = Batch {
            events: vec![created, Event::Message(message.clone())],
            ..batch(0)
        };
        let task = NewTask {
            id,
            scope,
            context_id,
            alias: None,
            config: None,
            batch,
        };
        let CreateResult::Created(head) = store.create(&task).await.unwrap() else {
            panic!("the id is unused")
        };
        head
    }

    #[tokio::test]
    async fn s62_a_message_of_many_small_pieces_is_encoded() {
        let ids = vec![TaskId::from("a"); 10_000];
        let message = Arc::new(Message {
            reference_task_ids: ids,
            ..Message::user("hi")
        });
        opened_by(&Memory::new(), &message).await;
        assert_eq!(
            Arc::strong_count(&message),
            1,
            "the store keeps an encoded copy"
        );
    }

    #[tokio::test]
    async fn a_large_message_is_shared_and_its_task_is_found() {
        let message = Arc::new(Message::user("y".repeat(100_000)));
        let store = Memory::new();
        let head = opened_by(&store, &message).await;
        assert_eq!(
            Arc::strong_count(&message),
            2,
            "the store shares the message"
        );
        assert_eq!(
            store.find(&head.scope, &head.id).await.unwrap(),
            Some(head.clone())
        );
        let query = TaskQuery {
            context_id: Some(ContextId::from("c")),
            limit: 9,
            ..TaskQuery::default()
        };
        assert_eq!(
            store.list(&head.scope, &query).await.unwrap().tasks,
            std::slice::from_ref(&head)
        );
        let read = store
            .read(&head, Seq(1), ReadLimit::entries(9))
            .await
            .unwrap();
        assert!(
            matches!(&read[..], [Entry { event: Event::Message(read), .. }] if *read == message)
        );
    }
}
