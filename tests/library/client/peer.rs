//! Scripted HTTP peer: sends one canned response per connection and records the requests.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::with_deadline;

/// Request as received.
#[derive(Debug)]
pub(super) struct ReceivedRequest {
    /// Head in lower case.
    pub(super) head: String,
    pub(super) target: String,
    pub(super) body: Vec<u8>,
}

/// Scripted HTTP server.
pub(super) struct Peer {
    pub(super) url: String,
    requests: JoinSet<Vec<ReceivedRequest>>,
}

impl Peer {
    /// Sends these responses, each on its own connection.
    pub(super) async fn with_responses(responses: Vec<Vec<u8>>) -> Self {
        Self::with_url(|_| responses).await
    }

    /// Sends responses that depend on the URL of the peer.
    pub(super) async fn with_url(responses: impl FnOnce(&str) -> Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let responses = responses(&url);
        let mut requests = JoinSet::new();
        requests.spawn(async move {
            let mut all = Vec::new();
            for response in responses {
                let (mut stream, _) = listener.accept().await.unwrap();
                all.push(read_request(&mut stream).await);
                // The client may have closed the connection already.
                let _ = stream.write_all(&response).await;
                let _ = stream.shutdown().await;
            }
            all
        });
        Self { url, requests }
    }

    /// Sends these responses and keeps the last connection open until the peer is dropped.
    pub(super) async fn with_open_stream(responses: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut requests = JoinSet::new();
        requests.spawn(async move {
            let mut open = None;
            for response in responses {
                let (mut stream, _) = listener.accept().await.unwrap();
                read_request(&mut stream).await;
                let _ = stream.write_all(&response).await;
                drop(open.replace(stream));
            }
            std::future::pending().await
        });
        Self { url, requests }
    }

    /// Waits until all responses are sent and returns the requests.
    pub(super) async fn requests(mut self) -> Vec<ReceivedRequest> {
        with_deadline(self.requests.join_next())
            .await
            .unwrap()
            .unwrap()
    }
}

/// Returns a complete HTTP response.
pub(super) fn http_response(status: u16, head: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n{body}"
    )
    .into_bytes()
}

pub(super) fn json_response(status: u16, body: &Value) -> Vec<u8> {
    http_response(
        status,
        "Content-Type: application/json\r\n",
        &body.to_string(),
    )
}

/// Returns a response with server-sent events, which end with the connection.
pub(super) fn sse_response(body: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n";
    [head.as_bytes(), body].concat()
}

/// Reads one request.
pub(super) async fn read_request(stream: &mut TcpStream) -> ReceivedRequest {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        assert!(
            stream.read_buf(&mut bytes).await.unwrap() > 0,
            "complete head"
        );
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let target = head.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let head = head.to_ascii_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next());
    let total = end + length.map_or(0, |length| length.parse().unwrap());
    while bytes.len() < total {
        assert!(
            stream.read_buf(&mut bytes).await.unwrap() > 0,
            "complete body"
        );
    }
    ReceivedRequest {
        head,
        target,
        body: bytes.split_off(end),
    }
}
