//! `attache keys`, and a server that requires keys.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{DEADLINE, attache, run_expecting_error, send, serve_in};
use crate::observability::admin;

/// Runs `attache keys`, and returns its output.
pub(crate) fn keys(folder: &Path, args: &[&str]) -> String {
    let output = attache(&["keys"])
        .args(args)
        .arg("--data-dir")
        .arg(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Lists tasks with an additional header.
fn list(url: &str, header: &str) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    let headers = ["Content-Type: application/json", "A2A-Version: 1.0", header];
    send(url, "POST", &headers, &body.to_string())
}

pub(crate) fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}")
}

#[test]
fn s41_a_key_is_valid_until_it_is_revoked() {
    let folder = TempDir::new().unwrap();
    let ann = keys(
        folder.path(),
        &["add", "ann", "--scope", "deploy", "--days", "30"],
    );
    // With keys the server may listen on all addresses: callers are authenticated.
    let server = serve_in(
        &[
            "serve",
            "--echo",
            "--store",
            "memory",
            "--listen",
            "0.0.0.0:0",
        ],
        folder,
    );
    let url = server.line("Listening on ");
    let folder = server.folder.path();
    assert_eq!(list(&url, "X-Nothing: x")["error"]["code"], -31401);
    assert_eq!(list(&url, &bearer("att_nonsense"))["error"]["code"], -31401);
    assert_eq!(list(&url, &bearer(&ann))["result"]["totalSize"], 0);
    let listed = keys(folder, &["list"]);
    assert!(
        listed.contains("ann") && listed.contains("deploy") && !listed.contains(&ann),
        "{listed}"
    );
    // The running server is notified immediately.
    let bob = keys(folder, &["add", "bob"]);
    assert_eq!(
        list(&url, &format!("X-API-Key: {bob}"))["result"]["totalSize"],
        0
    );
    keys(folder, &["revoke", "ann"]);
    assert_eq!(list(&url, &bearer(&ann))["error"]["code"], -31401);
    assert_eq!(list(&url, &bearer(&bob))["result"]["totalSize"], 0);
    let output = attache(&["keys", "revoke", "ann", "--data-dir"])
        .arg(folder)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains(&format!(
            "`attache keys list --data-dir {}`",
            folder.display()
        )),
        "{text}"
    );
}

/// A stream ends with the key that opened it, and tells why.
#[test]
fn d18_a_revoked_key_ends_its_open_streams() {
    let folder = TempDir::new().unwrap();
    let [ann, bob] = ["ann", "bob"].map(|name| keys(folder.path(), &["add", name]));
    let server = serve_in(&["demo", "--store", "memory"], folder);
    let url = server.line("Listening on ");
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let open = |key: &str| {
        let message =
            json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "slow 600"}]});
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": {"message": message}});
        let body = body.to_string();
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let length = body.len();
        let header = bearer(key);
        write!(
            stream,
            "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n{header}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut events = BufReader::new(stream).lines().map(Result::unwrap);
        events.find(|line| line.starts_with("data: ")).unwrap();
        events
    };
    let mut of_ann = open(&ann);
    let mut of_bob = open(&bob);
    keys(server.folder.path(), &["revoke", "ann"]);
    let last = of_ann.find(|line| line.contains("\"error\"")).unwrap();
    let error: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(
        (&error["id"], &error["error"]["code"]),
        (&json!(7), &json!(-31401))
    );
    assert_eq!(error["error"]["message"], "the credential was revoked");
    keys(server.folder.path(), &["revoke", "bob"]);
    of_bob
        .find(|line| line.contains("the credential was revoked"))
        .unwrap();
}

#[test]
fn the_banner_describes_accepted_callers() {
    let folder = TempDir::new().unwrap();
    let none = folder.path().join("none");
    let (code, text) = run_expecting_error(&["keys", "list", "--data-dir", none.to_str().unwrap()]);
    assert!(
        code == Some(1) && text.contains("there is no directory") && !none.exists(),
        "{text}"
    );
    let (code, text) =
        run_expecting_error(&["push", "retry", "--data-dir", none.to_str().unwrap()]);
    assert!(code == Some(2) && text.contains("NUMBERS"), "{text}");
    let file = folder.path().join("agents.toml");
    std::fs::write(&file, "[auth]\nkeys = true\n[agents.echo]\ntype = \"echo\"").unwrap();
    let file = file.display().to_string();
    let greeting = |args: &[&str], folder: TempDir| {
        let server = serve_in(
            &[&["serve", "--store", "null", &file], args].concat(),
            folder,
        );
        for line in ["Listening on ", "Card: ", "Tasks: "] {
            server.line(line);
        }
        let lines = (
            server.line("Callers: "),
            [(); 4].map(|()| server.line("")).concat(),
        );
        server.line("Stop with Ctrl-C.");
        lines
    };
    let (callers, tries) = greeting(&[], TempDir::new().unwrap());
    assert!(
        callers.starts_with(
            "none, because there are no keys; create one: attache keys add --data-dir "
        )
    );
    assert!(
        tries.contains(" send ") && !tries.contains("task list"),
        "{tries}"
    );
    let keyed = TempDir::new().unwrap();
    keys(keyed.path(), &["add", "ann"]);
    assert_eq!(greeting(&[], keyed).0, "with a key (A2ACLI_BEARER=<KEY>)");
    let (callers, _) = greeting(&["--allow-anonymous"], TempDir::new().unwrap());
    assert_eq!(
        callers,
        "anonymous, or identified by a key (A2ACLI_BEARER=<KEY>)"
    );
}

