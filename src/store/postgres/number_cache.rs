//! Cache of the row numbers of scopes and tasks.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::model::{Scope, TaskId};
use crate::rt::lock;

/// Maximum number of scopes, and of tasks, in the cache. A full cache is cleared.
const MAX_NUMBERS: usize = 16_384;

/// Row numbers of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskNumber {
    pub(super) task: i64,
    pub(super) scope: i64,
}

/// Row numbers that a writer has read or written, shared by the writers of a replica.
///
/// Numbers are not reused, so an entry of a removed task finds no row. A writer that connects clears the cache: after a
/// failover that lost commits, a number may belong to another row.
#[derive(Debug, Default)]
pub(super) struct NumberCache {
    numbers: Mutex<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    scopes: HashMap<Scope, i64>,
    tasks: HashMap<TaskId, TaskNumber>,
    /// Number of times the cache was cleared.
    clears: u64,
}

/// State of the cache before numbers are read. Numbers that were read before a clear are not inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheGeneration(u64);

impl NumberCache {
    pub(super) fn generation(&self) -> CacheGeneration {
        CacheGeneration(lock(&self.numbers).clears)
    }

    pub(super) fn scope(&self, scope: &Scope) -> Option<i64> {
        lock(&self.numbers).scopes.get(scope).copied()
    }

    pub(super) fn task(&self, task: &TaskId) -> Option<TaskNumber> {
        lock(&self.numbers).tasks.get(task).copied()
    }

    pub(super) fn insert_scope(&self, generation: CacheGeneration, scope: &Scope, number: i64) {
        let mut numbers = lock(&self.numbers);
        if numbers.clears != generation.0 {
            return;
        }
        if numbers.scopes.len() >= MAX_NUMBERS {
            numbers.scopes.clear();
        }
        numbers.scopes.insert(scope.clone(), number);
    }

    pub(super) fn insert_task(
        &self,
        generation: CacheGeneration,
        task: &TaskId,
        number: TaskNumber,
    ) {
        let mut numbers = lock(&self.numbers);
        if numbers.clears != generation.0 {
            return;
        }
        if numbers.tasks.len() >= MAX_NUMBERS {
            numbers.tasks.clear();
        }
        numbers.tasks.insert(task.clone(), number);
    }

    /// Removes a task that has ended or was removed.
    pub(super) fn remove_task(&self, task: &TaskId) {
        lock(&self.numbers).tasks.remove(task);
    }

    pub(super) fn clear(&self) {
        let mut numbers = lock(&self.numbers);
        numbers.scopes.clear();
        numbers.tasks.clear();
        numbers.clears += 1;
    }
}
