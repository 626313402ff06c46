//! gRPC streams: content, end, and independence of other calls.

use attache::{Agent, Failure, Outcome, Turn};
use attache_proto::{v1, v03};
use tokio::sync::mpsc;
use tonic::{Code, Streaming};

use super::{all, clients, say, say_v03, task_v03, with};
use crate::harness::{Echo, start, with_deadline};
use crate::server::operations::Held;

use v1::stream_response::Payload;
use v03::stream_response::Payload as PayloadV03;

/// Writes many chunks.
struct Chunks(usize);

impl Agent for Chunks {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let mut writer = turn.writer("chunks");
        for number in 0..self.0 {
            writer.write(format!("{number} ")).await;
        }
        writer.finish().await;
        Ok(Outcome::Completed)
    }
}

async fn next(stream: &mut Streaming<v1::StreamResponse>) -> Payload {
    with_deadline(stream.message())
        .await
        .unwrap()
        .expect("the stream goes on")
        .payload
        .unwrap()
}

fn text_of(event: &v1::StreamResponse) -> String {
    let Some(Payload::ArtifactUpdate(event)) = &event.payload else {
        return String::new();
    };
    let parts = event.artifact.iter().flat_map(|artifact| &artifact.parts);
    let texts = parts.filter_map(|part| match &part.content {
        Some(v1::part::Content::Text(text)) => Some(&**text),
        _ => None,
    });
    texts.collect()
}

#[tokio::test]
async fn a_thousand_chunks_arrive_in_order() {
    let server = start(Chunks(1000)).await;
    let stream = with_deadline(clients(&server).v1.send_streaming_message(say("go")))
        .await
        .unwrap()
        .into_inner();
    let (events, end) = all(stream).await;
    end.unwrap();
    assert!(
        matches!(events[0].payload, Some(Payload::Task(_))),
        "{:?}",
        events[0]
    );
    let expected: String = (0..1000).map(|number| format!("{number} ")).collect();
    assert_eq!(events.iter().map(text_of).collect::<String>(), expected);
    let Some(Payload::StatusUpdate(last)) = &events[events.len() - 1].payload else {
        panic!("{events:?}")
    };
    assert_eq!(
        last.status.as_ref().unwrap().state(),
        v1::TaskState::Completed
    );
}

