//! Slow, broken and malicious clients: each receives a short error or none, and other clients are not affected.

use std::time::Duration;

use attache::{Agent, Failure, Outcome, ServerSettings, Settings, Turn};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::harness::{
    Echo, Running, SseReader, WIRE_FORMATS, WireFormat, WireRequest, message, request, start,
    start_with, task, with_deadline,
};
use crate::server::operations::Held;
use crate::server::streaming::next;

/// Echo agent whose turn never ends on `hold`, panics on `panic` and fails on `error`.
pub(crate) struct HoldingAgent;

impl Agent for HoldingAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        match turn.text().as_str() {
            "hold" => std::future::pending().await,
            "panic" => panic!("hunter2 at /srv/agent/src/main.rs:7"),
            "error" => Err(std::io::Error::other(
                "hunter2: postgres://root@10.0.0.7/db",
            ))?,
            text => {
                turn.write("echo", text).await;
                Ok(Outcome::Completed)
            }
        }
    }
}

/// Default server settings with a change.
pub(crate) fn settings_with(change: impl FnOnce(&mut ServerSettings)) -> ServerSettings {
    let mut settings = ServerSettings::default();
    change(&mut settings);
    settings
}

pub(crate) fn send(form: WireFormat, text: &str) -> WireRequest {
    form.ask(
        "SendMessage",
        json!({"message": form.message(text, json!({}))}),
    )
}

/// Opens a connection and writes these bytes.
pub(crate) async fn connect_and_write(server: &Running, bytes: &[u8]) -> TcpStream {
    let mut stream = with_deadline(TcpStream::connect(server.address))
        .await
        .unwrap();
    with_deadline(stream.write_all(bytes)).await.unwrap();
    stream
}

