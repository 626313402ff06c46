//! Scopes, by numbers: a task keeps four bytes of its own.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::packed_log::ListingKey;
use super::time_index::TimeIndex;
use crate::model::{Scope, Timestamp};
use crate::store::TaskCounts;

/// A task's place in an order: by time, and then by its number, which only tells tasks of one time apart.
///
/// Every task has two, so the time is in halves, which go together with the number in twelve bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeKey {
    time: [u32; 2],
    pub(super) number: u32,
}

impl TimeKey {
    pub(super) fn new(time: Timestamp, number: u32) -> Self {
        // So that what is before 1970 comes first.
        let time = (time.as_millis() ^ i64::MIN).cast_unsigned();
        Self {
            time: [(time >> 32) as u32, time as u32],
            number,
        }
    }

    pub(super) fn time(self) -> Timestamp {
        Timestamp::from_millis(self.whole().cast_signed() ^ i64::MIN).unwrap_or_default()
    }

    fn whole(self) -> u64 {
        let [high, low] = self.time.map(u64::from);
        high << 32 | low
    }
}

impl Ord for TimeKey {
    /// In two steps instead of three: every task is compared with many.
    fn cmp(&self, other: &Self) -> Ordering {
        self.whole()
            .cmp(&other.whole())
            .then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for TimeKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The scopes that have tasks, and their tasks by the time of their status.
#[derive(Debug, Default)]
pub(super) struct ScopeTable {
    numbers: HashMap<Scope, u32>,
    entries: Vec<Option<ScopeEntry>>,
    free: Vec<u32>,
    tenants: Vec<TenantEntry>,
    /// The one that was entered last: most often it is the next one too.
    last: u32,
}

#[derive(Debug)]
struct ScopeEntry {
    scope: Scope,
    tenant: usize,
    time_keys: TimeIndex,
}

/// An agent within a tenant, whoever its callers are. There are as many as are configured, so they stay.
#[derive(Debug)]
struct TenantEntry {
    agent: Arc<str>,
    tenant: Arc<str>,
    counts: TaskCounts,
}

impl ScopeTable {
    /// The number of a scope that has tasks.
    pub(super) fn number(&self, scope: &Scope) -> Option<u32> {
        self.numbers.get(scope).copied()
    }

    /// The number of a scope, whether it has tasks or is about to.
    pub(super) fn ensure(&mut self, scope: &Scope) -> u32 {
        if self.scope(self.last) != Some(scope) {
            self.last = self.number(scope).unwrap_or_else(|| self.insert(scope));
        }
        self.last
    }

    fn insert(&mut self, scope: &Scope) -> u32 {
        let tenant_index = self
            .find_tenant(&scope.agent, &scope.tenant)
            .unwrap_or_else(|| {
                let (agent, tenant) = (scope.agent.clone(), scope.tenant.clone());
                self.tenants.push(TenantEntry {
                    agent,
                    tenant,
                    counts: TaskCounts::default(),
                });
                self.tenants.len() - 1
            });
        let entry = Some(ScopeEntry {
            scope: scope.clone(),
            tenant: tenant_index,
            time_keys: TimeIndex::default(),
        });
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                // There are no more scopes than tasks, which have such numbers too.
                (self.entries.len() - 1) as u32
            }
        };
        self.numbers.insert(scope.clone(), number);
        number
    }

    /// The scope of a number that was given.
    pub(super) fn scope(&self, number: u32) -> Option<&Scope> {
        self.entry(number).map(|entry| &entry.scope)
    }

    /// The tasks of a scope, oldest status first.
    pub(super) fn time_keys(&self, number: u32) -> impl DoubleEndedIterator<Item = TimeKey> {
        self.entry(number)
            .into_iter()
            .flat_map(|entry| entry.time_keys.iter())
    }

    /// How many tasks there are of an agent within a tenant, whoever owns them.
    pub(super) fn count_tasks(&self, agent: &str, tenant: &str) -> TaskCounts {
        self.find_tenant(agent, tenant)
            .map_or_else(TaskCounts::default, |at| self.tenants[at].counts)
    }

    fn find_tenant(&self, agent: &str, tenant: &str) -> Option<usize> {
        self.tenants
            .iter()
            .position(|entry| *entry.agent == *agent && *entry.tenant == *tenant)
    }

    /// Lists a task.
    pub(super) fn put(&mut self, number: u32, task: u32, listed: ListingKey) {
        let Some(entry) = self
            .entries
            .get_mut(number as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        entry.time_keys.insert(TimeKey::new(listed.time, task));
        let counts = &mut self.tenants[entry.tenant].counts;
        counts.total += 1;
        counts.open += u64::from(!listed.has_ended);
    }

    /// Takes a task to another place in the list.
    pub(super) fn move_to(&mut self, number: u32, task: u32, [old, new]: [ListingKey; 2]) {
        let Some(entry) = self
            .entries
            .get_mut(number as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        entry.time_keys.remove(TimeKey::new(old.time, task));
        entry.time_keys.insert(TimeKey::new(new.time, task));
        let counts = &mut self.tenants[entry.tenant].counts;
        counts.open = counts.open + u64::from(!new.has_ended) - u64::from(!old.has_ended);
    }

    /// Takes a task out of the list, and forgets the scope with its last one.
    pub(super) fn remove(&mut self, number: u32, task: u32, listed: ListingKey) {
        let Some(slot) = self.entries.get_mut(number as usize) else {
            return;
        };
        let Some(entry) = slot else { return };
        entry.time_keys.remove(TimeKey::new(listed.time, task));
        let counts = &mut self.tenants[entry.tenant].counts;
        counts.total -= 1;
        counts.open -= u64::from(!listed.has_ended);
        if entry.time_keys.is_empty() {
            self.numbers.remove(&entry.scope);
            *slot = None;
            self.free.push(number);
        }
    }

    /// The newest time of all.
    pub(super) fn latest_time(&self) -> Option<Timestamp> {
        let entries = self.entries.iter().flatten();
        entries
            .filter_map(|entry| entry.time_keys.last())
            .map(|key| key.time())
            .max()
    }

    fn entry(&self, number: u32) -> Option<&ScopeEntry> {
        self.entries.get(number as usize)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_times() {
        let times = [
            -62_135_596_800_000,
            -1,
            0,
            1,
            4_294_967_295,
            4_294_967_296,
            253_402_207_200_999,
        ];
        let times = times.map(|millis| Timestamp::from_millis(millis).unwrap());
        let time_keys = times.map(|time| TimeKey::new(time, 7));
        assert!(time_keys.is_sorted());
        assert_eq!(time_keys.map(TimeKey::time), times);
        assert!(
            TimeKey::new(times[2], 8) > time_keys[2] && TimeKey::new(times[2], 8) < time_keys[3]
        );
        assert_eq!(size_of::<TimeKey>(), 12);
    }
}
