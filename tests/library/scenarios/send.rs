//! `SendMessage`: responses, blocking (04 §3.1), history (04 §3.2) and turn outcomes.

use std::time::Duration;

use attache::model::{
    Artifact, ErrorKind, GetTaskRequest, Json, Limits, Message, Part, Role,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, TaskState,
};
use attache::{Client, Outcome, Server, ServerSettings, Turn};

use super::{
    SteppedJobAgent, TextCommandAgent, begin, configured, error_kind, find, get, history_texts,
    message, message_to, return_immediately, send, send_text, stream, wait_until_ended,
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
                task.history
                    .iter()
                    .map(|message| &**message)
                    .collect::<Vec<_>>(),
                [&stamped]
            );
            assert!(task.status.timestamp.is_some());
            assert_eq!(get(&client, &task).await, task);
        },
    )
    .await;
}

#[tokio::test]
async fn every_kind_of_part_round_trips() {
    let mirror_agent = |turn: Turn| async move {
        turn.add_artifact(Artifact {
            parts: turn.message().parts.clone(),
            ..Artifact::text("mirror", "")
        })
        .await;
        Ok(Outcome::Completed)
    };
    everywhere(
        || mirror_agent,
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
async fn the_outcome_determines_the_state() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for (text, state, status_text) in [
                ("ask", TaskState::InputRequired, "which harbour?"),
                ("auth", TaskState::AuthRequired, "log in first"),
                ("reject", TaskState::Rejected, "not today"),
                ("fail", TaskState::Failed, "the tide is out"),
            ] {
                let task = send_text(&client, text).await;
                let status = task.status.message.as_ref().unwrap();
                assert_eq!(
                    (task.status.state, status.text().as_str()),
                    (state, status_text)
                );
                assert_eq!(
                    (status.role, status.task_id.as_ref()),
                    (Role::Agent, Some(&task.id))
                );
                // 07 §4: the message of the current status is not part of the history.
                assert_eq!(history_texts(&task), [text]);
                assert_eq!(get(&client, &task).await, task);
            }
        },
    )
    .await;
}

/// 06 §3, §4: the error message has the kind of fault, never its text.
#[tokio::test]
async fn an_agent_fault_fails_the_task_without_details() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for (text, status_text) in [
                ("panic", "Agent execution failed (panic)"),
                ("error", "Agent execution failed (Error)"),
            ] {
                let task = send_text(&client, text).await;
                assert_eq!(
                    (task.status.state, task.text().as_str()),
                    (TaskState::Failed, status_text)
                );
                assert!(!format!("{task:?}").contains("hunter2"), "{task:?}");
            }
            // A panic in `reply`, before a task exists, creates a failed task and a stream with its status.
            let task = send_text(&client, "ping panic").await;
            let failed = (TaskState::Failed, "Agent execution failed (panic)");
            assert_eq!((task.status.state, task.text().as_str()), failed);
            assert_eq!(
                (get(&client, &task).await.status.state, history_texts(&task)),
                (failed.0, vec!["ping panic".to_owned()])
            );
            let event_texts = stream(&client, message("ping panic"))
                .await
                .event_texts()
                .await;
            assert_eq!(
                event_texts,
                [
                    "task active",
                    "status failed: Agent execution failed (panic)"
                ]
            );
            assert_eq!(
                send_text(&client, "hi").await.status.state,
                TaskState::Completed
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_plain_reply_creates_no_task() {
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
async fn a_blocking_call_returns_at_the_end_or_a_question() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            for (outcome, state) in [
                (Outcome::Completed, TaskState::Completed),
                (Outcome::ask("which?"), TaskState::InputRequired),
                (Outcome::auth_required("who?"), TaskState::AuthRequired),
            ] {
                let run_turn = async {
                    let job = agent.next().await;
                    job.turn.say("on it").await;
                    job.turn.write("first", "1").await;
                    job.turn.write("second", "2").await;
                    job.end(outcome);
                };
                let (task, ()) = tokio::join!(send_text(&client, "go"), run_turn);
                assert_eq!((task.status.state, task.text().as_str()), (state, "1\n2"));
            }
        },
    )
    .await;
}

