//! Client verbs against servers of the official SDKs: the echo agents in `tests/peers/servers`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::run::{VerbOutput, run_at};
use crate::clients::{folder, is_quick, repository};

/// An SDK server that ends when its stdin closes.
struct SdkServer {
    url: String,
    child: Child,
}

impl Drop for SdkServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl SdkServer {
    fn start(command: &mut Command) -> Self {
        let spawned = command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child =
            spawned.unwrap_or_else(|fault| panic!("{command:?}: {fault}; run tests/peers/setup"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim()
            .strip_prefix("Listening on ")
            .expect("it says where it is")
            .to_owned();
        Self { url, child }
    }

    fn python(version: &str) -> Self {
        let program = folder().join(format!("server{version}/bin/python"));
        Self::start(
            Command::new(program)
                .arg(repository().join(format!("tests/peers/servers/sdk{version}.py"))),
        )
    }

    fn run(&self, args: &[&str], how: &[&str]) -> VerbOutput {
        run_at(&self.url, &[args, how].concat())
    }
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

/// All task verbs over every binding, concurrently.
fn every_binding(server: &SdkServer, how: &[&str], lists: bool) {
    thread::scope(|scope| {
        for binding in ["jsonrpc", "http+json", "grpc"] {
            scope.spawn(move || {
                every_verb(server, &[how, &["--transport", binding]].concat(), lists)
            });
        }
    });
}

/// All task verbs over one binding and version; `lists` if the version has ListTasks.
fn every_verb(server: &SdkServer, how: &[&str], lists: bool) {
    let how = [how, &["-o", "json"]].concat();
    let run = |args: &[&str]| {
        let output = server.run(args, &how);
        assert_eq!(output.code, Some(0), "{args:?} {how:?}: {output:?}");
        output
    };
    let sent = run(&["send", "hello"]).json()["task"].clone();
    assert_eq!(state(&sent), "TASK_STATE_COMPLETED", "{sent}");
    assert_eq!(sent["artifacts"][0]["parts"][0]["text"], "hello", "{sent}");
    let id = sent["id"].as_str().unwrap();
    let got = run(&["task", "get", id]).json();
    assert_eq!(
        (state(&got), &got["id"]),
        ("TASK_STATE_COMPLETED", &sent["id"])
    );
    let unknown = server.run(&["task", "get", "unknown"], &how);
    assert_eq!(
        (unknown.code, &unknown.json()["error"]["code"]),
        (Some(1), &json!("TaskNotFoundError")),
        "{how:?}"
    );
    if lists {
        let listed = run(&["task", "list"]).json();
        let tasks = listed["tasks"].as_array().unwrap();
        assert!(
            tasks.iter().any(|task| task["id"] == sent["id"]),
            "{listed}"
        );
    }
    // A question, and its answer in the same task.
    let question = run(&["send", "ask"]).json()["task"].clone();
    assert_eq!(state(&question), "TASK_STATE_INPUT_REQUIRED", "{question}");
    let answered = run(&[
        "send",
        "--task-id",
        question["id"].as_str().unwrap(),
        "more",
    ])
    .json();
    assert_eq!(
        state(&answered["task"]),
        "TASK_STATE_COMPLETED",
        "{answered}"
    );
    // A stream, a line per event, until the final one.
    let lines = run(&["send", "--stream", "hello"]).lines();
    let last = lines.last().unwrap();
    let settled = last
        .get("statusUpdate")
        .or(last.get("task"))
        .unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(state(settled), "TASK_STATE_COMPLETED", "{lines:?}");
    let slow = run(&["send", "--async", "slow"]).json()["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let canceled = run(&["task", "cancel", &slow]).json();
    assert_eq!(state(&canceled), "TASK_STATE_CANCELED", "{canceled}");
    // A later subscriber follows a slow task to its end.
    let dripping = run(&["send", "--async", "drip"]).json()["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let lines = run(&[
        "task",
        "subscribe",
        &dripping,
        "--stream",
        "--timeout",
        "20s",
    ])
    .lines();
    let last = lines.last().unwrap();
    let settled = last
        .get("statusUpdate")
        .or(last.get("task"))
        .unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(state(settled), "TASK_STATE_COMPLETED", "{lines:?}");
    assert!(lines.len() > 2, "it was followed: {lines:?}");
}

/// The card, which does not depend on the version.
fn card(server: &SdkServer, how: &[&str]) {
    let output = server.run(&["card", "get", "--validate", "-o", "json"], how);
    assert_eq!(
        (output.code, &output.json()["name"]),
        (Some(0), &json!("Echo")),
        "{output:?}"
    );
}

#[test]
fn card_get_001_send_001_task_get_001_task_list_001_task_cancel_001_task_subscribe_001_tx_004_with_a2a_sdk_1()
 {
    if is_quick() {
        return;
    }
    let server = SdkServer::python("10");
    card(&server, &[]);
    every_binding(&server, &[], true);
}

#[test]
fn card_get_001_send_001_task_get_001_task_list_001_task_cancel_001_task_subscribe_001_tx_004_with_a2a_js_1()
 {
    if is_quick() {
        return;
    }
    let script = repository().join("tests/peers/servers/sdk10.mjs");
    let server = SdkServer::start(Command::new("node").arg(script).arg(folder().join("js")));
    card(&server, &[]);
    every_binding(&server, &[], true);
}

#[test]
fn send_001_task_get_001_task_cancel_001_task_subscribe_001_ver_001_with_a2a_sdk_0_3_on_request() {
    if is_quick() {
        return;
    }
    let server = SdkServer::python("03");
    let refused = server.run(&["send", "hello", "-o", "json"], &[]);
    let error = &refused.json()["error"];
    assert_eq!(
        (refused.code, &error["code"]),
        (Some(1), &json!("VersionNotSupportedError")),
        "{refused:?}"
    );
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("--a2a-version 0.3"),
        "{error}"
    );
    every_binding(&server, &["--a2a-version", "0.3"], false);
}
