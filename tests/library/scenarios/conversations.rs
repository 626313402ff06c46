//! Ids and multi-turn conversations: the rows of 04 §3.3, and repeated message ids (04 §3.4).

use attache::model::{ErrorKind, Message, MessageId, Role, SendMessageRequest, TaskState};
use attache::{Client, Outcome, Turn};

use super::{
    SteppedJobAgent, TextCommandAgent, begin, cancel, error_kind, find, get, history_texts,
    message, message_to, return_immediately, send, send_text,
};
use crate::harness::everywhere::{everywhere, has_details, has_references, open};

#[tokio::test]
async fn a_message_without_ids_gets_new_ones() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let one = send_text(&client, "a").await;
            let two = send_text(&client, "b").await;
            assert!(one.id != two.id && one.context_id != two.context_id);
            assert!(!one.id.is_empty() && !one.context_id.is_empty());
        },
    )
    .await;
}

#[tokio::test]
async fn a_context_id_of_the_client_groups_tasks() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let in_context = async |text: &str| {
                send(
                    &client,
                    SendMessageRequest::new(Message::user(text).in_context("client's context")),
                )
                .await
            };
            let one = in_context("a").await;
            let two = in_context("b").await;
            assert_eq!(
                (one.context_id.as_str(), two.context_id.as_str()),
                ("client's context", "client's context")
            );
            assert_ne!(one.id, two.id);
            assert_eq!(history_texts(&two), ["b"]);
            assert_eq!(get(&client, &one).await, one);
        },
    )
    .await;
}

#[tokio::test]
async fn s13_a_task_id_invented_by_a_client_is_not_found() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let request =
                SendMessageRequest::new(Message::user("hi").in_task("mine").in_context("c"));
            assert_eq!(
                error_kind(client.send_message(request.clone()).await),
                ErrorKind::TaskNotFound
            );
            assert_eq!(
                error_kind(find(&client, &"mine".into()).await),
                ErrorKind::TaskNotFound
            );
            assert_eq!(
                error_kind(client.send_message(request).await),
                ErrorKind::TaskNotFound
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_question_is_answered_in_the_same_task() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for question in ["ask", "auth"] {
                let asked = send_text(&client, question).await;
                let question_text = asked.text();
                // The first answer has the task id only, the second has both ids.
                let again = send(&client, message_to(&asked, question)).await;
                assert_eq!(again.status.state, asked.status.state);
                let answer = Message::user("Saint-Malo")
                    .in_task(asked.id.clone())
                    .in_context(asked.context_id.clone());
                let done = send(&client, SendMessageRequest::new(answer)).await;
                assert_eq!(
                    (done.status.state, done.text().as_str()),
                    (TaskState::Completed, "Saint-Malo")
                );
                assert_eq!((&done.id, &done.context_id), (&asked.id, &asked.context_id));
                assert_eq!(
                    history_texts(&done),
                    [
                        question,
                        &question_text,
                        question,
                        &question_text,
                        "Saint-Malo"
                    ]
                );
                let stamps = done
                    .history
                    .iter()
                    .map(|message| (&message.task_id, &message.context_id));
                assert!(
                    stamps.into_iter().all(
                        |ids| ids == (&Some(asked.id.clone()), &Some(asked.context_id.clone()))
                    )
                );
            }
        },
    )
    .await;
}

#[tokio::test]
async fn s06_mismatched_task_and_context_ids_are_refused() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = send_text(&client, "ask").await;
            let other = send_text(&client, "hi").await;
            for context in ["another", other.context_id.as_str()] {
                let wrong = Message::user("x")
                    .in_task(asked.id.clone())
                    .in_context(context);
                let error = client
                    .send_message(SendMessageRequest::new(wrong))
                    .await
                    .unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidParams);
                assert!(error.message().contains("message.contextId"), "{error}");
                if has_details(&client) {
                    assert_eq!(error.violations()[0].field(), "message.contextId");
                }
            }
            assert_eq!(get(&client, &asked).await, asked);
            assert_eq!(get(&client, &other).await, other);
        },
    )
    .await;
}

