//! Crash test of `RestartPolicy::RunAgain`: an interrupted turn is repeated up to its limit and ends once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use attache::model::{Entry, Event, Task, Timestamp};
use attache::store::sqlite::Options;
use attache::store::{Sqlite, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::child::{FILE, Process};
use super::ledger::{ALL, read_in_pages};
use super::load::call;
use super::tasks::{
    COMPLETED, FAILED, artifact_texts, expected_result, is_terminal, messages, state,
};
use super::{Random, Seed, number, wait_for_kill};
use crate::harness::{message, with_deadline};

/// Maximum number of attempts of a turn.
const ATTEMPTS: u32 = 3;
/// Number of kills under load.
const KILLS: u64 = 12;

/// Marks a task that has ended.
const ENDED: usize = usize::MAX;

/// Texts of the created tasks, by task id.
type CreatedTasks = HashMap<String, String>;

/// Creates tasks until the server is killed.
async fn create_tasks(
    address: SocketAddr,
    name: String,
    mut random: Random,
    replies: mpsc::Sender<()>,
) -> CreatedTasks {
    let mut created = CreatedTasks::new();
    for number in 0.. {
        let text = match random.below(3) {
            0 => "wait".to_owned(),
            _ => format!("stream {}", random.below(200)),
        };
        let id = format!("{name}-{number}");
        let mut message = message(&text, json!({}));
        message["messageId"] = json!(id);
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        let Some(reply) = call(address, "SendMessage", &params, Some(&id)).await else {
            break;
        };
        created.insert(reply["task"]["id"].as_str().unwrap().to_owned(), text);
        replies.try_send(()).unwrap_or(());
    }
    created
}

/// Counts the attempts that have reached `wait`, by the messages in the task.
fn count_waits(task: &Value) -> usize {
    messages(task)
        .iter()
        .filter(|message| message["parts"][0]["text"] == "waiting")
        .count()
}

/// Waits until every interrupted turn has started again or its task has ended. Returns whether all tasks have ended.
async fn wait_for_reruns(
    address: SocketAddr,
    created: &CreatedTasks,
    known: &mut HashMap<String, usize>,
) -> bool {
    let mut all_ended = true;
    for (id, text) in created {
        let before = known.get(id).copied().unwrap_or_default();
        if before == ENDED {
            continue;
        }
        let task = with_deadline(async {
            loop {
                let task = call(address, "GetTask", &json!({"id": id}), None)
                    .await
                    .unwrap();
                if is_terminal(&task) || (text == "wait" && count_waits(&task) > before) {
                    return task;
                }
            }
        })
        .await;
        all_ended &= is_terminal(&task);
        known.insert(
            id.clone(),
            if is_terminal(&task) {
                ENDED
            } else {
                count_waits(&task)
            },
        );
    }
    all_ended
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_turn_is_repeated_up_to_its_limit_and_ends_once() {
    let seed = Seed(number("ATTACHE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0)));
    let mut random = Random(seed.0);
    let folder = TempDir::new().unwrap();
    let mut created = CreatedTasks::new();
    for kill in 0..KILLS {
        let mut process = Process::start_with(folder.path(), Some(ATTEMPTS));
        let address = process.address().await;
        let (replies, mut replied) = mpsc::channel(64);
        let mut clients = JoinSet::new();
        for client in 0..2 {
            let random = Random(random.next());
            let name = format!("{kill}-{client}");
            clients.spawn(create_tasks(address, name, random, replies.clone()));
        }
        drop(replies);
        wait_for_kill(&mut random, &mut replied).await;
        process.kill();
        while let Some(client) = with_deadline(clients.join_next()).await {
            created.extend(client.unwrap());
        }
    }
    // No new tasks from here on: after as many restarts as there are attempts, every task has ended.
    let mut known = HashMap::new();
    let mut all_ended = false;
    for _ in 0..=ATTEMPTS {
        let mut process = Process::start_with(folder.path(), Some(ATTEMPTS));
        all_ended = wait_for_reruns(process.address().await, &created, &mut known).await;
        process.kill();
    }
    assert!(all_ended, "a task has not ended");
    let store = Sqlite::open(folder.path().join(FILE), Options::default()).unwrap();
    let mut max_attempts = 0;
    let heads = store.list_ended(Timestamp::MAX, ALL).await.unwrap();
    for (id, text) in &created {
        let head = heads
            .iter()
            .find(|head| head.id.as_str() == id)
            .expect("an acknowledged task exists");
        max_attempts = max_attempts.max(check_log(&read_in_pages(&store, head).await, text));
    }
    assert_eq!(max_attempts, ATTEMPTS, "no turn has used all attempts");
    println!("{KILLS} kills; {} tasks", created.len());
}

/// Checks the log of one task: attempts within the limit, one end, a complete result of the last attempt. Returns the
/// number of attempts.
fn check_log(entries: &[Entry], text: &str) -> u32 {
    let count =
        |event: fn(&Event) -> bool| entries.iter().filter(|entry| event(&entry.event)).count();
    let attempts = u32::try_from(count(|event| *event == Event::TurnStarted)).unwrap();
    assert!((1..=ATTEMPTS).contains(&attempts), "{entries:?}");
    assert_eq!(count(|event| *event == Event::TurnEnded), 1, "{entries:?}");
    let ends =
        count(|event| matches!(event, Event::Status { status, .. } if status.state.is_terminal()));
    assert_eq!(ends, 1, "{entries:?}");
    assert_eq!(
        count(|event| matches!(event, Event::Message(_))),
        1,
        "{entries:?}"
    );
    let task = serde_json::to_value(Task::fold(entries).unwrap().unwrap()).unwrap();
    match state(&task) {
        COMPLETED => {
            let (_, last) = artifact_texts(&task).pop().unwrap();
            assert_eq!(last, expected_result(text), "{task}");
        }
        FAILED => {
            assert_eq!(
                (attempts, &task["metadata"]["attache.reason"]),
                (ATTEMPTS, &json!("interrupted")),
                "{task}"
            );
        }
        other => panic!("{other}: {task}"),
    }
    attempts
}
