//! All that was ever acknowledged, held against what the server says after a restart, and against its file.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;

use attache::model::{Entry, Event, Message, Seq, Task, Timestamp};
use attache::store::sqlite::Options;
use attache::store::{Head, Sqlite, Store};
use serde_json::{Value, json};

use super::follower::Followed;
use super::load::{Client, Known, Unanswered, call};
use super::tasks::{ASKS, assert_follows, assert_whole, ids_said, is_settled, is_terminal, state};
use crate::harness::with_deadline;

/// More tasks than a run makes.
pub(super) const ALL: usize = 1_000_000;

/// All that was ever acknowledged.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) known: HashMap<String, Known>,
    pub(super) opened: HashSet<String>,
    pub(super) parked: Vec<String>,
    pub(super) unanswered: Vec<Unanswered>,
}

impl Ledger {
    pub(super) fn take_in(&mut self, client: Client) -> Vec<String> {
        let touched = client.known.keys().cloned().collect();
        for id in client.opened {
            assert!(self.opened.insert(id.clone()), "{id} was given twice");
        }
        self.known.extend(client.known);
        self.unanswered.extend(client.unanswered);
        touched
    }

    /// Waits until the server is done with what was cut off.
    pub(super) async fn recovered(&self, address: SocketAddr) {
        for state in ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"] {
            let rests = async {
                let params = json!({"status": state, "pageSize": 1});
                while call(address, "ListTasks", &params, None).await.unwrap()["totalSize"] != 0 {}
            };
            with_deadline(rests).await;
        }
        let all = call(address, "ListTasks", &json!({"pageSize": 1}), None)
            .await
            .unwrap();
        assert!(
            all["totalSize"].as_u64().unwrap() >= self.opened.len() as u64,
            "{all}"
        );
    }

    /// Sends again what was not answered: what comes of it is there once.
    pub(super) async fn send_again(&mut self, address: SocketAddr) {
        for Unanswered { key, params } in std::mem::take(&mut self.unanswered) {
            let task = call(address, "SendMessage", &params, Some(&key))
                .await
                .unwrap()["task"]
                .clone();
            assert!(
                ids_said(&task).contains(&&params["message"]["messageId"]),
                "{task}"
            );
            let id = task["id"].as_str().unwrap().to_owned();
            if let Some(known) = self.known.get(&id) {
                assert_follows(&known.task, &task);
            }
            self.opened.insert(id.clone());
            self.learn(id, task);
        }
    }

    fn learn(&mut self, id: String, task: Value) {
        self.parked.retain(|parked| *parked != id);
        if state(&task) == ASKS {
            self.parked.push(id.clone());
        }
        self.known.insert(
            id,
            Known {
                task,
                unsure: false,
            },
        );
    }

    /// Reads tasks again after a restart.
    pub(super) async fn check(
        &mut self,
        address: SocketAddr,
        ids: impl IntoIterator<Item = String>,
    ) {
        for id in ids {
            let before = self.known[&id].clone();
            let read = async {
                loop {
                    let task = call(address, "GetTask", &json!({"id": id}), None)
                        .await
                        .unwrap();
                    assert_follows(&before.task, &task);
                    // A question that was answered as the server died is worked on, or was never answered.
                    let rests = is_terminal(&task) || task == before.task || !before.unsure;
                    if is_settled(&task) && rests {
                        return task;
                    }
                }
            };
            let task = with_deadline(read).await;
            if is_settled(&before.task) && !before.unsure {
                assert_eq!(task, before.task);
            }
            assert_whole(&task);
            self.learn(id, task);
        }
    }
}

/// Reads the file itself: every log is whole, and says what the server said.
pub(super) async fn check_file(path: &Path, ledger: &Ledger, followed: &[Followed]) -> usize {
    let store = Sqlite::open(path, Options::default()).unwrap();
    let mut heads = store.list_ended(Timestamp::MAX, ALL).await.unwrap();
    heads.extend(store.list_unfinished(None, ALL).await.unwrap());
    let ids: HashSet<_> = heads.iter().map(|head| head.id.as_str()).collect();
    assert_eq!(ids.len(), heads.len());
    assert!(ledger.known.keys().all(|id| ids.contains(id.as_str())));
    assert!(
        followed
            .iter()
            .all(|followed| ids.contains(followed.id.as_str()))
    );
    let mut messages = HashSet::new();
    for head in &heads {
        let entries = resumed(&store, head).await;
        let task = Task::fold(&entries)
            .unwrap()
            .expect("a log begins with the task");
        assert_eq!((&task.id, task.status.state), (&head.id, head.state));
        assert!(
            head.state.is_terminal() || head.state.is_interrupted(),
            "{head:?}"
        );
        let ends = entries.iter().filter(
            |entry| matches!(&entry.event, Event::Status { status, .. } if status.state.is_terminal()),
        );
        assert_eq!(
            ends.count(),
            usize::from(head.state.is_terminal()),
            "{entries:?}"
        );
        for message in entries.iter().filter_map(message_of) {
            assert!(
                messages.insert(message.message_id.clone()),
                "{message:?} is there twice"
            );
        }
        if let Some(followed) = followed.iter().find(|followed| followed.id == head.id) {
            followed.assert_is(&entries, &head.context_id);
        }
        if let Some(known) = ledger.known.get(head.id.as_str()) {
            assert_eq!(serde_json::to_value(&task).unwrap(), known.task);
        }
    }
    heads.len()
}

/// A log as a reader sees it who comes back where it stopped, a few entries at a time.
pub(super) async fn resumed(store: &Sqlite, head: &Head) -> Vec<Entry> {
    let mut entries = Vec::<Entry>::new();
    loop {
        let at = entries.last().map_or(Seq(0), |entry| entry.seq);
        let more = store.read(head, at, 50).await.unwrap();
        if more.is_empty() {
            assert_eq!(at, head.position);
            assert!(
                entries
                    .iter()
                    .zip(1..)
                    .all(|(entry, place)| entry.seq == Seq(place)),
                "{entries:?}"
            );
            return entries;
        }
        entries.extend(more);
    }
}

pub(super) fn message_of(entry: &Entry) -> Option<&Message> {
    match &entry.event {
        Event::Message(message) => Some(message),
        _ => None,
    }
}
