//! What the operations are on the wire: older callers, and where the version stands. The rest is in `scenarios`.

use std::sync::Arc;

use attache::{Agent, Failure, Outcome, Turn};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

use crate::harness::{Echo, request, start};

/// Says which task it works on, then waits to be released.
#[derive(Clone)]
pub(crate) struct Held {
    started: mpsc::Sender<String>,
    gate: Arc<Semaphore>,
}

impl Held {
    pub(crate) fn new(started: mpsc::Sender<String>) -> Self {
        Self { started, gate: Arc::new(Semaphore::new(0)) }
    }

    pub(crate) fn release(&self) {
        self.gate.add_permits(1);
    }
}

impl Agent for Held {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        self.started.send(turn.task_id().to_string()).await?;
        self.gate.acquire().await?.forget();
        turn.write("done", "at last").await;
        Ok(Outcome::Completed)
    }
}

#[tokio::test]
async fn an_older_caller_is_answered_in_its_own_version() {
    let server = start(Echo).await;
    let old = json!({"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]});
    let task = server.result("message/send", json!({"message": old})).await;
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")));
    assert_eq!(task["artifacts"][0]["parts"][0], json!({"kind": "text", "text": "hi"}));
    let first = json!({"id": "mine", "sessionId": "s", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
    let task = server.result("tasks/send", first).await;
    assert_eq!(
        (&task["id"], &task["sessionId"], &task["contextId"]),
        (&json!("mine"), &json!("s"), &json!("s"))
    );
    let gone = server.error("tasks/get", json!({"id": "gone"})).await;
    assert_eq!(gone, json!({"code": -32001, "message": "Task not found"}));
}

#[tokio::test]
async fn s84_the_version_may_stand_in_the_header_or_the_query_but_not_differ() {
    let server = start(Echo).await;
    let code = async |path: &str, header: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json{header}");
        let answer = server.send(&head, request("GetTask", &json!({"id": "gone"})).as_bytes()).await.json();
        answer["error"]["code"].clone()
    };
    assert_eq!(code("/?A2A-Version=1.0", "").await, -32001);
    assert_eq!(code("/?A2A-Version=9.9", "").await, -32009);
    assert_eq!(code("/?A2A-Version=1.0", "\r\nA2A-Version: 1.0").await, -32001);
    assert_eq!(code("/?A2A-Version=0.3", "\r\nA2A-Version: 1.0").await, -32009);
    assert_eq!(code("/", "\r\nA2A-Version: 1.0\r\nA2A-Version: 0.3").await, -32009);
}
