//! What belongs to a task beside its log: its fold, the webhooks; and the end of all of it.

use std::sync::Arc;

use super::{
    create, expect_eq, expect_ok, expect_true, find, key, log, new_task, registration, scope,
    status_batch,
};
use crate::model::{Message, Seq, Task, TaskState};
use crate::store::{
    Batch, CreateResult, DeliveryProgress, DeliveryState, Error, Head, NewTask, PushRegistration,
    Snapshot, Store, TaskQuery, Webhook, WebhookFilter,
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
    let head = create(store, new_task("t")).await;
    let other = create(store, new_task("u")).await;
    let kept =
        async |head: &Head| expect_ok(store.load_snapshot(head).await, "a fold can be asked for");
    expect_eq(kept(&head).await, None, "a new task has nothing kept");
    let snapshot = |time| snapshot(&head, time);
    for (at, time, expected) in [(5, 50, (5, 50)), (9, 90, (9, 90)), (7, 70, (9, 90))] {
        expect_ok(
            store.save_snapshot(&head, Seq(at), &snapshot(time)).await,
            "a fold can be kept",
        );
        let expected = Some((Seq(expected.0), snapshot(expected.1)));
        expect_eq(
            kept(&head).await,
            expected,
            "the newest fold is kept, whole, whatever came last",
        );
    }
    expect_eq(kept(&other).await, None, "a fold is of its own task alone");
    let stranger = Head {
        scope: scope("bob"),
        ..head.clone()
    };
    expect_ok(
        store.save_snapshot(&stranger, Seq(99), &snapshot(0)).await,
        "keeping for another's task is no error",
    );
    expect_eq(
        kept(&stranger).await,
        None,
        "a fold of another scope is as good as none",
    );
    expect_eq(
        kept(&head).await,
        Some((Seq(9), snapshot(90))),
        "nobody keeps a fold for another's task",
    );
}

/// A fold with something in each of its places.
fn snapshot(head: &Head, time: i64) -> Snapshot {
    let mut task = Task::submitted(
        head.id.clone(),
        head.context_id.clone(),
        super::timestamp(time),
    );
    let message = |text: &str| {
        Arc::new(Message {
            message_id: text.into(),
            ..Message::user(text)
        })
    };
    let pending = message("waiting");
    task.history.extend([message("heard"), pending.clone()]);
    Snapshot {
        task: Arc::new(task),
        unanswered: vec![pending],
        traces: Vec::new(),
        turns_ended: 1,
        attempts: 2,
    }
}

async fn configs(store: &dyn Store, head: &Head) -> Vec<PushRegistration> {
    expect_ok(store.list_configs(head).await, "webhooks can be read")
}

async fn webhooks_come_in_order(store: &dyn Store) {
    let first = registration("z", "https://example.org/1");
    let head = create(
        store,
        NewTask {
            config: Some(Box::new(first.clone())),
            ..new_task("t")
        },
    )
    .await;
    let other = create(store, new_task("u")).await;
    expect_eq(
        configs(store, &head).await,
        vec![first.clone()],
        "a webhook that came with the task is there",
    );
    let (second, third) = (
        registration("y", "https://example.org/2"),
        registration("x", "https://example.org/3"),
    );
    for config in [&second, &third] {
        expect_ok(
            store.put_config(&head, config).await,
            "a webhook is registered",
        );
    }
    expect_eq(
        configs(store, &head).await,
        vec![first, second.clone(), third.clone()],
        "webhooks come oldest first",
    );
    let changed = registration("z", "https://example.org/4");
    expect_ok(
        store.put_config(&head, &changed).await,
        "a webhook is registered",
    );
    let expected = vec![changed.clone(), second, third.clone()];
    expect_eq(
        configs(store, &head).await,
        expected,
        "a webhook of the same id replaces the old one, in its place",
    );
    for id in ["y", "y", "none"] {
        let deleted = store.delete_config(&head, &id.into()).await;
        expect_ok(deleted, "a webhook that is not there is as good as removed");
    }
    expect_eq(
        configs(store, &head).await,
        vec![changed, third],
        "a webhook that was removed is gone, the others stay",
    );
    expect_eq(
        configs(store, &other).await,
        Vec::new(),
        "a webhook is of its own task alone",
    );
    expect_ok(
        store.delete_config(&other, &"z".into()).await,
        "a webhook that is not there is as good as removed",
    );
    expect_eq(
        configs(store, &head).await.len(),
        2,
        "removing a webhook touches its own task alone",
    );
}

async fn push(store: &dyn Store, head: &Head, id: &str) -> Option<Webhook> {
    expect_ok(
        store.find_webhook(head, &id.into()).await,
        "a webhook can be asked for",
    )
}

