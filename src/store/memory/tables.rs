//! Tables of the memory store: tasks by number, and indexes over them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use super::hash_index::HashIndex;
use super::packed_log::{BatchForm, ListingKey, PackedLog};
use super::scope_table::{ScopeTable, TimeKey};
use super::stored_webhook::StoredWebhook;
use super::time_index::TimeIndex;
use crate::model::{PushConfigId, Scope, Seq, TaskId, Timestamp};
use crate::store::{
    Batch, CreateResult, DeliveryProgress, Error, Head, IdempotencyKey, IdempotencyRecord, NewTask,
    PushRegistration, Result, TaskCounts, TaskPage, TaskQuery, Webhook, WebhookFilter,
};

/// Tasks and indexes. The number of a removed task is reused.
#[derive(Debug, Default)]
pub(super) struct Tables {
    logs: Vec<Option<PackedLog>>,
    free: Vec<u32>,
    hasher: RandomState,
    by_id: HashIndex,
    scopes: ScopeTable,
    unfinished: BTreeSet<TaskId>,
    runnable: BTreeSet<TaskId>,
    ended: TimeIndex,
    keys: HashMap<(u32, String), KeyEntry>,
    /// Idempotency keys by the time of their record.
    keys_by_time: BTreeSet<(Timestamp, u32, String)>,
    aliases: HashMap<(u32, TaskId), u32>,
    /// Task numbers by webhook number.
    webhooks: BTreeMap<u64, u32>,
    last_webhook: u64,
}

/// Task and turn recorded with an idempotency key.
#[derive(Debug)]
struct KeyEntry {
    time: Timestamp,
    body: [u8; 32],
    task: u32,
    turn: u64,
}

impl Tables {
    pub(super) fn create(&mut self, task: &NewTask, first: BatchForm) -> Result<CreateResult> {
        if let Some(record) = self.find_key(&task.scope, task.batch.key.as_ref())? {
            return Ok(CreateResult::Replayed(record));
        }
        let by_alias = task
            .alias
            .as_ref()
            .and_then(|alias| self.alias(&task.scope, alias));
        let hash = self.hash(task.id.as_str());
        if by_alias.is_some() || self.find_number(hash, &task.id).is_some() {
            return Err(Error::Conflict);
        }
        let number = self.next_number()?;
        let scope = self.scopes.ensure(&task.scope);
        let log = PackedLog::new(scope, task, first);
        let listed = log.listed();
        let position = log.position;
        self.logs[number as usize] = Some(log);
        self.by_id.insert(hash, number);
        self.scopes.put(scope, number, listed);
        self.add_to_sweeps(number, &task.id, listed);
        self.insert_key(number, scope, &task.batch);
        self.insert_alias(number, scope, task.alias.as_ref());
        if let Some(config) = &task.config {
            self.insert_webhook(number, config, Seq(0));
        }
        Ok(CreateResult::Created(task.head(position)))
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
        let number = self.own_number(task).ok_or(Error::Conflict)?;
        let log = self.logs[number as usize]
            .as_mut()
            .filter(|log| log.position == at);
        let log = log.ok_or(Error::Conflict)?;
        let scope = log.scope;
        let old = log.listed();
        log.add(batch, form);
        let position = log.position;
        let new = log.listed();
        self.insert_key(number, scope, batch);
        if old != new {
            self.remove_from_sweeps(number, &task.id, old);
            self.add_to_sweeps(number, &task.id, new);
            self.scopes.move_to(scope, number, [old, new]);
        }
        Ok(position)
    }

