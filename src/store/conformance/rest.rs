//! What belongs to a task beside its log: its fold, the webhooks; and the end of all of it.

use std::sync::Arc;

use super::{ending, find, given, key, log, new_task, open, rule, same, scope, webhook};
use crate::model::{Message, Seq, Task, TaskState};
use crate::store::{
    Batch, Delivery, Error, Folded, Head, NewTask, Opened, Push, Query, Registered, Standing,
    Store, Which,
};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    the_newest_fold_is_kept_whole(&make().await).await;
    webhooks_come_in_order(&make().await).await;
    deliveries_are_remembered(&make().await).await;
    webhooks_are_found_by_how_they_stand(&make().await).await;
    a_removed_task_leaves_nothing(&make().await).await;
    many_are_removed_at_once(&make().await).await;
}

async fn the_newest_fold_is_kept_whole(store: &dyn Store) {
    let head = open(store, new_task("t")).await;
    let other = open(store, new_task("u")).await;
    let kept = async |head: &Head| given(store.kept(head).await, "a fold can be asked for");
    same(kept(&head).await, None, "a new task has nothing kept");
    let folded = |time| folded(&head, time);
    for (at, time, expected) in [(5, 50, (5, 50)), (9, 90, (9, 90)), (7, 70, (9, 90))] {
        given(
            store.keep(&head, Seq(at), &folded(time)).await,
            "a fold can be kept",
        );
        let expected = Some((Seq(expected.0), folded(expected.1)));
        same(
            kept(&head).await,
            expected,
            "the newest fold is kept, whole, whatever came last",
        );
    }
    same(kept(&other).await, None, "a fold is of its own task alone");
    let stranger = Head {
        scope: scope("bob"),
        ..head.clone()
    };
    given(
        store.keep(&stranger, Seq(99), &folded(0)).await,
        "keeping for another's task is no error",
    );
    same(
        kept(&stranger).await,
        None,
        "a fold of another scope is as good as none",
    );
    same(
        kept(&head).await,
        Some((Seq(9), folded(90))),
        "nobody keeps a fold for another's task",
    );
}

/// A fold with something in each of its places.
fn folded(head: &Head, time: i64) -> Folded {
    let mut task = Task::submitted(head.id.clone(), head.context_id.clone(), super::at(time));
    let message = |text: &str| {
        Arc::new(Message {
            message_id: text.into(),
            ..Message::user(text)
        })
    };
    let waiting = message("waiting");
    task.history.extend([message("heard"), waiting.clone()]);
    Folded {
        task: Arc::new(task),
        waiting: vec![waiting],
        traces: Vec::new(),
        turns_ended: 1,
        attempts: 2,
    }
}

async fn configs(store: &dyn Store, head: &Head) -> Vec<Registered> {
    given(store.configs(head).await, "webhooks can be read")
}

async fn webhooks_come_in_order(store: &dyn Store) {
    let first = webhook("z", "https://example.org/1");
    let head = open(
        store,
        NewTask {
            config: Some(Box::new(first.clone())),
            ..new_task("t")
        },
    )
    .await;
    let other = open(store, new_task("u")).await;
    same(
        configs(store, &head).await,
        vec![first.clone()],
        "a webhook that came with the task is there",
    );
    let (second, third) = (
        webhook("y", "https://example.org/2"),
        webhook("x", "https://example.org/3"),
    );
    for config in [&second, &third] {
        given(
            store.put_config(&head, config).await,
            "a webhook is registered",
        );
    }
    same(
        configs(store, &head).await,
        vec![first, second.clone(), third.clone()],
        "webhooks come oldest first",
    );
    let changed = webhook("z", "https://example.org/4");
    given(
        store.put_config(&head, &changed).await,
        "a webhook is registered",
    );
    let expected = vec![changed.clone(), second, third.clone()];
    same(
        configs(store, &head).await,
        expected,
        "a webhook of the same id replaces the old one, in its place",
    );
    for id in ["y", "y", "none"] {
        let deleted = store.delete_config(&head, &id.into()).await;
        given(deleted, "a webhook that is not there is as good as removed");
    }
    same(
        configs(store, &head).await,
        vec![changed, third],
        "a webhook that was removed is gone, the others stay",
    );
    same(
        configs(store, &other).await,
        Vec::new(),
        "a webhook is of its own task alone",
    );
    given(
        store.delete_config(&other, &"z".into()).await,
        "a webhook that is not there is as good as removed",
    );
    same(
        configs(store, &head).await.len(),
        2,
        "removing a webhook touches its own task alone",
    );
}

