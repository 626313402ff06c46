//! Idempotency keys and aliases.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    batch, ending, find, given, key, log, new_task, note, open, rule, same, scope, webhook,
};
use crate::model::{Seq, TaskState};
use crate::store::{Batch, Error, Head, NewTask, Opened, Seen, Store};

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
fn keyed(id: &str, text: &str, body: u8) -> NewTask {
    let mut task = new_task(id);
    (task.batch.key, task.batch.turn) = (key(text, body), 7);
    task
}

/// What is known of a key whose task stands there now.
fn seen(head: Option<Head>, turn: u64) -> Option<Seen> {
    head.map(|head| Seen { head, turn })
}

async fn the_same_key_finds_the_first_task(store: &dyn Store) {
    let first = open(store, keyed("first", "k", 1)).await;
    let position = store
        .append(&first, Seq(1), &ending(TaskState::Completed, 2_000))
        .await;
    let now = find(store, "ann", "first").await;
    same(
        now.as_ref().map(|head| head.position),
        position.ok(),
        "a batch is added",
    );
    let second = NewTask {
        alias: Some("alias".into()),
        config: Some(Box::new(webhook("hook", "https://example.org"))),
        ..keyed("second", "k", 1)
    };
    let again = given(
        store.create(&second).await,
        "a key seen with the same body is no error",
    );
    same(
        Some(again),
        seen(now, 7).map(Opened::Again),
        "the same key finds the first task, as it stands now",
    );
    same(
        find(store, "ann", "second").await,
        None,
        "a task found again leaves no second one",
    );
    same(
        find(store, "ann", "alias").await,
        None,
        "a task found again takes no alias",
    );
    let configs = given(store.configs(&first).await, "webhooks can be read");
    same(configs, Vec::new(), "a task found again takes no webhook");
    // The id is that of the first task: the key answers, not the conflict.
    let same_id = given(
        store.create(&keyed("first", "k", 1)).await,
        "a key that was seen goes before the id",
    );
    rule(
        matches!(same_id, Opened::Again(_)),
        "a key that was seen goes before the id",
    );
}

async fn another_body_is_refused(store: &dyn Store) {
    let first = open(store, keyed("first", "k", 1)).await;
    let before = (find(store, "ann", "first").await, log(store, &first).await);
    let refused = store
        .create(&NewTask {
            alias: Some("alias".into()),
            ..keyed("second", "k", 2)
        })
        .await;
    rule(
        matches!(refused, Err(Error::KeyReused)),
        "creating under a used key with another body is `KeyReused`",
    );
    let other = Batch {
        key: key("k", 2),
        ..ending(TaskState::Completed, 2_000)
    };
    let refused = store.append(&first, Seq(1), &other).await;
    rule(
        matches!(refused, Err(Error::KeyReused)),
        "adding under a used key with another body is `KeyReused`",
    );
    same(
        find(store, "ann", "second").await,
        None,
        "a reused key makes no task",
    );
    same(
        find(store, "ann", "alias").await,
        None,
        "a reused key makes no alias",
    );
    let after = (find(store, "ann", "first").await, log(store, &first).await);
    same(after, before, "a reused key adds nothing");
}

async fn a_message_is_added_once(store: &dyn Store) {
    let head = open(store, new_task("t")).await;
    let message = Batch {
        key: key("k", 1),
        turn: 2,
        ..batch(vec![note("hi")], TaskState::Working, 2_000)
    };
    given(
        store.append(&head, Seq(1), &message).await,
        "a batch with a fresh key is added",
    );
    for position in [Seq(1), Seq(2)] {
        let again = store.append(&head, position, &message).await;
        rule(
            matches!(again, Err(Error::Repeated)),
            "a key that was seen is `Repeated`, wherever the log stands",
        );
    }
    same(
        log(store, &head).await.len(),
        2,
        "a message sent again adds nothing",
    );
    let made = given(
        store.create(&keyed("second", "k", 1)).await,
        "a key seen with the same body is no error",
    );
    let now = find(store, "ann", "t").await;
    same(
        Some(made),
        seen(now, 2).map(Opened::Again),
        "the key of a continuing message finds the task it continued",
    );
}

async fn a_key_belongs_to_its_scope(store: &dyn Store) {
    open(store, keyed("ann's", "k", 1)).await;
    let bobs = NewTask {
        scope: scope("bob"),
        ..keyed("bob's", "k", 2)
    };
    let bobs = open(store, bobs).await;
    same(
        bobs.id.as_str(),
        "bob's",
        "a key of another scope says nothing",
    );
    let head = open(
        store,
        NewTask {
            scope: scope("eve"),
            ..new_task("eve's")
        },
    )
    .await;
    let message = Batch {
        key: key("k", 3),
        ..ending(TaskState::Working, 2_000)
    };
    given(
        store.append(&head, Seq(1), &message).await,
        "a key of another scope does not stop a message",
    );
}

