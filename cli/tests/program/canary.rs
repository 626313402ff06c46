//! S38: searches every output of a server and its clients for every secret that passes through them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::collector::Collector;
use crate::harness::{DEADLINE, attache, send};
use crate::llm::{model, text_events};

const CONFIG: &str = r#"
[auth]
keys = true

[push]
local_webhooks = true
signing_key = "push.pem"
first_retries = ["10ms"]
retry_every = "10ms"
retry_for = "20ms"

[agents.echo]
type = "echo"

[agents.backend]
type = "http"
url = "http://127.0.0.1:9/${CANARY}"
headers = { Authorization = "Bearer canary-of-the-backend", X-Two = "${CANARY}" }

[agents.command]
type = "command"
command = ["false"]
env = { SECRET = "canary-of-the-command" }

[agents.remote]
type = "remote"
url = "${BEHIND}"
headers = { Authorization = "Bearer canary-of-the-remote" }

[agents.model]
type = "llm"
model = { url = "${MODEL}", name = "small", api_key = "canary-of-the-model", headers = { X-Two = "${CANARY}" } }

[agents.tools]
type = "mcp"
server = { command = ["false"], env = { TOKEN = "canary-of-the-tools" } }
"#;

/// Configuration of the upstream server, which also exports metrics to the collector.
const BEHIND: &str = "[telemetry]\nnames = \"kaos\"\n[agents.echo]\ntype = \"echo\"\n";

/// Message content, which only the agent may receive.
const CONTENT: &str = "said-in-confidence";
/// Outputs that may contain message content: the tasks.
const HAVE_TASKS: [&str; 3] = ["export", "files", "undelivered"];

/// A server that is killed with the test.
struct RunningServer {
    process: Child,
    stdout: BufReader<ChildStdout>,
    greeting: String,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RunningServer {
    fn url(&self) -> String {
        self.greeting
            .trim()
            .strip_prefix("Listening on ")
            .unwrap()
            .to_owned()
    }
}

/// A directory with all inputs and outputs of the programs.
struct CanaryFixture {
    folder: TempDir,
    collector: Collector,
    sinks: Vec<(String, String)>,
}

impl CanaryFixture {
    fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Records an output to search.
    fn record(&mut self, name: &str, text: impl Into<String>) {
        self.sinks.push((name.to_owned(), text.into()));
    }

    /// The program with secrets in its environment, exporting to the collector.
    fn program(&self, args: &[&str], name: &str) -> Command {
        let mut command = attache(args);
        self.collector.export_from(&mut command, name);
        command
            .env("CANARY", "canary-of-the-environment")
            .env(
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=canary-of-the-collector",
            )
            .env("HOME", self.home())
            .current_dir(self.home());
        command
    }

    /// Runs the program, and returns all its output.
    fn run_program(&self, args: &[&str]) -> String {
        let mut program = self.program(args, "client");
        let output = program
            .env("BEHIND", "http://behind")
            .env("MODEL", "http://model")
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&output.stdout) + &text(&output.stderr)
    }

    fn start(&self, file: &str, name: &str, more: &[(&str, &str)]) -> RunningServer {
        let data = format!("{name}.data");
        let mut command = self.program(
            &[
                "serve",
                file,
                "--listen",
                "127.0.0.1:0",
                "--data-dir",
                &data,
            ],
            name,
        );
        let log = File::create(self.home().join(format!("{name}.log"))).unwrap();
        let mut process = command
            .envs(more.iter().copied())
            .env("RUST_LOG", "trace")
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut greeting = String::new();
        stdout.read_line(&mut greeting).unwrap();
        RunningServer {
            process,
            stdout,
            greeting,
        }
    }

    /// Ends a server, and records its log.
    fn end(&mut self, name: &str, mut server: RunningServer) {
        let pid = server.process.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        server.process.wait().unwrap();
        let mut text = server.greeting.clone();
        server.stdout.read_to_string(&mut text).unwrap();
        self.record("banner", text);
        let log = fs::read_to_string(self.home().join(format!("{name}.log"))).unwrap();
        self.record(&format!("log of {name}"), log);
    }

    /// Checks that no output contains a secret, and that only task outputs contain message content.
    fn search(&self, secrets: &[&str]) {
        for (name, text) in &self.sinks {
            assert!(!text.is_empty(), "{name} was looked at");
            let content = [CONTENT]
                .into_iter()
                .filter(|_| !HAVE_TASKS.contains(&&**name));
            for secret in secrets.iter().copied().chain(content) {
                let around = text.find(secret).map(|at| {
                    let from = text.floor_char_boundary(at.saturating_sub(200));
                    text[from..].chars().take(400).collect::<String>()
                });
                assert_eq!(around, None, "`{secret}` is in: {name}");
            }
        }
    }

