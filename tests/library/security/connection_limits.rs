//! Idle connections (D5): probes and clients of other addresses are served meanwhile.

use std::net::SocketAddr;

use attache::auth::{Access, ApiKeys, CallerLimits};
use attache::{Server, ServerSettings};
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{Answer, Echo, Running, header, start_with, with_deadline};
use crate::security::hostile_clients::{read_to_end, settings_with};

const LIST: &str = "GET /tasks HTTP/1.1\r\nA2A-Version: 1.0";

/// Opens a connection from a loopback address of its own.
pub(crate) async fn connect_from(source: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    with_deadline(socket.connect(address)).await.unwrap()
}

/// Opens connections that send nothing.
async fn idle_connections(count: usize, source: [u8; 4], address: SocketAddr) -> Vec<TcpStream> {
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.push(connect_from(source, address).await);
    }
    idle
}

/// Sends a request on a connection of its own, and reads the response until the connection is closed.
async fn ask_from(source: [u8; 4], address: SocketAddr, head: &str) -> Answer {
    let mut stream = connect_from(source, address).await;
    let request = format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    with_deadline(stream.write_all(request.as_bytes()))
        .await
        .unwrap();
    Answer::read(&read_to_end(stream).await)
}

fn settings(max_connections: usize) -> ServerSettings {
    settings_with(|settings| settings.max_connections = max_connections)
}

/// Starts a server whose limits per address also apply to loopback addresses.
async fn start_limited(settings: ServerSettings, set_up: impl FnOnce(Server) -> Server) -> Running {
    let mut limits = CallerLimits::default();
    limits.limit_loopback = true;
    start_with(Echo, |server| {
        set_up(server.server_settings(settings).caller_limits(limits))
    })
    .await
}

