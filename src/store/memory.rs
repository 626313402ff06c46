//! Logs in memory: gone with the process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{
    Batch, Delivery, Error, Folded, Head, Key, NewTask, Opened, Page, Push, Query, Registered, Result, Seen,
    Standing, Store, Tally, Which,
};
use crate::model::{Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};

/// Keeps logs in memory. They are gone when the process ends.
#[derive(Debug, Default)]
pub struct Memory {
    shelf: Mutex<Shelf>,
    drops: bool,
}

#[derive(Debug, Default)]
struct Shelf {
    logs: HashMap<TaskId, Log>,
    /// By scope, in the order that lists have: newest status first.
    by_scope: HashMap<Scope, BTreeSet<Place>>,
    unfinished: BTreeSet<TaskId>,
    with_work: BTreeSet<TaskId>,
    ended: BTreeSet<(Timestamp, TaskId)>,
    keys: HashMap<(Scope, String), Used>,
    aliases: HashMap<(Scope, TaskId), TaskId>,
    /// The tasks of the webhooks, by the numbers of these.
    hooks: BTreeMap<u64, TaskId>,
    last_hook: u64,
}

/// What a key was used for.
#[derive(Debug)]
struct Used {
    body: [u8; 32],
    task: TaskId,
    turn: u64,
}

/// A task's place in the lists of its scope.
type Place = std::cmp::Reverse<(Timestamp, TaskId)>;

#[derive(Debug)]
struct Log {
    head: Head,
    parked: bool,
    entries: Vec<Entry>,
    hooks: Vec<Hook>,
    kept: Option<(Seq, Folded)>,
    keys: Vec<String>,
    alias: Option<TaskId>,
}

/// A webhook.
#[derive(Debug)]
struct Hook {
    number: u64,
    generation: u64,
    registered: Registered,
    delivery: Delivery,
}

impl Hook {
    fn id(&self) -> Option<&PushConfigId> {
        self.registered.config.id.as_ref()
    }

    fn push(&self, task: &Head) -> Push {
        Push {
            number: self.number,
            generation: self.generation,
            task: task.clone(),
            registered: self.registered.clone(),
            delivery: self.delivery.clone(),
        }
    }
}

