//! Receiver of push notifications, with recorded requests.

use std::time::Duration;

use attache::model::{AuthenticationInfo, Binding, ErrorKind, StreamResponse, TaskState, Version};
use attache::{
    Client, PushNotifications, PushReceiver, PushReceiverSettings, PushVerifier, VerificationError,
    VerifiedClaims,
};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::with_deadline;

const STATUS: &str = include_str!("../../golden/v10-push-delivery-status.json");
const ARTIFACT: &str = include_str!("../../golden/v10-push-delivery-artifact.json");
const TASK: &str = include_str!("../../golden/v03-push-delivery-task.json");

/// Deduplication window that covers the recorded requests, which are old.
const LONG_WINDOW: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

fn settings() -> PushReceiverSettings {
    PushReceiverSettings {
        token: Some("tok-5d41402a".into()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("s3cr3t".into()),
        }),
        dedup_window: LONG_WINDOW,
        ..Default::default()
    }
}

fn golden_request(golden: &str) -> Request<Full<Bytes>> {
    let golden: Value = serde_json::from_str(golden).unwrap();
    let recorded = &golden["request"];
    // One of the recorded webhooks has no credentials.
    let mut request = Request::post("/hooks/a2a").header("Authorization", "Bearer s3cr3t");
    let headers = recorded["headers"].as_object().unwrap();
    for (name, value) in headers.iter().filter(|(name, _)| *name != "Authorization") {
        request = request.header(name, value.as_str().unwrap());
    }
    request
        .body(Full::from(recorded["body"].to_string()))
        .unwrap()
}

async fn post(receiver: &PushReceiver, request: Request<Full<Bytes>>) -> u16 {
    with_deadline(receiver.handle(request))
        .await
        .status()
        .as_u16()
}

fn is_empty(accepted: &mut PushNotifications) -> bool {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    pin!(accepted.next()).poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending
}

#[tokio::test]
async fn bodies_of_both_versions_are_accepted() {
    let (receiver, mut accepted) = PushReceiver::new(settings());
    for golden in [STATUS, ARTIFACT, TASK] {
        assert_eq!(post(&receiver, golden_request(golden)).await, 200);
    }
    let mut next = async || with_deadline(accepted.next()).await.unwrap();
    let first = next().await;
    assert_eq!(
        first.task_id().unwrap().as_str(),
        "e0370734-9313-4e6f-8f2b-94c9a2b1d002"
    );
    assert!(
        matches!(first.event, StreamResponse::StatusUpdate(it) if it.status.state == TaskState::Completed)
    );
    assert!(matches!(
        next().await.event,
        StreamResponse::ArtifactUpdate(_)
    ));
    assert!(matches!(next().await.event, StreamResponse::Task(it) if it.artifacts.len() == 1));
}

#[tokio::test]
async fn requests_without_token_or_credentials_are_refused() {
    let (receiver, mut accepted) = PushReceiver::new(settings());
    let edits: [fn(&mut http::HeaderMap); 6] = [
        |headers| drop(headers.remove("authorization")),
        |headers| drop(headers.insert("authorization", "Bearer s3cr3t2".parse().unwrap())),
        |headers| drop(headers.insert("authorization", "Basic s3cr3t".parse().unwrap())),
        |headers| drop(headers.insert("a2a-notification-token", "tok".parse().unwrap())),
        |headers| assert!(headers.append("x-a2a-notification-token", "tok".parse().unwrap())),
        |headers| {
            headers.remove("a2a-notification-token");
            headers.remove("x-a2a-notification-token");
        },
    ];
    for (at, edit) in edits.iter().enumerate() {
        let mut request = golden_request(STATUS);
        edit(request.headers_mut());
        assert_eq!(post(&receiver, request).await, 401, "{at}");
    }
    assert!(is_empty(&mut accepted));
    // Both header names of the token are accepted, and any case of the scheme.
    let mut request = golden_request(STATUS);
    request.headers_mut().remove("a2a-notification-token");
    request
        .headers_mut()
        .insert("authorization", "bearer s3cr3t".parse().unwrap());
    assert_eq!(post(&receiver, request).await, 200);
    assert!(!is_empty(&mut accepted));
}

