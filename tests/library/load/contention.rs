//! One hundred well-behaved clients beside slow, stalled, broken and disconnected ones: each gets its complete results.

use std::net::SocketAddr;
use std::time::Duration;

use attache::model::{Binding, Message, SendMessageRequest, SendMessageResponse, Version};
use attache::{Agent, Client, Failure, Outcome, Turn};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::harness::everywhere::{MATRIX, open};
use crate::harness::{
    ObservedEvent, Running, SseReader, WIRE_FORMATS, WireFormat, start_with, task, with_deadline,
};
use crate::security::hostile_clients::{
    AUTHORITY, GREETING, connect_and_write, frame, read_to_end, settings_with,
};
use crate::server::streaming::{next, rest};

/// More bytes than the socket buffers of both sides hold.
const FLOOD: usize = 160;

/// `hold` never ends, `flood` writes more than the socket buffers hold, other texts are answered in two chunks.
struct Besieged;

impl Agent for Besieged {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let text = turn.text();
        let mut writer = turn.writer("result");
        match text.as_str() {
            "hold" => std::future::pending().await,
            "flood" => {
                let piece = "x".repeat(256 << 10);
                for _ in 0..FLOOD {
                    writer.write(&*piece).await;
                }
            }
            _ => {
                writer.write(format!("{text} one")).await;
                writer.write(" two").await;
            }
        }
        Ok(Outcome::Completed)
    }
}

/// Opens a stream over HTTP/1 and never reads it.
async fn deaf(server: &Running) -> TcpStream {
    let stream = ask_for_flood(server).await;
    with_deadline(stream.readable()).await.unwrap();
    stream
}

async fn ask_for_flood(server: &Running) -> TcpStream {
    let ask = WireFormat::Rest1
        .stream("flood", json!({}))
        .with("Idempotency-Key", "flood");
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut stream = with_deadline(socket.connect(server.address)).await.unwrap();
    let length = ask.body.len();
    let text = format!(
        "{}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{}",
        ask.head, ask.body
    );
    with_deadline(stream.write_all(text.as_bytes()))
        .await
        .unwrap();
    stream
}

/// The same over HTTP/2 with maximal flow-control windows, so that only TCP applies backpressure.
async fn deaf_2(server: &Running) -> TcpStream {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let body = WireFormat::Rest1.stream("flood", json!({})).body;
    // HPACK: POST http /message:stream on localhost, with the idempotency key of the shared task.
    let key = [&[0][..], &text("idempotency-key"), &text("flood")].concat();
    let head = [
        &[0x83, 0x86, 0x04],
        &text("/message:stream")[..],
        AUTHORITY,
        &key,
    ]
    .concat();
    let wide = 0x7fff_ffff_u32.to_be_bytes();
    let call = [
        GREETING.to_vec(),
        frame(4, 0, 0, &[&[0, 4], &wide[..]].concat()),
        frame(8, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes()),
        frame(1, 4, 1, &head),
        frame(0, 1, 1, body.as_bytes()),
    ];
    let stream = connect_and_write(server, &call.concat()).await;
    with_deadline(stream.readable()).await.unwrap();
    stream
}

/// Reads from HTTP/2 until the stream is reset; the connection may stay open.
async fn until_reset(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    while !has_reset(&bytes)
        && with_deadline(stream.read_buf(&mut bytes))
            .await
            .is_ok_and(|read| read > 0)
    {}
    String::from_utf8_lossy(&bytes).into_owned()
}

fn has_reset(mut frames: &[u8]) -> bool {
    while let Some(([high, middle, low, kind, ..], _)) = frames.split_first_chunk::<9>() {
        if *kind == 3 {
            return true;
        }
        let length = usize::try_from(u32::from_be_bytes([0, *high, *middle, *low])).unwrap();
        frames = frames.get(9 + length..).unwrap_or_default();
    }
    false
}

