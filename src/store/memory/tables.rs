//! Tables of the memory store: tasks by number, and indexes over them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap as FastHashMap, HashSet as FastHashSet};
use slab::Slab;

use super::stored_batch::BatchForm;
use super::task_record::TaskRecord;
use crate::model::{Scope, Seq, TaskId, Timestamp};
use crate::store::{
    Batch, CreateResult, DeliveryProgress, Error, Head, Holder, IdempotencyKey, IdempotencyRecord,
    NewTask, PushRegistration, Result, TaskCounts, Webhook,
};

/// Tasks and indexes. The number of a removed task is reused.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Boxed: the table grows by copying pointers.
    pub(super) tasks: Slab<Box<TaskRecord>>,
    by_id: FastHashMap<TaskId, usize>,
    /// Scopes that have tasks.
    scopes: FastHashMap<Scope, ScopeEntry>,
    /// Idempotency keys by the time of their record and the number of their task.
    keys_by_time: BTreeSet<(Timestamp, usize, Arc<str>)>,
    unfinished: BTreeMap<TaskId, usize>,
    /// Ended tasks, sorted by status time and number. Tasks end in order, and retention removes the oldest ones, so that
    /// both ends change in O(1). Any other position takes a binary search and a move of the entries beside it.
    pub(super) ended: VecDeque<(Timestamp, usize)>,
    /// Task numbers by webhook number.
    pub(super) webhooks: BTreeMap<u64, usize>,
    last_webhook: u64,
}

/// Tasks of a scope. Callers choose keys and aliases, so their maps use a hash that resists collision attacks.
#[derive(Debug, Default)]
struct ScopeEntry {
    tasks: Slab<usize>,
    /// Tasks that have not ended. Quotas count them with every new task.
    unfinished: FastHashSet<usize>,
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
        let scope = match self.scopes.get_mut(&task.scope) {
            Some(scope) => scope,
            None => self.scopes.entry(task.scope.clone()).or_default(),
        };
        let scope_slot = scope.tasks.insert(number);
        if let Some(alias) = alias {
            scope.aliases.insert(alias.clone(), number);
        }
        let record = TaskRecord::new(task, scope_slot, first);
        let created = record.head.clone();
        self.tasks.insert(Box::new(record));
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
        let head = &self.tasks[number].head;
        if head.position != at {
            return Err(Error::Conflict);
        }
        let is_moved = head.state.is_terminal() || batch.state.is_terminal();
        if is_moved {
            self.remove_from_sweeps(number);
        }
        self.tasks[number].add(batch, form);
        if is_moved {
            self.add_to_sweeps(number);
        }
        self.insert_key(number, batch);
        Ok(self.tasks[number].head.position)
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

    /// Finds a task by its head, if the scopes are equal.
    pub(super) fn number(&self, head: &Head) -> Option<usize> {
        let number = *self.by_id.get(&head.id)?;
        (self.tasks[number].head.scope == head.scope).then_some(number)
    }

    pub(super) fn record(&self, head: &Head) -> Option<&TaskRecord> {
        self.number(head).map(|number| &*self.tasks[number])
    }

    pub(super) fn record_mut(&mut self, head: &Head) -> Option<&mut TaskRecord> {
        self.number(head).map(|number| &mut *self.tasks[number])
    }

    /// Finds a task of the scope by id, or else by alias.
    pub(super) fn find(&self, scope: &Scope, id: &TaskId) -> Option<&Head> {
        let heads = [self.by_id.get(id).copied(), self.find_alias(scope, id)]
            .into_iter()
            .flatten()
            .map(|number| &self.tasks[number].head);
        heads.into_iter().find(|head| head.scope == *scope)
    }

    fn find_alias(&self, scope: &Scope, alias: &TaskId) -> Option<usize> {
        self.scopes.get(scope)?.aliases.get(alias).copied()
    }

    /// Returns the tasks of a scope.
    pub(super) fn in_scope(&self, scope: &Scope) -> impl Iterator<Item = &TaskRecord> {
        let numbers = self.scopes.get(scope).map(|entry| entry.tasks.iter());
        numbers
            .into_iter()
            .flatten()
            .map(|(_, number)| &*self.tasks[*number])
    }

