//! Idempotency keys (04 §3.4, R14 to R17).

use attache::model::{ErrorKind, TaskState};
use attache::{Client, Outcome};

use super::{
    SteppedJobAgent, TextCommandAgent, error_kind, get, history_texts, message, message_to, send,
    send_text, stream,
};
use crate::harness::everywhere::{everywhere, has_details, open};

fn with_key(client: &Client, key: &str) -> Client {
    client.clone().with_header("Idempotency-Key", key).unwrap()
}

#[tokio::test]
async fn r14_the_same_key_and_body_are_the_same_task() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let request = message("go");
            let keyed = with_key(&client, "k-1");
            let other_key = with_key(&client, "k-2");
            let complete = async {
                agent.next().await.complete();
            };
            let (first, ()) = tokio::join!(send(&keyed, request.clone()), complete);
            assert_eq!(send(&keyed, request.clone()).await, first, "no second turn");

            assert!(agent.is_idle().await);
            let (other, ()) = tokio::join!(send(&other_key, request), async {
                agent.next().await.complete()
            });
            assert_ne!(other.id, first.id);
        },
    )
    .await;
}

#[tokio::test]
async fn r14_concurrent_duplicates_are_one_task() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let request = message("go");
            let keyed = with_key(&client, "k-1");
            let complete = async {
                agent.next().await.complete();
            };
            let (one, two, three, ()) = tokio::join!(
                send(&keyed, request.clone()),
                send(&keyed, request.clone()),
                send(&keyed, request.clone()),
                complete
            );
            assert_eq!((&one, &one), (&two, &three));
            assert_eq!(
                (one.status.state, history_texts(&one).len()),
                (TaskState::Completed, 1)
            );
            assert!(agent.is_idle().await, "one turn");
        },
    )
    .await;
}

#[tokio::test]
async fn r15_a_retry_after_a_lost_response_finds_the_task() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let request = message("go");
            let keyed = with_key(&client, "k-1");
            let job = tokio::select! {
                job = agent.next() => job,
                answer = keyed.send_message(request.clone()) => panic!("{answer:?}"),
            };
            let id = job.turn.task_id().clone();
            let (again, ()) = tokio::join!(send(&keyed, request), async { job.complete() });
            assert_eq!((&again.id, again.status.state), (&id, TaskState::Completed));
            assert_eq!(get(&client, &again).await, again);
            assert!(agent.is_idle().await, "one turn");
        },
    )
    .await;
}

#[tokio::test]
async fn r16_the_same_key_with_another_body_is_refused_and_nothing_is_written() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let keyed = with_key(&client, "k-1");
            let first = send(&keyed, message("ask")).await;
            let error = keyed.send_message(message("other")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
            assert!(error.message().contains("Idempotency-Key"), "{error}");
            if has_details(&client) {
                assert_eq!(error.violations()[0].field(), "Idempotency-Key");
            }
            let streamed = open(keyed.send_streaming_message(message("other"))).await;
            assert_eq!(error_kind(streamed), ErrorKind::InvalidParams);
            assert_eq!(
                error_kind(keyed.send_message(message_to(&first, "answer")).await),
                ErrorKind::InvalidParams
            );
            assert_eq!(get(&client, &first).await, first);
        },
    )
    .await;
}

#[tokio::test]
async fn r17_a_repeated_answer_is_applied_once() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let waiting = send_text(&client, "ask").await;
            let answer = message_to(&waiting, "ask");
            let keyed = with_key(&client, "k-1");
            let first = send(&keyed, answer.clone()).await;
            assert_eq!(history_texts(&first), ["ask", "which harbour?", "ask"]);
            assert_eq!(send(&keyed, answer.clone()).await, first);
            let done = send(&client, message_to(&waiting, "Saint-Malo")).await;
            // Also after the task has ended: the replay returns its current state.
            assert_eq!(send(&keyed, answer).await.id, done.id);
            assert_eq!(get(&client, &waiting).await, done);
        },
    )
    .await;
}

#[tokio::test]
async fn r14_a_repeated_stream_is_a_stream_of_the_same_task() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let request = message("go");
            let keyed = with_key(&client, "k-1");
            let mut first = stream(&keyed, request.clone()).await;
            assert_eq!(first.event_text().await, "task active");
            let job = agent.next().await;
            let mut again = stream(&keyed, request.clone()).await;
            assert_eq!(again.event_text().await, "task active");
            job.turn.say("on it").await;
            job.end(Outcome::Completed);
            for events in [first, again] {
                assert_eq!(
                    events.event_texts().await,
                    ["status working: on it", "status completed"]
                );
            }
            assert!(agent.is_idle().await, "one turn");
            let late = stream(&keyed, request).await.event_texts().await;
            assert_eq!(
                late.last().map(String::as_str),
                Some("status completed"),
                "{late:?}"
            );
        },
    )
    .await;
}

/// Without a key every message is new.
#[tokio::test]
async fn a_message_without_a_key_is_never_a_duplicate() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let request = message("hi");
            let one = send(&client, request.clone()).await;
            let two = send(&client, request).await;
            assert_ne!(one.id, two.id);
        },
    )
    .await;
}

#[tokio::test]
async fn a_key_that_is_too_long_is_refused() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let error = with_key(&client, &"k".repeat(257))
                .send_message(message("hi"))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
            assert!(error.message().contains("Idempotency-Key"), "{error}");
        },
    )
    .await;
}
