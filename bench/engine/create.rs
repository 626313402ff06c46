//! (d) Cost of a create in a large store against a small one; (e) memory per stored task.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use attache::model::{Caller, ContextId, Event, Message, Scope, TaskId, TaskState, Timestamp};
use attache::store::sqlite::{Options, Synchronous};
use attache::store::{Batch, IdempotencyKey, Memory, NewTask, Sqlite, Store, WriterRole};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Effort;
use crate::machine::{Cost, cost, memory};

/// Number of concurrent creates, which share a commit.
const GROUP: usize = 32;

/// Number of creates per store before the measurement switches to the other store.
const CREATES_PER_ROUND: usize = 4_096;

pub(crate) fn measure(effort: Effort) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    for keyed in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("many.db");
        let (small, grown) = fill(&runtime, &file, effort.many, keyed);
        let (few, many) = measure_small_and_large(&runtime, folder.path(), &file, effort, keyed);
        let (few, few_cpu) = few.per(effort.creates);
        let (many, many_cpu) = many.per(effort.creates);
        println!(
            "| (d) create{}, {} stored against {}, {GROUP} at a time | {few:.1} µs, CPU {few_cpu:.1} | {many:.1} µs, CPU {many_cpu:.1} | {:.2} | {:.2} |",
            if keyed { " with a key" } else { "" },
            effort.many,
            effort.few,
            many / few,
            many_cpu / few_cpu,
        );
        let small = small as f64 / 1e6;
        let grown = grown as f64 / 1e6;
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

/// Measures creates in a small and in a large file, alternately, including the cost of closing. Each round has a new small
/// file.
fn measure_small_and_large(
    runtime: &Runtime,
    folder: &Path,
    file: &Path,
    effort: Effort,
    keyed: bool,
) -> (Cost, Cost) {
    let mut few_cost = Cost::default();
    let mut many_cost = Cost::default();
    let tasks = CREATES_PER_ROUND.min(effort.creates);
    let many = Arc::new(Sqlite::open(file, Options::default()).expect("the file"));
    for number in 0..effort.creates.div_ceil(CREATES_PER_ROUND) {
        let file = folder.join(format!("few-{number}.db"));
        fill(runtime, &file, effort.few, keyed);
        let few = Arc::new(Sqlite::open(&file, Options::default()).expect("the file"));
        few_cost.add(add(runtime, &few, effort.few, tasks, keyed));
        few_cost.add(close(runtime, &few));
        many_cost.add(add(
            runtime,
            &many,
            effort.many + number * tasks,
            tasks,
            keyed,
        ));
    }
    many_cost.add(close(runtime, &many));
    (few_cost, many_cost)
}

/// Fills a file without syncing. Returns the memory at a tenth of the tasks and at the end.
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

/// Creates tasks whose timestamps are one millisecond apart.
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

/// Returns a task that was created and ended in one turn.
fn new_task(number: usize, keyed: bool) -> NewTask {
    let time = Timestamp::from_millis(1_700_000_000_000 + number as i64).expect("a time");
    let id = TaskId::random();
    let context_id = ContextId::random();
    let key = keyed.then(|| IdempotencyKey {
        text: TaskId::random().to_string(),
        body: [7; 32],
        oldest_valid: Timestamp::default(),
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
        writer: WriterRole::Holder,
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
