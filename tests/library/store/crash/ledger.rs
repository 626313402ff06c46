//! Ledger of all acknowledged writes. Compared with the server after each restart, and with the file at the end.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;

use attache::model::{Entry, Event, Message, Seq, Task, Timestamp};
use attache::store::sqlite::Options;
use attache::store::{Head, ReadLimit, Sqlite, Store};
use serde_json::{Value, json};

use super::follower::FollowedTask;
use super::load::{Client, KnownTask, UnansweredMessage, call};
use super::tasks::{
    INPUT_REQUIRED, assert_consistent, assert_follows, is_settled, is_terminal, message_ids, state,
};
use crate::harness::with_deadline;

/// Limit for lists: more tasks than a run creates.
pub(super) const ALL: usize = 1_000_000;

/// Acknowledged tasks, and messages without a reply.
#[derive(Default)]
pub(super) struct Ledger {
    pub(super) known: HashMap<String, KnownTask>,
    pub(super) created: HashSet<String>,
    pub(super) parked: Vec<String>,
    pub(super) unanswered: Vec<UnansweredMessage>,
}

impl Ledger {
    /// Adds the observations of a client and returns the ids of its tasks.
    pub(super) fn merge(&mut self, client: Client) -> Vec<String> {
        let touched = client.known.keys().cloned().collect();
        for id in client.created {
            assert!(
                self.created.insert(id.clone()),
                "the id {id} was returned twice"
            );
        }
        self.known.extend(client.known);
        self.unanswered.extend(client.unanswered);
        touched
    }

    /// Waits until the server has ended every interrupted turn.
    pub(super) async fn wait_for_recovery(&self, address: SocketAddr) {
        for state in ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"] {
            let recovered = async {
                let params = json!({"status": state, "pageSize": 1});
                while call(address, "ListTasks", &params, None).await.unwrap()["totalSize"] != 0 {}
            };
            with_deadline(recovered).await;
        }
        let all = call(address, "ListTasks", &json!({"pageSize": 1}), None)
            .await
            .unwrap();
        assert!(
            all["totalSize"].as_u64().unwrap() >= self.created.len() as u64,
            "{all}"
        );
    }

    /// Resends the messages without a reply under their keys. Each must be applied once.
    pub(super) async fn resend(&mut self, address: SocketAddr) {
        for UnansweredMessage { key, params } in std::mem::take(&mut self.unanswered) {
            let task = call(address, "SendMessage", &params, Some(&key))
                .await
                .unwrap()["task"]
                .clone();
            assert!(
                message_ids(&task).contains(&&params["message"]["messageId"]),
                "{task}"
            );
            let id = task["id"].as_str().unwrap().to_owned();
            if let Some(known) = self.known.get(&id) {
                assert_follows(&known.task, &task);
            }
            self.created.insert(id.clone());
            self.learn(id, task);
        }
    }

    /// Records the latest state of a task.
    fn learn(&mut self, id: String, task: Value) {
        self.parked.retain(|parked| *parked != id);
        if state(&task) == INPUT_REQUIRED {
            self.parked.push(id.clone());
        }
        self.known.insert(
            id,
            KnownTask {
                task,
                is_uncertain: false,
            },
        );
    }

    /// Reads tasks after a restart and compares them with the ledger.
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
                    // The answer to a question may have been lost with the server, or its turn may still run.
                    let is_stable =
                        is_terminal(&task) || task == before.task || !before.is_uncertain;
                    if is_settled(&task) && is_stable {
                        return task;
                    }
                }
            };
            let task = with_deadline(read).await;
            if is_settled(&before.task) && !before.is_uncertain {
                assert_eq!(task, before.task);
            }
            assert_consistent(&task);
            self.learn(id, task);
        }
    }
}

/// Reads the file: every log is complete and equals what the server returned.
pub(super) async fn check_file(path: &Path, ledger: &Ledger, followed: &[FollowedTask]) -> usize {
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
        let entries = read_in_pages(&store, head).await;
        let task = Task::fold(&entries)
            .unwrap()
            .expect("a log begins with `Created`");
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
                "{message:?} was applied twice"
            );
        }
        if let Some(followed) = followed.iter().find(|followed| followed.id == head.id) {
            followed.assert_equals_log(&entries, &head.context_id);
        }
        if let Some(known) = ledger.known.get(head.id.as_str()) {
            assert_eq!(serde_json::to_value(&task).unwrap(), known.task);
        }
    }
    heads.len()
}

/// Reads a log in pages of 50 entries and checks its positions.
pub(super) async fn read_in_pages(store: &Sqlite, head: &Head) -> Vec<Entry> {
    let mut entries = Vec::<Entry>::new();
    loop {
        let at = entries.last().map_or(Seq(0), |entry| entry.seq);
        let more = store.read(head, at, ReadLimit::entries(50)).await.unwrap();
        if more.is_empty() {
            assert_eq!(at, head.position);
            assert!(
                entries
                    .iter()
                    .zip(1..)
                    .all(|(entry, position)| entry.seq == Seq(position)),
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
