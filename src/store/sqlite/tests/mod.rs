//! Tests of the SQLite store: group commit, shutdown, query plans.

mod failures;
mod files;
mod head_cache;
mod id_index;
mod sorted_pages;

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::model::{Caller, Event, PushConfig, Task, TaskState, Version};
use crate::store::{Error, IdempotencyKey, conformance};

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_passes_the_conformance_suite() {
    let folder = tempfile::tempdir().unwrap();
    let number = std::sync::atomic::AtomicUsize::new(0);
    conformance(async || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        open(&folder.path().join(format!("{number}.db")))
    })
    .await;
}

#[tokio::test]
async fn callers_wait_while_the_queue_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        queue_capacity: 1,
        max_readers: 1,
        ..Options::default()
    };
    let store = Arc::new(Sqlite::open(folder.path().join("a.db"), options).unwrap());
    let mut callers = JoinSet::new();
    for number in 0..50 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            let head = create(&store, &format!("t{number}")).await.unwrap();
            store
                .read(&head, Seq(0), ReadLimit::entries(9))
                .await
                .unwrap()
                .len()
        });
    }
    assert_eq!(callers.join_all().await, [1; 50]);
}

#[test]
fn replies_reach_callers_on_every_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder.path().join("a.db")));
    let many = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap()
    };
    let one = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    // A runtime that is idle, and one that was dropped.
    let idle = one();
    idle.block_on(create(&store, "idle")).unwrap();
    many().block_on(create(&store, "gone")).unwrap();
    let here = many();
    let there = many();
    for (ids, there) in [(["a", "b"], &here), (["c", "d"], &there)] {
        let commits = store.commit_counter();
        let blocker = here.block_on(block_writer(&store));
        let before = commits.count();
        let callers = [(&here, ids[0]), (there, ids[1])].map(|(runtime, id)| {
            let store = Arc::clone(&store);
            runtime.spawn(async move { create(&store, id).await.is_ok() })
        });
        while store.writer.queued() < callers.len() {
            std::thread::yield_now();
        }
        drop(blocker);
        for caller in callers {
            let answered = async { tokio::time::timeout(Duration::from_secs(60), caller).await };
            assert!(here.block_on(answered).expect("an answer").unwrap());
        }
        assert_eq!(
            commits.count(),
            before + 2,
            "one commit of the blocker and one of the group"
        );
    }
}

#[tokio::test]
async fn queued_commands_share_one_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = Arc::new(open(&path));
    let commits = store.commit_counter();
    create(&store, "first").await.unwrap();
    assert_eq!(commits.count(), 1);
    let blocker = block_writer(&store).await;
    let mut callers = JoinSet::new();
    for id in ["a", "b", "first", "c"] {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            (
                id,
                create(&store, id).await.map_err(|error| error.to_string()),
            )
        });
    }
    let others = Connection::open(&path).unwrap();
    let probe = {
        let store = Arc::clone(&store);
        JoinSet::from_iter([async move {
            let count = "SELECT count(*) FROM task";
            let command = move |transaction: &mut write::Transaction<'_>| {
                let ours: i64 = transaction
                    .connection
                    .query_row(count, (), |row| row.get(0))?;
                let theirs: i64 = others.query_row(count, (), |row| row.get(0))?;
                Ok(Ok((ours, theirs)))
            };
            store.writer.run(command).await.unwrap()
        }])
    };
    tokio::task::yield_now().await;
    drop(blocker);
    assert_eq!(
        probe.join_all().await,
        [(4, 1)],
        "the group is one transaction, which other connections do not see yet"
    );
    // The blocking command, then all that queued up behind it.
    assert_eq!(commits.count(), 3);
    for (id, result) in callers.join_all().await {
        assert_eq!(
            result.is_err(),
            id == "first",
            "a conflict does not affect the group: {id}"
        );
    }
}

#[tokio::test]
async fn drop_commits_queued_commands() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = Arc::new(open(&path));
    let blocker = block_writer(&store).await;
    let mut callers = JoinSet::new();
    for number in 0..20 {
        let store = Arc::clone(&store);
        callers.spawn(async move { create(&store, &format!("t{number}")).await.is_ok() });
    }
    tokio::task::yield_now().await;
    callers.abort_all();
    while callers.join_next().await.is_some() {}
    drop(blocker);
    drop(Arc::into_inner(store).unwrap());
    assert!(
        !folder.path().join("a.db-wal").exists(),
        "the write-ahead log was checkpointed"
    );
    let page = open(&path)
        .list(
            &scope(),
            &TaskQuery {
                limit: 99,
                ..TaskQuery::default()
            },
        )
        .await
        .unwrap();
    assert_eq!((page.tasks.len(), page.total), (20, 20));
}

#[tokio::test]
async fn a_closed_store_fails_and_releases_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    let head = create(&store, "t").await.unwrap();
    store.find(&head.scope, &head.id).await.unwrap();
    store.close().await;
    store.close().await;
    assert_eq!(
        error_message(create(&store, "u").await),
        "the store is closed"
    );
    assert_eq!(
        error_message(store.find(&head.scope, &head.id).await),
        "the store is closed"
    );
    let again = open(&path);
    assert_eq!(again.find(&head.scope, &head.id).await.unwrap(), Some(head));
}

