//! Failing disks, damaged files, wrong permissions and failing commands.

use std::fs;

use rusqlite::OpenFlags;

use super::*;

/// Sets a pragma on the writer's connection.
async fn set_pragma(store: &Sqlite, pragma: &'static str, value: i64) {
    let command = move |transaction: &mut write::Transaction<'_>| {
        transaction
            .connection
            .pragma_update_and_check(None, pragma, value, |_| Ok(()))?;
        Ok(Ok(()))
    };
    store.writer.run(command).await.unwrap();
}

#[tokio::test]
async fn r26_a_full_disk_fails_writes_but_not_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.db");
    let store = open(&path);
    let head = create(&store, "t").await.unwrap();
    set_pragma(&store, "max_page_count", 1).await;
    let large = batch(&"x".repeat(100_000), TaskState::Completed, 2_000);
    assert_eq!(
        store.check_health().await,
        Ok(()),
        "no write has failed yet"
    );
    for _ in 0..3 {
        let error = error_message(store.append(&head, Seq(1), &large).await);
        assert!(
            error.starts_with(&format!(
                "the disk is full, cannot write {}",
                path.display()
            )),
            "{error}"
        );
        assert_eq!(
            store.find(&head.scope, &head.id).await.unwrap(),
            Some(head.clone())
        );
        assert_eq!(
            store
                .read(&head, Seq(0), ReadLimit::entries(9))
                .await
                .unwrap()
                .len(),
            1
        );
        assert_eq!(store.writer.health_problem(), Some(HealthProblem::Full));
    }
    set_pragma(&store, "max_page_count", 1 << 30).await;
    assert_eq!(store.append(&head, Seq(1), &large).await.unwrap(), Seq(2));
    drop(store);
    assert_intact(&path);
}

#[cfg(unix)]
#[tokio::test]
async fn s72_low_disk_space_is_reported_before_the_disk_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = Sqlite::open(
        &path,
        Options {
            min_free_bytes: u64::MAX,
            ..Options::default()
        },
    )
    .unwrap();
    assert_eq!(store.check_health().await, Err(HealthProblem::AlmostFull));
    create(&store, "t").await.unwrap();
    drop(store);
    let store = Sqlite::open(
        &path,
        Options {
            min_free_bytes: 0,
            ..Options::default()
        },
    )
    .unwrap();
    assert_eq!(store.check_health().await, Ok(()));
}

#[tokio::test]
async fn back_up_copies_a_store_that_is_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let copy = folder.path().join("copy.db");
    let store = Arc::new(open(&path));
    let head = create(&store, "before").await.unwrap();
    let writing = Arc::clone(&store);
    let mut writer = JoinSet::new();
    writer.spawn(async move {
        for number in 0..200 {
            create(&writing, &format!("t{number}")).await.unwrap();
        }
    });
    let from = path.clone();
    let to = copy.clone();
    tokio::task::spawn_blocking(move || Sqlite::back_up(from, to))
        .await
        .unwrap()
        .unwrap();
    let again = Sqlite::back_up(&path, &copy).unwrap_err().to_string();
    assert!(again.contains("exists already"), "{again}");
    writer.join_all().await;
    let report = Sqlite::inspect(&path).unwrap();
    assert_eq!(
        (report.tasks, &report.faults),
        (201, &Vec::new()),
        "{report:?}"
    );
    assert!(
        Sqlite::vacuum(&path)
            .unwrap_err()
            .to_string()
            .contains("in use")
    );
    drop(store);
    Sqlite::vacuum(&path).unwrap();
    assert_eq!(Sqlite::inspect(&path).unwrap().tasks, 201);
    let copied = open(&copy);
    assert_eq!(
        copied.find(&head.scope, &head.id).await.unwrap(),
        Some(head)
    );
    drop(copied);
    assert_intact(&copy);
}

#[tokio::test]
async fn e01_a_file_names_callers_that_had_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    assert!(
        Sqlite::lock(&path)
            .unwrap_err()
            .to_string()
            .contains("in use")
    );
    assert_eq!(Sqlite::find_named_caller(&path).unwrap(), None);
    let mut anonymous = new_task("anonymous");
    anonymous.scope.owner = Caller::anonymous();
    store.create(&anonymous).await.unwrap();
    assert_eq!(Sqlite::find_named_caller(&path).unwrap(), None);
    let head = create(&store, "named").await.unwrap();
    // Also without tasks: they may have expired.
    store.remove(std::slice::from_ref(&head)).await.unwrap();
    let found = Sqlite::find_named_caller(&path).unwrap();
    assert_eq!(found, Some(head.scope.owner));
    store.close().await;
    let lock = Sqlite::lock(&path).unwrap();
    assert!(Sqlite::open(&path, Options::default()).is_err());
    drop(lock);
    open(&path);
}

