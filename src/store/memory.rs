//! Logs in memory: gone with the process.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{Batch, Error, Head, NewTask, Result, Store};
use crate::model::{Entry, Scope, Seq, TaskId};

/// Keeps logs in memory, without a bound. They are gone when the process ends.
#[derive(Debug, Default)]
pub struct Memory {
    logs: Mutex<HashMap<TaskId, Log>>,
}

#[derive(Debug)]
struct Log {
    head: Head,
    entries: Vec<Entry>,
}

impl Memory {
    /// A store without a task.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn logs(&self) -> MutexGuard<'_, HashMap<TaskId, Log>> {
        // Nothing under the lock leaves a log half changed, so a panic elsewhere spoils nothing.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn add(&mut self, batch: &Batch) -> Seq {
        self.entries.extend(batch.entries(self.head.position));
        self.head.position = Seq(self.entries.len() as u64);
        self.head.state = batch.state;
        self.head.status_time = batch.status_time;
        self.head.position
    }
}

#[async_trait]
impl Store for Memory {
    async fn create(&self, task: NewTask) -> Result<Head> {
        let NewTask { id, scope, context_id, batch } = task;
        let (state, status_time) = (batch.state, batch.status_time);
        let head = Head { id: id.clone(), scope, context_id, position: Seq(0), state, status_time };
        let mut logs = self.logs();
        let Place::Vacant(place) = logs.entry(id) else { return Err(Error::Conflict) };
        let log = place.insert(Log { head, entries: Vec::new() });
        log.add(&batch);
        Ok(log.head.clone())
    }

    async fn append(&self, task: &Head, at: Seq, batch: &Batch) -> Result<Seq> {
        match self.logs().get_mut(&task.id) {
            Some(log) if log.head.position == at => Ok(log.add(batch)),
            _ => Err(Error::Conflict),
        }
    }

    async fn read(&self, task: &Head, after: Seq, limit: usize) -> Result<Vec<Entry>> {
        let logs = self.logs();
        let Some(log) = logs.get(&task.id) else { return Ok(Vec::new()) };
        let after = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(log.entries.iter().skip(after).take(limit).cloned().collect())
    }

    async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        let logs = self.logs();
        Ok(logs.get(task).map(|log| &log.head).filter(|head| head.scope == *scope).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Caller, Event, TaskState, Timestamp};

    fn scope(owner: &str) -> Scope {
        Scope { agent: "echo".into(), tenant: "".into(), owner: Caller::named(owner) }
    }

    fn batch(state: TaskState, events: Vec<Event>) -> Batch {
        Batch { time: Timestamp::default(), events, state, status_time: Timestamp::default() }
    }

    fn task(owner: &str) -> NewTask {
        let (id, context_id) = (TaskId::from("t"), "c".into());
        let created = Event::Created { id: id.clone(), context_id, metadata: None };
        let batch = batch(TaskState::Submitted, vec![created, Event::TurnStarted]);
        NewTask { id, scope: scope(owner), context_id: "c".into(), batch }
    }

    #[tokio::test]
    async fn a_batch_is_added_only_where_the_log_ends() {
        let store = Memory::new();
        let head = store.create(task("a")).await.unwrap();
        assert_eq!((head.position, head.state), (Seq(2), TaskState::Submitted));
        let more = batch(TaskState::Completed, vec![Event::TurnEnded]);
        assert_eq!(store.append(&head, Seq(2), &more).await.unwrap(), Seq(3));
        assert!(matches!(store.append(&head, Seq(2), &more).await, Err(Error::Conflict)));
        let read = store.read(&head, Seq(1), 9).await.unwrap();
        assert_eq!(read.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(store.read(&head, Seq(0), 1).await.unwrap().len(), 1);
        assert_eq!(store.read(&head, Seq(3), 9).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_task_is_found_in_its_own_scope_alone() {
        let store = Memory::new();
        store.create(task("a")).await.unwrap();
        assert!(store.find(&scope("a"), &"t".into()).await.unwrap().is_some());
        assert!(store.find(&scope("b"), &"t".into()).await.unwrap().is_none());
        assert!(store.find(&scope("a"), &"other".into()).await.unwrap().is_none());
        assert!(matches!(store.create(task("b")).await, Err(Error::Conflict)));
    }
}
