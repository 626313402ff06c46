//! The database file: restart, locks, permissions, copies, migrations, keys.

use super::*;
use crate::store::DeliveryState;
use crate::store::sqlite::schema::{MIGRATIONS, PRERELEASE_APPLICATION_ID, migrate};

#[tokio::test]
async fn a_reopened_store_has_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    let head = fill(&store).await;
    let before = read_everything(&store, &head).await;
    drop(store);
    let store = open(&path);
    assert_eq!(read_everything(&store, &head).await, before);
    let again = NewTask {
        id: "other".into(),
        ..full_task()
    };
    assert!(
        matches!(store.create(&again).await.unwrap(), CreateResult::Replayed(found) if found.head.id == head.id)
    );
}

#[tokio::test]
async fn the_writer_uses_the_configured_durability() {
    let folder = tempfile::tempdir().unwrap();
    for (synchronous, number) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
        let options = Options {
            synchronous,
            ..Options::default()
        };
        let store = Sqlite::open(folder.path().join(format!("{number}.db")), options).unwrap();
        let read = |transaction: &mut write::Transaction<'_>| {
            let pragma = |name| {
                transaction
                    .connection
                    .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            };
            let mode = transaction
                .connection
                .pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))?;
            Ok(Ok((pragma("synchronous")?, mode)))
        };
        assert_eq!(
            store.writer.run(read).await.unwrap(),
            (number, "wal".to_owned())
        );
    }
    assert_eq!(Options::default().synchronous, Synchronous::Full);
}

#[tokio::test]
async fn a_file_is_opened_by_one_store_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.db");
    let store = open(&path);
    let error = Sqlite::open(&path, Options::default())
        .unwrap_err()
        .to_string();
    let file = path.display();
    assert_eq!(
        error,
        format!(
            "{file} is in use: another process holds the lock on {file}-lock; stop that process, or choose another file"
        )
    );
    #[cfg(unix)]
    {
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = Sqlite::open(&link, Options::default()).unwrap_err();
        assert!(
            matches!(error, OpenError::InUse { .. }),
            "a symbolic link leads to the same file: {error}"
        );
    }
    drop(store);
    open(&path);
}

#[cfg(unix)]
#[tokio::test]
async fn files_are_private_to_the_owner() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    create(&store, "t").await.unwrap();
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .collect();
    names.sort_by_key(std::fs::DirEntry::file_name);
    assert_eq!(
        names
            .iter()
            .map(std::fs::DirEntry::file_name)
            .collect::<Vec<_>>(),
        ["a.db", "a.db-lock", "a.db-shm", "a.db-wal", "attache.key"]
    );
    for entry in names {
        assert_eq!(
            entry.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{entry:?}"
        );
    }
}

#[tokio::test]
async fn other_programs_may_copy_a_file_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("a.db"));
    let head = fill(&store).await;
    let copy = folder.path().join("copy.db");
    let tool = Connection::open(folder.path().join("a.db")).unwrap();
    tool.execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
        .unwrap();
    create(&store, "later").await.unwrap();
    let copy = open(&copy);
    assert_eq!(
        read_everything(&copy, &head).await.0,
        read_everything(&store, &head).await.0
    );
    assert_eq!(copy.find(&scope(), &"later".into()).await.unwrap(), None);
}

