//! Other agents behind ours: servers of the official SDK, and what a crash in between does.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use attache::model::{Binding, CancelTaskRequest, Message, StreamResponse, TaskState, Version};
use attache::{Client, ClientSettings, InterfacePreference};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::clients::{folder, is_quick, repository};
use crate::harness::{DEADLINE, ServerProcess, call, serve, serve_in};

/// A server that ends when its input does, however we end.
struct SdkServer {
    url: String,
    child: Child,
}

impl SdkServer {
    fn start(version: &str) -> Self {
        let script = repository().join(format!("tests/peers/servers/sdk{version}.py"));
        let mut child = Command::new(folder().join(format!("server{version}/bin/python")))
            .arg(script)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run tests/peers/setup");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim()
            .strip_prefix("Listening on ")
            .expect("the server says where it is")
            .to_owned();
        Self { url, child }
    }
}

impl Drop for SdkServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Serves a remote agent before `url`, from a file of its own and with its tasks in `data`.
fn before(url: &str, data: &TempDir) -> (ServerProcess, String) {
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

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future)
        .await
        .expect("within the deadline")
}

/// A stream, a question and a cancel, from before to behind and back.
async fn through(url: &str, binding: Binding, version: Version) {
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
    let client = soon(Client::builder().settings(settings).discover(url))
        .await
        .unwrap();
    assert_eq!(
        soon(client.send(Message::user("hello")))
            .await
            .unwrap()
            .text(),
        "hello"
    );

    let mut drip = soon(client.stream(Message::user("drip"))).await.unwrap();
    let mut flags = Vec::new();
    while let Some(event) = soon(drip.next()).await {
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

    let asked = soon(client.send(Message::user("ask"))).await.unwrap();
    assert_eq!(asked.state(), TaskState::InputRequired);
    let answer = Message::user("more").in_task(asked.task().unwrap().id.clone());
    let answered = soon(client.send(answer)).await.unwrap();
    assert_eq!(
        (answered.state(), answered.text().as_str()),
        (TaskState::Completed, "more")
    );

    let mut slow = soon(client.stream(Message::user("slow"))).await.unwrap();
    while slow
        .task()
        .is_none_or(|task| task.status.state != TaskState::Working)
    {
        soon(slow.next()).await.unwrap().unwrap();
    }
    let id = slow.task().unwrap().id.clone();
    let canceled = soon(client.cancel_task(CancelTaskRequest {
        id,
        ..Default::default()
    }))
    .await
    .unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    assert_eq!(
        soon(slow.finish()).await.unwrap().state(),
        TaskState::Canceled
    );
}

fn run_client(behind: &str, binding: Binding, version: Version) {
    if is_quick() {
        return;
    }
    let (behind, data) = (SdkServer::start(behind), TempDir::new().unwrap());
    let (_server, url) = before(&behind.url, &data);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(through(&url, binding, version));
}

#[test]
fn a2a_sdk_0_3_behind_is_an_agent_of_1_0_over_grpc() {
    run_client("03", Binding::Grpc, Version::V1);
}

#[test]
fn a2a_sdk_1_behind_is_an_agent_of_0_3() {
    run_client("10", Binding::JsonRpc, Version::V03);
}

/// Looks at a task until it is as it should be.
fn until(url: &str, id: &Value, such: impl Fn(&Value) -> bool) -> Value {
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
fn a_crash_loses_nothing_and_sends_nothing_twice() {
    let behind = serve(&["demo", "--store", "memory"]);
    let there = behind.line("Listening on ");
    let data = TempDir::new().unwrap();
    let (server, url) = before(&there, &data);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "slow 4"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let id = call(&url, "SendMessage", &params)["result"]["task"]["id"].clone();
    until(&url, &id, |task| {
        task["metadata"]["attache.remote"]["taskId"].is_string()
    });
    // Not asked to end: killed.
    drop(server);
    let (_server, url) = before(&there, &data);
    let ended = until(&url, &id, |task| {
        task["status"]["state"] == "TASK_STATE_COMPLETED"
    });
    assert!(
        ended["artifacts"].is_array() || ended["status"]["message"].is_object(),
        "{ended}"
    );
    let tasks = call(&there, "ListTasks", &json!({}))["result"]["tasks"].clone();
    assert_eq!(tasks.as_array().unwrap().len(), 1, "{tasks}");
}
