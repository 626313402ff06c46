//! What the operator sees: counts, logs, readiness.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{DEADLINE, attache, call, say, serve, serve_in};

/// What the admin socket below this folder answers: the head and the body.
pub(crate) fn admin(folder: &Path, request: &str) -> (String, String) {
    let mut socket = UnixStream::connect(folder.join("admin/socket")).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(socket, "{request} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Reads the text form of Prometheus: every sample by its name and labels. What is no such text panics.
fn samples(text: &str) -> HashMap<String, f64> {
    let mut samples = HashMap::new();
    let mut kinds = HashMap::new();
    let mut lines = text.lines();
    for line in lines.by_ref().take_while(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) =
                (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or(""));
            match what {
                "TYPE" => assert!(kinds.insert(name, rest).is_none(), "{name} has two types"),
                other => assert!(["HELP", "UNIT"].contains(&other), "{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let name = series.split('{').next().unwrap();
        assert!(name.starts_with("attache_"), "{line}");
        assert!(kinds.keys().any(|kind| name.starts_with(*kind)), "{line} has no type");
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            assert!(labels.starts_with('{') && labels.ends_with("\"}"), "{line}");
        }
        assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{line} is there twice");
    }
    assert_eq!(lines.next(), None, "nothing follows the end");
    samples
}

#[test]
fn what_happens_is_counted_at_the_admin_socket() {
    let server = serve(&["serve", "--echo"]);
    let url = server.line("Listening on ");
    for _ in 0..3 {
        say(&url, "hello");
    }
    call(&url, "GetTask", &serde_json::json!({"id": "nobody's"}));
    let (head, body) = admin(server.folder.path(), "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("openmetrics-text"), "{head}");
    let samples = samples(&body);
    let sum = |parts: &[&str]| -> f64 {
        let fits = |series: &&String| parts.iter().all(|part| series.contains(part));
        samples.keys().filter(fits).map(|series| samples[series]).sum()
    };
    assert_eq!(
        sum(&["attache_tasks_total", "COMPLETED", "version=\"1.0\"", "agent=\"Echo\""]),
        3.0,
        "{body}"
    );
    assert_eq!(sum(&["attache_tasks_total", "SUBMITTED"]), 3.0);
    assert_eq!(sum(&["attache_turn_seconds_count"]), 3.0);
    assert_eq!(sum(&["attache_queue_seconds_count"]), 3.0);
    assert_eq!(sum(&["attache_first_event_seconds_count"]), 3.0);
    assert_eq!(sum(&["attache_turns_running{"]), 0.0);
    assert_eq!(sum(&["attache_calls_total", "SendMessage", "outcome=\"ok\""]), 3.0);
    assert_eq!(sum(&["attache_calls_total", "GetTask", "outcome=\"TaskNotFound\""]), 1.0);
    assert!(sum(&["attache_store_commit_seconds_count"]) >= 3.0);
    assert!(sum(&["attache_store_batch_events_sum"]) >= 6.0);
    assert!(!body.contains("nobody's"), "no label says what a caller said");
    // Never where callers are.
    let (host, _) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut public = std::net::TcpStream::connect(host).unwrap();
    write!(public, "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    public.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

/// A server whose log goes to a file.
struct Logged {
    process: Child,
    /// Held open: a server that can greet nobody ends.
    _stdout: BufReader<ChildStdout>,
    url: String,
}

fn logged(folder: &Path, level: Option<&str>) -> Logged {
    let mut command = attache(&["serve", "--echo", "--listen", "127.0.0.1:0", "--data-dir"]);
    if let Some(level) = level {
        command.env("RUST_LOG", level);
    }
    let log = File::create(folder.join("log")).unwrap();
    let mut process = command.arg(folder).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    Logged { process, _stdout: stdout, url: line.trim().strip_prefix("Listening on ").unwrap().to_owned() }
}

impl Logged {
    /// Stops the server as an operator does; gives the log.
    fn end(mut self, folder: &Path) -> String {
        let pid = self.process.id().to_string();
        std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
        self.process.wait().unwrap();
        std::fs::read_to_string(folder.join("log")).unwrap()
    }
}

#[test]
fn a_log_that_nobody_watches_has_a_line_of_json_for_each_start_turn_and_stop() {
    let folder = TempDir::new().unwrap();
    let server = logged(folder.path(), None);
    let task = say(&server.url, "canary-of-the-content");
    let log = server.end(folder.path());
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    // How many connections there may be depends on the machine.
    let lines: Vec<Value> = lines.into_iter().filter(|line| line["max_connections"].is_null()).collect();
    let said: Vec<&str> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(said, ["server started", "turn ended", "server stopped"], "{log}");
    assert_eq!(lines[1]["task"], task["id"]);
    assert_eq!(lines[1]["state"], "TASK_STATE_COMPLETED");
    assert!(!log.contains("canary"), "{log}");
}

#[test]
fn s38_no_content_is_in_the_log_however_much_is_logged() {
    let folder = TempDir::new().unwrap();
    let server = logged(folder.path(), Some("trace"));
    say(&server.url, "canary-of-the-content");
    call(&server.url, "SendMessage", &serde_json::json!({"message": {"parts": "canary-of-nonsense"}}));
    let log = server.end(folder.path());
    assert!(log.contains("turn ended"), "the log was on");
    assert!(!log.contains("canary"), "{log}");
}

/// Runs `attache db`; gives its exit code and what it prints.
fn db(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = attache(&["db"]).args(args).arg("--data-dir").arg(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_file_is_checked_copied_and_exported_while_a_server_uses_it() {
    let server = serve(&["serve", "--echo"]);
    let url = server.line("Listening on ");
    let folder = server.folder.path();
    let task = say(&url, "kept");
    let (code, out, said) = db(folder, &["check"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains("tasks 1, unfinished 0") && out.ends_with("sound\n"), "{out}");
    let (_, out, _) = db(folder, &["export"]);
    let exported: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(exported["task"]["id"], task["id"]);
    assert_eq!(exported["agent"], "Echo");
    assert!(
        !std::fs::read_dir(folder)
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with("export") })
    );
    let other = TempDir::new().unwrap();
    let copy = other.path().join("tasks.db");
    let (code, _, said) = db(folder, &["backup", copy.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = db(folder, &["vacuum"]);
    assert!(code == Some(1) && said.contains("stop the server first"), "{said}");
    // The copy is a store: another server goes on with it, and it can be made smaller and newer.
    for verb in ["vacuum", "migrate"] {
        assert_eq!(db(other.path(), &[verb]).0, Some(0), "{verb}");
    }
    let restored = serve_in(&["serve", "--echo"], other);
    let url = restored.line("Listening on ");
    let found = call(&url, "GetTask", &serde_json::json!({"id": task["id"]}));
    assert_eq!(found["result"]["status"]["state"], "TASK_STATE_COMPLETED", "{found}");
}
