//! Behaviour of the operations over JSON-RPC 1.0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attache::model::{Artifact, Call, Message};
use attache::{Agent, Failure, Outcome, Settings, Turn};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

use crate::harness::{Echo, Running, local_webhooks, message, request, start, start_with};

/// Reports its task id, then waits for a permit.
#[derive(Clone)]
pub(crate) struct Held {
    started: mpsc::Sender<String>,
    gate: Arc<Semaphore>,
}

impl Held {
    pub(crate) fn new(started: mpsc::Sender<String>) -> Self {
        Self {
            started,
            gate: Arc::new(Semaphore::new(0)),
        }
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

/// Interprets the message as a command.
struct Obeys;

impl Agent for Obeys {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        match turn.text().as_str() {
            "ask" => Ok(Outcome::ask("which harbour?")),
            "auth" => Ok(Outcome::auth_required("log in first")),
            "reject" => Ok(Outcome::rejected("not today")),
            "fail" => Ok(Outcome::failed("the tide is out")),
            "panic" => panic!("hunter2"),
            "break" => {
                turn.add_artifact(Artifact::default()).await;
                Ok(Outcome::Completed)
            }
            "stray" => {
                turn.add_artifact(piece("a")).await;
                turn.add_artifact_chunk(piece("a"), true, false).await;
                turn.add_artifact_chunk(piece("b"), true, true).await;
                turn.add_artifact_chunk(piece("a"), true, true).await;
                Ok(Outcome::Completed)
            }
            "error" => Err(std::io::Error::other("hunter2"))?,
            _ => Ok(Outcome::Completed),
        }
    }

    async fn reply(&self, message: &Message, _: &Call) -> Option<Message> {
        match message.text().as_str() {
            "ping" => Some(Message::agent("pong")),
            "ping panic" => panic!("hunter2"),
            _ => None,
        }
    }
}

fn piece(id: &str) -> Artifact {
    Artifact {
        artifact_id: id.into(),
        parts: vec!["x".into()],
        ..Artifact::default()
    }
}

async fn get(server: &Running, id: &Value) -> Value {
    server.result("GetTask", json!({"id": id})).await
}

#[tokio::test]
async fn an_agent_that_breaks_the_protocol_is_an_invalid_response() {
    let server = start(Obeys).await;
    let error = server
        .error(
            "SendMessage",
            json!({"message": message("break", json!({}))}),
        )
        .await;
    assert_eq!(error["code"], -32006);
    let task = get(&server, &error["data"][0]["metadata"]["taskId"]).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(task["metadata"]["attache.reason"], "invalid-agent-response");
}

/// 04 §3.8: an append to an unknown artifact fails the task.
#[tokio::test]
async fn an_agent_that_appends_to_what_is_not_there_breaks_the_protocol() {
    let server = start(Obeys).await;
    let error = server
        .error(
            "SendMessage",
            json!({"message": message("stray", json!({}))}),
        )
        .await;
    assert_eq!(error["code"], -32006);
    let task = get(&server, &error["data"][0]["metadata"]["taskId"]).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    assert_eq!(task["metadata"]["attache.reason"], "invalid-agent-response");
    // Earlier valid output stays.
    let artifacts = task["artifacts"].as_array().unwrap();
    assert_eq!(
        (artifacts.len(), &artifacts[0]["artifactId"]),
        (1, &json!("a"))
    );
    assert_eq!(artifacts[0]["parts"], json!([{"text": "xx"}]));
}

/// 04 §4: a 0.1 client addresses its task by its own id in every operation.
#[tokio::test]
async fn a_client_of_the_first_days_knows_its_task_by_the_name_it_gave() {
    let server = start_with(Obeys, |server| server.push(local_webhooks())).await;
    let hook = |path: &str| json!({"url": format!("http://127.0.0.1:9/{path}")});
    let send = async |path: &str| {
        let message = json!({"role": "user", "parts": [{"type": "text", "text": "ask"}]});
        let params = json!({"id": "mine", "message": message, "pushNotification": hook(path)});
        server.result("tasks/send", params).await
    };
    let hooked = async || {
        let read = server
            .result("tasks/pushNotification/get", json!({"id": "mine"}))
            .await;
        read["pushNotificationConfig"]["url"].clone()
    };
    let task = send("first").await;
    assert_eq!(
        (&task["id"], &task["metadata"]["a2a.legacyTaskId"]),
        (&json!("mine"), &json!("mine"))
    );
    let set = json!({"id": "mine", "pushNotificationConfig": hook("second")});
    server.result("tasks/pushNotification/set", set).await;
    assert_eq!(
        hooked().await,
        hook("second")["url"],
        "the one that is named after the task"
    );
    send("third").await;
    assert_eq!(
        hooked().await,
        hook("third")["url"],
        "and one without a name takes its place"
    );
    for method in ["tasks/get", "tasks/cancel"] {
        let task = server.result(method, json!({"id": "mine"})).await;
        assert_eq!(
            (&task["id"], &task["contextId"]),
            (&json!("mine"), &task["sessionId"]),
            "{method}"
        );
    }
}

/// A chat completion has no message id: the idempotency key alone identifies it.
#[tokio::test]
async fn r14_a_question_that_is_asked_again_under_its_key_is_the_same_task() {
    let server = start(Echo).await;
    let ask = async |key: &str, text: &str| {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json\r\nIdempotency-Key: {key}"
        );
        let body = json!({"messages": [{"role": "user", "content": text}]}).to_string();
        let answer = server.send(&head, body.as_bytes()).await;
        (answer.status, answer.json()["attache"]["taskId"].clone())
    };
    let first = ask("k-1", "hi").await;
    assert_eq!(first.0, 200);
    assert_eq!(ask("k-1", "hi").await, first);
    assert_ne!(ask("k-2", "hi").await, first);
    assert_eq!(ask("k-1", "another").await.0, 400);
}

