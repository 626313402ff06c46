//! Checks of the client verbs that all echo agents of `tests/peers/servers` share. Each agent echoes a message, drips numbers,
//! asks a question, echoes a file, or never ends, as far as its framework has the feature.

use std::io::{BufRead, BufReader};
use std::sync::mpsc::sync_channel;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::run::{VerbOutput, finish, verb};
use crate::harness::{DEADLINE, ServerProcess, serve_in};

/// Content of the echoed file: not UTF-8.
const FILE: &[u8] = b"\x00\xffbinary\r\n";

/// An agent, and the flags that reach it.
pub(super) struct Peer<'a> {
    pub(super) url: &'a str,
    pub(super) flags: &'a [&'a str],
}

impl Peer<'_> {
    pub(super) fn run(&self, args: &[&str]) -> VerbOutput {
        verb(&[args, self.flags, &["-a", self.url]].concat()).run()
    }

    /// Runs a verb that must succeed.
    pub(super) fn succeed(&self, args: &[&str]) -> VerbOutput {
        let output = self.run(args);
        assert_eq!(
            output.code,
            Some(0),
            "{args:?} {:?}: {output:?}",
            self.flags
        );
        output
    }

    /// Runs a verb that must fail, and returns the code of the error.
    pub(super) fn fail(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["-o", "json"]].concat());
        assert_eq!(
            output.code,
            Some(1),
            "{args:?} {:?}: {output:?}",
            self.flags
        );
        output.json()["error"]["code"].clone()
    }

    pub(super) fn json(&self, args: &[&str]) -> Value {
        self.succeed(&[args, &["-o", "json"]].concat()).json()
    }

    /// Sends a message without waiting, and returns the id of the task.
    pub(super) fn start(&self, text: &str) -> String {
        let sent = self.json(&["send", "--async", text]);
        sent["task"]["id"].as_str().unwrap().to_owned()
    }
}

/// The text of a result in text output.
pub(super) fn text_of(output: &VerbOutput) -> String {
    let lines = output
        .out
        .lines()
        .skip_while(|line| *line != "Text:")
        .skip(1);
    let text: Vec<_> = lines.map_while(|line| line.strip_prefix("  ")).collect();
    text.join("\n")
}

