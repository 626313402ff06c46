//! Streams of a message: 05 §1, §2 and §4, row by row.

use attache::model::{Message, SendMessageConfiguration, StreamResponse, Task};
use attache::{Client, Outcome, Server};

use super::{
    SteppedJobAgent, TextCommandAgent, agent_texts, configured, get, message, return_immediately,
    say, send, stream, subscribe, to,
};
use crate::harness::everywhere::{Events, MATRIX, card, everywhere, history};
use crate::harness::with_deadline;

/// The task that a stream begins with.
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
async fn the_task_comes_first_then_what_happens_then_the_end() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let mut events = stream(&client, message("go")).await;
            let mut task = first(&mut events).await;
            assert_eq!(
                (
                    crate::harness::everywhere::event_text(&StreamResponse::Task(task.clone()))
                        .as_str(),
                    agent_texts(&task)
                ),
                ("task active", vec!["go".to_owned()])
            );
            let job = led.next().await;
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
            let story: Vec<_> = rest
                .iter()
                .map(crate::harness::everywhere::event_text)
                .collect();
            assert_eq!(
                story,
                [
                    "artifact one.",
                    "status working: nearly",
                    "status completed: there you are"
                ]
            );
            // Whoever folds the stream has the task.
            let kept = get(&client, &task).await;
            for event in &rest {
                task.apply_update(event).unwrap();
            }
            assert_eq!(
                (&task.status, &task.artifacts),
                (&kept.status, &kept.artifacts)
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
                let story = stream(&client, message(text)).await.event_texts().await;
                assert_eq!(story, ["task active", end]);
            }
        },
    )
    .await;
}

/// 05 §2: a send-stream closes once the agent waits for somebody.
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
                // The next message has a stream of its own: first the task, with what was said.
                let mut events = stream(&client, to(&task, "Saint-Malo")).await;
                let again = first(&mut events).await;
                assert_eq!(
                    (again.id, agent_texts(&get(&client, &task).await).len()),
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
async fn a_continued_stream_begins_with_the_task_that_has_taken_the_message() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let (asked, ()) = tokio::join!(say(&client, "one"), async {
                led.next().await.end(Outcome::ask("which?"))
            });
            let mut events = stream(&client, to(&asked, "two")).await;
            let task = first(&mut events).await;
            assert_eq!(agent_texts(&task), ["one", "which?", "two"]);
            let job = led.next().await;
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

/// 05 §2: credentials come out of band; the stream stays while the agent runs.
#[tokio::test]
async fn a_stream_stays_open_while_the_agent_waits_for_credentials() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let mut events = stream(&client, message("go")).await;
            first(&mut events).await;
            let job = led.next().await;
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

/// 05 §4.
#[tokio::test]
async fn chunks_come_as_they_are_written_and_fold_into_one_result() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let mut events = stream(&client, message("go")).await;
            let mut task = first(&mut events).await;
            let job = led.next().await;
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
async fn a_known_result_is_replaced() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let version = |text: &str| attache::model::Artifact::text("draft", text).with_id("a-1");
            let lead = async {
                let job = led.next().await;
                job.turn.add_artifact(version("one")).await;
                job.turn.add_artifact(version("two")).await;
                job.complete();
            };
            let (task, ()) = tokio::join!(say(&client, "go"), lead);
            assert_eq!((task.artifacts.len(), task.text().as_str()), (1, "two"));
        },
    )
    .await;
}

#[tokio::test]
async fn history_in_a_stream_is_as_long_as_was_asked_for() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = say(&client, "ask").await;
            for (length, all) in [(0, 3), (1, 5), (2, 7)] {
                let configuration = SendMessageConfiguration {
                    history_length: Some(length),
                    ..Default::default()
                };
                let mut events =
                    stream(&client, configured(to(&asked, "ask"), configuration)).await;
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
async fn who_leaves_a_stream_stops_neither_the_task_nor_the_others() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let mut leaves = stream(&client, message("go")).await;
            let task = first(&mut leaves).await;
            let mut stays = subscribe(&client, &task.id).await.unwrap();
            first(&mut stays).await;
            let job = led.next().await;
            job.turn.say("one").await;
            assert_eq!(leaves.event_text().await, "status working: one");
            drop(leaves);
            job.turn.say("two").await;
            job.complete();
            let story = stays.event_texts().await;
            assert_eq!(
                story,
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

/// The flag says how a call answers, and a stream is no answer.
#[tokio::test]
async fn a_stream_takes_no_notice_of_a_caller_in_a_hurry() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let story = stream(&client, return_immediately(message("hi")))
                .await
                .event_texts()
                .await;
            assert_eq!(story, ["task active", "artifact hi.", "status completed"]);
        },
    )
    .await;
}

/// 05 §1: each in its own version, all in one order.
#[tokio::test]
async fn streams_of_every_version_and_binding_follow_one_task() {
    let led = SteppedJobAgent::new();
    let local = with_deadline(Server::new(card(), led.clone()).serve_in_process())
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
    let job = led.next().await;
    for step in 0..20 {
        job.turn.say(format!("step {step}")).await;
        job.turn.write("result", step.to_string()).await;
    }
    job.complete();
    let mut stories = Vec::new();
    for events in streams {
        stories.push(with_deadline(events.event_texts()).await);
    }
    assert_eq!(
        (stories[0].len(), stories[0].last().unwrap().as_str()),
        (41, "status completed")
    );
    for story in &stories {
        assert_eq!(story, &stories[0]);
    }
}
