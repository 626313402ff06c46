//! Metrics, logs, readiness and database commands.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::{folder as peers, is_quick, repository};
use crate::harness::{
    DEADLINE, ServerProcess, attache, call, send, send_text, serve, serve_command, serve_in,
};

/// Sends a request to the admin socket of a data directory, and returns head and body.
pub(crate) fn admin(folder: &Path, request: &str) -> (String, String) {
    let mut socket = UnixStream::connect(folder.join("admin/socket")).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        socket,
        "{request} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Parses the Prometheus text format: samples by name and labels. Panics on invalid text.
fn samples(text: &str) -> HashMap<String, f64> {
    let mut samples = HashMap::new();
    let mut kinds = HashMap::new();
    let mut lines = text.lines();
    for line in lines.by_ref().take_while(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let what = words.next().unwrap();
            let name = words.next().unwrap();
            let rest = words.next().unwrap_or("");
            match what {
                "TYPE" => assert!(kinds.insert(name, rest).is_none(), "{name} has two types"),
                other => assert!(["HELP", "UNIT"].contains(&other), "{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        let name = series.split('{').next().unwrap();
        assert!(name.starts_with("attache_"), "{line}");
        assert!(
            kinds.keys().any(|kind| name.starts_with(*kind)),
            "{line} has no type"
        );
        if let Some(labels) = series
            .strip_prefix(name)
            .filter(|labels| !labels.is_empty())
        {
            assert!(labels.starts_with('{') && labels.ends_with("\"}"), "{line}");
        }
        assert!(
            samples
                .insert(series.to_owned(), value.parse().unwrap())
                .is_none(),
            "{line} is there twice"
        );
    }
    assert_eq!(lines.next(), None, "nothing follows the end");
    samples
}

#[test]
fn the_admin_socket_serves_metrics() {
    let server = serve(&["serve", "--echo"]);
    let url = server.line("Listening on ");
    for _ in 0..3 {
        send_text(&url, "hello");
    }
    call(&url, "GetTask", &json!({"id": "unknown-id"}));
    let (head, body) = admin(server.folder.path(), "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("openmetrics-text"), "{head}");
    let samples = samples(&body);
    let sum = |parts: &[&str]| -> f64 {
        let fits = |series: &&String| parts.iter().all(|part| series.contains(part));
        samples
            .keys()
            .filter(fits)
            .map(|series| samples[series])
            .sum()
    };
    assert_eq!(
        sum(&[
            "attache_tasks_total",
            "COMPLETED",
            "version=\"1.0\"",
            "agent=\"Echo\""
        ]),
        3.0,
        "{body}"
    );
    assert_eq!(sum(&["attache_tasks_total", "SUBMITTED"]), 3.0);
    assert_eq!(sum(&["attache_turn_seconds_count"]), 3.0);
    assert_eq!(sum(&["attache_queue_seconds_count"]), 3.0);
    assert_eq!(sum(&["attache_first_event_seconds_count"]), 3.0);
    assert_eq!(sum(&["attache_turns_running{"]), 0.0);
    assert_eq!(
        sum(&["attache_calls_total", "SendMessage", "outcome=\"ok\""]),
        3.0
    );
    assert_eq!(
        sum(&["attache_calls_total", "GetTask", "outcome=\"TaskNotFound\""]),
        1.0
    );
    assert!(sum(&["attache_store_commit_seconds_count"]) >= 3.0);
    assert!(sum(&["attache_store_batch_events_sum"]) >= 6.0);
    assert!(
        !body.contains("unknown-id"),
        "no label says what a caller said"
    );
    agrees_with_the_documentation(&body);
    // Metrics are not served on the public address.
    let (host, _) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut public = std::net::TcpStream::connect(host).unwrap();
    write!(
        public,
        "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    public.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

/// Checks that every metric is documented with its type and labels.
fn agrees_with_the_documentation(body: &str) {
    if is_quick() {
        return;
    }
    let mut reader = Command::new(peers().join("metrics/bin/python"))
        .arg(repository().join("tests/peers/metrics.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("run tests/peers/setup");
    reader
        .stdin
        .take()
        .unwrap()
        .write_all(body.as_bytes())
        .unwrap();
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success(), "Prometheus reads {body}");
    let read = String::from_utf8(output.stdout).unwrap();
    let page = std::fs::read_to_string(repository().join("docs/reference/metrics.md")).unwrap();
    for family in read.lines() {
        let mut words = family.split(' ');
        let name = words.next().unwrap();
        let kind = words.next().unwrap();
        let labels = words.next().unwrap();
        let end = if kind == "counter" { "_total" } else { "" };
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{name}{end}` | {kind} |")));
        let row = row.unwrap_or_else(|| panic!("{family} is not in docs/reference/metrics.md"));
        let documented = row.split('|').nth(3).unwrap().replace(['`', ' '], "");
        let mut documented: Vec<_> = documented
            .split(',')
            .filter(|label| !label.is_empty())
            .collect();
        documented.sort_unstable();
        // A family without samples has no labels.
        assert!(
            labels.is_empty() || labels == documented.join(","),
            "{family}: {row}"
        );
    }
    assert!(read.lines().count() >= 10, "{read}");
}

#[test]
fn refusals_and_model_usage_are_counted() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}});
    let mut answer = crate::llm::text_events("fine");
    answer.push(usage);
    let (model, _asked) = crate::llm::model(vec![answer.clone(), answer]);
    let (_file_folder, file) = crate::llm::file(&format!(
        "[auth.limits]\ncalls_per_second = 1\nburst = 4\nlimit_loopback = true\n[agents.thinker]\ntype = \"llm\"\nmodel = {{ url = \"{model}\", name = \"m\" }}\n"
    ));
    let server = serve(&["serve", &file]);
    let url = server.line("Listening on ");
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    let webhook = json!({"taskPushNotificationConfig": {"url": "https://127.0.0.1:9/canary"}});
    let refused = json!({"message": message, "configuration": webhook});
    assert!(call(&url, "SendMessage", &refused)["error"].is_object());
    send_text(&url, "hello");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}});
    raw(&url, "POST", &body.to_string());
    for _ in 0..40 {
        call(&url, "GetTask", &json!({"id": "x"}));
    }
    let (_, body) = admin(server.folder.path(), "GET /metrics");
    let samples = samples(&body);
    let sum = |name: &str, label: &str| -> f64 {
        let fits = |series: &&String| series.starts_with(name) && series.contains(label);
        samples
            .keys()
            .filter(fits)
            .map(|series| samples[series])
            .sum()
    };
    assert_eq!(sum("attache_model_tokens_total", "input"), 22.0, "{body}");
    assert_eq!(sum("attache_model_tokens_total", "output"), 14.0, "{body}");
    assert!(sum("attache_stream_events_total", "") >= 2.0, "{body}");
    assert!(sum("attache_stream_bytes_total", "") >= 100.0, "{body}");
    assert_eq!(sum("attache_streams_open", ""), 0.0, "{body}");
    assert!(sum("attache_egress_refusals_total", "") >= 1.0, "{body}");
    assert!(sum("attache_limits_hit_total", "") >= 1.0, "{body}");
    assert!(!body.contains("canary"), "{body}");
}

