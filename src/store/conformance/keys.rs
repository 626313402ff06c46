//! Idempotency keys and aliases.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    batch, create, expect_eq, expect_ok, expect_true, find, key, log, new_task, new_task_at, note,
    registration, scope, status_batch, timestamp,
};
use crate::model::{Seq, TaskState};
use crate::store::{
    Batch, CreateResult, Error, Head, IdempotencyKey, IdempotencyRecord, NewTask, Store,
};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    create_replays_a_used_key(&make().await).await;
    refuses_a_key_with_another_body(&make().await).await;
    appends_a_keyed_message_once(&make().await).await;
    keys_belong_to_a_scope(&make().await).await;
    finds_tasks_by_key(&make().await).await;
    expired_keys_are_unused(&make().await).await;
    removes_old_keys(&make().await).await;
    concurrent_creates_with_one_key_create_one_task(make().await).await;
    concurrent_appends_at_one_position_append_one_batch(make().await).await;
    finds_tasks_by_alias(&make().await).await;
}

/// Returns a task whose message has an idempotency key and turn 7. The store does not interpret the turn.
fn task_with_key(id: &str, text: &str, body: u8) -> NewTask {
    let mut task = new_task(id);
    task.batch.key = key(text, body);
    task.batch.turn = 7;
    task
}

/// Returns the expected record of a key.
fn record(head: Option<Head>, turn: u64) -> Option<IdempotencyRecord> {
    head.map(|head| IdempotencyRecord { head, turn })
}

async fn create_replays_a_used_key(store: &dyn Store) {
    let first = create(store, task_with_key("first", "k", 1)).await;
    let position = store
        .append(&first, Seq(1), &status_batch(TaskState::Completed, 2_000))
        .await;
    let now = find(store, "ann", "first").await;
    expect_eq(
        now.as_ref().map(|head| head.position),
        position.ok(),
        "`append` at the end of the log succeeds",
    );
    let second = NewTask {
        alias: Some("alias".into()),
        config: Some(Box::new(registration("hook", "https://example.org"))),
        ..task_with_key("second", "k", 1)
    };
    let again = expect_ok(
        store.create(&second).await,
        "`create` with a used key and the same body succeeds",
    );
    expect_eq(
        Some(again),
        record(now, 7).map(CreateResult::Replayed),
        "a replayed `create` returns the current head of the first task",
    );
    expect_eq(
        find(store, "ann", "second").await,
        None,
        "a replayed `create` creates no second task",
    );
    expect_eq(
        find(store, "ann", "alias").await,
        None,
        "a replayed `create` records no alias",
    );
    let configs = expect_ok(store.list_configs(&first).await, "`list_configs` succeeds");
    expect_eq(
        configs,
        Vec::new(),
        "a replayed `create` registers no webhook",
    );
    // The id is taken too: the key takes precedence over the conflict.
    let same_id = expect_ok(
        store.create(&task_with_key("first", "k", 1)).await,
        "`create` checks the key before the id",
    );
    expect_true(
        matches!(same_id, CreateResult::Replayed(_)),
        "`create` checks the key before the id",
    );
}

async fn refuses_a_key_with_another_body(store: &dyn Store) {
    let first = create(store, task_with_key("first", "k", 1)).await;
    let before = (find(store, "ann", "first").await, log(store, &first).await);
    let refused = store
        .create(&NewTask {
            alias: Some("alias".into()),
            ..task_with_key("second", "k", 2)
        })
        .await;
    expect_true(
        matches!(refused, Err(Error::KeyReused)),
        "`create` with a used key and another body is `KeyReused`",
    );
    let other = Batch {
        key: key("k", 2),
        ..status_batch(TaskState::Completed, 2_000)
    };
    let refused = store.append(&first, Seq(1), &other).await;
    expect_true(
        matches!(refused, Err(Error::KeyReused)),
        "`append` with a used key and another body is `KeyReused`",
    );
    expect_eq(
        find(store, "ann", "second").await,
        None,
        "`KeyReused` creates no task",
    );
    expect_eq(
        find(store, "ann", "alias").await,
        None,
        "`KeyReused` creates no alias",
    );
    let after = (find(store, "ann", "first").await, log(store, &first).await);
    expect_eq(after, before, "`KeyReused` changes nothing");
}

async fn appends_a_keyed_message_once(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let message = Batch {
        key: key("k", 1),
        turn: 2,
        ..batch(vec![note("hi")], TaskState::Working, 2_000)
    };
    expect_ok(
        store.append(&head, Seq(1), &message).await,
        "`append` with an unused key succeeds",
    );
    for position in [Seq(1), Seq(2)] {
        let again = store.append(&head, position, &message).await;
        expect_true(
            matches!(again, Err(Error::AlreadyApplied)),
            "`append` with a used key and the same body is `AlreadyApplied`, at any position",
        );
    }
    expect_eq(
        log(store, &head).await.len(),
        2,
        "a repeated message appends nothing",
    );
    let replayed = expect_ok(
        store.create(&task_with_key("second", "k", 1)).await,
        "`create` with a used key and the same body succeeds",
    );
    let now = find(store, "ann", "t").await;
    expect_eq(
        Some(replayed),
        record(now, 2).map(CreateResult::Replayed),
        "the key of a later message finds the task it continued",
    );
}

