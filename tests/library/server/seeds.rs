//! The server and the documents of other projects: each test is named after a row of
//! `docs/dialects.md` and uses the samples of the document in `tests/golden/seed`.

mod fasta2a;
mod kaos;
#[path = "../../stand_in/kaos_client.rs"]
mod kaos_client;
mod parts;
mod push_headers;
mod rest_v03;

use attache::{AgentCard, Outcome, ServerSettings};
use serde_json::{Value, json};

use crate::harness::webhook_endpoint::{Endpoint, OK};
use crate::harness::{
    Echo, Running, SteppedAgent, WireRequest, local_webhooks, start, start_as, start_with,
};

/// Reads a sample of a seed document.
fn sample(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/seed/");
    serde_json::from_str(&std::fs::read_to_string(format!("{folder}{name}.json")).unwrap()).unwrap()
}

/// Starts a server that requires `A2A-Version`.
async fn strict_server() -> Running {
    let mut settings = ServerSettings::default();
    settings.strict_version = true;
    start_with(Echo, |server| server.server_settings(settings)).await
}

/// Posts a JSON-RPC request without `A2A-Version` and returns the response.
async fn post(server: &Running, request: &Value) -> Value {
    server.post("/", &request.to_string()).await.json()
}

/// Posts a JSON-RPC request of a client that accepts only events, and returns its events.
async fn post_for_events(server: &Running, request: &Value) -> Vec<Value> {
    let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nAccept: text/event-stream";
    let request = WireRequest {
        head: head.to_owned(),
        body: request.to_string(),
    };
    let mut reader = server.read(&request).await;
    assert_eq!(reader.header("content-type"), Some("text/event-stream"));
    let events = reader.rest().await;
    events
        .iter()
        .map(|event| serde_json::from_str(&event.data).unwrap())
        .collect()
}

fn user_message(parts: Value) -> Value {
    json!({"kind": "message", "messageId": "m", "role": "user", "parts": parts})
}

