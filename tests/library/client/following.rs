//! Task streams: reconnects, polling and deduplication with every kind of peer.

use std::time::{Duration, Instant};

use attache::model::{
    Binding, ErrorKind, Message, SendMessageResponse, StreamResponse, TaskState, Version,
};
use attache::{Client, ClientSettings, Outcome, PollingPolicy, RetryPolicy, TaskStream, Timeouts};
use serde_json::{Value, json};

use super::peer::{Peer, http_response, json_response, sse_response};
use crate::harness::everywhere::event_text;
use crate::harness::{SteppedAgent, start, with_deadline};

/// Settings with delays of 1 ms.
pub(super) fn fast_settings() -> ClientSettings {
    let moment = Duration::from_millis(1);
    ClientSettings {
        retries: RetryPolicy {
            initial_delay: moment,
            ..RetryPolicy::default()
        },
        polling: PollingPolicy {
            initial_interval: moment,
            max_interval: moment,
        },
        ..ClientSettings::default()
    }
}

pub(super) fn client(peer: &Peer) -> Client {
    Client::new(&peer.url, Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_settings(fast_settings())
}

pub(super) fn rpc_result(result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

pub(super) fn rpc_error(code: i32) -> Vec<u8> {
    json_response(
        200,
        &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}}),
    )
}

/// Returns a task. Its timestamp has no zone, as one kind of server writes it.
pub(super) fn task(state: &str) -> Value {
    let status =
        json!({"state": format!("TASK_STATE_{state}"), "timestamp": "2026-11-16T10:00:00.123"});
    json!({"id": "t", "contextId": "c", "status": status})
}

fn status(state: &str) -> Value {
    json!({"statusUpdate": {"taskId": "t", "contextId": "c",
        "status": {"state": format!("TASK_STATE_{state}")}}})
}

fn chunk(text: &str, append: bool) -> Value {
    let artifact = json!({"artifactId": "a", "parts": [{"text": text}]});
    json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": append}})
}

pub(super) fn task_response(state: &str) -> Vec<u8> {
    json_response(200, &rpc_result(&task(state)))
}

/// Returns a response with a stream of events and their positions.
fn stream(list: &[(Option<u64>, Value)]) -> Vec<u8> {
    let body: String = list
        .iter()
        .map(|(id, event)| {
            let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
            format!("{id}data: {}\n\n", rpc_result(event))
        })
        .collect();
    sse_response(body.as_bytes())
}

fn stream_without_positions(list: &[Value]) -> Vec<u8> {
    stream(
        &list
            .iter()
            .map(|event| (None, event.clone()))
            .collect::<Vec<_>>(),
    )
}

async fn event_texts(task_stream: &mut TaskStream) -> (Vec<String>, Option<ErrorKind>) {
    let mut all = Vec::new();
    loop {
        match with_deadline(task_stream.next()).await {
            Some(Ok(event)) => all.push(event_text(&event)),
            Some(Err(error)) => return (all, Some(error.kind())),
            None => return (all, None),
        }
    }
}

/// Streams a message to a peer with these responses. Returns the events, the error and the methods that were called.
async fn stream_message(answers: Vec<Vec<u8>>) -> (Vec<String>, Option<ErrorKind>, Vec<String>) {
    let peer = Peer::with_responses(answers).await;
    let mut task_stream = with_deadline(client(&peer).stream(Message::user("hi")))
        .await
        .unwrap();
    let (events, error) = event_texts(&mut task_stream).await;
    let requests = peer.requests().await;
    let methods = requests.iter().map(|requests| {
        let body: Value = serde_json::from_slice(&requests.body).unwrap();
        body["method"].as_str().unwrap().to_owned()
    });
    (events, error, methods.collect())
}

async fn send_message(answers: Vec<Vec<u8>>) -> attache::Result<SendMessageResponse> {
    let peer = Peer::with_responses(answers).await;
    let answer = with_deadline(client(&peer).send(Message::user("hi"))).await;
    peer.requests().await;
    answer
}

