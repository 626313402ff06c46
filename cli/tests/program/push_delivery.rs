//! Failing webhooks while the server is killed and restarted: every event arrives, in order.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{DEADLINE, ServerProcess, attache, call, serve_in};
use crate::observability::admin;

/// Failure mode of a webhook.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Status(&'static str),
    /// Accepts the request, and never responds.
    Hang,
    /// Refuses connections.
    Dead,
}

const FAULTS: &[Fault] = &[
    Fault::None,
    Fault::Status("500 Oh"),
    Fault::Status("429 Slow\r\nRetry-After: 1"),
    Fault::Status("302 Found\r\nLocation: http://127.0.0.1:9/"),
    Fault::Status("410 Gone"),
    Fault::Hang,
    Fault::Dead,
];

/// A received notification: log position, id, state, and whether it was accepted.
#[derive(Clone, Debug, PartialEq)]
struct ReceivedNotification {
    sequence: u64,
    id: String,
    state: String,
    taken: bool,
}

struct WebhookReceiver {
    url: String,
    fault: Fault,
    state: Arc<(Mutex<ReceiverState>, Condvar)>,
}

#[derive(Default)]
struct ReceiverState {
    well: bool,
    /// Number of connections.
    tried: usize,
    got: Vec<ReceivedNotification>,
    held: Vec<TcpStream>,
}

impl WebhookReceiver {
    fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let state: Arc<(Mutex<ReceiverState>, Condvar)> = Arc::default();
        let own = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let own = own.clone();
                thread::spawn(move || serve(stream, fault, &own));
            }
        });
        Self { url, fault, state }
    }

    /// Waits until a condition holds.
    fn wait_until(&self, what: &str, holds: impl Fn(&ReceiverState) -> bool) {
        let (state, news) = &*self.state;
        let waited = news
            .wait_timeout_while(state.lock().unwrap(), DEADLINE, |state| !holds(state))
            .unwrap();
        assert!(
            !waited.1.timed_out(),
            "{:?}: {what}: {:?}",
            self.fault,
            waited.0.got
        );
    }

    fn attempts(&self) -> usize {
        self.state.0.lock().unwrap().tried
    }

    fn recover(&self) {
        self.state.0.lock().unwrap().well = true;
    }

    /// Accepted notifications without repetitions, which have the same id.
    fn accepted(&self) -> Vec<ReceivedNotification> {
        let mut got = self.state.0.lock().unwrap().got.clone();
        got.retain(|got| got.taken);
        got.dedup_by(|one, other| one.id == other.id);
        got
    }
}