async fn push(store: &dyn Store, head: &Head, id: &str) -> Option<Push> {
    given(
        store.push(head, &id.into()).await,
        "a webhook can be asked for",
    )
}

async fn recorded(store: &dyn Store, push: &Push) -> bool {
    given(
        store.record_delivery(push).await,
        "how far deliveries are is recorded",
    )
}

async fn deliveries_are_remembered(store: &dyn Store) {
    let (first, later) = (
        webhook("first", "https://example.org/1"),
        webhook("later", "https://example.org/2"),
    );
    let head = open(
        store,
        NewTask {
            config: Some(Box::new(first.clone())),
            ..new_task("t")
        },
    )
    .await;
    given(
        store.put_config(&head, &later).await,
        "a webhook is registered",
    );
    let begun = push(store, &head, "first").await;
    let begun =
        begun.unwrap_or_else(|| panic!("rule broken: a webhook that came with its task is found"));
    same(
        &begun.registered,
        &first,
        "a webhook is found as it was registered",
    );
    same(
        &begun.delivery,
        &Delivery::default(),
        "one that came with its task begins with the first entry",
    );
    let position = push(store, &head, "later")
        .await
        .map(|push| push.delivery.position);
    same(
        position,
        Some(Seq(1)),
        "one that came later begins behind what was there",
    );
    same(
        push(store, &head, "none").await,
        None,
        "a webhook that is not there is not found",
    );
    let stranger = Head {
        scope: scope("bob"),
        ..head.clone()
    };
    same(
        push(store, &stranger, "first").await,
        None,
        "a webhook of another scope is as good as none",
    );

    let standing = Standing::Stopped("it said 410".to_owned());
    let delivery = Delivery {
        position: Seq(7),
        attempts: 3,
        due: super::at(9_000),
        standing,
    };
    let stopped = Push {
        delivery: delivery.clone(),
        ..begun.clone()
    };
    rule(
        recorded(store, &stopped).await,
        "how far deliveries are is recorded",
    );
    same(
        push(store, &head, "first").await,
        Some(stopped.clone()),
        "what was recorded is read",
    );

    given(
        store.put_config(&head, &first).await,
        "a webhook is registered anew",
    );
    rule(
        !recorded(store, &stopped).await,
        "what belongs to an older registration is not recorded",
    );
    let again = push(store, &head, "first").await.map(|push| push.delivery);
    let expected = Delivery {
        position: Seq(7),
        ..Delivery::default()
    };
    same(
        again,
        Some(expected),
        "one that is registered anew goes on where it was, and is open again",
    );

    given(
        store.delete_config(&head, &"first".into()).await,
        "a webhook is removed",
    );
    rule(
        !recorded(store, &stopped).await,
        "nothing is recorded for a webhook that was removed",
    );
    same(
        push(store, &head, "first").await,
        None,
        "a webhook that was removed is not found",
    );
}

async fn webhooks_are_found_by_how_they_stand(store: &dyn Store) {
    let listed = async |which, after, limit| {
        let pushes = given(
            store.pushes(which, after, limit).await,
            "webhooks can be looked through",
        );
        pushes
            .into_iter()
            .map(|push| (push.task.id.to_string(), push.number))
            .collect::<Vec<_>>()
    };
    let mut heads = Vec::new();
    for (owner, id) in [("ann", "t0"), ("bob", "t1"), ("ann", "t2"), ("bob", "t3")] {
        let config = Some(Box::new(webhook("hook", "https://example.org")));
        heads.push(
            open(
                store,
                NewTask {
                    scope: scope(owner),
                    config,
                    ..new_task(id)
                },
            )
            .await,
        );
    }
    let open = listed(Which::Open, None, 10).await;
    let ids: Vec<_> = open.iter().map(|(id, _)| id.as_str()).collect();
    same(
        ids,
        vec!["t0", "t1", "t2", "t3"],
        "webhooks of every scope come in their order",
    );
    let behind = listed(Which::Open, Some(open[0].1), 2).await;
    same(behind, open[1..3].to_vec(), "webhooks come in pages");
    for (head, standing) in heads.iter().zip([
        Standing::Over,
        Standing::Stopped("gone".to_owned()),
        Standing::Stopped("lost".to_owned()),
    ]) {
        let Some(mut push) = push(store, head, "hook").await else {
            panic!("rule broken: a webhook is found")
        };
        push.delivery.standing = standing;
        rule(
            recorded(store, &push).await,
            "how a webhook stands is recorded",
        );
    }
    same(
        listed(Which::Open, None, 10).await,
        open[3..].to_vec(),
        "what is over or given up is not open",
    );
    same(
        listed(Which::Stopped, None, 10).await,
        open[1..3].to_vec(),
        "what was given up is found",
    );
    given(store.remove(&heads[1..2]).await, "a task is removed");
    same(
        listed(Which::Stopped, None, 10).await,
        open[2..3].to_vec(),
        "webhooks go with their task",
    );
}

