//! The admin API of a running server: over its socket, and over HTTP with an operator key.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::{DEADLINE, attache, call, run_expecting_error, send, serve_in};

/// Runs the program with a data directory, and returns its output.
fn run_program(folder: &Path, args: &[&str]) -> String {
    let output = attache(args)
        .arg("--data-dir")
        .arg(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A webhook with scripted responses; returns its URL and the ids of received notifications.
fn webhook(answers: &'static [&'static str]) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://{}/hook?secret=canary",
        listener.local_addr().unwrap()
    );
    let (tell, ids) = sync_channel(64);
    thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            let mut id = String::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let (name, value) = line.trim().split_once(':').unwrap_or((line.trim(), ""));
                match name.to_ascii_lowercase().as_str() {
                    "" => break,
                    "content-length" => length = value.trim().parse().unwrap(),
                    "a2a-event-id" => value.trim().clone_into(&mut id),
                    _ => {}
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let head = "Content-Length: 0\r\nConnection: close\r\n\r\n";
            write!(reader.get_mut(), "HTTP/1.1 {answer}\r\n{head}").unwrap();
            tell.send(id).unwrap();
        }
    });
    (url, ids)
}

#[test]
fn r29_a_failed_webhook_is_listed_and_retried() {
    let server = serve_in(
        &["serve", "--echo", "--local-webhooks"],
        TempDir::new().unwrap(),
    );
    let url = server.line("Listening on ");
    let folder = server.folder.path();
    assert_eq!(run_program(folder, &["push", "deliveries"]), "");
    let (hook, ids) = webhook(&["410 Gone", "200 OK", "200 OK", "200 OK", "200 OK", "200 OK"]);
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    let config = json!({"taskPushNotificationConfig": {"url": hook, "token": "canary-token"}});
    let answer = call(
        &url,
        "SendMessage",
        &json!({"message": message, "configuration": config}),
    );
    let task = answer["result"]["task"]["id"].as_str().unwrap();
    let first = ids.recv_timeout(DEADLINE).unwrap();
    let begun = Instant::now();
    let listed = loop {
        let listed = run_program(folder, &["push", "deliveries"]);
        if !listed.is_empty() {
            break listed;
        }
        assert!(begun.elapsed() < DEADLINE, "it is given up");
    };
    assert!(listed.contains(task) && listed.contains("410"), "{listed}");
    // S38: the path of a webhook URL may be a secret.
    assert!(!listed.contains("canary"), "{listed}");
    let number = listed.split_whitespace().next().unwrap().to_owned();
    let letters = run_program(folder, &["push", "deliveries", &number]);
    assert!(
        letters.lines().next().unwrap().contains(&first),
        "{letters}"
    );
    run_program(folder, &["push", "retry", "--all"]);
    assert_eq!(
        ids.recv_timeout(DEADLINE).unwrap(),
        first,
        "from where it was left, under the same id"
    );
    for letter in letters.lines().skip(1) {
        assert!(
            letter.contains(&ids.recv_timeout(DEADLINE).unwrap()),
            "{letters}"
        );
    }
    assert_eq!(run_program(folder, &["push", "deliveries"]), "");
    let unknown = ["push", "retry", "7", "--data-dir", folder.to_str().unwrap()];
    assert!(
        run_expecting_error(&unknown)
            .1
            .contains("no failed webhook has this number")
    );
}

#[test]
fn push_commands_need_a_running_server() {
    let folder = TempDir::new().unwrap();
    let (code, text) = run_expecting_error(&[
        "push",
        "deliveries",
        "--data-dir",
        folder.path().to_str().unwrap(),
    ]);
    assert!(
        code == Some(1) && text.contains("no server is running"),
        "{text}"
    );
}

