//! Error kinds: every row of 06 §3 that a client can cause, over every binding and version.
//!
//! `transport.rs` tests the rows on envelopes, bodies and media types of requests. The modules of ids, contexts, keys,
//! cards and extensions test their own rows.

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
    SteppedJobAgent, TextCommandAgent, begin, cancel, configured, error_kind, find, message,
    send_text, subscribe, wait_until_ended,
};
use crate::harness::everywhere::{
    can_list, card, everywhere, everywhere_on, has_details, open, version,
};

/// Returns the error kind of each push configuration operation on this task.
async fn push_config_errors(client: &Client, task: &TaskId) -> Vec<ErrorKind> {
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
async fn invalid_messages_are_refused() {
    let limits = attache::model::Limits {
        max_parts: 2,
        ..Default::default()
    };
    everywhere_on(
        || Server::new(card(), TextCommandAgent).limits(limits),
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
async fn streaming_is_refused_if_not_declared() {
    let mut card = card();
    card.capabilities.streaming = Some(false);
    everywhere_on(
        || Server::new(card.clone(), TextCommandAgent),
        async |client: Client| {
            let streamed = open(client.send_streaming_message(message("hi"))).await;
            assert_eq!(error_kind(streamed), ErrorKind::UnsupportedOperation);
            let asked = send_text(&client, "ask").await;
            // 04 §2: the server checks the capability before it looks up the task.
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
async fn push_operations_are_refused_if_not_declared() {
    let mut card = card();
    card.capabilities.push_notifications = Some(false);
    everywhere_on(
        || Server::new(card.clone(), TextCommandAgent),
        async |client: Client| {
            let asked = send_text(&client, "ask").await;
            for id in [asked.id, "gone".into()] {
                assert_eq!(
                    push_config_errors(&client, &id).await,
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
async fn an_unknown_task_is_not_found() {
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
            assert_eq!(
                push_config_errors(&client, &gone).await,
                [ErrorKind::TaskNotFound; 4]
            );
            if has_details(&client) {
                let error = find(&client, &gone).await.unwrap_err();
                assert_eq!(error.metadata().collect::<Vec<_>>(), [("taskId", "gone")]);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_removed_task_is_not_found() {
    let settings = Settings {
        max_tasks: Some(0),
        sweep_every: Duration::from_millis(1),
        ..Default::default()
    };
    everywhere_on(
        || Server::new(card(), TextCommandAgent).settings(settings.clone()),
        async |client: Client| {
            let id = send_text(&client, "hi").await.id;
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
async fn an_unsupported_version_is_refused() {
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

/// R25, 04 §7: an `Unavailable` error has a retry delay.
#[tokio::test]
async fn a_server_at_its_limits_is_unavailable() {
    let agent = SteppedJobAgent::new();
    let settings = Settings {
        max_turns: 1,
        max_waiting_turns: 1,
        ..Default::default()
    };
    let mut server_settings = ServerSettings::default();
    server_settings.max_streams_per_task = 1;
    let server = || {
        Server::new(card(), agent.clone())
            .settings(settings.clone())
            .server_settings(server_settings.clone())
    };
    everywhere_on(server, async |client: Client| {
        let first = begin(&client, "one").await;
        let job = agent.next().await;
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
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
        drop(reader);
        job.complete();
        agent.next().await.complete();
    })
    .await;
}

/// R25: if the store fails, every operation returns `Unavailable` with a retry delay and without the cause.
#[tokio::test]
async fn r25_an_unavailable_store_is_reported() {
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
                // S81: each error has a unique id, which is also in the log. The engine logs the failures of
                // messages (the first two errors) itself.
                if at > 1 && has_details(&client) {
                    let id = error
                        .metadata()
                        .find(|(key, _)| *key == "errorId")
                        .expect("an id")
                        .1;
                    assert!(ids.insert(id.to_owned()), "{error:?}");
                }
                assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
                assert!(error.retry_after().is_some(), "{error:?}");
            }
        },
    )
    .await;
}

/// 02 §5: the media type of a part must match an input mode of the card or of a skill. A part without one is accepted.
/// 06 §3: the server checks accepted output modes only if `enforce_output_modes` is set.
#[tokio::test]
async fn unsupported_media_types_are_refused() {
    let sketch = AgentSkill {
        input_modes: vec!["image/*".to_owned()],
        ..AgentSkill::new("s", "Sketch", "Draws")
    };
    let mut server_settings = ServerSettings::default();
    server_settings.enforce_output_modes = true;
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
    let accepting = |modes: &[&str]| {
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
        let field = match version(&client) {
            attache::model::Version::V1 => "message.parts[1].mediaType",
            attache::model::Version::V03 => "message.parts[1].file.mimeType",
        };
        assert!(error.message().contains(field), "{error}");
        if has_details(&client) {
            let supported = ("supported", "text/plain,image/*");
            assert_eq!(error.metadata().collect::<Vec<_>>(), [supported]);
        }
        // Without `enforce_output_modes` the request is accepted.
        assert!(client.send_message(accepting(&["audio/ogg"])).await.is_ok());
    })
    .await;
    everywhere_on(
        || server().server_settings(server_settings.clone()),
        async |client: Client| {
            for fine in [&["audio/ogg", "text/*"][..], &[]] {
                assert!(
                    client.send_message(accepting(fine)).await.is_ok(),
                    "{fine:?}"
                );
            }
            assert_eq!(
                send_both(&client, accepting(&["audio/ogg"])).await,
                [ErrorKind::ContentTypeNotSupported; 2]
            );
        },
    )
    .await;
}

/// S65: a task that waits for an answer fails after `max_parked_age`.
#[tokio::test]
async fn s65_waiting_tasks_fail_after_their_maximum_age() {
    let settings = Settings {
        max_parked_age: Some(Duration::from_millis(1)),
        sweep_every: Duration::from_millis(1),
        ..Default::default()
    };
    everywhere_on(
        || Server::new(card(), TextCommandAgent).settings(settings.clone()),
        async |client: Client| {
            for text in ["ask", "auth"] {
                let task = send_text(&client, text).await;
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