#[tokio::test]
async fn duplicates_are_dropped() {
    let (receiver, mut accepted) = PushReceiver::new(settings());
    let named = |golden, id: &str| {
        let mut request = golden_request(golden);
        request
            .headers_mut()
            .insert("a2a-event-id", id.parse().unwrap());
        request
    };
    for request in [
        golden_request(STATUS),
        golden_request(STATUS),
        named(STATUS, "1"),
        named(ARTIFACT, "1"),
    ] {
        assert_eq!(post(&receiver, request).await, 200);
    }
    assert_eq!(with_deadline(accepted.next()).await.unwrap().id, None);
    assert_eq!(
        with_deadline(accepted.next()).await.unwrap().id.as_deref(),
        Some("1")
    );
    assert!(is_empty(&mut accepted));
}

#[tokio::test]
async fn equal_chunks_are_not_duplicates() {
    let (receiver, mut accepted) = PushReceiver::new(PushReceiverSettings::default());
    let chunk = json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": true,
        "artifact": {"artifactId": "a", "parts": [{"text": "ha"}]}}});
    for _ in 0..2 {
        let request = Request::post("/")
            .body(Full::from(chunk.to_string()))
            .unwrap();
        assert_eq!(post(&receiver, request).await, 200);
        assert!(with_deadline(accepted.next()).await.is_some());
    }
}

/// Verifier that accepts every request and takes its id from a header.
struct HeaderVerifier;

#[attache::auth::async_trait]
impl PushVerifier for HeaderVerifier {
    async fn verify(
        &self,
        headers: &http::HeaderMap,
        _: &[u8],
    ) -> Result<VerifiedClaims, VerificationError> {
        let request_id = headers
            .get("x-request")
            .and_then(|id| id.to_str().ok())
            .map(str::to_owned);
        Ok(VerifiedClaims {
            request_id,
            ..VerifiedClaims::default()
        })
    }
}

/// R13: a server that was down for days delivers old notifications, but a replay needs its signature.
#[tokio::test]
async fn r13_old_notifications_need_a_verified_request_id() {
    let window = Duration::from_secs(60);
    let settings = || PushReceiverSettings {
        dedup_window: window,
        ..settings()
    };
    let (receiver, mut accepted) = PushReceiver::new(settings());
    let (verified, mut verified_accepted) = PushReceiver::new(settings());
    let verified = verified.with_verifier(HeaderVerifier);
    let event = json!({"statusUpdate": {"taskId": "t", "contextId": "c",
        "status": {"state": "TASK_STATE_WORKING", "timestamp": "2020-01-01T00:00:00Z"}}});
    let mut request = golden_request(STATUS);
    *request.body_mut() = Full::from(event.to_string());
    // Acknowledged although dropped: an error would make the sender give up.
    assert_eq!(post(&receiver, request.clone()).await, 200);
    assert!(is_empty(&mut accepted));
    assert_eq!(post(&verified, request.clone()).await, 200);
    assert!(is_empty(&mut verified_accepted), "no verified request id");
    request
        .headers_mut()
        .insert("x-request", "r-1".parse().unwrap());
    for _ in 0..2 {
        assert_eq!(post(&verified, request.clone()).await, 200);
    }
    assert!(with_deadline(verified_accepted.next()).await.is_some());
    assert!(is_empty(&mut verified_accepted), "a replay is dropped");
}

