//! Sending: answers, blocking (04 §3.1), history (04 §3.2), and what a turn may end in.

use std::time::Duration;

use attache::model::{
    Artifact, ErrorKind, GetTaskRequest, Json, Limits, Message, Part, Role,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, TaskState,
};
use attache::{Client, Outcome, Server, ServerSettings, Turn};

use super::{
    SteppedJobAgent, TextCommandAgent, agent_texts, begin, configured, error_kind, find, get,
    message, return_immediately, say, send, stream, to, wait_until_ended,
};
use crate::harness::everywhere::{card, everywhere, everywhere_on, history};

#[tokio::test]
async fn a_message_is_answered_by_a_finished_task() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let sent = Message::user("hello");
            let task = send(&client, SendMessageRequest::new(sent.clone())).await;
            assert_eq!(
                (task.status.state, task.text().as_str()),
                (TaskState::Completed, "hello")
            );
            assert_eq!(task.artifacts[0].name.as_deref(), Some("echo"));
            let stamped = sent
                .in_task(task.id.clone())
                .in_context(task.context_id.clone());
            assert_eq!(
                task.history.iter().map(|kept| &**kept).collect::<Vec<_>>(),
                [&stamped]
            );
            assert!(task.status.timestamp.is_some());
            assert_eq!(get(&client, &task).await, task);
        },
    )
    .await;
}

#[tokio::test]
async fn every_kind_of_part_goes_there_and_comes_back() {
    let mirror = |turn: Turn| async move {
        turn.add_artifact(Artifact {
            parts: turn.message().parts.clone(),
            ..Artifact::text("mirror", "")
        })
        .await;
        Ok(Outcome::Completed)
    };
    everywhere(
        || mirror,
        async |client: Client| {
            let sent = Message::user("grüße, 世界")
                .part(Part::file([0, 159, 255], "image/png").with_filename("a.png"))
                .part(Part::url("https://example.com/a.pdf").with_media_type("application/pdf"))
                .part(Part::data(
                    Json::parse(r#"{"depth":[1,2.5,null,true,"x"]}"#).unwrap(),
                ));
            let task = send(&client, SendMessageRequest::new(sent.clone())).await;
            assert_eq!(task.artifacts[0].parts, sent.parts);
            assert_eq!(get(&client, &task).await.history[0].parts, sent.parts);
        },
    )
    .await;
}

#[tokio::test]
async fn a_turn_ends_as_the_agent_says() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for (text, state, words) in [
                ("ask", TaskState::InputRequired, "which harbour?"),
                ("auth", TaskState::AuthRequired, "log in first"),
                ("reject", TaskState::Rejected, "not today"),
                ("fail", TaskState::Failed, "the tide is out"),
            ] {
                let task = say(&client, text).await;
                let status = task.status.message.as_ref().unwrap();
                assert_eq!((task.status.state, status.text().as_str()), (state, words));
                assert_eq!(
                    (status.role, status.task_id.as_ref()),
                    (Role::Agent, Some(&task.id))
                );
                // 07 §4: what the status says is not history yet.
                assert_eq!(agent_texts(&task), [text]);
                assert_eq!(get(&client, &task).await, task);
            }
        },
    )
    .await;
}

/// 06 §3, §4.
#[tokio::test]
async fn a_fault_in_the_agent_fails_the_task_and_keeps_its_secrets() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for (text, words) in [
                ("panic", "Agent execution failed (panic)"),
                ("error", "Agent execution failed (Error)"),
            ] {
                let task = say(&client, text).await;
                assert_eq!(
                    (task.status.state, task.text().as_str()),
                    (TaskState::Failed, words)
                );
                assert!(!format!("{task:?}").contains("hunter2"), "{task:?}");
            }
            // One that fails before there is a task fails a task all the same, and a stream tells of it.
            let task = say(&client, "ping panic").await;
            let failed = (TaskState::Failed, "Agent execution failed (panic)");
            assert_eq!((task.status.state, task.text().as_str()), failed);
            assert_eq!(
                (get(&client, &task).await.status.state, agent_texts(&task)),
                (failed.0, vec!["ping panic".to_owned()])
            );
            let told = stream(&client, message("ping panic"))
                .await
                .event_texts()
                .await;
            assert_eq!(
                told,
                [
                    "task active",
                    "status failed: Agent execution failed (panic)"
                ]
            );
            assert_eq!(say(&client, "hi").await.status.state, TaskState::Completed);
        },
    )
    .await;
}

#[tokio::test]
async fn a_plain_reply_makes_no_task_and_is_waited_for() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let ping = || SendMessageRequest::new(Message::user("ping").in_context("c"));
            for request in [ping(), return_immediately(ping())] {
                let SendMessageResponse::Message(reply) =
                    client.send_message(request).await.unwrap()
                else {
                    panic!("a task");
                };
                assert_eq!((reply.text().as_str(), reply.role), ("pong", Role::Agent));
                assert_eq!((reply.task_id, reply.context_id), (None, Some("c".into())));
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_call_waits_for_the_end_or_for_a_question() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            for (outcome, state) in [
                (Outcome::Completed, TaskState::Completed),
                (Outcome::ask("which?"), TaskState::InputRequired),
                (Outcome::auth_required("who?"), TaskState::AuthRequired),
            ] {
                let lead = async {
                    let job = led.next().await;
                    job.turn.say("on it").await;
                    job.turn.write("first", "1").await;
                    job.turn.write("second", "2").await;
                    job.end(outcome);
                };
                let (task, ()) = tokio::join!(say(&client, "go"), lead);
                assert_eq!((task.status.state, task.text().as_str()), (state, "1\n2"));
            }
        },
    )
    .await;
}

