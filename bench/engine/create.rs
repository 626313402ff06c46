//! (d) A create among many tasks, against one among few; (e) what a stored task keeps in memory.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use attache::model::{Caller, ContextId, Event, Message, Scope, TaskId, TaskState, Timestamp};
use attache::store::sqlite::{Options, Synchronous};
use attache::store::{Batch, Key, Memory, NewTask, Sqlite, Store};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Effort;
use crate::machine::{Cost, cost, memory};

/// Creates that wait at the same time, and so share a commit.
const GROUP: usize = 32;

/// A short measurement is done with as many files as give as many creates.
const SHORT: usize = 4_096;

pub(crate) fn measure(effort: Effort) {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    for keyed in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let few = few(&runtime, folder.path(), effort, keyed);
        let file = folder.path().join("many.db");
        let (small, grown) = fill(&runtime, &file, effort.many, keyed);
        let many = add(&runtime, &file, effort.many, effort.creates, keyed);
        let ((few, few_cpu), (many, many_cpu)) = (few.per(effort.creates), many.per(effort.creates));
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

fn few(runtime: &Runtime, folder: &Path, effort: Effort, keyed: bool) -> Cost {
    let mut sum = Cost::default();
    for number in 0..effort.creates.div_ceil(SHORT) {
        let file = folder.join(format!("few-{number}.db"));
        fill(runtime, &file, effort.few, keyed);
        sum.add(add(runtime, &file, effort.few, SHORT.min(effort.creates), keyed));
    }
    sum
}

/// Fills a file without waiting for the disk; gives the memory at a tenth and at the end.
fn fill(runtime: &Runtime, file: &Path, tasks: usize, keyed: bool) -> (i64, i64) {
    let options = Options { synchronous: Synchronous::Normal, ..Options::default() };
    let store = Arc::new(Sqlite::open(file, options).expect("a new file"));
    runtime.block_on(create(&store, 0..tasks / 10, keyed));
    let small = memory();
    runtime.block_on(create(&store, tasks / 10..tasks, keyed));
    let grown = memory();
    runtime.block_on(store.close());
    (small, grown)
}

/// What it costs to add so many tasks, with all that closing has to tidy up.
fn add(runtime: &Runtime, file: &Path, stored: usize, tasks: usize, keyed: bool) -> Cost {
    let store = Arc::new(Sqlite::open(file, Options::default()).expect("the file"));
    let (cost, ()) = cost(|| {
        runtime.block_on(create(&store, stored..stored + tasks, keyed));
        runtime.block_on(store.close());
    });
    cost
}

/// Each a millisecond after the one before.
async fn create<S: Store>(store: &Arc<S>, tasks: Range<usize>, keyed: bool) {
    let mut callers = JoinSet::new();
    for number in tasks {
        if callers.len() == GROUP {
            callers.join_next().await.expect("one of them").expect("no panic");
        }
        let store = store.clone();
        callers.spawn(async move {
            store.create(&new_task(number, keyed)).await.expect("a new task");
        });
    }
    callers.join_all().await;
}

/// A task that came and ended in one turn.
fn new_task(number: usize, keyed: bool) -> NewTask {
    let time = Timestamp::from_millis(1_700_000_000_000 + number as i64).expect("a time");
    let (id, context_id) = (TaskId::random(), ContextId::random());
    let key = keyed.then(|| Key { text: TaskId::random().to_string(), body: [7; 32] });
    let events = vec![
        Event::Created { id: id.clone(), context_id: context_id.clone(), metadata: None },
        Event::Message(Arc::new(Message::user("A question of about the usual length, in a few words."))),
        Event::TurnStarted,
        Event::TurnEnded,
    ];
    let state = TaskState::Completed;
    let batch = Batch { time, events, state, status_time: time, parked: false, key, turn: 1 };
    let scope = Scope { agent: "bench".into(), tenant: "".into(), owner: Caller::anonymous() };
    NewTask { id, scope, context_id, alias: None, config: None, batch }
}

fn in_memory(runtime: &Runtime, tasks: usize) -> i64 {
    let store = Arc::new(Memory::new());
    let before = memory();
    runtime.block_on(create(&store, 0..tasks, false));
    memory() - before
}
