//! Ids and keys are found wherever their names are: in memory, on the move, in the index.

use super::super::id_index::IdIndex;
use super::super::sorted_pages::{LARGE_LEVEL, SMALL_LEVEL, SortedPages};
use super::*;

/// A store whose rounds are so short that a few tasks go through several.
fn open_with_small_flushes(path: &Path) -> Sqlite {
    let options = Options::default();
    let mut database = open::open(path, &options).unwrap();
    database.id_index =
        Arc::new(IdIndex::load_with_threshold(&mut database.connection, 8).unwrap());
    Sqlite::from_database(database, &options).unwrap()
}

/// With all that may belong to a task.
fn task_with_key(number: usize) -> NewTask {
    let mut task = new_task(&format!("t{number}"));
    task.config = Some(Box::new(PushRegistration {
        config: PushConfig::new("https://example.org"),
        version: Version::V1,
    }));
    task.batch.key = Some(IdempotencyKey {
        text: format!("k{number}"),
        body: [7; 32],
    });
    task
}

/// Every task is there under its id and its key, and nobody else gets either.
async fn assert_all_found(store: &Sqlite, there: impl Iterator<Item = usize>) {
    for number in there {
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

/// How many names are in the small index, and in the large one.
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

/// How many rows belong to tasks.
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
async fn names_are_found_on_all_their_ways() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let mut store = open_with_small_flushes(&path);
    for number in 0..120 {
        store.create(&task_with_key(number)).await.unwrap();
        if number % 7 == 0 {
            assert_all_found(&store, 0..=number).await;
            assert!(
                store.reader_pool.id_index().len() <= 18,
                "memory holds two rounds at most"
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
        "{recent} recent ones and {name} others"
    );
}

#[tokio::test]
async fn names_go_with_their_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open_with_small_flushes(&path);
    for round in 0..3 {
        let mut heads = Vec::new();
        for number in 0..40 {
            let CreateResult::Created(head) = store.create(&task_with_key(number)).await.unwrap()
            else {
                panic!("{number} is there in round {round}")
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
        assert_eq!(
            count_indexed(&path),
            (0, 0),
            "nothing is left in the indexes"
        );
        assert_eq!(rows(&path), 0, "nor of what belonged to the tasks");
        assert_eq!(store.reader_pool.id_index().len(), 0, "nor in memory");
    }
}

#[tokio::test]
async fn names_of_a_commit_that_failed_are_free() {
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
        // Trouble that is everybody's.
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        let trouble = move |_: &mut write::Transaction<'_>| -> writer::CommandResult<()> {
            Err(rusqlite::Error::SqliteFailure(busy, None))
        };
        callers.spawn(async move { store.writer.run(trouble).await });
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
async fn a_number_is_not_given_out_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open_with_small_flushes(&path);
    for number in 0..40 {
        let CreateResult::Created(head) = store.create(&task_with_key(number)).await.unwrap()
        else {
            panic!("it is new")
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
