//! Limits of `attache mcp` over HTTP, against a real process (D15).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

use crate::harness::{DEADLINE, ServerProcess, attache, run_expecting_error};

/// An MCP server with two keys, `one` and `two`.
struct McpProcess {
    _process: ServerProcess,
    address: String,
}

/// Response to a request.
#[derive(Debug)]
struct McpResponse {
    status: u16,
    head: String,
    body: String,
}

impl McpResponse {
    fn session(&self) -> String {
        let mut lines = self.head.lines();
        let line = lines.find_map(|line| line.strip_prefix("mcp-session-id: "));
        line.unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

impl McpProcess {
    fn start(flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let keys = folder.path().join("keys");
        std::fs::write(&keys, "one\n\ntwo\n").unwrap();
        let mut command = attache(&["mcp", "--docs", "--listen", "127.0.0.1:0", "--key-file"]);
        command.arg(&keys).args(flags);
        // It has no data directory.
        let process = ServerProcess::of_command(&mut command, folder);
        let url = process.line("Listening on http://");
        let address = url.strip_suffix("/mcp").unwrap().to_owned();
        Self {
            _process: process,
            address,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Starts a session with a key.
    fn initialize(&self, key: &str) -> McpResponse {
        let client = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        self.post(key, None, "initialize", &params)
    }

    /// Opens a stream with the key `one`, once the server has noticed the end of earlier connections.
    fn open_stream(&self, session: &str) -> TcpStream {
        let head = format!(
            "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer one\r\n\
             Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
        );
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            let mut stream = self.connect();
            stream.write_all(head.as_bytes()).unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).unwrap();
            if &status == b"HTTP/1.1 200" {
                return stream;
            }
            assert_eq!(&status, b"HTTP/1.1 503");
        }
        panic!("no stream within the deadline");
    }

    fn post(
        &self,
        key: &str,
        session: Option<&str>,
        method: &str,
        params: &serde_json::Value,
    ) -> McpResponse {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let body = body.to_string();
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n"));
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n{}\
             Content-Length: {}\r\n\r\n",
            session.unwrap_or_default(),
            body.len()
        );
        let mut stream = self.connect();
        stream.write_all((head + &body).as_bytes()).unwrap();
        read_response(stream)
    }
}

fn read_response(mut stream: TcpStream) -> McpResponse {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    McpResponse {
        status: head[9..12].parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

#[test]
fn d15_slow_heads_do_not_lock_out_the_owner_of_a_key() {
    // Without the reserve, the owner would wait for this timeout.
    let server = McpProcess::start(&["--header-timeout", "10m"]);
    let slow: Vec<_> = (0..400)
        .map(|_| {
            let mut stream = server.connect();
            let _ = stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(server.initialize("one").status, 200);
        assert_eq!(server.initialize("three").status, 401);
    }
    drop(slow);
}

#[test]
fn d15_slow_heads_are_closed_after_the_timeout() {
    let server = McpProcess::start(&["--header-timeout", "200ms"]);
    let mut slow = server.connect();
    slow.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        .unwrap();
    let mut rest = Vec::new();
    // Closed, with or without a response, before the deadline of the read.
    match slow.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn d15_sessions_are_limited_in_total_and_for_each_key() {
    let server = McpProcess::start(&["--max-sessions", "4", "--max-sessions-per-caller", "3"]);
    let sessions: Vec<_> = (0..3).map(|_| server.initialize("one").session()).collect();
    let refused = server.initialize("one");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(
        refused.body.contains("max_sessions_per_caller = 3")
            && refused.head.contains("retry-after"),
        "{refused:?}"
    );
    let other = server.initialize("two").session();
    assert_eq!(server.initialize("two").status, 503);
    // A session belongs to its key.
    let list = |key: &str, session: &str| {
        server
            .post(key, Some(session), "tools/list", &json!({}))
            .status
    };
    assert_eq!(list("one", &sessions[0]), 200);
    assert_eq!(list("two", &sessions[0]), 404);
    assert_eq!(list("two", &other), 200);
    // A session that its client ends makes room.
    let mut stream = server.connect();
    let head = format!(
        "DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer one\r\n\
         Mcp-Session-Id: {}\r\n\r\n",
        sessions[0]
    );
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(read_response(stream).status, 202);
    assert_eq!(server.initialize("one").status, 200);
}

#[test]
fn d15_idle_sessions_end() {
    let flags = ["--max-sessions", "1", "--session-timeout", "1s"];
    let server = McpProcess::start(&[&flags[..], &["--wait", "500ms"]].concat());
    let first = server.initialize("one").session();
    let start = Instant::now();
    while server.initialize("two").status != 200 {
        assert!(start.elapsed() < DEADLINE, "the first session ends");
    }
    let gone = server.post("one", Some(&first), "tools/list", &json!({}));
    assert_eq!(gone.status, 404);
}

#[test]
fn d15_connections_of_one_key_are_limited() {
    let server = McpProcess::start(&["--max-connections-per-caller", "2"]);
    let session = server.initialize("one").session();
    // Streams of messages from the server, which stay open.
    let streams: Vec<_> = (0..2).map(|_| server.open_stream(&session)).collect();
    let refused = server.initialize("one");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(
        refused.body.contains("max_connections_per_caller = 2"),
        "{refused:?}"
    );
    assert_eq!(server.initialize("two").status, 200);
    drop(streams);
}

#[test]
fn d21_ambiguous_heads_are_refused() {
    let server = McpProcess::start(&[]);
    for (headers, status) in [
        ("", 400),
        ("Host: localhost\r\nHost: localhost\r\n", 400),
        (
            "Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n",
            501,
        ),
    ] {
        let mut stream = server.connect();
        let head = format!("POST /mcp HTTP/1.1\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let refused = read_response(stream);
        assert_eq!(refused.status, status, "{headers}: {refused:?}");
    }
}

#[test]
fn d15_impossible_limits_are_refused() {
    for (flags, reason) in [
        (&["--max-sessions", "0"][..], "max_sessions"),
        (
            &["--max-sessions-per-caller", "2000"],
            "max_sessions = 1024",
        ),
        (
            &["--max-connections-per-caller", "0"],
            "max_connections = 256",
        ),
        (&["--session-timeout", "45s"], "longer than --wait"),
        (&["--header-timeout", "soon"], "--header-timeout"),
        (&["--write-timeout", "0s"], "--write-timeout"),
        (&["--max-buffered-body-bytes", "1MiB"], "16 MiB"),
    ] {
        let args = [&["mcp", "--docs", "--listen", "127.0.0.1:0"], flags].concat();
        let (code, why) = run_expecting_error(&args);
        assert!(code == Some(2) && why.contains(reason), "{flags:?} {why}");
    }
}