/// 07 §5: blocked callers return while the agent goes on waiting for credentials.
#[tokio::test]
async fn a_call_returns_when_credentials_are_needed_though_the_turn_goes_on() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let lead = async {
                let job = led.next().await;
                job.turn.require_auth("log in first").await;
                job
            };
            let (task, job) = tokio::join!(say(&client, "go"), lead);
            assert_eq!(
                (task.status.state, task.text().as_str()),
                (TaskState::AuthRequired, "log in first")
            );
            job.turn.say("thank you").await;
            job.complete();
            assert_eq!(
                wait_until_ended(&client, &task).await.status.state,
                TaskState::Completed
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_caller_in_a_hurry_gets_the_task_at_once_and_its_turn_goes_on() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let task = begin(&client, "go").await;
            assert!(!task.is_ended() && !task.status.state.is_interrupted());
            let job = led.next().await;
            assert_eq!(*job.turn.task_id(), task.id);
            job.turn.write("done", "at last").await;
            job.complete();
            assert_eq!(wait_until_ended(&client, &task).await.text(), "at last");
        },
    )
    .await;
}

#[tokio::test]
async fn a_caller_may_leave_and_the_task_still_completes() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let job = {
                let call = client.send_message(message("go"));
                tokio::select! {
                    job = led.next() => job,
                    answer = call => panic!("{answer:?}"),
                }
            };
            let id = job.turn.task_id().clone();
            job.turn.write("done", "at last").await;
            job.complete();
            let task = find(&client, &id).await.unwrap();
            assert_eq!(wait_until_ended(&client, &task).await.text(), "at last");
        },
    )
    .await;
}

/// 04 §3.1: at the cap the current task is the answer.
#[tokio::test]
async fn a_server_may_bound_the_wait() {
    let led = SteppedJobAgent::new();
    let mut settings = ServerSettings::default();
    settings.max_blocking_wait = Some(Duration::from_millis(1));
    let server = || Server::new(card(), led.clone()).server_settings(settings.clone());
    everywhere_on(server, async |client: Client| {
        let task = say(&client, "go").await;
        assert!(!task.is_ended() && !task.status.state.is_interrupted());
        led.next().await.complete();
        assert_eq!(
            wait_until_ended(&client, &task).await.status.state,
            TaskState::Completed
        );
    })
    .await;
}

#[tokio::test]
async fn s66_as_much_history_comes_as_was_asked_for() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = say(&client, "ask").await;
            let again = send(&client, to(&asked, "ask")).await;
            let all = ["ask", "which harbour?", "ask"];
            assert_eq!(agent_texts(&again), all);
            let by_get = async |length: i32| {
                let request = GetTaskRequest {
                    id: asked.id.clone(),
                    history_length: Some(length),
                    ..Default::default()
                };
                client.get_task(request).await
            };
            for (length, asked) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (i32::MAX, 100)] {
                let expected = &all[all.len() - history(&client, asked, all.len())..];
                assert_eq!(
                    agent_texts(&by_get(length).await.unwrap()),
                    expected,
                    "{length}"
                );
            }
            assert_eq!(error_kind(by_get(-1).await), ErrorKind::InvalidParams);
            // It changes what is told, never what is kept.
            let configuration = |length| SendMessageConfiguration {
                history_length: Some(length),
                ..Default::default()
            };
            let sent = send(&client, configured(to(&asked, "ask"), configuration(2))).await;
            assert_eq!(agent_texts(&sent), ["which harbour?", "ask"]);
            assert_eq!(agent_texts(&get(&client, &asked).await).len(), 5);
            let negative = client
                .send_message(configured(to(&asked, "ask"), configuration(-1)))
                .await;
            assert_eq!(error_kind(negative), ErrorKind::InvalidParams);
            assert_eq!(agent_texts(&get(&client, &asked).await).len(), 5);
        },
    )
    .await;
}

#[tokio::test]
async fn s66_no_more_history_goes_out_than_the_server_allows() {
    let limits = Limits {
        max_history_length: 2,
        ..Default::default()
    };
    let server = || Server::new(card(), TextCommandAgent).limits(limits.clone());
    everywhere_on(server, async |client: Client| {
        let task = say(&client, "ask").await;
        send(&client, to(&task, "ask")).await;
        let task = send(&client, to(&task, "ask")).await;
        assert_eq!(task.history.len(), 2);
        for (asked, expected) in [(None, 2), (Some(1), 1), (Some(100), 2)] {
            let request = GetTaskRequest {
                id: task.id.clone(),
                history_length: asked,
                ..Default::default()
            };
            let found = client.get_task(request).await.unwrap();
            assert_eq!(
                agent_texts(&found),
                agent_texts(&task)[2 - expected..],
                "{asked:?}"
            );
        }
    })
    .await;
}
