//! Tasks followed to their end, whatever the peer does.

use std::time::{Duration, Instant};

use attache::model::{
    Binding, ErrorKind, Message, SendMessageResponse, StreamResponse, TaskState, Version,
};
use attache::{Client, ClientSettings, Outcome, PollingPolicy, RetryPolicy, TaskStream, Timeouts};
use serde_json::{Value, json};

use super::peer::{Peer, events, json as answer, reply};
use crate::harness::everywhere::event_text;
use crate::harness::{SteppedAgent, start, with_deadline};

/// Patient, but not for long.
pub(super) fn quick() -> ClientSettings {
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
        .with_settings(quick())
}

pub(super) fn rpc(result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

pub(super) fn refusal(code: i32) -> Vec<u8> {
    answer(
        200,
        &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}}),
    )
}

/// A task; its time has no zone, as one kind of server writes it.
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

pub(super) fn got(state: &str) -> Vec<u8> {
    answer(200, &rpc(&task(state)))
}

/// A stream of events, with their positions if there are any, that ends cleanly.
fn stream(list: &[(Option<u64>, Value)]) -> Vec<u8> {
    let body: String = list
        .iter()
        .map(|(id, event)| {
            let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
            format!("{id}data: {}\n\n", rpc(event))
        })
        .collect();
    events(body.as_bytes())
}

fn unnumbered(list: &[Value]) -> Vec<u8> {
    stream(
        &list
            .iter()
            .map(|event| (None, event.clone()))
            .collect::<Vec<_>>(),
    )
}

async fn event_texts(followed: &mut TaskStream) -> (Vec<String>, Option<ErrorKind>) {
    let mut all = Vec::new();
    loop {
        match with_deadline(followed.next()).await {
            Some(Ok(event)) => all.push(event_text(&event)),
            Some(Err(error)) => return (all, Some(error.kind())),
            None => return (all, None),
        }
    }
}

/// What is told of a message that is answered so, and what the peer was asked.
async fn streamed(answers: Vec<Vec<u8>>) -> (Vec<String>, Option<ErrorKind>, Vec<String>) {
    let peer = Peer::with(answers).await;
    let mut followed = with_deadline(client(&peer).stream(Message::user("hi")))
        .await
        .unwrap();
    let (events, error) = event_texts(&mut followed).await;
    let asked = peer.asked().await;
    let methods = asked.iter().map(|asked| {
        let body: Value = serde_json::from_slice(&asked.body).unwrap();
        body["method"].as_str().unwrap().to_owned()
    });
    (events, error, methods.collect())
}

async fn sent(answers: Vec<Vec<u8>>) -> attache::Result<SendMessageResponse> {
    let peer = Peer::with(answers).await;
    let answer = with_deadline(client(&peer).send(Message::user("hi"))).await;
    peer.asked().await;
    answer
}