async fn a_key_can_be_looked_up(store: &dyn Store) {
    let fresh = store
        .seen(&scope("ann"), &key("k", 1).expect("a key"))
        .await;
    same(
        given(fresh, "a key that was not seen is no error"),
        None,
        "a key that was not seen finds nothing",
    );
    let made = open(store, keyed("made", "k", 1)).await;
    let message = Batch {
        key: key("l", 1),
        turn: 1 << 40,
        ..ending(TaskState::Completed, 2_000)
    };
    given(
        store.append(&made, Seq(1), &message).await,
        "a batch with a fresh key is added",
    );
    let now = find(store, "ann", "made").await;
    for (text, turn) in [("k", 7), ("l", 1 << 40)] {
        let known = |body| key(text, body).expect("a key");
        let found = given(
            store.seen(&scope("ann"), &known(1)).await,
            "a key that was seen is no error",
        );
        let expected = seen(now.clone(), turn);
        same(
            found,
            expected,
            "a key finds the task it made or continued, as it stands now, and its turn",
        );
        let other = store.seen(&scope("ann"), &known(2)).await;
        rule(
            matches!(other, Err(Error::KeyReused)),
            "a key seen with another body is `KeyReused`",
        );
        let bobs = given(
            store.seen(&scope("bob"), &known(2)).await,
            "a key that was not seen is no error",
        );
        same(bobs, None, "a key of another scope says nothing");
    }
    given(store.remove(&[made]).await, "a task is removed");
    let gone = store
        .seen(&scope("ann"), &key("k", 1).expect("a key"))
        .await;
    same(
        given(gone, "a key that went with its task is no error"),
        None,
        "a key goes with its task",
    );
}

async fn racing_creates_make_one_task<S: Store>(store: S) {
    let store = Arc::new(store);
    let mut racers = JoinSet::new();
    for number in 0..32 {
        let store = Arc::clone(&store);
        racers.spawn(async move { store.create(&keyed(&format!("t{number}"), "k", 1)).await });
    }
    let (mut new, mut all) = (Vec::new(), Vec::new());
    for opened in racers.join_all().await {
        match given(opened, "creates with one key and one body never fail") {
            Opened::New(head) => {
                new.push(head.id.clone());
                all.push(head.id);
            }
            Opened::Again(seen) => all.push(seen.head.id),
        }
    }
    same(
        new.len(),
        1,
        "of creates that race with one key, one makes a task",
    );
    rule(
        all.iter().all(|id| *id == new[0]),
        "creates that race with one key all get the same task",
    );
}

async fn racing_appends_add_one_batch<S: Store>(store: S) {
    let head = open(&store, new_task("t")).await;
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
    same(
        (added, refused),
        (1, 31),
        "of batches that race for one position, one is added, the rest conflict",
    );
    same(
        log(&*store, &head).await.len(),
        2,
        "batches that conflict leave nothing",
    );
}

async fn an_alias_leads_to_its_task(store: &dyn Store) {
    let head = open(
        store,
        NewTask {
            alias: Some("mine".into()),
            ..new_task("t")
        },
    )
    .await;
    same(
        find(store, "ann", "mine").await,
        Some(head.clone()),
        "a task is found by its alias",
    );
    same(
        find(store, "bob", "mine").await,
        None,
        "an alias of another scope is as good as none",
    );
    let taken = store
        .create(&NewTask {
            alias: Some("mine".into()),
            ..keyed("t2", "k", 1)
        })
        .await;
    rule(
        matches!(taken, Err(Error::Conflict)),
        "an alias that the scope has is a conflict",
    );
    same(
        find(store, "ann", "t2").await,
        None,
        "an alias that conflicts makes no task",
    );
    open(
        store,
        NewTask {
            scope: scope("bob"),
            alias: Some("mine".into()),
            ..keyed("t3", "k", 1)
        },
    )
    .await;
    // An id goes before an alias of the same text.
    let id_first = open(
        store,
        NewTask {
            alias: Some("t".into()),
            ..new_task("t4")
        },
    )
    .await;
    same(
        find(store, "ann", "t").await,
        Some(head.clone()),
        "an id goes before an alias",
    );
    given(store.remove(&[head]).await, "a task is removed");
    same(
        find(store, "ann", "mine").await,
        None,
        "an alias goes with its task",
    );
    same(
        find(store, "ann", "t").await,
        Some(id_first),
        "an alias is found when no task has it as its id",
    );
    open(
        store,
        NewTask {
            alias: Some("mine".into()),
            ..new_task("t5")
        },
    )
    .await;
}