async fn keys_belong_to_a_scope(store: &dyn Store) {
    create(store, task_with_key("ann's", "k", 1)).await;
    let bobs = NewTask {
        scope: scope("bob"),
        ..task_with_key("bob's", "k", 2)
    };
    let bobs = create(store, bobs).await;
    expect_eq(
        bobs.id.as_str(),
        "bob's",
        "a key of another scope is not found",
    );
    let head = create(
        store,
        NewTask {
            scope: scope("eve"),
            ..new_task("eve's")
        },
    )
    .await;
    let message = Batch {
        key: key("k", 3),
        ..status_batch(TaskState::Working, 2_000)
    };
    expect_ok(
        store.append(&head, Seq(1), &message).await,
        "a key of another scope does not affect `append`",
    );
}

async fn finds_tasks_by_key(store: &dyn Store) {
    let unused = store
        .find_by_key(&scope("ann"), &key("k", 1).expect("a key"))
        .await;
    expect_eq(
        expect_ok(unused, "`find_by_key` of an unused key succeeds"),
        None,
        "`find_by_key` of an unused key returns nothing",
    );
    let made = create(store, task_with_key("made", "k", 1)).await;
    let message = Batch {
        key: key("l", 1),
        turn: 1 << 40,
        ..status_batch(TaskState::Completed, 2_000)
    };
    expect_ok(
        store.append(&made, Seq(1), &message).await,
        "`append` with an unused key succeeds",
    );
    let now = find(store, "ann", "made").await;
    for (text, turn) in [("k", 7), ("l", 1 << 40)] {
        let with_body = |body| key(text, body).expect("a key");
        let found = expect_ok(
            store.find_by_key(&scope("ann"), &with_body(1)).await,
            "`find_by_key` of a used key succeeds",
        );
        let expected = record(now.clone(), turn);
        expect_eq(
            found,
            expected,
            "`find_by_key` returns the current head of the task, and the recorded turn",
        );
        let other = store.find_by_key(&scope("ann"), &with_body(2)).await;
        expect_true(
            matches!(other, Err(Error::KeyReused)),
            "`find_by_key` of a used key with another body is `KeyReused`",
        );
        let bobs = expect_ok(
            store.find_by_key(&scope("bob"), &with_body(2)).await,
            "`find_by_key` of an unused key succeeds",
        );
        expect_eq(bobs, None, "a key of another scope is not found");
    }
    expect_ok(store.remove(&[made]).await, "`remove` succeeds");
    let removed = store
        .find_by_key(&scope("ann"), &key("k", 1).expect("a key"))
        .await;
    expect_eq(
        expect_ok(removed, "`find_by_key` of a removed key succeeds"),
        None,
        "`remove` removes the idempotency keys of the task",
    );
}

async fn expired_keys_are_unused(store: &dyn Store) {
    let valid_since = |millis, body| {
        key("k", body).map(|key| IdempotencyKey {
            oldest_valid: timestamp(millis),
            ..key
        })
    };
    let find_key = async |millis, body| {
        let key = valid_since(millis, body).expect("a key");
        let found = store.find_by_key(&scope("ann"), &key).await;
        expect_ok(found, "`find_by_key` succeeds").map(|record| record.head.id)
    };
    // The record is of time 1,000.
    let first = create(store, task_with_key("first", "k", 1)).await;
    expect_eq(
        find_key(1_000, 1).await,
        Some(first.id.clone()),
        "a record of the time `oldest_valid` has not expired",
    );
    expect_eq(
        find_key(1_001, 2).await,
        None,
        "a record from before `oldest_valid` has expired, whatever its body is",
    );
    let message = Batch {
        key: valid_since(1_001, 2),
        turn: 2,
        ..status_batch(TaskState::Working, 2_000)
    };
    expect_ok(
        store.append(&first, Seq(1), &message).await,
        "`append` with an expired key succeeds",
    );
    let mut second = new_task_at("second", 3_000);
    second.batch.key = valid_since(2_001, 3);
    let second = create(store, second).await;
    expect_eq(
        find_key(1_000, 3).await,
        Some(second.id.clone()),
        "a write with an expired key replaces its record",
    );
    expect_ok(store.remove(&[first]).await, "`remove` succeeds");
    expect_eq(
        find_key(1_000, 3).await,
        Some(second.id),
        "`remove` keeps a key that another task uses now",
    );
}

