//! Reload of the configuration of a running server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{DEADLINE, ServerProcess, attache, call, send, serve_command};

/// A server of a configuration file, with its log.
pub(crate) struct ReloadableServer {
    server: ServerProcess,
    pub(crate) url: String,
    log: Receiver<String>,
}

pub(crate) fn serve_config(text: &str) -> ReloadableServer {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    fs::write(&file, text).unwrap();
    let mut command = attache(&["serve", file.to_str().unwrap()]);
    let mut server = serve_command(
        command.env("RUST_LOG", "warn").stderr(Stdio::piped()),
        folder,
    );
    let stderr = BufReader::new(server.process.stderr.take().unwrap());
    let (tell, log) = sync_channel(64);
    thread::spawn(move || {
        let lines = stderr.lines().map_while(Result::ok);
        lines
            .filter(|line| line.contains("reloaded") || line.contains("reload failed"))
            .try_for_each(|line| tell.send(line))
    });
    let url = server.line("Listening on ");
    ReloadableServer { server, url, log }
}

impl ReloadableServer {
    fn folder(&self) -> &Path {
        self.server.folder.path()
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.folder().join("agents.toml"), text).unwrap();
    }

    /// Sends SIGHUP, and returns the log line of the reload.
    pub(crate) fn reload(&self) -> Value {
        let process = self.server.process.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-HUP", &process])
                .status()
                .unwrap()
                .success()
        );
        let line = self.log.recv_timeout(DEADLINE).expect("a line of the log");
        serde_json::from_str(&line).unwrap()
    }
}

fn list(url: &str, agent: &str, header: &str) -> Value {
    ask(url, agent, header, "ListTasks", json!({}))
}

fn say(url: &str, agent: &str, header: &str) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    ask(
        url,
        agent,
        header,
        "SendMessage",
        json!({"message": message}),
    )
}

fn ask(url: &str, agent: &str, header: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let headers = ["Content-Type: application/json", "A2A-Version: 1.0", header];
    send(&format!("{url}agents/{agent}/"), "POST", &headers, &body)
}

const BEFORE: &str = "[agents.stays]\ntype = \"echo\"\n[agents.goes]\ntype = \"echo\"\n";
const AFTER: &str = "[agents.stays]\ntype = \"command\"\ncommand = \"tr a-z A-Z\"\n[agents.comes]\ntype = \"echo\"\n";

