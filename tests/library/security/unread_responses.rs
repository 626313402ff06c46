//! Clients and webhooks that cause much data and read nothing (D2, D3, D4, D12): the server holds a bounded amount for
//! them, and serves others.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::harness::server_process::ServerProcess;
use crate::harness::{Answer, WireFormat, WireRequest, with_deadline};
use crate::security::connection_limits::connect_from;
use crate::security::hostile_clients::{read_to_end, send};

const MAX_MEMORY_MB: u64 = 512;
const MANY_FILES: usize = 10_000;
/// Size of the large task, in MiB.
const TASK_MIB: usize = 21;
pub(crate) const HOSTILE: [u8; 4] = [127, 0, 0, 1];
const INNOCENT: [u8; 4] = [127, 0, 0, 2];

/// Returns the bytes of a request. The connection closes after the reply.
fn request_bytes(ask: &WireRequest) -> String {
    let WireRequest { head, body } = ask;
    let length = body.len();
    format!(
        "{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Sends a request and reads the whole reply.
pub(crate) async fn ask_from(source: [u8; 4], address: SocketAddr, ask: &WireRequest) -> Answer {
    let mut stream = connect_from(source, address).await;
    with_deadline(stream.write_all(request_bytes(ask).as_bytes()))
        .await
        .unwrap();
    Answer::read(&read_to_end(stream).await)
}

/// Sends a request and reads nothing. The receive buffer of the connection is small.
pub(crate) async fn ask_and_ignore(address: SocketAddr, ask: &WireRequest) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind((HOSTILE, 0).into()).unwrap();
    let mut stream = with_deadline(socket.connect(address)).await.unwrap();
    with_deadline(stream.write_all(request_bytes(ask).as_bytes()))
        .await
        .unwrap();
    stream
}

/// Reads the status of a reply, and nothing after it.
pub(crate) async fn read_status(stream: &mut TcpStream) -> String {
    let mut status = [0; 12];
    with_deadline(stream.read_exact(&mut status)).await.unwrap();
    String::from_utf8(status.to_vec()).unwrap()
}

/// Creates a task with artifacts of 1 MiB each, and returns its id.
pub(crate) async fn create_task(address: SocketAddr, text: &str) -> String {
    let form = WireFormat::Rpc1;
    let message = form.message(text, json!({}));
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let answer = ask_from(HOSTILE, address, &form.ask("SendMessage", params)).await;
    let id = answer.json()["result"]["task"]["id"].clone();
    id.as_str()
        .unwrap_or_else(|| panic!("{answer:?}"))
        .to_owned()
}

/// Waits until the task has this state. The replies are small: they have neither artifacts nor history.
pub(crate) async fn await_state(address: SocketAddr, id: &str, state: &str) {
    let params = json!({"pageSize": 100, "historyLength": 0});
    let list = WireFormat::Rpc1.ask("ListTasks", params);
    let wait = async {
        loop {
            let page = ask_from(INNOCENT, address, &list).await.json();
            let tasks = page["result"]["tasks"].as_array().unwrap().clone();
            let task = tasks.iter().find(|task| task["id"] == *id);
            if task.is_some_and(|task| task["status"]["state"] == *state) {
                return;
            }
        }
    };
    with_deadline(wait).await;
}

/// Asserts that another caller gets its replies.
pub(crate) async fn assert_innocent_is_served(address: SocketAddr) {
    let form = WireFormat::Rpc1;
    let sent = ask_from(INNOCENT, address, &send(form, "hello")).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    let id = sent.json()["result"]["task"]["id"].clone();
    for ask in [
        form.ask("GetTask", json!({"id": id})),
        form.ask("ListTasks", json!({"pageSize": 100})),
    ] {
        let answer = ask_from(INNOCENT, address, &ask).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.json()["result"] != Value::Null, "{answer:?}");
    }
}

pub(crate) fn assert_peak(server: &ServerProcess) {
    let peak = server.peak_memory_mb();
    assert!(peak <= MAX_MEMORY_MB, "{peak} MB");
}

/// Starts a server with a large task.
async fn start_with_task(ending: &str, state: &str) -> (ServerProcess, String) {
    let server = ServerProcess::start(MANY_FILES).await;
    let id = create_task(server.address, &format!("{ending} {TASK_MIB}")).await;
    await_state(server.address, &id, state).await;
    (server, id)
}

/// All readers share one encoding, so all of them are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_unread_replies_with_a_large_task_share_its_memory() {
    const READERS: usize = 120;
    let (server, id) = start_with_task("complete", "TASK_STATE_COMPLETED").await;
    let mut unread = Vec::new();
    for number in 0..READERS {
        let form = [WireFormat::Rpc1, WireFormat::Rest1][number % 2];
        let ask = form.ask("GetTask", json!({"id": id}));
        unread.push(ask_and_ignore(server.address, &ask).await);
    }
    for stream in &mut unread {
        assert_eq!(read_status(stream).await, "HTTP/1.1 200");
    }
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
    // The reply is complete for a client that reads it.
    let ask = WireFormat::Rpc1.ask("GetTask", json!({"id": id}));
    let answer = ask_from(HOSTILE, server.address, &ask).await;
    let artifacts = answer.json()["result"]["artifacts"].clone();
    assert_eq!(artifacts.as_array().map(Vec::len), Some(TASK_MIB));
}

