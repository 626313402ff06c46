//! Table of scopes by number, so that a task stores four bytes for its scope.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::packed_log::ListingKey;
use super::time_index::TimeIndex;
use crate::model::{Scope, Timestamp};
use crate::store::TaskCounts;

/// Sort key of a task: status time, then number to make it unique.
///
/// Every task has two, so the time is stored as two halves: the key then takes 12 bytes instead of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeKey {
    time: [u32; 2],
    pub(super) number: u32,
}

impl TimeKey {
    pub(super) fn new(time: Timestamp, number: u32) -> Self {
        // Flip the sign bit, so that times before 1970 sort first.
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
    /// Compares the time as one integer: two comparisons instead of three.
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

/// Scopes that have tasks, with their tasks by status time.
#[derive(Debug, Default)]
pub(super) struct ScopeTable {
    numbers: HashMap<Scope, u32>,
    entries: Vec<Option<ScopeEntry>>,
    free: Vec<u32>,
    tenants: Vec<TenantEntry>,
    /// Scope of the last call of `ensure`, which is often the scope of the next.
    last: u32,
}

/// Scope with its tasks.
#[derive(Debug)]
struct ScopeEntry {
    scope: Scope,
    tenant: usize,
    time_keys: TimeIndex,
}

/// Counts of one agent and tenant over all owners. Entries are never removed: configuration bounds their number.
#[derive(Debug)]
struct TenantEntry {
    agent: Arc<str>,
    tenant: Arc<str>,
    counts: TaskCounts,
}

impl ScopeTable {
    /// Returns the number of a scope that has tasks.
    pub(super) fn number(&self, scope: &Scope) -> Option<u32> {
        self.numbers.get(scope).copied()
    }

    /// Returns the number of a scope, and adds the scope if it is new.
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
                self.tenants.push(TenantEntry {
                    agent: scope.agent.clone(),
                    tenant: scope.tenant.clone(),
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
                // Does not overflow: every scope has a task, and tasks have numbers of this type.
                (self.entries.len() - 1) as u32
            }
        };
        self.numbers.insert(scope.clone(), number);
        number
    }

    /// Returns the scope with a number.
    pub(super) fn scope(&self, number: u32) -> Option<&Scope> {
        self.entry(number).map(|entry| &entry.scope)
    }

    /// Returns the tasks of a scope, oldest status first.
    pub(super) fn time_keys(&self, number: u32) -> impl DoubleEndedIterator<Item = TimeKey> {
        self.entry(number)
            .into_iter()
            .flat_map(|entry| entry.time_keys.iter())
    }

    /// Returns the counts of an agent and tenant.
    pub(super) fn count_tasks(&self, agent: &str, tenant: &str) -> TaskCounts {
        self.find_tenant(agent, tenant)
            .map_or_else(TaskCounts::default, |at| self.tenants[at].counts)
    }

    fn find_tenant(&self, agent: &str, tenant: &str) -> Option<usize> {
        self.tenants
            .iter()
            .position(|entry| *entry.agent == *agent && *entry.tenant == *tenant)
    }

    /// Adds a task to its scope.
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

    /// Moves a task within its scope.
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

    /// Removes a task, and its scope if it was the last task.
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

    /// Returns the latest status time of all tasks.
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