#[tokio::test]
async fn other_programs_may_change_the_schema_of_a_file_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    create(&store, "before").await.unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE INDEX another ON task (position); ANALYZE")
        .unwrap();
    let head = create(&store, "after").await.unwrap();
    let page = store
        .list(
            &head.scope,
            &TaskQuery {
                limit: 9,
                ..TaskQuery::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(
        (page.tasks.len(), page.total),
        (2, 2),
        "the writer prepares its statements again"
    );
}

#[test]
fn r27_a_newer_schema_is_refused_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.db");
    drop(open(&path));
    Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = Sqlite::open(&path, Options::default())
        .unwrap_err()
        .to_string();
    let known = MIGRATIONS.len();
    let expected = format!(
        "has schema version 99, and this program supports versions up to {known}: use a newer program"
    );
    assert!(error.contains(&expected), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn r27_files_from_before_the_first_release_are_refused_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    for version in 1..=7 {
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("CREATE TABLE IF NOT EXISTS task (id TEXT)")
            .unwrap();
        for (pragma, value) in [
            ("application_id", PRERELEASE_APPLICATION_ID),
            ("user_version", version),
        ] {
            connection.pragma_update(None, pragma, value).unwrap();
        }
        drop(connection);
        let before = std::fs::read(&path).unwrap();
        let refusals = [
            Sqlite::open(&path, Options::default()).map(drop),
            Sqlite::inspect(&path).map(drop),
            Sqlite::vacuum(&path),
            Sqlite::back_up(&path, folder.path().join("copy.db")),
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err().to_string();
            let expected = format!(
                "was written before the first release (schema version {version} of that time) and cannot be migrated: \
                 move it away"
            );
            assert!(error.contains(&expected), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

/// Schema versions that have a dump in `tests/golden/sqlite`. The newest is the current one.
const GOLDEN: [u32; 1] = [1];

fn old_file(folder: &TempDir, version: u32) -> std::path::PathBuf {
    let path = folder.path().canonicalize().unwrap().join("old.db");
    let sql =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/sqlite/v{version}.sql"));
    Connection::open(&path)
        .unwrap()
        .execute_batch(&std::fs::read_to_string(sql).unwrap())
        .unwrap();
    // The key that encrypts its webhook.
    std::fs::write(path.with_file_name("attache.key"), [9; 32]).unwrap();
    path
}

#[test]
fn a_migrated_file_has_the_schema_of_a_new_one() {
    let schema = |path: &Path| {
        drop(open(path));
        let connection = Connection::open(path).unwrap();
        let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement
            .query_map((), |row| row.get::<_, String>(0))
            .unwrap();
        rows.collect::<rusqlite::Result<Vec<_>>>().unwrap()
    };
    for version in GOLDEN {
        let folder = tempfile::tempdir().unwrap();
        let fresh = tempfile::tempdir().unwrap();
        let old = old_file(&folder, version);
        assert_eq!(
            schema(&old),
            schema(&fresh.path().join("a.db")),
            "{version}"
        );
        let connection = Connection::open(&old).unwrap();
        assert!(
            !connection
                .prepare("PRAGMA foreign_key_check")
                .unwrap()
                .exists(())
                .unwrap(),
            "{version}"
        );
    }
}

#[tokio::test]
async fn r27_files_of_every_schema_version_are_readable() {
    for version in GOLDEN {
        let folder = tempfile::tempdir().unwrap();
        let fresh = tempfile::tempdir().unwrap();
        let old = open(&old_file(&folder, version));
        let new = open(&fresh.path().join("a.db"));
        let head = fill(&new).await;
        let mut expected = read_everything(&new, &head).await;
        // A snapshot is a cache: one of an earlier format is not decoded.
        expected.3 = None;
        assert_eq!(read_everything(&old, &head).await, expected, "{version}");
        let context = TaskQuery {
            context_id: Some("c".into()),
            limit: 9,
            ..TaskQuery::default()
        };
        assert_eq!(old.list(&scope(), &context).await.unwrap().total, 2);
        let again = NewTask {
            id: "other".into(),
            ..full_task()
        };
        assert!(
            matches!(old.create(&again).await.unwrap(), CreateResult::Replayed(found) if found.head.id == head.id)
        );
        let record = old
            .find_by_key(&scope(), &full_task().batch.key.unwrap())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(record.turn, 7);
        let webhook = old
            .find_webhook(&head, &"hook".into())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (webhook.generation, webhook.delivery.position),
            (0, Seq(0)),
            "{version}"
        );
        assert_eq!(
            (webhook.delivery.attempts, webhook.delivery.state),
            (2, DeliveryState::Active),
            "{version}"
        );
        assert!(matches!(
            old.create(&new_task("ended")).await,
            Err(Error::Conflict)
        ));
        old.append(&head, Seq(2), &batch("more", TaskState::Working, 3_000))
            .await
            .unwrap();
    }
}

#[test]
fn r27_an_older_file_is_backed_up_and_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = old_file(&folder, 1);
    let mut connection = Connection::open(&path).unwrap();
    let next = [
        "",
        "CREATE TABLE next (number INTEGER PRIMARY KEY) STRICT; INSERT INTO next VALUES (7);",
    ];
    migrate(&mut connection, &path, 1, &next).unwrap();
    let sum = |connection: &Connection| {
        connection.query_row("SELECT sum(number) FROM next", (), |row| row.get(0))
    };
    assert_eq!(sum(&connection), Ok(7));
    assert_eq!(pragma(&connection, "user_version"), 2);
    let copy = folder.path().join("old.db-v1.backup");
    assert_eq!(pragma(&Connection::open(&copy).unwrap(), "user_version"), 1);
    drop(open(&copy));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    assert!(!folder.path().join("old.db-v1.backup.part").exists());
}

#[test]
fn r27_a_failed_migration_leaves_the_file_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = old_file(&folder, 1);
    let mut connection = Connection::open(&path).unwrap();
    let next = [
        "",
        "CREATE TABLE next (number INTEGER) STRICT",
        "INSERT INTO nowhere VALUES (1)",
    ];
    assert!(migrate(&mut connection, &path, 1, &next).is_err());
    assert_eq!(pragma(&connection, "user_version"), 1);
    assert!(connection.prepare("SELECT * FROM next").is_err());
    drop(connection);
    open(&path);
}

#[tokio::test]
async fn a_missing_or_wrong_key_is_reported_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    let key = folder.path().join("attache.key");
    let store = open(&file);
    fill(&store).await;
    drop(store);
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let error = Sqlite::open(&file, Options::default()).unwrap_err();
    assert!(
        matches!(error, OpenError::MissingKey { .. }) && !key.exists(),
        "{error}"
    );
    std::fs::write(&key, [7; 32]).unwrap();
    let error = Sqlite::open(&file, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::WrongKey { .. }), "{error}");
    std::fs::write(&key, kept).unwrap();
    open(&file);
}

