//! Bodies that are expensive to decode: they are refused, and other callers are served meanwhile.

use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::hostile_clients::{assert_served, send};
use crate::harness::{Echo, Running, WIRE_FORMATS, WireFormat, start, with_deadline};

/// Number of connections that send large bodies.
const HOSTILE_CONNECTIONS: usize = 4;
/// Number of metadata keys of a hostile message, in 6.9 MB.
const KEYS: usize = 700_000;

/// Number of times that another caller sends and streams.
const ROUNDS: usize = 20;

/// Body of a message with many metadata keys.
fn many_keys() -> String {
    let keys: Vec<_> = (0..KEYS).map(|key| format!("\"{key:06}\":0")).collect();
    let metadata = format!("{{{}}}", keys.join(","));
    let body = send(WireFormat::Rpc1, "hi").body;
    let end = body.rfind("\"messageId\"").unwrap();
    format!("{}\"metadata\":{metadata},{}", &body[..end], &body[end..])
}

/// Sends hostile bodies, one after the other, until the token is cancelled. Returns their number.
async fn attack(server: Arc<Running>, body: Arc<str>, stop: CancellationToken) -> usize {
    let mut refused = 0;
    while !stop.is_cancelled() {
        let answer = server.post("/", &body).await;
        assert!(answer.body.contains("max_metadata_bytes"), "{answer:?}");
        refused += 1;
    }
    refused
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d07_other_callers_are_served_while_large_bodies_are_decoded() {
    let server = Arc::new(start(Echo).await);
    let body: Arc<str> = many_keys().into();
    let stop = CancellationToken::new();
    let mut hostile = JoinSet::new();
    for _ in 0..HOSTILE_CONNECTIONS {
        hostile.spawn(attack(server.clone(), body.clone(), stop.clone()));
    }
    let mut served = 0;
    for number in 0..ROUNDS {
        let form = WIRE_FORMATS[number % WIRE_FORMATS.len()];
        assert_served(server.address, form, number).await;
        served += 2;
    }
    stop.cancel();
    let refused: usize = with_deadline(hostile.join_all()).await.into_iter().sum();
    assert!(
        (1..=served).contains(&refused),
        "{served} served, {refused} refused"
    );
}

#[tokio::test]
async fn d07_large_bodies_within_the_limits_are_decoded() {
    let server = start(Echo).await;
    let text = "x".repeat(1 << 20);
    for form in WIRE_FORMATS {
        let answer = with_deadline(server.ask(&send(form, &text))).await;
        assert_eq!(answer.status, 200, "{form:?}");
        assert!(answer.body.contains(&text), "{form:?}");
        let refused = server
            .ask(&form.ask(
                "SendMessage",
                json!({"message": form.message("hi", json!({"metadata": {"a": text}}))}),
            ))
            .await;
        assert!(refused.body.contains("max_metadata_bytes"), "{refused:?}");
    }
}