#[test]
fn adding_a_key_to_a_server_without_authentication_asks_for_a_restart() {
    let server = serve_in(&["serve", "--echo"], TempDir::new().unwrap());
    server.line("Listening on ");
    let folder = server.folder.path();
    let output = attache(&["keys", "add", "ann", "--data-dir"])
        .arg(folder)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("restart"),
        "{text}"
    );
}

/// A server of a configuration with authentication and rules.
#[test]
fn s36_configured_rules_are_enforced() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let text = r#"
        [auth]
        keys = true
        [auth.limits]
        burst = 6
        calls_per_second = 1
        [agents.echo]
        type = "echo"
        [agents.echo.auth]
        operations = [{ operations = ["list_tasks"], scopes = ["list"] }]
    "#;
    std::fs::write(&file, text).unwrap();
    let server = serve_in(
        &["serve", file.to_str().unwrap(), "--store", "memory"],
        folder,
    );
    let url = server.line("Listening on ");
    assert_eq!(
        list(&url, "X-Nothing: x")["error"]["code"],
        -31401,
        "although there is no key yet"
    );
    let ann = keys(server.folder.path(), &["add", "ann"]);
    let bob = keys(server.folder.path(), &["add", "bob", "--scope", "list"]);
    assert_eq!(list(&url, &bearer(&ann))["error"]["code"], -31403);
    // S67: at most six concurrent calls.
    let answers: Vec<_> = (0..20).map(|_| list(&url, &bearer(&bob))).collect();
    assert_eq!(answers[0]["result"]["totalSize"], 0, "{}", answers[0]);
    assert!(
        answers
            .iter()
            .any(|answer| answer["error"]["code"] == -32000),
        "{answers:?}"
    );
    assert_eq!(list(&url, &bearer("att_wrong"))["error"]["code"], -31401);
    let (_, counted) = admin(server.folder.path(), "GET /metrics");
    for reason in ["missing", "invalid", "forbidden"] {
        let sample = format!("attache_auth_failures_total{{reason=\"{reason}\"}} 1\n");
        assert!(counted.contains(&sample), "{reason}: {counted}");
    }
}

#[test]
fn s67_anonymous_callers_are_limited_per_address() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    std::fs::write(
        &file,
        "[auth.limits]\nburst = 3\ncalls_per_second = 1\nlimit_loopback = true\n[agents.a]\ntype = \"echo\"",
    )
    .unwrap();
    let server = serve_in(
        &["serve", file.to_str().unwrap(), "--store", "memory"],
        folder,
    );
    let url = server.line("Listening on ");
    let answers: Vec<_> = (0..20).map(|_| list(&url, "X-Nothing: x")).collect();
    assert_eq!(answers[0]["result"]["totalSize"], 0, "{}", answers[0]);
    assert!(
        answers
            .iter()
            .any(|answer| answer["error"]["code"] == -32000),
        "{answers:?}"
    );
}