#[tokio::test]
async fn only_the_last_status_is_final_in_0_3() {
    let server = start(Echo).await;
    let stream = with_deadline(clients(&server).v03.send_streaming_message(say_v03("hi")))
        .await
        .unwrap();
    let (events, end) = all(stream.into_inner()).await;
    end.unwrap();
    assert!(matches!(events[0].payload, Some(PayloadV03::Task(_))));
    let finals: Vec<bool> = events
        .iter()
        .filter_map(|event| match &event.payload {
            Some(PayloadV03::StatusUpdate(event)) => Some(event.r#final),
            _ => None,
        })
        .collect();
    assert_eq!(finals.iter().filter(|last| **last).count(), 1, "{events:?}");
    assert_eq!(finals.last(), Some(&true));
}

#[tokio::test]
async fn a_cancel_ends_the_streams_of_both_versions() {
    let (started, mut heard) = mpsc::channel(1);
    let server = start(Held::new(started)).await;
    let mut both = clients(&server);
    let mut stream = with_deadline(both.v1.send_streaming_message(say("hi")))
        .await
        .unwrap()
        .into_inner();
    let id = with_deadline(heard.recv()).await.unwrap();
    assert!(matches!(next(&mut stream).await, Payload::Task(task) if task.id == id));
    let subscribe = v03::TaskSubscriptionRequest {
        name: format!("tasks/{id}"),
    };
    let other = with_deadline(both.v03.task_subscription(subscribe))
        .await
        .unwrap()
        .into_inner();
    let cancel = v1::CancelTaskRequest {
        id: id.clone(),
        ..Default::default()
    };
    let canceled = with_deadline(both.v1.cancel_task(cancel))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(canceled.status.unwrap().state(), v1::TaskState::Canceled);
    let (events, end) = all(stream).await;
    end.unwrap();
    let Some(Payload::StatusUpdate(last)) = events.last().and_then(|event| event.payload.clone())
    else {
        panic!("{events:?}")
    };
    assert_eq!(last.status.unwrap().state(), v1::TaskState::Canceled);
    let (events, end) = all(other).await;
    end.unwrap();
    let Some(PayloadV03::StatusUpdate(last)) =
        events.last().and_then(|event| event.payload.clone())
    else {
        panic!("{events:?}")
    };
    assert!(last.r#final && last.status.unwrap().state() == v03::TaskState::Cancelled);
}

#[tokio::test]
async fn a_stream_that_is_dropped_stops_nothing_and_is_taken_up_where_it_was() {
    let (started, mut heard) = mpsc::channel(1);
    let held = Held::new(started);
    let server = start(held.clone()).await;
    let mut v1 = clients(&server).v1;
    let stream = with_deadline(v1.send_streaming_message(say("hi")))
        .await
        .unwrap()
        .into_inner();
    let id = with_deadline(heard.recv()).await.unwrap();
    drop(stream);
    let subscribe = v1::SubscribeToTaskRequest {
        id,
        ..Default::default()
    };
    let whole = with_deadline(v1.subscribe_to_task(subscribe.clone()))
        .await
        .unwrap()
        .into_inner();
    // The second entry is the message: the stream has the events after it and no initial task.
    let rest = with(subscribe, &[("last-event-id", "2")]);
    let rest = with_deadline(v1.subscribe_to_task(rest))
        .await
        .unwrap()
        .into_inner();
    held.release();
    let ((whole, ended), (rest, over)) = tokio::join!(all(whole), all(rest));
    ended.unwrap();
    over.unwrap();
    assert!(matches!(whole[0].payload, Some(Payload::Task(_))));
    assert!(
        !rest
            .iter()
            .any(|event| matches!(event.payload, Some(Payload::Task(_)))),
        "{rest:?}"
    );
    for events in [&whole, &rest] {
        assert_eq!(events.iter().map(text_of).collect::<String>(), "at last");
    }
}

#[tokio::test]
async fn a_subscription_to_an_ended_task_is_an_error_in_1_0_and_the_task_in_0_3() {
    let server = start(Echo).await;
    let mut both = clients(&server);
    let made = task_v03(
        with_deadline(both.v03.send_message(say_v03("hi")))
            .await
            .unwrap()
            .into_inner(),
    );
    let subscribe = v03::TaskSubscriptionRequest {
        name: format!("tasks/{}", made.id),
    };
    let (events, end) = all(with_deadline(both.v03.task_subscription(subscribe))
        .await
        .unwrap()
        .into_inner())
    .await;
    end.unwrap();
    let [
        v03::StreamResponse {
            payload: Some(PayloadV03::Task(task)),
        },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(*task, made);
    let subscribe = v1::SubscribeToTaskRequest {
        id: made.id,
        ..Default::default()
    };
    let refused = with_deadline(both.v1.subscribe_to_task(subscribe))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let unknown = v03::TaskSubscriptionRequest {
        name: "tasks/gone".to_owned(),
    };
    let refused = with_deadline(both.v03.task_subscription(unknown))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test]
async fn streams_end_unavailable_when_the_server_stops() {
    let (started, mut heard) = mpsc::channel(1);
    let held = Held::new(started);
    let mut server = start(held.clone()).await;
    let mut v1 = clients(&server).v1;
    let mut stream = with_deadline(v1.send_streaming_message(say("hi")))
        .await
        .unwrap()
        .into_inner();
    with_deadline(heard.recv()).await.unwrap();
    next(&mut stream).await;
    let cut = async {
        let (_, end) = all(stream).await;
        held.release();
        end
    };
    let ((), end) = with_deadline(async { tokio::join!(server.stop(), cut) }).await;
    assert_eq!(end.unwrap_err().code(), Code::Unavailable);
}
