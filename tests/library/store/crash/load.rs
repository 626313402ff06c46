//! Clients that load the server until it is killed, and record what it acknowledged.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::Random;
use super::tasks::{CANCELED, COMPLETED, assert_follows, is_settled, message_ids};
use crate::harness::{message, request, with_deadline};

/// Calls a method; `None` if the reply is incomplete because the server was killed.
pub(super) async fn call(
    address: SocketAddr,
    method: &str,
    params: &Value,
    key: Option<&str>,
) -> Option<Value> {
    let body = request(method, params);
    let key = key
        .map(|key| format!("Idempotency-Key: {key}\r\n"))
        .unwrap_or_default();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{key}Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut bytes = Vec::new();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all((head + &body).as_bytes()).await?;
        stream.read_to_end(&mut bytes).await
    };
    with_deadline(exchange).await.ok()?;
    let (_, body) = std::str::from_utf8(&bytes).ok()?.split_once("\r\n\r\n")?;
    let reply: Value = serde_json::from_str(body).ok()?;
    assert_eq!(reply["error"], Value::Null, "{method} {params}: {reply}");
    Some(reply["result"].clone())
}

/// Last acknowledged state of a task.
#[derive(Clone)]
pub(super) struct KnownTask {
    /// Task as the server last returned it.
    pub(super) task: Value,
    /// Whether a later request got no reply, so that the state may have changed.
    pub(super) is_uncertain: bool,
}

/// Message with an idempotency key that got no reply. It is resent.
pub(super) struct UnansweredMessage {
    pub(super) key: String,
    pub(super) params: Value,
}

/// Client that sends requests until the server is killed.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) random: Random,
    pub(super) sent: u64,
    pub(super) replies: mpsc::Sender<()>,
    pub(super) known: HashMap<String, KnownTask>,
    pub(super) created: Vec<String>,
    pub(super) parked: Vec<String>,
    pub(super) unanswered: Vec<UnansweredMessage>,
}

impl Client {
    pub(super) async fn run(mut self) -> Self {
        while self.step().await.is_some() {}
        self
    }

    async fn step(&mut self) -> Option<()> {
        match self.random.below(8) {
            0 | 1 => self.create("echo", false).await.map(drop),
            2 => {
                let count = self.random.below(200);
                self.create(&format!("stream {count}"), false)
                    .await
                    .map(drop)
            }
            3 | 4 => self.poll().await,
            5 => self
                .create("ask", false)
                .await
                .map(|id| self.parked.push(id)),
            6 => self.answer().await,
            _ => self.interfere().await,
        }
    }

    /// Polls a task while its result is written: it only grows.
    async fn poll(&mut self) -> Option<()> {
        let count = self.random.below(200);
        let id = self.create(&format!("stream {count}"), true).await?;
        while !is_settled(&self.known[&id].task) {
            let task = self.call("GetTask", json!({"id": id}), false).await?;
            assert_follows(&self.known[&id].task, &task);
            self.learn(task);
        }
        Some(())
    }

    /// Answers a task that requires input.
    async fn answer(&mut self) -> Option<()> {
        if self.parked.is_empty() {
            return Some(());
        }
        let index = usize::try_from(self.random.next()).unwrap() % self.parked.len();
        let id = self.parked.swap_remove(index);
        let task = self.say(&id, "echo", false).await?;
        assert_eq!(task["status"]["state"], COMPLETED, "{task}");
        Some(())
    }

    /// Sends a message to a running task, and cancels the task in half of the cases.
    async fn interfere(&mut self) -> Option<()> {
        let id = self.create("wait", true).await?;
        self.say(&id, "echo", true).await?;
        if self.random.below(2) == 0 {
            self.known.get_mut(&id).unwrap().is_uncertain = true;
            let task = self.call("CancelTask", json!({"id": id}), false).await?;
            assert_eq!(task["status"]["state"], CANCELED, "{task}");
            self.learn(task);
        }
        Some(())
    }

    /// Creates a task.
    async fn create(&mut self, text: &str, return_immediately: bool) -> Option<String> {
        let params = self.message(text, return_immediately, json!({}));
        let with_key = !return_immediately && self.random.below(2) == 0;
        let task = self.call("SendMessage", params, with_key).await?["task"].clone();
        let id = task["id"].as_str().unwrap().to_owned();
        self.created.push(id.clone());
        self.learn(task);
        Some(id)
    }

    /// Sends a message to a task.
    async fn say(&mut self, id: &str, text: &str, return_immediately: bool) -> Option<Value> {
        let params = self.message(text, return_immediately, json!({"taskId": id}));
        self.known.get_mut(id).unwrap().is_uncertain = true;
        let message_id = params["message"]["messageId"].clone();
        let with_key = !return_immediately && self.random.below(2) == 0;
        let task = self.call("SendMessage", params, with_key).await?["task"].clone();
        assert!(
            message_ids(&task).contains(&&message_id),
            "{message_id} {task}"
        );
        self.learn(task.clone());
        Some(task)
    }

    fn message(&mut self, text: &str, return_immediately: bool, more: Value) -> Value {
        self.sent += 1;
        let id = format!("{}-{}", self.name, self.sent);
        let mut message = message(&format!("{text} {id}"), more);
        message["messageId"] = json!(id);
        json!({"message": message, "configuration": {"returnImmediately": return_immediately}})
    }

    async fn call(&mut self, method: &str, params: Value, with_key: bool) -> Option<Value> {
        let key = with_key.then(|| format!("key-{}-{}", self.name, self.sent));
        let reply = call(self.address, method, &params, key.as_deref()).await;
        match (&reply, key) {
            // A full channel has enough replies for the kill.
            (Some(_), _) => self.replies.try_send(()).unwrap_or(()),
            (None, Some(key)) => self.unanswered.push(UnansweredMessage { key, params }),
            (None, None) => {}
        }
        reply
    }

    fn learn(&mut self, task: Value) {
        let id = task["id"].as_str().unwrap().to_owned();
        self.known.insert(
            id,
            KnownTask {
                task,
                is_uncertain: false,
            },
        );
    }
}
