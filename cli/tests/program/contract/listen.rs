//! `attache push listen`.

use std::io::{BufRead, BufReader};

use serde_json::json;

use super::run::{finish, run_at, verb};
use super::scripted_agent::{self, ScriptedAgent};
use crate::harness::{DEADLINE, run_expecting_error, send, serve};

#[test]
fn push_002_notifications_of_a_task_are_received_until_it_ends() {
    let demo = serve(&["demo"]);
    let url = demo.line("Listening on ");
    let question = run_at(&url, &["send", "ask"]);
    let task = question.field("Task").to_owned();
    let listen = [
        "push",
        "listen",
        "-a",
        &url,
        "--task-id",
        &task,
        "-o",
        "json",
    ];
    let (mut child, _folder) = verb(&listen).start();
    let mut output = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(
        output
            .next()
            .unwrap()
            .starts_with("listening on http://127.0.0.1:")
    );
    assert!(
        output
            .next()
            .unwrap()
            .starts_with(&format!("registered for task {task}"))
    );
    let answered = run_at(&url, &["send", "--task-id", &task, "Ada"]);
    assert_eq!(
        answered.field("State"),
        "TASK_STATE_COMPLETED",
        "{answered:?}"
    );
    let (send, ended) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || send.send(child.wait_with_output()));
    let output = ended.recv_timeout(DEADLINE).unwrap().unwrap();
    let lines: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(output.status.code(), Some(0));
    let last = lines.last().unwrap();
    let state = [&last["task"], &last["statusUpdate"]]
        .into_iter()
        .find_map(|one| one["status"]["state"].as_str());
    assert_eq!(state, Some("TASK_STATE_COMPLETED"), "{lines:?}");
    let left = run_at(&url, &["task", "push-config", "list", "-o", "json", &task]);
    assert_eq!(
        left.json()["configs"].as_array().map_or(0, Vec::len),
        0,
        "{left:?}"
    );
}

/// S73: a server that signs notifications, and a receiver that requires signatures.
#[test]
fn s73_signed_notifications_are_verified_with_the_server_keys() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let key = folder.path().join("push.pem");
    let text = "[push]\nlocal_webhooks = true\nsigning_key = \"push.pem\"\n[agents.practice]\ntype = \"demo\"";
    std::fs::write(&file, text).unwrap();
    std::fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let file = file.to_str().unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let refused = run_expecting_error(&[
            "serve",
            file,
            "--listen",
            "127.0.0.1:0",
            "--store",
            "memory",
        ])
        .1;
        assert!(refused.contains("chmod 600"), "S82: {refused}");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let server = serve(&["serve", file, "--store", "memory"]);
    let url = server.line("Listening on ");
    let task = run_at(&url, &["send", "ask"]).field("Task").to_owned();
    let keys = format!("{url}.well-known/jwks.json");
    let listen = [
        "push",
        "listen",
        "-a",
        &url,
        "--task-id",
        &task,
        "--key-set",
        &keys,
        "-o",
        "json",
    ];
    let (mut child, _folder) = verb(&listen).start();
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("registered for task") {
        line.clear();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "it registers");
    }
    child.stderr = Some(reader.into_inner());
    run_at(&url, &["send", "--task-id", &task, "Ada"]);
    let heard = finish(child);
    assert_eq!(heard.code, Some(0));
    assert!(
        heard
            .out
            .lines()
            .last()
            .unwrap()
            .contains("TASK_STATE_COMPLETED"),
        "{heard:?}"
    );
}

#[test]
fn push_002_notifications_without_the_token_are_refused() {
    let listen = ["push", "listen", "--count", "1"];
    let (mut child, _folder) = verb(&listen)
        .env("ATTACHE_PUSH_TOKEN", "wh00k-token")
        .start();
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    child.stderr = Some(reader.into_inner());
    let url = line
        .trim()
        .strip_prefix("listening on ")
        .unwrap()
        .to_owned();
    let event = json!({"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}}});
    let post = |token: &str| {
        let token = format!("X-A2A-Notification-Token: {token}");
        std::panic::catch_unwind(|| {
            send(
                &url,
                "POST",
                &["Content-Type: application/json", &token],
                &event.to_string(),
            )
        })
    };
    // The responses have no body; the printed notifications are checked.
    let _ = post("guessed");
    let _ = post("wh00k-token");
    let output = finish(child);
    assert_eq!(
        (output.code, output.fields("Task")),
        (Some(0), vec!["t-1"]),
        "{output:?}"
    );
}

#[test]
fn push_002_an_agent_without_push_gets_no_registration() {
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let output = run_at(
        &peer.url,
        &["push", "listen", "--task-id", "t-1", "-o", "json"],
    );
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(
        output.json()["error"]["code"],
        "PushNotificationNotSupportedError"
    );
}