fn pragma(connection: &Connection, name: &str) -> i64 {
    connection
        .pragma_query_value(None, name, |row| row.get(0))
        .unwrap()
}

fn full_task() -> NewTask {
    let mut task = new_task("task");
    task.alias = Some("alias".into());
    let config = PushConfig {
        id: Some("hook".into()),
        ..PushConfig::new("https://example.org/hook")
    };
    task.config = Some(Box::new(PushRegistration {
        config,
        version: Version::V1,
    }));
    task.batch.key = Some(IdempotencyKey {
        text: "key".into(),
        body: [7; 32],
        oldest_valid: Timestamp::default(),
    });
    task.batch.turn = 7;
    task
}

/// Creates a task with all that a store records, and an ended task.
async fn fill(store: &Sqlite) -> Head {
    let CreateResult::Created(head) = store.create(&full_task()).await.unwrap() else {
        panic!("the id is unused")
    };
    store
        .append(&head, Seq(1), &batch("b", TaskState::InputRequired, 2_000))
        .await
        .unwrap();
    store
        .save_snapshot(&head, Seq(2), &snapshot(&head))
        .await
        .unwrap();
    let mut ended = new_task("ended");
    ended.batch = batch("c", TaskState::Completed, 1_500);
    store.create(&ended).await.unwrap();
    head
}

fn snapshot(head: &Head) -> Snapshot {
    let task = Task::submitted(head.id.clone(), head.context_id.clone(), time(1_000));
    Snapshot {
        task: Arc::new(task),
        turns_ended: 1,
        ..Snapshot::default()
    }
}

type Everything = (
    Vec<Entry>,
    TaskPage,
    Option<Head>,
    Option<(Seq, Snapshot)>,
    Vec<PushRegistration>,
    u64,
    Vec<Head>,
    Vec<Head>,
);

async fn read_everything(store: &Sqlite, head: &Head) -> Everything {
    (
        store
            .read(head, Seq(0), ReadLimit::entries(99))
            .await
            .unwrap(),
        store
            .list(
                &head.scope,
                &TaskQuery {
                    limit: 9,
                    ..TaskQuery::default()
                },
            )
            .await
            .unwrap(),
        store.find(&head.scope, &"alias".into()).await.unwrap(),
        store.load_snapshot(head, usize::MAX).await.unwrap(),
        store.list_configs(head).await.unwrap(),
        store.count_ended().await.unwrap(),
        store.list_unfinished(None, 9).await.unwrap(),
        store.list_ended(time(9_000), 9).await.unwrap(),
    )
}