    /// Returns the tasks of a scope that have not ended.
    pub(super) fn unfinished_in_scope(&self, scope: &Scope) -> impl Iterator<Item = &TaskRecord> {
        let numbers = self.scopes.get(scope).map(|entry| &entry.unfinished);
        numbers
            .into_iter()
            .flatten()
            .map(|number| &*self.tasks[*number])
    }

    /// Returns the tasks after an id that have not ended and pass a filter, ordered by id.
    pub(super) fn unfinished(
        &self,
        after: Option<&TaskId>,
        limit: usize,
        filter: impl Fn(&TaskRecord) -> bool,
    ) -> Vec<Head> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self
            .unfinished
            .range::<TaskId, _>((start, Bound::Unbounded));
        let records = range.map(|(_, number)| &self.tasks[*number]);
        let wanted = records.filter(|record| filter(record)).take(limit);
        wanted.map(|record| record.head.clone()).collect()
    }

    /// Returns the webhooks of a task.
    pub(super) fn webhooks_of(&self, task: &Head) -> &[Webhook] {
        self.record(task)
            .map_or(&[], |record| record.webhooks.as_slice())
    }

    /// Counts the tasks of an agent and tenant, over all owners.
    pub(super) fn count_tasks(&self, agent: &str, tenant: &str) -> TaskCounts {
        let mut counts = TaskCounts::default();
        for (scope, entry) in &self.scopes {
            if *scope.agent == *agent && *scope.tenant == *tenant {
                counts.open += entry.unfinished.len() as u64;
                counts.total += entry.tasks.len() as u64;
            }
        }
        counts
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
        for removed in 0..limit {
            match self.keys_by_time.pop_first() {
                Some((time, task, text)) if time < before => {
                    let record = &mut self.tasks[task];
                    record.keys.retain(|key| *key != text);
                    if let Some(scope) = self.scopes.get_mut(&record.head.scope) {
                        scope.keys.remove(&text);
                    }
                }
                valid => {
                    self.keys_by_time.extend(valid);
                    return removed;
                }
            }
        }
        limit
    }

    /// Registers a webhook that delivers the entries after a position.
    pub(super) fn put_webhook(&mut self, task: usize, config: &PushRegistration, position: Seq) {
        let record = &mut self.tasks[task];
        if record.replace_webhook(config) {
            return;
        }
        self.last_webhook += 1;
        record.webhooks.push(Webhook {
            number: self.last_webhook,
            generation: 0,
            task: record.head.clone(),
            registration: config.clone(),
            delivery: DeliveryProgress {
                position,
                ..DeliveryProgress::default()
            },
            holder: Holder::None,
        });
        self.webhooks.insert(self.last_webhook, task);
    }

    /// Records the progress of a webhook, unless it was deleted or registered again.
    pub(super) fn record_delivery(&mut self, webhook: &Webhook) -> bool {
        let stored = self.record_mut(&webhook.task).and_then(|record| {
            let mut webhooks = record.webhooks.iter_mut();
            webhooks.find(|stored| {
                stored.number == webhook.number && stored.generation == webhook.generation
            })
        });
        let is_recorded = stored.is_some();
        if let Some(stored) = stored {
            stored.delivery.clone_from(&webhook.delivery);
        }
        is_recorded
    }

    fn add_to_sweeps(&mut self, number: usize) {
        let head = &self.tasks[number].head;
        if head.state.is_terminal() {
            let ended = (head.status_time, number);
            match self.ended.back() {
                Some(last) if *last > ended => {
                    let index = self.ended.partition_point(|other| *other < ended);
                    self.ended.insert(index, ended);
                }
                _ => self.ended.push_back(ended),
            }
            return;
        }
        self.unfinished.insert(head.id.clone(), number);
        if let Some(scope) = self.scopes.get_mut(&head.scope) {
            scope.unfinished.insert(number);
        }
    }

    fn remove_from_sweeps(&mut self, number: usize) {
        let head = &self.tasks[number].head;
        if head.state.is_terminal() {
            if let Ok(index) = self.ended.binary_search(&(head.status_time, number)) {
                self.ended.remove(index);
            }
            return;
        }
        self.unfinished.remove(&head.id);
        if let Some(scope) = self.scopes.get_mut(&head.scope) {
            scope.unfinished.remove(&number);
        }
    }
}
