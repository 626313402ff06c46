//! Chat completions for every agent: the official client, raw requests, and the 0.3 paths next to it.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::{folder, is_quick, repository};
use crate::harness::{ServerProcess, send, serve, serve_in};

#[cfg(unix)]
fn two_agents() -> ServerProcess {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let text = "[agents.practice]\ntype = \"demo\"\n[agents.words]\ntype = \"command\"\ncommand = [\"wc\", \"-w\"]\n";
    std::fs::write(&file, text).unwrap();
    serve_in(
        &["serve", "--store", "memory", file.to_str().unwrap()],
        folder,
    )
}

#[cfg(unix)]
#[test]
fn openai_is_understood() {
    if is_quick() {
        return;
    }
    let server = two_agents();
    let output = Command::new(folder().join("openai/bin/python"))
        .arg(repository().join("tests/peers/clients/chat.py"))
        .arg(server.line("Listening on "))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

fn complete(url: &str, body: &Value) -> Value {
    send(
        &format!("{url}v1/chat/completions"),
        "POST",
        &["Content-Type: application/json"],
        &body.to_string(),
    )
}

#[test]
fn an_answer_is_a_task_like_any_other() {
    let server = serve(&["serve", "--echo", "--store", "memory"]);
    let url = server.line("Listening on ");
    let messages =
        json!([{"role": "assistant", "content": "before"}, {"role": "user", "content": "hello"}]);
    let answer = complete(&url, &json!({"model": "Echo", "messages": messages}));
    assert_eq!(
        answer["choices"][0]["message"]["content"], "hello",
        "{answer}"
    );
    let id = answer["attache"]["taskId"].as_str().unwrap();
    let task = send(&format!("{url}v1/tasks/{id}"), "GET", &[], "");
    assert_eq!(task["id"], id, "the paths of 0.3 are there too: {task}");
    let task = crate::harness::call(&url, "GetTask", &json!({"id": id}))["result"].clone();
    assert_eq!(
        task["history"][0]["metadata"]["chatHistory"],
        json!([{"role": "assistant", "text": "before"}])
    );
}

#[test]
fn chat_completion_errors_have_the_openai_format() {
    let server = serve(&["serve", "--echo", "--store", "memory"]);
    let url = server.line("Listening on ");
    let user = json!([{"role": "user", "content": "hello"}]);
    for (body, param, code) in [
        (
            json!({"messages": user, "n": 2}),
            json!("n"),
            "invalid_request",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": "x"}]}),
            json!("messages"),
            "invalid_request",
        ),
        (
            json!({"messages": user, "metadata": {"taskId": "unknown-task"}}),
            Value::Null,
            "task_not_found",
        ),
    ] {
        let answer = complete(&url, &body);
        assert_eq!(
            (&answer["error"]["param"], &answer["error"]["code"]),
            (&param, &json!(code)),
            "{answer}"
        );
    }
}

#[test]
fn seed_0_41_an_unknown_model_is_an_error_only_with_several_agents() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let agents = "[agents.one]\ntype = \"echo\"\n[agents.two]\ntype = \"echo\"\n";
    std::fs::write(&file, agents).unwrap();
    let server = serve_in(
        &["serve", file.to_str().unwrap(), "--store", "memory"],
        folder,
    );
    let several = server.line("Listening on ");
    let body = json!({"model": "unknown", "messages": [{"role": "user", "content": "hello"}]});
    let refused = complete(&several, &body);
    assert_eq!(refused["error"]["code"], "model_not_found", "{refused}");
    assert_eq!(refused["error"]["param"], "model", "{refused}");
    let server = serve(&["serve", "--echo", "--store", "memory"]);
    let answer = complete(&server.line("Listening on "), &body);
    assert_eq!(
        answer["choices"][0]["message"]["content"], "hello",
        "{answer}"
    );
}