    /// Finds the record of an idempotency key.
    pub(super) fn find_key(
        &self,
        scope: &Scope,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<IdempotencyRecord>> {
        let Some(key) = key else { return Ok(None) };
        let Some(scope) = self.scopes.number(scope) else {
            return Ok(None);
        };
        match self.keys.get(&(scope, key.text.clone())) {
            None => Ok(None),
            Some(used) if used.time < key.oldest_valid => Ok(None),
            Some(used) if used.body != key.body => Err(Error::KeyReused),
            Some(used) => Ok(self.head(used.task).map(|head| IdempotencyRecord {
                head,
                turn: used.turn,
            })),
        }
    }

    /// Finds a task of the scope by id, or else by alias.
    pub(super) fn find(&self, scope: &Scope, id: &TaskId) -> Option<Head> {
        let by_id = self.number(id).and_then(|number| self.log(number));
        match by_id.filter(|log| self.scopes.scope(log.scope) == Some(scope)) {
            Some(log) => Some(log.head_with_id(id.clone(), scope.clone())),
            None => self.head(self.alias(scope, id)?),
        }
    }

    /// Returns the position of a task of the scope.
    pub(super) fn position(&self, scope: &Scope, id: &TaskId) -> Option<Seq> {
        let log = self.log(self.number(id)?)?;
        (self.scopes.scope(log.scope) == Some(scope)).then_some(log.position)
    }

    /// Finds a log by its head, if the scopes are equal.
    pub(super) fn find_log(&self, head: &Head) -> Option<&PackedLog> {
        self.log(self.own_number(head)?)
    }

    pub(super) fn find_log_mut(&mut self, head: &Head) -> Option<&mut PackedLog> {
        let number = self.own_number(head)?;
        self.logs[number as usize].as_mut()
    }

    pub(super) fn list(&self, scope: &Scope, query: &TaskQuery) -> TaskPage {
        let Some(number) = self.scopes.number(scope) else {
            return TaskPage::default();
        };
        let mut time_keys = self.scopes.time_keys(number).rev().peekable();
        let mut page = TaskPage::default();
        let mut same = Vec::new();
        // Tasks with the same status time are collected and then sorted by id.
        while let Some(time) = time_keys.peek().map(|time_key| time_key.time()) {
            let same_time =
                std::iter::from_fn(|| time_keys.next_if(|time_key| time_key.time() == time));
            same.extend(
                same_time
                    .filter_map(|time_key| self.log(time_key.number))
                    .filter(|log| log.matches(query)),
            );
            page.total += same.len() as u64;
            let behind = query.after.as_ref().is_none_or(|(after, _)| time <= *after);
            if behind && page.tasks.len() < query.limit {
                same.sort_unstable_by(|one, other| other.id().cmp(one.id()));
                let first = |log: &&PackedLog| {
                    query
                        .after
                        .as_ref()
                        .is_none_or(|(after, id)| (time, log.id()) < (*after, id.as_str()))
                };
                let wanted = same
                    .iter()
                    .copied()
                    .filter(first)
                    .take(query.limit - page.tasks.len());
                page.tasks.extend(wanted.map(|log| log.head(scope.clone())));
            }
            same.clear();
        }
        page
    }

    pub(super) fn list_unfinished(&self, after: Option<&TaskId>, limit: usize) -> Vec<Head> {
        self.heads(behind(&self.unfinished, after), limit)
    }

    pub(super) fn list_runnable(&self, after: Option<&TaskId>, limit: usize) -> Vec<Head> {
        self.heads(behind(&self.runnable, after), limit)
    }

    pub(super) fn list_parked(&self, scope: &Scope, limit: usize) -> Vec<Head> {
        let Some(number) = self.scopes.number(scope) else {
            return Vec::new();
        };
        let logs = self
            .scopes
            .time_keys(number)
            .filter_map(|time_key| self.log(time_key.number));
        logs.filter(|log| log.is_parked())
            .map(|log| log.head(scope.clone()))
            .take(limit)
            .collect()
    }

    pub(super) fn latest_time(&self) -> Option<Timestamp> {
        self.scopes.latest_time()
    }

    pub(super) fn list_ended(&self, before: Timestamp, limit: usize) -> Vec<Head> {
        let ended = self
            .ended
            .iter()
            .take_while(|time_key| time_key.time() < before);
        ended
            .filter_map(|time_key| self.head(time_key.number))
            .take(limit)
            .collect()
    }

    pub(super) fn count_ended(&self) -> u64 {
        self.ended.len() as u64
    }

    pub(super) fn count_tasks(&self, agent: &str, tenant: &str) -> TaskCounts {
        self.scopes.count_tasks(agent, tenant)
    }

    pub(super) fn remove(&mut self, head: &Head) {
        let Some(number) = self.own_number(head) else {
            return;
        };
        let Some(log) = self.logs[number as usize].take() else {
            return;
        };
        let scope = log.scope;
        let listed = log.listed();
        self.free.push(number);
        self.by_id.remove(self.hash(head.id.as_str()), number);
        self.remove_from_sweeps(number, &head.id, listed);
        self.scopes.remove(scope, number, listed);
        let Some(rare) = log.into_rare() else { return };
        for text in rare.keys {
            // An expired key may belong to another task by now.
            if let Entry::Occupied(key) = self.keys.entry((scope, text))
                && key.get().task == number
            {
                let ((scope, text), entry) = key.remove_entry();
                self.keys_by_time.remove(&(entry.time, scope, text));
            }
        }
        for webhook in rare.webhooks {
            self.webhooks.remove(&webhook.number);
        }
        if let Some(alias) = rare.alias {
            self.aliases.remove(&(scope, alias));
        }
    }

    /// Registers a webhook that starts after the last entry.
    pub(super) fn put_config(&mut self, task: &Head, config: &PushRegistration) {
        let Some(number) = self.own_number(task) else {
            return;
        };
        if let Some(position) = self.log(number).map(|log| log.position) {
            self.insert_webhook(number, config, position);
        }
    }

    pub(super) fn delete_config(&mut self, task: &Head, id: &PushConfigId) {
        let Some(rare) = self
            .find_log_mut(task)
            .and_then(PackedLog::existing_rare_mut)
        else {
            return;
        };
        if let Some(at) = rare
            .webhooks
            .iter()
            .position(|webhook| webhook.id() == Some(id))
        {
            let webhook = rare.webhooks.remove(at);
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
            let stored = self
                .log(*task)?
                .webhooks()
                .iter()
                .find(|stored| stored.number == *number)?;
            if stored.matches(filter) {
                Some(stored.to_webhook(self.head(*task)?))
            } else {
                None
            }
        });
        wanted.take(limit).collect()
    }