/// Reads until the connection is closed or reset.
pub(crate) async fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = with_deadline(stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Response to a request that the server does not read to its end. Closing a connection with unread bytes may reset it and
/// lose the response, so the request is repeated.
async fn refusal(server: &Running, bytes: &[u8]) -> String {
    for _ in 0..50 {
        let text = read_to_end(connect_and_write(server, bytes).await).await;
        if !text.is_empty() {
            return text;
        }
    }
    panic!("no response in 50 attempts")
}

/// `:authority: localhost` in HPACK.
pub(crate) const AUTHORITY: &[u8] = b"\x01\x09localhost";
pub(crate) const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Asserts that a well-behaved client is served, on one connection per request.
pub(crate) async fn assert_served(address: std::net::SocketAddr, form: WireFormat, number: usize) {
    let answer = async |ask: &WireRequest| {
        let mut stream = with_deadline(TcpStream::connect(address)).await.unwrap();
        let WireRequest { head, body } = ask;
        let length = body.len();
        let text = format!(
            "{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        read_to_end(stream).await
    };
    let text = format!("number {number}");
    for ask in [send(form, &text), form.stream(&text, json!({}))] {
        let response = answer(&ask).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert!(
            response.to_ascii_lowercase().contains("completed") && response.contains(&text),
            "{response}"
        );
    }
}

/// Compressed bodies are refused, which rules out decompression bombs.
#[tokio::test]
async fn s62_a_compressed_body_is_refused() {
    let server = start_with(Echo, |server| server).await;
    for form in WIRE_FORMATS {
        for (coding, status) in [("gzip", 415), ("br, gzip", 415), ("identity", 200)] {
            let answer = server
                .ask(&send(form, "hi").with("Content-Encoding", coding))
                .await;
            let refused = answer.body.contains("-32005") || answer.status == status;
            assert!(
                refused
                    && (answer.body.contains("completed") || answer.body.contains("COMPLETED"))
                        == (status == 200),
                "{coding}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn s62_a_body_over_the_limit_is_refused_and_the_limit_is_named() {
    let settings = settings_with(|settings| settings.max_body_bytes = 1000);
    let server = start_with(Echo, |server| server.server_settings(settings)).await;
    for form in WIRE_FORMATS {
        let ask = send(form, "hi");
        let pad = |length: usize| WireRequest {
            body: format!("{}{}", ask.body, " ".repeat(length - ask.body.len())),
            ..ask.clone()
        };
        assert_eq!(server.ask(&pad(1000)).await.status, 200);
        let large = pad(1001);
        let chunked = format!(
            "{}\r\nTransfer-Encoding: chunked\r\nHost: localhost\r\nConnection: close",
            ask.head
        );
        let chunked = format!("{chunked}\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n", 1001, large.body);
        let mut answers = vec![server.ask(&large).await];
        answers.push(crate::harness::Answer::read(
            &read_to_end(connect_and_write(&server, chunked.as_bytes()).await).await,
        ));
        for answer in answers {
            let (code, words) = form.refusal(&answer);
            assert_eq!(
                (code, answer.status),
                (-32600, if form.is_rpc() { 200 } else { 413 })
            );
            assert!(words.contains("max_body_bytes"), "{words}");
        }
    }
}

#[tokio::test]
async fn s62_a_head_over_the_limit_is_refused() {
    let server = start(Echo).await;
    let fine = format!(
        "GET /.well-known/agent-card.json HTTP/1.1\r\nX-Much: {}",
        "x".repeat(16 << 10)
    );
    assert_eq!(server.send(&fine, b"").await.status, 200);
    let much = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Much: {}\r\n\r\n",
        "x".repeat(80 << 10)
    );
    let many: String = (0..2000)
        .map(|number| format!("X-{number}: x\r\n"))
        .collect();
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    let long = format!(
        "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "x".repeat(80 << 10)
    );
    for (bytes, status) in [(much, "431"), (many, "431"), (long, "4")] {
        let text = refusal(&server, bytes.as_bytes()).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn s62_oversized_messages_are_refused_before_the_agent_runs() {
    let settings = settings_with(|settings| settings.max_body_bytes = 64 << 20);
    let server = start_with(Echo, |server| server.server_settings(settings)).await;
    for form in WIRE_FORMATS {
        let ask = send(form, "PART");
        let part = if form == WireFormat::Rpc03 {
            r#"{"kind":"text","text":"PART"}"#
        } else {
            r#"{"text":"PART"}"#
        };
        assert!(ask.body.contains(part), "{}", ask.body);
        let with = |parts: &str| WireRequest {
            body: ask.body.replace(part, parts),
            ..ask.clone()
        };
        // A million parts are slow to parse in a debug build; once is enough.
        let many = vec![
            part;
            if form == WireFormat::Rpc1 {
                1_000_000
            } else {
                10_000
            }
        ]
        .join(",");
        let deep = format!(
            r#"{part}],"metadata":{{"x":{}1{}}},"y":["#,
            "[".repeat(200),
            "]".repeat(200)
        );
        let deeper = "[".repeat(1_000_000);
        let twice = format!(r#"{part}],"messageId":"m-2","y":["#);
        for (body, code, words) in [
            (many.as_str(), -32602, "parts"),
            (&deep, -32700, "128"),
            (&deeper, -32700, "128"),
            (&twice, -32602, "messageId"),
            ("", -32602, "arts"),
        ] {
            let answer = server.ask(&with(body)).await;
            let (found, message) = form.refusal(&answer);
            assert_eq!(found, code, "{form:?} {words} {message}");
            let more = answer.body.contains(words)
                || form == WireFormat::Rest03 && answer.body.contains("content");
            assert!(more && answer.body.len() < 1000, "{words}: {answer:?}");
        }
    }
    assert_eq!(server.result("ListTasks", json!({})).await["totalSize"], 0);
}

#[tokio::test]
async fn s69_a_batch_is_refused_with_one_error() {
    let server = start(Echo).await;
    let call = request("SendMessage", &json!({"message": message("hi", json!({}))}));
    for batch in [
        "[]".to_owned(),
        format!("[{call}]"),
        format!("[{}]", vec!["1"; 100_000].join(",")),
    ] {
        let answer = server.post("/", &batch).await.json();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(-32600), &Value::Null)
        );
    }
    for id in ["{}", "[]", "true", "1.5"] {
        let body = call.replace(r#""id":1"#, &format!(r#""id":{id}"#));
        let answer = server.post("/", &body).await.json();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(-32600), &Value::Null),
            "{id}"
        );
    }
    let notification = server
        .post("/", &call.replace(r#""id":1,"#, ""))
        .await
        .json();
    assert_eq!(
        (&notification["id"], notification.get("error")),
        (&Value::Null, None)
    );
    assert_eq!(server.result("ListTasks", json!({})).await["totalSize"], 1);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start(Echo).await;
    let mut bytes = String::new();
    for form in WIRE_FORMATS {
        let WireRequest { head, body } = send(form, &format!("{form:?}"));
        bytes.push_str(&format!(
            "{head}\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
    }
    bytes.push_str("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let text = read_to_end(connect_and_write(&server, bytes.as_bytes()).await).await;
    assert_eq!(text.matches("HTTP/1.1 200").count(), 5, "{text}");
    let positions: Vec<_> = WIRE_FORMATS
        .map(|form| text.find(&format!("{form:?}")))
        .into();
    assert!(
        positions.is_sorted() && positions.iter().all(Option::is_some),
        "{text}"
    );
}

#[tokio::test]
async fn a_stream_is_not_delayed_by_a_pipelined_request() {
    let server = start(HoldingAgent).await;
    for form in WIRE_FORMATS {
        let WireRequest { head, body } = form.stream("hold", json!({}));
        let length = body.len();
        let behind = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let text =
            format!("{head}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}{behind}");
        let mut reader = SseReader::open(connect_and_write(&server, text.as_bytes()).await).await;
        reader.one().await;
    }
}

/// Servers and proxies read these heads differently, so a request could be smuggled past a proxy.
#[tokio::test]
async fn d21_ambiguous_http_1_heads_are_refused() {
    let server = start(Echo).await;
    let host = "Host: localhost\r\n";
    let WireRequest { head, body } = send(WireFormat::Rpc1, "hi");
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let coded = |codings: &str| format!("{head}\r\n{host}{codings}\r\n{chunked}");
    for (request, status) in [
        ("GET /healthz HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (format!("GET /healthz HTTP/1.1\r\n{host}{host}\r\n"), "400"),
        (
            format!("GET /healthz HTTP/1.1\r\n{host}Host: other\r\n\r\n"),
            "400",
        ),
        (
            "GET http://localhost/healthz HTTP/1.1\r\n\r\n".to_owned(),
            "400",
        ),
        (coded("Transfer-Encoding: gzip, chunked\r\n"), "501"),
        (
            coded("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"),
            "501",
        ),
        (coded("Transfer-Encoding: chunked, chunked\r\n"), "501"),
    ] {
        let text = refusal(&server, request.as_bytes()).await;
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}")),
            "{request}: {text}"
        );
        assert_eq!(text.matches("connection: close").count(), 1, "{text}");
    }
    for request in [
        "GET /healthz HTTP/1.0\r\n\r\n".to_owned(),
        coded("Transfer-Encoding: Chunked\r\nConnection: close\r\n"),
    ] {
        let text = refusal(&server, request.as_bytes()).await;
        assert!(text.contains(" 200 OK"), "{request}: {text}");
    }
    assert_eq!(server.result("ListTasks", json!({})).await["totalSize"], 1);
}

/// Encodes an HTTP/2 frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s63_http_2_rapid_reset_closes_the_connection() {
    let server = start(HoldingAgent).await;
    // POST http /; localhost as the authority.
    let head = [&[0x83, 0x86, 0x84], AUTHORITY].concat();
    let mut bytes = [GREETING, &frame(4, 0, 0, &[])].concat();
    for stream in (1..40_000_u32).step_by(2) {
        bytes.extend(frame(1, 4, stream, &head));
        bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    let stream = with_deadline(TcpStream::connect(server.address))
        .await
        .unwrap();
    let (mut answers, mut attack) = stream.into_split();
    let attack = async move {
        // The server may close the connection before everything is written.
        let _ = attack.write_all(&bytes).await;
        attack
    };
    let mut received = Vec::new();
    let (_attack, _) =
        with_deadline(async { tokio::join!(attack, answers.read_to_end(&mut received)) }).await;
    // GOAWAY.
    assert!(
        received
            .windows(9)
            .any(|window| window[3] == 7 && window[5..9] == [0; 4]),
        "{} bytes",
        received.len()
    );
    assert_served(server.address, WireFormat::Rpc1, 1).await;
}

/// Opens a stream over HTTP/2 with this initial window size.
async fn open_http2_stream(server: &Running, text: &str, window: u32) -> TcpStream {
    let body = WireFormat::Rest1.stream(text, json!({})).body;
    // POST http /message:stream; localhost as the authority.
    let path = b"/message:stream";
    let head = [
        &[0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()],
        &path[..],
        AUTHORITY,
    ]
    .concat();
    let settings = [&[0, 4], &window.to_be_bytes()[..]].concat();
    let call = [
        frame(4, 0, 0, &settings),
        frame(1, 4, 1, &head),
        frame(0, 1, 1, body.as_bytes()),
    ]
    .concat();
    connect_and_write(server, &[GREETING, &call].concat()).await
}

#[tokio::test]
async fn s64_an_http_2_peer_with_a_closed_window_is_disconnected() {
    let settings = settings_with(|settings| {
        settings.write_timeout = Duration::from_millis(100);
        settings.max_streams = 1;
    });
    let server = start_with(HoldingAgent, |server| server.server_settings(settings)).await;
    let mut received = Vec::new();
    let mut stuck = open_http2_stream(&server, "hold", 0).await;
    with_deadline(stuck.read_buf(&mut received)).await.unwrap();
    with_deadline(async {
        // The stream slot is released when the peer is disconnected.
        while server
            .read(&WireFormat::Rest1.stream("hi", json!({})))
            .await
            .status
            != 200
        {}
    })
    .await;
}

/// A small reply is one frame. It is not left to the connection without a timeout, even if its first byte is sent.
#[tokio::test]
async fn s64_a_small_reply_that_an_http_2_peer_does_not_take_is_dropped() {
    let settings = settings_with(|settings| {
        settings.write_timeout = Duration::from_millis(100);
    });
    let server = start_with(HoldingAgent, |server| server.server_settings(settings)).await;
    // GET http /healthz; localhost as the authority.
    let head = [&[0x82, 0x86, 0x04, 0x08], b"/healthz" as &[u8], AUTHORITY].concat();
    // The stream is reset, or the connection is closed.
    for (window, is_closed) in [(0_u32, false), (1, true)] {
        let settings = [&[0, 4], &window.to_be_bytes()[..]].concat();
        let call = [frame(4, 0, 0, &settings), frame(1, 5, 1, &head)].concat();
        let mut stream = connect_and_write(&server, &[GREETING, &call].concat()).await;
        let mut received = Vec::new();
        // RST_STREAM of stream 1.
        let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1];
        let ended = with_deadline(async {
            loop {
                if received.windows(reset.len()).any(|window| *window == reset) {
                    return false;
                }
                if stream.read_buf(&mut received).await.unwrap() == 0 {
                    return true;
                }
            }
        })
        .await;
        assert_eq!(ended, is_closed, "window {window}: {received:?}");
    }
}

#[tokio::test]
async fn a_silent_http_2_stream_stays_open() {
    let settings = settings_with(|settings| {
        settings.write_timeout = Duration::from_millis(50);
        settings.heartbeat = Some(Duration::from_millis(100));
    });
    let server = start_with(HoldingAgent, |server| server.server_settings(settings)).await;
    let mut stream = open_http2_stream(&server, "hold", 65_535).await;
    let mut received = Vec::new();
    with_deadline(async {
        while String::from_utf8_lossy(&received)
            .matches(": keep-alive")
            .count()
            < 3
        {
            assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn http_2_is_served_beside_http_1() {
    let server = start(Echo).await;
    // GET http /healthz; localhost as the authority.
    let head = [&[0x82, 0x86, 0x04, 0x08], b"/healthz" as &[u8], AUTHORITY].concat();
    let bytes = [GREETING, &frame(4, 0, 0, &[]), &frame(1, 5, 1, &head)].concat();
    let mut stream = connect_and_write(&server, &bytes).await;
    let mut received = Vec::new();
    with_deadline(async {
        while !received.windows(3).any(|window| window == b"ok\n") {
            assert_ne!(
                stream.read_buf(&mut received).await.unwrap(),
                0,
                "{received:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn r41_a_blocking_call_returns_the_current_task_after_the_maximum_wait() {
    for form in WIRE_FORMATS {
        let (started, mut started_tasks) = mpsc::channel(1);
        let held = Held::new(started);
        let settings =
            settings_with(|settings| settings.max_blocking_wait = Some(Duration::from_millis(20)));
        let server = start_with(held.clone(), |server| server.server_settings(settings)).await;
        let answer = server.ask(&send(form, "hi")).await;
        let id = with_deadline(started_tasks.recv()).await.unwrap();
        let payload = form.payload(&answer.body);
        let task = if form == WireFormat::Rpc03 {
            &payload
        } else {
            &payload["task"]
        };
        assert_eq!(task["id"], id);
        assert!(
            task["status"]["state"]
                .as_str()
                .unwrap()
                .to_ascii_lowercase()
                .ends_with("working"),
            "{task}"
        );
        // The task continues.
        let mut reader = server.read(&form.subscribe(&id)).await;
        held.release();
        assert!(
            reader
                .rest()
                .await
                .last()
                .unwrap()
                .data
                .to_ascii_lowercase()
                .contains("completed")
        );
    }
}

#[tokio::test]
async fn s67_tasks_beyond_max_waiting_turns_are_refused_with_retry_after() {
    for form in WIRE_FORMATS {
        let settings = Settings {
            max_turns: 1,
            max_waiting_turns: 1,
            ..Settings::default()
        };
        let server = start_with(HoldingAgent, |server| server.settings(settings)).await;
        let mut first = server.read(&form.stream("hold", json!({}))).await;
        first.one().await;
        let mut second = server.read(&form.stream("hold", json!({}))).await;
        second.one().await;
        for ask in [send(form, "more"), form.stream("more", json!({}))] {
            let answer = server.ask(&ask).await;
            assert_eq!(
                (form.refusal(&answer).0, answer.status),
                (-32000, 503),
                "{answer:?}"
            );
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        assert_eq!(server.result("ListTasks", json!({})).await["totalSize"], 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r49_a_thousand_idle_streams_and_a_burst_of_tasks() {
    let server = start(HoldingAgent).await;
    let mut streams = Vec::new();
    for number in 0..1000 {
        let form = WIRE_FORMATS[number % 4];
        let mut reader = server.read(&form.stream("hold", json!({}))).await;
        assert_eq!(
            next(form, &mut reader).await,
            (2, task("submitted", &["hold"]))
        );
        assert_eq!(
            next(form, &mut reader).await,
            (4, form.status("working", "", false))
        );
        streams.push(reader);
    }
    let mut work = JoinSet::new();
    for number in 0..200 {
        let address = server.address;
        work.spawn(async move { assert_served(address, WIRE_FORMATS[number % 4], number).await });
    }
    while let Some(done) = with_deadline(work.join_next()).await {
        done.unwrap();
    }
    let list = server
        .result(
            "ListTasks",
            json!({"pageSize": 1, "status": "TASK_STATE_COMPLETED"}),
        )
        .await;
    assert_eq!(list["totalSize"], 400);
    let list = server
        .result(
            "ListTasks",
            json!({"pageSize": 1, "status": "TASK_STATE_WORKING"}),
        )
        .await;
    assert_eq!(list["totalSize"], 1000);
}

#[tokio::test]
async fn s63_idle_connections_are_closed_for_active_ones() {
    let settings = settings_with(|settings| {
        settings.max_connections = 2;
        settings.header_timeout = Duration::from_millis(200);
    });
    let server = start_with(Echo, |server| server.server_settings(settings)).await;
    let _idle = [
        connect_and_write(&server, b"").await,
        connect_and_write(&server, b"GET / HT").await,
        connect_and_write(&server, b"").await,
    ];
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn s63_an_unfinished_request_times_out_on_a_reused_connection() {
    let settings = settings_with(|settings| settings.header_timeout = Duration::from_millis(200));
    let server = start_with(Echo, |server| server.server_settings(settings)).await;
    let whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for unfinished in ["", "GET /healthz HT"] {
        let mut stream = connect_and_write(&server, b"").await;
        for _ in 0..3 {
            // Sequentially: the timeout must start again with each request.
            with_deadline(stream.write_all(whole)).await.unwrap();
            let mut answer = [0; 1024];
            let length = with_deadline(stream.read(&mut answer)).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..length]);
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        }
        with_deadline(stream.write_all(unfinished.as_bytes()))
            .await
            .unwrap();
        assert_eq!(read_to_end(stream).await, "");
    }
}

#[tokio::test]
async fn s71_long_numbers_and_strings_are_preserved_or_refused() {
    let server = start(Echo).await;
    let digits = "9".repeat(300_000);
    let escapes = "\\u00e9".repeat(100_000);
    for form in WIRE_FORMATS {
        let ask = form.ask(
            "SendMessage",
            json!({"message": form.message("hi", json!({"metadata": {"n": 7, "t": "TEXT"}}))}),
        );
        let body = ask
            .body
            .replace(r#""n":7"#, &format!(r#""n":{digits}"#))
            .replace("TEXT", &escapes);
        let answer = server
            .ask(&WireRequest {
                body,
                ..ask.clone()
            })
            .await;
        assert_eq!(answer.status, 200, "{form:?}");
        assert!(
            answer.body.contains(&format!(r#""n":{digits}"#)),
            "all digits are preserved: {form:?}"
        );
        let text = answer.body.matches("\\u00e9").count() + answer.body.matches('é').count();
        assert_eq!(text, 100_000, "{form:?}");
        // Such a number is refused where the protocol expects an int32.
        for number in [
            digits.as_str(),
            "1e999999999",
            &format!("0.5{digits}"),
            &format!("-{digits}"),
        ] {
            let params = json!({"message": form.message("hi", json!({})), "configuration": {"historyLength": 7}});
            let ask = form.ask("SendMessage", params);
            let body = ask.body.replace(":7", &format!(":{number}"));
            let answer = server
                .ask(&WireRequest {
                    body,
                    ..ask.clone()
                })
                .await;
            assert_eq!(form.refusal(&answer).0, -32602, "{form:?} {}", &number[..9]);
            assert!(answer.body.len() < 1000, "{form:?}");
        }
    }
}