fn serve(stream: TcpStream, fault: Fault, state: &(Mutex<ReceiverState>, Condvar)) {
    let (state, news) = state;
    let fault = if state.lock().unwrap().well {
        Fault::None
    } else {
        fault
    };
    let got = if fault == Fault::Dead {
        None
    } else {
        read(&stream)
    };
    let mut state = state.lock().unwrap();
    state.tried += 1;
    state.got.extend(got.map(|got| ReceivedNotification {
        taken: matches!(fault, Fault::None | Fault::Hang),
        ..got
    }));
    news.notify_all();
    let answer = match fault {
        Fault::None => "200 OK",
        Fault::Status(status) => status,
        Fault::Hang => return state.held.push(stream),
        Fault::Dead => return,
    };
    let _ = write!(
        &stream,
        "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
}

/// Reads a request; `None` if the sender was killed while sending.
fn read(stream: &TcpStream) -> Option<ReceivedNotification> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut got = ReceivedNotification {
        sequence: 0,
        id: String::new(),
        state: String::new(),
        taken: false,
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let (name, value) = line.trim().split_once(": ").unwrap_or((line.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "" => break,
            "content-length" => length = value.parse().unwrap(),
            "a2a-event-id" => value.clone_into(&mut got.id),
            "a2a-event-sequence" => got.sequence = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).unwrap();
    body["statusUpdate"]["status"]["state"]
        .as_str()
        .unwrap_or_default()
        .clone_into(&mut got.state);
    Some(got)
}

const CONFIG: &str = r#"
[push]
local_webhooks = true
timeout = "200ms"
first_retries = ["20ms", "20ms"]
retry_every = "50ms"
retry_for = "1h"

[agents.drip]
type = "script"
file = "rules.toml"
"#;

const RULES: &str = r#"
[[rule]]
word = "ask"
steps = [
    { ask = "How much?" },
    { stream = { name = "drip", text = "chunk {count} of {total} ", chunks = 5, bytes = 12, seconds = 0.1 } },
]
"#;

/// Starts the server of a directory, and returns its URL.
fn start(folder: &Path) -> (ServerProcess, String) {
    let file = folder.join("agents.toml");
    let data = folder.join("data");
    let args = [
        "serve",
        file.to_str().unwrap(),
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let server = serve_in(&args, TempDir::new().unwrap());
    let url = server.line("Listening on ");
    (server, url)
}

fn message(text: &str, task: Option<&str>) -> Value {
    let mut message = json!({"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]});
    if let Some(task) = task {
        message["taskId"] = json!(task);
    }
    json!({ "message": message })
}

/// Waits until the metrics contain attempts of every outcome.
fn wait_for_metrics(data: &Path) {
    let begun = Instant::now();
    loop {
        let (_, body) = admin(data, "GET /metrics");
        let is_there = |outcome| {
            body.contains(&format!(
                "attache_push_attempts_total{{outcome=\"{outcome}\"}} "
            ))
        };
        if ["delivered", "retry", "failed"].into_iter().all(is_there) {
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "{body}");
    }
}

#[test]
fn r13_r28_r29_r30_a_server_that_is_killed_twice_delivers_everything_in_order() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("agents.toml"), CONFIG).unwrap();
    std::fs::write(folder.path().join("rules.toml"), RULES).unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let hooks: Vec<WebhookReceiver> = FAULTS
        .iter()
        .map(|fault| WebhookReceiver::start(*fault))
        .collect();
    let (mut server, url) = start(folder.path());
    let question = call(&url, "SendMessage", &message("ask", None));
    let task = question["result"]["task"]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{question}"));
    for hook in &hooks {
        let made = call(
            &url,
            "CreateTaskPushNotificationConfig",
            &json!({"taskId": task, "url": hook.url}),
        );
        assert_eq!(made["result"]["url"], hook.url, "{made}");
    }
    let done = call(&url, "SendMessage", &message("a little", Some(task)));
    assert_eq!(
        done["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED",
        "{done}"
    );
    let has_ended = |state: &ReceiverState| {
        state
            .got
            .iter()
            .any(|got| got.taken && got.state.ends_with("COMPLETED"))
    };
    hooks[0].wait_until("one that is well gets everything", has_ended);
    for hook in &hooks[1..] {
        hook.wait_until("it is tried", |state| state.tried > 0);
    }
    wait_for_metrics(&folder.path().join("data"));
    // `Child::kill` is SIGKILL.
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let before: Vec<usize> = hooks.iter().map(WebhookReceiver::attempts).collect();
    let (mut server, _) = start(folder.path());
    for (hook, before) in hooks.iter().zip(before) {
        if !matches!(
            hook.fault,
            Fault::None | Fault::Status("302 Found\r\nLocation: http://127.0.0.1:9/" | "410 Gone")
        ) {
            hook.wait_until("it is tried again after a restart", |state| {
                state.tried > before
            });
        }
    }
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    hooks.iter().for_each(WebhookReceiver::recover);
    let (_server, _) = start(folder.path());
    // The two failed webhooks are listed for the operator.
    let data = folder.path().join("data");
    let retried = attache(&["push", "retry", "--all", "--data-dir"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(retried.status.success(), "{retried:?}");
    let expected = hooks[0].accepted();
    assert!(expected.len() >= 6, "{expected:?}");
    for hook in &hooks {
        hook.wait_until("everything arrives", has_ended);
        let key = |got: &ReceivedNotification| (got.sequence, got.state.clone());
        let taken: Vec<_> = hook.accepted().iter().map(key).collect();
        assert_eq!(
            taken,
            expected.iter().map(key).collect::<Vec<_>>(),
            "{:?}",
            hook.fault
        );
        assert!(
            taken.is_sorted_by(|one, other| one.0 < other.0),
            "{taken:?}"
        );
    }
    let left = attache(&["push", "deliveries", "--data-dir"])
        .arg(&data)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "");
}
