//! Which error when: every row of 06 §3 that a client can bring about, the same kind everywhere.
//!
//! The rows on envelopes, bodies and media types of requests are about bytes, and stand in `transport.rs`. Those on
//! ids, ends, contexts, keys, cards and extensions stand with their promises.

mod down;

use std::collections::BTreeSet;
use std::time::Duration;

use attache::model::{
    AgentSkill, DeletePushConfigRequest, ErrorKind, GetPushConfigRequest, Json,
    ListPushConfigsRequest, Message, Part, PushConfig, SendMessageConfiguration,
    SendMessageRequest, TaskId, TaskState,
};
use attache::{Client, Server, ServerSettings, Settings};

use down::UnavailableStore;

use super::{
    SteppedJobAgent, TextCommandAgent, begin, cancel, configured, error_kind, find, message, say,
    subscribe, wait_until_ended,
};
use crate::harness::everywhere::{
    can_list, card, everywhere, everywhere_on, has_details, has_retry_hint, open,
};

/// Each of the operations on webhooks, with this task.
async fn webhooks(client: &Client, task: &TaskId) -> Vec<ErrorKind> {
    let id = || Some("w".into());
    let config = PushConfig {
        id: id(),
        task_id: Some(task.clone()),
        ..PushConfig::new("https://x.example/")
    };
    let get = GetPushConfigRequest {
        task_id: task.clone(),
        id: id(),
        ..Default::default()
    };
    let list = ListPushConfigsRequest {
        task_id: task.clone(),
        ..Default::default()
    };
    let delete = DeletePushConfigRequest {
        task_id: task.clone(),
        id: "w".into(),
        ..Default::default()
    };
    vec![
        error_kind(client.create_push_config(config).await),
        error_kind(client.get_push_config(get).await),
        error_kind(client.list_push_configs(list).await),
        error_kind(client.delete_push_config(delete).await),
    ]
}

async fn send_both(client: &Client, request: SendMessageRequest) -> [ErrorKind; 2] {
    let sent = error_kind(client.send_message(request.clone()).await);
    [
        sent,
        error_kind(open(client.send_streaming_message(request)).await),
    ]
}

#[tokio::test]
async fn what_a_message_must_have() {
    let limits = attache::model::Limits {
        max_parts: 2,
        ..Default::default()
    };
    everywhere_on(
        || Server::new(card(), TextCommandAgent).limits(limits.clone()),
        async |client: Client| {
            let three = Message::user("1").part("2").part("3");
            for (message, field) in [
                (
                    Message {
                        parts: vec![],
                        ..Message::user("x")
                    },
                    "message.parts",
                ),
                (three, "message.parts"),
                (
                    Message {
                        message_id: "".into(),
                        ..Message::user("x")
                    },
                    "message.messageId",
                ),
            ] {
                let request = SendMessageRequest::new(message);
                assert_eq!(
                    send_both(&client, request.clone()).await,
                    [ErrorKind::InvalidParams; 2],
                    "{field}"
                );
                let error = client.send_message(request).await.unwrap_err();
                assert!(error.message().contains(field), "{error}");
            }
        },
    )
    .await;
}

#[tokio::test]
async fn an_agent_that_does_not_stream() {
    let mut card = card();
    card.capabilities.streaming = Some(false);
    everywhere_on(
        || Server::new(card.clone(), TextCommandAgent),
        async |client: Client| {
            let streamed = open(client.send_streaming_message(message("hi"))).await;
            assert_eq!(error_kind(streamed), ErrorKind::UnsupportedOperation);
            let asked = say(&client, "ask").await;
            // 04 §2: before it is said whether there is such a task.
            for id in [asked.id, "gone".into()] {
                assert_eq!(
                    error_kind(subscribe(&client, &id).await),
                    ErrorKind::UnsupportedOperation
                );
            }
        },
    )
    .await;
}

#[tokio::test]
async fn an_agent_that_calls_no_webhooks() {
    let mut card = card();
    card.capabilities.push_notifications = Some(false);
    everywhere_on(
        || Server::new(card.clone(), TextCommandAgent),
        async |client: Client| {
            let asked = say(&client, "ask").await;
            for id in [asked.id, "gone".into()] {
                assert_eq!(
                    webhooks(&client, &id).await,
                    [ErrorKind::PushNotificationNotSupported; 4]
                );
            }
            let config = Some(PushConfig::new("https://x.example/"));
            let configuration = SendMessageConfiguration {
                task_push_notification_config: config,
                ..Default::default()
            };
            let kinds = send_both(&client, configured(message("hi"), configuration)).await;
            assert_eq!(kinds, [ErrorKind::PushNotificationNotSupported; 2]);
        },
    )
    .await;
}