#[tokio::test]
async fn r26_a_read_only_file_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let head = create(&open(&path), "t").await.unwrap();
    let options = Options::default();
    let mut database = open::open(&path, &options).unwrap();
    database.connection =
        Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let store = Sqlite::from_database(database, &options).unwrap();
    let error = error_message(create(&store, "u").await);
    assert!(
        error.ends_with("cannot be written: make the file and its folder writable"),
        "{error}"
    );
    assert_eq!(store.check_health().await, Err(HealthProblem::ReadOnly));
    assert_eq!(store.find(&head.scope, &head.id).await.unwrap(), Some(head));
    drop(store);
    create(&open(&path), "u").await.unwrap();
}

#[tokio::test]
async fn r26_a_failing_command_does_not_affect_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = Arc::new(open(&path));
    let blocker = block_writer(&store).await;
    let mut callers = JoinSet::new();
    for number in 0..10 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            // Each in a scope of its own: scope numbers of a rolled-back transaction must not be reused.
            let scope = Scope {
                tenant: Arc::from(format!("{number}")),
                ..scope()
            };
            store
                .create(&NewTask {
                    scope,
                    ..new_task(&format!("t{number}"))
                })
                .await
        });
    }
    let mut bad = JoinSet::new();
    for panics in [false, true] {
        let store = Arc::clone(&store);
        bad.spawn(async move {
            let command =
                move |transaction: &mut write::Transaction<'_>| -> writer::CommandResult<()> {
                    transaction.connection.execute("DELETE FROM task", ())?;
                    assert!(!panics, "panic requested by the test");
                    transaction
                        .connection
                        .execute("INSERT INTO nowhere VALUES (1)", ())?;
                    Ok(Ok(()))
                };
            error_message(store.writer.run(command).await)
        });
    }
    tokio::task::yield_now().await;
    drop(blocker);
    let mut errors = bad.join_all().await;
    errors.sort();
    assert!(errors[0].starts_with("SQLite failed on "), "{errors:?}");
    assert_eq!(
        errors[1],
        "the writer panicked and the write was rolled back"
    );
    assert!(
        callers
            .join_all()
            .await
            .iter()
            .all(|result| matches!(result, Ok(CreateResult::Created(_))))
    );
    assert_eq!(store.check_health().await, Ok(()), "the file is healthy");
    assert_eq!(store.list_unfinished(None, 99).await.unwrap().len(), 10);
    for number in 0..10 {
        let scope = Scope {
            tenant: Arc::from(format!("{number}")),
            ..scope()
        };
        let page = store
            .list(
                &scope,
                &TaskQuery {
                    limit: 9,
                    ..TaskQuery::default()
                },
            )
            .await
            .unwrap();
        assert_eq!((page.tasks.len(), page.total), (1, 1));
    }
    drop(store);
    assert_intact(&path);
}

#[tokio::test]
async fn r26_check_health_notices_recovery_without_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let options = Options {
        busy_timeout: std::time::Duration::ZERO,
        ..Options::default()
    };
    let store = Sqlite::open(&path, options).unwrap();
    let tool = Connection::open(&path).unwrap();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(error_message(create(&store, "t").await).starts_with("another program has locked"));
    assert_eq!(store.check_health().await, Err(HealthProblem::Locked));
    tool.execute_batch("ROLLBACK").unwrap();
    assert_eq!(
        store.check_health().await,
        Ok(()),
        "no other write is needed"
    );
    create(&store, "t").await.unwrap();
}

