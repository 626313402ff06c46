//! Tables of the memory store: tasks by number, and indexes over them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashMap as FastHashMap;
use hashbrown::hash_map::Entry;
use slab::Slab;

use super::stored_batch::BatchForm;
use super::task_record::{TaskRecord, webhook_id, webhook_matches};
use crate::model::{PushConfigId, Scope, Seq, TaskId, Timestamp};
use crate::store::{
    Batch, CreateResult, DeliveryProgress, Error, Head, IdempotencyKey, IdempotencyRecord, NewTask,
    PushRegistration, Result, TaskCounts, TaskPage, TaskQuery, Webhook, WebhookFilter,
};

/// Tasks and indexes. The number of a removed task is reused.
#[derive(Debug, Default)]
pub(super) struct Tables {
    tasks: Slab<TaskRecord>,
    by_id: FastHashMap<TaskId, usize>,
    /// Scopes that have tasks.
    scopes: FastHashMap<Scope, ScopeEntry>,
    /// Counts over all owners, by agent and tenant. Never removed: configuration bounds their number.
    tenants: FastHashMap<[Arc<str>; 2], TaskCounts>,
    /// Idempotency keys by the time of their record and the number of their task.
    keys_by_time: BTreeSet<(Timestamp, usize, Arc<str>)>,
    unfinished: BTreeMap<TaskId, usize>,
    pub(super) ended: BTreeSet<(Timestamp, usize)>,
    /// Task numbers by webhook number.
    webhooks: BTreeMap<u64, usize>,
    last_webhook: u64,
}

/// Tasks of a scope. Callers choose keys and aliases, so their maps use a hash that resists collision attacks.
#[derive(Debug, Default)]
struct ScopeEntry {
    tasks: Slab<usize>,
    keys: HashMap<Arc<str>, KeyRecord>,
    aliases: HashMap<TaskId, usize>,
}

/// Task and turn recorded with an idempotency key.
#[derive(Debug)]
struct KeyRecord {
    time: Timestamp,
    body: [u8; 32],
    task: usize,
    turn: u64,
}

impl Tables {
    pub(super) fn create(&mut self, task: &NewTask, first: BatchForm) -> Result<CreateResult> {
        if let Some(record) = self.find_key(&task.scope, task.batch.key.as_ref())? {
            return Ok(CreateResult::Replayed(record));
        }
        let alias = task.alias.as_ref();
        if alias.is_some_and(|alias| self.find_alias(&task.scope, alias).is_some()) {
            return Err(Error::Conflict);
        }
        let Entry::Vacant(by_id) = self.by_id.entry(task.id.clone()) else {
            return Err(Error::Conflict);
        };
        let number = self.tasks.vacant_key();
        by_id.insert(number);
        let scope = self.scopes.entry(task.scope.clone()).or_default();
        let scope_slot = scope.tasks.insert(number);
        let mut record = TaskRecord::new(task.head(Seq(0)), scope_slot);
        if let Some(alias) = alias {
            scope.aliases.insert(alias.clone(), number);
            record.alias = Some(alias.clone());
        }
        record.add(&task.batch, first);
        let created = record.head.clone();
        self.tasks.insert(record);
        counts_mut(&mut self.tenants, &task.scope).total += 1;
        self.add_to_sweeps(number);
        self.insert_key(number, &task.batch);
        if let Some(config) = &task.config {
            self.put_webhook(number, config, Seq(0));
        }
        Ok(CreateResult::Created(created))
    }

    pub(super) fn append(
        &mut self,
        task: &Head,
        at: Seq,
        batch: &Batch,
        form: BatchForm,
    ) -> Result<Seq> {
        if self.find_key(&task.scope, batch.key.as_ref())?.is_some() {
            return Err(Error::AlreadyApplied);
        }
        let number = self.number(task).ok_or(Error::Conflict)?;
        let record = &mut self.tasks[number];
        if record.head.position != at {
            return Err(Error::Conflict);
        }
        let is_moved = record.head.state.is_terminal() || batch.state.is_terminal();
        if is_moved {
            self.remove_from_sweeps(number);
        }
        let record = &mut self.tasks[number];
        record.add(batch, form);
        let position = record.head.position;
        if is_moved {
            self.add_to_sweeps(number);
        }
        self.insert_key(number, batch);
        Ok(position)
    }