async fn removes_old_keys(store: &dyn Store) {
    for number in 0..5 {
        let mut task = new_task_at(&format!("t{number}"), 1_000 + number);
        task.batch.key = key(&format!("k{number}"), 1);
        create(store, task).await;
    }
    let used_keys = async || {
        let mut used = Vec::new();
        for number in 0..5 {
            let key = key(&format!("k{number}"), 1).expect("a key");
            let found = store.find_by_key(&scope("ann"), &key).await;
            if expect_ok(found, "`find_by_key` succeeds").is_some() {
                used.push(number);
            }
        }
        used
    };
    let remove = async |before, limit| {
        let removed = store.remove_keys(timestamp(before), limit).await;
        expect_ok(removed, "`remove_keys` succeeds")
    };
    expect_eq(
        (remove(1_000, 9).await, used_keys().await),
        (0, vec![0, 1, 2, 3, 4]),
        "`remove_keys` keeps keys of the given time and later",
    );
    expect_eq(
        (remove(1_004, 2).await, used_keys().await.len()),
        (2, 3),
        "`remove_keys` removes at most `limit` keys",
    );
    expect_eq(
        (remove(1_004, 9).await, used_keys().await),
        (2, vec![4]),
        "`remove_keys` removes the keys of earlier times",
    );
    expect_eq(
        remove(1_004, 9).await,
        0,
        "`remove_keys` returns the number of removed keys",
    );
    expect_true(
        find(store, "ann", "t0").await.is_some(),
        "`remove_keys` keeps the tasks",
    );
    // The removed keys are free again, and their tasks can be removed.
    let again = create(store, task_with_key("again", "k0", 2)).await;
    for id in ["t0", "t4"] {
        let head = find(store, "ann", id).await.expect("a task");
        expect_ok(store.remove(&[head]).await, "`remove` succeeds");
    }
    let key = key("k0", 2).expect("a key");
    let found = store.find_by_key(&scope("ann"), &key).await;
    expect_eq(
        expect_ok(found, "`find_by_key` succeeds").map(|record| record.head.id),
        Some(again.id),
        "a removed key can be used again",
    );
}

async fn concurrent_creates_with_one_key_create_one_task<S: Store>(store: S) {
    let store = Arc::new(store);
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            store
                .create(&task_with_key(&format!("t{number}"), "k", 1))
                .await
        });
    }
    let mut created = Vec::new();
    let mut all = Vec::new();
    for result in tasks.join_all().await {
        match expect_ok(
            result,
            "concurrent creates with one key and one body succeed",
        ) {
            CreateResult::Created(head) => {
                created.push(head.id.clone());
                all.push(head.id);
            }
            CreateResult::Replayed(record) => all.push(record.head.id),
        }
    }
    expect_eq(
        created.len(),
        1,
        "of concurrent creates with one key, one creates a task",
    );
    expect_true(
        all.iter().all(|id| *id == created[0]),
        "concurrent creates with one key return the same task",
    );
}

async fn concurrent_appends_at_one_position_append_one_batch<S: Store>(store: S) {
    let head = create(&store, new_task("t")).await;
    let store = Arc::new(store);
    let head = Arc::new(head);
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let store = Arc::clone(&store);
        let head = Arc::clone(&head);
        let batch = batch(vec![note(format!("{number}"))], TaskState::Working, 2_000);
        tasks.spawn(async move { store.append(&head, Seq(1), &batch).await });
    }
    let results = tasks.join_all().await;
    let added = results
        .iter()
        .filter(|result| matches!(result, Ok(Seq(2))))
        .count();
    let refused = results
        .iter()
        .filter(|result| matches!(result, Err(Error::Conflict)))
        .count();
    expect_eq(
        (added, refused),
        (1, 31),
        "of concurrent batches for one position, one is appended and the others are `Conflict`",
    );
    expect_eq(
        log(&*store, &head).await.len(),
        2,
        "batches that conflict append nothing",
    );
}

async fn finds_tasks_by_alias(store: &dyn Store) {
    let head = create(
        store,
        NewTask {
            alias: Some("mine".into()),
            ..new_task("t")
        },
    )
    .await;
    expect_eq(
        find(store, "ann", "mine").await,
        Some(head.clone()),
        "`find` returns a task by its alias",
    );
    expect_eq(
        find(store, "bob", "mine").await,
        None,
        "an alias of another scope is not found",
    );
    let taken = store
        .create(&NewTask {
            alias: Some("mine".into()),
            ..task_with_key("t2", "k", 1)
        })
        .await;
    expect_true(
        matches!(taken, Err(Error::Conflict)),
        "`create` with an alias that the scope has is `Conflict`",
    );
    expect_eq(
        find(store, "ann", "t2").await,
        None,
        "a `create` with a conflicting alias creates no task",
    );
    create(
        store,
        NewTask {
            scope: scope("bob"),
            alias: Some("mine".into()),
            ..task_with_key("t3", "k", 1)
        },
    )
    .await;
    // An id takes precedence over an alias of the same text.
    let id_first = create(
        store,
        NewTask {
            alias: Some("t".into()),
            ..new_task("t4")
        },
    )
    .await;
    expect_eq(
        find(store, "ann", "t").await,
        Some(head.clone()),
        "`find` prefers an id to an alias",
    );
    expect_ok(store.remove(&[head]).await, "`remove` succeeds");
    expect_eq(
        find(store, "ann", "mine").await,
        None,
        "`remove` removes the alias",
    );
    expect_eq(
        find(store, "ann", "t").await,
        Some(id_first),
        "`find` returns a task by its alias if no task has that id",
    );
    create(
        store,
        NewTask {
            alias: Some("mine".into()),
            ..new_task("t5")
        },
    )
    .await;
}