/// A process with 1,024 open files has 768 connections and 64 in the reserve.
#[cfg(all(feature = "grpc", target_os = "linux"))]
#[tokio::test]
async fn d05_idle_connections_do_not_lock_out_probes() {
    const LOCALHOST: [u8; 4] = [127, 0, 0, 1];
    let server = crate::harness::server_process::ServerProcess::start(1024).await;
    let address = server.address;
    let mut idle = Vec::new();
    // In parts that fit into the backlog of the listener.
    for _ in 0..10 {
        idle.extend(idle_connections(100, LOCALHOST, address).await);
        let answer = ask_from(LOCALHOST, address, "GET /healthz HTTP/1.1").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for path in ["/healthz", "/readyz"] {
        let answer = ask_from(LOCALHOST, address, &format!("GET {path} HTTP/1.1")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(grpc_health(address).await, "SERVING");
    let refused = ask_from(LOCALHOST, address, LIST).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(
        refused.body.contains("max_connections = 768"),
        "{refused:?}"
    );
    // The first connection beyond the limit was closed for a later one.
    let mut evicted = idle.swap_remove(768);
    assert_eq!(with_deadline(evicted.read(&mut [0])).await.unwrap(), 0);
    drop(idle);
    with_deadline(async { while ask_from(LOCALHOST, address, LIST).await.status != 200 {} }).await;
}

/// Returns the status of the server in gRPC health.
#[cfg(all(feature = "grpc", target_os = "linux"))]
async fn grpc_health(address: SocketAddr) -> &'static str {
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    let endpoint = format!("http://{address}");
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let mut client = HealthClient::new(channel.connect_lazy());
    let answer = with_deadline(client.check(HealthCheckRequest::default())).await;
    let status = answer.unwrap().into_inner().status;
    ServingStatus::try_from(status).unwrap().as_str_name()
}

#[tokio::test]
async fn d05_one_address_leaves_connections_for_others() {
    let server = start_limited(settings(8), |server| server).await;
    let _idle = idle_connections(50, [127, 0, 0, 1], server.address).await;
    let _others = idle_connections(3, [127, 0, 0, 2], server.address).await;
    for number in 0..2 {
        let answer = ask_from([127, 0, 0, 2], server.address, LIST).await;
        assert_eq!(answer.status, 200, "{number}: {answer:?}");
    }
    let refused = server.send(LIST, b"").await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(
        refused.body.contains("max_connections_per_address = 4"),
        "{refused:?}"
    );
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn d05_loopback_addresses_and_trusted_proxies_have_all_connections() {
    let local = start_with(Echo, |server| server.server_settings(settings(4))).await;
    let mut behind_proxy = settings(4);
    behind_proxy.trusted_proxies = vec![[127, 0, 0, 1].into()];
    let proxied = start_limited(behind_proxy, Server::allow_anonymous).await;
    for server in [local, proxied] {
        let _idle = idle_connections(3, [127, 0, 0, 1], server.address).await;
        assert_eq!(server.send(LIST, b"").await.status, 200);
        let _last = idle_connections(1, [127, 0, 0, 1], server.address).await;
        let refused = server.send(LIST, b"").await;
        assert!(refused.body.contains("max_connections = 4"), "{refused:?}");
    }
}

/// Sends a call with a key and reads the head of its response. The connection stays open.
async fn call(stream: &mut TcpStream, key: &str) -> String {
    let request = format!("{LIST}\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n");
    with_deadline(stream.write_all(request.as_bytes()))
        .await
        .unwrap();
    let mut answer = vec![0; 4096];
    let length = with_deadline(stream.read(&mut answer)).await.unwrap();
    answer.truncate(length);
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn d05_connections_of_one_caller_are_limited() {
    let keys = ApiKeys::new();
    let ann = keys.issue("ann", |identity| identity);
    let bob = keys.issue("bob", |identity| identity);
    let server = start_with(Echo, |server| {
        server
            .access(Access::new(keys))
            .server_settings(settings(4))
    })
    .await;
    let open = || async { TcpStream::connect(server.address).await.unwrap() };
    let mut held = [open().await, open().await];
    for stream in &mut held {
        for _ in 0..2 {
            let answer = call(stream, ann.expose()).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    let mut third = open().await;
    let answer = call(&mut third, ann.expose()).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(
        answer.contains("max_connections_per_caller = 2"),
        "{answer}"
    );
    assert_eq!(header(&answer.to_lowercase(), "retry-after"), Some("1"));
    assert_eq!(read_to_end(third).await, "", "it is closed");
    refuse_http2(server.address, ann.expose()).await;
    let answer = call(&mut open().await, bob.expose()).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(held);
    with_deadline(async {
        while !call(&mut open().await, ann.expose())
            .await
            .starts_with("HTTP/1.1 200")
        {}
    })
    .await;
}

/// Asserts that a call over HTTP/2 is refused, and its connection closed.
async fn refuse_http2(address: SocketAddr, key: &str) {
    let io = TokioIo::new(with_deadline(TcpStream::connect(address)).await.unwrap());
    let handshake = http2::handshake(TokioExecutor::new(), io);
    let (mut sender, connection) = with_deadline(handshake).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let request = Request::get("http://localhost/tasks")
        .header("a2a-version", "1.0")
        .header("authorization", format!("Bearer {key}"))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = with_deadline(sender.send_request(request)).await.unwrap();
    assert_eq!(answer.status(), 503);
    drop(answer);
    with_deadline(tasks.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn d05_impossible_connection_limits_are_refused() {
    for (name, settings) in [
        ("max_connections", settings(0)),
        (
            "reserved_connections",
            settings_with(|settings| settings.reserved_connections = 0),
        ),
        (
            "max_connections_per_address",
            settings_with(|settings| settings.max_connections_per_address = Some(60_000)),
        ),
        (
            "max_connections_per_caller",
            settings_with(|settings| settings.max_connections_per_caller = Some(60_000)),
        ),
    ] {
        let card = attache::AgentCard::new("Echo", "Says it back");
        let server = Server::new(card, Echo).server_settings(settings);
        let Err(error) = server.bind("127.0.0.1:0").await else {
            panic!("{name} is accepted");
        };
        assert!(error.message().contains(name), "{name}: {error}");
    }
}