    pub(super) fn remove(&mut self, head: &Head) {
        let Some(number) = self.number(head) else {
            return;
        };
        self.remove_from_sweeps(number);
        self.by_id.remove(&head.id);
        let record = self.tasks.remove(number);
        for webhook in record.webhooks {
            self.webhooks.remove(&webhook.number);
        }
        counts_mut(&mut self.tenants, &head.scope).total -= 1;
        let Entry::Occupied(mut entry) = self.scopes.entry(head.scope.clone()) else {
            return;
        };
        let scope = entry.get_mut();
        scope.tasks.remove(record.scope_slot);
        for key in record.keys {
            if let Some(used) = scope.keys.remove(&key) {
                self.keys_by_time.remove(&(used.time, number, key));
            }
        }
        if let Some(alias) = record.alias {
            scope.aliases.remove(&alias);
        }
        if scope.tasks.is_empty() {
            entry.remove();
        }
    }

    /// Finds the record of an idempotency key.
    pub(super) fn find_key(
        &self,
        scope: &Scope,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<IdempotencyRecord>> {
        let used = key.and_then(|key| self.scopes.get(scope)?.keys.get(&*key.text));
        match key.zip(used) {
            None => Ok(None),
            Some((key, used)) if used.time < key.oldest_valid => Ok(None),
            Some((key, used)) if used.body != key.body => Err(Error::KeyReused),
            Some((_, used)) => Ok(Some(IdempotencyRecord {
                head: self.tasks[used.task].head.clone(),
                turn: used.turn,
            })),
        }
    }

    /// Finds a task of the scope by id, or else by alias.
    pub(super) fn find(&self, scope: &Scope, id: &TaskId) -> Option<&Head> {
        let by_id = self.by_id.get(id).map(|number| &self.tasks[*number].head);
        by_id.filter(|head| head.scope == *scope).or_else(|| {
            self.find_alias(scope, id)
                .map(|number| &self.tasks[number].head)
        })
    }

    fn find_alias(&self, scope: &Scope, alias: &TaskId) -> Option<usize> {
        self.scopes.get(scope)?.aliases.get(alias).copied()
    }

    /// Finds a task by its head, if the scopes are equal.
    pub(super) fn record(&self, head: &Head) -> Option<&TaskRecord> {
        self.number(head).map(|number| &self.tasks[number])
    }

    pub(super) fn record_mut(&mut self, head: &Head) -> Option<&mut TaskRecord> {
        self.number(head).map(|number| &mut self.tasks[number])
    }

    fn number(&self, head: &Head) -> Option<usize> {
        let number = *self.by_id.get(&head.id)?;
        (self.tasks[number].head.scope == head.scope).then_some(number)
    }

    fn in_scope(&self, scope: &Scope) -> impl Iterator<Item = &TaskRecord> {
        let entry = self.scopes.get(scope).into_iter();
        entry.flat_map(|entry| entry.tasks.iter().map(|(_, number)| &self.tasks[*number]))
    }

    pub(super) fn list(&self, scope: &Scope, query: &TaskQuery) -> TaskPage {
        let heads = self.in_scope(scope).map(|record| &record.head);
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

    pub(super) fn list_parked(&self, scope: &Scope, limit: usize) -> Vec<Head> {
        let parked = self.in_scope(scope).filter(|record| record.parked);
        let mut heads: Vec<_> = parked.map(|record| &record.head).collect();
        heads.sort_unstable_by(|one, other| newest_first(other, one));
        heads.into_iter().take(limit).cloned().collect()
    }

    /// Returns the tasks that have not ended, ordered by id, after `after`.
    pub(super) fn unfinished(&self, after: Option<&TaskId>) -> impl Iterator<Item = &TaskRecord> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self
            .unfinished
            .range::<TaskId, _>((start, Bound::Unbounded));
        range.map(|(_, number)| &self.tasks[*number])
    }

    pub(super) fn list_ended(&self, before: Timestamp, limit: usize) -> Vec<Head> {
        let ended = self.ended.iter().take_while(|(time, _)| *time < before);
        ended
            .take(limit)
            .map(|(_, number)| self.tasks[*number].head.clone())
            .collect()
    }

    pub(super) fn latest_time(&self) -> Option<Timestamp> {
        let times = self.tasks.iter().map(|(_, record)| record.head.status_time);
        times.max()
    }

    /// Registers a webhook that starts after the last entry.
    pub(super) fn put_config(&mut self, task: &Head, config: &PushRegistration) {
        if let Some(number) = self.number(task) {
            self.put_webhook(number, config, self.tasks[number].head.position);
        }
    }

    fn put_webhook(&mut self, task: usize, config: &PushRegistration, position: Seq) {
        let record = &mut self.tasks[task];
        if record.replace_webhook(config) {
            return;
        }
        self.last_webhook += 1;
        let webhook = Webhook {
            number: self.last_webhook,
            generation: 0,
            task: record.head.clone(),
            registration: config.clone(),
            delivery: DeliveryProgress {
                position,
                ..DeliveryProgress::default()
            },
        };
        record.webhooks.push(webhook);
        self.webhooks.insert(self.last_webhook, task);
    }

    pub(super) fn delete_config(&mut self, task: &Head, id: &PushConfigId) {
        let Some(number) = self.number(task) else {
            return;
        };
        let webhooks = &mut self.tasks[number].webhooks;
        let is_deleted = |webhook: &mut Webhook| webhook_id(webhook) == Some(id);
        for webhook in webhooks.extract_if(.., is_deleted) {
            self.webhooks.remove(&webhook.number);
        }
    }

    pub(super) fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Vec<Webhook> {
        let numbers = self.webhooks.range(after.map_or(0, |after| after + 1)..);
        let wanted = numbers.filter_map(|(number, task)| {
            let record = &self.tasks[*task];
            let mut webhooks = record.webhooks.iter();
            let webhook = webhooks.find(|webhook| webhook.number == *number)?;
            webhook_matches(webhook, filter).then(|| record.with_head(webhook))
        });
        wanted.take(limit).collect()
    }

    /// Records the key of a batch. An expired record of the key is replaced.
    fn insert_key(&mut self, task: usize, batch: &Batch) {
        let Some(key) = &batch.key else { return };
        let text: Arc<str> = key.text.as_str().into();
        let used = KeyRecord {
            time: batch.time,
            body: key.body,
            task,
            turn: batch.turn,
        };
        let scope = self.scopes.get_mut(&self.tasks[task].head.scope);
        if let Some(expired) = scope.and_then(|scope| scope.keys.insert(text.clone(), used)) {
            self.tasks[expired.task].keys.retain(|key| *key != text);
            self.keys_by_time
                .remove(&(expired.time, expired.task, text.clone()));
        }
        self.tasks[task].keys.push(text.clone());
        self.keys_by_time.insert((batch.time, task, text));
    }

    /// Removes the oldest keys that were recorded before a time, and returns their number.
    pub(super) fn remove_keys(&mut self, before: Timestamp, limit: usize) -> usize {
        let expired = self.keys_by_time.iter();
        let expired = expired.take_while(|(time, ..)| *time < before).take(limit);
        let expired: Vec<_> = expired.cloned().collect();
        for key in &expired {
            self.keys_by_time.remove(key);
            let (_, task, text) = key;
            let record = &mut self.tasks[*task];
            record.keys.retain(|key| key != text);
            if let Some(scope) = self.scopes.get_mut(&record.head.scope) {
                scope.keys.remove(text);
            }
        }
        expired.len()
    }

    fn add_to_sweeps(&mut self, number: usize) {
        let record = &self.tasks[number];
        if let Some(time) = record.end_time() {
            self.ended.insert((time, number));
        } else {
            self.unfinished.insert(record.head.id.clone(), number);
            counts_mut(&mut self.tenants, &record.head.scope).open += 1;
        }
    }

    fn remove_from_sweeps(&mut self, number: usize) {
        let record = &self.tasks[number];
        if let Some(time) = record.end_time() {
            self.ended.remove(&(time, number));
        } else {
            self.unfinished.remove(&record.head.id);
            counts_mut(&mut self.tenants, &record.head.scope).open -= 1;
        }
    }

    pub(super) fn count_tasks(&self, agent: &str, tenant: &str) -> TaskCounts {
        let counts = self.tenants.get(&[agent.into(), tenant.into()]);
        counts.copied().unwrap_or_default()
    }
}

fn counts_mut<'a>(
    tenants: &'a mut FastHashMap<[Arc<str>; 2], TaskCounts>,
    scope: &Scope,
) -> &'a mut TaskCounts {
    let key = [scope.agent.clone(), scope.tenant.clone()];
    tenants.entry(key).or_default()
}

/// Order of a list: status time descending, then id descending.
fn newest_first(one: &Head, other: &Head) -> Ordering {
    (other.status_time, &other.id).cmp(&(one.status_time, &one.id))
}
