//! Unknown commit outcomes: connections are cut before, during and after every request and answer.

use tokio::task::JoinSet;

use super::proxy::{Cut, Direction, Passed, Proxy};
use super::*;
use crate::model::{Event, PushConfig, TaskState, Version};
use crate::store::{Batch, DeliveryState, WriterRole};

fn scope() -> Scope {
    Scope {
        agent: "agent".into(),
        tenant: "".into(),
        owner: Caller::new("ann"),
    }
}

fn batch(text: &str, state: TaskState) -> Batch {
    let reason = text.to_owned();
    Batch {
        time: Timestamp::default(),
        events: vec![Event::Ignored { reason }],
        state,
        status_time: Timestamp::default(),
        parked: false,
        key: None,
        turn: 1,
        writer: WriterRole::Holder,
    }
}

fn keyed(text: &str, state: TaskState) -> Batch {
    let key = IdempotencyKey {
        text: text.to_owned(),
        body: [1; 32],
        oldest_valid: Timestamp::default(),
    };
    Batch {
        key: Some(key),
        ..batch(text, state)
    }
}

fn registration() -> PushRegistration {
    let config = PushConfig {
        id: Some("hook".into()),
        ..PushConfig::new("http://example.com")
    };
    PushRegistration {
        config,
        version: Version::V1,
    }
}

fn new_task(id: &str, batch: Batch) -> NewTask {
    NewTask {
        id: id.into(),
        scope: scope(),
        context_id: "context".into(),
        alias: None,
        config: Some(Box::new(registration())),
        batch,
    }
}

async fn create(store: &Postgres, id: &str, batch: Batch) -> Head {
    match store.create(&new_task(id, batch)).await.unwrap() {
        CreateResult::Created(head) => head,
        CreateResult::Replayed(record) => panic!("replayed: {record:?}"),
    }
}

async fn log(store: &Postgres, head: &Head) -> Vec<String> {
    let limit = ReadLimit::entries(usize::MAX);
    let entries = store.read(head, Seq(0), limit).await.unwrap();
    let text = |entry: Entry| match entry.event {
        Event::Ignored { reason } => reason,
        other => panic!("{other:?}"),
    };
    entries.into_iter().map(text).collect()
}

