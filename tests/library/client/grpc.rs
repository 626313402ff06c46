//! gRPC binding of the client against tonic servers of both versions.

mod peer;

use attache::Client;
use attache::model::{
    Binding, CancelTaskRequest, DeletePushConfigRequest, ErrorKind, GetExtendedAgentCardRequest,
    GetPushConfigRequest, GetTaskRequest, ListPushConfigsRequest, ListPushConfigsResponse,
    ListTasksRequest, ListTasksResponse, Message, PushConfig, Request, Response,
    SendMessageRequest, SendMessageResponse, Seq, StreamResponse, SubscribeToTaskRequest, Task,
    TaskState, TaskStatus, TaskStatusUpdateEvent, Version,
};
use attache::{AgentCard, Error};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use self::peer::{Peer, ScriptedReply};
use super::{CallResult, call};
use crate::harness::with_deadline;

fn task() -> Task {
    let status = TaskStatus {
        state: TaskState::Working,
        ..TaskStatus::default()
    };
    Task {
        id: "t".into(),
        context_id: "c".into(),
        status,
        ..Task::default()
    }
}

fn events() -> Vec<StreamResponse> {
    let status = TaskStatus {
        state: TaskState::Completed,
        ..TaskStatus::default()
    };
    let ended = TaskStatusUpdateEvent {
        task_id: "t".into(),
        context_id: "c".into(),
        status,
        metadata: None,
    };
    vec![
        StreamResponse::Task(task()),
        StreamResponse::StatusUpdate(ended),
    ]
}

fn config() -> PushConfig {
    let url = "https://example.com/hook".to_owned();
    PushConfig {
        id: Some("p".into()),
        task_id: Some("t".into()),
        url,
        ..PushConfig::default()
    }
}

fn card(version: Version) -> AgentCard {
    AgentCard::new("Tides", "Knows them").interface("127.0.0.1:1", Binding::Grpc, version)
}

/// Returns every unary request with a response to it.
fn calls(version: Version) -> Vec<(Request, Response)> {
    let send = SendMessageRequest {
        configuration: Some(Default::default()),
        ..SendMessageRequest::new(Message::user("hi"))
    };
    let page = ListTasksResponse {
        tasks: vec![task()],
        page_size: 50,
        total_size: 1,
        ..Default::default()
    };
    let list = ListPushConfigsResponse {
        configs: vec![config()],
        ..Default::default()
    };
    vec![
        (
            Request::SendMessage(Box::new(send)),
            Response::SendMessage(SendMessageResponse::Task(task())),
        ),
        (
            Request::GetTask(GetTaskRequest {
                id: "t".into(),
                ..Default::default()
            }),
            Response::Task(task()),
        ),
        (
            Request::ListTasks(ListTasksRequest::default()),
            Response::ListTasks(page),
        ),
        (
            Request::CancelTask(CancelTaskRequest {
                id: "t".into(),
                ..Default::default()
            }),
            Response::Task(task()),
        ),
        (
            Request::CreatePushConfig(Box::new(config())),
            Response::PushConfig(config()),
        ),
        (
            Request::GetPushConfig(GetPushConfigRequest {
                task_id: "t".into(),
                id: Some("p".into()),
                ..Default::default()
            }),
            Response::PushConfig(config()),
        ),
        (
            Request::ListPushConfigs(ListPushConfigsRequest {
                task_id: "t".into(),
                ..Default::default()
            }),
            Response::ListPushConfigs(list),
        ),
        (
            Request::DeletePushConfig(DeletePushConfigRequest {
                task_id: "t".into(),
                id: "p".into(),
                ..Default::default()
            }),
            Response::Empty,
        ),
        (
            Request::GetExtendedAgentCard(GetExtendedAgentCardRequest::default()),
            Response::AgentCard(Box::new(card(version))),
        ),
    ]
}

fn client(peer: &Peer, version: Version) -> Client {
    Client::new(&peer.address.to_string(), Binding::Grpc, version).unwrap()
}

