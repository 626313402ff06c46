//! Retries and timeouts of sends.

use std::time::Duration;

use attache::model::{
    Binding, ErrorKind, GetTaskRequest, Message, SendMessageRequest, SendMessageResponse, Version,
};
use attache::{Client, ClientSettings, Timeouts};

use super::following::{client, fast_settings, rpc_error, rpc_result, task, task_response};
use super::peer::{Peer, ReceivedRequest, http_response, json_response, sse_response};
use crate::harness::with_deadline;

fn idempotency_key(requests: &ReceivedRequest) -> String {
    let key = requests.head.split("idempotency-key: ").nth(1).unwrap();
    key.split("\r\n").next().unwrap().to_owned()
}

#[tokio::test]
async fn r15_message_that_may_have_arrived_is_not_resent() {
    let peer = Peer::with_responses(vec![Vec::new()]).await;
    let error = with_deadline(client(&peer).send(Message::user("hi")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(peer.requests().await.len(), 1);
}

#[tokio::test]
async fn d02_a_task_without_its_content_is_read_again() {
    let omitted = rpc_result(&serde_json::json!({"task": {
        "id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
        "metadata": {"attache.omitted": ["artifacts", "history"]}}}));
    let complete = rpc_result(&serde_json::json!({
        "id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "answer"}]}]}));
    let peer = Peer::with_responses(vec![
        json_response(200, &omitted),
        json_response(200, &complete),
    ])
    .await;
    let request = SendMessageRequest::new(Message::user("hi"));
    let sent = with_deadline(client(&peer).send_message(request)).await;
    let SendMessageResponse::Task(task) = sent.unwrap() else {
        panic!("not a task");
    };
    assert_eq!(task.text(), "answer");
    let requests = peer.requests().await;
    let read = String::from_utf8_lossy(&requests[1].body).into_owned();
    assert!(
        read.contains("GetTask") && read.contains(r#""id":"t""#),
        "{read}"
    );
}

#[tokio::test]
async fn r15_message_is_resent_with_the_same_idempotency_key() {
    let peer = Peer::with_responses(vec![
        Vec::new(),
        http_response(503, "", ""),
        task_response("COMPLETED"),
    ])
    .await;
    let mut settings = fast_settings();
    settings.retries.idempotency_keys_supported = true;
    let client = client(&peer).with_settings(settings);
    with_deadline(client.send(Message::user("hi")))
        .await
        .unwrap();
    let requests = peer.requests().await;
    assert!(
        requests
            .iter()
            .all(|one| idempotency_key(one) == idempotency_key(&requests[0])
                && one.body == requests[0].body)
    );
    let other = Peer::with_responses(vec![task_response("COMPLETED")]).await;
    let there = super::following::client(&other);
    with_deadline(there.send(Message::user("hi")))
        .await
        .unwrap();
    assert_ne!(
        idempotency_key(&other.requests().await[0]),
        idempotency_key(&requests[0]),
        "another message has another key"
    );
}

#[tokio::test]
async fn rate_limited_message_is_resent_after_retry_after() {
    let peer = Peer::with_responses(vec![
        http_response(429, "Retry-After: 0\r\n", ""),
        task_response("COMPLETED"),
    ])
    .await;
    with_deadline(client(&peer).send(Message::user("hi")))
        .await
        .unwrap();
    assert_eq!(peer.requests().await.len(), 2);
    let peer = Peer::with_responses(vec![http_response(429, "Retry-After: 3600\r\n", "")]).await;
    let error = with_deadline(client(&peer).send(Message::user("hi")))
        .await
        .unwrap_err();
    assert_eq!(
        error.retry_after(),
        Some(Duration::from_secs(3600)),
        "longer than the maximum delay"
    );
}

#[tokio::test]
async fn agent_errors_are_not_retried() {
    let peer = Peer::with_responses(vec![rpc_error(-32602)]).await;
    let error = with_deadline(client(&peer).send(Message::user("hi")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
}

#[tokio::test]
async fn s25_every_wait_has_a_timeout() {
    let timeouts = Timeouts {
        first_byte: Duration::from_millis(50),
        idle: Duration::from_millis(50),
        total: Duration::from_millis(500),
        ..Timeouts::default()
    };
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec();
    for (said, message) in [
        (Vec::new(), "did not answer within"),
        (head, "sent no data for"),
    ] {
        let peer = Peer::with_open_stream(vec![said]).await;
        let client = Client::new(&peer.url, Binding::HttpJson, Version::V1).unwrap();
        let client = client.with_settings(ClientSettings {
            timeouts: timeouts.clone(),
            ..fast_settings()
        });
        let error = with_deadline(client.get_task(GetTaskRequest {
            id: "t".into(),
            ..Default::default()
        }))
        .await;
        let error = error.unwrap_err();
        assert!(error.message().contains(message), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[tokio::test]
async fn s25_stream_of_comments_ends_at_the_timeout() {
    let peer = Peer::with_open_stream(vec![sse_response(&b": still here\n\n".repeat(1000))]).await;
    let mut settings = fast_settings();
    settings.timeouts.wait = Some(Duration::from_millis(100));
    let client = client(&peer).with_settings(settings);
    let mut followed = with_deadline(client.stream(Message::user("hi")))
        .await
        .unwrap();
    let error = with_deadline(followed.next()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
}

#[tokio::test]
async fn wrong_media_type_is_tolerated() {
    let task = rpc_result(&task("COMPLETED")).to_string();
    for kind in ["text/html", "text/plain", "application/octet-stream"] {
        let peer = Peer::with_responses(vec![http_response(
            200,
            &format!("Content-Type: {kind}\r\n"),
            &task,
        )])
        .await;
        assert!(
            with_deadline(client(&peer).send(Message::user("hi")))
                .await
                .is_ok(),
            "{kind}"
        );
    }
    let stream = format!("data: {task}\n\n");
    let peer = Peer::with_responses(vec![http_response(
        200,
        "Content-Type: application/json\r\n",
        &stream,
    )])
    .await;
    let error = with_deadline(client(&peer).stream(Message::user("hi")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
}

#[tokio::test]
async fn message_is_a_response() {
    let message = serde_json::json!({"message": {"messageId": "m", "role": "ROLE_AGENT",
        "parts": [{"text": "yes"}]}});
    let peer = Peer::with_responses(vec![json_response(200, &rpc_result(&message))]).await;
    assert_eq!(
        with_deadline(client(&peer).send(Message::user("hi")))
            .await
            .unwrap()
            .text(),
        "yes"
    );
}