#[tokio::test]
async fn r02_clean_end_before_the_task_ends_is_a_cut() {
    let first = stream(&[
        (Some(1), json!({"task": task("WORKING")})),
        (Some(2), chunk("a", false)),
    ]);
    let rest = stream(&[(Some(3), chunk("b", true)), (Some(4), status("COMPLETED"))]);
    let (events, error, methods) = stream_message(vec![first, rest]).await;
    assert_eq!(
        events,
        ["task active", "artifact a", "chunk b", "status completed"]
    );
    assert_eq!(
        (error, methods),
        (
            None,
            vec!["SendStreamingMessage".into(), "SubscribeToTask".into()]
        )
    );
}

#[tokio::test]
async fn r03_events_are_not_repeated_after_a_reconnect() {
    let all = [
        (Some(1), json!({"task": task("WORKING")})),
        (Some(2), chunk("a", false)),
        (Some(3), chunk("b", true)),
        (Some(4), status("COMPLETED")),
    ];
    for cut in 1..all.len() {
        for from in 0..=cut {
            let (events, error, _) =
                stream_message(vec![stream(&all[..cut]), stream(&all[from..])]).await;
            assert_eq!(
                events,
                ["task active", "artifact a", "chunk b", "status completed"],
                "{cut} {from}"
            );
            assert_eq!(error, None);
        }
    }
}

