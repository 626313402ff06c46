//! (a) Durable events per second, against a bare loop that writes the same bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use attache::store::Sqlite;
use attache::store::sqlite::Options;
use rusqlite::{Connection, params};

use crate::Effort;
use crate::machine::{Cost, cost, median};
use crate::server::{Caller, Running};

/// Size of a chunk, typical for the output of a language model.
const BYTES: usize = 50;

pub(crate) fn measure(effort: Effort) {
    for tasks in [1, 100, 1_000] {
        let events = effort.events / tasks * tasks;
        let mut bare = Vec::new();
        let mut ours = Vec::new();
        let mut batches = 0;
        let mut all = 0;
        for _ in 0..effort.rounds {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("tasks.db");
            let (cost, commits) = run(&file, tasks, events / tasks);
            ours.push(cost);
            let logs = logs(&file);
            (batches, all) = (logs.len(), commits);
            bare.push(write(&folder.path().join("bare.db"), &logs, commits));
        }
        let rate =
            |costs: &[Cost]| median(costs.iter().map(|cost| 1e6 / cost.per(events).0).collect());
        let ratio = |part: fn(&Cost) -> Duration| {
            let ratios = bare
                .iter()
                .zip(&ours)
                .map(|(bare, ours)| part(bare).as_secs_f64() / part(ours).as_secs_f64());
            median(ratios.collect())
        };
        println!(
            "| (a) events per second, {tasks} running, {:.0} events a batch, {:.1} batches a commit | {:.0} | {:.0} | {:.2} | {:.2} |",
            events as f64 / batches as f64,
            batches as f64 / all as f64,
            rate(&bare),
            rate(&ours),
            ratio(|cost| cost.time),
            ratio(|cost| cost.cpu),
        );
    }
}

/// Measures from the release of all open tasks until the last one is on disk.
fn run(file: &Path, tasks: usize, events: usize) -> (Cost, usize) {
    let store = Sqlite::open(file, Options::default()).expect("a new file");
    let commits = store.commit_counter();
    let server = Running::start(store);
    let mut caller = Caller::new(server.address);
    for _ in 0..tasks {
        caller.open(events, BYTES);
    }
    let reader = Connection::open(file).expect("the file");
    let mut ended = reader
        .prepare("SELECT count(*) FROM task WHERE has_ended = 1")
        .expect("the schema");
    let before = commits.count();
    let (cost, ()) = cost(|| {
        server.release(tasks);
        while ended
            .query_row((), |row| row.get::<_, i64>(0))
            .expect("a count")
            < tasks as i64
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let commits = usize::try_from(commits.count() - before).expect("a count");
    server.stop();
    (cost, commits)
}

/// Reads the batches from the file in rounds: the first batch of every task, then the second, and so on.
fn logs(file: &Path) -> Vec<(i64, i64, Vec<u8>)> {
    let connection = Connection::open(file).expect("the file");
    let mut statement = connection
        .prepare("SELECT task, last_position, body FROM batch ORDER BY task, last_position")
        .expect("the schema");
    let rows = statement
        .query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .expect("rows");
    let mut rounds = BTreeMap::<usize, Vec<_>>::new();
    let mut before = 0;
    let mut round = 0;
    for row in rows {
        let row: (i64, i64, Vec<u8>) = row.expect("a row");
        round = if row.0 == before { round + 1 } else { 0 };
        before = row.0;
        rounds.entry(round).or_default().push(row);
    }
    // The first round created the tasks, before the measurement started.
    rounds.into_values().skip(1).flatten().collect()
}

/// Writes the rows alone, in the same number of commits.
fn write(file: &Path, logs: &[(i64, i64, Vec<u8>)], commits: usize) -> Cost {
    let connection = Connection::open(file).expect("a new file");
    connection
        .pragma_update(None, "journal_mode", "wal")
        .expect("WAL");
    connection
        .pragma_update(None, "synchronous", "full")
        .expect("FULL");
    let schema = "CREATE TABLE batch (task INTEGER, last INTEGER, body BLOB, PRIMARY KEY (task, last)) STRICT, WITHOUT ROWID";
    connection.execute_batch(schema).expect("a table");
    let (cost, ()) = cost(|| {
        for commit in 0..commits {
            let group = &logs[logs.len() * commit / commits..logs.len() * (commit + 1) / commits];
            connection
                .execute_batch("BEGIN IMMEDIATE")
                .expect("a transaction");
            let mut insert = connection
                .prepare_cached("INSERT INTO batch VALUES (?1, ?2, ?3)")
                .expect("the table");
            for (task, last, body) in group {
                insert.execute(params![task, last, body]).expect("room");
            }
            connection.execute_batch("COMMIT").expect("a commit");
        }
    });
    cost
}
