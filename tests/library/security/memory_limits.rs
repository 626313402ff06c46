//! Clients whose data the server must hold (D2, D3, D5): the memory of the server stays bounded.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::unread_responses::{
    ask_and_ignore, ask_from, assert_innocent_is_served, assert_peak, await_state, create_task,
    read_status,
};
use crate::harness::server_process::ServerProcess;
use crate::harness::{WireFormat, with_deadline};

const MANY_FILES: usize = 10_000;
/// `User-Agent` of clients whose files have another form, so that their events are not shared.
const PYTHON_CLIENT: &str = "python-httpx/0.28.1";

/// Each subscriber needs a copy of its own. Four of them fit into the share of the caller, the others are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d03_unread_snapshots_that_are_not_shared_stay_within_the_budget() {
    const SUBSCRIBERS: usize = 48;
    // It fits into the task cache, so that a refused subscriber costs little.
    const TASK_MIB: usize = 12;
    let server = ServerProcess::start_with(MANY_FILES, Duration::from_millis(1)).await;
    let id = create_task(server.address, &format!("ask {TASK_MIB}")).await;
    await_state(server.address, &id, "TASK_STATE_INPUT_REQUIRED").await;
    let mut unread = Vec::new();
    for _ in 0..SUBSCRIBERS {
        let ask = WireFormat::Rest03.subscribe(&id);
        let ask = ask.with("User-Agent", PYTHON_CLIENT);
        let mut stream = ask_and_ignore(server.address, &ask).await;
        if read_status(&mut stream).await == "HTTP/1.1 200" {
            unread.push(read_first_byte(stream).await);
        }
    }
    assert_eq!(unread.len(), 4, "fit into the share of the caller");
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
}

/// A control character takes 6 bytes in JSON. It counts as such, so that a task of them ends before its JSON is 384 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_task_of_control_characters_is_bounded_by_its_json() {
    const ARTIFACTS: usize = 60;
    let server = ServerProcess::start(MANY_FILES).await;
    let id = create_task(server.address, &format!("control {ARTIFACTS}")).await;
    await_state(server.address, &id, "TASK_STATE_FAILED").await;
    let ask = WireFormat::Rpc1.ask("GetTask", json!({"id": id}));
    let answer = ask_from([127, 0, 0, 1], server.address, &ask).await;
    let artifacts = answer.json()["result"]["artifacts"].clone();
    let count = artifacts.as_array().map_or(0, Vec::len);
    // 64 MiB of JSON.
    assert!((9..=10).contains(&count), "{count} artifacts");
    assert_peak(&server);
}

/// Reads the rest of the head and the first byte of the body, and nothing after it.
async fn read_first_byte(mut stream: TcpStream) -> TcpStream {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(with_deadline(stream.read_u8()).await.unwrap());
    }
    with_deadline(stream.read_u8()).await.unwrap();
    stream
}

/// Connects from an address. Little of what the client sends is in the buffers of the system.
async fn connect_with_small_buffer(source: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(64 << 10).unwrap();
    socket.bind((source, 0).into()).unwrap();
    with_deadline(socket.connect(address)).await.unwrap()
}

/// Bodies that are complete wait for a thread that decodes them. They count against the budget until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d05_bodies_that_wait_for_the_decoder_stay_within_the_budget() {
    const CALLERS: u8 = 8;
    const BODIES_PER_CALLER: usize = 14;
    const PARTS: usize = 600_000;
    let server = ServerProcess::start(MANY_FILES).await;
    // Refused once it is decoded: too many parts.
    let parts = vec![r#"{"text":"a"}"#; PARTS].join(",");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{parts}]}}}}}}"#
    );
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request: std::sync::Arc<str> = (head + &body).into();
    let mut sent = JoinSet::new();
    for caller in 1..=CALLERS {
        for _ in 0..BODIES_PER_CALLER {
            let mut stream = connect_with_small_buffer([127, 0, 2, caller], server.address).await;
            let request = request.clone();
            sent.spawn(async move {
                // A refused body is not read to its end.
                let _ = stream.write_all(request.as_bytes()).await;
                stream
            });
        }
    }
    let _open = with_deadline(sent.join_all()).await;
    assert_innocent_is_served(server.address).await;
    assert_peak(&server);
}
