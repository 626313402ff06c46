//! Server hooks of a configuration file, through a running server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    DEADLINE, ServerProcess, attache, call, run_expecting_error, send, send_text, serve_command,
};
use crate::observability::admin;
use crate::processes::{Event, Events};

/// Agent whose text is split within a word that the mask finds.
const AGENTS: &str = r#"
[agents.echo]
type = "echo"

[agents.chunks]
type = "command"
command = ["sh", "-c", "cat > /dev/null; printf 'key sk-'; printf 'abcdef and mail ann@'; printf 'example.com, end'"]
"#;

const MASK: &str = r#"
[[hooks]]
name = "pii"
type = "mask"
patterns = ['sk-[a-z]+', '[a-z]+@[a-z.]+']
"#;

fn serve_config(config: &str) -> (ServerProcess, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    std::fs::write(&file, config).unwrap();
    let mut command = attache(&["serve"]);
    command.arg(file);
    let server = serve_command(&mut command, folder);
    let url = server.line("Listening on ");
    (server, url)
}

/// Sends a text to an agent, and returns the whole response.
fn ask(url: &str, agent: &str, text: &str) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
    let url = format!("{url}agents/{agent}/");
    call(&url, "SendMessage", &json!({"message": message}))
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["task"]["artifacts"][0]["parts"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {answer}"))
}

/// Posts a body, and returns the response with its head.
fn post(url: &str, path: &str, body: &Value) -> String {
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    let headers = "A2A-Version: 1.0\r\nContent-Type: application/json\r\n";
    let length = body.len();
    write!(
        stream,
        "{head}{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Whether a file below a folder contains a text.
fn contains(folder: &Path, text: &str) -> bool {
    let output = Command::new("grep")
        .args([
            "-r",
            "-q",
            "-F",
            "--binary-files=text",
            "--exclude=agents.toml",
            text,
        ])
        .arg(folder)
        .status();
    output.unwrap().success()
}

#[test]
fn masked_text_reaches_no_reader_of_a_served_agent() {
    let (mut server, url) = serve_config(&format!("{MASK}{AGENTS}"));
    let secrets = ["sk-abcdef", "sk-", "ann@", "example.com"];
    let assert_masked = |what: &str, seen: &str| {
        for secret in secrets {
            assert!(!seen.contains(secret), "{what}: {secret}: {seen}");
        }
        assert!(seen.contains("***"), "{what}: {seen}");
    };
    let sent = ask(&url, "chunks", "my key is sk-mine");
    assert_eq!(text(&sent), "key *** and mail ***, end");
    assert_masked("send", &sent.to_string());
    let task = &sent["result"]["task"];
    assert_eq!(task["history"][0]["parts"][0]["text"], "my key is ***");
    let agent = format!("{url}agents/chunks/");
    let read = call(&agent, "GetTask", &json!({"id": task["id"]}));
    assert_masked("get", &read.to_string());
    let listed = call(&agent, "ListTasks", &json!({"includeArtifacts": true}));
    assert_masked("list", &listed.to_string());
    let message = json!({"messageId": "n", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let stream = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}});
    assert_masked("stream", &post(&url, "/agents/chunks/", &stream));
    let chat = json!({"model": "chunks", "messages": [{"role": "user", "content": "go"}]});
    assert_masked("chat", &post(&url, "/v1/chat/completions", &chat));
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert!(contains(server.folder.path(), "***"));
    for secret in ["sk-abcdef", "sk-mine", "ann@example"] {
        assert!(!contains(server.folder.path(), secret), "{secret}");
    }
}

#[test]
fn masked_text_reaches_no_webhook() {
    let (_server, url) = serve_config(&format!("{MASK}{AGENTS}[push]\nlocal_webhooks = true\n"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}/", listener.local_addr().unwrap());
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let configuration = json!({"taskPushNotificationConfig": {"url": target}});
    let params = json!({"message": message, "configuration": configuration});
    call(&format!("{url}agents/chunks/"), "SendMessage", &params);
    let mut seen = String::new();
    while !seen.contains("TASK_STATE_COMPLETED") {
        let (stream, _) = listener.accept().unwrap();
        seen.push_str(&serve_one(stream, |_| String::new()));
    }
    assert!(seen.contains("***"), "{seen}");
    for secret in ["sk-", "ann@", "example.com"] {
        assert!(!seen.contains(secret), "{seen}");
    }
}

/// Reads one request, replies with a function of its body, and returns the body.
fn serve_one(stream: TcpStream, reply: impl FnOnce(&str) -> String) -> String {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let reply = reply(&body);
    let length = reply.len();
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    reader
        .into_inner()
        .write_all((head + &reply).as_bytes())
        .unwrap();
    body
}

#[test]
fn a_deny_hook_refuses_messages_and_writes_nothing() {
    let deny = "[[hooks]]\nname = \"no\"\ntype = \"deny\"\npatterns = ['password']\nmessage = \"do not send passwords\"\nerror = \"invalid_params\"\n";
    let (server, url) = serve_config(&format!("{deny}{AGENTS}"));
    let refused = ask(&url, "echo", "my password is x");
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(refused["error"]["message"], "do not send passwords");
    let listed = call(&format!("{url}agents/echo/"), "ListTasks", &json!({}));
    assert_eq!(listed["result"]["tasks"], json!([]), "{listed}");
    assert_eq!(text(&ask(&url, "echo", "hello")), "hello");
    let (_, metrics) = admin(server.folder.path(), "GET /metrics");
    for sample in [
        r#"attache_hook_runs_total{hook="no",phase="call",outcome="denied"} 1"#,
        r#"attache_hook_seconds_count{hook="no"}"#,
    ] {
        assert!(metrics.contains(sample), "{sample}: {metrics}");
    }
}

/// A service that replies to every document with the same document, with `secret` masked.
fn masking_service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/policy", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            serve_one(stream, |document| {
                let masked = document.replace("secret", "***");
                masked.replacen('{', r#"{"decision": "change", "#, 1)
            });
        }
    });
    url
}

