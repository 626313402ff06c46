//! Limits of the gRPC binding.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use attache::{Server, ServerSettings};
use attache_proto::v1;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use prost::Message;
use tokio::sync::mpsc;
use tonic::Code;

use super::{Heard, Raw, SEND, clients, connect, framed, say, task};
use crate::harness::{Echo, Running, start, start_with, with_deadline};
use crate::server::operations::Held;

const GRPC: (&str, &str) = ("content-type", "application/grpc");

async fn start_set(set: impl FnOnce(&mut ServerSettings)) -> Running {
    let mut settings = ServerSettings::default();
    set(&mut settings);
    start_with(Echo, |server: Server| server.server_settings(settings)).await
}

#[tokio::test]
async fn s70_a_giant_message_is_refused_and_others_are_served() {
    let server = start_set(|settings| settings.max_body_bytes = 64 << 10).await;
    let mut v1 = clients(&server).v1;
    let status = with_deadline(v1.send_message(say(&"x".repeat(65 << 10))))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("max_body_bytes"), "{status:?}");
    let fits = task(
        with_deadline(v1.send_message(say(&"x".repeat(60 << 10))))
            .await
            .unwrap()
            .into_inner(),
    );
    assert_eq!(fits.status.unwrap().state(), v1::TaskState::Completed);
}

#[tokio::test]
async fn s62_a_million_parts_are_refused_before_they_are_decoded() {
    let server = start(Echo).await;
    let mut raw = Raw::new(&server).await;
    let mut message = v1::Message {
        message_id: "m".to_owned(),
        ..Default::default()
    }
    .encode_to_vec();
    message.extend([0x2a, 0x00].repeat(1_000_000));
    let mut request = vec![0x12];
    prost::encoding::encode_varint(message.len() as u64, &mut request);
    request.extend(message);
    let answer = raw.post(SEND, &[GRPC], framed(&request)).await;
    assert_eq!(answer.code(), Code::InvalidArgument);
    let text = answer.headers["grpc-message"].to_str().unwrap();
    assert!(text.contains("100000"), "{text}");
}

#[tokio::test]
async fn s70_giant_metadata_is_refused_and_others_are_served() {
    let server = start_set(|settings| settings.max_header_bytes = 16 << 10).await;
    let mut raw = Raw::new(&server).await;
    let giant = "x".repeat(32 << 10);
    let answer = raw
        .post(SEND, &[GRPC, ("x-giant", &giant)], framed(b""))
        .await;
    assert_eq!(answer.status, 431);
    let answer = raw
        .post(SEND, &[GRPC], framed(&say("hi").encode_to_vec()))
        .await;
    assert_eq!(answer.code(), Code::Ok);
}

#[tokio::test]
async fn s62_s67_calls_that_cannot_be_read_are_counted_too() {
    for (path, body, code) in [
        (SEND, framed(b"\xff"), Code::InvalidArgument),
        (SEND, b"x".to_vec(), Code::InvalidArgument),
        (
            "/lf.a2a.v1.A2AService/Nothing",
            framed(b""),
            Code::Unimplemented,
        ),
    ] {
        let mut limits = attache::auth::CallerLimits::default();
        limits.calls_per_second = NonZeroU32::new(1);
        limits.burst = NonZeroU32::new(3).unwrap();
        limits.limit_loopback = true;
        let server = start_with(Echo, |server: Server| server.caller_limits(limits)).await;
        let mut raw = Raw::new(&server).await;
        let mut codes = Vec::new();
        for _ in 0..4 {
            codes.push(raw.post(path, &[GRPC], body.clone()).await.code());
        }
        assert_eq!(codes, [code, code, code, Code::ResourceExhausted], "{path}");
    }
}

/// Sends nothing, for ever.
struct Silent;

impl Body for Silent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn s63_a_message_that_does_not_come_is_not_waited_for() {
    let server = start_set(|settings| settings.body_timeout = Duration::from_millis(20)).await;
    let (mut sender, _connection) = connect(&server).await;
    let request = http::Request::post(format!("http://localhost{SEND}"))
        .header(GRPC.0, GRPC.1)
        .body(Silent)
        .unwrap();
    let answer = with_deadline(sender.send_request(request)).await.unwrap();
    assert_eq!(Heard::read(answer).await.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_deadline_ends_the_call_and_not_the_task() {
    let (started, mut heard) = mpsc::channel(2);
    let held = Held::new(started);
    let server = start(held.clone()).await;
    let mut raw = Raw::new(&server).await;
    let headers = [GRPC, ("grpc-timeout", "1S")];
    let body = framed(&say("hi").encode_to_vec());
    assert_eq!(
        raw.post(SEND, &headers, body.clone()).await.code(),
        Code::DeadlineExceeded
    );
    let id = with_deadline(heard.recv()).await.unwrap();
    let stream = "/lf.a2a.v1.A2AService/SendStreamingMessage";
    let answer = raw.post(stream, &headers, body).await;
    assert_eq!(answer.trailers["grpc-status"], "4");
    assert!(!answer.body.is_empty(), "the task came before the end");
    with_deadline(heard.recv()).await.unwrap();
    let mut v1 = clients(&server).v1;
    let subscribe = v1::SubscribeToTaskRequest {
        id,
        ..Default::default()
    };
    let mut stream = with_deadline(v1.subscribe_to_task(subscribe))
        .await
        .unwrap()
        .into_inner();
    assert!(
        with_deadline(stream.message()).await.unwrap().is_some(),
        "it goes on"
    );
    held.release();
    held.release();
    while with_deadline(stream.message()).await.unwrap().is_some() {}
}

#[tokio::test]
async fn s63_a_connection_that_only_answers_pings_is_closed() {
    let server = start_set(|settings| settings.idle_timeout = Duration::from_millis(50)).await;
    // The idle connection holds no call.
    let (_sender, mut connection) = connect::<http_body_util::Full<Bytes>>(&server).await;
    with_deadline(connection.join_next())
        .await
        .unwrap()
        .unwrap();
}
