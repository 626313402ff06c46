//! Databases that earlier programs have written.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::model::{Event, PushConfig, TaskState, Version};
use crate::store::{Batch, WriterRole};

/// Name of the schema in the golden dumps.
const GOLDEN_SCHEMA: &str = "golden_schema";

fn golden(version: usize) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/postgres/{version}.sql"))
}

fn scope() -> Scope {
    Scope {
        agent: "agent".into(),
        tenant: "tenant".into(),
        owner: Caller::new("ann"),
    }
}

fn batch(text: &str, state: TaskState, millis: i64) -> Batch {
    let time = Timestamp::from_millis(millis).unwrap();
    Batch {
        time,
        events: vec![Event::Ignored {
            reason: text.to_owned(),
        }],
        state,
        status_time: time,
        parked: false,
        key: None,
        turn: 1,
        writer: WriterRole::Holder,
    }
}

fn key() -> IdempotencyKey {
    IdempotencyKey {
        text: "key".to_owned(),
        body: [7; 32],
        oldest_valid: Timestamp::default(),
    }
}

fn registration() -> PushRegistration {
    let config = PushConfig {
        id: Some("hook".into()),
        ..PushConfig::new("http://example.com/hook")
    };
    PushRegistration {
        config,
        version: Version::V1,
    }
}

/// Writes what the golden dump contains.
async fn fill(store: &Postgres) {
    let open = NewTask {
        id: "open".into(),
        scope: scope(),
        context_id: "context".into(),
        alias: Some("alias".into()),
        config: Some(Box::new(registration())),
        batch: Batch {
            key: Some(key()),
            ..batch("first", TaskState::Working, 1_000)
        },
    };
    let CreateResult::Created(head) = store.create(&open).await.unwrap() else {
        panic!("the schema is not empty");
    };
    let second = batch("second", TaskState::Working, 2_000);
    store.append(&head, Seq(1), &second).await.unwrap();
    let ended = NewTask {
        id: "ended".into(),
        alias: None,
        config: None,
        batch: batch("only", TaskState::Completed, 3_000),
        ..open
    };
    store.create(&ended).await.unwrap();
    store.leave_cluster().await.unwrap();
}

/// Writes the dump of the newest schema version if `UPDATE_GOLDEN` is set.
async fn update(database: &TestDatabase) {
    if std::env::var_os("UPDATE_GOLDEN").is_none() {
        return;
    }
    database
        .execute(&format!("DROP SCHEMA IF EXISTS {GOLDEN_SCHEMA} CASCADE"))
        .await;
    fill(&database.open(GOLDEN_SCHEMA).await).await;
    let dump = Command::new("pg_dump")
        .args([
            "--inserts",
            "--no-owner",
            "-n",
            GOLDEN_SCHEMA,
            "-d",
            &database.url,
        ])
        .output()
        .unwrap();
    assert!(dump.status.success(), "{dump:?}");
    let dump = String::from_utf8(dump.stdout).unwrap();
    // Commands of psql, comments and settings are not part of the database.
    let lines = dump.lines().filter(|line| {
        let is_other = line.starts_with('\\') || line.starts_with("--") || line.starts_with("SET ");
        !is_other && !line.is_empty()
    });
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    std::fs::write(golden(1), text).unwrap();
    database
        .execute(&format!("DROP SCHEMA {GOLDEN_SCHEMA} CASCADE"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_of_earlier_programs_are_opened() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    update(&database).await;
    let dump = std::fs::read_to_string(golden(1)).unwrap();
    let schema = database.new_schema();
    database
        .execute(&dump.replace(GOLDEN_SCHEMA, &schema))
        .await;
    let store = database.open(&schema).await;
    let head = store
        .find(&scope(), &"alias".into())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(head.id.as_str(), "open");
    assert_eq!(head.position, Seq(2));
    let limit = ReadLimit::entries(9);
    let entries = store.read(&head, Seq(0), limit).await.unwrap();
    let texts: Vec<_> = entries.iter().map(|entry| &entry.event).collect();
    let text = |reason: &str| Event::Ignored {
        reason: reason.to_owned(),
    };
    assert_eq!(texts, [&text("first"), &text("second")]);
    assert_eq!(store.list_configs(&head).await.unwrap(), [registration()]);
    let record = store.find_by_key(&scope(), &key()).await.unwrap().unwrap();
    assert_eq!(record.head.id, head.id);
    assert_eq!(store.count_ended().await.unwrap(), 1);
    // A replica takes the task over and continues it.
    store.heartbeat().await.unwrap();
    let taken = store.take_over(&[Arc::from("agent")], 9).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].holder, Holder::Local);
    let last = batch("last", TaskState::Completed, 4_000);
    assert_eq!(store.append(&head, Seq(2), &last).await.unwrap(), Seq(3));
    assert_eq!(store.count_ended().await.unwrap(), 2);
    database.drop_schemas().await;
}
