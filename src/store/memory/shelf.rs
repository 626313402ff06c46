//! All tasks, by number, and the tables that find them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use super::hook::Hook;
use super::index::Index;
use super::log::{Form, Listed, Log};
use super::order::Order;
use super::scopes::{Place, Scopes};
use crate::model::{PushConfigId, Scope, Seq, TaskId, Timestamp};
use crate::store::{
    Batch, Delivery, Error, Head, Key, NewTask, Opened, Page, Push, Query, Registered, Result,
    Seen, Tally, Which,
};

/// A task has a number for as long as it is here; then another may have it.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    logs: Vec<Option<Log>>,
    free: Vec<u32>,
    hasher: RandomState,
    by_id: Index,
    scopes: Scopes,
    unfinished: BTreeSet<TaskId>,
    with_work: BTreeSet<TaskId>,
    ended: Order,
    keys: HashMap<(u32, String), Used>,
    aliases: HashMap<(u32, TaskId), u32>,
    /// The tasks of the webhooks, by the numbers of these.
    hooks: BTreeMap<u64, u32>,
    last_hook: u64,
}

/// What a key was used for.
#[derive(Debug)]
struct Used {
    body: [u8; 32],
    task: u32,
    turn: u64,
}

impl Shelf {
    pub(super) fn create(&mut self, task: &NewTask, first: Form) -> Result<Opened> {
        if let Some(seen) = self.seen(&task.scope, task.batch.key.as_ref())? {
            return Ok(Opened::Again(seen));
        }
        let by_alias = task
            .alias
            .as_ref()
            .and_then(|alias| self.alias(&task.scope, alias));
        let hash = self.hash(task.id.as_str());
        if by_alias.is_some() || self.number_of(hash, &task.id).is_some() {
            return Err(Error::Conflict);
        }
        let number = self.next_number()?;
        let scope = self.scopes.enter(&task.scope);
        let log = Log::new(scope, task, first);
        let (listed, position) = (log.listed(), log.position);
        self.logs[number as usize] = Some(log);
        self.by_id.insert(hash, number);
        self.scopes.put(scope, number, listed);
        self.enlist(number, &task.id, listed);
        self.note_key(number, scope, &task.batch);
        self.note_alias(number, scope, task.alias.as_ref());
        if let Some(config) = &task.config {
            self.put_hook(number, config, Seq(0));
        }
        Ok(Opened::New(task.head(position)))
    }

    pub(super) fn append(
        &mut self,
        task: &Head,
        at: Seq,
        batch: &Batch,
        form: Form,
    ) -> Result<Seq> {
        if self.seen(&task.scope, batch.key.as_ref())?.is_some() {
            return Err(Error::Repeated);
        }
        let number = self.own(task).ok_or(Error::Conflict)?;
        let log = self.logs[number as usize]
            .as_mut()
            .filter(|log| log.position == at);
        let log = log.ok_or(Error::Conflict)?;
        let (scope, old) = (log.scope, log.listed());
        log.add(batch, form);
        let (position, new) = (log.position, log.listed());
        self.note_key(number, scope, batch);
        if old != new {
            self.unlist(number, &task.id, old);
            self.enlist(number, &task.id, new);
            self.scopes.move_to(scope, number, [old, new]);
        }
        Ok(position)
    }

    /// The task a key stands for, if it was seen.
    pub(super) fn seen(&self, scope: &Scope, key: Option<&Key>) -> Result<Option<Seen>> {
        let Some(key) = key else { return Ok(None) };
        let Some(scope) = self.scopes.number(scope) else {
            return Ok(None);
        };
        match self.keys.get(&(scope, key.text.clone())) {
            None => Ok(None),
            Some(used) if used.body != key.body => Err(Error::KeyReused),
            Some(used) => Ok(self.head(used.task).map(|head| Seen {
                head,
                turn: used.turn,
            })),
        }
    }

    /// By id, else by alias; one of another scope is as good as none.
    pub(super) fn find(&self, scope: &Scope, id: &TaskId) -> Option<Head> {
        let by_id = self.number(id).and_then(|number| self.log(number));
        match by_id.filter(|log| self.scopes.scope(log.scope) == Some(scope)) {
            Some(log) => Some(log.head_of(id.clone(), scope.clone())),
            None => self.head(self.alias(scope, id)?),
        }
    }