#[tokio::test]
async fn s25_body_size_and_queue_are_bounded() {
    let bounds = PushReceiverSettings {
        max_bytes: 1000,
        queue_capacity: 1,
        ..settings()
    };
    let (receiver, mut accepted) = PushReceiver::new(bounds);
    let mut large = golden_request(STATUS);
    *large.body_mut() = Full::from("x".repeat(1001));
    assert_eq!(post(&receiver, large).await, 413);
    assert_eq!(post(&receiver, golden_request(STATUS)).await, 200);
    let busy = with_deadline(receiver.handle(golden_request(ARTIFACT))).await;
    assert_eq!(
        (
            busy.status().as_u16(),
            busy.headers()["retry-after"].as_bytes()
        ),
        (503, &b"5"[..])
    );
    // It was not accepted, so a retry is not a duplicate.
    with_deadline(accepted.next()).await.unwrap();
    assert_eq!(post(&receiver, golden_request(ARTIFACT)).await, 200);
    assert!(matches!(
        with_deadline(accepted.next()).await.unwrap().event,
        StreamResponse::ArtifactUpdate(_)
    ));
}

#[tokio::test]
async fn invalid_notifications_are_refused() {
    let (receiver, mut accepted) = PushReceiver::new(PushReceiverSettings::default());
    for body in ["", "{}", "[]", "{\"task\":1}", "\u{0}"] {
        let request = Request::post("/").body(Full::from(body)).unwrap();
        assert_eq!(post(&receiver, request).await, 400, "{body}");
    }
    let request = Request::get("/").body(Full::default()).unwrap();
    assert_eq!(post(&receiver, request).await, 405);
    assert!(is_empty(&mut accepted));
}

#[tokio::test]
async fn receiver_serves_http() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (receiver, mut accepted) = PushReceiver::new(settings());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let golden: Value = serde_json::from_str(STATUS).unwrap();
    let body = golden["request"]["body"].to_string();
    let posting = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer s3cr3t\r\n\
             A2A-Notification-Token: tok-5d41402a\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        (answer, accepted.next().await)
    };
    tokio::select! {
        () = receiver.serve(listener) => panic!("it serves until it is dropped"),
        (answer, notification) = with_deadline(posting) => {
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(notification.is_some());
        }
    }
}

