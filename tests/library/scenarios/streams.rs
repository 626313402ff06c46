//! `SendStreamingMessage`: the rows of 05 §1, §2 and §4.

use attache::model::{Message, SendMessageConfiguration, StreamResponse, Task};
use attache::{Client, Outcome, Server};

use super::{
    SteppedJobAgent, TextCommandAgent, configured, get, history_texts, message, message_to,
    return_immediately, send, send_text, stream, subscribe,
};
use crate::harness::everywhere::{Events, MATRIX, card, everywhere, history};
use crate::harness::with_deadline;

/// Returns the task that the stream begins with.
async fn first(events: &mut Events) -> Task {
    match events.next().await {
        Some(StreamResponse::Task(task)) => task,
        other => panic!("{other:?} where the task should be"),
    }
}

#[tokio::test]
async fn a_plain_reply_is_a_stream_of_one_message() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            assert_eq!(
                stream(&client, message("ping")).await.event_texts().await,
                ["message pong"]
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_stream_has_the_task_then_updates_then_the_final_status() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let mut events = stream(&client, message("go")).await;
            let mut task = first(&mut events).await;
            assert_eq!(
                (
                    crate::harness::everywhere::event_text(&StreamResponse::Task(task.clone()))
                        .as_str(),
                    history_texts(&task)
                ),
                ("task active", vec!["go".to_owned()])
            );
            let job = agent.next().await;
            job.turn.say("on it").await;
            assert_eq!(
                events.event_text().await,
                "status working: on it",
                "as it happens"
            );
            job.turn.write("part", "one").await;
            job.turn.say("nearly").await;
            job.end(Outcome::CompletedWith(Message::agent("there you are")));
            let rest = events.all().await;
            let event_texts: Vec<_> = rest
                .iter()
                .map(crate::harness::everywhere::event_text)
                .collect();
            assert_eq!(
                event_texts,
                [
                    "artifact one.",
                    "status working: nearly",
                    "status completed: there you are"
                ]
            );
            // The fold of the stream equals the stored task.
            let stored = get(&client, &task).await;
            for event in &rest {
                task.apply_update(event).unwrap();
            }
            assert_eq!(
                (&task.status, &task.artifacts),
                (&stored.status, &stored.artifacts)
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_stream_closes_when_the_task_ends() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for (text, end) in [
                ("reject", "status rejected: not today"),
                ("fail", "status failed: the tide is out"),
                ("panic", "status failed: Agent execution failed (panic)"),
            ] {
                let event_texts = stream(&client, message(text)).await.event_texts().await;
                assert_eq!(event_texts, ["task active", end]);
            }
        },
    )
    .await;
}

/// 05 §2: the stream of a message closes when the task waits for input or credentials.
#[tokio::test]
async fn a_stream_closes_when_the_turn_ends_in_a_question() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for (text, end) in [
                ("ask", "status input_required: which harbour?"),
                ("auth", "status auth_required: log in first"),
            ] {
                let mut events = stream(&client, message(text)).await;
                let task = first(&mut events).await;
                assert_eq!(events.event_texts().await, [end]);
                // The next message opens a new stream, which begins with the task.
                let mut events = stream(&client, message_to(&task, "Saint-Malo")).await;
                let again = first(&mut events).await;
                assert_eq!(
                    (again.id, history_texts(&get(&client, &task).await).len()),
                    (task.id, 3)
                );
                assert_eq!(
                    events.event_texts().await.last().unwrap(),
                    "status completed"
                );
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_continued_stream_begins_with_the_updated_task() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let (asked, ()) = tokio::join!(send_text(&client, "one"), async {
                agent.next().await.end(Outcome::ask("which?"))
            });
            let mut events = stream(&client, message_to(&asked, "two")).await;
            let task = first(&mut events).await;
            assert_eq!(history_texts(&task), ["one", "which?", "two"]);
            let job = agent.next().await;
            job.turn.write("done", "x").await;
            job.complete();
            assert_eq!(
                events.event_texts().await,
                ["artifact x.", "status completed"]
            );
        },
    )
    .await;
}

/// 05 §2: credentials arrive out of band, so the stream remaining open while the turn runs.
#[tokio::test]
async fn a_stream_stays_open_while_the_agent_waits_for_credentials() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let mut events = stream(&client, message("go")).await;
            first(&mut events).await;
            let job = agent.next().await;
            job.turn.require_auth("log in first").await;
            assert_eq!(
                events.event_text().await,
                "status auth_required: log in first"
            );
            job.turn.say("thank you").await;
            assert_eq!(events.event_text().await, "status working: thank you");
            job.end(Outcome::auth_required("once more"));
            assert_eq!(
                events.event_texts().await,
                ["status auth_required: once more"]
            );
        },
    )
    .await;
}