/// Each format of the task is a copy. Beyond the share of the caller they wait, and are refused in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_unread_replies_in_every_version_stay_within_the_budget() {
    let (server, id) = start_with_task("complete", "TASK_STATE_COMPLETED").await;
    let mut unread = JoinSet::new();
    for form in [
        WireFormat::Rpc1,
        WireFormat::Rpc03,
        WireFormat::Rest1,
        WireFormat::Rest03,
    ] {
        for _ in 0..10 {
            let ask = form.ask("GetTask", json!({"id": id}));
            let mut stream = ask_and_ignore(server.address, &ask).await;
            unread.spawn(async move { (read_status(&mut stream).await, stream) });
        }
    }
    let mut held = Vec::new();
    for _ in 0..10 {
        let (status, stream) = with_deadline(unread.join_next()).await.unwrap().unwrap();
        if status == "HTTP/1.1 200" {
            held.push(stream);
        }
    }
    assert!(!held.is_empty());
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
}

/// A page has at least one task. Three pages with this task fit into the share of the caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_unread_pages_with_a_large_task_stay_within_the_budget() {
    const READERS: usize = 16;
    const HELD_PAGES: usize = 3;
    let (server, _) = start_with_task("complete", "TASK_STATE_COMPLETED").await;
    let list = WireFormat::Rpc1.ask("ListTasks", json!({"includeArtifacts": true}));
    let mut unread = JoinSet::new();
    for _ in 0..READERS {
        let mut stream = ask_and_ignore(server.address, &list).await;
        unread.spawn(async move { (read_status(&mut stream).await, stream) });
    }
    let mut held = Vec::new();
    for _ in 0..HELD_PAGES {
        let (status, stream) = with_deadline(unread.join_next()).await.unwrap().unwrap();
        assert_eq!(status, "HTTP/1.1 200");
        held.push(stream);
    }
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
    unread.shutdown().await;
    drop(held);
    let answer = ask_from(HOSTILE, server.address, &list).await;
    assert_eq!(answer.status, 200, "the budget is released");
}

/// HTTP/2 connection whose responses are not read.
struct GrpcReader {
    sender: http2::SendRequest<Full<Bytes>>,
    tasks: JoinSet<()>,
}

impl GrpcReader {
    async fn connect(address: SocketAddr) -> Self {
        let io = TokioIo::new(connect_from(HOSTILE, address).await);
        let handshake = http2::handshake(TokioExecutor::new(), io);
        let (sender, connection) = with_deadline(handshake).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async { drop(connection.await) });
        Self { sender, tasks }
    }

    /// Requests a task and returns the response, whose body is not read.
    async fn get_task(&mut self, id: &str) -> http::Response<Incoming> {
        let mut message = vec![18, id.len() as u8];
        message.extend_from_slice(id.as_bytes());
        let mut framed = vec![0, 0, 0, 0, message.len() as u8];
        framed.extend_from_slice(&message);
        let request = Request::post("http://localhost/lf.a2a.v1.A2AService/GetTask")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("a2a-version", "1.0")
            .body(Full::new(framed.into()))
            .unwrap();
        with_deadline(self.sender.send_request(request))
            .await
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_unread_grpc_replies_with_a_large_task_share_its_memory() {
    const CONNECTIONS: usize = 6;
    const CALLS: usize = 20;
    let (server, id) = start_with_task("complete", "TASK_STATE_COMPLETED").await;
    let mut unread = Vec::new();
    let mut readers = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut reader = GrpcReader::connect(server.address).await;
        for _ in 0..CALLS {
            let response = reader.get_task(&id).await;
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers().get("grpc-status"), None);
            unread.push(response);
        }
        readers.push(reader);
    }
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
    assert!(readers.iter().all(|reader| reader.tasks.len() == 1));
}

/// Reads the head of a reply and the first byte of its body, and nothing after it.
async fn read_first_byte(mut stream: TcpStream) -> TcpStream {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(with_deadline(stream.read_u8()).await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{head:?}");
    stream.read_u8().await.unwrap();
    stream
}

/// Pages of 1 MiB: about 32 fit into the share of the caller. The other subscribers wait without memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d03_unread_replays_stay_within_the_budget() {
    const SUBSCRIBERS: usize = 1_000;
    const TASKS: usize = 4;
    const SERVED: usize = 20;
    let server = ServerProcess::start(MANY_FILES).await;
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let id = create_task(server.address, "ask 4").await;
        await_state(server.address, &id, "TASK_STATE_INPUT_REQUIRED").await;
        tasks.push(id);
    }
    let mut unread = JoinSet::new();
    for number in 0..SUBSCRIBERS {
        let form = [WireFormat::Rpc1, WireFormat::Rest1, WireFormat::Rpc03][number % 3];
        let ask = form.subscribe(&tasks[number % TASKS]).resuming(2);
        unread.spawn(read_first_byte(ask_and_ignore(server.address, &ask).await));
    }
    let mut held = Vec::new();
    for _ in 0..SERVED {
        held.push(with_deadline(unread.join_next()).await.unwrap().unwrap());
    }
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
}

