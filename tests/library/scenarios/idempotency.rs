//! The same message twice: 04 §3.4, R14 to R17.

use attache::model::{ErrorKind, TaskState};
use attache::{Client, Outcome};

use super::{
    SteppedJobAgent, TextCommandAgent, agent_texts, error_kind, get, message, say, send, stream, to,
};
use crate::harness::everywhere::{everywhere, has_details, open};

fn keyed(client: &Client, key: &str) -> Client {
    client.clone().with_header("Idempotency-Key", key).unwrap()
}

#[tokio::test]
async fn r14_the_same_key_and_body_are_the_same_task() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let (request, once, twice) =
                (message("go"), keyed(&client, "k-1"), keyed(&client, "k-2"));
            let lead = async {
                led.next().await.complete();
            };
            let (first, ()) = tokio::join!(send(&once, request.clone()), lead);
            assert_eq!(
                send(&once, request.clone()).await,
                first,
                "and nothing runs again"
            );

            assert!(led.is_idle().await);
            let (other, ()) =
                tokio::join!(send(&twice, request), async { led.next().await.complete() });
            assert_ne!(other.id, first.id);
        },
    )
    .await;
}

#[tokio::test]
async fn r14_duplicates_at_the_same_time_are_one_task() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let (request, once) = (message("go"), keyed(&client, "k-1"));
            let lead = async {
                led.next().await.complete();
            };
            let (one, two, three, ()) = tokio::join!(
                send(&once, request.clone()),
                send(&once, request.clone()),
                send(&once, request.clone()),
                lead
            );
            assert_eq!((&one, &one), (&two, &three));
            assert_eq!(
                (one.status.state, agent_texts(&one).len()),
                (TaskState::Completed, 1)
            );
            assert!(led.is_idle().await, "one turn");
        },
    )
    .await;
}

#[tokio::test]
async fn r15_who_left_before_the_answer_finds_the_task_again() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let (request, once) = (message("go"), keyed(&client, "k-1"));
            let job = tokio::select! {
                job = led.next() => job,
                answer = once.send_message(request.clone()) => panic!("{answer:?}"),
            };
            let id = job.turn.task_id().clone();
            let (again, ()) = tokio::join!(send(&once, request), async { job.complete() });
            assert_eq!((&again.id, again.status.state), (&id, TaskState::Completed));
            assert_eq!(get(&client, &again).await, again);
            assert!(led.is_idle().await, "one turn");
        },
    )
    .await;
}

#[tokio::test]
async fn r16_the_same_key_with_another_body_is_refused_and_nothing_is_written() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let once = keyed(&client, "k-1");
            let first = send(&once, message("ask")).await;
            let error = once.send_message(message("other")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
            assert!(error.message().contains("Idempotency-Key"), "{error}");
            if has_details(&client) {
                assert_eq!(error.violations()[0].field(), "Idempotency-Key");
            }
            let streamed = open(once.send_streaming_message(message("other"))).await;
            assert_eq!(error_kind(streamed), ErrorKind::InvalidParams);
            assert_eq!(
                error_kind(once.send_message(to(&first, "answer")).await),
                ErrorKind::InvalidParams
            );
            assert_eq!(get(&client, &first).await, first);
        },
    )
    .await;
}

#[tokio::test]
async fn r17_an_answer_that_comes_twice_is_applied_once() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = say(&client, "ask").await;
            let (answer, once) = (to(&asked, "ask"), keyed(&client, "k-1"));
            let first = send(&once, answer.clone()).await;
            assert_eq!(agent_texts(&first), ["ask", "which harbour?", "ask"]);
            assert_eq!(send(&once, answer.clone()).await, first);
            let done = send(&client, to(&asked, "Saint-Malo")).await;
            // Also when the task has ended since: what came of it is the answer.
            assert_eq!(send(&once, answer).await.id, done.id);
            assert_eq!(get(&client, &asked).await, done);
        },
    )
    .await;
}

#[tokio::test]
async fn r14_a_repeated_stream_is_a_stream_of_the_same_task() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let (request, once) = (message("go"), keyed(&client, "k-1"));
            let mut first = stream(&once, request.clone()).await;
            assert_eq!(first.event_text().await, "task active");
            let job = led.next().await;
            let mut again = stream(&once, request.clone()).await;
            assert_eq!(again.event_text().await, "task active");
            job.turn.say("on it").await;
            job.end(Outcome::Completed);
            for events in [first, again] {
                assert_eq!(
                    events.event_texts().await,
                    ["status working: on it", "status completed"]
                );
            }
            assert!(led.is_idle().await, "one turn");
            let late = stream(&once, request).await.event_texts().await;
            assert_eq!(
                late.last().map(String::as_str),
                Some("status completed"),
                "{late:?}"
            );
        },
    )
    .await;
}

/// Without a key every message is a new one.
#[tokio::test]
async fn a_message_without_a_key_is_never_a_duplicate() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let request = message("hi");
            let (one, two) = (
                send(&client, request.clone()).await,
                send(&client, request).await,
            );
            assert_ne!(one.id, two.id);
        },
    )
    .await;
}

#[tokio::test]
async fn a_key_that_cannot_be_one_is_refused() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let error = keyed(&client, &"k".repeat(257))
                .send_message(message("hi"))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams);
            assert!(error.message().contains("Idempotency-Key"), "{error}");
        },
    )
    .await;
}