/// Sends a request to the admin address, and returns the whole response.
fn answer(address: &str, path: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends a request to the admin address, and returns the status.
fn status(address: &str, path: &str, header: &str) -> u16 {
    answer(address, path, header)
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn s14_caller_keys_and_operator_keys_are_separate() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let serve = [
        "serve",
        "--echo",
        "--store",
        "memory",
        "--admin-listen",
        "127.0.0.1:0",
    ];
    let (_, refusal) = run_expecting_error(&[&serve[..], &["--data-dir", &path]].concat());
    assert!(refusal.contains("--admin <NAME>"), "{refusal}");
    let caller = format!(
        "Authorization: Bearer {}",
        run_program(folder.path(), &["keys", "add", "ann"])
    );
    let operator = run_program(folder.path(), &["keys", "add", "root", "--admin"]);
    let operator = format!("Authorization: Bearer {operator}");
    let open = [
        "serve",
        "--echo",
        "--store",
        "memory",
        "--admin-listen",
        "0.0.0.0:0",
        "--data-dir",
        &path,
    ];
    assert!(run_expecting_error(&open).1.contains("in plaintext"));
    let server = serve_in(&serve, folder);
    let url = server.line("Listening on ");
    server.line("Card: ");
    server.line("Tasks: ");
    let address = server.line("Admin API: ");
    for (path, header, answer) in [
        ("/healthz", "X: x", 200),
        ("/push/deliveries", "X: x", 401),
        ("/push/deliveries", &caller, 401),
        ("/healthz", &caller, 401),
        ("/push/deliveries", &operator, 200),
        ("/nothing", &operator, 404),
        ("/reload", &operator, 405),
        ("/push/undelivered?number=x", &operator, 400),
    ] {
        assert_eq!(status(&address, path, header), answer, "{path} {header}");
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}).to_string();
    let headers = |key| ["Content-Type: application/json", "A2A-Version: 1.0", key];
    assert_eq!(
        send(&url, "POST", &headers(&operator), &body)["error"]["code"],
        -31401
    );
    assert_eq!(
        send(&url, "POST", &headers(&caller), &body)["result"]["totalSize"],
        0
    );
    assert!(run_program(server.folder.path(), &["keys", "list"]).contains("root  admin"));
    run_program(server.folder.path(), &["keys", "revoke", "root"]);
    assert_eq!(status(&address, "/push/deliveries", &operator), 401);
}

/// Starts a server with an operator key; returns it, its admin address and the header with the key.
fn serve_with_operator(config: &str) -> (crate::harness::ServerProcess, String, String) {
    let folder = TempDir::new().unwrap();
    let operator = run_program(folder.path(), &["keys", "add", "root", "--admin"]);
    let file = folder.path().join("agents.toml");
    let agent = "[store]\nkind = \"memory\"\n[agents.echo]\ntype = \"echo\"\n";
    std::fs::write(&file, format!("{config}\n{agent}")).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let args = ["serve", &file, "--admin-listen", "127.0.0.1:0"];
    let server = serve_in(&args, folder);
    for line in ["Listening on ", "Card: ", "Tasks: "] {
        server.line(line);
    }
    let address = server.line("Admin API: ");
    (server, address, format!("Authorization: Bearer {operator}"))
}

#[test]
fn d20_silent_connections_do_not_lock_operators_out() {
    let (server, address, operator) = serve_with_operator("");
    let socket = server.folder.path().join("admin/socket");
    let connect = || TcpStream::connect(&address).unwrap();
    let _silent: Vec<_> = (0..100).map(|_| connect()).collect();
    let _silent_locals: Vec<_> = (0..100)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    for _ in 0..20 {
        assert_eq!(status(&address, "/push/deliveries", &operator), 200);
        assert_eq!(status(&address, "/healthz", "X: x"), 200);
        assert_eq!(
            run_program(server.folder.path(), &["push", "deliveries"]),
            ""
        );
    }
}

#[test]
fn d20_wrong_operator_keys_are_locked_out() {
    let limit = "[auth]\nmax_failed_logins_per_minute = 5";
    let (_server, address, operator) = serve_with_operator(limit);
    let wrong = format!("{operator}x");
    for _ in 0..5 {
        assert_eq!(status(&address, "/push/deliveries", &wrong), 401);
    }
    let refused = answer(&address, "/push/deliveries", &wrong).to_lowercase();
    assert!(refused.starts_with("http/1.1 429"), "{refused}");
    assert!(refused.contains("\r\nretry-after: "), "{refused}");
    assert!(
        refused.contains("max_failed_logins_per_minute = 5"),
        "{refused}"
    );
    assert_eq!(status(&address, "/push/deliveries", "X: x"), 401);
    assert_eq!(status(&address, "/push/deliveries", &operator), 200);
}

