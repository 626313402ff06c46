//! Agents that answer beside or behind their task: in messages of the stream (agno 3.1.10), in working statuses
//! (agentstack 0.7.1), or in a task behind the final status.

use attache::model::{Message, SendMessageResponse, StreamResponse};
use serde_json::{Value, json};

use super::following::{client, rpc_error, rpc_result};
use super::peer::{Peer, json_response, sse_response};
use crate::harness::with_deadline;

fn events(list: &[Value]) -> Vec<u8> {
    let frame = |event: &Value| format!("event: Message\ndata: {}\n\n", rpc_result(event));
    sse_response(list.iter().map(frame).collect::<String>().as_bytes())
}

fn status(state: &str, text: Option<&str>) -> Value {
    let message = text.map(|text| {
        json!({"kind": "message", "messageId": format!("m-{text}"), "role": "agent",
            "parts": [{"kind": "text", "text": text}], "taskId": "t", "contextId": "c"})
    });
    json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": state == "completed",
        "status": {"state": state, "message": message}})
}

fn message(text: &str) -> Value {
    json!({"kind": "message", "messageId": "one", "role": "agent", "taskId": "t", "contextId": "c",
        "parts": [{"kind": "text", "text": text}]})
}

fn last_task(history: &Value) -> Value {
    let image = json!({"kind": "file", "file": {"uri": "https://x.example/i.png"}});
    json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}, "history": history,
        "artifacts": [{"artifactId": "image-0", "parts": [image]}]})
}

/// Sends a message to a peer with these responses, and returns the response and the events of a stream.
async fn receive(answers: &[Vec<u8>]) -> (SendMessageResponse, Vec<StreamResponse>) {
    let peer = Peer::with_responses(answers.to_vec()).await;
    let stream = with_deadline(client(&peer).stream(Message::user("hi"))).await;
    let response = with_deadline(stream.unwrap().finish()).await.unwrap();
    let peer = Peer::with_responses(answers.to_vec()).await;
    let mut stream = with_deadline(client(&peer).stream(Message::user("hi")))
        .await
        .unwrap();
    let mut received = Vec::new();
    while let Some(event) = with_deadline(stream.next()).await {
        received.push(event.unwrap());
    }
    (response, received)
}

#[tokio::test]
async fn messages_beside_a_task_and_the_task_behind_it_are_received() {
    let whole = json!([message("Hello there")]);
    let stream = events(&[
        status("working", None),
        message("Hello"),
        message(" there"),
        status("completed", None),
        last_task(&whole),
    ]);
    let (response, received) = receive(&[stream]).await;
    assert_eq!(response.text(), "Hello there", "once");
    let task = response.task().unwrap();
    assert_eq!(task.history.len(), 1);
    assert_eq!(task.artifacts.len(), 1, "only the last task has it");
    let messages = received
        .iter()
        .filter(|one| matches!(one, StreamResponse::Message(_)));
    assert_eq!(messages.count(), 2);
    assert!(matches!(received.last(), Some(StreamResponse::Task(_))));
}

#[tokio::test]
async fn messages_are_kept_if_the_task_does_not_contain_them() {
    let stream = events(&[
        status("working", None),
        message("Hello"),
        message(" there"),
        status("completed", None),
    ]);
    let (response, _) = receive(&[stream]).await;
    assert_eq!(response.text(), "Hello there");
    let question = json!({"kind": "message", "messageId": "q", "role": "user", "parts": []});
    let stream = events(&[
        status("working", None),
        message("Hello"),
        status("completed", None),
        last_task(&json!([question])),
    ]);
    let (response, _) = receive(&[stream]).await;
    assert_eq!(response.text(), "Hello");
    assert_eq!(response.task().unwrap().history.len(), 2);
}

#[tokio::test]
async fn working_statuses_are_the_answer_if_there_is_no_other() {
    let stream = events(&[
        status("working", Some("First.")),
        status("working", Some("Second.")),
        status("completed", None),
    ]);
    let (response, _) = receive(&[stream]).await;
    assert_eq!(response.text(), "First.\nSecond.");
}

#[tokio::test]
async fn a_message_may_precede_its_task() {
    let task = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}});
    let stream = events(&[message("Hello"), task, status("completed", None)]);
    let (response, received) = receive(&[stream]).await;
    assert_eq!(response.text(), "Hello");
    assert_eq!(received.len(), 3);
}

#[tokio::test]
async fn messages_without_a_task_are_one_answer() {
    let stream = events(&[message("Hello"), message(" there")]);
    let (response, _) = receive(&[stream]).await;
    assert!(response.task().is_none());
    assert_eq!(response.text(), "Hello there");
}

#[tokio::test]
async fn s74_messages_of_other_tasks_are_ignored() {
    let mut other = message("forged");
    other["taskId"] = json!("other");
    let stream = events(&[status("working", None), other, status("completed", None)]);
    let (response, received) = receive(&[stream]).await;
    assert_eq!((response.text().as_str(), received.len()), ("", 2));
}

#[tokio::test]
async fn a_polled_copy_does_not_lose_what_the_stream_contained() {
    let cut = events(&[status("working", None), message("Hello")]);
    let copy =
        json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}});
    let copy = json_response(200, &rpc_result(&copy));
    let (response, _) = receive(&[cut, rpc_error(-32601), copy]).await;
    assert_eq!(response.text(), "Hello");
}