#[tokio::test]
async fn an_older_caller_is_answered_in_its_own_version() {
    let server = start(Echo).await;
    let old = json!({"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]});
    let task = server.result("message/send", json!({"message": old})).await;
    assert_eq!(
        (&task["kind"], &task["status"]["state"]),
        (&json!("task"), &json!("completed"))
    );
    assert_eq!(
        task["artifacts"][0]["parts"][0],
        json!({"kind": "text", "text": "hi"})
    );
    let first = json!({"id": "mine", "sessionId": "s", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
    let task = server.result("tasks/send", first).await;
    assert_eq!(
        (&task["id"], &task["sessionId"], &task["contextId"]),
        (&json!("mine"), &json!("s"), &json!("s"))
    );
    let gone = server.error("tasks/get", json!({"id": "gone"})).await;
    assert_eq!(
        gone,
        json!({"code": -32001, "message": "Task not found", "data": {"taskId": "gone"}})
    );
}

/// Sends a text with an identity for deduplication: an idempotency key or the message id.
struct Sender<'a> {
    server: &'a Running,
    by_key: bool,
}

impl Sender<'_> {
    async fn send(&self, name: &str, text: &str, more: Value) -> Value {
        let (id, key) = if self.by_key {
            ("m", format!("\r\nIdempotency-Key: {name}"))
        } else {
            (name, String::new())
        };
        let head = format!("POST / HTTP/1.1\r\nContent-Type: application/json{key}");
        let mut params = json!({"message": message(text, json!({"messageId": id}))});
        let tenant = more.get("tenant").cloned();
        params["message"]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        params["message"].as_object_mut().unwrap().remove("tenant");
        params
            .as_object_mut()
            .unwrap()
            .extend(tenant.map(|tenant| ("tenant".to_owned(), tenant)));
        self.server
            .send(&head, request("SendMessage", &params).as_bytes())
            .await
            .json()
    }

    async fn task(&self, name: &str, text: &str, more: Value) -> Value {
        let answer = self.send(name, text, more).await;
        assert_eq!(answer["error"], Value::Null, "{answer}");
        answer["result"]["task"].clone()
    }
}

async fn keyed() -> Running {
    let settings = Settings {
        idempotent_message_ids: true,
        ..Settings::default()
    };
    start_with(Obeys, |server| server.settings(settings).tenants(["blue"])).await
}

#[tokio::test]
async fn r14_r15_s75_what_is_sent_again_is_answered_with_the_task_it_made() {
    let server = keyed().await;
    for by_key in [true, false] {
        let sender = Sender {
            server: &server,
            by_key,
        };
        let first = sender.task("one", "ask", json!({})).await;
        assert_eq!(sender.task("one", "ask", json!({})).await, first);
        let other = sender.task("two", "ask", json!({})).await;
        assert_ne!(other["id"], first["id"]);
        // S76: another scope neither matches the key nor learns about the task.
        let stranger = sender.task("one", "done", json!({"tenant": "blue"})).await;
        assert_ne!(stranger["id"], first["id"]);
        assert_eq!(stranger["status"]["state"], "TASK_STATE_COMPLETED");
    }
    assert_eq!(server.result("ListTasks", json!({})).await["totalSize"], 4);
}

#[tokio::test]
async fn r16_another_body_under_the_same_name_is_refused() {
    let server = keyed().await;
    for (by_key, field) in [(true, "Idempotency-Key"), (false, "message.messageId")] {
        let sender = Sender {
            server: &server,
            by_key,
        };
        let first = sender.task("one", "ask", json!({})).await;
        for more in [json!({}), json!({"taskId": first["id"]})] {
            let refused = sender.send("one", "other", more).await["error"].clone();
            assert_eq!(refused["code"], -32602, "{refused}");
            assert_eq!(refused["data"][1]["fieldViolations"][0]["field"], field);
        }
        assert_eq!(get(&server, &first["id"]).await, first);
    }
    assert_eq!(server.result("ListTasks", json!({})).await["totalSize"], 2);
}

#[tokio::test]
async fn r17_an_answer_that_is_sent_again_is_applied_once() {
    let server = keyed().await;
    for by_key in [true, false] {
        let sender = Sender {
            server: &server,
            by_key,
        };
        let asked = sender.task("one", "ask", json!({})).await;
        for (name, text) in [("two", "ask"), ("three", "done")] {
            let to = json!({"taskId": asked["id"]});
            let first = sender.task(name, text, to.clone()).await;
            assert_eq!(sender.task(name, text, to).await, first);
        }
        let task = get(&server, &asked["id"]).await;
        let said = task["history"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|said| said["role"] == "ROLE_USER");
        assert_eq!(
            said.map(|said| said["parts"][0]["text"].clone())
                .collect::<Vec<_>>(),
            ["ask", "ask", "done"]
        );
    }
}

#[tokio::test]
async fn a_key_and_a_message_id_of_the_same_text_are_two_names() {
    let server = keyed().await;
    let by_key = Sender {
        server: &server,
        by_key: true,
    };
    let by_id = Sender {
        server: &server,
        by_key: false,
    };
    let first = by_key.task("same", "ask", json!({})).await;
    let second = by_id.task("same", "done", json!({})).await;
    assert_ne!(first["id"], second["id"]);
    assert_eq!(by_key.task("same", "ask", json!({})).await, first);
    assert_eq!(by_id.task("same", "done", json!({})).await, second);
}

#[tokio::test]
async fn a_message_id_alone_says_nothing_unless_it_is_asked_to() {
    let server = start(Obeys).await;
    let sender = Sender {
        server: &server,
        by_key: false,
    };
    let first = sender.task("one", "ask", json!({})).await;
    assert_ne!(
        sender.task("one", "done", json!({})).await["id"],
        first["id"]
    );
}

/// Completes the first turn at once and never ends later ones.
struct Fickle(AtomicBool);

impl Agent for Fickle {
    async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
        Ok(Outcome::Completed)
    }

    async fn reply(&self, _: &Message, _: &Call) -> Option<Message> {
        self.0
            .swap(true, Ordering::SeqCst)
            .then(|| Message::agent("changed my mind"))
    }
}

#[tokio::test]
async fn r14_an_agent_is_not_asked_again_for_a_plain_answer_where_a_task_is() {
    let server = start(Fickle(AtomicBool::new(false))).await;
    let sender = Sender {
        server: &server,
        by_key: true,
    };
    let first = sender.task("one", "hi", json!({})).await;
    assert_eq!(sender.task("one", "hi", json!({})).await, first);
    assert!(sender.send("two", "hi", json!({})).await["result"]["message"].is_object());
}

#[tokio::test]
async fn r14_a_key_of_the_first_days_stands_for_the_name_of_the_task_too() {
    let server = start(Obeys).await;
    let send = async |name: &str, text: &str| {
        let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nIdempotency-Key: k";
        let message = json!({"role": "user", "parts": [{"type": "text", "text": text}]});
        let body = request("tasks/send", &json!({"id": name, "message": message}));
        server.send(head, body.as_bytes()).await.json()
    };
    let first = send("mine", "ask").await["result"].clone();
    assert_eq!(first["id"], "mine");
    assert_eq!(send("mine", "ask").await["result"], first);
    assert_eq!(send("other", "ask").await["error"]["code"], -32602);
    assert_eq!(send("mine", "other").await["error"]["code"], -32602);
}

#[tokio::test]
async fn s84_the_version_may_stand_in_the_header_or_the_query_but_not_differ() {
    let server = start(Echo).await;
    let code = async |path: &str, header: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json{header}");
        let answer = server
            .send(&head, request("GetTask", &json!({"id": "gone"})).as_bytes())
            .await
            .json();
        answer["error"]["code"].clone()
    };
    assert_eq!(code("/?A2A-Version=1.0", "").await, -32001);
    assert_eq!(code("/?A2A-Version=9.9", "").await, -32009);
    assert_eq!(
        code("/?A2A-Version=1.0", "\r\nA2A-Version: 1.0").await,
        -32001
    );
    assert_eq!(
        code("/?A2A-Version=0.3", "\r\nA2A-Version: 1.0").await,
        -32009
    );
    assert_eq!(
        code("/", "\r\nA2A-Version: 1.0\r\nA2A-Version: 0.3").await,
        -32009
    );
}