/// 07 §5: a blocking call returns while the agent waits for credentials.
#[tokio::test]
async fn a_blocking_call_returns_when_credentials_are_required() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let run_turn = async {
                let job = agent.next().await;
                job.turn.require_auth("log in first").await;
                job
            };
            let (task, job) = tokio::join!(send_text(&client, "go"), run_turn);
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
async fn return_immediately_returns_while_the_turn_runs() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let task = begin(&client, "go").await;
            assert!(!task.is_ended() && !task.status.state.is_interrupted());
            let job = agent.next().await;
            assert_eq!(*job.turn.task_id(), task.id);
            job.turn.write("done", "at last").await;
            job.complete();
            assert_eq!(wait_until_ended(&client, &task).await.text(), "at last");
        },
    )
    .await;
}

#[tokio::test]
async fn a_task_completes_after_its_caller_disconnects() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let job = {
                let call = client.send_message(message("go"));
                tokio::select! {
                    job = agent.next() => job,
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

/// 04 §3.1: after `max_blocking_wait` the response is the current task.
#[tokio::test]
async fn the_blocking_wait_is_limited() {
    let agent = SteppedJobAgent::new();
    let mut settings = ServerSettings::default();
    settings.max_blocking_wait = Some(Duration::from_millis(1));
    let server = || Server::new(card(), agent.clone()).server_settings(settings.clone());
    everywhere_on(server, async |client: Client| {
        let task = send_text(&client, "go").await;
        assert!(!task.is_ended() && !task.status.state.is_interrupted());
        agent.next().await.complete();
        assert_eq!(
            wait_until_ended(&client, &task).await.status.state,
            TaskState::Completed
        );
    })
    .await;
}

#[tokio::test]
async fn s66_history_has_the_requested_length() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = send_text(&client, "ask").await;
            let again = send(&client, message_to(&asked, "ask")).await;
            let all = ["ask", "which harbour?", "ask"];
            assert_eq!(history_texts(&again), all);
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
                    history_texts(&by_get(length).await.unwrap()),
                    expected,
                    "{length}"
                );
            }
            assert_eq!(error_kind(by_get(-1).await), ErrorKind::InvalidParams);
            // `historyLength` limits the response, not the stored history.
            let configuration = |length| SendMessageConfiguration {
                history_length: Some(length),
                ..Default::default()
            };
            let sent = send(
                &client,
                configured(message_to(&asked, "ask"), configuration(2)),
            )
            .await;
            assert_eq!(history_texts(&sent), ["which harbour?", "ask"]);
            assert_eq!(history_texts(&get(&client, &asked).await).len(), 5);
            let negative = client
                .send_message(configured(message_to(&asked, "ask"), configuration(-1)))
                .await;
            assert_eq!(error_kind(negative), ErrorKind::InvalidParams);
            assert_eq!(history_texts(&get(&client, &asked).await).len(), 5);
        },
    )
    .await;
}

#[tokio::test]
async fn s66_history_length_is_limited_by_the_server() {
    let limits = Limits {
        max_history_length: 2,
        ..Default::default()
    };
    let server = || Server::new(card(), TextCommandAgent).limits(limits);
    everywhere_on(server, async |client: Client| {
        let task = send_text(&client, "ask").await;
        send(&client, message_to(&task, "ask")).await;
        let task = send(&client, message_to(&task, "ask")).await;
        assert_eq!(task.history.len(), 2);
        for (asked, expected) in [(None, 2), (Some(1), 1), (Some(100), 2)] {
            let request = GetTaskRequest {
                id: task.id.clone(),
                history_length: asked,
                ..Default::default()
            };
            let found = client.get_task(request).await.unwrap();
            assert_eq!(
                history_texts(&found),
                history_texts(&task)[2 - expected..],
                "{asked:?}"
            );
        }
    })
    .await;
}