/// URLs are stored in histories, logs and referrers, so no listener accepts a key in a URL.
#[test]
fn s80_keys_in_urls_are_not_accepted() {
    let folder = TempDir::new().unwrap();
    let caller = run_program(folder.path(), &["keys", "add", "ann"]);
    let operator = run_program(folder.path(), &["keys", "add", "root", "--admin"]);
    let server = serve_in(
        &[
            "serve",
            "--echo",
            "--store",
            "memory",
            "--admin-listen",
            "127.0.0.1:0",
        ],
        folder,
    );
    let url = server.line("Listening on ");
    let door = url
        .strip_prefix("http://")
        .unwrap()
        .trim_end_matches('/')
        .to_owned();
    server.line("Card: ");
    server.line("Tasks: ");
    let admin = server.line("Admin API: ");
    for (door, path, key) in [
        (&admin, "/push/deliveries", &operator),
        (&door, "/tasks", &caller),
    ] {
        for name in [
            "key",
            "api_key",
            "apikey",
            "token",
            "access_token",
            "X-API-Key",
            "authorization",
        ] {
            let path = format!("{path}?{name}={key}");
            assert_eq!(status(door, &path, "A2A-Version: 1.0"), 401, "{path}");
        }
        let header = format!("A2A-Version: 1.0\r\nAuthorization: Bearer {key}");
        let shown = answer(door, path, &header);
        assert!(shown.starts_with("HTTP/1.1 200"), "{shown}");
        assert!(
            !shown.contains(key.as_str()) && !shown.to_lowercase().contains("set-cookie"),
            "{shown}"
        );
    }
    let shown = answer(
        &admin,
        "/push/deliveries",
        &format!("Authorization: Bearer {operator}"),
    )
    .to_lowercase();
    for header in [
        "referrer-policy: no-referrer\r\n",
        "cache-control: no-store\r\n",
    ] {
        assert!(shown.contains(header), "{shown}");
    }
}

#[test]
fn s82_the_admin_socket_is_private() {
    let server = serve_in(&["serve", "--echo"], TempDir::new().unwrap());
    server.line("Listening on ");
    for (path, mode) in [("admin", 0o700), ("admin/socket", 0o600)] {
        let found = std::fs::metadata(server.folder.path().join(path))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
}

/// A configuration with a signing key, and a public URL if given.
fn signing(folder: &Path, mode: u32, more: &str) -> String {
    let key = folder.join("card.pem");
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/jws/tests/p256.pem");
    std::fs::copy(made, &key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    let file = folder.join("agents.toml");
    let text = format!(
        "[server]\ncard_signing_key = \"card.pem\"\n{more}\n[store]\nkind = \"memory\"\n[agents.echo]\ntype = \"echo\""
    );
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn s33_cards_are_signed_if_the_public_url_is_configured() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let refused = |mode, more| {
        let file = signing(folder.path(), mode, more);
        run_expecting_error(&[
            "serve",
            &file,
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &data,
        ])
        .1
    };
    assert!(refused(0o600, "").contains("public_url"));
    let public = "public_url = \"https://agents.example.com\"\nallow_anonymous = true";
    assert!(refused(0o644, public).contains("chmod 600"), "S82");
    let file = signing(folder.path(), 0o600, public);
    let server = serve_in(&["serve", &file], folder);
    let url = server.line("Listening on ");
    let read = |path: &str| {
        send(
            &format!("{url}{path}"),
            "GET",
            &["X-Forwarded-Host: evil.example"],
            "",
        )
    };
    let keys = read(".well-known/jwks.json");
    let keys = attache::jws::KeySet::parse(keys.to_string().as_bytes()).unwrap();
    for path in [
        ".well-known/agent-card.json",
        "agents/echo/.well-known/agent-card.json",
    ] {
        let shown = read(path);
        let card: attache::AgentCard = serde_json::from_value(shown.clone()).unwrap();
        let verdict = attache::jws::verify_card(&card, Some(shown.to_string().as_bytes()), &keys);
        assert!(
            matches!(verdict, attache::jws::CardVerification::Verified { .. }),
            "{verdict:?}"
        );
        let mut other = card;
        other.description.push('!');
        let verdict = attache::jws::verify_card(&other, None, &keys);
        assert!(
            matches!(verdict, attache::jws::CardVerification::Unverifiable { .. }),
            "S43: {verdict:?}"
        );
    }
}
