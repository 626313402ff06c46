//! Idempotency keys and aliases.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    batch, create, expect_eq, expect_ok, expect_true, find, key, log, new_task, note, registration,
    scope, status_batch,
};
use crate::model::{Seq, TaskState};
use crate::store::{Batch, CreateResult, Error, Head, IdempotencyRecord, NewTask, Store};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    the_same_key_finds_the_first_task(&make().await).await;
    another_body_is_refused(&make().await).await;
    a_message_is_added_once(&make().await).await;
    a_key_belongs_to_its_scope(&make().await).await;
    a_key_can_be_looked_up(&make().await).await;
    racing_creates_make_one_task(make().await).await;
    racing_appends_add_one_batch(make().await).await;
    an_alias_leads_to_its_task(&make().await).await;
}

/// A task whose message is said to be that of turn 7: nothing that a store understands.
fn task_with_key(id: &str, text: &str, body: u8) -> NewTask {
    let mut task = new_task(id);
    (task.batch.key, task.batch.turn) = (key(text, body), 7);
    task
}

/// What is known of a key whose task stands there now.
fn record(head: Option<Head>, turn: u64) -> Option<IdempotencyRecord> {
    head.map(|head| IdempotencyRecord { head, turn })
}

async fn the_same_key_finds_the_first_task(store: &dyn Store) {
    let first = create(store, task_with_key("first", "k", 1)).await;
    let position = store
        .append(&first, Seq(1), &status_batch(TaskState::Completed, 2_000))
        .await;
    let now = find(store, "ann", "first").await;
    expect_eq(
        now.as_ref().map(|head| head.position),
        position.ok(),
        "a batch is added",
    );
    let second = NewTask {
        alias: Some("alias".into()),
        config: Some(Box::new(registration("hook", "https://example.org"))),
        ..task_with_key("second", "k", 1)
    };
    let again = expect_ok(
        store.create(&second).await,
        "a key seen with the same body is no error",
    );
    expect_eq(
        Some(again),
        record(now, 7).map(CreateResult::Replayed),
        "the same key finds the first task, as it stands now",
    );
    expect_eq(
        find(store, "ann", "second").await,
        None,
        "a task found again leaves no second one",
    );
    expect_eq(
        find(store, "ann", "alias").await,
        None,
        "a task found again takes no alias",
    );
    let configs = expect_ok(store.list_configs(&first).await, "webhooks can be read");
    expect_eq(configs, Vec::new(), "a task found again takes no webhook");
    // The id is that of the first task: the key answers, not the conflict.
    let same_id = expect_ok(
        store.create(&task_with_key("first", "k", 1)).await,
        "a key that was seen goes before the id",
    );
    expect_true(
        matches!(same_id, CreateResult::Replayed(_)),
        "a key that was seen goes before the id",
    );
}

async fn another_body_is_refused(store: &dyn Store) {
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
        "creating under a used key with another body is `KeyReused`",
    );
    let other = Batch {
        key: key("k", 2),
        ..status_batch(TaskState::Completed, 2_000)
    };
    let refused = store.append(&first, Seq(1), &other).await;
    expect_true(
        matches!(refused, Err(Error::KeyReused)),
        "adding under a used key with another body is `KeyReused`",
    );
    expect_eq(
        find(store, "ann", "second").await,
        None,
        "a reused key makes no task",
    );
    expect_eq(
        find(store, "ann", "alias").await,
        None,
        "a reused key makes no alias",
    );
    let after = (find(store, "ann", "first").await, log(store, &first).await);
    expect_eq(after, before, "a reused key adds nothing");
}

async fn a_message_is_added_once(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let message = Batch {
        key: key("k", 1),
        turn: 2,
        ..batch(vec![note("hi")], TaskState::Working, 2_000)
    };
    expect_ok(
        store.append(&head, Seq(1), &message).await,
        "a batch with a fresh key is added",
    );
    for position in [Seq(1), Seq(2)] {
        let again = store.append(&head, position, &message).await;
        expect_true(
            matches!(again, Err(Error::AlreadyApplied)),
            "a key that was seen is `Repeated`, wherever the log stands",
        );
    }
    expect_eq(
        log(store, &head).await.len(),
        2,
        "a message sent again adds nothing",
    );
    let made = expect_ok(
        store.create(&task_with_key("second", "k", 1)).await,
        "a key seen with the same body is no error",
    );
    let now = find(store, "ann", "t").await;
    expect_eq(
        Some(made),
        record(now, 2).map(CreateResult::Replayed),
        "the key of a continuing message finds the task it continued",
    );
}