impl Memory {
    /// A store without a task.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that keeps a task only while its turn runs: the answer is a message, and no task can be asked for.
    #[must_use]
    pub fn null() -> Self {
        Self { drops: true, ..Self::default() }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Nothing under the lock leaves a log half changed, so a panic elsewhere spoils nothing.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// A log by its head; one whose scope is not the log's own is as good as none.
    fn log(&self, head: &Head) -> Option<&Log> {
        self.logs.get(&head.id).filter(|log| log.head.scope == head.scope)
    }

    fn log_mut(&mut self, head: &Head) -> Option<&mut Log> {
        self.logs.get_mut(&head.id).filter(|log| log.head.scope == head.scope)
    }

    /// The task a key stands for, if it was seen.
    fn seen(&self, scope: &Scope, key: Option<&Key>) -> Result<Option<Seen>> {
        let Some(key) = key else { return Ok(None) };
        match self.keys.get(&(scope.clone(), key.text.clone())) {
            None => Ok(None),
            Some(used) if used.body != key.body => Err(Error::KeyReused),
            Some(used) => {
                let log = self.logs.get(&used.task);
                Ok(log.map(|log| Seen { head: log.head.clone(), turn: used.turn }))
            }
        }
    }

    /// Takes a batch in; the log is there and ends where the batch begins.
    fn add(&mut self, id: &TaskId, batch: &Batch) -> Seq {
        let Some(log) = self.logs.get_mut(id) else { return Seq(0) };
        let old = log.head.clone();
        log.entries.extend(batch.entries(old.position));
        log.head.position = Seq(log.entries.len() as u64);
        (log.head.state, log.head.status_time, log.parked) = (batch.state, batch.status_time, batch.parked);
        let new = log.head.clone();
        if let Some(key) = &batch.key {
            log.keys.push(key.text.clone());
            let used = Used { body: key.body, task: id.clone(), turn: batch.turn };
            self.keys.insert((new.scope.clone(), key.text.clone()), used);
        }
        self.unlist(&old);
        self.enlist(&new, batch.parked);
        new.position
    }

    fn put_hook(&mut self, task: &TaskId, config: &Registered, position: Seq) {
        let Some(log) = self.logs.get_mut(task) else { return };
        if let Some(known) = log.hooks.iter_mut().find(|known| known.id() == config.config.id.as_ref()) {
            known.generation += 1;
            known.registered.clone_from(config);
            known.delivery = Delivery { position: known.delivery.position, ..Delivery::default() };
            return;
        }
        self.last_hook += 1;
        let (number, delivery) = (self.last_hook, Delivery { position, ..Delivery::default() });
        log.hooks.push(Hook { number, generation: 0, registered: config.clone(), delivery });
        self.hooks.insert(number, task.clone());
    }

    fn enlist(&mut self, head: &Head, parked: bool) {
        let place = std::cmp::Reverse((head.status_time, head.id.clone()));
        self.by_scope.entry(head.scope.clone()).or_default().insert(place);
        if head.state.is_terminal() {
            self.ended.insert((head.status_time, head.id.clone()));
        } else {
            self.unfinished.insert(head.id.clone());
            if !parked {
                self.with_work.insert(head.id.clone());
            }
        }
    }

    fn unlist(&mut self, head: &Head) {
        let place = std::cmp::Reverse((head.status_time, head.id.clone()));
        if let Some(places) = self.by_scope.get_mut(&head.scope) {
            places.remove(&place);
            if places.is_empty() {
                self.by_scope.remove(&head.scope);
            }
        }
        self.ended.remove(&(head.status_time, head.id.clone()));
        self.unfinished.remove(&head.id);
        self.with_work.remove(&head.id);
    }

    fn remove(&mut self, head: &Head) {
        if self.log(head).is_none() {
            return;
        }
        let Some(log) = self.logs.remove(&head.id) else { return };
        self.unlist(&log.head);
        for key in log.keys {
            self.keys.remove(&(log.head.scope.clone(), key));
        }
        for hook in log.hooks {
            self.hooks.remove(&hook.number);
        }
        if let Some(alias) = log.alias {
            self.aliases.remove(&(log.head.scope, alias));
        }
    }

    fn heads<'a>(&self, ids: impl Iterator<Item = &'a TaskId>, limit: usize) -> Vec<Head> {
        ids.filter_map(|id| self.logs.get(id)).map(|log| log.head.clone()).take(limit).collect()
    }
}

