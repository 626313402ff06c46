//! The same with turns that run again: as often as allowed, to one end.

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
use super::ledger::{ALL, resumed};
use super::load::call;
use super::tasks::{COMPLETED, FAILED, is_terminal, result_of, said, state, written};
use super::{Random, Seed, moment, number};
use crate::harness::{message, with_deadline};

const TRIES: u32 = 3;
/// How often the server is killed under load.
const KILLS: u64 = 12;

/// Stands for a task that needs no looking after.
const ENDED: usize = usize::MAX;

/// What was opened, by the id of the task, with its text.
type Opened = HashMap<String, String>;

/// Opens one task after the other until the server is dead.
async fn open_tasks(
    address: SocketAddr,
    name: String,
    mut random: Random,
    answers: mpsc::Sender<()>,
) -> Opened {
    let mut opened = Opened::new();
    for number in 0.. {
        let text = match random.below(3) {
            0 => "wait".to_owned(),
            _ => format!("stream {}", random.below(200)),
        };
        let id = format!("{name}-{number}");
        let mut message = message(&text, json!({}));
        message["messageId"] = json!(id);
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        let Some(answer) = call(address, "SendMessage", &params, Some(&id)).await else {
            break;
        };
        opened.insert(answer["task"]["id"].as_str().unwrap().to_owned(), text);
        answers.try_send(()).unwrap_or(());
    }
    opened
}

/// How often the agent has begun to wait, as far as the task tells.
fn waits(task: &Value) -> usize {
    said(task)
        .iter()
        .filter(|message| message["parts"][0]["text"] == "waiting")
        .count()
}

/// Ready when every turn that was cut off has begun again, or its task has ended; says whether all have.
async fn begun_again(
    address: SocketAddr,
    opened: &Opened,
    known: &mut HashMap<String, usize>,
) -> bool {
    let mut all = true;
    for (id, text) in opened {
        let before = known.get(id).copied().unwrap_or_default();
        if before == ENDED {
            continue;
        }
        let task = with_deadline(async {
            loop {
                let task = call(address, "GetTask", &json!({"id": id}), None)
                    .await
                    .unwrap();
                if is_terminal(&task) || (text == "wait" && waits(&task) > before) {
                    return task;
                }
            }
        })
        .await;
        all &= is_terminal(&task);
        known.insert(
            id.clone(),
            if is_terminal(&task) {
                ENDED
            } else {
                waits(&task)
            },
        );
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_is_killed_runs_again_as_often_as_allowed_and_ends_once() {
    let seed = Seed(number("ATTACHE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0)));
    let mut random = Random(seed.0);
    let folder = TempDir::new().unwrap();
    let mut opened = Opened::new();
    for kill in 0..KILLS {
        let mut process = Process::start_with(folder.path(), Some(TRIES));
        let address = process.address().await;
        let (answers, mut answered) = mpsc::channel(64);
        let mut clients = JoinSet::new();
        for client in 0..2 {
            let (random, name) = (Random(random.next()), format!("{kill}-{client}"));
            clients.spawn(open_tasks(address, name, random, answers.clone()));
        }
        drop(answers);
        moment(&mut random, &mut answered).await;
        process.kill();
        while let Some(client) = with_deadline(clients.join_next()).await {
            opened.extend(client.unwrap());
        }
    }
    // Nothing new from here on: after as many restarts as there are tries, nothing is left to do.
    let mut known = HashMap::new();
    let mut all = false;
    for _ in 0..=TRIES {
        let mut process = Process::start_with(folder.path(), Some(TRIES));
        all = begun_again(process.address().await, &opened, &mut known).await;
        process.kill();
    }
    assert!(all, "every task has its end");
    let store = Sqlite::open(folder.path().join(FILE), Options::default()).unwrap();
    let mut most = 0;
    let heads = store.list_ended(Timestamp::MAX, ALL).await.unwrap();
    for (id, text) in &opened {
        let head = heads
            .iter()
            .find(|head| head.id.as_str() == id)
            .expect("what was acknowledged is there");
        most = most.max(check_log(&resumed(&store, head).await, text));
    }
    assert_eq!(most, TRIES, "no turn has used all its tries");
    println!("{KILLS} kills; {} tasks", opened.len());
}

/// The log of one task: tries within bounds, one end, and a whole result of the last try. Gives the tries.
fn check_log(entries: &[Entry], text: &str) -> u32 {
    let count =
        |event: fn(&Event) -> bool| entries.iter().filter(|entry| event(&entry.event)).count();
    let tries = u32::try_from(count(|event| *event == Event::TurnStarted)).unwrap();
    assert!((1..=TRIES).contains(&tries), "{entries:?}");
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
            let (_, last) = written(&task).pop().unwrap();
            assert_eq!(last, result_of(text), "{task}");
        }
        FAILED => {
            assert_eq!(
                (tries, &task["metadata"]["attache.reason"]),
                (TRIES, &json!("interrupted")),
                "{task}"
            );
        }
        other => panic!("{other}: {task}"),
    }
    tries
}
