//! Concurrent writes, and large batches.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{batch, create, expect_eq, expect_ok, expect_true, log, new_task, note};
use crate::model::{Seq, TaskState};
use crate::store::{CreateResult, Error, Head, ReadLimit, Store};

const TASKS: usize = 40;
const BATCHES: u64 = 25;

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    appends_to_different_tasks_concurrently(make().await).await;
    appends_to_one_task_concurrently(make().await).await;
    accepts_a_large_batch(&make().await).await;
    accepts_a_large_text(&make().await).await;
}

async fn appends_to_different_tasks_concurrently<S: Store>(store: S) {
    let store = Arc::new(store);
    let mut writers = JoinSet::new();
    for number in 0..TASKS {
        let store = Arc::clone(&store);
        writers.spawn(async move { append_batches(&*store, &format!("t{number}")).await });
    }
    for head in writers.join_all().await {
        let entries = log(&*store, &head).await;
        expect_eq(
            entries.len() as u64,
            1 + 2 * BATCHES,
            "concurrent appends to different tasks are not lost",
        );
        expect_true(
            entries
                .iter()
                .zip(1..)
                .all(|(entry, seq)| entry.seq == Seq(seq)),
            "positions have no gap",
        );
        let expected = (0..BATCHES).flat_map(|n| [note(format!("{} {n}", head.id)), note("and")]);
        expect_true(
            entries[1..]
                .iter()
                .map(|entry| &entry.event)
                .eq(&expected.collect::<Vec<_>>()),
            "a log has only its own entries",
        );
    }
}

async fn append_batches(store: &dyn Store, id: &str) -> Head {
    let head = create(store, new_task(id)).await;
    let mut position = head.position;
    for number in 0..BATCHES {
        let events = vec![note(format!("{id} {number}")), note("and")];
        let added = store
            .append(&head, position, &batch(events, TaskState::Working, 2_000))
            .await;
        let next = expect_ok(added, "batches of different tasks do not conflict");
        expect_eq(
            next,
            Seq(position.0 + 2),
            "`append` returns the position of the last entry",
        );
        let read = expect_ok(
            store.read(&head, position, ReadLimit::entries(10)).await,
            "`read` succeeds",
        );
        expect_eq(read.len(), 2, "`read` returns an appended batch at once");
        position = next;
    }
    head
}

async fn appends_to_one_task_concurrently<S: Store>(store: S) {
    let head = Arc::new(create(&store, new_task("t")).await);
    let store = Arc::new(store);
    let mut writers = JoinSet::new();
    for number in 0..8 {
        let store = Arc::clone(&store);
        let head = Arc::clone(&head);
        writers.spawn(async move { append_with_retries(&*store, &head, number).await });
    }
    writers.join_all().await;
    let entries = log(&*store, &head).await;
    expect_eq(
        entries.len(),
        1 + 8 * 10,
        "every writer that retries appends each batch once",
    );
    expect_true(
        entries
            .iter()
            .zip(1..)
            .all(|(entry, seq)| entry.seq == Seq(seq)),
        "positions of a contended log have no gap",
    );
    for writer in 0..8 {
        let own: Vec<_> = (0..10).map(|n| note(format!("{writer}/{n}"))).collect();
        let found = entries
            .iter()
            .map(|entry| &entry.event)
            .filter(|event| own.contains(event));
        expect_true(found.eq(&own), "batches of one writer keep their order");
    }
}

async fn append_with_retries(store: &dyn Store, head: &Head, writer: usize) {
    let mut position = head.position;
    for number in 0..10 {
        let batch = batch(
            vec![note(format!("{writer}/{number}"))],
            TaskState::Working,
            2_000,
        );
        loop {
            match store.append(head, position, &batch).await {
                Ok(next) => break position = next,
                Err(Error::Conflict) => {
                    let now = expect_ok(store.find(&head.scope, &head.id).await, "`find` succeeds");
                    let now = now.map_or(position, |head| head.position);
                    expect_true(
                        now > position,
                        "after `Conflict`, `find` returns a later position",
                    );
                    position = now;
                }
                Err(error) => {
                    panic!("rule broken: concurrent `append` fails with `Conflict` only: {error:?}")
                }
            }
        }
    }
}

async fn accepts_a_large_batch(store: &dyn Store) {
    let mut task = new_task("t");
    task.batch
        .events
        .extend((1..10_000).map(|number| note(format!("{number}"))));
    let expected: Vec<_> = task.batch.entries(Seq(0)).collect();
    let head = match expect_ok(
        store.create(&task).await,
        "`create` accepts a batch of 10,000 events",
    ) {
        CreateResult::Created(head) => head,
        CreateResult::Replayed(record) => record.head,
    };
    expect_eq(
        head.position,
        Seq(10_000),
        "the position counts every event of a large batch",
    );
    expect_true(
        log(store, &head).await == expected,
        "`read` returns a large batch completely",
    );
    let middle = expect_ok(
        store.read(&head, Seq(5_000), ReadLimit::entries(100)).await,
        "`read` returns a part of a large batch",
    );
    expect_true(
        middle == expected[5_000..5_100],
        "`read` returns a part of a large batch",
    );
}

async fn accepts_a_large_text(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let text = "0123456789abcdeß".repeat(1 << 16);
    let added = store
        .append(
            &head,
            Seq(1),
            &batch(vec![note(&text)], TaskState::Working, 2_000),
        )
        .await;
    expect_ok(added, "`append` accepts a text of 1 MiB");
    let entries = log(store, &head).await;
    expect_true(
        entries
            .last()
            .is_some_and(|entry| entry.event == note(&text)),
        "`read` returns a text of 1 MiB unchanged",
    );
}
