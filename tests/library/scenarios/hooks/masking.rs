//! Masked text reaches no reader: stream, task, list, webhook, chat completion, store file.

use std::path::Path;

use attache::model::{
    Binding, Json, ListTasksRequest, Message, Object, Part, PushConfig, SendMessageConfiguration,
    SendMessageRequest, Seq, SubscribeToTaskRequest, Version,
};
use attache::store::{Sqlite, sqlite::Options};
use attache::{
    Agent, Client, Failure, HookPhase, Outcome, PushReceiver, PushReceiverSettings, Server, Turn,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::super::{configured, get};
use super::{Behaviour, TestHook};
use crate::harness::everywhere::{MATRIX, can_list, card, open};
use crate::harness::{local_webhooks, run, with_deadline};

/// Agent that repeats the text in a status, an artifact, a chunked artifact and its last message.
struct Chatty;

impl Agent for Chatty {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let text = format!("{} and my secret", turn.text());
        turn.say(text.clone()).await;
        turn.write("echo", text.clone()).await;
        let mut writer = turn.writer("chunks");
        writer.write(text.clone()).await;
        writer.write(text.clone()).await;
        writer.finish().await;
        Ok(Outcome::CompletedWith(Message::agent(text)))
    }
}

/// Whether a file of the store contains a text.
fn store_contains(folder: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(folder).unwrap();
    files.into_iter().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    })
}

fn assert_masked(what: &str, seen: &dyn std::fmt::Debug) {
    let seen = format!("{seen:?}");
    assert!(!seen.contains("secret"), "{what}: {seen}");
}

async fn read_everything(client: &Client, webhook: &str) {
    let mut events = open(client.send_streaming_message(request(webhook)))
        .await
        .unwrap();
    let mut text = String::new();
    let mut task = None;
    while let Some(event) = events.next().await {
        assert_masked("stream", &event);
        text.push_str(&format!("{event:?}"));
        task = task.or(match event {
            attache::model::StreamResponse::Task(first) => Some(first),
            _ => None,
        });
    }
    assert!(text.contains("***"), "{text}");
    let task = task.unwrap();
    let read = get(client, &task).await;
    assert_eq!(read.artifacts.len(), 2);
    assert_masked("task", &read);
    // The task has ended. A resumed stream replays the stored events after the first one.
    let subscription = SubscribeToTaskRequest {
        tenant: None,
        id: task.id.clone(),
    };
    let mut replay = open(client.subscribe_to_task(subscription, Some(Seq(2))))
        .await
        .unwrap();
    let mut replayed = String::new();
    while let Some(event) = replay.next().await {
        assert_masked("replay", &event);
        replayed.push_str(&format!("{event:?}"));
    }
    assert!(replayed.contains("***"), "{replayed}");
    if can_list(client).await {
        let all = ListTasksRequest {
            include_artifacts: Some(true),
            ..ListTasksRequest::default()
        };
        assert_masked("list", &client.list_tasks(all).await.unwrap());
    }
    assert_masked(
        "send",
        &client.send_message(request(webhook)).await.unwrap(),
    );
}

fn request(webhook: &str) -> SendMessageRequest {
    configured(
        SendMessageRequest::new(Message::user("hello secret")),
        SendMessageConfiguration {
            task_push_notification_config: Some(PushConfig::new(webhook)),
            ..SendMessageConfiguration::default()
        },
    )
}

#[tokio::test]
async fn masked_text_reaches_no_reader() {
    for &(binding, version) in MATRIX {
        let folder = tempfile::tempdir().unwrap();
        let (receiver, mut notifications) = PushReceiver::new(PushReceiverSettings::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let webhook = format!("http://{}/hook", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move { receiver.serve(listener).await });
        let store = Sqlite::open(folder.path().join("tasks.db"), Options::default()).unwrap();
        let hook = TestHook::new("mask", Behaviour::Change).hook();
        let mut running = run(Server::new(card(), Chatty)
            .store(store)
            .push(local_webhooks())
            .hook(hook.phases([HookPhase::Call, HookPhase::Event])))
        .await;
        let url = format!("http://{}/", running.address);
        let client = Client::new(&url, binding, version).unwrap();
        with_deadline(read_everything(&client, &webhook)).await;
        let mut ended = 0;
        while ended < 2 {
            let notification = with_deadline(notifications.next()).await.unwrap();
            assert_masked("webhook", &notification.event);
            let text = format!("{:?}", notification.event);
            ended += usize::from(text.contains("Completed"));
        }
        let body = json!({"messages": [{"role": "user", "content": "hello secret"}]}).to_string();
        let answer = running.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer.body.contains("***") && !answer.body.contains("secret"),
            "{answer:?}"
        );
        running.stop().await;
        assert!(store_contains(folder.path(), "***"));
        assert!(
            !store_contains(folder.path(), "secret"),
            "{binding} {version}"
        );
    }
}

/// The store of the same exchange without a hook contains the text, so the check above can fail.
#[tokio::test]
async fn without_a_hook_the_store_contains_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("tasks.db"), Options::default()).unwrap();
    let mut running = run(Server::new(card(), Chatty).store(store)).await;
    let url = format!("http://{}/", running.address);
    let client = Client::new(&url, Binding::JsonRpc, Version::V1).unwrap();
    let mut message = Message::user("hello secret").part(Part::data(json!(1)));
    message.metadata = Some(Object::from_iter([("a", Json::from("b"))]));
    let sent = client.send_message(SendMessageRequest::new(message));
    with_deadline(sent).await.unwrap();
    running.stop().await;
    assert!(store_contains(folder.path(), "secret"));
}