async fn a_key_belongs_to_its_scope(store: &dyn Store) {
    create(store, task_with_key("ann's", "k", 1)).await;
    let bobs = NewTask {
        scope: scope("bob"),
        ..task_with_key("bob's", "k", 2)
    };
    let bobs = create(store, bobs).await;
    expect_eq(
        bobs.id.as_str(),
        "bob's",
        "a key of another scope says nothing",
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
        "a key of another scope does not stop a message",
    );
}

async fn a_key_can_be_looked_up(store: &dyn Store) {
    let fresh = store
        .find_by_key(&scope("ann"), &key("k", 1).expect("a key"))
        .await;
    expect_eq(
        expect_ok(fresh, "a key that was not seen is no error"),
        None,
        "a key that was not seen finds nothing",
    );
    let made = create(store, task_with_key("made", "k", 1)).await;
    let message = Batch {
        key: key("l", 1),
        turn: 1 << 40,
        ..status_batch(TaskState::Completed, 2_000)
    };
    expect_ok(
        store.append(&made, Seq(1), &message).await,
        "a batch with a fresh key is added",
    );
    let now = find(store, "ann", "made").await;
    for (text, turn) in [("k", 7), ("l", 1 << 40)] {
        let known = |body| key(text, body).expect("a key");
        let found = expect_ok(
            store.find_by_key(&scope("ann"), &known(1)).await,
            "a key that was seen is no error",
        );
        let expected = record(now.clone(), turn);
        expect_eq(
            found,
            expected,
            "a key finds the task it made or continued, as it stands now, and its turn",
        );
        let other = store.find_by_key(&scope("ann"), &known(2)).await;
        expect_true(
            matches!(other, Err(Error::KeyReused)),
            "a key seen with another body is `KeyReused`",
        );
        let bobs = expect_ok(
            store.find_by_key(&scope("bob"), &known(2)).await,
            "a key that was not seen is no error",
        );
        expect_eq(bobs, None, "a key of another scope says nothing");
    }
    expect_ok(store.remove(&[made]).await, "a task is removed");
    let gone = store
        .find_by_key(&scope("ann"), &key("k", 1).expect("a key"))
        .await;
    expect_eq(
        expect_ok(gone, "a key that went with its task is no error"),
        None,
        "a key goes with its task",
    );
}

async fn racing_creates_make_one_task<S: Store>(store: S) {
    let store = Arc::new(store);
    let mut racers = JoinSet::new();
    for number in 0..32 {
        let store = Arc::clone(&store);
        racers.spawn(async move {
            store
                .create(&task_with_key(&format!("t{number}"), "k", 1))
                .await
        });
    }
    let (mut new, mut all) = (Vec::new(), Vec::new());
    for opened in racers.join_all().await {
        match expect_ok(opened, "creates with one key and one body never fail") {
            CreateResult::Created(head) => {
                new.push(head.id.clone());
                all.push(head.id);
            }
            CreateResult::Replayed(record) => all.push(record.head.id),
        }
    }
    expect_eq(
        new.len(),
        1,
        "of creates that race with one key, one makes a task",
    );
    expect_true(
        all.iter().all(|id| *id == new[0]),
        "creates that race with one key all get the same task",
    );
}

async fn racing_appends_add_one_batch<S: Store>(store: S) {
    let head = create(&store, new_task("t")).await;
    let (store, head) = (Arc::new(store), Arc::new(head));
    let mut racers = JoinSet::new();
    for number in 0..32 {
        let (store, head) = (Arc::clone(&store), Arc::clone(&head));
        let batch = batch(vec![note(format!("{number}"))], TaskState::Working, 2_000);
        racers.spawn(async move { store.append(&head, Seq(1), &batch).await });
    }
    let results = racers.join_all().await;
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
        "of batches that race for one position, one is added, the rest conflict",
    );
    expect_eq(
        log(&*store, &head).await.len(),
        2,
        "batches that conflict leave nothing",
    );
}

async fn an_alias_leads_to_its_task(store: &dyn Store) {
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
        "a task is found by its alias",
    );
    expect_eq(
        find(store, "bob", "mine").await,
        None,
        "an alias of another scope is as good as none",
    );
    let taken = store
        .create(&NewTask {
            alias: Some("mine".into()),
            ..task_with_key("t2", "k", 1)
        })
        .await;
    expect_true(
        matches!(taken, Err(Error::Conflict)),
        "an alias that the scope has is a conflict",
    );
    expect_eq(
        find(store, "ann", "t2").await,
        None,
        "an alias that conflicts makes no task",
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
    // An id goes before an alias of the same text.
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
        "an id goes before an alias",
    );
    expect_ok(store.remove(&[head]).await, "a task is removed");
    expect_eq(
        find(store, "ann", "mine").await,
        None,
        "an alias goes with its task",
    );
    expect_eq(
        find(store, "ann", "t").await,
        Some(id_first),
        "an alias is found when no task has it as its id",
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
