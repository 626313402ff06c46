//! A peer that answers as a script says, one connection per answer, and remembers what it was asked.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::with_deadline;

/// A request as it came.
#[derive(Debug)]
pub(super) struct Asked {
    /// In lower case.
    pub(super) head: String,
    pub(super) target: String,
    pub(super) body: Vec<u8>,
}

pub(super) struct Peer {
    pub(super) url: String,
    asked: JoinSet<Vec<Asked>>,
}

impl Peer {
    /// Answers with these bytes, each on its own connection.
    pub(super) async fn with(answers: Vec<Vec<u8>>) -> Self {
        Self::telling(|_| answers).await
    }

    /// The same, with answers that know its url.
    pub(super) async fn telling(answers: impl FnOnce(&str) -> Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answers = answers(&url);
        let mut asked = JoinSet::new();
        asked.spawn(async move {
            let mut all = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                all.push(read(&mut stream).await);
                // A client that has read enough may be gone by now.
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
            all
        });
        Self { url, asked }
    }

    /// The same, but what was answered last stays open, and more may be said there until the peer is dropped.
    pub(super) async fn holding(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut asked = JoinSet::new();
        asked.spawn(async move {
            let mut open = None;
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                read(&mut stream).await;
                let _ = stream.write_all(&answer).await;
                drop(open.replace(stream));
            }
            std::future::pending().await
        });
        Self { url, asked }
    }

    /// What was asked, when everything was answered.
    pub(super) async fn asked(mut self) -> Vec<Asked> {
        with_deadline(self.asked.join_next())
            .await
            .unwrap()
            .unwrap()
    }
}

/// A whole answer.
pub(super) fn reply(status: u16, head: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n{body}"
    )
    .into_bytes()
}

pub(super) fn json(status: u16, body: &Value) -> Vec<u8> {
    reply(
        status,
        "Content-Type: application/json\r\n",
        &body.to_string(),
    )
}

/// A stream that ends with its connection.
pub(super) fn events(body: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n";
    [head.as_bytes(), body].concat()
}

/// Reads one request.
pub(super) async fn read(stream: &mut TcpStream) -> Asked {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        assert!(
            stream.read_buf(&mut bytes).await.unwrap() > 0,
            "a whole head"
        );
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let target = head.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let head = head.to_ascii_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next());
    let whole = end + length.map_or(0, |length| length.parse().unwrap());
    while bytes.len() < whole {
        assert!(
            stream.read_buf(&mut bytes).await.unwrap() > 0,
            "a whole body"
        );
    }
    Asked {
        head,
        target,
        body: bytes.split_off(end),
    }
}