#[tokio::test]
async fn r03_snapshot_fills_the_gap_without_positions() {
    let mut whole = task("WORKING");
    whole["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "ab"}]}]);
    let first = stream_without_positions(&[json!({"task": task("WORKING")}), chunk("a", false)]);
    let rest = stream_without_positions(&[
        json!({"task": whole}),
        chunk("c", true),
        status("COMPLETED"),
    ]);
    let (events, ..) = stream_message(vec![first.clone(), rest.clone()]).await;
    assert_eq!(
        events,
        [
            "task active",
            "artifact a",
            "task active",
            "chunk c",
            "status completed"
        ]
    );
    let SendMessageResponse::Task(task) = send_message(vec![rpc_error(-32601), first, rest])
        .await
        .unwrap()
    else {
        panic!("no task");
    };
    assert_eq!(task.text(), "abc");
}

#[tokio::test]
async fn r03_task_is_refetched_if_a_stream_resumes_without_it() {
    let mut whole = task("COMPLETED");
    whole["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "abc"}]}]);
    let first = stream_without_positions(&[json!({"task": task("WORKING")}), chunk("a", false)]);
    let rest = stream_without_positions(&[chunk("c", true), status("COMPLETED")]);
    let (events, ..) =
        stream_message(vec![first, rest, json_response(200, &rpc_result(&whole))]).await;
    assert_eq!(
        events,
        [
            "task active",
            "artifact a",
            "chunk c",
            "status completed",
            "task completed"
        ]
    );
}

#[tokio::test]
async fn r04_task_that_ended_during_a_cut_is_read() {
    for code in [-32004, -32602, -32601] {
        let first = stream_without_positions(&[json!({"task": task("WORKING")})]);
        let (events, error, methods) =
            stream_message(vec![first, rpc_error(code), task_response("FAILED")]).await;
        assert_eq!(events, ["task active", "task failed"]);
        assert_eq!(
            (error, methods.last().map(String::as_str)),
            (None, Some("GetTask"))
        );
    }
}

#[tokio::test]
async fn r36_early_response_to_a_blocking_send_is_followed() {
    let subscribed =
        stream_without_positions(&[json!({"task": task("WORKING")}), status("COMPLETED")]);
    let answer = send_message(vec![task_response("SUBMITTED"), subscribed])
        .await
        .unwrap();
    assert_eq!(answer.state(), TaskState::Completed);
    let polled = vec![
        task_response("SUBMITTED"),
        rpc_error(-32004),
        task_response("WORKING"),
        task_response("WORKING"),
        task_response("COMPLETED"),
    ];
    assert_eq!(
        send_message(polled).await.unwrap().state(),
        TaskState::Completed
    );
}

#[tokio::test]
async fn r37_peers_with_only_one_send_operation_work() {
    let whole = stream_without_positions(&[
        json!({"task": task("WORKING")}),
        chunk("a", false),
        status("COMPLETED"),
    ]);
    let answer = send_message(vec![rpc_error(-32601), whole]).await.unwrap();
    assert_eq!(
        (answer.state(), answer.text().as_str()),
        (TaskState::Completed, "a")
    );
    let (events, error, methods) = stream_message(vec![
        rpc_error(-32004),
        task_response("WORKING"),
        rpc_error(-32004),
        task_response("COMPLETED"),
    ])
    .await;
    assert_eq!(
        (events, error),
        (
            vec!["task active".to_owned(), "task completed".to_owned()],
            None
        )
    );
    assert_eq!(
        methods,
        [
            "SendStreamingMessage",
            "SendMessage",
            "SubscribeToTask",
            "GetTask"
        ]
    );
    let neither = send_message(vec![rpc_error(-32601), rpc_error(-32004)])
        .await
        .unwrap_err();
    assert_eq!(neither.kind(), ErrorKind::UnsupportedOperation);
}

#[tokio::test]
async fn r37_unreadable_task_is_returned_as_known() {
    let peer = Peer::with_responses(vec![
        stream_without_positions(&[json!({"task": task("WORKING")}), chunk("a", false)]),
        rpc_error(-32004),
        rpc_error(-32601),
    ])
    .await;
    let mut task_stream = with_deadline(client(&peer).stream(Message::user("hi")))
        .await
        .unwrap();
    let (events, error) = event_texts(&mut task_stream).await;
    assert_eq!((events.len(), error), (2, Some(ErrorKind::MethodNotFound)));
    assert_eq!(task_stream.task().unwrap().text(), "a");
    peer.requests().await;
}

#[tokio::test]
async fn r38_early_end_of_stream_is_followed_by_get_task() {
    let first = stream_without_positions(&[json!({"task": task("WORKING")})]);
    let (events, ..) = stream_message(vec![
        first,
        rpc_error(-32004),
        task_response("WORKING"),
        task_response("COMPLETED"),
    ])
    .await;
    assert_eq!(events, ["task active", "task completed"]);
}

#[tokio::test]
async fn r39_versions_may_be_mixed_within_a_stream() {
    let old = json!({"kind": "status-update", "contextId": "c", "final": false,
        "status": {"state": "TASK_STATE_WORKING", "message": {"kind": "message", "role": "ROLE_AGENT",
        "messageId": "m", "parts": [{"kind": "text", "text": "at it"}]}}});
    let made = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c",
        "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "done"}]}});
    let end = json!({"kind": "status-update", "taskId": "t", "final": true, "status": {"state": "completed"}});
    let (events, error, _) = stream_message(vec![stream_without_positions(&[
        json!({"task": task("SUBMITTED")}),
        old,
        made,
        end,
    ])])
    .await;
    assert_eq!(
        events,
        [
            "task active",
            "status working: at it",
            "artifact done",
            "status completed"
        ]
    );
    assert_eq!(error, None);
}

#[tokio::test]
async fn resumed_stream_returns_the_complete_task_without_repeats() {
    let rest = || {
        stream(&[
            (Some(6), chunk("two", false)),
            (Some(7), status("COMPLETED")),
        ])
    };
    let mut whole = task("COMPLETED");
    let artifact = |id: &str| json!({"artifactId": id, "parts": [{"text": id}]});
    whole["artifacts"] = json!([artifact("before"), artifact("a")]);
    let peer = Peer::with_responses(vec![rest(), json_response(200, &rpc_result(&whole))]).await;
    let task_stream = client(&peer).follow("t", Some(attache::model::Seq(5)));
    let SendMessageResponse::Task(found) = with_deadline(task_stream.finish()).await.unwrap()
    else {
        panic!("a task")
    };
    assert_eq!(found.artifacts.len(), 2);
    let peer = Peer::with_responses(vec![rest()]).await;
    let mut task_stream = client(&peer).follow("t", Some(attache::model::Seq(5)));
    assert_eq!(event_texts(&mut task_stream).await.0.len(), 2);
}

#[tokio::test]
async fn s67_rate_limited_client_backs_off() {
    let limited = || http_response(429, "Content-Type: application/json\r\n", "");
    let done = stream_without_positions(&[json!({"task": task("COMPLETED")})]);
    let peer = Peer::with_responses(vec![limited(), limited(), done.clone()]).await;
    let mut settings = fast_settings();
    settings.retries.initial_delay = Duration::from_millis(60);
    let began = Instant::now();
    let mut task_stream = with_deadline(
        client(&peer)
            .with_settings(settings)
            .stream(Message::user("hi")),
    )
    .await
    .unwrap();
    assert_eq!(
        event_texts(&mut task_stream).await,
        (vec!["task completed".to_owned()], None)
    );
    // At least half of 60 ms and of 120 ms.
    assert!(
        began.elapsed() >= Duration::from_millis(90),
        "{:?}",
        began.elapsed()
    );
    // `Retry-After` of the peer takes precedence.
    let peer = Peer::with_responses(vec![http_response(429, "Retry-After: 1\r\n", ""), done]).await;
    let mut settings = fast_settings();
    settings.timeouts.wait = Some(Duration::from_millis(50));
    let refused = with_deadline(
        client(&peer)
            .with_settings(settings)
            .stream(Message::user("hi")),
    )
    .await
    .err();
    assert_eq!(
        refused.map(|error| error.kind()),
        Some(ErrorKind::DeadlineExceeded)
    );
}

#[tokio::test]
async fn r39_unknown_event_does_not_end_the_stream() {
    let first =
        stream_without_positions(&[json!({"task": task("WORKING")}), json!({"surprise": true})]);
    let (events, ..) = stream_message(vec![first, task_response("COMPLETED")]).await;
    assert_eq!(events, ["task active", "task completed"]);
}

#[tokio::test]
async fn s74_events_of_other_tasks_are_ignored() {
    let mut other = status("FAILED");
    other["statusUpdate"]["taskId"] = json!("other-task");
    let list = [json!({"task": task("WORKING")}), other, status("COMPLETED")];
    assert_eq!(
        stream_message(vec![stream_without_positions(&list)])
            .await
            .0,
        ["task active", "status completed"]
    );
}

#[tokio::test]
async fn r42_timeout_error_contains_the_task_id() {
    let peer = Peer::with_open_stream(vec![stream_without_positions(&[
        json!({"task": task("WORKING")}),
    ])])
    .await;
    let mut settings = fast_settings();
    settings.timeouts.wait = Some(Duration::from_millis(100));
    let client = client(&peer).with_settings(settings);
    let mut task_stream = with_deadline(client.stream(Message::user("hi")))
        .await
        .unwrap();
    assert!(matches!(
        with_deadline(task_stream.next()).await,
        Some(Ok(StreamResponse::Task(_)))
    ));
    let error = with_deadline(task_stream.next())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.metadata().collect::<Vec<_>>(), [("taskId", "t")]);
    assert!(with_deadline(task_stream.next()).await.is_none());
}

#[tokio::test]
async fn r52_follower_resumes_after_an_absence() {
    let first = stream(&[(Some(1), json!({"task": task("WORKING")}))]);
    let busy = http_response(503, "Retry-After: 0\r\n", "");
    let hung_up = Vec::new();
    let rest = stream(&[(Some(2), status("COMPLETED"))]);
    let (events, error, methods) = stream_message(vec![first, hung_up, busy, rest]).await;
    assert_eq!((events.len(), error, methods.len()), (2, None, 4));
    let first = stream(&[(Some(1), json!({"task": task("WORKING")}))]);
    let mut answers = vec![first];
    answers.extend((0..4).map(|_| Vec::new()));
    let (events, error, _) = stream_message(answers).await;
    assert_eq!(
        (events.len(), error),
        (1, Some(ErrorKind::Unavailable)),
        "it is given up in the end"
    );
}

#[tokio::test]
async fn r02_idle_timeout_is_a_cut() {
    let peer = Peer::with_open_stream(vec![
        stream_without_positions(&[json!({"task": task("WORKING")})]),
        stream_without_positions(&[json!({"task": task("WORKING")}), status("COMPLETED")]),
    ])
    .await;
    let timeouts = Timeouts {
        idle: Duration::from_millis(100),
        ..Timeouts::default()
    };
    let client = client(&peer).with_settings(ClientSettings {
        timeouts,
        ..fast_settings()
    });
    let mut task_stream = with_deadline(client.stream(Message::user("hi")))
        .await
        .unwrap();
    assert_eq!(
        event_texts(&mut task_stream).await.0,
        ["task active", "status completed"]
    );
    assert_eq!(task_stream.reconnects(), 1);
}

#[tokio::test]
async fn interrupted_and_failed_tasks_are_responses() {
    for state in [
        "INPUT_REQUIRED",
        "AUTH_REQUIRED",
        "FAILED",
        "REJECTED",
        "CANCELED",
    ] {
        let answer = send_message(vec![task_response(state)]).await.unwrap();
        assert_eq!(answer.state().as_str(), format!("TASK_STATE_{state}"));
    }
    let asking =
        stream_without_positions(&[json!({"task": task("WORKING")}), status("INPUT_REQUIRED")]);
    let (events, error, _) = stream_message(vec![asking]).await;
    assert_eq!(
        (events.last().map(String::as_str), error),
        (Some("status input_required"), None)
    );
}

#[tokio::test]
async fn dropped_stream_can_cancel_its_task() {
    let peer = Peer::with_responses(vec![
        stream_without_positions(&[json!({"task": task("WORKING")})]),
        task_response("CANCELED"),
    ])
    .await;
    let mut task_stream = with_deadline(client(&peer).stream(Message::user("hi")))
        .await
        .unwrap()
        .cancel_on_drop();
    with_deadline(task_stream.next()).await.unwrap().unwrap();
    drop(task_stream);
    let requests = peer.requests().await;
    assert!(String::from_utf8_lossy(&requests[1].body).contains("CancelTask"));
}

#[tokio::test]
async fn r04_peer_that_closes_the_stream_of_an_ended_task_is_polled() {
    let first = stream_without_positions(&[json!({"task": task("WORKING")})]);
    let (events, error, methods) =
        stream_message(vec![first, sse_response(b""), task_response("COMPLETED")]).await;
    assert_eq!(
        (events.last().map(String::as_str), error),
        (Some("task completed"), None)
    );
    assert_eq!(methods[1..], ["SubscribeToTask", "GetTask"]);
}

#[tokio::test]
async fn state_before_the_message_is_not_the_response() {
    let list = [
        json!({"task": task("INPUT_REQUIRED")}),
        status("WORKING"),
        status("COMPLETED"),
    ];
    let mut more = Message::user("more");
    more.task_id = Some("t".into());
    let peer = Peer::with_responses(vec![stream_without_positions(&list)]).await;
    let task_stream = with_deadline(client(&peer).stream(more.clone()))
        .await
        .unwrap();
    assert_eq!(
        with_deadline(task_stream.finish()).await.unwrap().state(),
        TaskState::Completed
    );
    let peer = Peer::with_responses(vec![stream_without_positions(&list[..1])]).await;
    let task_stream = with_deadline(client(&peer).stream(more)).await.unwrap();
    assert_eq!(
        with_deadline(task_stream.finish()).await.unwrap().state(),
        TaskState::InputRequired
    );
}

#[tokio::test]
async fn wait_through_continues_in_interrupted_states() {
    // The stream ends in an interrupted state, but following continues.
    let waits = || stream_without_positions(&[json!({"task": task("AUTH_REQUIRED")})]);
    let done =
        stream_without_positions(&[json!({"task": task("AUTH_REQUIRED")}), status("COMPLETED")]);
    let peer = Peer::with_responses(vec![waits(), done]).await;
    let task_stream = client(&peer)
        .follow("t", None)
        .wait_through([TaskState::AuthRequired]);
    assert_eq!(
        with_deadline(task_stream.finish()).await.unwrap().state(),
        TaskState::Completed
    );
    let peer = Peer::with_responses(vec![
        task_response("AUTH_REQUIRED"),
        task_response("AUTH_REQUIRED"),
        task_response("COMPLETED"),
    ])
    .await;
    let task_stream = client(&peer)
        .follow("t", None)
        .wait_through([TaskState::AuthRequired])
        .with_polling();
    assert_eq!(
        with_deadline(task_stream.finish()).await.unwrap().state(),
        TaskState::Completed
    );
    let peer = Peer::with_responses(vec![waits()]).await;
    let task_stream = client(&peer).follow("t", None);
    assert_eq!(
        with_deadline(task_stream.finish()).await.unwrap().state(),
        TaskState::AuthRequired
    );
}

#[tokio::test]
async fn r04_require_streaming_fails_until_the_first_event() {
    let peer = Peer::with_responses(vec![rpc_error(-32004)]).await;
    let mut task_stream = client(&peer).follow("t", None).require_streaming();
    assert_eq!(
        event_texts(&mut task_stream).await,
        (vec![], Some(ErrorKind::UnsupportedOperation))
    );
    let first = stream_without_positions(&[json!({"task": task("WORKING")})]);
    let peer =
        Peer::with_responses(vec![first, rpc_error(-32004), task_response("COMPLETED")]).await;
    let mut task_stream = client(&peer).follow("t", None).require_streaming();
    assert_eq!(
        event_texts(&mut task_stream).await.0,
        ["task active", "task completed"]
    );
}

#[tokio::test]
async fn message_to_an_ended_task_is_not_sent_twice() {
    let card =
        serde_json::from_value(json!({"name": "A", "capabilities": {"streaming": true}})).unwrap();
    let mut more = Message::user("more");
    more.task_id = Some("t".into());
    let peer = Peer::with_responses(vec![rpc_error(-32004)]).await;
    let refused = with_deadline(client(&peer).with_card(card).stream(more))
        .await
        .err()
        .unwrap();
    assert_eq!(
        (refused.kind(), peer.requests().await.len()),
        (ErrorKind::UnsupportedOperation, 1)
    );
}

#[tokio::test]
async fn r42_task_that_ends_after_a_timeout_can_be_read() {
    let (agent, mut strings) = SteppedAgent::new();
    let server = start(agent).await;
    let at = format!("http://{}/", server.address);
    let mut settings = fast_settings();
    settings.timeouts.wait = Some(Duration::from_millis(100));
    let impatient = Client::new(&at, Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_settings(settings);
    let mut task_stream = with_deadline(impatient.stream(Message::user("go")))
        .await
        .unwrap();
    strings.next_task().await;
    let (_, error) = event_texts(&mut task_stream).await;
    assert_eq!(error, Some(ErrorKind::DeadlineExceeded));
    let id = task_stream.task().unwrap().id.clone();
    drop(task_stream);
    strings.write("late").await;
    strings.end(Outcome::Completed).await;
    let patient = Client::new(&at, Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_settings(fast_settings());
    let answer = with_deadline(patient.follow(id, None).finish())
        .await
        .unwrap();
    assert_eq!(
        (answer.state(), answer.text().as_str()),
        (TaskState::Completed, "late")
    );
}