    fn sink(&self, wanted: &str) -> &str {
        &self
            .sinks
            .iter()
            .find(|(name, _)| name == wanted)
            .unwrap()
            .1
    }
}

/// A response of the admin socket.
fn admin(data: &Path, request: &str) -> String {
    let mut socket = UnixStream::connect(data.join("admin/socket")).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        socket,
        "{request} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn post(url: &str, credential: &str, method: &str, params: &Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    send(
        url,
        "POST",
        &[
            "Content-Type: application/json",
            "A2A-Version: 1.0",
            credential,
        ],
        &body,
    )
}

/// All files below a directory, as text.
fn files(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all += &files(&path);
        } else if path.is_file() {
            all += &String::from_utf8_lossy(&fs::read(path).unwrap());
        }
    }
    all
}

fn message() -> Value {
    json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": CONTENT}],
        "metadata": {"note": CONTENT}})
}

/// Refused and failing calls over JSON-RPC and HTTP+JSON.
fn refusals(scene: &mut CanaryFixture, url: &str, ann: &str, bob: &str, task: &str) {
    let ann = format!("Authorization: Bearer {ann}");
    let bob = format!("Authorization: Bearer {bob}");
    let sent = |agent: &str| json!({"message": message(), "tenant": agent});
    let get = || json!({"id": task});
    for (name, credential, method, params) in [
        (
            "other caller",
            &*bob,
            "GetTaskPushNotificationConfig",
            json!({"taskId": task, "id": "x"}),
        ),
        (
            "list of another caller",
            &bob,
            "ListTaskPushNotificationConfigs",
            json!({"taskId": task}),
        ),
        ("task of another caller", &bob, "GetTask", get()),
        (
            "unknown key",
            "Authorization: Bearer att_canary-of-unknown",
            "GetTask",
            get(),
        ),
        (
            "unknown API key",
            "X-API-Key: canary-of-a-header",
            "GetTask",
            get(),
        ),
        // `an:canary-of-a-password`: the canary starts at a base64 group.
        (
            "basic",
            "Authorization: Basic YW46Y2FuYXJ5LW9mLWEtcGFzc3dvcmQ=",
            "GetTask",
            get(),
        ),
        ("cookie", "Cookie: key=canary-of-a-cookie", "GetTask", get()),
        (
            "nonsense",
            &ann,
            "SendMessage",
            json!({"message": {"parts": "canary-of-nonsense"}}),
        ),
        ("unknown method", &ann, "canary-of-a-method", json!({})),
        (
            "ended",
            &ann,
            "SendMessage",
            json!({"message": {"messageId": "n", "role": "ROLE_USER",
            "taskId": task, "parts": [{"text": CONTENT}]}}),
        ),
        (
            "refused",
            &ann,
            "CreateTaskPushNotificationConfig",
            json!({"taskId": task, "url": "http://10.0.0.1/canary-of-a-refusal", "token": "canary-of-another"}),
        ),
    ] {
        scene.record(name, post(url, credential, method, &params).to_string());
    }
    let query = format!("{url}tasks/{task}?key=canary-of-a-query");
    scene.record(
        "query",
        send(&query, "GET", &["A2A-Version: 1.0"], "").to_string(),
    );
    let headers = ["A2A-Version: 1.0", "Content-Type: application/json", &ann];
    let broken = send(
        &format!("{url}message:send"),
        "POST",
        &headers,
        &format!("{{\"{CONTENT}"),
    );
    scene.record("broken body", broken.to_string());
    // Agents that fail, and agents that forward the message: their tasks belong to the caller.
    for agent in ["backend", "command", "remote", "model", "tools"] {
        let answer = post(url, &ann, "SendMessage", &sent(agent));
        let mut shown = answer["result"]["task"].clone();
        assert!(shown["status"]["state"].is_string(), "{agent}: {answer}");
        let ended = if matches!(agent, "remote" | "model") {
            "TASK_STATE_COMPLETED"
        } else {
            "TASK_STATE_FAILED"
        };
        assert_eq!(shown["status"]["state"], ended, "{agent}: {answer}");
        shown["history"].take();
        if agent != "remote" {
            scene.record(agent, shown.to_string());
        }
    }
}

/// Output of the client verbs over every binding.
fn clients(scene: &mut CanaryFixture, url: &str, ann: &str) {
    for binding in ["jsonrpc", "http+json", "grpc"] {
        for (name, key) in [("client", ann), ("unknown client", "canary-of-a-client")] {
            let args = [
                "send",
                "-a",
                url,
                "--transport",
                binding,
                "--bearer",
                key,
                "--svc-param",
                "X-Auth-Token: canary-of-a-parameter",
                "--debug",
                "--verbose",
                "hello",
            ];
            let text = scene.run_program(&args);
            assert!(text.contains("authorization: ***"), "{binding}: {text}");
            scene.record(&format!("{name} over {binding}"), text);
        }
    }
}

