//! Attacks on memory and connections of a server process (D rows). Others are served meanwhile, and its memory stays
//! below [`MAX_MEMORY_MB`].

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::server_process::ServerProcess;
use crate::harness::{WireFormat, with_deadline};
use crate::security::connection_limits::connect_from;
use crate::security::hostile_clients::assert_served;

const MAX_MEMORY_MB: u64 = 512;
const MANY_FILES: usize = 10_000;
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Body whose frame is sent, and whose end never comes.
struct Unfinished(Option<Bytes>);

impl Body for Unfinished {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut().0.take() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}

/// HTTP/2 connection of an attacker.
struct Attacker {
    sender: SendRequest<Unfinished>,
    tasks: JoinSet<()>,
}

impl Attacker {
    async fn connect(address: SocketAddr) -> Self {
        let io = TokioIo::new(with_deadline(TcpStream::connect(address)).await.unwrap());
        let handshake = http2::handshake(TokioExecutor::new(), io);
        let (sender, connection) = with_deadline(handshake).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async { drop(connection.await) });
        Self { sender, tasks }
    }

    /// Starts a gRPC request and does not end its body.
    fn post(&mut self, path: &str, body: Bytes) {
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .body(Unfinished(Some(body)))
            .unwrap();
        let answer = self.sender.send_request(request);
        self.tasks.spawn(async { drop(answer.await) });
    }
}

/// Returns a gRPC frame of `length` bytes whose message does not end.
fn large_frame(length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    bytes[..5].copy_from_slice(&[0, 0x7f, 0xff, 0xff, 0xff]);
    bytes.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d05_large_health_requests_take_no_memory() {
    let server = ServerProcess::start(MANY_FILES).await;
    let body = large_frame(64_000);
    let mut attackers = Vec::new();
    for _ in 0..10 {
        let mut attacker = Attacker::connect(server.address).await;
        for _ in 0..990 {
            attacker.post(CHECK, body.clone());
        }
        attackers.push(attacker);
    }
    for attacker in &mut attackers {
        // Every request is refused while its body is still open.
        while attacker.tasks.len() > 1 {
            with_deadline(attacker.tasks.join_next()).await;
        }
        assert_eq!(attacker.tasks.len(), 1, "the connection stays open");
    }
    assert_served(server.address, WireFormat::Rpc1, 1).await;
    let peak = server.peak_memory_mb();
    assert!(peak <= MAX_MEMORY_MB, "{peak} MB");
}

/// One address may hold half of `max_buffered_body_bytes`: 16 bodies of 8 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d05_bodies_that_do_not_end_leave_memory_for_others() {
    const BODIES: usize = 40;
    const HELD_BODIES: usize = 16;
    let server = ServerProcess::start(MANY_FILES).await;
    let post = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    let unfinished = format!(
        "{post}\r\nContent-Length: 8388608\r\n\r\n{}",
        " ".repeat((8 << 20) - 1)
    );
    let mut attack = JoinSet::new();
    for _ in 0..BODIES {
        let mut stream = with_deadline(TcpStream::connect(server.address))
            .await
            .unwrap();
        let unfinished = unfinished.clone();
        attack.spawn(async move {
            // The server may close the connection before everything is written.
            let _ = stream.write_all(unfinished.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
        });
    }
    for _ in 0..BODIES - HELD_BODIES {
        with_deadline(attack.join_next()).await.unwrap().unwrap();
    }
    let body = WireFormat::Rpc1.ask("ListTasks", json!({})).body;
    let body = format!("{body}{}", " ".repeat(4 << 20));
    let length = body.len();
    let request = format!(
        "{post}\r\nA2A-Version: 1.0\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut other = connect_from([127, 0, 0, 2], server.address).await;
    with_deadline(other.write_all(request.as_bytes()))
        .await
        .unwrap();
    let mut answer = String::new();
    with_deadline(other.read_to_string(&mut answer))
        .await
        .unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("totalSize"),
        "{answer}"
    );
    let peak = server.peak_memory_mb();
    assert!(peak <= MAX_MEMORY_MB, "{peak} MB");
}