/// D20: silent connections beyond the limit are closed for new ones, and a sender with credentials stays.
#[tokio::test]
async fn d20_silent_connections_do_not_lock_senders_out() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (receiver, mut accepted) = PushReceiver::new(PushReceiverSettings {
        max_connections: 8,
        header_timeout: Duration::from_secs(600),
        ..settings()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || with_deadline(tokio::net::TcpStream::connect(address));
    let golden: Value = serde_json::from_str(STATUS).unwrap();
    let body = golden["request"]["body"].to_string();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cr3t\r\n\
         A2A-Notification-Token: tok-5d41402a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let posting = async {
        let mut silent = Vec::new();
        for _ in 0..50 {
            silent.push(connect().await.unwrap());
        }
        // Authenticated with its head; its body arrives after 50 more silent connections.
        let mut sender = connect().await.unwrap();
        sender.write_all(head.as_bytes()).await.unwrap();
        let mut other = connect().await.unwrap();
        other.write_all(head.as_bytes()).await.unwrap();
        other.write_all(body.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        with_deadline(other.read_exact(&mut status)).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        for _ in 0..50 {
            silent.push(connect().await.unwrap());
        }
        sender.write_all(body.as_bytes()).await.unwrap();
        with_deadline(sender.read_exact(&mut status)).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        with_deadline(accepted.next()).await
    };
    tokio::select! {
        () = receiver.serve(listener) => panic!("it serves until it is dropped"),
        notification = posting => assert!(notification.is_some()),
    }
}

/// S73: age and required claims of a token with a valid signature.
#[cfg(feature = "jws")]
#[tokio::test]
async fn s73_token_needs_time_audience_and_id() {
    use super::peer::{Peer, json_response};
    use attache::jws::{PublishedKeys, Signer};

    let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let signer = Signer::from_pem(&pem, "k").unwrap();
    let peer = Peer::with_responses(vec![json_response(
        200,
        &json!({"keys": [signer.public_key()]}),
    )])
    .await;
    let keys = PublishedKeys::from_url(&format!("{}/keys", peer.url)).unwrap();
    let (receiver, mut accepted) = PushReceiver::new(PushReceiverSettings {
        dedup_window: LONG_WINDOW,
        ..Default::default()
    });
    let receiver = receiver.with_verifier(
        attache::PushSignatureVerifier::new(keys).audience("https://me.example/hook"),
    );
    let golden: Value = serde_json::from_str(STATUS).unwrap();
    let body = golden["request"]["body"].to_string();
    let digest: String =
        sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(&body))
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
    let now = jiff::Timestamp::now().as_second();
    let mut number = 0;
    let mut token = |change: Value| {
        number += 1;
        let mut claims = json!({"iss": "https://a.example", "aud": "https://me.example/hook", "iat": now,
            "exp": now + 300, "jti": number.to_string(), "request_body_sha256": digest});
        claims
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        signer.sign_token(&claims).unwrap()
    };
    let posted = |token: String| {
        let request = Request::post("/").header("a2a-notification-jwt", token);
        request.body(Full::from(body.clone())).unwrap()
    };
    for (case, change) in [
        ("expired", json!({"iat": now - 500, "exp": now - 120})),
        (
            "too old despite its expiry",
            json!({"iat": now - 3600, "exp": now + 3600}),
        ),
        (
            "issued in the future",
            json!({"iat": now + 3600, "exp": now + 7200}),
        ),
        (
            "another audience",
            json!({"aud": ["https://other.example/"]}),
        ),
        ("no audience", json!({"aud": null})),
        ("no id", json!({"jti": ""})),
        ("no digest", json!({"request_body_sha256": null})),
        ("another task", json!({"taskId": "another"})),
    ] {
        assert_eq!(post(&receiver, posted(token(change))).await, 401, "{case}");
    }
    let forged = token(json!({})).replace("eyJ", "eyK");
    assert_eq!(post(&receiver, posted(forged)).await, 401);
    let stranger =
        Signer::from_pem(&rcgen::KeyPair::generate().unwrap().serialize_pem(), "k").unwrap();
    assert_eq!(
        post(
            &receiver,
            posted(stranger.sign_token(&json!({"jti": "x"})).unwrap())
        )
        .await,
        401
    );
    assert!(is_empty(&mut accepted));
    assert_eq!(
        post(
            &receiver,
            posted(token(json!({"aud": ["x", "https://me.example/hook"]})))
        )
        .await,
        200
    );
    assert!(with_deadline(accepted.next()).await.is_some());
    assert_eq!(peer.requests().await.len(), 1, "the keys were read once");
}

/// The content of a notification is not trusted: the task is read from its agent.
#[tokio::test]
async fn s74_task_is_read_from_its_agent() {
    use super::peer::{Peer, json_response};
    let (receiver, mut accepted) = PushReceiver::new(PushReceiverSettings {
        dedup_window: LONG_WINDOW,
        ..settings()
    });
    assert_eq!(post(&receiver, golden_request(STATUS)).await, 200);
    let notification = with_deadline(accepted.next()).await.unwrap();
    let id = notification.task_id().unwrap().clone();
    let now =
        json!({"id": id.as_str(), "contextId": "c", "status": {"state": "TASK_STATE_REJECTED"}});
    let missing =
        json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "Task not found"}});
    let peer =
        Peer::with_responses(vec![json_response(200, &now), json_response(404, &missing)]).await;
    let client = Client::new(&peer.url, Binding::HttpJson, Version::V1).unwrap();
    let task = with_deadline(notification.task(&client))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(task.status.state, TaskState::Rejected);
    assert_eq!(
        with_deadline(notification.task(&client))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::TaskNotFound
    );
    assert!(
        peer.requests()
            .await
            .iter()
            .all(|request| request.target == format!("GET /tasks/{id}"))
    );
}