async fn record_delivery(store: &dyn Store, push: &Webhook) -> bool {
    expect_ok(
        store.record_delivery(push).await,
        "how far deliveries are is recorded",
    )
}

async fn deliveries_are_remembered(store: &dyn Store) {
    let (first, later) = (
        registration("first", "https://example.org/1"),
        registration("later", "https://example.org/2"),
    );
    let head = create(
        store,
        NewTask {
            config: Some(Box::new(first.clone())),
            ..new_task("t")
        },
    )
    .await;
    expect_ok(
        store.put_config(&head, &later).await,
        "a webhook is registered",
    );
    let begun = push(store, &head, "first").await;
    let begun =
        begun.unwrap_or_else(|| panic!("rule broken: a webhook that came with its task is found"));
    expect_eq(
        &begun.registration,
        &first,
        "a webhook is found as it was registered",
    );
    expect_eq(
        &begun.delivery,
        &DeliveryProgress::default(),
        "one that came with its task begins with the first entry",
    );
    let position = push(store, &head, "later")
        .await
        .map(|push| push.delivery.position);
    expect_eq(
        position,
        Some(Seq(1)),
        "one that came later begins behind what was there",
    );
    expect_eq(
        push(store, &head, "none").await,
        None,
        "a webhook that is not there is not found",
    );
    let stranger = Head {
        scope: scope("bob"),
        ..head.clone()
    };
    expect_eq(
        push(store, &stranger, "first").await,
        None,
        "a webhook of another scope is as good as none",
    );

    let state = DeliveryState::Failed("it said 410".to_owned());
    let delivery = DeliveryProgress {
        position: Seq(7),
        attempts: 3,
        due: super::timestamp(9_000),
        state,
    };
    let stopped = Webhook {
        delivery: delivery.clone(),
        ..begun.clone()
    };
    expect_true(
        record_delivery(store, &stopped).await,
        "how far deliveries are is recorded",
    );
    expect_eq(
        push(store, &head, "first").await,
        Some(stopped.clone()),
        "what was recorded is read",
    );

    expect_ok(
        store.put_config(&head, &first).await,
        "a webhook is registered anew",
    );
    expect_true(
        !record_delivery(store, &stopped).await,
        "what belongs to an older registration is not recorded",
    );
    let again = push(store, &head, "first").await.map(|push| push.delivery);
    let expected = DeliveryProgress {
        position: Seq(7),
        ..DeliveryProgress::default()
    };
    expect_eq(
        again,
        Some(expected),
        "one that is registered anew goes on where it was, and is open again",
    );

    expect_ok(
        store.delete_config(&head, &"first".into()).await,
        "a webhook is removed",
    );
    expect_true(
        !record_delivery(store, &stopped).await,
        "nothing is recorded for a webhook that was removed",
    );
    expect_eq(
        push(store, &head, "first").await,
        None,
        "a webhook that was removed is not found",
    );
}

