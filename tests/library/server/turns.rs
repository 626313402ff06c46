//! Turns that wait for a permit, and turns without an end.

use std::time::Duration;

use attache::{Failure, Outcome, Settings, Turn};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::harness::{Running, message, request, start_with, with_deadline};
use crate::server::operations::Held;

/// Sends a text with `returnImmediately`.
async fn begin(server: &Running, text: &str) -> Value {
    let at_once = json!({"returnImmediately": true});
    let params = json!({"message": message(text, json!({})), "configuration": at_once});
    server.result("SendMessage", params).await["task"].clone()
}

#[tokio::test]
async fn a_server_with_all_turns_taken_keeps_some_waiting_and_refuses_the_rest() {
    let (started, mut heard) = mpsc::channel(4);
    let held = Held::new(started);
    let settings = Settings {
        max_turns: 1,
        max_waiting_turns: 1,
        ..Settings::default()
    };
    let server = start_with(held.clone(), |server| server.settings(settings)).await;
    let first = begin(&server, "one").await;
    assert_eq!(
        with_deadline(heard.recv()).await.unwrap(),
        first["id"].as_str().unwrap()
    );
    let second = begin(&server, "two").await;
    assert_eq!(second["status"]["state"], "TASK_STATE_SUBMITTED");
    let refused = server
        .post(
            "/",
            &request(
                "SendMessage",
                &json!({"message": message("three", json!({}))}),
            ),
        )
        .await;
    assert_eq!(refused.json()["error"]["data"][0]["reason"], "UNAVAILABLE");
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
    held.release();
    assert_eq!(
        with_deadline(heard.recv()).await.unwrap(),
        second["id"].as_str().unwrap()
    );
    let canceled = server
        .result("CancelTask", json!({"id": second["id"]}))
        .await;
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn r44_a_turn_without_end_fails_at_its_deadline() {
    let hangs = |_: Turn| std::future::pending::<Result<Outcome, Failure>>();
    let settings = Settings {
        max_turn_time: Some(Duration::from_millis(20)),
        ..Settings::default()
    };
    let server = start_with(hangs, |server| server.settings(settings)).await;
    let task = server.say("go", json!({})).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
    let said = &task["status"]["message"]["parts"][0]["text"];
    assert_eq!(*said, "Agent execution failed (deadline)");
}