#[test]
fn s38_no_output_contains_a_secret() {
    let folder = TempDir::new().unwrap();
    let pem = include_str!("../../../src/jws/tests/p256.pem");
    for (name, text) in [
        ("agents.toml", CONFIG),
        ("behind.toml", BEHIND),
        ("push.pem", pem),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::set_permissions(
        folder.path().join("push.pem"),
        fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    let data = folder.path().join("front.data");
    fs::create_dir(&data).unwrap();
    let place = data.to_str().unwrap();
    // Only the key is on stdout.
    let key = |name| {
        let output = attache(&["keys", "add", name, "--data-dir", place])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let ann = key("ann");
    let bob = key("bob");
    let mut scene = CanaryFixture {
        folder,
        collector: Collector::new(),
        sinks: Vec::new(),
    };
    let behind = scene.start("behind.toml", "behind", &[]);
    let (thinking, asked) = model(vec![text_events("so it is")]);
    let front = scene.start(
        "agents.toml",
        "front",
        &[("BEHIND", &behind.url()), ("MODEL", &thinking)],
    );
    let url = front.url();

    // A webhook that fails, with a secret in every part.
    let dead = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let hook = json!({"url": format!("http://{dead}/canary-of-the-hook?s=canary-of-the-query"),
        "token": "canary-of-the-token",
        "authentication": {"scheme": "Bearer", "credentials": "canary-of-the-credentials"}});
    let with_hook =
        json!({"message": message(), "configuration": {"taskPushNotificationConfig": hook}});
    let sent = post(
        &url,
        &format!("Authorization: Bearer {ann}"),
        "SendMessage",
        &with_hook,
    );
    let task = sent["result"]["task"]["id"].as_str().unwrap();
    refusals(&mut scene, &url, &ann, &bob, task);
    assert!(
        asked
            .recv_timeout(DEADLINE)
            .unwrap()
            .to_string()
            .contains(CONTENT),
        "the model was told"
    );
    clients(&mut scene, &url, &ann);
    let begun = Instant::now();
    let given_up = loop {
        let listed = scene.run_program(&["push", "deliveries", "--data-dir", place]);
        if listed.contains(task) {
            break listed;
        }
        assert!(begun.elapsed() < DEADLINE, "it is given up: {listed}");
    };
    let number = given_up.split_whitespace().next().unwrap().to_owned();
    scene.record("deliveries", given_up);
    for request in [
        "GET /metrics",
        "GET /push/deliveries",
        "GET /push/undelivered?number=1",
    ] {
        scene.record(request, admin(&data, request));
    }
    for (name, args) in [
        (
            "undelivered",
            &["push", "deliveries", &number, "--data-dir", place][..],
        ),
        ("configuration", &["serve", "agents.toml", "--print-config"]),
        ("check", &["check", "agents.toml"]),
        ("keys", &["keys", "list", "--data-dir", place]),
        ("export", &["db", "export", "--data-dir", place]),
    ] {
        scene.record(name, scene.run_program(args));
    }
    for path in [
        ".well-known/agent-card.json",
        ".well-known/jwks.json",
        ".well-known/ai-catalog.json",
    ] {
        scene.record(
            path,
            send(&format!("{url}{path}"), "GET", &[], "").to_string(),
        );
    }
    scene.end("front", front);
    scene.end("behind", behind);
    scene.record(
        "files",
        files(&data) + &files(&scene.home().join("behind.data")),
    );
    scene.record("collector", scene.collector.everything());

    let private = pem.lines().nth(1).unwrap();
    scene.search(&["canary", "Y2FuYXJ5", &ann, &bob, private]);
    // The searched outputs are not empty.
    let log = scene.sink("log of front");
    let exported = scene.sink("collector");
    assert!(log.contains("webhook failed") && log.contains("authentication failed"));
    assert!(
        log.contains(" TRACE ") || log.contains("\"TRACE\""),
        "as much as can be logged"
    );
    // S27: the development switch is logged.
    assert!(log.contains("for development only"));
    assert!(
        scene.sink("GET /metrics").contains("attache_") && scene.sink("export").contains(CONTENT)
    );
    for span in [
        "a2a.turn",
        "a2a.push",
        "chat small",
        "a2a.SendMessage",
        "kaos.task.execute",
        "kaos.tasks",
        "attache send",
    ] {
        assert!(exported.contains(&format!("\"{span}\"")), "{span} is told");
    }
}
