//! Tests of the SQLite store: group commit, shutdown, query plans.

mod failures;
mod files;

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::model::{Caller, Event, PushConfig, Task, TaskState, Version};
use crate::store::{Error, IdempotencyKey, WriterRole, conformance};

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
async fn a_removed_task_leaves_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    for _ in 0..2 {
        let mut task = new_task("t");
        task.alias = Some("alias".into());
        task.config = Some(Box::new(PushRegistration {
            config: PushConfig::new("https://example.org"),
            version: Version::V1,
        }));
        task.batch.key = Some(IdempotencyKey {
            text: "k".into(),
            body: [7; 32],
            oldest_valid: Timestamp::default(),
        });
        let CreateResult::Created(head) = store.create(&task).await.unwrap() else {
            panic!("the task was removed")
        };
        store
            .save_snapshot(&head, head.position, &Snapshot::default())
            .await
            .unwrap();
        assert_eq!(count_rows(&path), 5);
        store.remove(&[head]).await.unwrap();
        assert_eq!(count_rows(&path), 0);
    }
}

/// Counts the rows that belong to tasks.
fn count_rows(path: &Path) -> i64 {
    let counts = ["task", "batch", "snapshot", "webhook", "idempotency_key"]
        .map(|table| format!("(SELECT count(*) FROM {table})"));
    let sql = format!("SELECT {}", counts.join(" + "));
    Connection::open(path)
        .unwrap()
        .query_row(&sql, (), |row| row.get(0))
        .unwrap()
}

/// Returns the query plan of a statement.
async fn plan(store: &Sqlite, sql: String) -> String {
    let rows = store.reader_pool.run(move |connection| {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
        // Without values for the parameters.
        let mut rows = statement.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next()? {
            steps.push(row.get::<_, String>(3)?);
        }
        Ok(steps)
    });
    rows.await.unwrap().join("; ")
}

#[tokio::test]
async fn queries_use_their_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    for (sql, expected) in [
        (
            "SELECT position FROM task WHERE id = 'x'",
            "SEARCH task USING INDEX task_id (id=?)",
        ),
        (
            "SELECT position FROM task WHERE id = 'x' AND scope = 1",
            "SEARCH task USING INDEX task_id (id=?)",
        ),
        (
            "SELECT position FROM task WHERE scope = 1 AND alias = 'x'",
            "SEARCH task USING INDEX task_alias (scope=? AND alias=?)",
        ),
        (
            "SELECT digest FROM idempotency_key WHERE scope = 1 AND text = 'x' AND time >= 5",
            "SEARCH idempotency_key USING INDEX sqlite_autoindex_idempotency_key_1 (scope=? AND text=?)",
        ),
        (
            "SELECT number FROM idempotency_key WHERE time < 5 ORDER BY time LIMIT 5",
            "SEARCH idempotency_key USING COVERING INDEX idempotency_key_time (time<?)",
        ),
        (
            "DELETE FROM idempotency_key WHERE task = 5",
            "SEARCH idempotency_key USING COVERING INDEX idempotency_key_task (task=?)",
        ),
        (
            "SELECT id FROM task INDEXED BY task_unfinished WHERE has_ended = 0 AND id > 'x' ORDER BY id LIMIT 5",
            "SEARCH task USING COVERING INDEX task_unfinished (id>?)",
        ),
        (
            "SELECT number FROM task INDEXED BY task_ended WHERE has_ended = 1 AND status_time < 5
             ORDER BY status_time LIMIT 5",
            "SEARCH task USING COVERING INDEX task_ended (status_time<?)",
        ),
        (
            "SELECT body FROM batch WHERE task = 1 AND last_position > 5 ORDER BY last_position",
            "SEARCH batch USING PRIMARY KEY (task=? AND last_position>?)",
        ),
    ] {
        assert_eq!(plan(&store, sql.to_owned()).await, expected, "{sql}");
    }
}

/// Every combination of the filters of a list is a search of an index, for the page and for the total.
#[tokio::test]
async fn d19_every_filter_of_a_list_has_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    for (context_id, state, searched) in [
        (None, None, "task_by_state (scope=? AND state=?"),
        (
            None,
            Some(TaskState::Working),
            "task_by_state (scope=? AND state=?",
        ),
        (
            Some("c".into()),
            None,
            "task_by_context (scope=? AND context=?",
        ),
        (
            Some("c".into()),
            Some(TaskState::Working),
            "task_by_context (scope=? AND context=?",
        ),
    ] {
        for since in [None, Some(time(5))] {
            let lower = since.map_or("", |_| " AND status_time>?");
            for after in [None, Some((time(9), TaskId::from("x")))] {
                let upper = after.as_ref().map_or("", |_| " AND status_time<?");
                let query = TaskQuery {
                    context_id: context_id.clone(),
                    state,
                    since,
                    after,
                    limit: 5,
                };
                for filter in list::ListFilter::for_query(1, &query) {
                    let total = plan(&store, filter.select("count(*)")).await;
                    assert_eq!(
                        total,
                        format!("SEARCH task USING COVERING INDEX {searched}{lower})"),
                        "{query:?}"
                    );
                    let page = plan(&store, filter.into_page(&query).0).await;
                    // Only tasks that share a status time are sorted.
                    assert_eq!(
                        page,
                        format!(
                            "SEARCH task USING INDEX {searched}{lower}{upper}); USE TEMP B-TREE FOR LAST TERM OF ORDER BY"
                        ),
                        "{query:?}"
                    );
                }
            }
        }
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
        writer: WriterRole::Holder,
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
        Error::Failed(cause) | Error::Damaged(cause) => cause.to_string(),
        other => panic!("{other:?}"),
    }
}
