//! The worker agent, with Python and JavaScript functions and with misbehaving processes.

use std::path::PathBuf;
use std::time::Duration;

use attache_agents::{WorkerAgent, WorkerSettings};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::harness::{TestServer, artifact, start, start_with, state, status_text, with_deadline};

/// A file with an agent, in a folder of its own.
struct AgentFile {
    folder: TempDir,
    path: PathBuf,
}

impl AgentFile {
    fn new(name: &str, source: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, source).unwrap();
        Self { folder, path }
    }

    fn settings(&self) -> WorkerSettings {
        WorkerSettings {
            file: Some(self.path.clone()),
            folder: Some(self.folder.path().to_owned()),
            workers: 1,
            ..WorkerSettings::default()
        }
    }

    async fn start(&self) -> TestServer {
        start(WorkerAgent::new(self.settings()).unwrap()).await
    }

    /// Ids of the processes that have run, in the order of their start. The agent appends its own to the file `started`.
    fn processes(&self) -> Vec<String> {
        let started = std::fs::read_to_string(self.folder.path().join("started"));
        let started = started.unwrap_or_default();
        started.lines().map(str::to_owned).collect()
    }
}

/// The same agent in both languages.
const PYTHON: &str = r#"
import asyncio, os
from attache.agent import agent, Failed, Rejected

with open("started", "a") as file:
    print(os.getpid(), file=file)

@agent(description="Does as it is told", skills=[{"id": "s", "name": "S", "description": "D", "tags": ["t"]}])
async def run(turn):
    print("output of the code is not part of the protocol")
    if turn.memory:
        yield f"{turn.text} of {turn.memory['of']}"
    elif turn.text == "stream":
        for word in ["one ", "two ", "three"]:
            yield word
    elif turn.text == "ask":
        yield turn.ask("Which?", remember={"of": "Bern"})
        yield "never"
    elif turn.text == "artifact":
        turn.artifact("data", data={"a": 1})
        turn.artifact("file", file=b"\x00\xff", filename="f.bin", media_type="application/x-f")
    elif turn.text == "progress":
        turn.progress("at work")
        yield turn.reply("done")
    elif turn.text == "wait":
        turn.progress("waiting")
        try:
            await asyncio.sleep(600)
        finally:
            open("cleaned", "w").close()
    elif turn.text == "reject":
        raise Rejected("not today")
    elif turn.text == "fail":
        raise Failed("on purpose")
    elif turn.text == "raise":
        raise ValueError("secret")
    elif turn.text == "exit":
        os._exit(3)
"#;

const JAVASCRIPT: &str = r#"
import { appendFileSync, writeFileSync } from "node:fs";
import { agent, Failed, Rejected } from "@attache/agent";

appendFileSync("started", `${process.pid}\n`);

agent(async function* (turn) {
  console.log("output of the code is not part of the protocol");
  if (turn.memory) yield `${turn.text} of ${turn.memory.of}`;
  else if (turn.text === "stream") for (const word of ["one ", "two ", "three"]) yield word;
  else if (turn.text === "ask") {
    yield turn.ask("Which?", { remember: { of: "Bern" } });
    yield "never";
  } else if (turn.text === "artifact") {
    turn.artifact("data", { data: { a: 1 } });
    turn.artifact("file", { file: Uint8Array.of(0, 255), filename: "f.bin", mediaType: "application/x-f" });
  } else if (turn.text === "progress") {
    turn.progress("at work");
    yield turn.reply("done");
  } else if (turn.text === "wait") {
    turn.signal.addEventListener("abort", () => writeFileSync("cleaned", ""));
    turn.progress("waiting");
    await new Promise((resolve) => setTimeout(resolve, 600_000));
  } else if (turn.text === "reject") throw new Rejected("not today");
  else if (turn.text === "fail") throw new Failed("on purpose");
  else if (turn.text === "raise") throw new TypeError("secret");
  else if (turn.text === "exit") process.exit(3);
}, { description: "Does as it is told", skills: [{ id: "s", name: "S", description: "D", tags: ["t"] }] });
"#;

