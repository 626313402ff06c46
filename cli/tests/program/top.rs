//! `attache top`: snapshots of a running server, and the live view in a pseudo-terminal.

use serde_json::{Value, json};

use crate::harness::{attache, call, serve};
use crate::keys::keys;

/// Starts a task that takes a minute, and returns its id.
fn start_slow_task(url: &str) -> String {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "slow 60"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let reply = call(url, "SendMessage", &params);
    reply["result"]["task"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_snapshot_has_open_tasks_and_rates() {
    let server = serve(&["demo"]);
    let url = server.line("Listening on ");
    let slow = start_slow_task(&url);
    let ask = crate::harness::send_text(&url, "ask");
    crate::harness::send_text(&url, "hello");
    let folder = server.folder.path().to_str().unwrap().to_owned();
    let top = ["top", "--data-dir", &folder, "--interval", "200ms"];
    let output = attache(&top).args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "attache.top/1");
    assert_eq!(
        (&report["open"], &report["openIsExact"]),
        (&json!(2), &json!(true)),
        "{report:#}"
    );
    assert_eq!(report["states"]["TASK_STATE_INPUT_REQUIRED"], 1);
    assert_eq!(report["metrics"]["ended"]["completed"], 1, "{report:#}");
    assert_eq!(report["metrics"]["turnsRunning"], 1, "{report:#}");
    let slowest: Vec<_> = report["slowest"].as_array().unwrap().iter().collect();
    assert_eq!(slowest[0]["task"], slow, "the oldest is first");
    assert_eq!(slowest[1]["task"], ask["id"]);
    let output = attache(&top).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Open      2   input required 1"), "{text}");
    assert!(text.contains(&slow), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn without_a_server_it_names_the_directory_to_give() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().to_str().unwrap();
    let (code, error) = crate::harness::run_expecting_error(&["top", "--data-dir", path]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("no server is running"), "{error}");
}

#[test]
fn an_operator_key_opens_the_admin_address() {
    let folder = tempfile::TempDir::new().unwrap();
    let key = keys(folder.path(), &["add", "root", "--admin"]);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let server = crate::harness::serve_in(&["serve", "--echo", "--admin-listen", &address], folder);
    server.line("Listening on ");
    let url = format!("http://{address}");
    let top = ["top", "--server", &url, "--interval", "200ms", "-o", "json"];
    let output = attache(&top).env("ATTACHE_ADMIN_KEY", &key).output();
    let report: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    assert_eq!(report["server"], url);
    let refused = attache(&top)
        .env("ATTACHE_ADMIN_KEY", "wrong")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(text.contains("refuses the key"), "{refused:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_live_view_follows_keys_and_the_size_of_the_terminal() {
    let server = serve(&["demo"]);
    let url = server.line("Listening on ");
    let task = start_slow_task(&url);
    let folder = server.folder.path().to_str().unwrap().to_owned();
    let command = attache(&["top", "--data-dir", &folder, "--interval", "200ms"]);
    let mut pty = crate::pty::Pty::start(&command, 80);
    pty.wait_for("attache top");
    pty.wait_for(&task);
    pty.wait_for("q quits · space pauses");
    pty.press(" ");
    pty.wait_for("paused · space continues");
    // A resize redraws a paused view: the whole path fits the wider terminal.
    pty.resize(200);
    pty.wait_for(&folder);
    pty.press(" ");
    pty.wait_for("space pauses");
    call(&url, "CancelTask", &json!({"id": task}));
    pty.wait_for("No open tasks.");
    pty.press("q");
    let raw = pty.raw();
    assert!(
        raw.contains("\u{1b}[?1049h"),
        "the alternate screen: {raw:?}"
    );
    let (status, rest) = pty.finish();
    assert!(status.success(), "{rest}");
}