#[tokio::test]
async fn seed_1_42_errors_name_the_fields_of_the_callers_version() {
    let card = AgentCard::new("Echo", "Says it back").input_modes(["text/plain", "text/plain"]);
    let server = start_as(card, Echo, |server| server.push(local_webhooks())).await;
    let text = json!([{"kind": "text", "text": "x"}]);
    let role = json!({"message": {"messageId": "m", "role": "system", "parts": text}});
    let part = json!({"message": user_message(json!([{"kind": "text"}]))});
    let webhook = json!({"message": user_message(text.clone()),
        "configuration": {"pushNotificationConfig": {"url": "ftp://x"}}});
    let file = json!({"kind": "file", "file": {"bytes": "AQID", "mimeType": "image/png"}});
    let file = json!({"message": user_message(json!([file]))});
    for (params, expected) in [
        (role, "message.role must be user or agent"),
        (
            part,
            "message.parts[0] must have exactly one of text, file, data",
        ),
        (webhook, "configuration.pushNotificationConfig.url "),
        (file.clone(), "message.parts[0].file.mimeType is not"),
    ] {
        let error = server.error("message/send", params).await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(expected), "{error}");
    }
    let task = server
        .result(
            "message/send",
            json!({"message": user_message(text.clone())}),
        )
        .await;
    for (config, field) in [
        (json!({"url": "ftp://x"}), "url"),
        (json!({"url": ""}), "url"),
        (
            json!({"url": "http://127.0.0.1:1/", "headers": {"Host": "x"}}),
            "headers",
        ),
    ] {
        let params = json!({"taskId": task["id"], "pushNotificationConfig": config});
        let error = server
            .error("tasks/pushNotificationConfig/set", params)
            .await;
        let message = error["message"].as_str().unwrap();
        let field = format!("pushNotificationConfig.{field}");
        assert!(message.contains(&field), "{error}");
        assert!(!message.contains("taskPushNotificationConfig"), "{error}");
    }
    // The supported modes are listed once.
    let error = server.error("message/send", file).await;
    assert_eq!(error["data"], json!({"supported": "text/plain"}), "{error}");
    // REST and gRPC of 0.3 have the names of its protobuf file.
    let message = json!({"messageId": "m", "role": "ROLE_USER", "content": [{"text": "x"}]});
    let body =
        json!({"message": message, "configuration": {"pushNotification": {"url": "ftp://x"}}});
    let answer = server.post("/v1/message:send", &body.to_string()).await;
    let field = "configuration.pushNotification.url";
    assert!(answer.body.contains(field), "{answer:?}");
    assert!(
        !answer.body.contains("taskPushNotificationConfig"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn seed_1_75_a_send_with_a_webhook_is_acknowledged_at_once() {
    let webhook = Endpoint::start(OK).await;
    let (agent, mut steps) = SteppedAgent::new();
    let server = start_with(agent, |server| server.push(local_webhooks())).await;
    let mut request = sample("spec-send-with-webhook");
    request["params"]["configuration"]["pushNotificationConfig"]["url"] = json!(webhook.url);
    // The agent does not end its turn before the reply.
    let reply = post(&server, &request).await;
    let state = reply["result"]["status"]["state"].as_str().unwrap();
    assert!(["submitted", "working"].contains(&state), "{reply}");
    assert_eq!(reply["id"], "req-005");
    steps.next_task().await;
    steps.end(Outcome::Completed).await;
    let notifications = webhook
        .until(|got| {
            got.iter()
                .any(|one| one.body["status"]["state"] == "completed")
        })
        .await;
    let last = notifications.last().unwrap();
    assert_eq!(last.body["id"], reply["result"]["id"]);
    assert_eq!(
        last.header("X-A2A-Notification-Token"),
        "secure-client-token-for-task-aaa"
    );
}

#[tokio::test]
async fn seed_1_75_blocking_is_obeyed_with_a_webhook_too() {
    let server = start_with(Echo, |server| server.push(local_webhooks())).await;
    let text = json!([{"kind": "text", "text": "x"}]);
    let config = json!({"url": "http://127.0.0.1:9/hook"});
    let configuration = json!({"blocking": true, "pushNotificationConfig": config});
    let params = json!({"message": user_message(text), "configuration": configuration});
    let task = server.result("message/send", params).await;
    assert_eq!(task["status"]["state"], "completed");
}

#[tokio::test]
async fn seed_2_11_errors_carry_the_task_id() {
    let server = start(Echo).await;
    let expected = sample("rxjs-error");
    let id = &expected["error"]["data"]["taskId"];
    for (method, params) in [
        ("tasks/get", json!({"taskId": id})),
        ("tasks/cancel", json!({"id": id})),
    ] {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        assert_eq!(post(&server, &request).await, expected, "{method}");
    }
    // In a stream, the error is its only event.
    let mut message = user_message(json!([{"kind": "text", "text": "x"}]));
    message["taskId"] = id.clone();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": message}});
    assert_eq!(post_for_events(&server, &request).await, [expected]);
}

#[tokio::test]
async fn seed_2_23_an_ended_task_is_streamed_and_the_stream_closes() {
    let server = start(Echo).await;
    let params = json!({"message": user_message(json!([{"kind": "text", "text": "tide"}]))});
    let task = server.result("message/send", params).await;
    let mut request = sample("rxjs-get-request");
    request["params"]["taskId"] = task["id"].clone();
    let events = post_for_events(&server, &request).await;
    assert_eq!(events, [json!({"jsonrpc": "2.0", "id": 4, "result": task})]);
    // Clients that accept JSON too get JSON, and unknown tasks are errors.
    assert_eq!(post(&server, &request).await["result"], task);
    let unknown = sample("rxjs-get-request");
    let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nAccept: text/event-stream";
    let answer = server.send(head, unknown.to_string().as_bytes()).await;
    assert_eq!(answer.json()["error"]["code"], -32001, "{answer:?}");
}
