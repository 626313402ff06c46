//! REST of 0.3: the form of replies, and files of clients that put base64 text into bytes.

use attache::ServerSettings;
use attache::model::{Message, Part};
use attache::wire::V03RestForm;
use attache::{Failure, Outcome, Turn};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::user_message;
use crate::harness::{Echo, Running, start, start_with};

/// Content of a file that is itself valid base64.
const CONTENT: &[u8] = b"aGVsbG8=";

/// Agent that returns the parts it got, and a file of its own.
async fn file_agent(turn: Turn) -> Result<Outcome, Failure> {
    let message = turn.message();
    let parts = message.parts.clone();
    let returned = Message {
        parts,
        ..Message::agent("")
    };
    Ok(Outcome::CompletedWith(
        returned.part(Part::file(CONTENT, "text/plain")),
    ))
}

async fn send(server: &Running, agent: &str, body: &Value) -> Value {
    let head = format!(
        "POST /v1/message:send HTTP/1.1\r\nContent-Type: application/json\r\nUser-Agent: {agent}"
    );
    server.send(&head, body.to_string().as_bytes()).await.json()
}

#[tokio::test]
async fn files_of_a_python_client_are_converted_only_in_proto_json() {
    let server = start(file_agent).await;
    let once = STANDARD.encode(CONTENT);
    let twice = STANDARD.encode(&once);
    let file = json!({"bytes": once, "mimeType": "text/plain"});
    let kind = json!({"message": user_message(json!([{"kind": "file", "file": file}]))});
    for agent in ["python-httpx/0.28.1", "curl/8"] {
        let task = send(&server, agent, &kind).await;
        for part in task["status"]["message"]["parts"].as_array().unwrap() {
            assert_eq!(part["file"]["bytes"], once, "{agent}: {task}");
        }
    }
    let proto = |bytes: &str| {
        let file = json!({"fileWithBytes": bytes, "mimeType": "text/plain"});
        let message = json!({"messageId": "m", "role": "ROLE_USER", "content": [{"file": file}]});
        json!({"message": message, "configuration": {"blocking": true}})
    };
    for (agent, bytes) in [("python-httpx/0.28.1", &twice), ("curl/8", &once)] {
        let reply = send(&server, agent, &proto(bytes)).await;
        let parts = reply["task"]["status"]["message"]["content"].as_array();
        for part in parts.unwrap_or_else(|| panic!("{reply}")) {
            assert_eq!(part["file"]["fileWithBytes"], *bytes, "{agent}: {reply}");
        }
    }
}

#[tokio::test]
async fn seed_3_32_a_setting_selects_the_form_of_replies_without_a_body() {
    for (form, state, has_kind) in [
        (V03RestForm::ProtoJson, "TASK_STATE_COMPLETED", false),
        (V03RestForm::Kind, "completed", true),
    ] {
        let mut settings = ServerSettings::default();
        settings.v03_rest_form = form;
        let server = start_with(Echo, |server| server.server_settings(settings)).await;
        let message = json!({"message": user_message(json!([{"kind": "text", "text": "x"}]))});
        let sent = server.post("/v1/message:send", &message.to_string()).await;
        let sent = sent.json();
        assert_eq!(sent["kind"], "task", "the body selects the form: {sent}");
        let path = format!("/v1/tasks/{}", sent["id"].as_str().unwrap());
        let task = server.get(&path).await.json();
        assert_eq!(task["status"]["state"], state, "{task}");
        assert_eq!(task.get("kind").is_some(), has_kind, "{task}");
    }
}
