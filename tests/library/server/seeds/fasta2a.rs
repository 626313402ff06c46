//! Clients of fasta2a: calls of 0.3 whose messages have no `kind`, and the wrappers and parts of 1.0.

use attache::model::{Message, Part};
use attache::{Failure, Outcome, Turn};
use serde_json::{Value, json};

use super::{post, post_for_events, sample, strict_server, user_message};
use crate::harness::{Echo, start};

async fn analyst(turn: Turn) -> Result<Outcome, Failure> {
    if turn.text() == "ask" {
        return Ok(Outcome::InputRequired("which?".into()));
    }
    turn.write("text", "tide").await;
    let file = Part::file(b"\x01\x02", "image/png");
    Ok(Outcome::CompletedWith(Message::agent("done").part(file)))
}

/// Message as the client of fasta2a 2.1.1 sends it.
fn message(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}], "messageId": "m"})
}

fn request(method: &str, message: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}})
}

#[tokio::test]
async fn fasta2a_responses_have_wrappers_and_parts_of_v1() {
    let server = start(analyst).await;
    let answer = post(&server, &request("message/send", &message("go"))).await;
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["state"], "completed", "{answer}");
    assert_eq!(task["status"]["message"]["role"], "agent");
    let parts = json!([{"text": "done"}, {"raw": "AQI=", "mediaType": "image/png"}]);
    assert_eq!(task["status"]["message"]["parts"], parts);
    assert_eq!(task["artifacts"][0]["parts"], json!([{"text": "tide"}]));
    assert_eq!(task["history"][0]["role"], "user");
    assert!(!answer.to_string().contains(r#""kind":"task""#), "{answer}");
    let asked = post(&server, &request("message/send", &message("ask"))).await;
    let state = &asked["result"]["task"]["status"]["state"];
    assert_eq!(state, "input-required", "{asked}");
}

#[tokio::test]
async fn fasta2a_streams_have_wrappers_of_v1() {
    let server = start(analyst).await;
    let events = post_for_events(&server, &request("message/stream", &message("go"))).await;
    let names: Vec<_> = events
        .iter()
        .map(|event| {
            event["result"]
                .as_object()
                .unwrap()
                .keys()
                .next()
                .unwrap()
                .as_str()
        })
        .collect();
    assert_eq!(names.first(), Some(&"task"));
    assert!(names.contains(&"artifactUpdate"), "{names:?}");
    let last = &events.last().unwrap()["result"]["statusUpdate"];
    assert_eq!(last["status"]["state"], "completed", "{last}");
    assert_eq!(last.get("final"), None, "{last}");
}

/// The documents of seeds 1, 3 and 4 omit at most `kind` of the message.
#[tokio::test]
async fn fasta2a_is_recognized_only_without_any_kind() {
    let server = start(analyst).await;
    let mut with_kind = message("go");
    with_kind["kind"] = json!("message");
    let mut with_part_kind = message("go");
    with_part_kind["parts"][0]["kind"] = json!("text");
    let mut with_part_type = message("go");
    with_part_type["parts"][0]["type"] = json!("text");
    let mut mixed = message("go");
    mixed["parts"] = json!([{"text": "go"}, {"kind": "text", "text": "go"}]);
    for message in [with_kind, with_part_kind, with_part_type, mixed] {
        let answer = post(&server, &request("message/send", &message)).await;
        assert_eq!(answer["result"]["kind"], "task", "{answer}");
    }
    // A client that names its version gets that version.
    let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nA2A-Version: 0.3";
    let body = request("message/send", &message("go")).to_string();
    let answer = server.send(head, body.as_bytes()).await.json();
    assert_eq!(answer["result"]["kind"], "task", "{answer}");
    // Later calls do not show the dialect: they have the form of 0.3.
    let sent = post(&server, &request("message/send", &message("go"))).await;
    let id = &sent["result"]["task"]["id"];
    let read = server.result("tasks/get", json!({"id": id})).await;
    assert_eq!(read["kind"], "task", "{read}");
    let task = server
        .result(
            "message/send",
            json!({"message": user_message(json!([{"kind": "text", "text": "x"}]))}),
        )
        .await;
    assert_eq!(task["kind"], "task");
}

#[tokio::test]
async fn fasta2a_is_not_recognized_by_strict_servers() {
    let server = strict_server().await;
    let answer = post(&server, &request("message/send", &message("go"))).await;
    assert_eq!(answer["result"]["kind"], "task", "{answer}");
}

#[tokio::test]
async fn fasta2a_bad_input_is_an_error_and_writes_nothing() {
    let server = start(Echo).await;
    for (message, field) in [
        (
            json!({"role": "user", "parts": [], "messageId": "m"}),
            "message.parts",
        ),
        (
            json!({"role": "user", "parts": [{}], "messageId": "m"}),
            "message.parts[0]",
        ),
        (
            json!({"role": "user", "parts": [{"text": "x"}]}),
            "message.messageId",
        ),
        (
            json!({"role": "user", "parts": [{"raw": "!"}], "messageId": "m"}),
            "message.parts[0]",
        ),
    ] {
        let answer = post(&server, &request("message/send", &message)).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(
            answer["error"].to_string().contains(field),
            "{field}: {answer}"
        );
    }
    let all = server.result("ListTasks", json!({})).await;
    assert_eq!(all["totalSize"], 0, "{all}");
    // An error within a stream is its only event.
    let unknown = sample("rxjs-get-request");
    let mut message = message("x");
    message["taskId"] = unknown["params"]["taskId"].clone();
    let events = post_for_events(&server, &request("message/stream", &message)).await;
    assert_eq!(events[0]["error"]["code"], -32001, "{events:?}");
}