#[test]
fn d08_the_printed_limits_apply_without_authentication() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let text = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[agents.a]\ntype = \"echo\"";
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let args = ["serve", &file, "--allow-anonymous", "--store", "memory"];
    let printed = attache(&args).arg("--print-config").output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let value = |key: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(key));
        let line = line.unwrap_or_else(|| panic!("{key}: {printed}"));
        line.split('#').next().unwrap().trim().to_owned()
    };
    assert_eq!(value("calls_per_second = "), "100");
    assert_eq!(value("limit_loopback = "), "false");
    let server = serve_in(&args, folder);
    let url = server.line("Listening on ");
    let headers = |url: &str, header: &str| {
        let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(
            stream,
            "GET /tasks HTTP/1.1\r\nHost: {host}\r\n{header}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let outside = headers(&url, "X-Forwarded-For: 198.51.100.1");
    let expected = format!("x-ratelimit-limit: {}\r\n", value("burst = "));
    assert!(outside.contains(&expected), "{outside}");
    let local = serve_in(&["serve", "--echo"], TempDir::new().unwrap());
    let local = headers(&local.line("Listening on "), "X-Nothing: x");
    assert!(
        local.starts_with("HTTP/1.1 200") && !local.contains("x-ratelimit"),
        "{local}"
    );
}

/// Printed configurations contain no secrets, wherever they come from.
#[test]
fn s38_the_printed_configuration_contains_no_secret() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let text = r#"
        [auth]
        rules = [{ scopes = ["${CANARY}"] }]
        [[auth.issuers]]
        issuer = "https://login.example.com"
        audience = "agents"
        key_set = "https://login.example.com/keys?${CANARY}"
        [egress]
        allow = ["${CANARY}.example.com"]
        [agents.a]
        type = "command"
        command = ["run", "--token", "${CANARY}"]
        env = { A = "${CANARY}", B = "canary-0123456789", C = "${file:secret.txt}" }
        [agents.b]
        type = "http"
        url = "https://backend.example.com/${CANARY}"
        headers = { Authorization = "Bearer canary-0123456789" }
    "#;
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.path().join("secret.txt"), "canary-0123456789").unwrap();
    let mut command = attache(&["serve", "--print-config", file.to_str().unwrap()]);
    let output = command.env("CANARY", "canary-0123456789").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains("${CANARY}") && !printed.contains("canary-"),
        "{printed}"
    );
}

#[test]
fn a_refused_address_names_both_solutions() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path().to_str().unwrap();
    let (code, text) = run_expecting_error(&[
        "serve",
        "--echo",
        "--store",
        "memory",
        "--listen",
        "0.0.0.0:0",
        "--data-dir",
        folder,
    ]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains(&format!("attache keys add --data-dir {folder} <NAME>")),
        "{text}"
    );
    assert!(text.contains("--allow-anonymous"), "{text}");
}

/// The log contains no credential at any level.
#[test]
fn s38_no_key_is_in_the_log() {
    let folder = TempDir::new().unwrap();
    let key = keys(folder.path(), &["add", "ann"]);
    let log = folder.path().join("log");
    let mut process = attache(&["serve", "--echo", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(folder.path())
        .env("RUST_LOG", "trace")
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let url = line
        .trim()
        .strip_prefix("Listening on ")
        .unwrap()
        .to_owned();
    let wrong = "att_wrong-canary-0123456789";
    for secret in [&*key, wrong] {
        let basic = format!("Authorization: Basic {secret}");
        for header in [
            bearer(secret),
            format!("X-API-Key: {secret}"),
            basic,
            format!("Cookie: key={secret}"),
        ] {
            let answer = list(&url, &header).to_string();
            assert!(!answer.contains(secret), "{answer}");
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("authentication failed"), "the log was on");
    for secret in [&*key, "canary"] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() {
            std::fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        assert!(
            !bytes.windows(key.len()).any(|part| part == key.as_bytes()),
            "{}",
            path.display()
        );
    }
}

#[test]
fn chat_completions_require_a_key() {
    let folder = TempDir::new().unwrap();
    let ann = keys(folder.path(), &["add", "ann"]);
    let bob = keys(folder.path(), &["add", "bob"]);
    let server = serve_in(&["serve", "--echo", "--store", "memory"], folder);
    let url = server.line("Listening on ");
    let ask = |header: &str, metadata: Value| {
        let messages = json!([{"role": "user", "content": "hello"}]);
        let body = json!({"model": "Echo", "messages": messages, "metadata": metadata}).to_string();
        let headers = ["Content-Type: application/json", header];
        send(
            &format!("{url}v1/chat/completions"),
            "POST",
            &headers,
            &body,
        )
    };
    assert_eq!(
        ask("X-Nothing: x", json!({}))["error"]["code"],
        "invalid_api_key"
    );
    let models = send(&format!("{url}v1/models"), "GET", &[], "");
    assert_eq!(models["error"]["type"], "authentication_error", "{models}");
    let answer = ask(&bearer(&ann), json!({}));
    assert_eq!(
        answer["choices"][0]["message"]["content"], "hello",
        "{answer}"
    );
    assert_eq!(list(&url, &bearer(&ann))["result"]["totalSize"], 1);
    let theirs = json!({"taskId": answer["attache"]["taskId"]});
    assert_eq!(
        ask(&bearer(&bob), theirs)["error"]["code"],
        "task_not_found",
        "tasks have one owner here too"
    );
}