#[tokio::test]
async fn s77_an_ended_task_accepts_no_message() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for (text, state) in [
                ("hi", TaskState::Completed),
                ("fail", TaskState::Failed),
                ("reject", TaskState::Rejected),
                ("ask", TaskState::Canceled),
            ] {
                let mut task = send_text(&client, text).await;
                if state == TaskState::Canceled {
                    task = cancel(&client, &task.id).await.unwrap();
                }
                assert_eq!(task.status.state, state);
                for request in [
                    message_to(&task, "more"),
                    return_immediately(message_to(&task, "more")),
                ] {
                    let error = client.send_message(request).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
                    if has_details(&client) {
                        let details = [("state", state.as_str()), ("taskId", task.id.as_str())];
                        assert_eq!(error.metadata().collect::<Vec<_>>(), details);
                    }
                }
                let streamed = open(client.send_streaming_message(message_to(&task, "more"))).await;
                assert_eq!(error_kind(streamed), ErrorKind::UnsupportedOperation);
                assert_eq!(get(&client, &task).await, task);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn messages_to_a_running_task_are_queued_in_order() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let task = begin(&client, "one").await;
            let first = agent.next().await;
            for text in ["two", "three"] {
                send(&client, return_immediately(message_to(&task, text))).await;
            }
            assert!(agent.is_idle().await, "one turn at a time");
            assert_eq!(
                history_texts(&get(&client, &task).await),
                ["one", "two", "three"]
            );
            first.end(Outcome::ask("more?"));
            let second = agent.next().await;
            assert_eq!(second.turn.text(), "two");
            second.end(Outcome::ask("more?"));
            let third = agent.next().await;
            assert_eq!(
                (third.turn.text().as_str(), third.turn.task_id()),
                ("three", &task.id)
            );
            let (done, ()) = tokio::join!(send(&client, message_to(&task, "four")), async {
                third.end(Outcome::ask("more?"));
                agent.next().await.complete();
            });
            assert_eq!(done.status.state, TaskState::Completed);
            let users = done
                .history
                .iter()
                .filter(|message| message.role == Role::User);
            assert_eq!(
                users.map(|message| message.text()).collect::<Vec<_>>(),
                ["one", "two", "three", "four"]
            );
        },
    )
    .await;
}

#[tokio::test]
async fn tasks_of_one_context_run_concurrently() {
    let agent = SteppedJobAgent::new();
    everywhere(
        || agent.clone(),
        async |client: Client| {
            let start = async |text: &str| {
                let message = Message::user(text).in_context("c");
                send(
                    &client,
                    return_immediately(SendMessageRequest::new(message)),
                )
                .await
            };
            let one = start("one").await;
            let two = start("two").await;
            let first = agent.next().await;
            let second = agent.next().await;
            assert_eq!(
                (first.turn.task_id(), second.turn.task_id()),
                (&one.id, &two.id)
            );
            second.complete();
            first.complete();
        },
    )
    .await;
}

#[tokio::test]
async fn references_are_hints_and_unknown_ones_are_no_error() {
    let counter_agent = |turn: Turn| async move {
        turn.write("seen", turn.referenced_tasks().await.len().to_string())
            .await;
        Ok(Outcome::Completed)
    };
    everywhere(
        || counter_agent,
        async |client: Client| {
            let known = send_text(&client, "hi").await;
            let mut request = message("look");
            request.message.reference_task_ids = vec![known.id.clone(), "gone".into()];
            let seen = if has_references(&client) { "1" } else { "0" };
            assert_eq!(send(&client, request).await.text(), seen);
        },
    )
    .await;
}

#[tokio::test]
async fn ids_are_opaque_case_sensitive_and_bounded() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let send_message = async |message: Message| {
                client.send_message(SendMessageRequest::new(message)).await
            };
            let longest = "ü".repeat(128);
            let context = send(
                &client,
                SendMessageRequest::new(Message::user("a").in_context(&*longest)),
            )
            .await;
            assert_eq!(context.context_id.as_str(), longest);
            let long = "x".repeat(257);
            for id in [long.as_str(), "a\u{7}b"] {
                let unnamed = Message {
                    message_id: MessageId::from(id),
                    ..Message::user("a")
                };
                for message in [
                    Message::user("a").in_context(id),
                    Message::user("a").in_task(id),
                    unnamed,
                ] {
                    assert_eq!(
                        error_kind(send_message(message).await),
                        ErrorKind::InvalidParams
                    );
                }
                assert_eq!(
                    error_kind(find(&client, &id.into()).await),
                    ErrorKind::InvalidParams
                );
            }
            let task = send_text(&client, "ask").await;
            let upper = task.id.as_str().to_uppercase();
            assert_eq!(
                error_kind(find(&client, &upper.into()).await),
                ErrorKind::TaskNotFound
            );
            for odd in ["a/b", "a b", "a?b#c", "a:cancel", "%2e", "ü"] {
                assert_eq!(
                    error_kind(find(&client, &odd.into()).await),
                    ErrorKind::TaskNotFound,
                    "{odd}"
                );
            }
        },
    )
    .await;
}

/// 04 §3.4: a caller may reuse a message id with another text.
#[tokio::test]
async fn a_repeated_message_id_is_a_new_message() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = send_text(&client, "ask").await;
            let id = asked.history[0].message_id.clone();
            let repeat = Message {
                message_id: id,
                ..Message::user("ask").in_task(asked.id.clone())
            };
            let again = send(&client, SendMessageRequest::new(repeat)).await;
            assert_eq!(history_texts(&again), ["ask", "which harbour?", "ask"]);
        },
    )
    .await;
}
