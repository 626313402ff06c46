//! Clients that keep a server busy until it is dead, and remember what it has told them.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::Random;
use super::tasks::{CANCELED, COMPLETED, assert_follows, ids_said, is_settled};
use crate::harness::{message, request, with_deadline};

/// Calls a method. `None` when the answer did not come whole: the server is dead.
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
    let answer: Value = serde_json::from_str(body).ok()?;
    assert_eq!(answer["error"], Value::Null, "{method} {params}: {answer}");
    Some(answer["result"].clone())
}

/// What a client knows of a task.
#[derive(Clone)]
pub(super) struct Known {
    /// As the server told it last.
    pub(super) task: Value,
    /// Whether something was asked since, and no answer came.
    pub(super) unsure: bool,
}

/// A message under a key, sent and not answered: it is sent again.
pub(super) struct Unanswered {
    pub(super) key: String,
    pub(super) params: Value,
}

/// Sends one message after the other until the server is dead.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) random: Random,
    pub(super) sent: u64,
    pub(super) answers: mpsc::Sender<()>,
    pub(super) known: HashMap<String, Known>,
    pub(super) opened: Vec<String>,
    pub(super) parked: Vec<String>,
    pub(super) unanswered: Vec<Unanswered>,
}

impl Client {
    pub(super) async fn run(mut self) -> Self {
        while self.step().await.is_some() {}
        self
    }

    async fn step(&mut self) -> Option<()> {
        match self.random.below(8) {
            0 | 1 => self.open("echo", false).await.map(drop),
            2 => {
                let count = self.random.below(200);
                self.open(&format!("stream {count}"), false).await.map(drop)
            }
            3 | 4 => self.watch().await,
            5 => self.open("ask", false).await.map(|id| self.parked.push(id)),
            6 => self.answer().await,
            _ => self.interfere().await,
        }
    }

    /// Reads a result while it is written: what is there grows.
    async fn watch(&mut self) -> Option<()> {
        let count = self.random.below(200);
        let id = self.open(&format!("stream {count}"), true).await?;
        while !is_settled(&self.known[&id].task) {
            let task = self.call("GetTask", json!({"id": id}), false).await?;
            assert_follows(&self.known[&id].task, &task);
            self.learn(task);
        }
        Some(())
    }

    /// Goes on with a task that asks.
    async fn answer(&mut self) -> Option<()> {
        if self.parked.is_empty() {
            return Some(());
        }
        let place = usize::try_from(self.random.next()).unwrap() % self.parked.len();
        let id = self.parked.swap_remove(place);
        let task = self.say(&id, "echo", false).await?;
        assert_eq!(task["status"]["state"], COMPLETED, "{task}");
        Some(())
    }

    /// Adds to a task that runs; cancels it, or leaves it.
    async fn interfere(&mut self) -> Option<()> {
        let id = self.open("wait", true).await?;
        self.say(&id, "echo", true).await?;
        if self.random.below(2) == 0 {
            self.known.get_mut(&id).unwrap().unsure = true;
            let task = self.call("CancelTask", json!({"id": id}), false).await?;
            assert_eq!(task["status"]["state"], CANCELED, "{task}");
            self.learn(task);
        }
        Some(())
    }

    /// Opens a task.
    async fn open(&mut self, text: &str, at_once: bool) -> Option<String> {
        let params = self.message(text, at_once, json!({}));
        let keyed = !at_once && self.random.below(2) == 0;
        let task = self.call("SendMessage", params, keyed).await?["task"].clone();
        let id = task["id"].as_str().unwrap().to_owned();
        self.opened.push(id.clone());
        self.learn(task);
        Some(id)
    }

    /// Sends a message to a task.
    async fn say(&mut self, id: &str, text: &str, at_once: bool) -> Option<Value> {
        let params = self.message(text, at_once, json!({"taskId": id}));
        self.known.get_mut(id).unwrap().unsure = true;
        let said = params["message"]["messageId"].clone();
        let keyed = !at_once && self.random.below(2) == 0;
        let task = self.call("SendMessage", params, keyed).await?["task"].clone();
        assert!(ids_said(&task).contains(&&said), "{said} {task}");
        self.learn(task.clone());
        Some(task)
    }

    fn message(&mut self, text: &str, at_once: bool, more: Value) -> Value {
        self.sent += 1;
        let id = format!("{}-{}", self.name, self.sent);
        let mut message = message(&format!("{text} {id}"), more);
        message["messageId"] = json!(id);
        json!({"message": message, "configuration": {"returnImmediately": at_once}})
    }

    async fn call(&mut self, method: &str, params: Value, keyed: bool) -> Option<Value> {
        let key = keyed.then(|| format!("key-{}-{}", self.name, self.sent));
        let answer = call(self.address, method, &params, key.as_deref()).await;
        match (&answer, key) {
            // Whoever counts has enough when there is no room.
            (Some(_), _) => self.answers.try_send(()).unwrap_or(()),
            (None, Some(key)) => self.unanswered.push(Unanswered { key, params }),
            (None, None) => {}
        }
        answer
    }

    fn learn(&mut self, task: Value) {
        let id = task["id"].as_str().unwrap().to_owned();
        self.known.insert(
            id,
            Known {
                task,
                unsure: false,
            },
        );
    }
}
