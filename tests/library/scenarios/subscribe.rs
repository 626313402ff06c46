//! `SubscribeToTask`: the rows of 05 §3.

use std::time::Duration;

use attache::model::{ErrorKind, Seq, StreamResponse, SubscribeToTaskRequest, TaskId};
use attache::{Client, Outcome, Result, Server, ServerSettings};

use super::{
    SteppedJobAgent, TextCommandAgent, begin, cancel, error_kind, message, message_to,
    return_immediately, send, send_text, stream, subscribe,
};
use crate::harness::everywhere::{
    Events, assert_nothing_to_subscribe, card, event_text, everywhere, everywhere_on,
    has_positions, open,
};

async fn resume(client: &Client, id: &TaskId, after: u64) -> Result<Events> {
    let request = SubscribeToTaskRequest {
        id: id.clone(),
        ..Default::default()
    };
    open(client.subscribe_to_task(request, Some(Seq(after)))).await
}

#[tokio::test]
async fn an_unknown_task_cannot_be_subscribed_to() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            assert_eq!(
                error_kind(subscribe(&client, &"gone".into()).await),
                ErrorKind::TaskNotFound
            );
        },
    )
    .await;
}

#[tokio::test]
async fn an_ended_task_cannot_be_subscribed_to() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for text in ["hi", "fail", "reject"] {
                assert_nothing_to_subscribe(&client, &send_text(&client, text).await).await;
            }
            let asked = send_text(&client, "ask").await;
            assert_nothing_to_subscribe(&client, &cancel(&client, &asked.id).await.unwrap()).await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_subscription_begins_with_a_snapshot() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let task = begin(&client, "go").await;
            let job = agent.next().await;
            let mut early = subscribe(&client, &task.id).await.unwrap();
            assert_eq!(early.event_text().await, "task active");
            job.turn.write("part", "one").await;
            job.turn.say("on it").await;
            assert_eq!(early.event_text().await, "artifact one.");
            assert_eq!(early.event_text().await, "status working: on it");
            let mut late = subscribe(&client, &task.id).await.unwrap();
            let Some(StreamResponse::Task(snapshot)) = late.next().await else {
                panic!("the task comes first")
            };
            assert_eq!(
                (
                    snapshot.text().as_str(),
                    event_text(&StreamResponse::Task(snapshot))
                ),
                ("one", "task working: on it".to_owned())
            );
            job.turn.write("part", "two").await;
            job.complete();
            assert_eq!(
                late.event_texts().await,
                ["artifact two.", "status completed"]
            );
            assert_eq!(
                early.event_texts().await,
                ["artifact two.", "status completed"]
            );
        },
    )
    .await;
}

/// 05 §2: a subscription stays open until the task has ended.
#[tokio::test]
async fn a_subscription_outlasts_a_question() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let task = begin(&client, "go").await;
            let mut events = subscribe(&client, &task.id).await.unwrap();
            assert_eq!(events.event_text().await, "task active");
            agent.next().await.end(Outcome::ask("which?"));
            assert_eq!(events.event_text().await, "status input_required: which?");
            let mut parked = subscribe(&client, &task.id).await.unwrap();
            assert_eq!(parked.event_text().await, "task input_required: which?");
            send(&client, return_immediately(message_to(&task, "that one"))).await;
            let job = agent.next().await;
            job.turn.say("thank you").await;
            job.complete();
            let rest = ["status working: thank you", "status completed"];
            assert_eq!(events.event_texts().await, rest);
            assert_eq!(parked.event_texts().await, rest);
        },
    )
    .await;
}

#[tokio::test]
async fn a_subscription_to_a_waiting_task_is_closed_after_the_timeout() {
    let mut settings = ServerSettings::default();
    settings.waiting_stream_timeout = Some(Duration::from_millis(1));
    let server = || Server::new(card(), TextCommandAgent).server_settings(settings.clone());
    everywhere_on(server, async |client: Client| {
        let asked = send_text(&client, "ask").await;
        let events = subscribe(&client, &asked.id).await.unwrap();
        assert_eq!(
            events.event_texts().await,
            ["task input_required: which harbour?"]
        );
    })
    .await;
}

/// A resumed subscription has exactly the events after the position.
#[tokio::test]
async fn a_subscriber_resumes_after_any_position() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            if !has_positions(&client) {
                return;
            }
            let mut events = stream(&client, message("go")).await;
            let (at, event) = events.next_at().await.unwrap();
            let StreamResponse::Task(task) = event else {
                panic!("the task comes first")
            };
            let mut seen = vec![at.expect("a position")];
            let job = agent.next().await;
            for step in 0..3 {
                job.turn.say(step.to_string()).await;
                seen.push(events.next_at().await.unwrap().0.expect("a position"));
            }
            assert!(seen.is_sorted_by(|one, two| one < two), "{seen:?}");
            let mut resumed = Vec::new();
            for at in &seen {
                resumed.push(resume(&client, &task.id, *at));
            }
            let whole = [
                "status working: 0",
                "status working: 1",
                "status working: 2",
                "status completed",
            ];
            let mut opened = Vec::new();
            let last = resumed.pop().unwrap();
            for one in resumed {
                opened.push(one.await.unwrap());
            }
            // The last subscription has no event until the task completes.
            let (last, ()) = tokio::join!(last, async { job.complete() });
            opened.push(last.unwrap());
            for (position, events) in opened.into_iter().enumerate() {
                assert_eq!(events.event_texts().await, whole[position..]);
            }
            // After the task has ended, a resumed subscription has the missed events.
            assert_eq!(
                resume(&client, &task.id, seen[2])
                    .await
                    .unwrap()
                    .event_texts()
                    .await,
                whole[2..]
            );
        },
    )
    .await;
}

#[tokio::test]
async fn resuming_after_the_last_event_of_an_ended_task_is_refused() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            if !has_positions(&client) {
                return;
            }
            let mut events = stream(&client, message("hi")).await;
            let mut id = None;
            let mut last = None;
            while let Some((at, event)) = events.next_at().await {
                if let StreamResponse::Task(task) = event {
                    id = Some(task.id);
                }
                last = at;
            }
            let id = id.unwrap();
            let last = last.unwrap();
            assert_eq!(
                error_kind(resume(&client, &id, last).await),
                ErrorKind::UnsupportedOperation
            );
            // An unknown position is ignored, and an ended task cannot be subscribed to.
            assert_eq!(
                error_kind(resume(&client, &id, last + 100).await),
                ErrorKind::UnsupportedOperation
            );
        },
    )
    .await;
}

#[tokio::test]
async fn an_unknown_position_is_ignored() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = send_text(&client, "ask").await;
            for after in [0, 1_000_000, u64::MAX] {
                let mut events = resume(&client, &asked.id, after).await.unwrap();
                assert_eq!(
                    events.event_text().await,
                    "task input_required: which harbour?"
                );
            }
        },
    )
    .await;
}
