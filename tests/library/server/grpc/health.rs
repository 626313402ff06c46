//! Health and reflection, asked by clients of their own.

use std::num::NonZeroU32;

use attache::{Server, ServerSettings};
use tokio::sync::mpsc;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

use super::{all, channel, clients, say};
use crate::harness::{Echo, Running, start, start_with, with_deadline};
use crate::server::operations::Held;

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn the_server_and_its_services_are_well() {
    let server = start(Echo).await;
    let mut health = HealthClient::new(channel(&server));
    for service in ["", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"] {
        let answer = with_deadline(health.check(of(service)))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    assert_eq!(
        with_deadline(health.check(of("other")))
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
    let mut watch = with_deadline(health.watch(of("other")))
        .await
        .unwrap()
        .into_inner();
    let told = with_deadline(watch.message()).await.unwrap().unwrap();
    assert_eq!(told.status(), ServingStatus::ServiceUnknown);
}

#[tokio::test]
async fn a_watcher_is_told_that_the_server_stops() {
    let (started, mut heard) = mpsc::channel(1);
    let held = Held::new(started);
    let mut server = start(held.clone()).await;
    let mut health = HealthClient::new(channel(&server));
    let mut watch = with_deadline(health.watch(of("")))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        with_deadline(watch.message())
            .await
            .unwrap()
            .unwrap()
            .status(),
        ServingStatus::Serving
    );
    // A call that is under way keeps the server until it is answered.
    let mut v1 = clients(&server).v1;
    let call = async { v1.send_message(say("hi")).await };
    let stop = async {
        with_deadline(heard.recv()).await.unwrap();
        let told = async {
            let told = all(watch).await;
            held.release();
            told
        };
        tokio::join!(server.stop(), told).1
    };
    let (answer, (told, end)) = with_deadline(async { tokio::join!(call, stop) }).await;
    answer.unwrap();
    assert_eq!(
        told.iter().map(|told| told.status()).collect::<Vec<_>>(),
        [ServingStatus::NotServing]
    );
    assert_eq!(end.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn d05_a_health_request_is_small_and_counted() {
    let mut limits = attache::auth::CallerLimits::default();
    limits.calls_per_second = NonZeroU32::new(1);
    limits.burst = NonZeroU32::new(2).unwrap();
    limits.limit_loopback = true;
    let server = start_with(Echo, |server: Server| server.caller_limits(limits)).await;
    let mut health = HealthClient::new(channel(&server));
    let refused = with_deadline(health.check(of(&"x".repeat(1024))))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("1024 bytes"), "{refused:?}");
    with_deadline(health.check(of(""))).await.unwrap();
    let refused = with_deadline(health.check(of(""))).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("calls_per_second"),
        "{refused:?}"
    );
    // Calls have an allowance of their own.
    with_deadline(clients(&server).v1.send_message(say("hi")))
        .await
        .unwrap();
}

#[tokio::test]
async fn d05_a_health_watch_is_a_stream() {
    let mut settings = ServerSettings::default();
    settings.max_streams = 4;
    let server = start_with(Echo, |server: Server| server.server_settings(settings)).await;
    let mut health = HealthClient::new(channel(&server));
    let mut watches = Vec::new();
    for _ in 0..2 {
        let watch = with_deadline(health.watch(of(""))).await.unwrap();
        watches.push(watch.into_inner());
    }
    let refused = with_deadline(health.watch(of(""))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let limit = "max_streams_per_caller = 2";
    assert!(refused.message().contains(limit), "{refused:?}");
    with_deadline(health.check(of(""))).await.unwrap();
    drop(watches);
    with_deadline(async { while health.watch(of("")).await.is_err() {} }).await;
}

async fn reflect(
    server: &Running,
    what: MessageRequest,
) -> Result<ServerReflectionResponse, tonic::Status> {
    let request = ServerReflectionRequest {
        message_request: Some(what),
        ..Default::default()
    };
    let mut client = ServerReflectionClient::new(channel(server));
    let mut stream = with_deadline(client.server_reflection_info(Once(Some(request))))
        .await?
        .into_inner();
    Ok(with_deadline(stream.message()).await?.expect("one answer"))
}

/// A stream of one.
struct Once<T>(Option<T>);

impl<T: Unpin> tonic::codegen::tokio_stream::Stream for Once<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        std::task::Poll::Ready(self.0.take())
    }
}