/// Runs every command once. Each must succeed as if nothing had been cut.
async fn run_every_command(store: &Postgres, direct: &Postgres, id: &str) -> Head {
    let first = keyed(&format!("{id}/created"), TaskState::Working);
    let head = create(store, id, first).await;
    let second = batch("second", TaskState::Working);
    assert_eq!(store.append(&head, Seq(1), &second).await.unwrap(), Seq(2));
    let third = keyed(&format!("{id}/third"), TaskState::Working);
    assert_eq!(store.append(&head, Seq(2), &third).await.unwrap(), Seq(3));
    let task = Arc::new(crate::model::Task::default());
    let snapshot = Snapshot {
        task,
        ..Snapshot::default()
    };
    store.save_snapshot(&head, Seq(3), &snapshot).await.unwrap();
    store.put_config(&head, &registration()).await.unwrap();
    let webhook = direct.find_webhook(&head, &"hook".into()).await.unwrap();
    let mut webhook = webhook.unwrap();
    webhook.delivery.position = Seq(3);
    assert!(store.record_delivery(&webhook).await.unwrap());
    webhook.delivery.state = DeliveryState::Finished;
    assert!(store.record_delivery(&webhook).await.unwrap());
    store.delete_config(&head, &"hook".into()).await.unwrap();
    let gone = create(
        store,
        &format!("{id}-gone"),
        batch("x", TaskState::Completed),
    )
    .await;
    store.remove(&[gone]).await.unwrap();
    let last = batch("last", TaskState::Completed);
    assert_eq!(store.append(&head, Seq(3), &last).await.unwrap(), Seq(4));
    head
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_survives_a_cut_at_every_chunk() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let proxy = Proxy::start(database.address()).await;
    let schema = database.new_schema();
    let options = Options {
        // One of each: every statement of the commands passes the connections in the same order.
        writers: 1,
        readers: 1,
        ..database.options_through(&schema, proxy.address)
    };
    let store = Postgres::open(options).await.unwrap();
    let direct = database.open(&schema).await;
    let mut cuts = 0;
    for direction in [Direction::ToServer, Direction::ToClient] {
        for passed in [Passed::Nothing, Passed::Half, Passed::All] {
            for chunk in 0.. {
                let id = format!("{direction:?}-{passed:?}-{chunk}");
                proxy.arm(Cut {
                    direction,
                    chunk,
                    passed,
                });
                let head = run_every_command(&store, &direct, &id).await;
                let expected = [
                    format!("{id}/created"),
                    "second".to_owned(),
                    format!("{id}/third"),
                    "last".to_owned(),
                ];
                assert_eq!(log(&direct, &head).await, expected, "{id}");
                let found = direct.find(&scope(), &head.id).await.unwrap().unwrap();
                assert_eq!(found.position, Seq(4), "{id}");
                assert_eq!(found.state, TaskState::Completed, "{id}");
                let gone = format!("{id}-gone");
                let gone = direct.find(&scope(), &gone.as_str().into()).await.unwrap();
                assert_eq!(gone, None, "{id}");
                if proxy.disarm() {
                    break;
                }
                cuts += 1;
            }
        }
    }
    assert!(cuts > 50, "{cuts}");
    let ended = direct.count_ended().await.unwrap();
    // The runs of the loops that ended without a cut are six more.
    assert_eq!(ended, cuts + 6);
    database.drop_schemas().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_appends_are_stored_once_under_random_cuts() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let proxy = Arc::new(Proxy::start(database.address()).await);
    let schema = database.new_schema();
    let options = database.options_through(&schema, proxy.address);
    let store = Arc::new(Postgres::open(options).await.unwrap());
    let mut runners = JoinSet::new();
    for task in 0..8 {
        let store = Arc::clone(&store);
        runners.spawn(async move {
            let head = create(&store, &format!("t{task}"), batch("0", TaskState::Working)).await;
            for number in 1..60 {
                let next = batch(&number.to_string(), TaskState::Working);
                let end = store.append(&head, Seq(number), &next).await;
                assert_eq!(end.unwrap(), Seq(number + 1), "t{task}");
            }
            head
        });
    }
    let mut heads = Vec::new();
    let mut chunk = 3;
    let mut cuts = 0;
    while let Some(head) = {
        // Cuts until all runners have ended, a different number of chunks apart.
        let mut ended = None;
        while ended.is_none() && !runners.is_empty() {
            chunk = (chunk * 7 + 5) % 31;
            proxy.arm(Cut {
                direction: [Direction::ToServer, Direction::ToClient][chunk % 2],
                chunk,
                passed: [Passed::Nothing, Passed::Half, Passed::All][chunk % 3],
            });
            cuts += 1;
            tokio::select! {
                joined = runners.join_next() => ended = joined,
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        ended
    } {
        heads.push(head.unwrap());
    }
    proxy.disarm();
    assert!(cuts > 5, "{cuts}");
    let expected: Vec<_> = (0..60).map(|number| number.to_string()).collect();
    let direct = database.open(&schema).await;
    for head in heads {
        assert_eq!(log(&direct, &head).await, expected, "{}", head.id.as_str());
    }
    database.drop_schemas().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_fail_while_the_database_is_down_and_work_afterwards() {
    let Some(database) = TestDatabase::new() else {
        return;
    };
    let proxy = Proxy::start(database.address()).await;
    proxy.refuse(true);
    let schema = database.new_schema();
    let options = Options {
        start_unreachable: true,
        write_timeout: Duration::from_millis(300),
        ..database.options_through(&schema, proxy.address)
    };
    let store = Postgres::open(options).await.unwrap();
    let created = new_task("a", batch("0", TaskState::Working));
    assert!(store.heartbeat().await.is_err());
    assert!(matches!(
        store.create(&created).await,
        Err(Error::Failed(_))
    ));
    assert_eq!(store.check_health().await, Err(HealthProblem::Unreachable));
    proxy.refuse(false);
    assert!(matches!(
        store.heartbeat().await.unwrap(),
        Heartbeat::Member { replicas: 1, .. }
    ));
    assert_eq!(store.check_health().await, Ok(()));
    let head = create(&store, "a", batch("0", TaskState::Working)).await;
    // Down again: creates fail after the timeout, the append waits and succeeds.
    proxy.refuse(true);
    proxy.close_all();
    let failed = store
        .create(&new_task("b", batch("0", TaskState::Working)))
        .await;
    assert!(matches!(failed, Err(Error::Failed(_))), "{failed:?}");
    assert_eq!(store.check_health().await, Err(HealthProblem::Unreachable));
    let next = batch("1", TaskState::Working);
    let append = store.append(&head, Seq(1), &next);
    let reopen = async { proxy.refuse(false) };
    let (appended, ()) = tokio::join!(append, reopen);
    assert_eq!(appended.unwrap(), Seq(2));
    assert_eq!(store.check_health().await, Ok(()));
    database.drop_schemas().await;
}