#[tokio::test]
async fn r26_a_damaged_row_fails_its_own_task_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.db");
    let store = open(&path);
    let bad = create(&store, "bad").await.unwrap();
    let good = create(&store, "good").await.unwrap();
    store
        .save_snapshot(&bad, Seq(1), &Snapshot::default())
        .await
        .unwrap();
    let tool = Connection::open(&path).unwrap();
    tool.execute(
        "UPDATE batch SET body = x'01ff' WHERE task = (SELECT number FROM task WHERE id = 'bad')",
        (),
    )
    .unwrap();
    tool.execute("UPDATE snapshot SET body = x'ff'", ())
        .unwrap();
    let error = error_message(store.read(&bad, Seq(0), ReadLimit::entries(9)).await);
    let expected = "is damaged: stop the server, keep a copy for repair, and restore a backup";
    assert_eq!(error, format!("{} {expected}", path.display()));
    assert_eq!(
        store.load_snapshot(&bad, usize::MAX).await.unwrap(),
        None,
        "a damaged snapshot is ignored"
    );
    // A snapshot of format 1.
    tool.execute(
        "UPDATE snapshot SET body = x'0103742d3103632d31010001000000'",
        (),
    )
    .unwrap();
    assert_eq!(
        store.load_snapshot(&bad, usize::MAX).await.unwrap(),
        None,
        "a snapshot of an older format is ignored"
    );
    assert_eq!(
        store
            .read(&good, Seq(0), ReadLimit::entries(9))
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn r26_a_file_that_is_not_a_database_is_refused_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    drop(open(&path));
    let mut bytes = fs::read(&path).unwrap();
    bytes[..100].fill(b'x');
    for content in [b"hello".to_vec(), vec![0xff; 10_000], bytes] {
        fs::write(&path, &content).unwrap();
        let error = Sqlite::open(&path, Options::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("is not a SQLite database, or its header is damaged"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[tokio::test]
async fn r26_a_damaged_file_is_refused_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    for number in 0..200 {
        create(&store, &format!("t{number}")).await.unwrap();
    }
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    bytes[4_096..].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    let error = Sqlite::open(&path, Options::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("is damaged: stop the server"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn r26_a_damaged_table_is_reported_on_access() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let head = create(&open(&path), "t").await.unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'batch'";
    let root: i64 = Connection::open(&path)
        .unwrap()
        .query_row(root, (), |row| row.get(0))
        .unwrap();
    let root = usize::try_from(root).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[(root - 1) * 4_096..root * 4_096].fill(0x5a);
    fs::write(&path, &bytes).unwrap();
    let store = open(&path);
    for error in [
        error_message(store.read(&head, Seq(0), ReadLimit::entries(9)).await),
        error_message(create(&store, "new").await),
    ] {
        assert!(error.contains("is damaged: stop the server"), "{error}");
    }
}

#[test]
fn the_database_of_another_program_is_refused_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE theirs (a)")
        .unwrap();
    let before = fs::read(&path).unwrap();
    let error = Sqlite::open(&path, Options::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("is the database of another program: choose another file"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn an_unusable_path_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path| {
        Sqlite::open(path, Options::default())
            .unwrap_err()
            .to_string()
    };
    assert!(refused(folder.path()).ends_with("is a folder: name a file in it"));
    assert!(refused(&folder.path().join("none/a.db")).contains("its folder cannot be used"));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(refused(&file.join("a.db")).starts_with("cannot open "));
    assert!(refused(Path::new("")).starts_with("cannot open "));
}

#[test]
fn r26_an_unwritable_folder_is_reported_with_the_file() {
    // Tests may run as root, which ignores permissions.
    for kind in [
        std::io::ErrorKind::PermissionDenied,
        std::io::ErrorKind::ReadOnlyFilesystem,
    ] {
        let error =
            OpenError::create_failed(Path::new("/a.db"), Path::new("/a.db-lock"), kind.into())
                .to_string();
        assert_eq!(
            error,
            "/a.db cannot be written: make the file and its folder writable"
        );
    }
}

#[test]
fn a_row_over_the_limit_is_refused_before_it_reaches_the_group() {
    // Only the length is checked: the pages of the buffer are never touched.
    assert!(
        error_message(encoded::check_row_size(vec![0; 900_000_001]))
            .starts_with("900000001 bytes are too many")
    );
    assert!(encoded::check_row_size(vec![0; 9]).is_ok());
}

fn assert_intact(path: &Path) {
    let connection = Connection::open(path).unwrap();
    let check: String = connection
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let mut keys = connection.prepare("PRAGMA foreign_key_check").unwrap();
    assert!(!keys.exists(()).unwrap());
}

#[cfg(unix)]
#[tokio::test]
async fn d22_a_deleted_or_replaced_file_refuses_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.db");
    let aside = folder.path().join("aside.db");
    let store = open(&path);
    create(&store, "before").await.unwrap();
    for replace in [false, true] {
        fs::rename(&path, &aside).unwrap();
        if replace {
            fs::copy(&aside, &path).unwrap();
        }
        assert_eq!(store.check_health().await, Err(HealthProblem::Replaced));
        let error = error_message(create(&store, &format!("lost {replace}")).await);
        assert!(
            error.starts_with(&format!("{} was deleted or replaced", path.display())),
            "{error}"
        );
        assert_eq!(store.check_health().await, Err(HealthProblem::Replaced));
        fs::rename(&aside, &path).unwrap();
        create(&store, &format!("after {replace}")).await.unwrap();
        assert_eq!(store.check_health().await, Ok(()));
    }
    drop(store);
    assert_intact(&path);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn d22_a_second_store_is_refused_without_the_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    create(&store, "t").await.unwrap();
    fs::remove_file(folder.path().join("a.db-lock")).unwrap();
    assert!(matches!(
        Sqlite::open(&path, Options::default()),
        Err(OpenError::InUse { .. })
    ));
    assert!(matches!(Sqlite::lock(&path), Err(OpenError::InUse { .. })));
    drop(store);
    open(&path);
}

#[test]
fn d22_a_full_disk_is_reported_without_a_minimum() {
    let check = maintenance::check_free_space;
    assert_eq!(check(Some(0), 0), Err(HealthProblem::Full));
    assert_eq!(check(Some(1 << 20), 0), Ok(()));
    assert_eq!(
        check(Some(1 << 20), 2 << 20),
        Err(HealthProblem::AlmostFull)
    );
    assert_eq!(check(None, 2 << 20), Ok(()));
}

#[tokio::test]
async fn d16_flipped_bits_of_a_log_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.db");
    let store = open(&path);
    let bad = create(&store, "bad").await.unwrap();
    let good = create(&store, "good").await.unwrap();
    let more = batch("more", TaskState::Working, 2_000);
    store.append(&bad, Seq(1), &more).await.unwrap();
    let tool = Connection::open(&path).unwrap();
    let of_bad = "task = (SELECT number FROM task WHERE id = 'bad')";
    let sql = format!("SELECT body FROM batch WHERE {of_bad} AND last_position = 1");
    let body: Vec<u8> = tool.query_row(&sql, (), |row| row.get(0)).unwrap();
    let update = format!("UPDATE batch SET body = ?1 WHERE {of_bad} AND last_position = 1");
    for bit in (0..body.len() * 8).step_by(5) {
        let mut damaged = body.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        tool.execute(&update, [damaged]).unwrap();
        let read = store.read(&bad, Seq(0), ReadLimit::entries(9)).await;
        assert!(matches!(read, Err(Error::Damaged(_))), "{bit}: {read:?}");
    }
    store
        .read(&good, Seq(0), ReadLimit::entries(9))
        .await
        .unwrap();
    let faults = Sqlite::inspect(&path).unwrap().faults;
    assert_eq!(faults, ["the log of task bad is damaged"]);
    // A row that is missing is a gap.
    let delete = format!("DELETE FROM batch WHERE {of_bad} AND last_position = 1");
    tool.execute(&delete, ()).unwrap();
    let read = store.read(&bad, Seq(0), ReadLimit::entries(9)).await;
    assert!(matches!(read, Err(Error::Damaged(_))), "{read:?}");
    assert_eq!(Sqlite::inspect(&path).unwrap().faults.len(), 1);
}

#[tokio::test]
async fn d16_flipped_bits_of_a_snapshot_are_detected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("a.db");
    let store = open(&path);
    let head = create(&store, "t").await.unwrap();
    let snapshot = Snapshot {
        turns_ended: 1,
        ..Snapshot::default()
    };
    store.save_snapshot(&head, Seq(1), &snapshot).await.unwrap();
    let load = async || store.load_snapshot(&head, usize::MAX).await.unwrap();
    assert_eq!(load().await, Some((Seq(1), snapshot)));
    let tool = Connection::open(&path).unwrap();
    let body = "SELECT body FROM snapshot";
    let body: Vec<u8> = tool.query_row(body, (), |row| row.get(0)).unwrap();
    for bit in 0..body.len() * 8 {
        let mut damaged = body.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let update = "UPDATE snapshot SET body = ?1";
        tool.execute(update, [damaged]).unwrap();
        // The log is read instead.
        assert_eq!(load().await, None, "{bit}");
    }
}