/// Every subscriber begins with the whole task. They share its encoding, so all of them are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d03_unread_snapshots_of_a_large_task_share_its_memory() {
    const SUBSCRIBERS: usize = 120;
    let (server, id) = start_with_task("ask", "TASK_STATE_INPUT_REQUIRED").await;
    let mut unread = Vec::new();
    for number in 0..SUBSCRIBERS {
        let form = [WireFormat::Rpc1, WireFormat::Rest1][number % 2];
        let stream = ask_and_ignore(server.address, &form.subscribe(&id)).await;
        unread.push(with_deadline(read_first_byte(stream)).await);
    }
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
    // The event is complete for a subscriber that reads it.
    let mut stream = connect_from(HOSTILE, server.address).await;
    let ask = request_bytes(&WireFormat::Rpc1.subscribe(&id));
    with_deadline(stream.write_all(ask.as_bytes()))
        .await
        .unwrap();
    let mut received = Vec::new();
    // The end of the event, and of its chunk.
    while !received.ends_with(b"\n\n\r\n") {
        let read = with_deadline(stream.read_buf(&mut received)).await;
        assert_ne!(read.unwrap(), 0, "{} bytes", received.len());
    }
    assert!(received.len() > TASK_MIB << 20, "{} bytes", received.len());
}

/// Webhook that accepts connections, reads the start of a request and nothing after it.
async fn start_tarpit(host: [u8; 4]) -> (SocketAddr, JoinSet<TcpStream>) {
    let listener = TcpListener::bind(SocketAddr::from((host, 0)))
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    let mut requests = JoinSet::new();
    requests.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut start = [0; 4];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"POST");
        stream
    });
    (address, requests)
}

/// Webhooks of 0.3 get the whole task. They share its encoding, so all of them are called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d04_unread_webhooks_of_a_large_task_share_its_memory() {
    const WEBHOOKS: u8 = 24;
    const LARGE_MIB: usize = 56;
    let server = ServerProcess::start(MANY_FILES).await;
    let id = create_task(server.address, &format!("hold {LARGE_MIB}")).await;
    await_state(server.address, &id, "TASK_STATE_WORKING").await;
    let mut tarpits = JoinSet::new();
    for number in 1..=WEBHOOKS {
        // A host each: deliveries to one host are limited.
        let (address, mut requests) = start_tarpit([127, 0, 1, number]).await;
        tarpits.spawn(async move { requests.join_next().await.unwrap().unwrap() });
        // An id each: without one, a config replaces the one before.
        let config = json!({"id": number.to_string(), "url": format!("http://{address}/")});
        let params = json!({"taskId": id, "pushNotificationConfig": config});
        let ask = WireFormat::Rpc03.ask("CreateTaskPushNotificationConfig", params);
        let answer = ask_from(HOSTILE, server.address, &ask).await;
        assert!(answer.json()["result"].is_object(), "{answer:?}");
    }
    let params = json!({"id": id});
    let cancel = WireFormat::Rpc03.ask("CancelTask", params);
    // Its reply is the large task too, which is not read.
    let mut canceled = ask_and_ignore(server.address, &cancel).await;
    assert_eq!(read_status(&mut canceled).await, "HTTP/1.1 200");
    let mut unread = Vec::new();
    while let Some(stream) = with_deadline(tarpits.join_next()).await {
        unread.push(stream.unwrap());
    }
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
}

/// An id of 7 MB is refused, and the longest id multiplies the response by little.
#[tokio::test]
async fn d12_events_repeat_a_short_id_only() {
    const EVENTS: usize = 200;
    let agent = async |turn: attache::Turn| {
        let mut writer = turn.writer("numbers");
        for _ in 0..EVENTS {
            writer.write("x").await;
        }
        writer.finish().await;
        Ok(attache::Outcome::Completed)
    };
    let server = crate::harness::start(agent).await;
    let message = WireFormat::Rpc1.message("go", json!({}));
    for (id_bytes, max_bytes) in [(7_000_000, 2_000), (250, (EVENTS + 10) * 1_000)] {
        let id = "i".repeat(id_bytes);
        let call = json!({
            "jsonrpc": "2.0", "id": id, "method": "SendStreamingMessage", "params": {"message": message},
        });
        let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0";
        let answer = server.send(head, call.to_string().as_bytes()).await;
        let events = answer.body.matches("artifactUpdate").count();
        assert_eq!(events > 0, id_bytes == 250, "{}", answer.head);
        assert!(
            answer.body.len() <= max_bytes,
            "{} bytes",
            answer.body.len()
        );
    }
}
