//! The id index: entries are found in the buffer, during a flush, and in both levels.

use super::super::id_index::IdIndex;
use super::super::sorted_pages::{LARGE_LEVEL, SMALL_LEVEL, SortedPages};
use super::*;

/// Opens a store that flushes after 8 entries, so that a few tasks cause several flushes.
fn open_with_small_flushes(path: &Path) -> Sqlite {
    let options = Options::default();
    let mut database = open::open(path, &options).unwrap();
    database.id_index =
        Arc::new(IdIndex::load_with_threshold(&mut database.connection, 8).unwrap());
    Sqlite::from_database(database, &options).unwrap()
}

/// Returns a task with a webhook and an idempotency key.
fn task_with_key(number: usize) -> NewTask {
    let mut task = new_task(&format!("t{number}"));
    task.config = Some(Box::new(PushRegistration {
        config: PushConfig::new("https://example.org"),
        version: Version::V1,
    }));
    task.batch.key = Some(IdempotencyKey {
        text: format!("k{number}"),
        body: [7; 32],
        oldest_valid: Timestamp::default(),
    });
    task
}

/// Asserts that every task is found by id and by key, and that its id is taken for other scopes.
async fn assert_all_found(store: &Sqlite, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let id: TaskId = format!("t{number}").into();
        let head = store.find(&scope(), &id).await.unwrap().unwrap();
        assert_eq!(head.id, id);
        let again = NewTask {
            id: "other".into(),
            ..task_with_key(number)
        };
        assert!(
            matches!(store.create(&again).await.unwrap(), CreateResult::Replayed(found) if found.head.id == id)
        );
        let stranger = Scope {
            tenant: Arc::from("stranger"),
            ..scope()
        };
        let taken = store
            .create(&NewTask {
                scope: stranger,
                ..new_task(id.as_str())
            })
            .await;
        assert!(matches!(taken, Err(Error::Conflict)));
    }
}

/// Counts the entries of the small level and of the large level.
fn count_indexed(path: &Path) -> (usize, usize) {
    let connection = Connection::open(path).unwrap();
    let count = |index: SortedPages| {
        let mut count = 0;
        index
            .scan(&connection, 0, i64::MAX, usize::MAX, |_| count += 1)
            .unwrap();
        count
    };
    (count(SMALL_LEVEL), count(LARGE_LEVEL))
}

/// Counts the rows that belong to tasks.
fn rows(path: &Path) -> i64 {
    let counts = ["task", "batch", "snapshot", "config", "key"]
        .map(|table| format!("(SELECT count(*) FROM {table})"));
    let sql = format!("SELECT {}", counts.join(" + "));
    Connection::open(path)
        .unwrap()
        .query_row(&sql, (), |row| row.get(0))
        .unwrap()
}

#[tokio::test]
async fn entries_are_found_in_buffer_and_levels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let mut store = open_with_small_flushes(&path);
    for number in 0..120 {
        store.create(&task_with_key(number)).await.unwrap();
        if number % 7 == 0 {
            assert_all_found(&store, 0..=number).await;
            assert!(
                store.reader_pool.id_index().len() <= 18,
                "the buffer holds at most two flushes"
            );
        }
        if number % 11 == 0 {
            drop(store);
            store = open_with_small_flushes(&path);
            assert_all_found(&store, 0..=number).await;
        }
    }
    let (recent, name) = count_indexed(&path);
    assert!(
        recent + name > 200 && recent > 10 && name > 40,
        "{recent} entries in the small level, {name} in the large one"
    );
}

#[tokio::test]
async fn entries_are_removed_with_their_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open_with_small_flushes(&path);
    for round in 0..3 {
        let mut heads = Vec::new();
        for number in 0..40 {
            let CreateResult::Created(head) = store.create(&task_with_key(number)).await.unwrap()
            else {
                panic!("task {number} exists in round {round}")
            };
            store
                .save_snapshot(&head, head.position, &Snapshot::default())
                .await
                .unwrap();
            heads.push(head);
        }
        let (first, second) = heads.split_at(20);
        store.remove(first).await.unwrap();
        assert_all_found(&store, 20..40).await;
        store.remove(second).await.unwrap();
        assert_eq!(store.find(&scope(), &"t39".into()).await.unwrap(), None);
        assert_eq!(count_indexed(&path), (0, 0), "both levels are empty");
        assert_eq!(rows(&path), 0, "no row of the tasks is left");
        assert_eq!(store.reader_pool.id_index().len(), 0, "the buffer is empty");
    }
}

#[tokio::test]
async fn entries_of_a_failed_commit_are_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = Arc::new(open_with_small_flushes(&path));
    for number in 0..10 {
        store.create(&task_with_key(number)).await.unwrap();
    }
    let blocker = block_writer(&store).await;
    let mut callers = JoinSet::new();
    for number in 10..30 {
        let store = Arc::clone(&store);
        callers.spawn(async move { store.create(&task_with_key(number)).await.map(drop) });
    }
    {
        let store = Arc::clone(&store);
        // A lock fails the whole group.
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        let locked = move |_: &mut write::Transaction<'_>| -> writer::CommandResult<()> {
            Err(rusqlite::Error::SqliteFailure(busy, None))
        };
        callers.spawn(async move { store.writer.run(locked).await });
    }
    tokio::task::yield_now().await;
    drop(blocker);
    assert!(callers.join_all().await.iter().all(Result::is_err));
    assert_all_found(&store, 0..10).await;
    for number in 10..30 {
        assert!(matches!(
            store.create(&task_with_key(number)).await.unwrap(),
            CreateResult::Created(_)
        ));
    }
    assert_all_found(&store, 0..30).await;
}

#[tokio::test]
async fn row_numbers_are_not_reused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open_with_small_flushes(&path);
    for number in 0..40 {
        let CreateResult::Created(head) = store.create(&task_with_key(number)).await.unwrap()
        else {
            panic!("the id is unused")
        };
        if number > 0 {
            store.remove(&[head]).await.unwrap();
        }
    }
    drop(store);
    let store = open_with_small_flushes(&path);
    store.create(&task_with_key(40)).await.unwrap();
    drop(store);
    assert_all_found(&open_with_small_flushes(&path), [0, 40].into_iter()).await;
}