#[tokio::test]
async fn a_context_is_found_in_every_slice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    let mut expected = Vec::new();
    // Row numbers far apart, as after the removal of most tasks.
    for number in [1_u64, 1_023, 1_024, 5_000, 1 << 40] {
        let id = format!("t{number}");
        expected.push(create(&store, &id).await.unwrap());
        let tool = Connection::open(&path).unwrap();
        tool.execute_batch(&format!(
            "PRAGMA foreign_keys = OFF; UPDATE task SET number = {number} WHERE id = '{id}'"
        ))
        .unwrap();
    }
    expected.sort_by(|a, b| b.id.cmp(&a.id));
    let query = TaskQuery {
        context_id: Some("c".into()),
        limit: 9,
        ..TaskQuery::default()
    };
    assert_eq!(
        store.list(&scope(), &query).await.unwrap(),
        TaskPage {
            tasks: expected,
            total: 5
        }
    );
    let other = TaskQuery {
        context_id: Some("d".into()),
        ..query
    };
    assert_eq!(
        store.list(&scope(), &other).await.unwrap(),
        TaskPage::default()
    );
}

#[tokio::test]
async fn queries_use_their_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let plan = async |sql: &'static str| {
        let rows = store.reader_pool.run(move |connection, _| {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
            let rows = statement.query_map((), |row| row.get::<_, String>(3))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        });
        rows.await.unwrap().join("; ")
    };
    for (sql, expected) in [
        (
            "SELECT id FROM task INDEXED BY task_listed WHERE scope = 1 AND (status_time, id) < (5, 'x')
             ORDER BY status_time DESC, id DESC LIMIT 5",
            "SEARCH task USING COVERING INDEX task_listed (scope=? AND (status_time,id)<(?,?))",
        ),
        (
            "SELECT count(*) FROM task INDEXED BY task_listed WHERE scope = 1 AND state = 3 AND status_time >= 5",
            "SEARCH task USING COVERING INDEX task_listed (scope=? AND status_time>?)",
        ),
        (
            "SELECT position FROM task INDEXED BY task_context WHERE number >> 10 = 5 AND context_hash = 7",
            "SEARCH task USING INDEX task_context (<expr>=? AND context_hash=?)",
        ),
        (
            "SELECT body FROM name WHERE first <= 7 ORDER BY first DESC LIMIT 1",
            "SEARCH name USING INTEGER PRIMARY KEY (rowid<?)",
        ),
        (
            "SELECT position FROM task WHERE number = 7 AND id = 'x' AND scope = 1",
            "SEARCH task USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (
            "SELECT position FROM task WHERE scope = 1 AND alias = 'x'",
            "SEARCH task USING INDEX task_alias (scope=? AND alias=?)",
        ),
        (
            "SELECT id FROM task INDEXED BY task_unfinished WHERE ended = 0 AND id > 'x' ORDER BY id LIMIT 5",
            "SEARCH task USING COVERING INDEX task_unfinished (id>?)",
        ),
        (
            "SELECT number FROM task INDEXED BY task_ended WHERE ended = 1 AND status_time < 5
             ORDER BY status_time LIMIT 5",
            "SEARCH task USING COVERING INDEX task_ended (status_time<?)",
        ),
        (
            "SELECT body FROM batch WHERE task = 1 AND last > 5 ORDER BY last",
            "SEARCH batch USING PRIMARY KEY (task=? AND last>?)",
        ),
    ] {
        assert_eq!(plan(sql).await, expected, "{sql}");
    }
}

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, Options::default()).unwrap()
}

fn scope() -> Scope {
    Scope {
        agent: Arc::from("agent"),
        tenant: Arc::from("tenant"),
        owner: Caller::new("ann"),
    }
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis).unwrap()
}

fn batch(text: &str, state: TaskState, millis: i64) -> Batch {
    let events = vec![Event::Ignored {
        reason: text.to_owned(),
    }];
    Batch {
        time: time(millis),
        events,
        state,
        status_time: time(millis),
        parked: false,
        key: None,
        turn: 0,
    }
}

fn new_task(id: &str) -> NewTask {
    let batch = batch("a", TaskState::Submitted, 1_000);
    NewTask {
        id: id.into(),
        scope: scope(),
        context_id: "c".into(),
        alias: None,
        config: None,
        batch,
    }
}

async fn create(store: &Sqlite, id: &str) -> Result<Head> {
    match store.create(&new_task(id)).await? {
        CreateResult::Created(head) => Ok(head),
        CreateResult::Replayed(record) => Ok(record.head),
    }
}

/// Blocks the writer inside a transaction until the returned sender is dropped.
async fn block_writer(store: &Arc<Sqlite>) -> SyncSender<()> {
    let (blocker, released) = sync_channel::<()>(0);
    let (started, has_started) = tokio::sync::oneshot::channel();
    let command = {
        let store = Arc::clone(store);
        async move {
            let mut started = Some(started);
            let wait = move |_: &mut write::Transaction<'_>| {
                let _ = started.take().map(|started| started.send(()));
                let _ = released.recv();
                Ok(Ok(()))
            };
            store.writer.run(wait).await
        }
    };
    // The first poll sends the command. Its reply is dropped.
    tokio::select! {
        biased;
        result = command => result.unwrap(),
        started = has_started => started.unwrap(),
    }
    blocker
}

/// Returns the message that an operator reads.
fn error_message<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result.unwrap_err() {
        Error::Failed(cause) => cause.to_string(),
        other => panic!("{other:?}"),
    }
}