fn both_languages() -> [AgentFile; 2] {
    [
        AgentFile::new("agent.py", PYTHON),
        AgentFile::new("agent.mjs", JAVASCRIPT),
    ]
}

fn text(task: &Value) -> &str {
    artifact(task, "output")[0]["text"].as_str().unwrap()
}

/// Sends a text without waiting, and waits until the agent reports progress.
async fn start_waiting(agent: &TestServer) -> Value {
    let task = agent.send_without_waiting("wait").await;
    agent
        .poll_until(&task, |task| status_text(task) == "waiting")
        .await
}

#[tokio::test]
async fn a_function_streams_asks_and_writes_artifacts() {
    for file in both_languages() {
        let agent = file.start().await;
        assert_eq!(text(&agent.send_text("stream").await), "one two three");
        let asked = agent.send_text("ask").await;
        assert_eq!(
            (state(&asked), status_text(&asked)),
            ("INPUT_REQUIRED", "Which?")
        );
        assert!(!asked.to_string().contains("Bern"), "{asked}");
        let answered = agent.answer(&asked, json!([{"text": "the bridge"}])).await;
        assert_eq!(text(&answered), "the bridge of Bern");
        let task = agent.send_text("artifact").await;
        assert_eq!(artifact(&task, "data")[0]["data"], json!({"a": 1}));
        let expected = json!({"raw": "AP8=", "filename": "f.bin", "mediaType": "application/x-f"});
        assert_eq!(artifact(&task, "file")[0], expected);
        let task = agent.send_text("progress").await;
        assert_eq!((state(&task), status_text(&task)), ("COMPLETED", "done"));
        assert_eq!(file.processes().len(), 1, "one process ran all turns");
    }
}

#[tokio::test]
async fn errors_end_the_turn_without_details() {
    for file in both_languages() {
        let agent = file.start().await;
        for (text, expected, message) in [
            ("reject", "REJECTED", "not today"),
            ("fail", "FAILED", "on purpose"),
        ] {
            let task = agent.send_text(text).await;
            assert_eq!((state(&task), status_text(&task)), (expected, message));
        }
        let task = agent.send_text("raise").await;
        assert_eq!(state(&task), "FAILED");
        let message = status_text(&task);
        assert!(message.starts_with("the agent failed: "), "{message}");
        assert!(!task.to_string().contains("secret"), "{task}");
        assert_eq!(file.processes().len(), 1);
    }
}

