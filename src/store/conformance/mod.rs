//! One suite that every store must pass: the contract of [`Store`], sentence by sentence.

mod attachments;
mod concurrency;
mod keys;
mod lists;
mod logs;

use std::fmt::Debug;
use std::sync::Arc;

use super::{Batch, CreateResult, Head, IdempotencyKey, NewTask, PushRegistration, Result, Store};
use crate::model::{
    Caller, Entry, Event, PushConfig, Scope, Seq, TaskId, TaskState, TaskStatus, Timestamp, Version,
};

/// Checks a store against the whole contract of [`Store`]; returns when it holds.
///
/// `make` gives an empty store each time it is called. A runtime with more than one thread makes the checks for races
/// worth more:
///
/// ```
/// use attache::store::{Memory, conformance};
///
/// #[tokio::main]
/// async fn main() {
///     conformance(async || Memory::new()).await;
/// }
/// ```
///
/// What no suite can check from outside is left to the store's own tests: that a commit is durable on return, and that a
/// store which was cut off in the middle of one has all of it or none.
///
/// # Panics
/// A rule does not hold; the message names it.
pub async fn conformance<S: Store>(make: impl AsyncFn() -> S) {
    logs::check(&make).await;
    keys::check(&make).await;
    lists::check(&make).await;
    attachments::check(&make).await;
    concurrency::check(&make).await;
}

/// Refuses a store that broke a rule.
fn expect_true(holds: bool, rule: &str) {
    assert!(holds, "rule broken: {rule}");
}

/// Refuses a store that gave something else than the rule says.
fn expect_eq<T: PartialEq + Debug>(found: T, expected: T, rule: &str) {
    assert!(
        found == expected,
        "rule broken: {rule}\n   found: {found:?}\nexpected: {expected:?}"
    );
}

/// What a store gave where the rule says that it gives something.
fn expect_ok<T>(result: Result<T>, rule: &str) -> T {
    result.unwrap_or_else(|error| panic!("rule broken: {rule}: {error:?}"))
}

fn scope(owner: &str) -> Scope {
    Scope {
        agent: Arc::from("agent"),
        tenant: Arc::from(""),
        owner: Caller::new(owner),
    }
}

fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap_or_default()
}

fn note(text: impl Into<String>) -> Event {
    Event::Ignored {
        reason: text.into(),
    }
}

fn key(text: &str, body: u8) -> Option<IdempotencyKey> {
    Some(IdempotencyKey {
        text: text.to_owned(),
        body: [body; 32],
    })
}

fn batch(events: Vec<Event>, state: TaskState, status_time: i64) -> Batch {
    let (time, status_time) = (timestamp(status_time), timestamp(status_time));
    Batch {
        time,
        events,
        state,
        status_time,
        parked: false,
        key: None,
        turn: 0,
    }
}

fn status_batch(state: TaskState, status_time: i64) -> Batch {
    batch(
        vec![Event::Status {
            status: TaskStatus::new(state),
            metadata: None,
        }],
        state,
        status_time,
    )
}

/// A task of `ann`, submitted at 1,000, with one entry.
fn new_task(id: &str) -> NewTask {
    new_task_at(id, 1_000)
}

fn new_task_at(id: &str, status_time: i64) -> NewTask {
    let (id, context_id) = (TaskId::from(id), "context".into());
    let created = Event::Created {
        id: id.clone(),
        context_id: "context".into(),
        metadata: None,
    };
    let batch = batch(vec![created], TaskState::Submitted, status_time);
    NewTask {
        id,
        scope: scope("ann"),
        context_id,
        alias: None,
        config: None,
        batch,
    }
}

fn registration(id: &str, url: &str) -> PushRegistration {
    let config = PushConfig {
        id: Some(id.into()),
        ..PushConfig::new(url)
    };
    PushRegistration {
        config,
        version: Version::V1,
    }
}

async fn create(store: &dyn Store, task: NewTask) -> Head {
    match expect_ok(
        store.create(&task).await,
        "a task with a fresh id and no key is opened",
    ) {
        CreateResult::Created(head) => head,
        CreateResult::Replayed(record) => {
            panic!("rule broken: a task without a key is new, not found again: {record:?}")
        }
    }
}

async fn create_all(store: &dyn Store, tasks: impl IntoIterator<Item = NewTask>) -> Vec<Head> {
    let mut heads = Vec::new();
    for task in tasks {
        heads.push(create(store, task).await);
    }
    heads
}

/// Looks twice: what a store remembers must be what it has.
async fn find(store: &dyn Store, owner: &str, id: &str) -> Option<Head> {
    let (scope, id) = (scope(owner), TaskId::from(id));
    let mut positions = vec![store.position(&scope, &id)];
    let found = expect_ok(
        store.find(&scope, &id).await,
        "looking for a task never fails",
    );
    positions.push(store.position(&scope, &id));
    let again = expect_ok(
        store.find(&scope, &id).await,
        "looking for a task never fails",
    );
    expect_eq(
        &again,
        &found,
        "a task is found as it was when nothing has happened",
    );
    let by_id = found
        .as_ref()
        .filter(|head| head.id == id)
        .map(|head| head.position);
    for position in positions.into_iter().flatten() {
        expect_eq(
            Some(position),
            by_id,
            "a position that is told without waiting is that of the task of this id",
        );
    }
    found
}

async fn log(store: &dyn Store, head: &Head) -> Vec<Entry> {
    expect_ok(
        store.read(head, Seq(0), usize::MAX).await,
        "a log can be read",
    )
}

fn ids(heads: &[Head]) -> Vec<&str> {
    heads.iter().map(|head| head.id.as_str()).collect()
}
