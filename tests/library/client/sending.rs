//! What is sent again and what never is, and how long things may take.

use std::time::Duration;

use attache::model::{Binding, ErrorKind, GetTaskRequest, Message, Version};
use attache::{Client, ClientSettings, Timeouts};

use super::following::{client, got, quick, refusal, rpc, task};
use super::peer::{Asked, Peer, events, json as answer, reply};
use crate::harness::with_deadline;

fn key(asked: &Asked) -> String {
    let key = asked.head.split("idempotency-key: ").nth(1).unwrap();
    key.split("\r\n").next().unwrap().to_owned()
}

#[tokio::test]
async fn r15_a_message_that_may_have_arrived_is_not_sent_again() {
    let peer = Peer::with(vec![Vec::new()]).await;
    let error = with_deadline(client(&peer).send(Message::user("hi")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(peer.asked().await.len(), 1);
}

#[tokio::test]
async fn r15_under_a_key_that_is_honoured_it_is_the_same_message_again() {
    let peer = Peer::with(vec![Vec::new(), reply(503, "", ""), got("COMPLETED")]).await;
    let mut settings = quick();
    settings.retries.idempotency_keys_supported = true;
    let client = client(&peer).with_settings(settings);
    with_deadline(client.send(Message::user("hi")))
        .await
        .unwrap();
    let asked = peer.asked().await;
    assert!(
        asked
            .iter()
            .all(|one| key(one) == key(&asked[0]) && one.body == asked[0].body)
    );
    let other = Peer::with(vec![got("COMPLETED")]).await;
    let there = super::following::client(&other);
    with_deadline(there.send(Message::user("hi")))
        .await
        .unwrap();
    assert_ne!(
        key(&other.asked().await[0]),
        key(&asked[0]),
        "another message has another key"
    );
}

#[tokio::test]
async fn what_was_refused_for_being_too_much_is_sent_again_when_the_peer_says() {
    let peer = Peer::with(vec![reply(429, "Retry-After: 0\r\n", ""), got("COMPLETED")]).await;
    with_deadline(client(&peer).send(Message::user("hi")))
        .await
        .unwrap();
    assert_eq!(peer.asked().await.len(), 2);
    let peer = Peer::with(vec![reply(429, "Retry-After: 3600\r\n", "")]).await;
    let error = with_deadline(client(&peer).send(Message::user("hi")))
        .await
        .unwrap_err();
    assert_eq!(
        error.retry_after(),
        Some(Duration::from_secs(3600)),
        "nobody waits that long"
    );
}

#[tokio::test]
async fn an_error_of_the_agent_is_an_error_at_once() {
    let peer = Peer::with(vec![refusal(-32602)]).await;
    let error = with_deadline(client(&peer).send(Message::user("hi")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
}

#[tokio::test]
async fn s25_nobody_waits_for_ever() {
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
        let peer = Peer::holding(vec![said]).await;
        let client = Client::new(&peer.url, Binding::HttpJson, Version::V1).unwrap();
        let client = client.with_settings(ClientSettings {
            timeouts: timeouts.clone(),
            ..quick()
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
async fn s25_a_stream_of_nothing_but_comments_ends_with_the_time_allowed() {
    let peer = Peer::holding(vec![events(&b": still here\n\n".repeat(1000))]).await;
    let mut settings = quick();
    settings.timeouts.wait = Some(Duration::from_millis(100));
    let client = client(&peer).with_settings(settings);
    let mut followed = with_deadline(client.stream(Message::user("hi")))
        .await
        .unwrap();
    let error = with_deadline(followed.next()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
}

#[tokio::test]
async fn a_wrong_media_type_does_no_harm() {
    let task = rpc(&task("COMPLETED")).to_string();
    for kind in ["text/html", "text/plain", "application/octet-stream"] {
        let peer = Peer::with(vec![reply(
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
    let peer = Peer::with(vec![reply(
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
async fn a_plain_message_is_an_answer() {
    let message = serde_json::json!({"message": {"messageId": "m", "role": "ROLE_AGENT",
        "parts": [{"text": "yes"}]}});
    let peer = Peer::with(vec![answer(200, &rpc(&message))]).await;
    assert_eq!(
        with_deadline(client(&peer).send(Message::user("hi")))
            .await
            .unwrap()
            .text(),
        "yes"
    );
}