    fn insert_webhook(&mut self, task: u32, config: &PushRegistration, position: Seq) {
        let Some(log) = self.logs[task as usize].as_mut() else {
            return;
        };
        let rare = log.rare_mut();
        if let Some(stored) = rare
            .webhooks
            .iter_mut()
            .find(|stored| stored.id() == config.config.id.as_ref())
        {
            return stored.replace(config);
        }
        self.last_webhook += 1;
        let delivery = DeliveryProgress {
            position,
            ..DeliveryProgress::default()
        };
        rare.webhooks.push(StoredWebhook::new(
            self.last_webhook,
            config.clone(),
            delivery,
        ));
        self.webhooks.insert(self.last_webhook, task);
    }

    fn insert_key(&mut self, task: u32, scope: u32, batch: &Batch) {
        let Some(key) = &batch.key else { return };
        let Some(log) = self.logs[task as usize].as_mut() else {
            return;
        };
        log.rare_mut().keys.push(key.text.clone());
        let entry = KeyEntry {
            time: batch.time,
            body: key.body,
            task,
            turn: batch.turn,
        };
        if let Some(expired) = self.keys.insert((scope, key.text.clone()), entry) {
            let expired = (expired.time, scope, key.text.clone());
            self.keys_by_time.remove(&expired);
        }
        self.keys_by_time
            .insert((batch.time, scope, key.text.clone()));
    }

