//! Removal of tasks.

use super::snapshots::snapshot;
use super::webhooks::configs;
use super::{
    append, create, create_all, expect_eq, expect_ok, expect_true, find, key, log, new_task,
    registration, scope, status_batch, timestamp,
};
use crate::model::{Seq, TaskState};
use crate::store::{Batch, CreateResult, Error, Head, Store, TaskQuery};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    remove_leaves_nothing(&make().await).await;
    removes_many_tasks(&make().await).await;
}

async fn remove_leaves_nothing(store: &dyn Store) {
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
    append(store, &head, Seq(1), &message).await;
    let snapshot = snapshot(&head, 5);
    expect_ok(
        store.save_snapshot(&head, Seq(2), &snapshot).await,
        "`save_snapshot` succeeds",
    );
    for _ in 0..2 {
        expect_ok(
            store.remove(std::slice::from_ref(&head)).await,
            "`remove` succeeds, also the second time",
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
        "`append` to a removed task is `Conflict`",
    );
    expect_ok(
        store.save_snapshot(&head, Seq(2), &snapshot).await,
        "`save_snapshot` for a removed task succeeds",
    );
    expect_ok(
        store.put_config(&head, &registration("hook", "u")).await,
        "`put_config` for a removed task succeeds",
    );
    expect_removed(store, &head).await;
    // Id, alias and keys are free again. The new task shares nothing with the removed one.
    let created = expect_ok(
        store.create(&full()).await,
        "`remove` frees id, alias and keys",
    );
    let CreateResult::Created(new) = created else {
        panic!("rule broken: `remove` removes the idempotency keys of the task")
    };
    expect_eq(
        log(store, &new).await.len(),
        1,
        "a task with the id of a removed one has a new log",
    );
    expect_eq(
        expect_ok(
            store.load_snapshot(&new, usize::MAX).await,
            "`load_snapshot` succeeds",
        ),
        None,
        "`remove` removes the snapshot",
    );
    expect_eq(
        configs(store, &new).await.len(),
        1,
        "`remove` removes the webhooks",
    );
    expect_ok(
        store.append(&new, Seq(1), &again).await,
        "`remove` removes the idempotency keys of the task",
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
        "a removed task has no entries",
    );
    expect_eq(
        expect_ok(
            store.load_snapshot(head, usize::MAX).await,
            "`load_snapshot` succeeds",
        ),
        None,
        "a removed task has no snapshot",
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
        "`list` succeeds",
    );
    expect_eq(
        (page.tasks, page.total),
        (Vec::new(), 0),
        "a removed task is not listed",
    );
    expect_eq(
        expect_ok(store.count_ended().await, "`count_ended` succeeds"),
        0,
        "a removed task is not counted",
    );
    expect_eq(
        expect_ok(
            store.list_unfinished(None, 10).await,
            "`list_unfinished` succeeds",
        ),
        Vec::new(),
        "a removed task is not in a sweep",
    );
    expect_eq(
        expect_ok(
            store.list_ended(timestamp(9_000), 10).await,
            "`list_ended` succeeds",
        ),
        Vec::new(),
        "a removed task is not in a sweep",
    );
}

async fn removes_many_tasks(store: &dyn Store) {
    let heads = create_all(
        store,
        (0..50).map(|number| new_task(&format!("t{number:02}"))),
    )
    .await;
    expect_ok(store.remove(&[]).await, "`remove` of no tasks succeeds");
    expect_ok(
        store.remove(&heads[10..]).await,
        "`remove` accepts many tasks",
    );
    let left = expect_ok(
        store.list_unfinished(None, 100).await,
        "`list_unfinished` succeeds",
    );
    expect_eq(
        left,
        heads[..10].to_vec(),
        "`remove` leaves other tasks unchanged",
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
        "`list` succeeds",
    );
    expect_eq(page.total, 10, "the total follows removals");
}
