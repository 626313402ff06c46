//! Errors of the gRPC binding.

use attache::model::ErrorKind;
use attache::wire::grpc::from_status;
use attache::{Server, ServerSettings};
use attache_proto::{v1, v03};
use prost::Message;
use serde_json::json;
use tonic::Code;

use super::{Clients, Raw, SEND, clients, framed, say, say_v03, start_card, with};
use crate::harness::{Echo, message, request, start, start_with, with_deadline};

#[tokio::test]
async fn errors_have_details_and_names_in_0_3() {
    let server = start(Echo).await;
    let mut both = clients(&server);
    let get = v1::GetTaskRequest {
        id: "gone".to_owned(),
        ..Default::default()
    };
    let status = with_deadline(both.v1.get_task(get)).await.unwrap_err();
    let error = from_status(&status);
    assert_eq!(
        (status.code(), error.kind()),
        (Code::NotFound, ErrorKind::TaskNotFound)
    );
    assert_eq!(error.metadata().collect::<Vec<_>>(), [("taskId", "gone")]);
    let mut nothing = say("");
    nothing.message.as_mut().unwrap().parts.clear();
    let status = with_deadline(both.v1.send_message(nothing))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let fields: Vec<_> = from_status(&status)
        .violations()
        .iter()
        .map(|one| one.field().to_owned())
        .collect();
    assert!(fields.contains(&"message.parts".to_owned()), "{fields:?}");

    let get = v03::GetTaskRequest {
        name: "tasks/gone".to_owned(),
        ..Default::default()
    };
    let status = with_deadline(both.v03.get_task(get)).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::NotFound, "TaskNotFoundError: Task not found")
    );
    let error = from_status(&status);
    assert_eq!(error.kind(), ErrorKind::TaskNotFound);
    assert_eq!(error.message(), "Task not found");
    assert_eq!(error.metadata().collect::<Vec<_>>(), [("taskId", "gone")]);
    let get = v03::GetTaskRequest {
        name: "gone".to_owned(),
        ..Default::default()
    };
    let status = with_deadline(both.v03.get_task(get)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
}

#[tokio::test]
async fn what_is_not_offered_is_refused_whatever_it_is_about() {
    let server = start_card(|card| {
        card.capabilities.streaming = Some(false);
        card.capabilities.push_notifications = Some(false);
    })
    .await;
    let mut both = clients(&server);
    let config = v1::TaskPushNotificationConfig {
        task_id: "gone".to_owned(),
        url: "https://example.com/".to_owned(),
        ..Default::default()
    };
    let status = with_deadline(both.v1.create_task_push_notification_config(config))
        .await
        .unwrap_err();
    assert_eq!(
        from_status(&status).kind(),
        ErrorKind::PushNotificationNotSupported
    );
    let status = with_deadline(both.v1.send_streaming_message(say("hi")))
        .await
        .unwrap_err();
    assert_eq!(from_status(&status).kind(), ErrorKind::UnsupportedOperation);
    let subscribe = v03::TaskSubscriptionRequest {
        name: "tasks/gone".to_owned(),
    };
    let status = with_deadline(both.v03.task_subscription(subscribe))
        .await
        .unwrap_err();
    assert_eq!(from_status(&status).kind(), ErrorKind::UnsupportedOperation);
}