    /// Where the log of a task of the scope ends.
    pub(super) fn position(&self, scope: &Scope, id: &TaskId) -> Option<Seq> {
        let log = self.log(self.number(id)?)?;
        (self.scopes.scope(log.scope) == Some(scope)).then_some(log.position)
    }

    /// A log by its head; one whose scope is not the log's own is as good as none.
    pub(super) fn log_of(&self, head: &Head) -> Option<&Log> {
        self.log(self.own(head)?)
    }

    pub(super) fn log_of_mut(&mut self, head: &Head) -> Option<&mut Log> {
        let number = self.own(head)?;
        self.logs[number as usize].as_mut()
    }

    pub(super) fn list(&self, scope: &Scope, query: &Query) -> Page {
        let Some(number) = self.scopes.number(scope) else {
            return Page::default();
        };
        let mut places = self.scopes.places(number).rev().peekable();
        let (mut page, mut same) = (Page::default(), Vec::new());
        // Those of one time together: among them the ids say who comes first.
        while let Some(time) = places.peek().map(|place| place.time()) {
            let of_one_time = std::iter::from_fn(|| places.next_if(|place| place.time() == time));
            same.extend(
                of_one_time
                    .filter_map(|place| self.log(place.number))
                    .filter(|log| log.matches(query)),
            );
            page.total += same.len() as u64;
            let behind = query.after.as_ref().is_none_or(|(after, _)| time <= *after);
            if behind && page.tasks.len() < query.limit {
                same.sort_unstable_by(|one, other| other.id().cmp(one.id()));
                let first = |log: &&Log| {
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

    pub(super) fn unfinished(&self, after: Option<&TaskId>, limit: usize) -> Vec<Head> {
        self.heads(behind(&self.unfinished, after), limit)
    }

    pub(super) fn with_work(&self, after: Option<&TaskId>, limit: usize) -> Vec<Head> {
        self.heads(behind(&self.with_work, after), limit)
    }

    pub(super) fn parked(&self, scope: &Scope, limit: usize) -> Vec<Head> {
        let Some(number) = self.scopes.number(scope) else {
            return Vec::new();
        };
        let logs = self
            .scopes
            .places(number)
            .filter_map(|place| self.log(place.number));
        logs.filter(|log| log.is_parked())
            .map(|log| log.head(scope.clone()))
            .take(limit)
            .collect()
    }

    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.scopes.newest()
    }

    pub(super) fn ended(&self, before: Timestamp, limit: usize) -> Vec<Head> {
        let ended = self.ended.iter().take_while(|place| place.time() < before);
        ended
            .filter_map(|place| self.head(place.number))
            .take(limit)
            .collect()
    }

    pub(super) fn count_ended(&self) -> u64 {
        self.ended.len() as u64
    }

    pub(super) fn tally(&self, agent: &str, tenant: &str) -> Tally {
        self.scopes.tally(agent, tenant)
    }

    pub(super) fn remove(&mut self, head: &Head) {
        let Some(number) = self.own(head) else { return };
        let Some(log) = self.logs[number as usize].take() else {
            return;
        };
        let (scope, listed) = (log.scope, log.listed());
        self.free.push(number);
        self.by_id.remove(self.hash(head.id.as_str()), number);
        self.unlist(number, &head.id, listed);
        self.scopes.remove(scope, number, listed);
        let Some(more) = log.into_more() else { return };
        for key in more.keys {
            self.keys.remove(&(scope, key));
        }
        for hook in more.hooks {
            self.hooks.remove(&hook.number);
        }
        if let Some(alias) = more.alias {
            self.aliases.remove(&(scope, alias));
        }
    }

    /// Registers a webhook that begins behind what is there.
    pub(super) fn put_config(&mut self, task: &Head, config: &Registered) {
        let Some(number) = self.own(task) else { return };
        if let Some(position) = self.log(number).map(|log| log.position) {
            self.put_hook(number, config, position);
        }
    }

    pub(super) fn delete_config(&mut self, task: &Head, id: &PushConfigId) {
        let Some(more) = self.log_of_mut(task).and_then(Log::has_more_mut) else {
            return;
        };
        if let Some(at) = more.hooks.iter().position(|hook| hook.id() == Some(id)) {
            let hook = more.hooks.remove(at);
            self.hooks.remove(&hook.number);
        }
    }

    pub(super) fn pushes(&self, which: Which, after: Option<u64>, limit: usize) -> Vec<Push> {
        let numbers = self.hooks.range(after.map_or(0, |after| after + 1)..);
        let wanted = numbers.filter_map(|(hook, task)| {
            let hook = self
                .log(*task)?
                .hooks()
                .iter()
                .find(|other| other.number == *hook)?;
            if hook.stands(which) {
                Some(hook.push(self.head(*task)?))
            } else {
                None
            }
        });
        wanted.take(limit).collect()
    }

    fn put_hook(&mut self, task: u32, config: &Registered, position: Seq) {
        let Some(log) = self.logs[task as usize].as_mut() else {
            return;
        };
        let more = log.more();
        if let Some(known) = more
            .hooks
            .iter_mut()
            .find(|known| known.id() == config.config.id.as_ref())
        {
            return known.renew(config);
        }
        self.last_hook += 1;
        let delivery = Delivery {
            position,
            ..Delivery::default()
        };
        more.hooks
            .push(Hook::new(self.last_hook, config.clone(), delivery));
        self.hooks.insert(self.last_hook, task);
    }

    fn note_key(&mut self, task: u32, scope: u32, batch: &Batch) {
        let Some(key) = &batch.key else { return };
        let Some(log) = self.logs[task as usize].as_mut() else {
            return;
        };
        log.more().keys.push(key.text.clone());
        let used = Used {
            body: key.body,
            task,
            turn: batch.turn,
        };
        self.keys.insert((scope, key.text.clone()), used);
    }

    fn note_alias(&mut self, task: u32, scope: u32, alias: Option<&TaskId>) {
        let Some((alias, log)) = alias.zip(self.logs[task as usize].as_mut()) else {
            return;
        };
        log.more().alias = Some(alias.clone());
        self.aliases.insert((scope, alias.clone()), task);
    }

    fn enlist(&mut self, number: u32, id: &TaskId, listed: Listed) {
        if listed.has_ended {
            self.ended.insert(Place::new(listed.time, number));
            return;
        }
        self.unfinished.insert(id.clone());
        if listed.has_work {
            self.with_work.insert(id.clone());
        }
    }

    fn unlist(&mut self, number: u32, id: &TaskId, listed: Listed) {
        if listed.has_ended {
            self.ended.remove(Place::new(listed.time, number));
            return;
        }
        self.unfinished.remove(id);
        if listed.has_work {
            self.with_work.remove(id);
        }
    }

    /// A number that no task has, and its place.
    fn next_number(&mut self) -> Result<u32> {
        if let Some(number) = self.free.pop() {
            return Ok(number);
        }
        let number = u32::try_from(self.logs.len())
            .ok()
            .filter(|number| *number < Index::MOST);
        let number = number
            .ok_or_else(|| Error::Failed("as many tasks are stored as there can be".into()))?;
        self.logs.push(None);
        Ok(number)
    }

    fn hash(&self, id: &str) -> u32 {
        // Half of it is plenty, and the other half is not kept.
        self.hasher.hash_one(id) as u32
    }

    fn number(&self, id: &TaskId) -> Option<u32> {
        self.number_of(self.hash(id.as_str()), id)
    }

    fn number_of(&self, hash: u32, id: &TaskId) -> Option<u32> {
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

    /// The number of a task, if it is of the scope that its head says.
    fn own(&self, head: &Head) -> Option<u32> {
        let number = self.number(&head.id)?;
        (self.scopes.scope(self.log(number)?.scope)? == &head.scope).then_some(number)
    }

    fn log(&self, number: u32) -> Option<&Log> {
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

/// Those after one of them.
fn behind<'a>(
    ids: &'a BTreeSet<TaskId>,
    after: Option<&TaskId>,
) -> impl Iterator<Item = &'a TaskId> {
    ids.range::<TaskId, _>((
        after.map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded,
    ))
}
