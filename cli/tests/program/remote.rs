//! Remote agents: servers of the official SDK behind ours, and a crash in between.

use std::time::Instant;

use attache::model::{Binding, CancelTaskRequest, Message, StreamResponse, TaskState, Version};
use attache::{Client, ClientSettings, InterfacePreference};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::clients::is_quick;
use crate::harness::{DEADLINE, ServerProcess, call, serve, serve_in};
use crate::peer_server::PeerServer;

/// Serves a remote agent for `url`, with its tasks in `data`.
fn serve_remote(url: &str, data: &TempDir) -> (ServerProcess, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    std::fs::write(
        &file,
        format!("[agents.front]\ntype = \"remote\"\nurl = \"{url}\"\n"),
    )
    .unwrap();
    let args = [
        "serve",
        file.to_str().unwrap(),
        "--data-dir",
        data.path().to_str().unwrap(),
    ];
    let server = serve_in(&args, folder);
    let url = server.line("Listening on ");
    (server, url)
}

async fn with_deadline<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future)
        .await
        .expect("within the deadline")
}

/// Stream, question and cancel through the remote agent.
async fn run_scenario(url: &str, binding: Binding, version: Version) {
    let interface = InterfacePreference {
        bindings: vec![binding],
        only_listed: true,
        version: Some(version),
        no_fallback: true,
    };
    let settings = ClientSettings {
        interface,
        ..ClientSettings::default()
    };
    let client = with_deadline(Client::builder().settings(settings).discover(url))
        .await
        .unwrap();
    assert_eq!(
        with_deadline(client.send(Message::user("hello")))
            .await
            .unwrap()
            .text(),
        "hello"
    );

    let mut drip = with_deadline(client.stream(Message::user("drip")))
        .await
        .unwrap();
    let mut flags = Vec::new();
    while let Some(event) = with_deadline(drip.next()).await {
        if let StreamResponse::ArtifactUpdate(event) = event.unwrap() {
            flags.push((event.append, event.last_chunk));
        }
    }
    assert_eq!(flags.len(), 20, "{flags:?}");
    assert_eq!(
        (flags[0], flags[1], flags[19]),
        ((false, false), (true, false), (true, true))
    );
    let numbers: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    let text = drip.task().unwrap().artifacts[0].as_text();
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), numbers);

    let question = with_deadline(client.send(Message::user("ask")))
        .await
        .unwrap();
    assert_eq!(question.state(), TaskState::InputRequired);
    let answer = Message::user("more").in_task(question.task().unwrap().id.clone());
    let answered = with_deadline(client.send(answer)).await.unwrap();
    assert_eq!(
        (answered.state(), answered.text().as_str()),
        (TaskState::Completed, "more")
    );

    let mut slow = with_deadline(client.stream(Message::user("slow")))
        .await
        .unwrap();
    while slow
        .task()
        .is_none_or(|task| task.status.state != TaskState::Working)
    {
        with_deadline(slow.next()).await.unwrap().unwrap();
    }
    let id = slow.task().unwrap().id.clone();
    let canceled = with_deadline(client.cancel_task(CancelTaskRequest {
        id,
        ..Default::default()
    }))
    .await
    .unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    assert_eq!(
        with_deadline(slow.finish()).await.unwrap().state(),
        TaskState::Canceled
    );
}

fn run_client(behind: &str, binding: Binding, version: Version) {
    if is_quick() {
        return;
    }
    let behind = PeerServer::python(&format!("server{behind}"), &format!("sdk{behind}.py"));
    let data = TempDir::new().unwrap();
    let (_server, url) = serve_remote(&behind.url, &data);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run_scenario(&url, binding, version));
}

#[test]
fn a_remote_a2a_sdk_0_3_is_served_as_1_0_over_grpc() {
    run_client("03", Binding::Grpc, Version::V1);
}

#[test]
fn a_remote_a2a_sdk_1_is_served_as_0_3() {
    run_client("10", Binding::JsonRpc, Version::V03);
}

/// Polls a task until it satisfies a condition.
fn wait_for_task(url: &str, id: &Value, such: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + DEADLINE;
    loop {
        let task = call(url, "GetTask", &json!({"id": id}))["result"].clone();
        if such(&task) {
            return task;
        }
        assert!(Instant::now() < end, "{task}");
        std::thread::yield_now();
    }
}

#[test]
fn a_crash_loses_no_event_and_sends_no_message_twice() {
    let behind = serve(&["demo", "--store", "memory"]);
    let there = behind.line("Listening on ");
    let data = TempDir::new().unwrap();
    let (server, url) = serve_remote(&there, &data);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "slow 4"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let id = call(&url, "SendMessage", &params)["result"]["task"]["id"].clone();
    wait_for_task(&url, &id, |task| {
        task["metadata"]["attache.remote"]["taskId"].is_string()
    });
    // SIGKILL, not a graceful shutdown.
    drop(server);
    let (_server, url) = serve_remote(&there, &data);
    let ended = wait_for_task(&url, &id, |task| {
        task["status"]["state"] == "TASK_STATE_COMPLETED"
    });
    assert!(
        ended["artifacts"].is_array() || ended["status"]["message"].is_object(),
        "{ended}"
    );
    let tasks = call(&there, "ListTasks", &json!({}))["result"]["tasks"].clone();
    assert_eq!(tasks.as_array().unwrap().len(), 1, "{tasks}");
}
