//! S38: every place that something may leak to, searched for every secret that passes through a server.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{DEADLINE, attache, send};

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
"#;

/// Runs the program; gives all that it says.
fn said(args: &[&str], folder: &Path) -> String {
    let output =
        attache(args).env("CANARY", "canary-of-the-environment").current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// What the running server tells its operator.
fn admin(data: &Path, request: &str) -> String {
    let mut socket = UnixStream::connect(data.join("admin/socket")).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(socket, "{request} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn post(url: &str, key: &str, method: &str, params: &Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let key = format!("Authorization: Bearer {key}");
    send(url, "POST", &["Content-Type: application/json", "A2A-Version: 1.0", &key], &body)
}

/// Everything below a folder, as text.
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

#[test]
fn s38_no_secret_is_in_any_place_that_others_look_at() {
    let folder = TempDir::new().unwrap();
    let (home, data) = (folder.path(), folder.path().join("data"));
    fs::create_dir(&data).unwrap();
    fs::write(home.join("agents.toml"), CONFIG).unwrap();
    let pem = include_str!("../../../src/jws/tests/p256.pem");
    fs::write(home.join("push.pem"), pem).unwrap();
    fs::set_permissions(home.join("push.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    let place = data.to_str().unwrap();
    // The key is on stdout, and what is said of it is not.
    let key = |name| {
        let output = attache(&["keys", "add", name, "--data-dir", place]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (ann, bob) = (key("ann"), key("bob"));
    let mut server = attache(&["serve", "agents.toml", "--listen", "127.0.0.1:0", "--data-dir", place])
        .env("CANARY", "canary-of-the-environment")
        .env("RUST_LOG", "trace")
        .current_dir(home)
        .stdout(Stdio::piped())
        .stderr(File::create(home.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut greeting = String::new();
    stdout.read_line(&mut greeting).unwrap();
    let url = greeting.trim().strip_prefix("Listening on ").unwrap().to_owned();

    // A webhook that nobody answers, with everything that can be secret of one.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hook = json!({"url": format!("http://{dead}/canary-of-the-hook?s=canary-of-the-query"),
        "token": "canary-of-the-token",
        "authentication": {"scheme": "Bearer", "credentials": "canary-of-the-credentials"}});
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    let with_hook = json!({"message": message, "configuration": {"taskPushNotificationConfig": hook}});
    let task = post(&url, &ann, "SendMessage", &with_hook)["result"]["task"]["id"].clone();
    let task = task.as_str().unwrap();
    let mut sinks = vec![("greeting", greeting)];
    // What strangers hear, and what fails.
    for (name, key, method, params) in [
        ("stranger", &*bob, "GetTaskPushNotificationConfig", json!({"taskId": task, "id": "x"})),
        ("list of a stranger", &bob, "ListTaskPushNotificationConfigs", json!({"taskId": task})),
        ("nobody", "att_canary-of-nobody", "GetTask", json!({"id": task})),
        ("nonsense", &ann, "SendMessage", json!({"message": {"parts": "canary-of-nonsense"}})),
        ("backend", &ann, "SendMessage", json!({"message": message, "tenant": "backend"})),
        ("command", &ann, "SendMessage", json!({"message": message, "tenant": "command"})),
        (
            "refused",
            &ann,
            "CreateTaskPushNotificationConfig",
            json!({"taskId": task, "url": "http://10.0.0.1/canary-of-a-refusal", "token": "canary-of-another"}),
        ),
    ] {
        sinks.push((name, post(&url, key, method, &params).to_string()));
    }
    let begun = Instant::now();
    let given_up = loop {
        let listed = said(&["push", "deliveries", "--data-dir", place], home);
        if listed.contains(task) {
            break listed;
        }
        assert!(begun.elapsed() < DEADLINE, "it is given up: {listed}");
    };
    let number = given_up.split_whitespace().next().unwrap().to_owned();
    sinks.push(("letters", said(&["push", "deliveries", &number, "--data-dir", place], home)));
    sinks.push(("deliveries", given_up));
    for request in ["GET /metrics", "GET /push/deliveries", "GET /push/letters?number=1"] {
        sinks.push((request, admin(&data, request)));
    }
    sinks.push(("configuration", said(&["serve", "agents.toml", "--print-config"], home)));
    sinks.push(("check", said(&["check", "agents.toml"], home)));
    sinks.push(("keys", said(&["keys", "list", "--data-dir", place], home)));
    sinks.push(("export", said(&["db", "export", "--data-dir", place], home)));
    for path in [".well-known/agent-card.json", ".well-known/jwks.json", ".well-known/ai-catalog.json"] {
        sinks.push((path, send(&format!("{url}{path}"), "GET", &[], "").to_string()));
    }
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    server.wait().unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    sinks.push(("the rest of the greeting", rest));
    sinks.push(("log", fs::read_to_string(home.join("log")).unwrap()));
    sinks.push(("files", files(&data)));

    let private = pem.lines().nth(1).unwrap();
    for (name, text) in &sinks {
        assert!(!text.is_empty(), "{name} was looked at");
        for secret in ["canary", &ann, &bob, private] {
            let at = text.find(secret).map(|at| {
                text.get(at.saturating_sub(200)..).unwrap_or(secret).chars().take(400).collect::<String>()
            });
            assert_eq!(at, None, "`{secret}` is in: {name}");
        }
    }
    // S27: the switch for development says what it is.
    let sink = |wanted: &str| &sinks.iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert!(sink("log").contains("webhook given up") && sink("log").contains("caller refused"));
    assert!(sink("log").contains("for development only"));
    assert!(sink("GET /metrics").contains("attache_") && sink("export").contains(task));
}
