//! Snapshots.

use std::sync::Arc;

use super::{create, expect_eq, expect_ok, new_task, scope, timestamp};
use crate::model::{CallMetadata, Message, Seq, Task, Version};
use crate::store::{Head, Snapshot, Store};

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    keeps_the_latest_snapshot(&make().await).await;
}

async fn keeps_the_latest_snapshot(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let other = create(store, new_task("u")).await;
    let load = async |head: &Head| {
        expect_ok(
            store.load_snapshot(head, usize::MAX).await,
            "`load_snapshot` succeeds",
        )
    };
    expect_eq(load(&head).await, None, "a new task has no snapshot");
    let snapshot_at = |time| snapshot(&head, time);
    for (at, time, expected) in [(5, 50, (5, 50)), (9, 90, (9, 90)), (7, 70, (9, 90))] {
        expect_ok(
            store
                .save_snapshot(&head, Seq(at), &snapshot_at(time))
                .await,
            "`save_snapshot` succeeds",
        );
        let expected = Some((Seq(expected.0), snapshot_at(expected.1)));
        expect_eq(
            load(&head).await,
            expected,
            "the snapshot with the highest position is kept, unchanged",
        );
    }
    let too_large = expect_ok(
        store.load_snapshot(&head, 10).await,
        "`load_snapshot` with a limit succeeds",
    );
    expect_eq(
        too_large,
        None,
        "a snapshot above `max_bytes` is not loaded",
    );
    expect_eq(load(&other).await, None, "a snapshot belongs to one task");
    let stranger = Head {
        scope: scope("bob"),
        ..head.clone()
    };
    expect_ok(
        store
            .save_snapshot(&stranger, Seq(99), &snapshot_at(0))
            .await,
        "`save_snapshot` for a task of another scope succeeds",
    );
    expect_eq(
        load(&stranger).await,
        None,
        "`load_snapshot` returns nothing for a task of another scope",
    );
    expect_eq(
        load(&head).await,
        Some((Seq(9), snapshot_at(90))),
        "`save_snapshot` with another scope changes nothing",
    );
}

/// Returns a snapshot with a value in every field but the traces.
pub(super) fn snapshot(head: &Head, time: i64) -> Snapshot {
    let mut task = Task::submitted(head.id.clone(), head.context_id.clone(), timestamp(time));
    let message = |text: &str| {
        Arc::new(Message {
            message_id: text.into(),
            ..Message::user(text)
        })
    };
    let unanswered = message("unanswered");
    task.history
        .extend([message("answered"), unanswered.clone()]);
    Snapshot {
        task: Arc::new(task),
        unanswered: vec![unanswered],
        traces: Vec::new(),
        turns_ended: 1,
        attempts: 2,
        cancel_requested: true,
        calls: vec![(
            2,
            CallMetadata {
                version: Version::V03,
                extensions: vec!["urn:e".into()],
            },
        )],
    }
}