#[tokio::test]
async fn r02_a_clean_end_before_the_tasks_own_is_a_cut() {
    let first = stream(&[
        (Some(1), json!({"task": task("WORKING")})),
        (Some(2), chunk("a", false)),
    ]);
    let rest = stream(&[(Some(3), chunk("b", true)), (Some(4), status("COMPLETED"))]);
    let (events, error, methods) = streamed(vec![first, rest]).await;
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
async fn r03_what_was_told_is_not_told_again() {
    let all = [
        (Some(1), json!({"task": task("WORKING")})),
        (Some(2), chunk("a", false)),
        (Some(3), chunk("b", true)),
        (Some(4), status("COMPLETED")),
    ];
    for cut in 1..all.len() {
        for from in 0..=cut {
            let (events, error, _) =
                streamed(vec![stream(&all[..cut]), stream(&all[from..])]).await;
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
async fn r03_without_positions_the_task_as_it_stands_fills_the_gap() {
    let mut whole = task("WORKING");
    whole["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "ab"}]}]);
    let first = unnumbered(&[json!({"task": task("WORKING")}), chunk("a", false)]);
    let rest = unnumbered(&[
        json!({"task": whole}),
        chunk("c", true),
        status("COMPLETED"),
    ]);
    let (events, ..) = streamed(vec![first.clone(), rest.clone()]).await;
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
    let SendMessageResponse::Task(task) = sent(vec![refusal(-32601), first, rest]).await.unwrap()
    else {
        panic!("no task");
    };
    assert_eq!(task.text(), "abc");
}

#[tokio::test]
async fn r03_a_peer_that_goes_on_without_the_task_is_asked_for_it_at_the_end() {
    let mut whole = task("COMPLETED");
    whole["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "abc"}]}]);
    let first = unnumbered(&[json!({"task": task("WORKING")}), chunk("a", false)]);
    let rest = unnumbered(&[chunk("c", true), status("COMPLETED")]);
    let (events, ..) = streamed(vec![first, rest, answer(200, &rpc(&whole))]).await;
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
async fn r04_a_task_that_ended_while_nobody_looked_is_read() {
    for code in [-32004, -32602, -32601] {
        let first = unnumbered(&[json!({"task": task("WORKING")})]);
        let (events, error, methods) = streamed(vec![first, refusal(code), got("FAILED")]).await;
        assert_eq!(events, ["task active", "task failed"]);
        assert_eq!(
            (error, methods.last().map(String::as_str)),
            (None, Some("GetTask"))
        );
    }
}

#[tokio::test]
async fn r36_an_early_answer_to_a_call_that_waits_is_not_the_end() {
    let subscribed = unnumbered(&[json!({"task": task("WORKING")}), status("COMPLETED")]);
    let answer = sent(vec![got("SUBMITTED"), subscribed]).await.unwrap();
    assert_eq!(answer.state(), TaskState::Completed);
    let polled = vec![
        got("SUBMITTED"),
        refusal(-32004),
        got("WORKING"),
        got("WORKING"),
        got("COMPLETED"),
    ];
    assert_eq!(sent(polled).await.unwrap().state(), TaskState::Completed);
}

#[tokio::test]
async fn r37_who_only_streams_or_only_answers_is_understood() {
    let whole = unnumbered(&[
        json!({"task": task("WORKING")}),
        chunk("a", false),
        status("COMPLETED"),
    ]);
    let answer = sent(vec![refusal(-32601), whole]).await.unwrap();
    assert_eq!(
        (answer.state(), answer.text().as_str()),
        (TaskState::Completed, "a")
    );
    let (events, error, methods) = streamed(vec![
        refusal(-32004),
        got("WORKING"),
        refusal(-32004),
        got("COMPLETED"),
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
    let neither = sent(vec![refusal(-32601), refusal(-32004)])
        .await
        .unwrap_err();
    assert_eq!(neither.kind(), ErrorKind::UnsupportedOperation);
}

#[tokio::test]
async fn r37_a_task_that_cannot_be_read_is_told_as_far_as_it_is_known() {
    let peer = Peer::with(vec![
        unnumbered(&[json!({"task": task("WORKING")}), chunk("a", false)]),
        refusal(-32004),
        refusal(-32601),
    ])
    .await;
    let mut followed = with_deadline(client(&peer).stream(Message::user("hi")))
        .await
        .unwrap();
    let (events, error) = event_texts(&mut followed).await;
    assert_eq!((events.len(), error), (2, Some(ErrorKind::MethodNotFound)));
    assert_eq!(followed.task().unwrap().text(), "a");
    peer.asked().await;
}

#[tokio::test]
async fn r38_a_stream_that_ends_early_is_followed_by_the_task() {
    let first = unnumbered(&[json!({"task": task("WORKING")})]);
    let (events, ..) = streamed(vec![
        first,
        refusal(-32004),
        got("WORKING"),
        got("COMPLETED"),
    ])
    .await;
    assert_eq!(events, ["task active", "task completed"]);
}

#[tokio::test]
async fn r39_dialects_may_be_mixed_within_a_stream() {
    let old = json!({"kind": "status-update", "contextId": "c", "final": false,
        "status": {"state": "TASK_STATE_WORKING", "message": {"kind": "message", "role": "ROLE_AGENT",
        "messageId": "m", "parts": [{"kind": "text", "text": "at it"}]}}});
    let made = json!({"kind": "artifact-update", "taskId": "t", "contextId": "c",
        "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "done"}]}});
    let end = json!({"kind": "status-update", "taskId": "t", "final": true, "status": {"state": "completed"}});
    let (events, error, _) = streamed(vec![unnumbered(&[
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
async fn what_was_told_before_the_position_is_in_the_whole_task_and_not_told_again() {
    let rest = || {
        stream(&[
            (Some(6), chunk("two", false)),
            (Some(7), status("COMPLETED")),
        ])
    };
    let mut whole = task("COMPLETED");
    let artifact = |id: &str| json!({"artifactId": id, "parts": [{"text": id}]});
    whole["artifacts"] = json!([artifact("before"), artifact("a")]);
    let peer = Peer::with(vec![rest(), answer(200, &rpc(&whole))]).await;
    let followed = client(&peer).follow("t", Some(attache::model::Seq(5)));
    let SendMessageResponse::Task(found) = with_deadline(followed.finish()).await.unwrap() else {
        panic!("a task")
    };
    assert_eq!(found.artifacts.len(), 2);
    let peer = Peer::with(vec![rest()]).await;
    let mut followed = client(&peer).follow("t", Some(attache::model::Seq(5)));
    assert_eq!(event_texts(&mut followed).await.0.len(), 2);
}

#[tokio::test]
async fn s67_who_is_refused_as_too_much_pauses_before_the_next_try() {
    let limited = || reply(429, "Content-Type: application/json\r\n", "");
    let done = unnumbered(&[json!({"task": task("COMPLETED")})]);
    let peer = Peer::with(vec![limited(), limited(), done.clone()]).await;
    let mut settings = quick();
    settings.retries.initial_delay = Duration::from_millis(60);
    let began = Instant::now();
    let mut followed = with_deadline(
        client(&peer)
            .with_settings(settings)
            .stream(Message::user("hi")),
    )
    .await
    .unwrap();
    assert_eq!(
        event_texts(&mut followed).await,
        (vec!["task completed".to_owned()], None)
    );
    // A half of 60 ms and of 120 ms at least.
    assert!(
        began.elapsed() >= Duration::from_millis(90),
        "{:?}",
        began.elapsed()
    );
    // The peer knows better.
    let peer = Peer::with(vec![reply(429, "Retry-After: 1\r\n", ""), done]).await;
    let mut settings = quick();
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
async fn r39_an_event_that_nobody_understands_does_not_end_the_task() {
    let first = unnumbered(&[json!({"task": task("WORKING")}), json!({"surprise": true})]);
    let (events, ..) = streamed(vec![first, got("COMPLETED")]).await;
    assert_eq!(events, ["task active", "task completed"]);
}

#[tokio::test]
async fn s74_events_of_another_task_are_not_ours() {
    let mut other = status("FAILED");
    other["statusUpdate"]["taskId"] = json!("somebody-elses");
    let list = [json!({"task": task("WORKING")}), other, status("COMPLETED")];
    assert_eq!(
        streamed(vec![unnumbered(&list)]).await.0,
        ["task active", "status completed"]
    );
}

#[tokio::test]
async fn r42_who_gives_up_knows_what_to_ask_for_later() {
    let peer = Peer::holding(vec![unnumbered(&[json!({"task": task("WORKING")})])]).await;
    let mut settings = quick();
    settings.timeouts.wait = Some(Duration::from_millis(100));
    let client = client(&peer).with_settings(settings);
    let mut followed = with_deadline(client.stream(Message::user("hi")))
        .await
        .unwrap();
    assert!(matches!(
        with_deadline(followed.next()).await,
        Some(Ok(StreamResponse::Task(_)))
    ));
    let error = with_deadline(followed.next()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(error.metadata().collect::<Vec<_>>(), [("taskId", "t")]);
    assert!(with_deadline(followed.next()).await.is_none());
}

#[tokio::test]
async fn r52_a_reader_that_was_away_comes_back() {
    let first = stream(&[(Some(1), json!({"task": task("WORKING")}))]);
    let busy = reply(503, "Retry-After: 0\r\n", "");
    let hung_up = Vec::new();
    let rest = stream(&[(Some(2), status("COMPLETED"))]);
    let (events, error, methods) = streamed(vec![first, hung_up, busy, rest]).await;
    assert_eq!((events.len(), error, methods.len()), (2, None, 4));
    let first = stream(&[(Some(1), json!({"task": task("WORKING")}))]);
    let mut answers = vec![first];
    answers.extend((0..4).map(|_| Vec::new()));
    let (events, error, _) = streamed(answers).await;
    assert_eq!(
        (events.len(), error),
        (1, Some(ErrorKind::Unavailable)),
        "it is given up in the end"
    );
}

#[tokio::test]
async fn r02_silence_counts_as_a_cut() {
    let peer = Peer::holding(vec![
        unnumbered(&[json!({"task": task("WORKING")})]),
        unnumbered(&[json!({"task": task("WORKING")}), status("COMPLETED")]),
    ])
    .await;
    let timeouts = Timeouts {
        idle: Duration::from_millis(100),
        ..Timeouts::default()
    };
    let client = client(&peer).with_settings(ClientSettings {
        timeouts,
        ..quick()
    });
    let mut followed = with_deadline(client.stream(Message::user("hi")))
        .await
        .unwrap();
    assert_eq!(
        event_texts(&mut followed).await.0,
        ["task active", "status completed"]
    );
    assert_eq!(followed.reconnects(), 1);
}

#[tokio::test]
async fn a_task_that_waits_for_us_is_an_answer_and_a_failed_one_too() {
    for state in [
        "INPUT_REQUIRED",
        "AUTH_REQUIRED",
        "FAILED",
        "REJECTED",
        "CANCELED",
    ] {
        let answer = sent(vec![got(state)]).await.unwrap();
        assert_eq!(answer.state().as_str(), format!("TASK_STATE_{state}"));
    }
    let asking = unnumbered(&[json!({"task": task("WORKING")}), status("INPUT_REQUIRED")]);
    let (events, error, _) = streamed(vec![asking]).await;
    assert_eq!(
        (events.last().map(String::as_str), error),
        (Some("status input_required"), None)
    );
}

#[tokio::test]
async fn a_handle_that_is_dropped_can_cancel_its_task() {
    let peer = Peer::with(vec![
        unnumbered(&[json!({"task": task("WORKING")})]),
        got("CANCELED"),
    ])
    .await;
    let mut followed = with_deadline(client(&peer).stream(Message::user("hi")))
        .await
        .unwrap()
        .cancel_on_drop();
    with_deadline(followed.next()).await.unwrap().unwrap();
    drop(followed);
    let asked = peer.asked().await;
    assert!(String::from_utf8_lossy(&asked[1].body).contains("CancelTask"));
}

#[tokio::test]
async fn r04_who_hangs_up_instead_of_saying_that_the_task_has_ended_is_asked() {
    let first = unnumbered(&[json!({"task": task("WORKING")})]);
    let (events, error, methods) = streamed(vec![first, events(b""), got("COMPLETED")]).await;
    assert_eq!(
        (events.last().map(String::as_str), error),
        (Some("task completed"), None)
    );
    assert_eq!(methods[1..], ["SubscribeToTask", "GetTask"]);
}

#[tokio::test]
async fn how_the_task_stood_before_the_message_is_not_the_answer() {
    let list = [
        json!({"task": task("INPUT_REQUIRED")}),
        status("WORKING"),
        status("COMPLETED"),
    ];
    let mut more = Message::user("more");
    more.task_id = Some("t".into());
    let peer = Peer::with(vec![unnumbered(&list)]).await;
    let followed = with_deadline(client(&peer).stream(more.clone()))
        .await
        .unwrap();
    assert_eq!(
        with_deadline(followed.finish()).await.unwrap().state(),
        TaskState::Completed
    );
    let peer = Peer::with(vec![unnumbered(&list[..1])]).await;
    let followed = with_deadline(client(&peer).stream(more)).await.unwrap();
    assert_eq!(
        with_deadline(followed.finish()).await.unwrap().state(),
        TaskState::InputRequired
    );
}

#[tokio::test]
async fn a_task_is_followed_through_what_others_resolve() {
    // The stream ends where the task waits, and it is not the end.
    let waits = || unnumbered(&[json!({"task": task("AUTH_REQUIRED")})]);
    let done = unnumbered(&[json!({"task": task("AUTH_REQUIRED")}), status("COMPLETED")]);
    let peer = Peer::with(vec![waits(), done]).await;
    let followed = client(&peer)
        .follow("t", None)
        .wait_through([TaskState::AuthRequired]);
    assert_eq!(
        with_deadline(followed.finish()).await.unwrap().state(),
        TaskState::Completed
    );
    let peer = Peer::with(vec![
        got("AUTH_REQUIRED"),
        got("AUTH_REQUIRED"),
        got("COMPLETED"),
    ])
    .await;
    let followed = client(&peer)
        .follow("t", None)
        .wait_through([TaskState::AuthRequired])
        .with_polling();
    assert_eq!(
        with_deadline(followed.finish()).await.unwrap().state(),
        TaskState::Completed
    );
    let peer = Peer::with(vec![waits()]).await;
    let followed = client(&peer).follow("t", None);
    assert_eq!(
        with_deadline(followed.finish()).await.unwrap().state(),
        TaskState::AuthRequired
    );
}

#[tokio::test]
async fn r04_a_refusal_counts_where_that_is_asked_for_until_something_was_told() {
    let peer = Peer::with(vec![refusal(-32004)]).await;
    let mut followed = client(&peer).follow("t", None).require_streaming();
    assert_eq!(
        event_texts(&mut followed).await,
        (vec![], Some(ErrorKind::UnsupportedOperation))
    );
    let first = unnumbered(&[json!({"task": task("WORKING")})]);
    let peer = Peer::with(vec![first, refusal(-32004), got("COMPLETED")]).await;
    let mut followed = client(&peer).follow("t", None).require_streaming();
    assert_eq!(
        event_texts(&mut followed).await.0,
        ["task active", "task completed"]
    );
}

#[tokio::test]
async fn a_task_that_has_ended_is_not_sent_the_same_message_in_another_way() {
    let card =
        serde_json::from_value(json!({"name": "A", "capabilities": {"streaming": true}})).unwrap();
    let mut more = Message::user("more");
    more.task_id = Some("t".into());
    let peer = Peer::with(vec![refusal(-32004)]).await;
    let refused = with_deadline(client(&peer).with_card(card).stream(more))
        .await
        .err()
        .unwrap();
    assert_eq!(
        (refused.kind(), peer.asked().await.len()),
        (ErrorKind::UnsupportedOperation, 1)
    );
}

#[tokio::test]
async fn r42_what_is_finished_after_the_caller_gave_up_is_read_later() {
    let (agent, mut strings) = SteppedAgent::new();
    let server = start(agent).await;
    let at = format!("http://{}/", server.address);
    let mut settings = quick();
    settings.timeouts.wait = Some(Duration::from_millis(100));
    let impatient = Client::new(&at, Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_settings(settings);
    let mut followed = with_deadline(impatient.stream(Message::user("go")))
        .await
        .unwrap();
    strings.next_task().await;
    let (_, error) = event_texts(&mut followed).await;
    assert_eq!(error, Some(ErrorKind::DeadlineExceeded));
    let id = followed.task().unwrap().id.clone();
    drop(followed);
    strings.write("late").await;
    strings.end(Outcome::Completed).await;
    let patient = Client::new(&at, Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_settings(quick());
    let answer = with_deadline(patient.follow(id, None).finish())
        .await
        .unwrap();
    assert_eq!(
        (answer.state(), answer.text().as_str()),
        (TaskState::Completed, "late")
    );
}