    /// Removes the oldest keys that were recorded before a time, and returns their number.
    pub(super) fn remove_keys(&mut self, before: Timestamp, limit: usize) -> usize {
        let mut removed = 0;
        while removed < limit
            && let Some(oldest) = self.keys_by_time.pop_first()
        {
            if oldest.0 >= before {
                self.keys_by_time.insert(oldest);
                break;
            }
            let (_, scope, text) = oldest;
            if let Some(entry) = self.keys.remove(&(scope, text.clone()))
                && let Some(log) = self.logs[entry.task as usize].as_mut()
            {
                log.rare_mut().keys.retain(|key| *key != text);
            }
            removed += 1;
        }
        removed
    }

    fn insert_alias(&mut self, task: u32, scope: u32, alias: Option<&TaskId>) {
        let Some((alias, log)) = alias.zip(self.logs[task as usize].as_mut()) else {
            return;
        };
        log.rare_mut().alias = Some(alias.clone());
        self.aliases.insert((scope, alias.clone()), task);
    }

    fn add_to_sweeps(&mut self, number: u32, id: &TaskId, listed: ListingKey) {
        if listed.has_ended {
            self.ended.insert(TimeKey::new(listed.time, number));
            return;
        }
        self.unfinished.insert(id.clone());
        if listed.is_runnable {
            self.runnable.insert(id.clone());
        }
    }

    fn remove_from_sweeps(&mut self, number: u32, id: &TaskId, listed: ListingKey) {
        if listed.has_ended {
            self.ended.remove(TimeKey::new(listed.time, number));
            return;
        }
        self.unfinished.remove(id);
        if listed.is_runnable {
            self.runnable.remove(id);
        }
    }

    /// Returns an unused task number and reserves its slot.
    fn next_number(&mut self) -> Result<u32> {
        if let Some(number) = self.free.pop() {
            return Ok(number);
        }
        let number = u32::try_from(self.logs.len())
            .ok()
            .filter(|number| *number < HashIndex::MAX_NUMBERS);
        let number = number
            .ok_or_else(|| Error::Failed("too many tasks in memory (limit: 4294967294)".into()))?;
        self.logs.push(None);
        Ok(number)
    }

    fn hash(&self, id: &str) -> u32 {
        // 32 bits suffice: the index stores no more.
        self.hasher.hash_one(id) as u32
    }

    fn number(&self, id: &TaskId) -> Option<u32> {
        self.find_number(self.hash(id.as_str()), id)
    }

    fn find_number(&self, hash: u32, id: &TaskId) -> Option<u32> {
        self.by_id.find(hash, |number| {
            self.log(number).is_some_and(|log| log.id() == id.as_str())
        })
    }

    fn alias(&self, scope: &Scope, alias: &TaskId) -> Option<u32> {
        if self.aliases.is_empty() {
            return None;
        }
        self.aliases
            .get(&(self.scopes.number(scope)?, alias.clone()))
            .copied()
    }

    /// Returns the number of a task, if its scope equals the scope of the head.
    fn own_number(&self, head: &Head) -> Option<u32> {
        let number = self.number(&head.id)?;
        (self.scopes.scope(self.log(number)?.scope)? == &head.scope).then_some(number)
    }

    fn log(&self, number: u32) -> Option<&PackedLog> {
        self.logs.get(number as usize)?.as_ref()
    }

    fn head(&self, number: u32) -> Option<Head> {
        let log = self.log(number)?;
        Some(log.head(self.scopes.scope(log.scope)?.clone()))
    }

    fn heads<'a>(&self, ids: impl Iterator<Item = &'a TaskId>, limit: usize) -> Vec<Head> {
        ids.filter_map(|id| self.head(self.number(id)?))
            .take(limit)
            .collect()
    }
}

/// Returns the ids after `after`.
fn behind<'a>(
    ids: &'a BTreeSet<TaskId>,
    after: Option<&TaskId>,
) -> impl Iterator<Item = &'a TaskId> {
    ids.range::<TaskId, _>((
        after.map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded,
    ))
}