#[tokio::test]
async fn s70_reflection_is_there_only_when_asked_for() {
    let list = MessageRequest::ListServices(String::new());
    let server = start(Echo).await;
    assert_eq!(
        reflect(&server, list.clone()).await.unwrap_err().code(),
        Code::Unimplemented
    );

    let mut settings = ServerSettings::default();
    settings.grpc_reflection = true;
    let server = start_with(Echo, |server: Server| server.server_settings(settings)).await;
    let answer = reflect(&server, list).await.unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let names: Vec<_> = list.service.iter().map(|service| &*service.name).collect();
    for name in ["lf.a2a.v1.A2AService", "a2a.v1.A2AService"] {
        assert!(names.contains(&name), "{names:?}");
        let symbol = MessageRequest::FileContainingSymbol(name.to_owned());
        let answer = reflect(&server, symbol).await.unwrap().message_response;
        assert!(
            matches!(answer, Some(MessageResponse::FileDescriptorResponse(_))),
            "{answer:?}"
        );
    }
    let request = v1alpha::ServerReflectionRequest {
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
        ..Default::default()
    };
    let mut older =
        v1alpha::server_reflection_client::ServerReflectionClient::new(channel(&server));
    let mut stream = with_deadline(older.server_reflection_info(Once(Some(request))))
        .await
        .unwrap()
        .into_inner();
    assert!(with_deadline(stream.message()).await.unwrap().is_some());
}

/// Requests that end when the sender is dropped.
struct OpenRequests<T>(Once<T>, tokio::sync::oneshot::Receiver<()>);

impl<T: Unpin> tonic::codegen::tokio_stream::Stream for OpenRequests<T> {
    type Item = T;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        match std::pin::Pin::new(&mut self.0).poll_next(context) {
            std::task::Poll::Ready(None) => {
                let dropped = std::pin::Pin::new(&mut self.1);
                std::future::Future::poll(dropped, context).map(|_| None)
            }
            other => other,
        }
    }
}

#[tokio::test]
async fn d05_bodies_of_reflection_requests_are_counted() {
    for (change, limit) in [
        (
            (|settings| settings.max_buffered_body_bytes = 64 << 10) as fn(&mut ServerSettings),
            "max_buffered_body_bytes_per_caller = 32768",
        ),
        (
            |settings| settings.max_streams = 4,
            "max_streams_per_caller = 2",
        ),
    ] {
        let mut settings = ServerSettings::default();
        settings.grpc_reflection = true;
        change(&mut settings);
        let server = start_with(Echo, |server: Server| server.server_settings(settings)).await;
        let list = MessageRequest::ListServices(String::new());
        let mut client = ServerReflectionClient::new(channel(&server));
        let mut open_requests = Vec::new();
        let mut request = || {
            let (open, dropped) = tokio::sync::oneshot::channel();
            open_requests.push(open);
            let request = ServerReflectionRequest {
                message_request: Some(MessageRequest::ListServices(String::new())),
                ..Default::default()
            };
            OpenRequests(Once(Some(request)), dropped)
        };
        let mut streams = Vec::new();
        for _ in 0..2 {
            let stream = with_deadline(client.server_reflection_info(request())).await;
            let mut stream = stream.unwrap().into_inner();
            assert!(with_deadline(stream.message()).await.unwrap().is_some());
            streams.push(stream);
        }
        let refused = with_deadline(client.server_reflection_info(request())).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(refused.message().contains(limit), "{refused:?}");
        drop(open_requests);
        with_deadline(async { while reflect(&server, list.clone()).await.is_err() {} }).await;
    }
}
