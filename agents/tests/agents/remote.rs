//! The remote agent: events, questions, answers and cancels in both directions.

mod kaos;
#[path = "../../../tests/stand_in/kaos.rs"]
mod kaos_server;
mod misbehaving_peer;

use std::time::Duration;

use attache::model::{Binding, Message, StreamResponse, TaskState, Version};
use attache::{Client, Failure, Outcome, Turn};
use attache_agents::{RemoteAgent, RemoteBinding, RemoteSettings, RemoteVersion, demo_agent};
use serde_json::json;

use crate::harness::{TestServer, artifact, start, state, status_text, with_deadline};

async fn remote_agent(url: &str, settings: RemoteSettings) -> TestServer {
    start(
        RemoteAgent::new(RemoteSettings {
            url: url.to_owned(),
            ..settings
        })
        .unwrap(),
    )
    .await
}

#[tokio::test]
async fn every_version_and_binding_works_on_both_sides() {
    let behind = start(demo_agent()).await;
    for binding in [RemoteBinding::Jsonrpc, RemoteBinding::Rest] {
        for version in [RemoteVersion::V03, RemoteVersion::V1] {
            let settings = RemoteSettings {
                binding: Some(binding),
                a2a_version: Some(version),
                ..RemoteSettings::default()
            };
            let front = remote_agent(&behind.url(), settings).await;
            for (binding, version) in [
                (Binding::JsonRpc, Version::V03),
                (Binding::HttpJson, Version::V03),
                (Binding::JsonRpc, Version::V1),
                (Binding::HttpJson, Version::V1),
            ] {
                let client = Client::new(&front.url(), binding, version).unwrap();
                let answer = with_deadline(client.send(Message::user("say hello")))
                    .await
                    .unwrap();
                assert_eq!(answer.text(), "say hello", "{answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn artifact_chunks_are_forwarded_with_their_flags() {
    let behind = start(demo_agent()).await;
    let front = remote_agent(&behind.url(), RemoteSettings::default()).await;
    let client = Client::new(&front.url(), Binding::JsonRpc, Version::V1).unwrap();
    let mut stream = with_deadline(client.stream(Message::user("stream 4 30")))
        .await
        .unwrap();
    let mut flags = Vec::new();
    while let Some(event) = with_deadline(stream.next()).await {
        if let StreamResponse::ArtifactUpdate(event) = event.unwrap() {
            flags.push((event.append, event.last_chunk));
        }
    }
    assert_eq!(flags.first(), Some(&(false, false)), "{flags:?}");
    assert_eq!(flags.last(), Some(&(true, true)), "{flags:?}");
    assert!(flags.len() >= 4, "{flags:?}");
    let task = stream.task().unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    let direct = Client::new(&behind.url(), Binding::JsonRpc, Version::V1).unwrap();
    let direct = with_deadline(direct.send(Message::user("stream 4 30")))
        .await
        .unwrap();
    assert_eq!(task.artifacts[0].as_text(), direct.text());
}

#[tokio::test]
async fn a_question_is_forwarded_and_its_answer_reaches_the_same_task() {
    let behind = start(demo_agent()).await;
    let front = remote_agent(&behind.url(), RemoteSettings::default()).await;
    let asked = front.send_text("ask").await;
    assert_eq!(
        (state(&asked), status_text(&asked)),
        ("INPUT_REQUIRED", "What is your name?")
    );
    let answered = front.answer(&asked, json!([{"text": "Ada"}])).await;
    assert_eq!(state(&answered), "COMPLETED", "{answered}");
    assert_eq!(artifact(&answered, "greeting")[0]["text"], "Hello, Ada!");
    let there = behind.call("ListTasks", json!({})).await;
    assert_eq!(there["tasks"].as_array().unwrap().len(), 1, "{there}");
}

#[tokio::test]
async fn auth_required_is_forwarded() {
    let behind = start(demo_agent()).await;
    let front = remote_agent(&behind.url(), RemoteSettings::default()).await;
    let asked = front.send_text("auth").await;
    assert_eq!(state(&asked), "AUTH_REQUIRED", "{asked}");
    let elsewhere = front.send_without_waiting("auth elsewhere 1").await;
    let waiting = front
        .poll_until(&elsewhere, |task| state(task) == "AUTH_REQUIRED")
        .await;
    assert!(
        status_text(&waiting).contains("login.example.com"),
        "{waiting}"
    );
    front
        .poll_until(&elsewhere, |task| state(task) == "COMPLETED")
        .await;
}

#[tokio::test]
async fn a_cancel_reaches_a_running_or_waiting_remote_task() {
    let behind = start(demo_agent()).await;
    let front = remote_agent(&behind.url(), RemoteSettings::default()).await;
    let slow = front.send_without_waiting("slow 600").await;
    front
        .poll_until(&slow, |task| {
            task["metadata"]["attache.remote"]["taskId"].is_string()
        })
        .await;
    assert_eq!(state(&front.cancel(&slow).await), "CANCELED");
    let parked = front.send_text("ask").await;
    assert_eq!(state(&front.cancel(&parked).await), "CANCELED");
    let there = behind.call("ListTasks", json!({})).await;
    for task in there["tasks"].as_array().unwrap() {
        behind
            .poll_until(task, |task| state(task) == "CANCELED")
            .await;
    }
    assert_eq!(there["tasks"].as_array().unwrap().len(), 2, "{there}");
}

#[tokio::test]
async fn failures_and_rejections_are_forwarded_with_their_message() {
    let behind = start(demo_agent()).await;
    let front = remote_agent(&behind.url(), RemoteSettings::default()).await;
    let rejected = front.send_text("reject").await;
    assert_eq!(
        (state(&rejected), status_text(&rejected)),
        ("REJECTED", "I would rather not")
    );
    let failed = front.send_text("fail").await;
    assert_eq!(
        (state(&failed), status_text(&failed)),
        ("FAILED", "it did not work, as you asked")
    );
}

#[tokio::test]
async fn seed_2_16_forwarded_progress_refers_to_the_remote_task() {
    async fn reports(turn: Turn) -> Result<Outcome, Failure> {
        turn.say("halfway").await;
        turn.write("answer", "42").await;
        Ok(Outcome::Completed)
    }
    let behind = start(reports).await;
    let front = remote_agent(&behind.url(), RemoteSettings::default()).await;
    let task = front.send_text("go").await;
    let history = task["history"].as_array().unwrap();
    let is_progress = |message: &&serde_json::Value| message["parts"][0]["text"] == "halfway";
    let progress = history.iter().find(is_progress).unwrap();
    let there = behind.call("ListTasks", json!({})).await;
    let id = &there["tasks"][0]["id"];
    assert_eq!(progress["referenceTaskIds"], json!([id]), "{progress}");
}

#[tokio::test]
async fn context_and_reference_ids_are_translated() {
    async fn refers(turn: Turn) -> Result<Outcome, Failure> {
        let referred = turn.referenced_tasks().await;
        turn.write(
            "seen",
            referred
                .iter()
                .map(|task| task.artifacts.len().to_string())
                .collect::<String>(),
        )
        .await;
        Ok(Outcome::Completed)
    }
    let behind = start(refers).await;
    let front = remote_agent(&behind.url(), RemoteSettings::default()).await;
    let first = front.send_text("one").await;
    let message = json!({
        "messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "two"}],
        "contextId": first["contextId"], "referenceTaskIds": [first["id"], "unknown"],
    });
    let second = front.call("SendMessage", json!({"message": message})).await["task"].clone();
    assert_eq!(artifact(&second, "seen")[0]["text"], "1", "{second}");
    let there = behind.call("ListTasks", json!({})).await;
    let contexts: Vec<_> = there["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["contextId"])
        .collect();
    assert!(contexts.len() == 2 && contexts[0] == contexts[1], "{there}");
    assert_ne!(
        contexts[0], &first["contextId"],
        "conversations there are theirs"
    );
}

#[tokio::test]
async fn r35_the_breaker_of_an_unavailable_agent_opens() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let settings = RemoteSettings {
        retries: 0,
        breaker_failures: 2,
        breaker_pause: Duration::from_secs(3600),
        ..RemoteSettings::default()
    };
    let front = remote_agent(&url, settings).await;
    for _ in 0..2 {
        let task = front.send_text("hello").await;
        assert_eq!(
            (state(&task), status_text(&task)),
            ("FAILED", "the remote agent is not available")
        );
    }
    let task = front.send_text("hello").await;
    assert_eq!(
        status_text(&task),
        "the remote agent is not available: too many consecutive failures, try again later"
    );
}

#[test]
fn invalid_settings_are_refused_with_their_key() {
    let bad = |settings: RemoteSettings| RemoteAgent::new(settings).unwrap_err().key;
    assert_eq!(
        bad(RemoteSettings {
            url: "ftp://x".to_owned(),
            ..Default::default()
        }),
        "url"
    );
    let url = "http://127.0.0.1:1".to_owned();
    let headers = [("a b".to_owned(), "c".into())].into();
    assert_eq!(
        bad(RemoteSettings {
            url: url.clone(),
            headers,
            ..Default::default()
        }),
        "headers"
    );
    assert_eq!(
        bad(RemoteSettings {
            url,
            trust: vec!["::".to_owned()],
            ..Default::default()
        }),
        "trust"
    );
}