async fn webhooks_are_found_by_how_they_stand(store: &dyn Store) {
    let listed = async |filter, after, limit| {
        let pushes = expect_ok(
            store.list_webhooks(filter, after, limit).await,
            "webhooks can be looked through",
        );
        pushes
            .into_iter()
            .map(|push| (push.task.id.to_string(), push.number))
            .collect::<Vec<_>>()
    };
    let mut heads = Vec::new();
    for (owner, id) in [("ann", "t0"), ("bob", "t1"), ("ann", "t2"), ("bob", "t3")] {
        let config = Some(Box::new(registration("hook", "https://example.org")));
        heads.push(
            create(
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
    let open = listed(WebhookFilter::Active, None, 10).await;
    let ids: Vec<_> = open.iter().map(|(id, _)| id.as_str()).collect();
    expect_eq(
        ids,
        vec!["t0", "t1", "t2", "t3"],
        "webhooks of every scope come in their order",
    );
    let behind = listed(WebhookFilter::Active, Some(open[0].1), 2).await;
    expect_eq(behind, open[1..3].to_vec(), "webhooks come in pages");
    for (head, state) in heads.iter().zip([
        DeliveryState::Finished,
        DeliveryState::Failed("gone".to_owned()),
        DeliveryState::Failed("lost".to_owned()),
    ]) {
        let Some(mut push) = push(store, head, "hook").await else {
            panic!("rule broken: a webhook is found")
        };
        push.delivery.state = state;
        expect_true(
            record_delivery(store, &push).await,
            "how a webhook stands is recorded",
        );
    }
    expect_eq(
        listed(WebhookFilter::Active, None, 10).await,
        open[3..].to_vec(),
        "what is over or given up is not open",
    );
    expect_eq(
        listed(WebhookFilter::Failed, None, 10).await,
        open[1..3].to_vec(),
        "what was given up is found",
    );
    expect_ok(store.remove(&heads[1..2]).await, "a task is removed");
    expect_eq(
        listed(WebhookFilter::Failed, None, 10).await,
        open[2..3].to_vec(),
        "webhooks go with their task",
    );
}

async fn a_removed_task_leaves_nothing(store: &dyn Store) {
    let full = || {
        let mut task = new_task("t");
        task.alias = Some("alias".into());
        task.config = Some(Box::new(registration("hook", "https://example.org")));
        task.batch.key = key("k", 1);
        task
    };
    let head = create(store, full()).await;
    let message = Batch {
        key: key("k2", 1),
        ..status_batch(TaskState::Completed, 2_000)
    };
    expect_ok(
        store.append(&head, Seq(1), &message).await,
        "a batch is added",
    );
    let snapshot = snapshot(&head, 5);
    expect_ok(
        store.save_snapshot(&head, Seq(2), &snapshot).await,
        "a fold can be kept",
    );
    for _ in 0..2 {
        expect_ok(
            store.remove(std::slice::from_ref(&head)).await,
            "removing is no error, once or twice",
        );
    }
    expect_removed(store, &head).await;
    let again = Batch {
        key: key("k2", 2),
        ..status_batch(TaskState::Working, 2_000)
    };
    let refused = store.append(&head, Seq(2), &again).await;
    expect_true(
        matches!(refused, Err(Error::Conflict)),
        "nothing is added to a task that was removed",
    );
    expect_ok(
        store.save_snapshot(&head, Seq(2), &snapshot).await,
        "keeping for a removed task is no error",
    );
    expect_ok(
        store.put_config(&head, &registration("hook", "u")).await,
        "registering for a removed task is no error",
    );
    expect_removed(store, &head).await;
    // Id, alias and keys are free again, and the new task is a new one.
    let opened = expect_ok(
        store.create(&full()).await,
        "what belonged to a removed task is free again",
    );
    let CreateResult::Created(new) = opened else {
        panic!("rule broken: a key goes with its task")
    };
    expect_eq(
        log(store, &new).await.len(),
        1,
        "a task with the id of a removed one begins anew",
    );
    expect_eq(
        expect_ok(store.load_snapshot(&new).await, "kept"),
        None,
        "a fold goes with its task",
    );
    expect_eq(
        configs(store, &new).await.len(),
        1,
        "webhooks go with their task",
    );
    expect_ok(
        store.append(&new, Seq(1), &again).await,
        "a key goes with its task",
    );
}

async fn expect_removed(store: &dyn Store, head: &Head) {
    for name in ["t", "alias"] {
        expect_eq(
            find(store, "ann", name).await,
            None,
            "a removed task is not found",
        );
    }
    expect_eq(
        log(store, head).await,
        Vec::new(),
        "a removed task has no log",
    );
    expect_eq(
        expect_ok(store.load_snapshot(head).await, "kept"),
        None,
        "a removed task has nothing kept",
    );
    expect_eq(
        configs(store, head).await,
        Vec::new(),
        "a removed task has no webhooks",
    );
    let page = expect_ok(
        store
            .list(
                &scope("ann"),
                &TaskQuery {
                    limit: 10,
                    ..TaskQuery::default()
                },
            )
            .await,
        "list",
    );
    expect_eq(
        (page.tasks, page.total),
        (Vec::new(), 0),
        "a removed task is not listed",
    );
    expect_eq(
        expect_ok(store.count_ended().await, "count"),
        0,
        "a removed task is not counted",
    );
    expect_eq(
        expect_ok(store.list_unfinished(None, 10).await, "unfinished"),
        Vec::new(),
        "a removed task is not swept",
    );
    expect_eq(
        expect_ok(store.list_ended(super::timestamp(9_000), 10).await, "ended"),
        Vec::new(),
        "a removed task is not swept",
    );
}

async fn many_are_removed_at_once(store: &dyn Store) {
    let heads = super::create_all(
        store,
        (0..50).map(|number| new_task(&format!("t{number:02}"))),
    )
    .await;
    expect_ok(store.remove(&[]).await, "removing nothing is no error");
    expect_ok(
        store.remove(&heads[10..]).await,
        "many tasks are removed at once",
    );
    let left = expect_ok(
        store.list_unfinished(None, 100).await,
        "unfinished tasks can be swept",
    );
    expect_eq(
        left,
        heads[..10].to_vec(),
        "removing leaves the other tasks alone",
    );
    let page = expect_ok(
        store
            .list(
                &scope("ann"),
                &TaskQuery {
                    limit: 1,
                    ..TaskQuery::default()
                },
            )
            .await,
        "list",
    );
    expect_eq(page.total, 10, "the total follows what is removed");
}
