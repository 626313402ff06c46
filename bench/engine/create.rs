//! (d) A create among many tasks, against one among few; (e) what a stored task keeps in memory.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use attache::model::{Caller, ContextId, Event, Message, Scope, TaskId, TaskState, Timestamp};
use attache::store::sqlite::{Options, Synchronous};
use attache::store::{Batch, IdempotencyKey, Memory, NewTask, Sqlite, Store};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Effort;
use crate::machine::{Cost, cost, memory};

/// Creates that wait at the same time, and so share a commit.
const GROUP: usize = 32;

/// So many creates are one turn of each.
const SHORT: usize = 4_096;

pub(crate) fn measure(effort: Effort) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    for keyed in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("many.db");
        let (small, grown) = fill(&runtime, &file, effort.many, keyed);
        let (few, many) = few_and_many(&runtime, folder.path(), &file, effort, keyed);
        let ((few, few_cpu), (many, many_cpu)) =
            (few.per(effort.creates), many.per(effort.creates));
        println!(
            "| (d) create{}, {} stored against {}, {GROUP} at a time | {few:.1} µs, CPU {few_cpu:.1} | {many:.1} µs, CPU {many_cpu:.1} | {:.2} | {:.2} |",
            if keyed { " with a key" } else { "" },
            effort.many,
            effort.few,
            many / few,
            many_cpu / few_cpu,
        );
        let (small, grown) = (small as f64 / 1e6, grown as f64 / 1e6);
        println!(
            "| (e) SQLite: memory at {} tasks against a tenth of them | {small:.1} MB | {grown:.1} MB | | |",
            effort.many
        );
    }
    let tasks = effort.many / 5;
    println!(
        "| (e) memory: bytes for each of {tasks} tasks | | {} | | |",
        in_memory(&runtime, tasks) / tasks as i64
    );
}

/// What it costs to add tasks to a file of few and to one of many, in turn, with all that closing has to tidy up. Each time
/// there is a new file of few.
fn few_and_many(
    runtime: &Runtime,
    folder: &Path,
    file: &Path,
    effort: Effort,
    keyed: bool,
) -> (Cost, Cost) {
    let (mut of_few, mut of_many) = (Cost::default(), Cost::default());
    let tasks = SHORT.min(effort.creates);
    let many = Arc::new(Sqlite::open(file, Options::default()).expect("the file"));
    for number in 0..effort.creates.div_ceil(SHORT) {
        let file = folder.join(format!("few-{number}.db"));
        fill(runtime, &file, effort.few, keyed);
        let few = Arc::new(Sqlite::open(&file, Options::default()).expect("the file"));
        of_few.add(add(runtime, &few, effort.few, tasks, keyed));
        of_few.add(close(runtime, &few));
        of_many.add(add(
            runtime,
            &many,
            effort.many + number * tasks,
            tasks,
            keyed,
        ));
    }
    of_many.add(close(runtime, &many));
    (of_few, of_many)
}

/// Fills a file without waiting for the disk; gives the memory at a tenth and at the end.
fn fill(runtime: &Runtime, file: &Path, tasks: usize, keyed: bool) -> (i64, i64) {
    let options = Options {
        synchronous: Synchronous::Normal,
        ..Options::default()
    };
    let store = Arc::new(Sqlite::open(file, options).expect("a new file"));
    runtime.block_on(create(&store, 0..tasks / 10, keyed));
    let small = memory();
    runtime.block_on(create(&store, tasks / 10..tasks, keyed));
    let grown = memory();
    runtime.block_on(store.close());
    (small, grown)
}

fn add(runtime: &Runtime, store: &Arc<Sqlite>, stored: usize, tasks: usize, keyed: bool) -> Cost {
    cost(|| runtime.block_on(create(store, stored..stored + tasks, keyed))).0
}

fn close(runtime: &Runtime, store: &Sqlite) -> Cost {
    cost(|| runtime.block_on(store.close())).0
}

/// Each a millisecond after the one before.
async fn create<S: Store>(store: &Arc<S>, tasks: Range<usize>, keyed: bool) {
    let mut callers = JoinSet::new();
    for number in tasks {
        if callers.len() == GROUP {
            callers
                .join_next()
                .await
                .expect("one of them")
                .expect("no panic");
        }
        let store = store.clone();
        callers.spawn(async move {
            store
                .create(&new_task(number, keyed))
                .await
                .expect("a new task");
        });
    }
    callers.join_all().await;
}

/// A task that came and ended in one turn.
fn new_task(number: usize, keyed: bool) -> NewTask {
    let time = Timestamp::from_millis(1_700_000_000_000 + number as i64).expect("a time");
    let (id, context_id) = (TaskId::random(), ContextId::random());
    let key = keyed.then(|| IdempotencyKey {
        text: TaskId::random().to_string(),
        body: [7; 32],
    });
    let events = vec![
        Event::Created {
            id: id.clone(),
            context_id: context_id.clone(),
            metadata: None,
        },
        Event::Message(Arc::new(Message::user(
            "A question of about the usual length, in a few words.",
        ))),
        Event::TurnStarted,
        Event::TurnEnded,
    ];
    let state = TaskState::Completed;
    let batch = Batch {
        time,
        events,
        state,
        status_time: time,
        parked: false,
        key,
        turn: 1,
    };
    let scope = Scope {
        agent: "bench".into(),
        tenant: "".into(),
        owner: Caller::anonymous(),
    };
    NewTask {
        id,
        scope,
        context_id,
        alias: None,
        config: None,
        batch,
    }
}

fn in_memory(runtime: &Runtime, tasks: usize) -> i64 {
    let store = Arc::new(Memory::new());
    let before = memory();
    runtime.block_on(create(&store, 0..tasks, false));
    memory() - before
}
