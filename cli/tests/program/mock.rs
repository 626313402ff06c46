//! `attache mock`: scripted answers and injected faults.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::{DEADLINE, ServerProcess, run_expecting_error, send, send_text, serve_in};

const SCRIPT: &str = r#"
    [[rule]]
    steps = [{ write = { name = "pieces", text = ["one ", "two ", "three"] } }]

    [[fault]]
    contains = "cut"
    cut_after = 120

    [[fault]]
    contains = "busy"
    status = 503
    times = 1

    [[fault]]
    contains = "twice"
    duplicate = true

    [[fault]]
    contains = "nonsense"
    garble = true
"#;

fn mock(script: &str) -> (ServerProcess, String) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mock.toml");
    std::fs::write(&file, script).unwrap();
    let server = serve_in(
        &["mock", file.to_str().unwrap(), "--store", "memory"],
        folder,
    );
    let url = server.line("Listening on ");
    (server, url)
}

/// Sends a streaming message, and returns the whole response with its head.
fn streamed(url: &str, text: &str) -> String {
    let (host, _) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let message =
        json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}})
            .to_string();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = "Content-Type: application/json\r\nA2A-Version: 1.0\r\nConnection: close";
    write!(
        stream,
        "POST /message:stream HTTP/1.1\r\nHost: {host}\r\n{head}\r\nContent-Length: {}\r\n\r\n{message}",
        message.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn faults_of_the_script_are_injected() {
    let (_server, url) = mock(SCRIPT);
    assert_eq!(
        send_text(&url, "hello")["artifacts"][0]["parts"],
        json!([{"text": "one two three"}])
    );
    let whole = streamed(&url, "hello");
    let events = |answer: &str| answer.matches("\ndata:").count();
    assert!(
        whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.contains("COMPLETED"),
        "{whole}"
    );
    let cut = streamed(&url, "cut me");
    assert_eq!(cut.split_once("\r\n\r\n").unwrap().1.len(), 120, "{cut}");
    assert_eq!(events(&streamed(&url, "twice")), 2 * events(&whole));
    let garbled = streamed(&url, "nonsense");
    let data: Vec<_> = garbled
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .collect();
    assert!(
        !data.is_empty() && data.iter().all(|data| data.trim().starts_with("{{")),
        "{garbled}"
    );
    assert!(streamed(&url, "busy").starts_with("HTTP/1.1 503 "));
    assert!(streamed(&url, "busy").contains("COMPLETED"));
    let card = send(
        &format!("{url}.well-known/agent-card.json"),
        "GET",
        &["Accept: application/json"],
        "",
    );
    assert_eq!(card["url"], *url.trim_end_matches('/'), "{card}");
}

#[test]
fn an_invalid_script_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mock.toml");
    std::fs::write(&file, "[[rule]]\n[[fault]]\ncut = 5").unwrap();
    let (code, output) = run_expecting_error(&["mock", file.to_str().unwrap()]);
    assert!(
        code == Some(1) && output.contains("is not a valid script"),
        "{output}"
    );
    let (code, output) = run_expecting_error(&["mock", "nonexistent.toml"]);
    assert!(
        code == Some(1) && output.contains("cannot read nonexistent.toml"),
        "{output}"
    );
}
