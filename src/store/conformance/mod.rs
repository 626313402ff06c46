//! Conformance suite: checks every rule of the [`Store`] contract that is visible from outside.

mod concurrency;
mod keys;
mod lists;
mod logs;
mod removal;
mod shared;
mod snapshots;
mod sweeps;
mod webhooks;

use std::fmt::Debug;
use std::sync::Arc;

use super::{
    Batch, CreateResult, Head, IdempotencyKey, NewTask, PushRegistration, ReadLimit, Result, Store,
    WriterRole,
};
use crate::model::{
    Caller, Entry, Event, PushConfig, Scope, Seq, TaskId, TaskState, TaskStatus, Timestamp, Version,
};

pub use shared::conformance_shared;

/// Checks a store against the contract of [`Store`] and returns if it holds.
///
/// `make` returns an empty store each time it is called. Run the suite on a multi-threaded runtime: the checks of
/// concurrent writes find more there.
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
/// Durability and atomicity across a crash are not visible from outside. A store needs tests of its own for them.
///
/// # Panics
/// A rule does not hold. The message names the rule.
pub async fn conformance<S: Store>(make: impl AsyncFn() -> S) {
    logs::check(&make).await;
    keys::check(&make).await;
    lists::check(&make).await;
    sweeps::check(&make).await;
    snapshots::check(&make).await;
    webhooks::check(&make).await;
    removal::check(&make).await;
    concurrency::check(&make).await;
}

/// Panics with the rule unless it holds.
fn expect_true(holds: bool, rule: &str) {
    assert!(holds, "rule broken: {rule}");
}

/// Panics with the rule unless both values are equal.
fn expect_eq<T: PartialEq + Debug>(found: T, expected: T, rule: &str) {
    assert!(
        found == expected,
        "rule broken: {rule}\n   found: {found:?}\nexpected: {expected:?}"
    );
}

/// Returns the value, or panics with the rule.
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
        oldest_valid: Timestamp::default(),
    })
}

fn batch(events: Vec<Event>, state: TaskState, status_time: i64) -> Batch {
    let time = timestamp(status_time);
    Batch {
        time,
        events,
        state,
        status_time: time,
        parked: false,
        key: None,
        turn: 0,
        writer: WriterRole::Holder,
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

/// Returns a task of `ann` with status time 1,000 and one entry.
fn new_task(id: &str) -> NewTask {
    new_task_at(id, 1_000)
}

fn new_task_at(id: &str, status_time: i64) -> NewTask {
    let id = TaskId::from(id);
    let created = Event::Created {
        id: id.clone(),
        context_id: "context".into(),
        metadata: None,
    };
    let batch = batch(vec![created], TaskState::Submitted, status_time);
    NewTask {
        id,
        scope: scope("ann"),
        context_id: "context".into(),
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
        "`create` with a fresh id and no key succeeds",
    ) {
        CreateResult::Created(head) => head,
        CreateResult::Replayed(record) => {
            panic!("rule broken: `create` without a key does not replay: {record:?}")
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

/// Appends a batch at the end of a log and returns the new position.
async fn append(store: &dyn Store, head: &Head, at: Seq, batch: &Batch) -> Seq {
    expect_ok(
        store.append(head, at, batch).await,
        "`append` at the end of the log succeeds",
    )
}

/// Finds a task twice: cached values must equal stored ones.
async fn find(store: &dyn Store, owner: &str, id: &str) -> Option<Head> {
    let scope = scope(owner);
    let id = TaskId::from(id);
    let found = expect_ok(store.find(&scope, &id).await, "`find` succeeds");
    let again = expect_ok(store.find(&scope, &id).await, "`find` succeeds");
    expect_eq(
        &again,
        &found,
        "two reads without a write in between return the same head",
    );
    found
}

async fn log(store: &dyn Store, head: &Head) -> Vec<Entry> {
    expect_ok(
        store
            .read(head, Seq(0), ReadLimit::entries(usize::MAX))
            .await,
        "`read` succeeds",
    )
}

fn ids(heads: &[Head]) -> Vec<&str> {
    heads.iter().map(|head| head.id.as_str()).collect()
}
