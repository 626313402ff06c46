//! Many tasks at once, and large ones.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{batch, create, expect_eq, expect_ok, expect_true, log, new_task, note};
use crate::model::{Seq, TaskState};
use crate::store::{CreateResult, Error, Head, Store};

const TASKS: usize = 40;
const BATCHES: u64 = 25;

pub(super) async fn check<S: Store>(make: &impl AsyncFn() -> S) {
    tasks_grow_side_by_side(make().await).await;
    writers_of_one_log_take_turns(make().await).await;
    a_large_batch_is_kept_whole(&make().await).await;
    a_large_text_is_kept_whole(&make().await).await;
}

async fn tasks_grow_side_by_side<S: Store>(store: S) {
    let store = Arc::new(store);
    let mut writers = JoinSet::new();
    for number in 0..TASKS {
        let store = Arc::clone(&store);
        writers.spawn(async move { grow(&*store, &format!("t{number}")).await });
    }
    for head in writers.join_all().await {
        let entries = log(&*store, &head).await;
        expect_eq(
            entries.len() as u64,
            1 + 2 * BATCHES,
            "tasks that grow side by side lose nothing",
        );
        expect_true(
            entries
                .iter()
                .zip(1..)
                .all(|(entry, seq)| entry.seq == Seq(seq)),
            "every log is without a gap",
        );
        let expected = (0..BATCHES).flat_map(|n| [note(format!("{} {n}", head.id)), note("and")]);
        expect_true(
            entries[1..]
                .iter()
                .map(|entry| &entry.event)
                .eq(&expected.collect::<Vec<_>>()),
            "no log gets another's",
        );
    }
}

async fn grow(store: &dyn Store, id: &str) -> Head {
    let head = create(store, new_task(id)).await;
    let mut position = head.position;
    for number in 0..BATCHES {
        let events = vec![note(format!("{id} {number}")), note("and")];
        let added = store
            .append(&head, position, &batch(events, TaskState::Working, 2_000))
            .await;
        let next = expect_ok(
            added,
            "a batch of one task never conflicts with those of others",
        );
        expect_eq(next, Seq(position.0 + 2), "adding returns the new position");
        let read = expect_ok(store.read(&head, position, 10).await, "a log can be read");
        expect_eq(read.len(), 2, "what was added is read at once");
        position = next;
    }
    head
}

async fn writers_of_one_log_take_turns<S: Store>(store: S) {
    let head = Arc::new(create(&store, new_task("t")).await);
    let store = Arc::new(store);
    let mut writers = JoinSet::new();
    for number in 0..8 {
        let (store, head) = (Arc::clone(&store), Arc::clone(&head));
        writers.spawn(async move { add_until_done(&*store, &head, number).await });
    }
    writers.join_all().await;
    let entries = log(&*store, &head).await;
    expect_eq(
        entries.len(),
        1 + 8 * 10,
        "every writer that tries again gets its turn, once",
    );
    expect_true(
        entries
            .iter()
            .zip(1..)
            .all(|(entry, seq)| entry.seq == Seq(seq)),
        "a contended log is without a gap",
    );
    for writer in 0..8 {
        let own: Vec<_> = (0..10).map(|n| note(format!("{writer}/{n}"))).collect();
        let found = entries
            .iter()
            .map(|entry| &entry.event)
            .filter(|event| own.contains(event));
        expect_true(
            found.eq(&own),
            "a writer's batches stand in the order in which it added them",
        );
    }
}

async fn add_until_done(store: &dyn Store, head: &Head, writer: usize) {
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
                    let now = expect_ok(store.find(&head.scope, &head.id).await, "a task is found");
                    let now = now.map_or(position, |head| head.position);
                    expect_true(
                        now > position,
                        "whoever meets a conflict finds what it was with",
                    );
                    position = now;
                }
                Err(error) => {
                    panic!("rule broken: writers of one log meet nothing but conflicts: {error:?}")
                }
            }
        }
    }
}

async fn a_large_batch_is_kept_whole(store: &dyn Store) {
    let mut task = new_task("t");
    task.batch
        .events
        .extend((1..10_000).map(|number| note(format!("{number}"))));
    let expected: Vec<_> = task.batch.entries(Seq(0)).collect();
    let head = match expect_ok(
        store.create(&task).await,
        "a batch of 10,000 events is kept",
    ) {
        CreateResult::Created(head) => head,
        CreateResult::Replayed(record) => record.head,
    };
    expect_eq(
        head.position,
        Seq(10_000),
        "a large batch counts every event",
    );
    expect_true(
        log(store, &head).await == expected,
        "a large batch is read whole",
    );
    let middle = expect_ok(
        store.read(&head, Seq(5_000), 100).await,
        "a large batch can be read in parts",
    );
    expect_true(
        middle == expected[5_000..5_100],
        "a large batch can be read in parts",
    );
}

async fn a_large_text_is_kept_whole(store: &dyn Store) {
    let head = create(store, new_task("t")).await;
    let text = "0123456789abcdeß".repeat(1 << 16);
    let added = store
        .append(
            &head,
            Seq(1),
            &batch(vec![note(&text)], TaskState::Working, 2_000),
        )
        .await;
    expect_ok(added, "a text of a mebibyte is kept");
    let entries = log(store, &head).await;
    expect_true(
        entries
            .last()
            .is_some_and(|entry| entry.event == note(&text)),
        "a large text is read whole",
    );
}