/// 05 §4: each chunk is sent when it is written.
#[tokio::test]
async fn chunks_are_streamed_and_folded_into_one_artifact() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let mut events = stream(&client, message("go")).await;
            let mut task = first(&mut events).await;
            let job = agent.next().await;
            let mut writer = job.turn.writer("poem");
            writer.write("the sea, ").await;
            assert_eq!(events.event_text().await, "artifact the sea, ");
            writer.write("the sea").await;
            writer.finish().await;
            job.complete();
            assert_eq!(
                events.event_texts().await,
                ["chunk the sea", "chunk .", "status completed"]
            );
            task = get(&client, &task).await;
            assert_eq!(
                (task.artifacts.len(), task.text().as_str()),
                (1, "the sea, the sea")
            );
        },
    )
    .await;
}

#[tokio::test]
async fn an_artifact_with_a_known_id_is_replaced() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let version = |text: &str| attache::model::Artifact::text("draft", text).with_id("a-1");
            let run_turn = async {
                let job = agent.next().await;
                job.turn.add_artifact(version("one")).await;
                job.turn.add_artifact(version("two")).await;
                job.complete();
            };
            let (task, ()) = tokio::join!(send_text(&client, "go"), run_turn);
            assert_eq!((task.artifacts.len(), task.text().as_str()), (1, "two"));
        },
    )
    .await;
}

#[tokio::test]
async fn history_in_a_stream_has_the_requested_length() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = send_text(&client, "ask").await;
            for (length, all) in [(0, 3), (1, 5), (2, 7)] {
                let configuration = SendMessageConfiguration {
                    history_length: Some(length),
                    ..Default::default()
                };
                let mut events = stream(
                    &client,
                    configured(message_to(&asked, "ask"), configuration),
                )
                .await;
                let task = first(&mut events).await;
                assert_eq!(
                    task.history.len(),
                    history(&client, length as usize, all),
                    "{length}"
                );
                events.all().await;
            }
            let none = SendMessageConfiguration {
                history_length: Some(0),
                ..Default::default()
            };
            let mut events = stream(&client, configured(message("hi"), none)).await;
            assert_eq!(
                first(&mut events).await.history.len(),
                history(&client, 0, 1)
            );
            events.all().await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_disconnect_affects_neither_the_task_nor_other_streams() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let mut dropped = stream(&client, message("go")).await;
            let task = first(&mut dropped).await;
            let mut remaining = subscribe(&client, &task.id).await.unwrap();
            first(&mut remaining).await;
            let job = agent.next().await;
            job.turn.say("one").await;
            assert_eq!(dropped.event_text().await, "status working: one");
            drop(dropped);
            job.turn.say("two").await;
            job.complete();
            let event_texts = remaining.event_texts().await;
            assert_eq!(
                event_texts,
                [
                    "status working: one",
                    "status working: two",
                    "status completed"
                ]
            );
        },
    )
    .await;
}

/// The flag applies to unary calls only.
#[tokio::test]
async fn a_stream_ignores_return_immediately() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let event_texts = stream(&client, return_immediately(message("hi")))
                .await
                .event_texts()
                .await;
            assert_eq!(
                event_texts,
                ["task active", "artifact hi.", "status completed"]
            );
        },
    )
    .await;
}

/// 05 §1: all streams of a task have the same events in the same order.
#[tokio::test]
async fn streams_of_every_version_and_binding_follow_one_task() {
    let agent = SteppedJobAgent::new();
    let local = with_deadline(Server::new(card(), agent.clone()).serve_in_process())
        .await
        .unwrap();
    let clients = MATRIX
        .iter()
        .map(|&(binding, version)| local.client(binding, version).unwrap());
    let clients: Vec<Client> = clients.collect();
    let task = with_deadline(send(&clients[0], return_immediately(message("go")))).await;
    let mut streams = Vec::new();
    for client in &clients {
        let mut events = with_deadline(subscribe(client, &task.id)).await.unwrap();
        assert_eq!(with_deadline(events.event_text()).await, "task active");
        streams.push(events);
    }
    let job = agent.next().await;
    for step in 0..20 {
        job.turn.say(format!("step {step}")).await;
        job.turn.write("result", step.to_string()).await;
    }
    job.complete();
    let mut event_lists = Vec::new();
    for events in streams {
        event_lists.push(with_deadline(events.event_texts()).await);
    }
    assert_eq!(
        (
            event_lists[0].len(),
            event_lists[0].last().unwrap().as_str()
        ),
        (41, "status completed")
    );
    for event_texts in &event_lists {
        assert_eq!(event_texts, &event_lists[0]);
    }
}