async fn a_removed_task_leaves_nothing(store: &dyn Store) {
    let full = || {
        let mut task = new_task("t");
        task.alias = Some("alias".into());
        task.config = Some(Box::new(webhook("hook", "https://example.org")));
        task.batch.key = key("k", 1);
        task
    };
    let head = open(store, full()).await;
    let message = Batch {
        key: key("k2", 1),
        ..ending(TaskState::Completed, 2_000)
    };
    given(
        store.append(&head, Seq(1), &message).await,
        "a batch is added",
    );
    let folded = folded(&head, 5);
    given(
        store.keep(&head, Seq(2), &folded).await,
        "a fold can be kept",
    );
    for _ in 0..2 {
        given(
            store.remove(std::slice::from_ref(&head)).await,
            "removing is no error, once or twice",
        );
    }
    gone(store, &head).await;
    let again = Batch {
        key: key("k2", 2),
        ..ending(TaskState::Working, 2_000)
    };
    let refused = store.append(&head, Seq(2), &again).await;
    rule(
        matches!(refused, Err(Error::Conflict)),
        "nothing is added to a task that was removed",
    );
    given(
        store.keep(&head, Seq(2), &folded).await,
        "keeping for a removed task is no error",
    );
    given(
        store.put_config(&head, &webhook("hook", "u")).await,
        "registering for a removed task is no error",
    );
    gone(store, &head).await;
    // Id, alias and keys are free again, and the new task is a new one.
    let opened = given(
        store.create(&full()).await,
        "what belonged to a removed task is free again",
    );
    let Opened::New(new) = opened else {
        panic!("rule broken: a key goes with its task")
    };
    same(
        log(store, &new).await.len(),
        1,
        "a task with the id of a removed one begins anew",
    );
    same(
        given(store.kept(&new).await, "kept"),
        None,
        "a fold goes with its task",
    );
    same(
        configs(store, &new).await.len(),
        1,
        "webhooks go with their task",
    );
    given(
        store.append(&new, Seq(1), &again).await,
        "a key goes with its task",
    );
}

async fn gone(store: &dyn Store, head: &Head) {
    for name in ["t", "alias"] {
        same(
            find(store, "ann", name).await,
            None,
            "a removed task is not found",
        );
    }
    same(
        log(store, head).await,
        Vec::new(),
        "a removed task has no log",
    );
    same(
        given(store.kept(head).await, "kept"),
        None,
        "a removed task has nothing kept",
    );
    same(
        configs(store, head).await,
        Vec::new(),
        "a removed task has no webhooks",
    );
    let page = given(
        store
            .list(
                &scope("ann"),
                &Query {
                    limit: 10,
                    ..Query::default()
                },
            )
            .await,
        "list",
    );
    same(
        (page.tasks, page.total),
        (Vec::new(), 0),
        "a removed task is not listed",
    );
    same(
        given(store.count_ended().await, "count"),
        0,
        "a removed task is not counted",
    );
    same(
        given(store.unfinished(None, 10).await, "unfinished"),
        Vec::new(),
        "a removed task is not swept",
    );
    same(
        given(store.ended(super::at(9_000), 10).await, "ended"),
        Vec::new(),
        "a removed task is not swept",
    );
}

async fn many_are_removed_at_once(store: &dyn Store) {
    let heads = super::open_all(
        store,
        (0..50).map(|number| new_task(&format!("t{number:02}"))),
    )
    .await;
    given(store.remove(&[]).await, "removing nothing is no error");
    given(
        store.remove(&heads[10..]).await,
        "many tasks are removed at once",
    );
    let left = given(
        store.unfinished(None, 100).await,
        "unfinished tasks can be swept",
    );
    same(
        left,
        heads[..10].to_vec(),
        "removing leaves the other tasks alone",
    );
    let page = given(
        store
            .list(
                &scope("ann"),
                &Query {
                    limit: 1,
                    ..Query::default()
                },
            )
            .await,
        "list",
    );
    same(page.total, 10, "the total follows what is removed");
}
