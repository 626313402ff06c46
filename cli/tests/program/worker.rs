//! `attache serve` with an agent in Python or JavaScript.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    DEADLINE, ServerProcess, attache, call, run_expecting_error, send, send_text, serve,
    serve_command,
};

fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join("examples").join(name).display().to_string()
}

/// Artifacts of a task by their names.
fn artifact<'a>(task: &'a Value, name: &str) -> &'a Value {
    let artifacts = task["artifacts"].as_array().unwrap();
    &artifacts
        .iter()
        .find(|artifact| artifact["name"] == name)
        .unwrap()["parts"][0]
}

#[test]
fn a_file_with_a_function_is_served() {
    for file in ["words.py", "words.mjs"] {
        let server = serve(&["serve", &example(file), "--store", "memory"]);
        let url = server.line("Listening on ");
        let card = send(&server.line("Card: "), "GET", &[], "");
        assert_eq!(card["description"], "Counts the words of a message");
        let task = send_text(&url, "to be");
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
        assert_eq!(artifact(&task, "output")["text"], "1. to\n2. be\n");
        assert_eq!(artifact(&task, "count")["data"], json!({"words": 2}));
        let asked = send_text(&url, "count");
        assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
        let message = json!({
            "messageId": "m", "role": "ROLE_USER", "parts": [{"text": "one"}], "taskId": asked["id"],
        });
        let task =
            call(&url, "SendMessage", &json!({"message": message}))["result"]["task"].clone();
        assert_eq!(artifact(&task, "output")["text"], "1. one\n");
    }
}

#[test]
fn a_file_that_does_not_start_is_not_served() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agent.py");
    fs::write(&file, "import nothing_of_this_name\n").unwrap();
    let (code, output) =
        run_expecting_error(&["serve", file.to_str().unwrap(), "--store", "memory"]);
    assert_eq!(code, Some(1));
    assert!(
        output.contains("agents.agent.file: no worker starts") && output.contains("ModuleNotFound"),
        "{output}"
    );
}

/// Starts a server that watches a file. Also returns its notes about reloads.
fn watch(file: &Path, folder: TempDir) -> (ServerProcess, Receiver<String>) {
    let mut command = attache(&["serve", "--watch", file.to_str().unwrap()]);
    let mut server = serve_command(command.stderr(Stdio::piped()), folder);
    let stderr = BufReader::new(server.process.stderr.take().unwrap());
    let (sender, notes) = sync_channel(64);
    thread::spawn(move || {
        let lines = stderr.lines().map_while(Result::ok);
        lines
            .filter(|line| line.contains("Reloaded") || line.contains("is not applied"))
            .try_for_each(|line| sender.send(line))
    });
    (server, notes)
}

#[test]
fn changed_code_of_a_worker_is_applied() {
    let code = |answer: &str| {
        format!(
            "from attache.agent import agent\n\n@agent\ndef run(turn):\n    return '{answer}'\n"
        )
    };
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("agents.toml");
    let file = folder.path().join("agent.py");
    fs::write(&file, code("before")).unwrap();
    let section = format!(
        "[agents.a]\ntype = \"worker\"\nfile = \"{}\"\n",
        file.display()
    );
    fs::write(&config, section).unwrap();
    let (server, notes) = watch(&config, folder);
    let url = server.line("Listening on ");
    let answer = || artifact(&send_text(&url, "hello"), "output")["text"].clone();
    assert_eq!(answer(), "before");
    fs::write(&file, code("after")).unwrap();
    let note = notes.recv_timeout(DEADLINE).unwrap();
    assert_eq!(note, format!("Reloaded {}.", file.display()));
    assert_eq!(answer(), "after");
    fs::write(&file, "def (").unwrap();
    let note = notes.recv_timeout(DEADLINE).unwrap();
    assert!(
        note.contains("is not applied") && note.contains("SyntaxError"),
        "{note}"
    );
    assert_eq!(answer(), "after");
}

#[test]
fn check_names_the_key_of_a_missing_interpreter() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    for (key, other) in [("interpreter", "file = \"agent.py\"\n"), ("command", "")] {
        let text =
            format!("[agents.a]\ntype = \"worker\"\n{other}{key} = [\"/nonexistent/program\"]\n");
        fs::write(&file, text).unwrap();
        let (code, output) = run_expecting_error(&["check", file.to_str().unwrap()]);
        assert_eq!(code, Some(1));
        assert!(output.contains(&format!("agents.a.{key}")), "{output}");
        assert!(output.contains("there is no program"), "{output}");
    }
}
