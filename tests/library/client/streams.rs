//! Event streams over both JSON bindings: positions, resumption and all kinds of end.

use attache::model::{Binding, ErrorKind, Seq, SubscribeToTaskRequest, TaskState, Version};
use attache::{Client, EventStream};
use serde_json::{Value, json};

use super::peer::{Peer, json_response, sse_response};
use crate::harness::with_deadline;

const BINDINGS: [Binding; 2] = [Binding::JsonRpc, Binding::HttpJson];

fn task() -> Value {
    json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}})
}

/// Wraps an event in the envelope of the binding.
fn wrapped(binding: Binding, event: &Value) -> String {
    match binding {
        Binding::JsonRpc => json!({"jsonrpc": "2.0", "id": 1, "result": event}).to_string(),
        _ => event.to_string(),
    }
}

async fn subscribe(
    binding: Binding,
    peer: &Peer,
    after: Option<u64>,
) -> attache::Result<EventStream> {
    let client = Client::new(&peer.url, binding, Version::V1)
        .unwrap()
        .with_max_bytes(1000);
    let request = SubscribeToTaskRequest {
        id: "t".into(),
        ..Default::default()
    };
    with_deadline(client.subscribe_to_task(request, after.map(Seq))).await
}

async fn positions(stream: &mut EventStream) -> (Vec<Option<u64>>, Option<ErrorKind>) {
    let mut found = Vec::new();
    loop {
        match with_deadline(stream.next()).await {
            Some(Ok((position, _))) => found.push(position.map(|Seq(at)| at)),
            Some(Err(error)) => return (found, Some(error.kind())),
            None => return (found, None),
        }
    }
}

#[tokio::test]
async fn positions_are_received_and_sent_to_resume() {
    for binding in BINDINGS {
        let event = wrapped(binding, &task());
        let body = format!(
            "data: {event}\n\nid: 7\ndata: {event}\n\n: hi\n\nid: 9f-uuid\r\ndata: {event}\r\n\r\n"
        );
        let peer = Peer::with_responses(vec![sse_response(body.as_bytes())]).await;
        let mut stream = subscribe(binding, &peer, Some(5)).await.unwrap();
        assert_eq!(
            positions(&mut stream).await,
            (vec![None, Some(7), None], None),
            "{binding}"
        );
        let head = &peer.requests().await[0].head;
        assert!(
            head.contains("\r\nlast-event-id: 5\r\n")
                && head.contains("\r\naccept: text/event-stream\r\n")
        );
    }
}

#[tokio::test]
async fn cut_stream_is_distinguished_from_an_ended_one() {
    for binding in BINDINGS {
        let event = format!("data: {}\n\n", wrapped(binding, &task()));
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (bytes, end) in [
            (format!("{head}{chunk}0\r\n\r\n").into_bytes(), None),
            (
                format!("{head}{chunk}").into_bytes(),
                Some(ErrorKind::Unavailable),
            ),
            (
                sse_response(format!("{event}data: {{").as_bytes()),
                Some(ErrorKind::Unavailable),
            ),
        ] {
            let peer = Peer::with_responses(vec![bytes]).await;
            let mut stream = subscribe(binding, &peer, None).await.unwrap();
            assert_eq!(positions(&mut stream).await, (vec![None], end), "{binding}");
            assert!(with_deadline(stream.next()).await.is_none());
        }
    }
}

#[tokio::test]
async fn s25_event_size_is_limited() {
    for binding in BINDINGS {
        let peer = Peer::with_responses(vec![sse_response(
            format!("data: {}", "x".repeat(5000)).as_bytes(),
        )])
        .await;
        let mut stream = subscribe(binding, &peer, None).await.unwrap();
        let error = with_deadline(stream.next()).await.unwrap().unwrap_err();
        assert_eq!(
            error.message(),
            "Invalid agent response: larger than 1000 bytes"
        );
    }
}

#[tokio::test]
async fn r39_each_event_is_decoded_by_its_own_form() {
    let old = json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": true,
        "status": {"state": "completed"}});
    for binding in BINDINGS {
        let new = wrapped(binding, &task());
        let old = wrapped(binding, &old);
        let peer = Peer::with_responses(vec![sse_response(
            format!("data: {new}\n\ndata: {old}\n\n").as_bytes(),
        )])
        .await;
        let mut stream = subscribe(binding, &peer, None).await.unwrap();
        let mut states = Vec::new();
        while let Some(event) = with_deadline(stream.next()).await {
            states.push(match event.unwrap().1 {
                attache::model::StreamResponse::Task(task) => task.status.state,
                attache::model::StreamResponse::StatusUpdate(event) => event.status.state,
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(states, [TaskState::Working, TaskState::Completed]);
    }
}

#[tokio::test]
async fn refusal_may_replace_the_stream_or_be_its_first_item() {
    let error = json!({"code": -32001, "message": "gone"});
    let jsonrpc = json!({"jsonrpc": "2.0", "id": 1, "error": error});
    let info = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org"});
    let rest = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "gone", "details": [info]}});
    for (binding, body, status) in [
        (Binding::JsonRpc, jsonrpc, 200),
        (Binding::HttpJson, rest, 404),
    ] {
        let named = format!("event: error\ndata: {body}\n\n");
        let plain = format!("data: {body}\n\n");
        let peer = Peer::with_responses(vec![
            json_response(status, &body),
            sse_response(named.as_bytes()),
            sse_response(plain.as_bytes()),
        ])
        .await;
        assert_eq!(
            subscribe(binding, &peer, None).await.unwrap_err().kind(),
            ErrorKind::TaskNotFound
        );
        for _ in 0..2 {
            let mut stream = subscribe(binding, &peer, None).await.unwrap();
            assert_eq!(
                positions(&mut stream).await,
                (vec![], Some(ErrorKind::TaskNotFound)),
                "{binding}"
            );
        }
    }
}

#[tokio::test]
async fn plain_response_is_a_stream_of_one_event() {
    for binding in BINDINGS {
        let event = serde_json::from_str(&wrapped(binding, &task())).unwrap();
        let peer = Peer::with_responses(vec![json_response(200, &event)]).await;
        let mut stream = subscribe(binding, &peer, None).await.unwrap();
        assert_eq!(positions(&mut stream).await, (vec![None], None));
    }
}