/// Sends a request, and returns the whole response.
fn raw(url: &str, method: &str, body: &str) -> String {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let headers = "Content-Type: application/json\r\nA2A-Version: 1.0\r\nConnection: close";
    write!(
        stream,
        "{method} /{path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A server on a 24 MiB disk with `min_free` of half of it; without privileges, with a `min_free` larger than any disk.
fn server_on_small_disk() -> (ServerProcess, TempDir, bool) {
    let folder = TempDir::new().unwrap();
    let data = TempDir::new().unwrap();
    let is_small = Command::new("unshare")
        .args(["-rm", "true"])
        .status()
        .is_ok_and(|status| status.success());
    let file = folder.path().join("agents.toml");
    let least = if is_small { "12MiB" } else { "1000000GiB" };
    std::fs::write(
        &file,
        format!("[store]\nmin_free = \"{least}\"\n[agents.echo]\ntype = \"echo\"\n"),
    )
    .unwrap();
    let at = data.path().to_str().unwrap().to_owned();
    let args = [
        "serve",
        file.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        &at,
    ];
    if !is_small {
        return (serve_in(&args, data), folder, false);
    }
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=24m tmpfs \"$0\" && exec \"$@\"";
    command
        .args([
            "-rm",
            "sh",
            "-c",
            script,
            &at,
            env!("CARGO_BIN_EXE_attache"),
        ])
        .args(args);
    let server = serve_command(&mut command, data);
    (server, folder, true)
}

#[test]
fn s72_readiness_fails_before_writes_do_on_a_full_disk() {
    let (server, _folder, is_small) = server_on_small_disk();
    let url = server.line("Listening on ");
    let ready = || raw(&format!("{url}readyz"), "GET", "");
    if !is_small {
        assert!(ready().contains("the disk is almost full"), "{}", ready());
        assert_eq!(
            send_text(&url, "small")["status"]["state"],
            "TASK_STATE_COMPLETED"
        );
        return;
    }
    assert!(ready().starts_with("HTTP/1.1 200"), "{}", ready());
    let first = send_text(&url, "small")["id"].clone();
    let large = "x".repeat(1 << 20);
    let mut warned = 0;
    let full = (0..64).any(|_| {
        let text = ready();
        let written = send_text(&url, &large)["status"]["state"] == "TASK_STATE_COMPLETED";
        warned += usize::from(written && text.contains("503") && text.contains("almost full"));
        !written
    });
    assert!(full, "the disk was to be filled");
    assert!(warned > 0, "it said so while writes still got through");
    assert!(ready().starts_with("HTTP/1.1 503"), "{}", ready());
    let found = call(&url, "GetTask", &json!({"id": first}));
    assert_eq!(
        found["result"]["status"]["state"], "TASK_STATE_COMPLETED",
        "stored tasks can be read: {found}"
    );
}

/// A server whose log goes to a file.
struct LoggingServer {
    process: Child,
    /// Kept open: a server whose stdout is closed ends.
    _stdout: BufReader<ChildStdout>,
    url: String,
}

fn start_logging_server(folder: &Path, level: Option<&str>) -> LoggingServer {
    let mut command = attache(&["serve", "--echo", "--listen", "127.0.0.1:0", "--data-dir"]);
    if let Some(level) = level {
        command.env("RUST_LOG", level);
    }
    let log = File::create(folder.join("log")).unwrap();
    let mut process = command
        .arg(folder)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    LoggingServer {
        process,
        _stdout: stdout,
        url: line
            .trim()
            .strip_prefix("Listening on ")
            .unwrap()
            .to_owned(),
    }
}

impl LoggingServer {
    /// Stops the server with SIGTERM, and returns the log.
    fn end(mut self, folder: &Path) -> String {
        let pid = self.process.id().to_string();
        std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap();
        self.process.wait().unwrap();
        std::fs::read_to_string(folder.join("log")).unwrap()
    }
}

#[test]
fn without_a_terminal_the_log_has_a_json_line_per_start_turn_and_stop() {
    let folder = TempDir::new().unwrap();
    let server = start_logging_server(folder.path(), None);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "canary-of-the-content"}]});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let place = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = [
        "Content-Type: application/json",
        "A2A-Version: 1.0",
        "X-Key: canary-of-a-key",
        place,
    ];
    let task = send(&server.url, "POST", &headers, &body.to_string())["result"]["task"].clone();
    let log = server.end(folder.path());
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    // The maximum number of connections depends on the machine.
    let lines: Vec<Value> = lines
        .into_iter()
        .filter(|line| line["max_connections"].is_null())
        .collect();
    let text: Vec<&str> = lines
        .iter()
        .map(|line| line["message"].as_str().unwrap())
        .collect();
    assert_eq!(
        text,
        ["server started", "turn ended", "server stopped"],
        "{log}"
    );
    assert_eq!(lines[1]["task"], task["id"]);
    assert_eq!(lines[1]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(lines[1]["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert!(!log.contains("canary"), "{log}");
}

#[test]
fn s38_no_content_is_in_the_log_however_much_is_logged() {
    let folder = TempDir::new().unwrap();
    let server = start_logging_server(folder.path(), Some("trace"));
    send_text(&server.url, "canary-of-the-content");
    call(
        &server.url,
        "SendMessage",
        &json!({"message": {"parts": "canary-of-nonsense"}}),
    );
    let log = server.end(folder.path());
    assert!(log.contains("turn ended"), "the log was on");
    assert!(!log.contains("canary"), "{log}");
}

/// Runs `attache db`; returns its exit code and output.
fn db(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = attache(&["db"])
        .args(args)
        .arg("--data-dir")
        .arg(folder)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn the_database_is_checked_copied_and_exported_while_in_use() {
    let server = serve(&["serve", "--echo"]);
    let url = server.line("Listening on ");
    let folder = server.folder.path();
    let task = send_text(&url, "kept");
    let (code, out, text) = db(folder, &["check"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        out.contains("tasks 1, unfinished 0") && out.ends_with("sound\n"),
        "{out}"
    );
    let (_, out, _) = db(folder, &["export"]);
    let exported: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(exported["task"]["id"], task["id"]);
    assert_eq!(exported["agent"], "Echo");
    assert!(!std::fs::read_dir(folder).unwrap().any(|entry| {
        entry
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("export")
    }));
    let other = TempDir::new().unwrap();
    let archive = other.path().join("backup.tar");
    for (verb, folder) in [("backup", folder), ("restore", other.path())] {
        let mut command = attache(&[verb, archive.to_str().unwrap(), "--data-dir"]);
        let output = command.arg(folder).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let (code, _, text) = db(folder, &["vacuum"]);
    assert!(
        code == Some(1) && text.contains("stop the server first"),
        "{text}"
    );
    // The copy is a complete store: a server can use it, and it can be vacuumed and migrated.
    for verb in ["vacuum", "migrate"] {
        assert_eq!(db(other.path(), &[verb]).0, Some(0), "{verb}");
    }
    let restored = serve_in(&["serve", "--echo"], other);
    let url = restored.line("Listening on ");
    let found = call(&url, "GetTask", &json!({"id": task["id"]}));
    assert_eq!(
        found["result"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{found}"
    );
}