/// Those after one of them.
fn behind<'a>(ids: &'a BTreeSet<TaskId>, after: Option<&TaskId>) -> impl Iterator<Item = &'a TaskId> {
    ids.range::<TaskId, _>((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
}

#[async_trait]
impl Store for Memory {
    fn is_durable(&self) -> bool {
        false
    }

    fn keeps_tasks(&self) -> bool {
        !self.drops
    }

    async fn create(&self, task: NewTask) -> Result<Opened> {
        let mut shelf = self.shelf();
        if let Some(seen) = shelf.seen(&task.scope, task.batch.key.as_ref())? {
            return Ok(Opened::Again(seen));
        }
        let named = task.alias.clone().map(|alias| (task.scope.clone(), alias));
        if shelf.logs.contains_key(&task.id) || named.is_some_and(|alias| shelf.aliases.contains_key(&alias))
        {
            return Err(Error::Conflict);
        }
        let NewTask { id, scope, context_id, alias, config, batch } = task;
        if let Some(alias) = &alias {
            shelf.aliases.insert((scope.clone(), alias.clone()), id.clone());
        }
        let (state, status_time) = (batch.state, batch.status_time);
        let head = Head { id: id.clone(), scope, context_id, position: Seq(0), state, status_time };
        let (entries, hooks, keys) = (Vec::new(), Vec::new(), Vec::new());
        let log = Log { head: head.clone(), parked: batch.parked, entries, hooks, kept: None, keys, alias };
        shelf.logs.insert(id.clone(), log);
        if let Some(config) = config {
            shelf.put_hook(&id, &config, Seq(0));
        }
        let position = shelf.add(&id, &batch);
        Ok(Opened::New(Head { position, ..head }))
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        let mut shelf = self.shelf();
        if shelf.seen(&task.scope, batch.key.as_ref())?.is_some() {
            return Err(Error::Repeated);
        }
        match shelf.log(task) {
            Some(log) if log.head.position == at => Ok(shelf.add(&task.id, batch)),
            _ => Err(Error::Conflict),
        }
    }

    async fn read(&self, task: &Head, after: Seq, limit: usize) -> Result<Vec<Entry>> {
        let shelf = self.shelf();
        let Some(log) = shelf.log(task) else { return Ok(Vec::new()) };
        let after = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(log.entries.iter().skip(after).take(limit).cloned().collect())
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        let shelf = self.shelf();
        let own = |log: &&Log| log.head.scope == *scope;
        let by_alias = || shelf.logs.get(shelf.aliases.get(&(scope.clone(), task.clone()))?);
        let log = shelf.logs.get(task).filter(own).or_else(by_alias);
        Ok(log.map(|log| log.head.clone()))
    }

    async fn seen(&self, scope: &Scope, key: &Key) -> Result<Option<Seen>> {
        self.shelf().seen(scope, Some(key))
    }

    async fn list(&self, scope: &Scope, query: &Query) -> Result<Page> {
        let shelf = self.shelf();
        let places = shelf.by_scope.get(scope).into_iter().flatten();
        let all = places.filter_map(|place| shelf.logs.get(&place.0.1)).map(|log| &log.head);
        let (mut tasks, mut total) = (Vec::new(), 0);
        for head in all.filter(|head| query.matches(head)) {
            total += 1;
            let place = (head.status_time, &head.id);
            let behind = query.after.as_ref().is_none_or(|(time, id)| place < (*time, id));
            if behind && tasks.len() < query.limit {
                tasks.push(head.clone());
            }
        }
        Ok(Page { tasks, total })
    }

    async fn unfinished(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let shelf = self.shelf();
        Ok(shelf.heads(behind(&shelf.unfinished, after), limit))
    }

    async fn with_work(&self, after: Option<&TaskId>, limit: usize) -> Result<Vec<Head>> {
        let shelf = self.shelf();
        Ok(shelf.heads(behind(&shelf.with_work, after), limit))
    }

    async fn parked(&self, scope: &Scope, limit: usize) -> Result<Vec<Head>> {
        let shelf = self.shelf();
        let places = shelf.by_scope.get(scope).into_iter().flatten().rev();
        let logs = places.filter_map(|place| shelf.logs.get(&place.0.1));
        Ok(logs.filter(|log| log.parked).map(|log| log.head.clone()).take(limit).collect())
    }

    async fn newest(&self) -> Result<Option<Timestamp>> {
        let shelf = self.shelf();
        let newest = shelf.by_scope.values().filter_map(BTreeSet::first);
        Ok(newest.map(|place| place.0.0).max())
    }

    async fn ended(&self, before: Timestamp, limit: usize) -> Result<Vec<Head>> {
        let shelf = self.shelf();
        let ended = shelf.ended.iter().take_while(|(time, _)| *time < before).map(|(_, id)| id);
        Ok(shelf.heads(ended, limit))
    }

    async fn count_ended(&self) -> Result<u64> {
        Ok(self.shelf().ended.len() as u64)
    }

    async fn tally(&self, agent: &str, tenant: &str) -> Result<Option<Tally>> {
        let shelf = self.shelf();
        let is_theirs = |scope: &Scope| *scope.agent == *agent && *scope.tenant == *tenant;
        let places = shelf.by_scope.iter().filter(|(scope, _)| is_theirs(scope)).flat_map(|(_, all)| all);
        let mut tally = Tally::default();
        for place in places {
            tally.kept += 1;
            tally.open += u64::from(shelf.unfinished.contains(&place.0.1));
        }
        Ok(Some(tally))
    }

    async fn keep(&self, task: &Head, at: Seq, folded: &Folded) -> Result<()> {
        if let Some(log) = self.shelf().log_mut(task)
            && log.kept.as_ref().is_none_or(|(kept, _)| *kept <= at)
        {
            log.kept = Some((at, folded.clone()));
        }
        Ok(())
    }

    async fn kept(&self, task: &Head) -> Result<Option<(Seq, Folded)>> {
        Ok(self.shelf().log(task).and_then(|log| log.kept.clone()))
    }

    async fn remove(&self, tasks: &[Head]) -> Result<()> {
        let mut shelf = self.shelf();
        tasks.iter().for_each(|head| shelf.remove(head));
        Ok(())
    }

    async fn put_config(&self, task: &Head, config: &Registered) -> Result<()> {
        let mut shelf = self.shelf();
        if let Some(position) = shelf.log(task).map(|log| log.head.position) {
            shelf.put_hook(&task.id, config, position);
        }
        Ok(())
    }

    async fn configs(&self, task: &Head) -> Result<Vec<Registered>> {
        let shelf = self.shelf();
        let hooks = shelf.log(task).into_iter().flat_map(|log| &log.hooks);
        Ok(hooks.map(|hook| hook.registered.clone()).collect())
    }

    async fn delete_config(&self, task: &Head, id: &PushConfigId) -> Result<()> {
        let shelf = &mut *self.shelf();
        if let Some(log) = shelf.logs.get_mut(&task.id).filter(|log| log.head.scope == task.scope)
            && let Some(at) = log.hooks.iter().position(|hook| hook.id() == Some(id))
        {
            shelf.hooks.remove(&log.hooks.remove(at).number);
        }
        Ok(())
    }

    async fn pushes(&self, which: Which, after: Option<u64>, limit: usize) -> Result<Vec<Push>> {
        let shelf = self.shelf();
        let numbers = shelf.hooks.range(after.map_or(0, |after| after + 1)..);
        let hooks = numbers.filter_map(|(number, task)| {
            let log = shelf.logs.get(task)?;
            Some((&log.head, log.hooks.iter().find(|hook| hook.number == *number)?))
        });
        let wanted = hooks.filter(|(_, hook)| match (which, &hook.delivery.standing) {
            (Which::Open, Standing::Open) | (Which::Stopped, Standing::Stopped(_)) => true,
            (Which::Open | Which::Stopped, _) => false,
        });
        Ok(wanted.take(limit).map(|(head, hook)| hook.push(head)).collect())
    }

    async fn push(&self, task: &Head, id: &PushConfigId) -> Result<Option<Push>> {
        let shelf = self.shelf();
        let Some(log) = shelf.log(task) else { return Ok(None) };
        Ok(log.hooks.iter().find(|hook| hook.id() == Some(id)).map(|hook| hook.push(&log.head)))
    }

    async fn record_delivery(&self, push: &Push) -> Result<bool> {
        let mut shelf = self.shelf();
        let same = |hook: &&mut Hook| (hook.number, hook.generation) == (push.number, push.generation);
        match shelf.log_mut(&push.task).and_then(|log| log.hooks.iter_mut().find(same)) {
            Some(hook) => {
                hook.delivery = push.delivery.clone();
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance;

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_keeps_the_contract() {
        conformance(async || Memory::new()).await;
    }
}