#[test]
fn http_and_command_hooks_of_a_file_run_in_order() {
    let url = masking_service();
    let http = format!(
        "[[hooks]]\nname = \"remote\"\ntype = \"http\"\non = [\"event\"]\nurl = \"{url}\"\n"
    );
    let command = r#"
[[hooks]]
name = "program"
type = "command"
on = ["event"]
shell = true
command = '''sed -e 's/\*\*\*/<masked>/g' -e 's/^{/{"decision": "change", /' '''
"#;
    let (server, url) = serve_config(&format!("{http}{command}{AGENTS}"));
    // The second hook receives the text of the first one.
    assert_eq!(text(&ask(&url, "echo", "a secret")), "a <masked>");
    let (_, metrics) = admin(server.folder.path(), "GET /metrics");
    for hook in ["remote", "program"] {
        let sample =
            format!(r#"attache_hook_runs_total{{hook="{hook}",phase="event",outcome="allowed"}}"#);
        assert!(metrics.contains(&sample), "{sample}: {metrics}");
    }
}

#[test]
fn d14_the_program_of_a_hook_ends_at_its_timeout_and_with_the_server() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let fifo = events.fifo.display();
    let hook = |timeout: &str| {
        format!(
            "[[hooks]]\nname = \"slow\"\ntype = \"command\"\non = [\"call\"]\nmethods = [\"SendMessage\"]\n\
             timeout = \"{timeout}\"\nshell = true\ncommand = \"exec 9> {fifo}; echo started >&9; sleep 600\"\n"
        )
    };
    let (_server, url) = serve_config(&format!("{}{AGENTS}", hook("1s")));
    let refused = ask(&url, "echo", "hi");
    assert_eq!(
        refused["error"]["message"], "a hook of this server failed",
        "{refused}"
    );
    events.expect_line("started");
    assert_eq!(events.next(), Event::End);
    let (mut server, url) = serve_config(&format!("{}{AGENTS}", hook("5m")));
    let host = url
        .strip_prefix("http://")
        .unwrap()
        .trim_end_matches('/')
        .to_owned();
    let mut stream = TcpStream::connect(&host).unwrap();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}});
    let body = body.to_string();
    let length = body.len();
    let head = format!("POST /agents/echo/ HTTP/1.1\r\nHost: {host}\r\nA2A-Version: 1.0\r\n");
    write!(
        stream,
        "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    events.expect_line("started");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert_eq!(events.next(), Event::End);
}

#[test]
fn check_names_the_line_of_a_bad_hook() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("agents.toml");
    let check = |hook: &str| {
        std::fs::write(&file, format!("{AGENTS}[[hooks]]\nname = \"a\"\n{hook}")).unwrap();
        run_expecting_error(&["check", file.to_str().unwrap()])
    };
    for (hook, line, reason) in [
        ("type = \"http\"\nurl = \"file:///x\"\n", 11, "hooks.0.url"),
        (
            "type = \"command\"\ncommand = \"a 'b\"\n",
            11,
            "a quote is not closed",
        ),
        (
            "type = \"mask\"\npatterns = ['(']\n",
            11,
            "hooks.0.patterns",
        ),
        ("type = \"mask\"\n", 10, "needs `patterns`"),
        (
            "type = \"mask\"\npatterns = ['a']\nagents = [\"nobody\"]\n",
            0,
            "nobody",
        ),
    ] {
        let (code, error) = check(hook);
        assert_ne!(code, Some(0), "{hook}");
        assert!(error.contains(reason), "{hook}: {error}");
        if line > 0 {
            assert!(
                error.contains(&format!("agents.toml:{line}")),
                "{hook}: {error}"
            );
        }
    }
}

#[test]
fn a_reload_replaces_the_hooks_of_a_file() {
    let served = crate::reload::serve_config(AGENTS);
    let url = format!("{}agents/echo/", served.url);
    let echoed =
        || send_text(&url, "mail ann@example.com")["artifacts"][0]["parts"][0]["text"].clone();
    assert_eq!(echoed(), "mail ann@example.com");
    // A key that needs a restart, so that the log has a line about the reload.
    let limits = "[limits]\nmax_turns = 7\n";
    served.write(&format!("{MASK}{AGENTS}{limits}"));
    served.reload();
    assert_eq!(echoed(), "mail ***");
    // An invalid hook changes nothing.
    served.write(&format!(
        "[[hooks]]\nname = \"a\"\ntype = \"http\"\n{AGENTS}"
    ));
    let line = served.reload();
    assert_eq!(line["level"], "ERROR", "{line}");
    assert_eq!(echoed(), "mail ***");
    let command = "[[hooks]]\nname = \"no\"\ntype = \"command\"\non = [\"call\"]\nshell = true\n\
                   command = \"cat > /dev/null; echo '{\\\"decision\\\": \\\"deny\\\"}'\"\n";
    served.write(&format!("{command}{AGENTS}{limits}"));
    served.reload();
    let headers = ["Content-Type: application/json", "A2A-Version: 1.0"];
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
    let denied = send(&url, "POST", &headers, &body.to_string());
    let message = "the policy of this server forbids it";
    assert_eq!(denied["error"]["message"], message, "{denied}");
}