#[tokio::test]
async fn every_call_round_trips() {
    for version in Version::ALL {
        for (request, response) in calls(version) {
            let peer = Peer::start(version, ScriptedReply::Response(response.clone())).await;
            let got = call(&client(&peer, version), request.clone()).await;
            if matches!(request, Request::ListTasks(_)) && version == Version::V03 {
                assert_eq!(got.unwrap_err().kind(), ErrorKind::UnsupportedOperation);
                continue;
            }
            assert_eq!(got, Ok(CallResult::Response(response)), "{version}");
            let received = peer.received();
            assert_eq!(received.request, request, "{version}");
            assert_eq!(received.metadata("a2a-version"), Some(version.as_str()));
        }
    }
}

#[tokio::test]
async fn events_are_delivered_and_the_stream_ends() {
    let requests = [
        Request::SubscribeToTask(SubscribeToTaskRequest {
            id: "t".into(),
            ..Default::default()
        }),
        Request::SendStreamingMessage(Box::new(SendMessageRequest {
            configuration: Some(Default::default()),
            ..SendMessageRequest::new(Message::user("hi"))
        })),
    ];
    for version in Version::ALL {
        for request in &requests {
            let peer = Peer::start(version, ScriptedReply::Events(events(), None)).await;
            let got = call(&client(&peer, version), request.clone()).await;
            assert_eq!(got, Ok(CallResult::Events(events(), None)), "{version}");
            assert_eq!(peer.received().request, *request, "{version}");
        }
    }
}

#[tokio::test]
async fn errors_round_trip_before_and_within_a_stream() {
    let error = || Error::new(ErrorKind::TaskNotFound).with_message("no such t\u{e2}che");
    let subscribe = || {
        Request::SubscribeToTask(SubscribeToTaskRequest {
            id: "t".into(),
            ..Default::default()
        })
    };
    for version in Version::ALL {
        let peer = Peer::start(version, ScriptedReply::Error(error())).await;
        let (request, _) = calls(version).swap_remove(1);
        assert_eq!(
            call(&client(&peer, version), request).await.unwrap_err(),
            error(),
            "{version}"
        );
        assert_eq!(
            call(&client(&peer, version), subscribe())
                .await
                .unwrap_err(),
            error(),
            "{version}"
        );
        let peer = Peer::start(version, ScriptedReply::Events(events(), Some(error()))).await;
        let got = call(&client(&peer, version), subscribe()).await;
        assert_eq!(
            got,
            Ok(CallResult::Events(events(), Some(error()))),
            "{version}"
        );
    }
}

#[tokio::test]
async fn headers_are_sent_as_metadata() {
    let peer = Peer::start(Version::V03, ScriptedReply::Events(events(), None)).await;
    let client = client(&peer, Version::V03)
        .with_extensions(["urn:a"])
        .and_then(|client| client.with_bearer(&"hunter2".into()))
        .unwrap();
    let request = SubscribeToTaskRequest {
        id: "t".into(),
        ..Default::default()
    };
    with_deadline(client.subscribe_to_task(request, Some(Seq(4))))
        .await
        .unwrap();
    let received = peer.received();
    for (name, value) in [
        ("x-a2a-extensions", "urn:a"),
        ("authorization", "Bearer hunter2"),
        ("last-event-id", "4"),
        ("a2a-version", "0.3"),
    ] {
        assert_eq!(received.metadata(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn s25_message_size_is_limited() {
    let mut large = task();
    large.context_id = "c".repeat(5000).into();
    let peer = Peer::start(Version::V1, ScriptedReply::Response(Response::Task(large))).await;
    let (request, _) = calls(Version::V1).swap_remove(1);
    let error = call(&client(&peer, Version::V1).with_max_bytes(1000), request)
        .await
        .unwrap_err();
    assert_eq!(
        error.message(),
        "Invalid agent response: larger than 1000 bytes"
    );
}

#[tokio::test]
async fn unknown_rpc_and_other_servers_are_errors() {
    let (request, response) = calls(Version::V1).swap_remove(1);
    let peer = Peer::start(Version::V03, ScriptedReply::Response(response)).await;
    let error = call(&client(&peer, Version::V1), request.clone())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MethodNotFound);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("grpc://{}", listener.local_addr().unwrap());
    let client = Client::new(&url, Binding::Grpc, Version::V1).unwrap();
    let html = async {
        let (mut stream, _) = with_deadline(listener.accept()).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
    };
    let (error, ()) = tokio::join!(call(&client, request.clone()), html);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    drop(listener);
    assert_eq!(
        call(&client, request).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
}
