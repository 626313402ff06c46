//! MCP with official servers and clients: tools of an LLM agent, an MCP agent, and agents as an MCP server.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::{folder as peers, repository};
use crate::harness::{ServerProcess, attache, call, send, serve_command, serve_in};
use crate::llm::{model, text, text_events, tool_call_events};

fn is_quick() -> bool {
    std::env::var_os("ATTACHE_QUICK").is_some_and(|value| value == "1")
}

/// A process that is killed with the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn everything() -> String {
    let path = "mcp-js/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    peers().join(path).display().to_string()
}

/// Starts the "everything" server over HTTP, and returns its URL.
fn everything_over_http() -> (KillOnDrop, String) {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut server = Command::new("node");
    server
        .args([&everything(), "streamableHttp"])
        .env("PORT", port.to_string());
    let mut server = server
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(server.stderr.take().unwrap());
    let mut lines = stderr.lines().map_while(Result::ok);
    let server = KillOnDrop(server);
    lines
        .find(|line| line.contains("listening on port"))
        .expect("it listens");
    // The pipe is drained: a process that writes to a closed pipe ends.
    std::thread::spawn(move || lines.for_each(drop));
    (server, format!("http://127.0.0.1:{port}/mcp"))
}

/// Writes a configuration file.
fn file(text: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    std::fs::write(&file, text).unwrap();
    (folder, file.display().to_string())
}

/// The n-th configuration of the documentation page.
fn shown(at: usize) -> String {
    let page = std::fs::read_to_string(repository().join("docs/mcp.md")).unwrap();
    page.split("```toml\n")
        .nth(at + 1)
        .unwrap()
        .split_once("```")
        .unwrap()
        .0
        .to_owned()
}

/// `PATH` with the programs of the peers.
fn path() -> std::ffi::OsString {
    let ours = [peers().join("mcp/bin")].into_iter();
    let all = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(ours.chain(std::env::split_paths(&all).collect::<Vec<PathBuf>>())).unwrap()
}

fn serve(file: &str, folder: TempDir) -> ServerProcess {
    serve_command(attache(&["serve", file]).env("PATH", path()), folder)
}

/// Calls a skill, and returns the task.
fn skill(url: &str, agent: &str, skill: &str, arguments: Value) -> Value {
    let parts = json!([{"data": {"skill": skill, "arguments": arguments}}]);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": parts});
    call(
        &format!("{url}agents/{agent}"),
        "SendMessage",
        &json!({"message": message}),
    )["result"]["task"]
        .clone()
}