#[tokio::test]
async fn a_cancel_reaches_the_function() {
    for file in both_languages() {
        let agent = file.start().await;
        let task = start_waiting(&agent).await;
        assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
        let cleaned = file.folder.path().join("cleaned");
        with_deadline(async {
            while !cleaned.exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        // The process goes on.
        assert_eq!(text(&agent.send_text("stream").await), "one two three");
        assert_eq!(file.processes().len(), 1);
    }
}

#[tokio::test]
async fn a_process_that_ends_loses_its_own_turns_and_is_replaced() {
    for file in both_languages() {
        let agent = file.start().await;
        let waiting = start_waiting(&agent).await;
        let task = agent.send_text("exit").await;
        let lost = "the worker ended before the turn did";
        assert_eq!((state(&task), status_text(&task)), ("FAILED", lost));
        let waiting = agent
            .poll_until(&waiting, |task| state(task) == "FAILED")
            .await;
        assert_eq!(status_text(&waiting), lost);
        assert_eq!(text(&agent.send_text("stream").await), "one two three");
        assert_eq!(file.processes().len(), 2);
    }
}

#[tokio::test]
async fn the_first_line_describes_the_card() {
    for file in both_languages() {
        let agent = WorkerAgent::new(file.settings()).unwrap();
        let card = with_deadline(agent.start()).await.unwrap();
        assert_eq!(card.description.as_deref(), Some("Does as it is told"));
        assert_eq!(card.skills[0].id, "s");
    }
}

#[tokio::test]
async fn fifty_turns_share_four_processes() {
    const ALL_AT_ONCE: &str = r#"
import asyncio, os
from attache.agent import agent

with open("started", "a") as file:
    print(os.getpid(), file=file)

@agent
async def run(turn):
    # Ends when all fifty turns are in progress.
    open(f"turn-{turn.task_id}", "w").close()
    while len([name for name in os.listdir() if name.startswith("turn-")]) < 50:
        await asyncio.sleep(0.005)
    yield turn.text
"#;
    let file = AgentFile::new("agent.py", ALL_AT_ONCE);
    let settings = WorkerSettings {
        workers: 4,
        turns_per_worker: 16,
        max_turns_per_caller: Some(64),
        ..file.settings()
    };
    let agent = std::sync::Arc::new(start(WorkerAgent::new(settings).unwrap()).await);
    let mut sends = JoinSet::new();
    for number in 0..50 {
        let agent = agent.clone();
        sends.spawn(async move {
            let sent = number.to_string();
            let task = agent.send_text(&sent).await;
            assert_eq!(text(&task), sent);
        });
    }
    sends.join_all().await;
    assert_eq!(file.processes().len(), 4);
}

#[tokio::test]
async fn functions_that_block_run_in_threads() {
    const BLOCKING: &str = r#"
import threading
from attache.agent import agent

arrived = threading.Barrier(3)

@agent
def run(turn):
    arrived.wait()
    yield "met "
    yield turn.text
"#;
    let file = AgentFile::new("agent.py", BLOCKING);
    let agent = std::sync::Arc::new(file.start().await);
    let mut sends = JoinSet::new();
    for _ in 0..3 {
        let agent = agent.clone();
        sends.spawn(async move { text(&agent.send_text("us").await).to_owned() });
    }
    assert_eq!(sends.join_all().await, ["met us"; 3]);
}

/// A worker in plain Python without the helper library. `{turn}` is the id of the turn.
fn raw_worker(on_turn: &str) -> String {
    format!(
        r#"
import json, os, sys, time

with open("started", "a") as file:
    print(os.getpid(), file=file)

def write(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()

write({{"hello": {{"protocol": 1}}}})
for line in sys.stdin:
    line = json.loads(line)
    if "ping" in line:
        write({{"pong": line["ping"]}})
    elif "turn" in line and line["text"] == "hello":
        write({{"turn": line["turn"], "reply": "hello"}})
    elif "turn" in line:
        turn = line["turn"]
        {on_turn}
"#
    )
}

/// Starts a worker of the given source, with short timeouts.
async fn start_raw(source: &str) -> (AgentFile, TestServer) {
    let file = AgentFile::new("worker", source);
    let settings = WorkerSettings {
        file: None,
        command: vec!["python3".to_owned(), file.path.display().to_string()],
        health_timeout: Duration::from_secs(2),
        cancel_timeout: Duration::from_millis(50),
        kill_after: Duration::from_millis(50),
        max_output: 1 << 20,
        ..file.settings()
    };
    let agent = start_with(WorkerAgent::new(settings).unwrap(), |server| {
        server.settings(attache::Settings {
            cancel_grace: Duration::from_millis(50),
            ..attache::Settings::default()
        })
    });
    let agent = agent.await;
    (file, agent)
}

#[tokio::test]
async fn a_faulty_process_costs_its_own_turns() {
    let ended = "the worker ended before the turn did";
    for (fault, message) in [
        (r#"print("Traceback: garbage", flush=True)"#, ended),
        (r#"os.write(1, b"x" * (8 << 20)); time.sleep(600)"#, ended),
        ("time.sleep(600)", ended),
        ("sys.exit(0)", ended),
        ("sys.stdin.close(); time.sleep(600)", ended),
        (
            r#"write({"turn": turn, "unknown": 1})"#,
            "the output is invalid: it has an unknown member, or one of the wrong type",
        ),
        (
            r#"write({"turn": turn, "state": "canceled"})"#,
            "the output is invalid: an agent cannot set this state",
        ),
        (
            r#"[write({"turn": turn, "text": "x" * 1000}) for _ in range(1100)]"#,
            "the output is larger than 1048576 bytes",
        ),
    ] {
        let (_file, agent) = start_raw(&raw_worker(fault)).await;
        assert_eq!(status_text(&agent.send_text("hello").await), "hello");
        let task = agent.send_text("go").await;
        assert_eq!(
            (state(&task), status_text(&task)),
            ("FAILED", message),
            "{fault}"
        );
        assert_eq!(
            status_text(&agent.send_text("hello").await),
            "hello",
            "{fault}"
        );
    }
}

#[tokio::test]
async fn a_gigabyte_of_output_is_not_kept() {
    // Valid lines of a turn that has ended, without an end.
    let flood = r#"
        write({"turn": turn, "reply": "done"})
        while True: write({"turn": turn, "text": "x" * 65536})"#;
    let (file, agent) = start_raw(&raw_worker(flood)).await;
    assert_eq!(status_text(&agent.send_text("go").await), "done");
    // The first process is killed. Until then it may receive turns.
    with_deadline(async {
        while file.processes().len() < 2 {
            agent.send_text("hello").await;
        }
    })
    .await;
    assert_eq!(status_text(&agent.send_text("hello").await), "hello");
}

#[tokio::test]
async fn a_process_that_ignores_a_cancel_is_replaced() {
    let ignore = r#"write({"turn": turn, "message": "waiting"})"#;
    let (file, agent) = start_raw(&raw_worker(ignore)).await;
    let task = start_waiting(&agent).await;
    assert_eq!(state(&agent.cancel(&task).await), "CANCELED");
    with_deadline(async {
        while file.processes().len() < 2 {
            assert_eq!(status_text(&agent.send_text("hello").await), "hello");
        }
    })
    .await;
}

#[tokio::test]
async fn no_process_is_left() {
    let (file, agent) = start_raw(&raw_worker("time.sleep(600)")).await;
    assert_eq!(status_text(&agent.send_text("hello").await), "hello");
    let process = PathBuf::from(format!("/proc/{}", file.processes()[0]));
    assert!(process.exists());
    drop(agent);
    with_deadline(async {
        while process.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn programs_that_do_not_speak_the_protocol_are_named() {
    let reason = async |settings: WorkerSettings| {
        let agent = WorkerAgent::new(settings).unwrap();
        with_deadline(agent.start()).await.unwrap_err()
    };
    let command = |words: &[&str]| WorkerSettings {
        command: words.iter().map(|word| (*word).to_owned()).collect(),
        workers: 1,
        ..WorkerSettings::default()
    };
    let silent = reason(command(&["true"])).await;
    assert!(silent.contains("exit status: 0"), "{silent}");
    let text = reason(command(&["echo", "hello"])).await;
    assert!(text.contains("first line is not a hello"), "{text}");
    let old = reason(command(&["echo", r#"{"hello": {"protocol": 9}}"#])).await;
    assert!(old.contains("speaks version 9"), "{old}");
    let missing = reason(command(&["/nonexistent/worker"])).await;
    assert!(
        missing.contains("/nonexistent/worker cannot be started"),
        "{missing}"
    );
    let file = AgentFile::new("agent.py", "x = 1");
    let empty = reason(file.settings()).await;
    assert!(empty.contains("has no agent; write @agent"), "{empty}");
    let file = AgentFile::new("agent.py", "def (");
    let broken = reason(file.settings()).await;
    assert!(broken.contains("SyntaxError"), "{broken}");
}

#[test]
fn invalid_settings_name_their_key() {
    let key = |settings: WorkerSettings| WorkerAgent::new(settings).unwrap_err().key;
    let file = || WorkerSettings {
        file: Some("agent.py".into()),
        ..WorkerSettings::default()
    };
    assert_eq!(key(WorkerSettings::default()), "file");
    assert_eq!(
        key(WorkerSettings {
            file: Some("agent.rb".into()),
            ..file()
        }),
        "file"
    );
    assert_eq!(
        key(WorkerSettings {
            command: vec!["x".to_owned()],
            ..file()
        }),
        "command"
    );
    assert_eq!(
        key(WorkerSettings {
            workers: 0,
            ..file()
        }),
        "workers"
    );
    assert_eq!(
        key(WorkerSettings {
            max_line: 10,
            ..file()
        }),
        "max_line"
    );
}