#[tokio::test]
async fn a_task_that_is_not_there() {
    everywhere_on(
        || Server::new(card(), TextCommandAgent),
        async |client: Client| {
            let gone = TaskId::from("gone");
            let to_gone = SendMessageRequest::new(Message::user("hi").in_task("gone"));
            assert_eq!(
                send_both(&client, to_gone).await,
                [ErrorKind::TaskNotFound; 2]
            );
            assert_eq!(
                error_kind(find(&client, &gone).await),
                ErrorKind::TaskNotFound
            );
            assert_eq!(
                error_kind(cancel(&client, &gone).await),
                ErrorKind::TaskNotFound
            );
            assert_eq!(
                error_kind(subscribe(&client, &gone).await),
                ErrorKind::TaskNotFound
            );
            assert_eq!(webhooks(&client, &gone).await, [ErrorKind::TaskNotFound; 4]);
            if has_details(&client) {
                let error = find(&client, &gone).await.unwrap_err();
                assert_eq!(error.metadata().collect::<Vec<_>>(), [("taskId", "gone")]);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_task_that_is_no_longer_kept() {
    let settings = Settings {
        max_tasks: Some(0),
        sweep_every: Duration::from_millis(1),
        ..Default::default()
    };
    everywhere_on(
        || Server::new(card(), TextCommandAgent).settings(settings.clone()),
        async |client: Client| {
            let id = say(&client, "hi").await.id;
            while find(&client, &id).await.is_ok() {}
            if can_list(&client).await {
                assert_eq!(
                    client
                        .list_tasks(Default::default())
                        .await
                        .unwrap()
                        .total_size,
                    0
                );
            }
            let more = SendMessageRequest::new(Message::user("more").in_task(id.clone()));
            assert_eq!(send_both(&client, more).await, [ErrorKind::TaskNotFound; 2]);
            assert_eq!(
                error_kind(cancel(&client, &id).await),
                ErrorKind::TaskNotFound
            );
            assert_eq!(
                error_kind(subscribe(&client, &id).await),
                ErrorKind::TaskNotFound
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_version_that_is_not_served() {
    everywhere(
        || TextCommandAgent,
        async |client: Client| {
            for version in ["9.9", "1.1", "0.4", "one"] {
                let other = client.clone().with_header("A2A-Version", version).unwrap();
                assert_eq!(
                    error_kind(other.send_message(message("hi")).await),
                    ErrorKind::VersionNotSupported
                );
                assert_eq!(
                    error_kind(find(&other, &"gone".into()).await),
                    ErrorKind::VersionNotSupported
                );
                assert_eq!(
                    error_kind(subscribe(&other, &"gone".into()).await),
                    ErrorKind::VersionNotSupported
                );
            }
        },
    )
    .await;
}

/// R25, 04 §7: what cannot be served now is told to come again, and when.
#[tokio::test]
async fn a_server_that_has_no_place_left() {
    let led = SteppedJobAgent::new();
    let settings = Settings {
        max_turns: 1,
        max_waiting_turns: 1,
        ..Default::default()
    };
    let mut serving = ServerSettings::default();
    serving.max_streams_per_task = 1;
    let server = || {
        Server::new(card(), led.clone())
            .settings(settings.clone())
            .server_settings(serving.clone())
    };
    everywhere_on(server, async |client: Client| {
        let first = begin(&client, "one").await;
        let job = led.next().await;
        begin(&client, "two").await;
        assert_eq!(
            send_both(&client, message("three")).await,
            [ErrorKind::Unavailable; 2]
        );
        let reader = subscribe(&client, &first.id).await.unwrap();
        let refused = subscribe(&client, &first.id)
            .await
            .err()
            .expect("a refusal");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(
            refused.message().contains("max_streams_per_task"),
            "{refused}"
        );
        if has_retry_hint(&client) {
            assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
        }
        drop(reader);
        job.complete();
        led.next().await.complete();
    })
    .await;
}

/// R25: the store does not answer. Everybody is told the same, when to come again, and nothing of why.
#[tokio::test]
async fn r25_a_store_that_is_down() {
    everywhere_on(
        || Server::new(card(), TextCommandAgent).store(UnavailableStore),
        async |client: Client| {
            let id = TaskId::from("t-1");
            let mut errors = vec![
                client.send_message(message("hi")).await.err(),
                open(client.send_streaming_message(message("hi")))
                    .await
                    .err(),
                find(&client, &id).await.err(),
                cancel(&client, &id).await.err(),
                subscribe(&client, &id).await.err(),
            ];
            if can_list(&client).await {
                errors.push(client.list_tasks(Default::default()).await.err());
            }
            let mut ids = BTreeSet::new();
            for (at, error) in errors.into_iter().enumerate() {
                let error = error.expect("a refusal");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                // S81: each under a name of its own, by which it is found in our log. What becomes of a message is the
                // engine's to log.
                if at > 1 && has_details(&client) {
                    let id = error
                        .metadata()
                        .find(|(key, _)| *key == "errorId")
                        .expect("an id")
                        .1;
                    assert!(ids.insert(id.to_owned()), "{error:?}");
                }
                assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
                assert_eq!(error.retry_after().is_some(), has_retry_hint(&client));
            }
        },
    )
    .await;
}

/// 02 §5: what a part says that it is must be one of the input modes of the card or of a skill; what says nothing is let
/// in. 06 §3: who accepts none of the output modes is refused only where that is wanted.
#[tokio::test]
async fn a_media_type_that_is_not_taken() {
    let sketch = AgentSkill {
        input_modes: vec!["image/*".to_owned()],
        ..AgentSkill::new("s", "Sketch", "Draws")
    };
    let mut serving = ServerSettings::default();
    serving.enforce_output_modes = true;
    let server = || {
        Server::new(
            card().input_modes(["text/plain"]).skill(sketch.clone()),
            TextCommandAgent,
        )
    };
    let file = |media_type: &str| {
        SendMessageRequest::new(
            Message::user("hi").part(Part::file(b"x", media_type).with_filename("f")),
        )
    };
    let wants = |modes: &[&str]| {
        let accepted_output_modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
        configured(
            message("hi"),
            SendMessageConfiguration {
                accepted_output_modes,
                ..Default::default()
            },
        )
    };
    everywhere_on(server, async |client: Client| {
        for fine in ["image/png", "Text/Plain; charset=utf-8"] {
            assert!(client.send_message(file(fine)).await.is_ok(), "{fine}");
        }
        let data = Part::data(Json::parse("{}").unwrap());
        assert!(
            client
                .send_message(SendMessageRequest::new(Message::user(data)))
                .await
                .is_ok()
        );
        assert_eq!(
            send_both(&client, file("application/pdf")).await,
            [ErrorKind::ContentTypeNotSupported; 2]
        );
        let error = client
            .send_message(file("application/pdf"))
            .await
            .unwrap_err();
        assert!(
            error.message().contains("message.parts[1].mediaType"),
            "{error}"
        );
        if has_details(&client) {
            let supported = ("supported", "text/plain,image/*");
            assert_eq!(error.metadata().collect::<Vec<_>>(), [supported]);
        }
        // As best it can.
        assert!(client.send_message(wants(&["audio/ogg"])).await.is_ok());
    })
    .await;
    everywhere_on(
        || server().server_settings(serving.clone()),
        async |client: Client| {
            for fine in [&["audio/ogg", "text/*"][..], &[]] {
                assert!(client.send_message(wants(fine)).await.is_ok(), "{fine:?}");
            }
            assert_eq!(
                send_both(&client, wants(&["audio/ogg"])).await,
                [ErrorKind::ContentTypeNotSupported; 2]
            );
        },
    )
    .await;
}

/// S65: whoever opens tasks and never answers what they ask keeps none of them for ever.
#[tokio::test]
async fn s65_tasks_that_nobody_answers_end_after_their_time() {
    let settings = Settings {
        max_parked_age: Some(Duration::from_millis(1)),
        sweep_every: Duration::from_millis(1),
        ..Default::default()
    };
    everywhere_on(
        || Server::new(card(), TextCommandAgent).settings(settings.clone()),
        async |client: Client| {
            for text in ["ask", "auth"] {
                let task = say(&client, text).await;
                assert_eq!(
                    wait_until_ended(&client, &task).await.status.state,
                    TaskState::Failed,
                    "{text}"
                );
            }
        },
    )
    .await;
}
