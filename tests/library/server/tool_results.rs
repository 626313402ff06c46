//! Client-side tools: a tool result finds the waiting task by reference.

use attache::model::{Json, Message};
use attache::{Failure, Outcome, Question, Turn};
use serde_json::{Value, json};

use crate::harness::{Running, start};

async fn agent(turn: Turn) -> Result<Outcome, Failure> {
    let is_result = |kind: Json| kind.get() == r#""tool-result""#;
    if turn
        .message()
        .parts
        .iter()
        .filter_map(|part| part.metadata()?.get("kind"))
        .any(is_result)
    {
        turn.write("used", "thank you").await;
        return Ok(Outcome::Completed);
    }
    let request = json!({"kind": "input-request", "requestId": turn.text()});
    let request = Json::parse(&request.to_string()).expect("it is JSON");
    Ok(Outcome::InputRequired(Question {
        message: Message::agent("use it"),
        request: Some(request),
    }))
}

async fn ask(server: &Running, request: &str) -> Value {
    let message = json!({"kind": "message", "messageId": "m", "role": "user",
        "parts": [{"kind": "text", "text": request}]});
    server
        .result("message/send", json!({"message": message}))
        .await
}

async fn answer(server: &Running, used: &str, tasks: &[&Value]) -> Value {
    let message = json!({"kind": "message", "messageId": "m", "role": "user", "referenceTaskIds": tasks,
        "parts": [{"kind": "tool-result", "toolUseId": used, "result": {"ok": true}}]});
    server
        .result("message/send", json!({"message": message}))
        .await
}

#[tokio::test]
async fn a_result_goes_on_with_the_task_that_waits_for_it() {
    let server = start(agent).await;
    let one = ask(&server, "one").await;
    let two = ask(&server, "two").await;
    let done = answer(&server, "two", &[&one["id"], &two["id"]]).await;
    assert_eq!(
        (&done["id"], &done["status"]["state"]),
        (&two["id"], &json!("completed"))
    );
    // No task waits for this result any more.
    let new = answer(&server, "two", &[&one["id"], &two["id"]]).await;
    assert!(new["id"] != one["id"] && new["id"] != two["id"]);
    let other = answer(&server, "three", &[&one["id"]]).await;
    assert_ne!(other["id"], one["id"]);
}

#[tokio::test]
async fn a_result_that_two_tasks_wait_for_is_a_task_of_its_own() {
    let server = start(agent).await;
    let one = ask(&server, "same").await;
    let two = ask(&server, "same").await;
    let new = answer(
        &server,
        "same",
        &[&one["id"], &two["id"], &json!("unknown")],
    )
    .await;
    assert!(new["id"] != one["id"] && new["id"] != two["id"]);
    let one_alone = answer(&server, "same", &[&one["id"]]).await;
    assert_eq!(one_alone["id"], one["id"]);
}