#[test]
fn tools_of_official_mcp_servers_are_skills_over_stdio_and_http() {
    if is_quick() {
        return;
    }
    let (_everything, web) = everything_over_http();
    let (folder, file) = file(&format!(
        r#"
        [agents.clock]
        type = "mcp"
        server = {{ command = ["mcp-server-time", "--local-timezone", "UTC"] }}
        [agents.here]
        type = "mcp"
        server = {{ command = ["node", "{}"] }}
        [agents.web]
        type = "mcp"
        server = {{ url = "{web}" }}
        [agents.gone]
        type = "mcp"
        server = {{ command = ["/nowhere"] }}
        "#,
        everything()
    ));
    let server = serve(&file, folder);
    let url = format!("{}/", server.line("Listening on ").trim_end_matches('/'));
    let card = |agent: &str| {
        send(
            &format!("{url}agents/{agent}/.well-known/agent-card.json"),
            "GET",
            &[],
            "",
        )
    };
    let skills = card("clock")["skills"].clone();
    let ids: Vec<_> = skills
        .as_array()
        .unwrap()
        .iter()
        .map(|skill| skill["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["get_current_time", "convert_time"]);
    let task = skill(
        &url,
        "clock",
        "get_current_time",
        json!({"timezone": "Europe/Paris"}),
    );
    assert!(
        task["artifacts"][0].to_string().contains("Europe/Paris"),
        "{task}"
    );
    let words = |task: &Value| {
        task["status"]["message"]["parts"][0]["text"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    };
    let task = skill(&url, "clock", "get_current_time", json!({}));
    assert_eq!(
        (&task["status"]["state"], &*words(&task)),
        (&json!("TASK_STATE_REJECTED"), "`timezone` is missing")
    );
    let task = skill(
        &url,
        "clock",
        "get_current_time",
        json!({"timezone": "Mars/Base"}),
    );
    assert!(
        task["status"]["state"] == "TASK_STATE_FAILED" && words(&task).contains("Mars/Base"),
        "{task}"
    );
    let task = skill(&url, "gone", "sing", json!({}));
    assert_eq!(words(&task), "the MCP server cannot be started");
    for agent in ["here", "web"] {
        let task = skill(&url, agent, "get-sum", json!({"a": 2, "b": 3}));
        assert!(
            task["artifacts"][0]["parts"][0]["text"]
                .as_str()
                .unwrap()
                .contains('5'),
            "{agent}: {task}"
        );
        let task = skill(
            &url,
            agent,
            "get-structured-content",
            json!({"location": "Chicago"}),
        );
        assert!(
            task["artifacts"][0]["parts"][0]["data"]["temperature"].is_number(),
            "{agent}: {task}"
        );
        let task = skill(&url, agent, "get-tiny-image", json!({}));
        let parts = task["artifacts"][0]["parts"].as_array().unwrap();
        assert!(
            parts
                .iter()
                .any(|part| part["mediaType"] == "image/png" && part["raw"].is_string()),
            "{task}"
        );
        let task = skill(
            &url,
            agent,
            "trigger-long-running-operation",
            json!({"duration": 1, "steps": 3}),
        );
        let messages = task["history"]
            .to_string()
            .matches(r#""type":"tool-progress""#)
            .count();
        assert!(
            messages >= 2 && task["status"]["state"] == "TASK_STATE_COMPLETED",
            "{agent}: {task}"
        );
    }
}

#[test]
fn the_documented_assistant_uses_an_mcp_server() {
    if is_quick() {
        return;
    }
    let wanted =
        json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let (url, asked) = model(vec![
        tool_call_events(&[("a", "time_convert_time", wanted)]),
        text_events("It is nine."),
    ]);
    let (folder, file) = file(&shown(0).replace("http://127.0.0.1:11434/v1", &url));
    let server = serve(&file, folder);
    let url = server.line("Listening on ");
    assert_eq!(
        text(&crate::harness::send_text(&url, "When it is noon here?")),
        "It is nine."
    );
    let asked: Vec<Value> = asked.iter().take(2).collect();
    let offered: Vec<_> = asked[0]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(offered, ["time_get_current_time", "time_convert_time"]);
    assert!(
        asked[1]["messages"].to_string().contains("T21:00:00+09:00"),
        "{}",
        asked[1]
    );
}

#[test]
fn the_documented_clock_returns_the_time() {
    if is_quick() {
        return;
    }
    let (folder, file) = file(&shown(1));
    let server = serve(&file, folder);
    let url = server.line("Listening on ");
    let task = crate::harness::send_text(&url, "get_current_time {\"timezone\": \"UTC\"}");
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
}

const OFFERED: &str = "[agents.echo]\ntype = \"echo\"\n[agents.practice]\ntype = \"demo\"\n";

/// Checks the output of the official client. Its errors are on stderr.
fn run_client(messages: &Value) {
    let client = repository().join("tests/peers/mcp/client.py");
    let output = Command::new(peers().join("mcp/bin/python"))
        .arg(client)
        .arg(messages.to_string())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "ok\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_official_mcp_client_lists_agents_as_tools_over_stdio() {
    if is_quick() {
        return;
    }
    let (folder, file) = file(OFFERED);
    let data = folder.path().display().to_string();
    let command = [
        env!("CARGO_BIN_EXE_attache"),
        "mcp",
        &file,
        "--wait",
        "700ms",
    ];
    run_client(&json!({"command": command, "env": {"XDG_DATA_HOME": data, "RUST_LOG": "debug"}}));
}

#[test]
fn the_official_mcp_client_lists_remote_agents_as_tools_over_http() {
    if is_quick() {
        return;
    }
    let (folder, file) = file(OFFERED);
    let server = serve_in(&["serve", &file], folder);
    let url = server.line("Listening on ");
    let url = url.trim_end_matches('/');
    let card = |agent: &str| format!("{url}/agents/{agent}/.well-known/agent-card.json");
    let echo = card("echo");
    let practice = card("practice");
    let args = [
        "mcp",
        "-a",
        &echo,
        "-a",
        &practice,
        "--listen",
        "127.0.0.1:0",
        "--wait",
        "700ms",
    ];
    let mut face = attache(&args);
    let mut face = KillOnDrop(
        face.env("ATTACHE_MCP_KEY", "hunter2")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(face.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url = line.trim().strip_prefix("Listening on ").unwrap();
    let refused = Command::new("curl")
        .args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-X",
            "POST",
            url,
        ])
        .output();
    assert_eq!(
        String::from_utf8_lossy(&refused.unwrap().stdout),
        "401",
        "no access without the key"
    );
    run_client(&json!({"url": url, "key": "hunter2"}));
}

#[test]
fn e02_an_mcp_server_on_a_public_address_needs_a_key() {
    let (_folder, file) = file(OFFERED);
    let (code, why) = crate::harness::run_expecting_error(&["mcp", &file, "--listen", "0.0.0.0:0"]);
    assert!(
        code == Some(2) && why.contains("other machines can reach it"),
        "{code:?} {why}"
    );
    // A proxy forwards this host.
    let args = [
        "mcp",
        &file,
        "--listen",
        "127.0.0.1:0",
        "--host",
        "agents.example.com",
    ];
    let (code, why) = crate::harness::run_expecting_error(&args);
    assert!(
        code == Some(2)
            && why.contains("other machines can reach it")
            && why.contains("--key-file"),
        "{code:?} {why}"
    );
    let (code, why) = crate::harness::run_expecting_error(&["mcp"]);
    assert!(code == Some(2), "{why}");
}