/// Sets a flag on drop, so that the callers stop if the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn r47_r48_a_file_is_reloaded_under_load_and_no_request_is_lost() {
    let keys = |folder: &Path, args: &[&str]| {
        let output = attache(&["keys"])
            .args(args)
            .arg("--data-dir")
            .arg(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let with_keys = |text: &str| format!("[auth]\nkeys = true\n{text}");
    let served = serve_config(&with_keys(BEFORE));
    let bearer = |key: &str| format!("Authorization: Bearer {key}");
    let ann = bearer(&keys(served.folder(), &["add", "ann"]));
    let url = &*served.url;
    let enough = AtomicBool::new(false);
    let lost = thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = Vec::new();
                    while !enough.load(Ordering::Relaxed) {
                        answers.push(say(url, "stays", &ann));
                    }
                    answers
                })
            })
            .collect();
        let ends = SetOnDrop(&enough);
        // An invalid file changes nothing, and the log has the reason.
        served.write("[agents.stays]\ntype = \"ecko\"\n");
        let line = served.reload();
        assert_eq!(line["level"], "ERROR", "{line}");
        assert!(
            line["error"]
                .as_str()
                .unwrap()
                .contains("agents.toml:2: agents.stays.type"),
            "{line}"
        );
        assert!(list(url, "goes", &ann)["result"].is_object());
        // A key that is added now takes effect, and does not apply parts of the invalid file.
        let bob = bearer(&keys(served.folder(), &["add", "bob"]));
        assert!(list(url, "goes", &bob)["result"].is_object());
        // One agent is removed, one added, one changed; the note lists keys that need a restart.
        served.write(&with_keys(&format!(
            "[server]\nlisten = \"127.0.0.1:1\"\n{AFTER}\n[limits]\nmax_turns = 7\n"
        )));
        let line = served.reload();
        assert_eq!(
            (&line["level"], &line["restart_for"]),
            (&json!("WARN"), &json!("limits.max_turns")),
            "{line}"
        );
        assert!(list(url, "comes", &bob)["result"].is_object());
        let card = format!("{}agents/goes/.well-known/agent-card.json", served.url);
        assert_eq!(send(&card, "GET", &[], "")["error"]["code"], 404);
        let line = say(url, "goes", &bob);
        assert!(
            [json!(404), json!(-32001)].contains(&line["error"]["code"]),
            "gone, or about to: {line}"
        );
        keys(served.folder(), &["revoke", "bob"]);
        assert_eq!(list(url, "comes", &bob)["error"]["code"], -31401);
        // The last answer comes from the new agent.
        let loud = say(url, "stays", &ann);
        assert_eq!(
            loud["result"]["task"]["artifacts"][0]["parts"][0]["text"], "HELLO",
            "{loud}"
        );
        drop(ends);
        let answers = callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap())
            .collect::<Vec<_>>();
        assert!(answers.len() > 8, "{}", answers.len());
        let state = |answer: &Value| answer["result"]["task"]["status"]["state"].clone();
        answers
            .into_iter()
            .filter(|answer| state(answer) != "TASK_STATE_COMPLETED")
            .collect::<Vec<_>>()
    });
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn s41_a_reload_cannot_disable_authentication_on_a_public_address() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    fs::write(&file, "[auth]\nkeys = true\n[agents.a]\ntype = \"echo\"\n").unwrap();
    let output = attache(&["keys", "add", "ann", "--data-dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    let mut command = attache(&["serve", file.to_str().unwrap(), "--listen", "0.0.0.0:0"]);
    let server = serve_command(&mut command, folder);
    let url = server.line("Listening on ");
    fs::write(&file, "[auth]\nkeys = false\n[agents.a]\ntype = \"echo\"\n").unwrap();
    let (_, line) = crate::observability::admin(server.folder.path(), "POST /reload");
    assert!(line.contains("callers are not authenticated"), "{line}");
    assert_eq!(call(&url, "ListTasks", &json!({}))["error"]["code"], -31401);
}

#[test]
fn cards_and_bindings_change_with_a_reload() {
    let served = serve_config("[agents.a]\ntype = \"echo\"\n");
    let card_url = format!("{}.well-known/agent-card.json", served.url);
    let card = || send(&card_url, "GET", &[], "");
    let before = card();
    assert_eq!(before["preferredTransport"], "JSONRPC");
    assert_eq!(before["capabilities"]["pushNotifications"], true);
    served.write(
        "[server]\nbindings = [\"rest\"]\n[agents.a]\ntype = \"echo\"\npush = false\nrequires_text = true\n",
    );
    let (head, answer) = crate::observability::admin(served.folder(), "POST /reload");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}: {answer}");
    assert!(
        !answer.contains("bindings"),
        "no restart is needed: {answer}"
    );
    let after = card();
    assert_eq!(after["preferredTransport"], "HTTP+JSON", "{after}");
    assert_eq!(after["capabilities"]["pushNotifications"], false);
    let refused = call(&served.url, "ListTasks", &json!({}));
    assert_eq!(
        refused["error"]["code"], 404,
        "JSON-RPC is not served: {refused}"
    );
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"data": 1}]});
    let headers = ["Content-Type: application/json", "A2A-Version: 1.0"];
    let body = json!({"message": message}).to_string();
    let refused = send(
        &format!("{}message:send", served.url),
        "POST",
        &headers,
        &body,
    );
    assert_eq!(refused["error"]["code"], 400, "{refused}");
    // An invalid list changes nothing.
    served.write("[server]\nbindings = []\n[agents.a]\ntype = \"echo\"\n");
    let line = served.reload();
    assert_eq!(line["level"], "ERROR", "{line}");
    assert!(
        line["error"].as_str().unwrap().contains("bindings"),
        "{line}"
    );
    assert_eq!(card()["preferredTransport"], "HTTP+JSON");
}

#[test]
fn a_verb_reloads_a_running_server() {
    let server = serve_config("[agents.a]\ntype = \"echo\"\nname = \"Before\"\n");
    server.write("[agents.a]\ntype = \"echo\"\nname = \"After\"\n");
    let folder = server.folder().to_str().unwrap();
    let output = attache(&["reload", "--data-dir", folder]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, format!("Reloaded: {folder}\n").into_bytes());
    let card = format!("{}.well-known/agent-card.json", server.url);
    assert_eq!(send(&card, "GET", &[], "")["name"], "After");
    server.write("[agents.a]\ntype = \"ecco\"\n");
    let output = attache(&["reload", "--data-dir", folder, "-o", "json"])
        .output()
        .unwrap();
    let refused: Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("agents.toml:2") && message.contains("echo"),
        "{refused}"
    );
}

#[test]
fn a_watched_file_is_applied_when_it_changes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    fs::write(&file, "[agents.a]\ntype = \"echo\"\nname = \"Before\"\n").unwrap();
    let mut command = attache(&["serve", "--watch", file.to_str().unwrap()]);
    let mut server = serve_command(command.stderr(Stdio::piped()), folder);
    let stderr = BufReader::new(server.process.stderr.take().unwrap());
    let (tell, notes) = sync_channel(64);
    thread::spawn(move || {
        let lines = stderr.lines().map_while(Result::ok);
        lines
            .filter(|line| line.contains("Reloaded") || line.contains("is not applied"))
            .try_for_each(|line| tell.send(line))
    });
    let url = server.line("Listening on ");
    fs::write(&file, "[agents.a]\ntype = \"echo\"\nname = \"After\"\n").unwrap();
    let note = notes.recv_timeout(DEADLINE).unwrap();
    assert_eq!(note, format!("Reloaded {}.", file.display()));
    let card = format!("{url}.well-known/agent-card.json");
    assert_eq!(send(&card, "GET", &[], "")["name"], "After");
    fs::write(&file, "[agents.a]\ntype = \"ecco\"\n").unwrap();
    let note = notes.recv_timeout(DEADLINE).unwrap();
    assert!(
        note.contains("is not applied: ") && note.contains("agents.toml:2"),
        "{note}"
    );
    assert_eq!(send(&card, "GET", &[], "")["name"], "After");
}