/// 01 §2, the two gRPC rows: version metadata and the expected result.
#[tokio::test]
async fn the_version_matrix() {
    for strict in [false, true] {
        let mut settings = ServerSettings::default();
        settings.strict_version = strict;
        let server = start_with(Echo, |server: Server| server.server_settings(settings)).await;
        for (version, in_v1, in_v03) in [
            (&[][..], true, true),
            (&[("a2a-version", "")], true, true),
            (&[("a2a-version", "0.3")], false, true),
            (&[("a2a-version", "0.3.0")], false, true),
            (&[("a2a-version", "0.2.5")], false, true),
            (&[("a2a-version", "1.0")], true, false),
            (&[("a2a-version", "1.0.1")], true, false),
            (&[("a2a-version", "1.1")], false, false),
            (&[("a2a-version", "latest")], false, false),
            (
                &[("a2a-version", "1.0"), ("a2a-version", "0.3")],
                false,
                false,
            ),
        ] {
            let Clients { mut v1, mut v03 } = clients(&server);
            let v1 = with_deadline(v1.send_message(with(say("hi"), version)))
                .await
                .map(|_| ());
            let v03 = with_deadline(v03.send_message(with(say_v03("hi"), version)))
                .await
                .map(|_| ());
            for (answer, served) in [(v1, in_v1), (v03, in_v03)] {
                let code = answer
                    .err()
                    .map(|status| (status.code(), from_status(&status).kind()));
                let refused = (Code::FailedPrecondition, ErrorKind::VersionNotSupported);
                assert_eq!(code, (!served).then_some(refused), "{version:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_nobody_serves_is_unimplemented() {
    let server = start(Echo).await;
    let mut raw = Raw::new(&server).await;
    for path in [
        "/lf.a2a.v1.A2AService/Nope",
        "/a2a.v1.A2AService/ListTasks",
        "/a2a.v1.A2AService/Nope",
        "/other.Service/SendMessage",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/grpc.health.v1.Health/Nope",
        "/",
    ] {
        let answer = raw
            .post(path, &[("content-type", "application/grpc")], framed(b""))
            .await;
        assert_eq!(
            (answer.status, answer.code()),
            (200, Code::Unimplemented),
            "{path}"
        );
        assert_eq!(answer.headers["content-type"], "application/grpc");
    }
    let encoded = [
        ("content-type", "application/grpc"),
        ("grpc-encoding", "gzip"),
    ];
    let answer = raw.post(SEND, &encoded, framed(b"")).await;
    assert_eq!(
        (answer.code(), &answer.headers["grpc-accept-encoding"]),
        (Code::Unimplemented, &"identity".parse().unwrap())
    );
}

#[tokio::test]
async fn a_request_is_exactly_one_message_that_can_be_read() {
    let server = start(Echo).await;
    let mut raw = Raw::new(&server).await;
    let headers = [
        ("content-type", "application/grpc+proto"),
        ("te", "trailers"),
        ("grpc-timeout", "99999999H"),
    ];
    let good = framed(&say("hi").encode_to_vec());
    let compressed = [&[1], &good[1..]].concat();
    for body in [
        vec![],
        good[..4].to_vec(),
        good[..good.len() - 1].to_vec(),
        good.repeat(2),
        compressed,
        framed(&[0xff]),
    ] {
        let answer = raw.post(SEND, &headers, body).await;
        assert_eq!(answer.code(), Code::InvalidArgument, "{answer:?}");
    }
    let answer = raw.post(SEND, &headers, good).await;
    assert_eq!(answer.code(), Code::Ok);
    let answer = v1::SendMessageResponse::decode(&answer.body[5..]).unwrap();
    assert!(answer.payload.is_some());
}

#[tokio::test]
async fn the_other_bindings_are_on_the_same_port() {
    let server = start(Echo).await;
    let mut raw = Raw::new(&server).await;
    let body = request("SendMessage", &json!({"message": message("hi", json!({}))}));
    // One connection, both bindings.
    let answer = raw
        .post(
            "/",
            &[("content-type", "application/json")],
            body.clone().into_bytes(),
        )
        .await;
    assert!(
        String::from_utf8_lossy(&answer.body).contains("TASK_STATE_COMPLETED"),
        "{answer:?}"
    );
    let headers = [("content-type", "application/grpc")];
    let answer = raw
        .post(SEND, &headers, framed(&say("hi").encode_to_vec()))
        .await;
    assert_eq!(answer.code(), Code::Ok);
    assert_eq!(
        server.say("hi", json!({})).await["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
    // A request without gRPC content type is treated like any other path.
    for media_type in [
        "application/json",
        "application/grpc-web",
        "application/grpc+json",
    ] {
        let answer = raw
            .post(SEND, &[("content-type", media_type)], b"{}".to_vec())
            .await;
        assert_eq!(answer.status, 404, "{media_type}");
    }
    let head = format!("POST {SEND} HTTP/1.1\r\nContent-Type: application/grpc");
    assert_eq!(server.send(&head, &framed(b"")).await.status, 404);
}
