//! `attache demo`.

use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::{
    DEADLINE, attache, call, run_expecting_error, send, send_text, serve, serve_in,
};

/// Runs a printed command in a shell, and returns its output.
fn paste(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_demo_answers_the_commands_that_it_prints() {
    let demo = serve(&["demo"]);
    let url = demo.line("Listening on ");
    let card = demo.line("Card: ");
    assert_eq!(
        demo.line("Tasks: "),
        demo.folder.path().join("tasks.db").display().to_string()
    );
    demo.line("Say hello:");
    let hello = paste(&demo.line(""));
    assert!(
        hello.contains("State: TASK_STATE_COMPLETED\n") && hello.contains("Text:\n  hello\n"),
        "{hello}"
    );
    demo.line("Watch it write:");
    let written = paste(&demo.line(""));
    assert!(
        written.matches("Event: artifact\n").count() >= 5,
        "{written}"
    );
    demo.line("Ask what else it can do:");
    let help = paste(&demo.line(""));
    assert!(help.contains("slow [seconds]"), "{help}");
    let card = send(&card, "GET", &["Accept: application/json"], "");
    assert_eq!(
        card["supportedInterfaces"][0]["url"],
        json!(url.trim_end_matches('/'))
    );
    assert!(
        card["skills"]
            .as_array()
            .unwrap()
            .iter()
            .any(|skill| skill["id"] == "stream"),
        "{card}"
    );
}

#[test]
fn the_printed_commands_work_in_a_shell() {
    let server = serve(&["serve", "--echo"]);
    for command in server.commands() {
        assert!(!paste(&command).is_empty());
    }
}

#[test]
fn a_busy_port_has_a_hint_with_a_command() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, text) = run_expecting_error(&["demo", "--listen", &address, "--store", "memory"]);
    assert_eq!(code, Some(1));
    assert!(text.contains(&format!("{address} is in use")), "{text}");
    assert!(
        text.contains("attache demo --store memory --listen 127.0.0.1:0"),
        "{text}"
    );
}

#[cfg(unix)]
#[test]
fn the_demo_shuts_down_gracefully() {
    let mut demo = serve(&["demo"]);
    demo.line("Listening on ");
    let id = demo.process.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let end = loop {
        if let Err(end) = demo.lines.recv_timeout(DEADLINE) {
            break end;
        }
    };
    assert_eq!(end, RecvTimeoutError::Disconnected);
    assert_eq!(demo.process.wait().unwrap().code(), Some(0));
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    assert_eq!(run_expecting_error(&["nonsense"]).0, Some(2));
    assert_eq!(run_expecting_error(&["demo", "--nonsense"]).0, Some(2));
    let help = attache(&["demo", "--help"]).output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("127.0.0.1:41241")
    );
}

#[test]
fn r10_tasks_survive_a_kill_of_the_demo() {
    let mut first = serve(&["demo"]);
    let url = first.line("Listening on ");
    let task = send_text(&url, "remember");
    let question = send_text(&url, "ask");
    first.process.kill().unwrap();
    first.process.wait().unwrap();
    let folder = std::mem::replace(&mut first.folder, TempDir::new().unwrap());
    let second = serve_in(&["demo"], folder);
    let url = second.line("Listening on ");
    assert_eq!(
        call(&url, "GetTask", &json!({"id": task["id"]}))["result"],
        task
    );
    assert_eq!(
        call(&url, "ListTasks", &json!({}))["result"]["totalSize"],
        2
    );
    let message = json!({"messageId": "n", "role": "ROLE_USER", "parts": [{"text": "Ada"}], "taskId": question["id"]});
    let answered = call(&url, "SendMessage", &json!({"message": message}));
    assert_eq!(
        answered["result"]["task"]["artifacts"][0]["parts"][0]["text"], "Hello, Ada!",
        "{answered}"
    );
}

#[test]
fn a_data_directory_in_use_has_a_hint_with_a_flag() {
    let demo = serve(&["demo"]);
    demo.line("Listening on ");
    let folder = demo.folder.path().display().to_string();
    let (code, text) =
        run_expecting_error(&["demo", "--listen", "127.0.0.1:0", "--data-dir", &folder]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains(&folder) && text.contains("--data-dir <DIR>"),
        "{text}"
    );
}