pub(super) fn state_of(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

/// The text is the result, and its task can be read again. Returns the id.
pub(super) fn check_send(peer: &Peer<'_>) -> String {
    let sent = peer.succeed(&["send", "hello you"]);
    assert_eq!(sent.field("State"), "TASK_STATE_COMPLETED", "{sent:?}");
    assert_eq!(text_of(&sent).trim_end(), "hello you", "{sent:?}");
    sent.field("Task").to_owned()
}

pub(super) fn check_get(peer: &Peer<'_>) {
    let id = check_send(peer);
    let got = peer.succeed(&["task", "get", &id]);
    assert_eq!(got.field("Task"), id, "{got:?}");
    assert_eq!(got.field("State"), "TASK_STATE_COMPLETED", "{got:?}");
    assert_eq!(text_of(&got).trim_end(), "hello you", "{got:?}");
    assert_eq!(peer.fail(&["task", "get", "unknown"]), "TaskNotFoundError");
}

/// Every chunk arrives once and in order. `chunk` is the JSON pointer of its text within an event.
pub(super) fn check_stream(peer: &Peer<'_>, chunk: &str) {
    let lines = stream(peer, "drip");
    assert_eq!(streamed_text(&lines, chunk), numbers(), "{lines:?}");
}

/// Streams to the end of the task, and returns the events.
pub(super) fn stream(peer: &Peer<'_>, text: &str) -> Vec<Value> {
    let lines = peer
        .succeed(&["send", "--stream", text, "-o", "json"])
        .lines();
    let last = lines.last().unwrap();
    let settled = last.get("statusUpdate").or(last.get("task"));
    assert_eq!(
        settled.map(state_of),
        Some("TASK_STATE_COMPLETED"),
        "{lines:?}"
    );
    lines
}

/// The text of the events that have one at the JSON pointer `chunk`.
pub(super) fn streamed_text(events: &[Value], chunk: &str) -> String {
    let chunks = events
        .iter()
        .filter_map(|event| event.pointer(chunk)?.as_str());
    chunks.collect()
}

/// The text that `drip` streams.
pub(super) fn numbers() -> String {
    (0..20).map(|n| format!("{n} ")).collect()
}

/// A question, and its answer in the same task.
pub(super) fn check_question(peer: &Peer<'_>, question: &str) {
    let asked = peer.succeed(&["send", "ask"]);
    assert_eq!(
        asked.field("State"),
        "TASK_STATE_INPUT_REQUIRED",
        "{asked:?}"
    );
    assert_eq!(text_of(&asked), question, "{asked:?}");
    let id = asked.field("Task");
    let answered = peer.succeed(&["send", "--task-id", id, "more"]);
    assert_eq!(answered.field("Task"), id, "{answered:?}");
    assert_eq!(
        answered.field("State"),
        "TASK_STATE_COMPLETED",
        "{answered:?}"
    );
    assert_eq!(text_of(&answered), "more", "{answered:?}");
}

pub(super) fn check_cancel(peer: &Peer<'_>) {
    let id = peer.start("slow");
    let canceled = peer.json(&["task", "cancel", &id]);
    assert_eq!(state_of(&canceled), "TASK_STATE_CANCELED", "{canceled}");
    let got = peer.json(&["task", "get", &id]);
    assert_eq!(state_of(&got), "TASK_STATE_CANCELED", "{got}");
    let ended = check_send(peer);
    assert_eq!(
        peer.fail(&["task", "cancel", &ended]),
        "TaskNotCancelableError"
    );
}

/// Cancels a task whose stream is open, for servers that return from a send only at the end of the turn.
pub(super) fn check_cancel_of_stream(peer: &Peer<'_>) {
    let send = ["send", "--stream", "slow", "-o", "json", "-a", peer.url];
    let (mut child, _folder) = verb(&[send.as_slice(), peer.flags].concat()).start();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let (send, first_event) = sync_channel(1);
    thread::spawn(move || {
        let mut line = String::new();
        let _ = stdout.read_line(&mut line);
        let _ = send.send(line);
        // The pipe is drained: a process that writes to a closed pipe ends.
        stdout.lines().map_while(Result::ok).for_each(drop);
    });
    let line = first_event.recv_timeout(DEADLINE).unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    let id = event["task"]["id"].as_str().unwrap();
    let canceled = peer.json(&["task", "cancel", id]);
    assert_eq!(state_of(&canceled), "TASK_STATE_CANCELED", "{canceled}");
    let got = peer.json(&["task", "get", id]);
    assert_eq!(state_of(&got), "TASK_STATE_CANCELED", "{got}");
    // Such a server leaves the stream open.
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A file arrives at the agent and comes back with the same bytes, as a part and as a download.
pub(super) fn check_file(peer: &Peer<'_>) {
    check_file_members(peer, &["raw", "filename", "mediaType"]);
}

/// Like [`check_file`], for a server that keeps only these members of a file.
pub(super) fn check_file_members(peer: &Peer<'_>, members: &[&str]) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("f.bin");
    std::fs::write(&path, FILE).unwrap();
    let file = path.to_str().unwrap();
    let sent = peer.json(&["send", "hello", "--file", file])["task"].clone();
    assert_eq!(state_of(&sent), "TASK_STATE_COMPLETED", "{sent}");
    let parts = sent["artifacts"].as_array().unwrap().iter();
    let found = parts
        .flat_map(|artifact| artifact["parts"].as_array().unwrap())
        .find(|part| part.get("raw").is_some());
    let wanted = json!({"raw": "AP9iaW5hcnkNCg==", "filename": "f.bin", "mediaType": "application/octet-stream"});
    for member in members {
        assert_eq!(
            found.map(|part| &part[*member]),
            Some(&wanted[*member]),
            "{sent}"
        );
    }
    let target = TempDir::new().unwrap();
    let id = sent["id"].as_str().unwrap();
    let target_path = target.path().to_str().unwrap();
    peer.succeed(&["task", "download", id, "--output-dir", target_path]);
    let written = std::fs::read_dir(target.path()).unwrap();
    let contents: Vec<_> = written
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(
        contents.iter().any(|content| content == FILE),
        "{contents:?}"
    );
}

/// The server sends notifications of an answered question to `attache push listen`.
pub(super) fn check_push(peer: &Peer<'_>) {
    let asked = peer.succeed(&["send", "ask"]);
    let id = asked.field("Task");
    let listen = [
        "push",
        "listen",
        "--task-id",
        id,
        "-o",
        "json",
        "-a",
        peer.url,
    ];
    let (mut child, _folder) = verb(&[listen.as_slice(), peer.flags].concat()).start();
    let mut stderr = child.stderr.take().unwrap();
    let (send, registered) = sync_channel(1);
    thread::spawn(move || {
        let mut lines = BufReader::new(&mut stderr).lines().map_while(Result::ok);
        let is_registered = lines.any(|line| line.starts_with("registered for task"));
        drop(lines);
        let _ = send.send((is_registered, stderr));
    });
    let (is_registered, stderr) = registered.recv_timeout(DEADLINE).unwrap();
    child.stderr = Some(stderr);
    assert!(is_registered, "{:?}", finish(child));
    peer.succeed(&["send", "--task-id", id, "more"]);
    let output = finish(child);
    assert_eq!(output.code, Some(0), "{output:?}");
    let last = output.lines().pop().unwrap();
    let settled = last.get("task").or(last.get("statusUpdate"));
    assert_eq!(
        settled.map(state_of),
        Some("TASK_STATE_COMPLETED"),
        "{output:?}"
    );
}

/// Serves the agent as a `remote` agent of its own server.
pub(super) fn serve_remote(url: &str) -> (ServerProcess, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let text = format!("[agents.front]\ntype = \"remote\"\nurl = \"{url}\"\n");
    std::fs::write(&file, text).unwrap();
    let args = ["serve", file.to_str().unwrap(), "--store", "memory"];
    let server = serve_in(&args, folder);
    let url = server.line("Listening on ");
    (server, url)
}