/// Incomplete requests, each with the expected response of the server.
fn slow() -> Vec<(Vec<u8>, Told)> {
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    // HPACK: POST http / on localhost, with a body that never arrives.
    let call_2 = [&[0x83, 0x86, 0x84], AUTHORITY].concat();
    vec![
        (Vec::new(), Told::Nothing),
        (GREETING[..10].to_vec(), Told::Nothing),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nX-".to_vec(), Told::Nothing),
        (format!("{head}Content-Length: 100000\r\n\r\n{{").into_bytes(), Told::Late),
        (
            b"POST /message:send HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n{"
                .to_vec(),
            Told::Late,
        ),
        (
            [GREETING, &frame(4, 0, 0, &[]), &frame(1, 4, 1, &call_2), &frame(0, 0, 1, b"{")].concat(),
            Told::Late2,
        ),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Nothing,
    Late,
    Late2,
}

impl Told {
    /// Reads the response. An HTTP/2 call leaves its connection open.
    async fn check(self, mut stream: TcpStream) {
        if self == Self::Late2 {
            let mut bytes = Vec::new();
            let late = b"body_timeout";
            with_deadline(async {
                while !bytes.windows(late.len()).any(|window| window == late) {
                    assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
                }
            })
            .await;
            return;
        }
        let text = read_to_end(stream).await;
        match self {
            Self::Nothing => assert_eq!(text, ""),
            Self::Late | Self::Late2 => {
                assert!(
                    text.starts_with("HTTP/1.1 408") && text.contains("(body_timeout)"),
                    "{text}"
                );
            }
        }
    }
}

/// Clients that disconnect in the middle of a body, of a stream, and of a reset HTTP/2 call.
async fn leave(server: &Running, number: usize) {
    let form = WIRE_FORMATS[number % 4];
    let ask = form.stream("hold", json!({}));
    let mut reader = server.read(&ask).await;
    assert_eq!(
        next(form, &mut reader).await,
        (2, task("submitted", &["hold"]))
    );
    drop(reader);
    let length = ask.body.len() + 1;
    drop(
        connect_and_write(
            server,
            format!(
                "{}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{}",
                ask.head, ask.body
            )
            .as_bytes(),
        )
        .await,
    );
    let head = [&[0x83, 0x86, 0x84], AUTHORITY].concat();
    let abort = [
        GREETING,
        &frame(4, 0, 0, &[]),
        &frame(1, 4, 1, &head),
        &frame(3, 0, 1, &8_u32.to_be_bytes()),
    ];
    drop(connect_and_write(server, &abort.concat()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s63_slow_broken_and_leaving_clients_hurt_nobody_else() {
    let settings = settings_with(|settings| {
        settings.header_timeout = Duration::from_secs(5);
        settings.body_timeout = Duration::from_secs(5);
        settings.write_timeout = Duration::from_secs(5);
        settings.max_streams_per_task = 2;
    });
    let server = start_with(Besieged, |server| server.server_settings(settings)).await;
    let deaf = deaf(&server).await;
    let deaf_2 = deaf_2(&server).await;
    let mut dripping = Vec::new();
    for (bytes, told) in slow().into_iter().cycle().take(48) {
        dripping.push((connect_and_write(&server, &bytes).await, told));
    }
    let mut work = JoinSet::new();
    for number in 0..100 {
        if number % 5 == 0 {
            leave(&server, number / 5).await;
        }
        let address = server.address;
        work.spawn(works(address, number));
    }
    while let Some(done) = with_deadline(work.join_next()).await {
        done.unwrap();
        // One more byte of each incomplete head and body. The server may have closed some connections.
        for (stream, _) in dripping.iter_mut().filter(|(_, told)| *told == Told::Late) {
            let _ = with_deadline(stream.write_all(b" ")).await;
        }
    }
    for (stream, told) in dripping {
        told.check(stream).await;
    }
    // The log has the whole flood, and the stalled readers were disconnected in the middle of it.
    let list = json!({"pageSize": 100, "status": "TASK_STATE_COMPLETED"});
    let list = server.result("ListTasks", list).await;
    assert_eq!(list["totalSize"], 201);
    with_deadline(async { while !has_room_for_two(&server).await {} }).await;
    for told in [read_to_end(deaf).await, until_reset(deaf_2).await] {
        assert!(told.len() < FLOOD * (256 << 10), "{} bytes", told.len());
        assert!(
            !told.contains("TASK_STATE_COMPLETED"),
            "the stalled reader was disconnected before the end"
        );
    }
}

/// Whether two more readers of the flood are admitted, which shows that the stalled ones were disconnected.
async fn has_room_for_two(server: &Running) -> bool {
    let first = flooded(server).await;
    let second = flooded(server).await;
    first.is_some() && second.is_some()
}

/// Opens a reader of the flood if the stream limit permits.
async fn flooded(server: &Running) -> Option<TcpStream> {
    let mut stream = ask_for_flood(server).await;
    let mut status = [0; 12];
    with_deadline(stream.read_exact(&mut status)).await.unwrap();
    (status == *b"HTTP/1.1 200").then_some(stream)
}

/// A well-behaved client: one stream and one call, both read to the end and compared with the expected content.
async fn works(address: SocketAddr, number: usize) {
    let text = format!("number {number}");
    let (binding, version) = MATRIX[number % MATRIX.len()];
    let client = Client::new(&format!("http://{address}/"), binding, version).unwrap();
    let request = || SendMessageRequest::new(Message::user(text.as_str()));
    match form(binding, version) {
        Some(form) => {
            let mut reader = SseReader::open(begin(address, form, &text).await).await;
            let told = [
                (2, task("submitted", &[&text])),
                (4, ObservedEvent::Artifact(format!("{text} one"), false)),
                (5, ObservedEvent::Artifact(" two".to_owned(), true)),
                (6, form.status("completed", "", true)),
            ];
            assert_eq!(rest(form, &mut reader).await, told, "{form:?}");
        }
        None => {
            let told = with_deadline(async {
                open(client.send_streaming_message(request()))
                    .await
                    .unwrap()
                    .event_texts()
                    .await
            });
            let first = format!("artifact {text} one");
            assert_eq!(
                told.await,
                ["task active", &first, "chunk  two", "status completed"],
                "{version}"
            );
        }
    }
    let SendMessageResponse::Task(task) =
        with_deadline(client.send_message(request())).await.unwrap()
    else {
        panic!("a plain answer");
    };
    let parts: Vec<_> = task
        .artifacts
        .iter()
        .flat_map(|artifact| &artifact.parts)
        .collect();
    let texts: Vec<_> = parts.iter().filter_map(|part| part.as_text()).collect();
    assert_eq!(
        (task.artifacts.len(), texts.concat()),
        (1, format!("{text} one two"))
    );
}

async fn begin(address: SocketAddr, form: WireFormat, text: &str) -> TcpStream {
    let ask = form.stream(text, json!({}));
    let mut stream = with_deadline(TcpStream::connect(address)).await.unwrap();
    let length = ask.body.len();
    let head = format!(
        "{}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}",
        ask.head
    );
    with_deadline(stream.write_all(format!("{head}\r\n\r\n{}", ask.body).as_bytes()))
        .await
        .unwrap();
    stream
}

fn form(binding: Binding, version: Version) -> Option<WireFormat> {
    match (binding, version) {
        (Binding::JsonRpc, Version::V1) => Some(WireFormat::Rpc1),
        (Binding::JsonRpc, Version::V03) => Some(WireFormat::Rpc03),
        (Binding::HttpJson, Version::V1) => Some(WireFormat::Rest1),
        (Binding::HttpJson, Version::V03) => Some(WireFormat::Rest03),
        (Binding::Grpc, _) => None,
    }
}
