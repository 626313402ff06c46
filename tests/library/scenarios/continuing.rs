//! Ids and conversations of several turns: 04 §3.3, row by row, and 04 §3.4 on repeated messages.

use attache::model::{ErrorKind, Message, MessageId, Role, SendMessageRequest, TaskState};
use attache::{Client, Outcome, Turn};

use super::{
    SteppedJobAgent, TextCommandAgent, agent_texts, begin, cancel, error_kind, find, get, message,
    return_immediately, say, send, to,
};
use crate::harness::everywhere::{everywhere, has_details, has_references, open};

#[tokio::test]
async fn without_ids_each_message_gets_its_own() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let (one, two) = (say(&client, "a").await, say(&client, "b").await);
            assert!(one.id != two.id && one.context_id != two.context_id);
            assert!(!one.id.is_empty() && !one.context_id.is_empty());
        },
    )
    .await;
}

#[tokio::test]
async fn a_context_is_kept_and_joins_tasks() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let in_context = async |text: &str| {
                send(
                    &client,
                    SendMessageRequest::new(Message::user(text).in_context("nobody's yet")),
                )
                .await
            };
            let (one, two) = (in_context("a").await, in_context("b").await);
            assert_eq!(
                (one.context_id.as_str(), two.context_id.as_str()),
                ("nobody's yet", "nobody's yet")
            );
            assert_ne!(one.id, two.id);
            assert_eq!(agent_texts(&two), ["b"]);
            assert_eq!(get(&client, &one).await, one);
        },
    )
    .await;
}

#[tokio::test]
async fn s13_a_task_id_that_a_client_invents_is_not_found_and_never_adopted() {
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
                let asked = say(&client, question).await;
                let words = asked.text();
                // With the id of the task alone, and with both ids.
                let again = send(&client, to(&asked, question)).await;
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
                    agent_texts(&done),
                    [question, &words, question, &words, "Saint-Malo"]
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
async fn s06_ids_that_do_not_belong_together_are_refused_and_nothing_is_written() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = say(&client, "ask").await;
            let other = say(&client, "hi").await;
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
async fn s77_a_task_that_has_ended_takes_no_message() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for (text, state) in [
                ("hi", TaskState::Completed),
                ("fail", TaskState::Failed),
                ("reject", TaskState::Rejected),
                ("ask", TaskState::Canceled),
            ] {
                let mut task = say(&client, text).await;
                if state == TaskState::Canceled {
                    task = cancel(&client, &task.id).await.unwrap();
                }
                assert_eq!(task.status.state, state);
                for request in [to(&task, "more"), return_immediately(to(&task, "more"))] {
                    let error = client.send_message(request).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
                    if has_details(&client) {
                        let details = [("state", state.as_str()), ("taskId", task.id.as_str())];
                        assert_eq!(error.metadata().collect::<Vec<_>>(), details);
                    }
                }
                let streamed = open(client.send_streaming_message(to(&task, "more"))).await;
                assert_eq!(error_kind(streamed), ErrorKind::UnsupportedOperation);
                assert_eq!(get(&client, &task).await, task);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn messages_to_a_task_at_work_wait_their_turn_in_order() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let task = begin(&client, "one").await;
            let first = led.next().await;
            for text in ["two", "three"] {
                send(&client, return_immediately(to(&task, text))).await;
            }
            assert!(led.is_idle().await, "one turn at a time");
            assert_eq!(
                agent_texts(&get(&client, &task).await),
                ["one", "two", "three"]
            );
            first.end(Outcome::ask("more?"));
            let second = led.next().await;
            assert_eq!(second.turn.text(), "two");
            second.end(Outcome::ask("more?"));
            let third = led.next().await;
            assert_eq!(
                (third.turn.text().as_str(), third.turn.task_id()),
                ("three", &task.id)
            );
            let (done, ()) = tokio::join!(send(&client, to(&task, "four")), async {
                third.end(Outcome::ask("more?"));
                led.next().await.complete();
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
async fn tasks_of_one_context_run_at_the_same_time() {
    let led = SteppedJobAgent::new();
    everywhere(
        || led.clone(),
        async |client: Client| {
            let go = async |text: &str| {
                let message = Message::user(text).in_context("c");
                send(
                    &client,
                    return_immediately(SendMessageRequest::new(message)),
                )
                .await
            };
            let (one, two) = (go("one").await, go("two").await);
            let (first, second) = (led.next().await, led.next().await);
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
    let counts = |turn: Turn| async move {
        turn.write("seen", turn.referenced_tasks().await.len().to_string())
            .await;
        Ok(Outcome::Completed)
    };
    everywhere(
        || counts,
        async |client: Client| {
            let known = say(&client, "hi").await;
            let mut refers = message("look");
            refers.message.reference_task_ids = vec![known.id.clone(), "gone".into()];
            let seen = if has_references(&client) { "1" } else { "0" };
            assert_eq!(send(&client, refers).await.text(), seen);
        },
    )
    .await;
}

#[tokio::test]
async fn ids_are_opaque_case_sensitive_and_bounded() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let with = async |message: Message| {
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
                    assert_eq!(error_kind(with(message).await), ErrorKind::InvalidParams);
                }
                assert_eq!(
                    error_kind(find(&client, &id.into()).await),
                    ErrorKind::InvalidParams
                );
            }
            let task = say(&client, "ask").await;
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

/// 04 §3.4: callers reuse message ids with other texts.
#[tokio::test]
async fn a_repeated_message_id_is_a_new_message() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            let asked = say(&client, "ask").await;
            let id = asked.history[0].message_id.clone();
            let repeat = Message {
                message_id: id,
                ..Message::user("ask").in_task(asked.id.clone())
            };
            let again = send(&client, SendMessageRequest::new(repeat)).await;
            assert_eq!(agent_texts(&again), ["ask", "which harbour?", "ask"]);
        },
    )
    .await;
}
