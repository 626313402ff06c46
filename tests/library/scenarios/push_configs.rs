//! Push configuration operations (04 §3.7).

use attache::auth::Access;
use attache::model::{
    AuthenticationInfo, Binding, DeletePushConfigRequest, ErrorKind, GetPushConfigRequest,
    ListPushConfigsRequest, PushConfig, Secret, SendMessageConfiguration, SendMessageRequest, Task,
    TaskId, Version,
};
use attache::{Client, Result, Server, Settings};

use super::isolation::{ANN, BOB, authenticated, keys};
use super::{
    TextCommandAgent, begin, configured, error_kind, get, message, message_to, send, send_text,
};
use crate::harness::everywhere::{card, everywhere_on, open, version};
use crate::harness::local_webhooks;

const URL: &str = "http://127.0.0.1:9/hook";

fn server() -> Server {
    Server::new(card(), TextCommandAgent).push(local_webhooks())
}

fn config(task: &Task, id: Option<&str>, url: &str) -> PushConfig {
    let task_id = Some(task.id.clone());
    PushConfig {
        id: id.map(Into::into),
        task_id,
        ..PushConfig::new(url)
    }
}

async fn list(client: &Client, task: &TaskId) -> Result<Vec<PushConfig>> {
    let request = ListPushConfigsRequest {
        task_id: task.clone(),
        ..Default::default()
    };
    client
        .list_push_configs(request)
        .await
        .map(|list| list.configs)
}

async fn read(client: &Client, task: &TaskId, id: &str) -> Result<PushConfig> {
    let request = GetPushConfigRequest {
        task_id: task.clone(),
        id: Some(id.into()),
        ..Default::default()
    };
    client.get_push_config(request).await
}

async fn delete(client: &Client, task: &TaskId, id: &str) -> Result<()> {
    let request = DeletePushConfigRequest {
        task_id: task.clone(),
        id: id.into(),
        ..Default::default()
    };
    client.delete_push_config(request).await
}

fn with_inline(request: SendMessageRequest, config: PushConfig) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        task_push_notification_config: Some(config),
        ..Default::default()
    };
    configured(request, configuration)
}

/// Also for a task that has ended.
#[tokio::test]
async fn a_config_is_created_read_listed_replaced_and_deleted() {
    everywhere_on(server, async |client: Client| {
        for task in [
            send_text(&client, "ask").await,
            send_text(&client, "hi").await,
        ] {
            assert_eq!(list(&client, &task.id).await.unwrap(), []);
            let mut first = config(&task, Some("one"), URL);
            first.token = Some(Secret::from("t-1"));
            let credentials = Some(Secret::from("hunter2"));
            first.authentication = Some(AuthenticationInfo {
                scheme: "Bearer".to_owned(),
                credentials,
            });
            assert_eq!(
                client.create_push_config(first.clone()).await.unwrap(),
                first
            );
            let second = client
                .create_push_config(config(&task, Some("two"), URL))
                .await
                .unwrap();
            assert_eq!(read(&client, &task.id, "one").await.unwrap(), first);
            assert_eq!(
                list(&client, &task.id).await.unwrap(),
                [first, second.clone()]
            );
            let again = config(&task, Some("one"), "http://127.0.0.1:9/other");
            assert_eq!(
                client.create_push_config(again.clone()).await.unwrap(),
                again
            );
            assert_eq!(list(&client, &task.id).await.unwrap().len(), 2);
            assert_eq!(read(&client, &task.id, "one").await.unwrap(), again);
            // Twice: deletion is idempotent.
            for _ in 0..2 {
                delete(&client, &task.id, "one").await.unwrap();
                assert_eq!(
                    error_kind(read(&client, &task.id, "one").await),
                    ErrorKind::TaskNotFound
                );
            }
            assert_eq!(list(&client, &task.id).await.unwrap(), [second]);
        }
    })
    .await;
}

/// In 0.3 a second configuration without an id replaces the first.
#[tokio::test]
async fn a_config_without_an_id_gets_one() {
    everywhere_on(server, async |client: Client| {
        let task = send_text(&client, "ask").await;
        let first = client
            .create_push_config(config(&task, None, URL))
            .await
            .unwrap();
        let second = client
            .create_push_config(config(&task, None, "http://127.0.0.1:9/2"))
            .await
            .unwrap();
        let stored = list(&client, &task.id).await.unwrap();
        match version(&client) {
            Version::V1 => assert_eq!(stored, [first, second]),
            Version::V03 => {
                assert_eq!(
                    second.id.as_ref().map(|id| id.as_str()),
                    Some(task.id.as_str())
                );
                assert_eq!(stored, [second]);
            }
        }
    })
    .await;
}

/// Only 0.3 JSON-RPC can request a configuration without its id.
#[tokio::test]
async fn without_an_id_the_default_config_is_read() {
    everywhere_on(server, async |client: Client| {
        let protocol = (client.interface().binding(), version(&client));
        if protocol != (Some(Binding::JsonRpc), Version::V03) {
            return;
        }
        let task = send_text(&client, "ask").await;
        let any = || GetPushConfigRequest {
            task_id: task.id.clone(),
            ..Default::default()
        };
        assert_eq!(
            error_kind(client.get_push_config(any()).await),
            ErrorKind::TaskNotFound
        );
        let oldest = client
            .create_push_config(config(&task, Some("z"), URL))
            .await
            .unwrap();
        client
            .create_push_config(config(&task, Some("a"), URL))
            .await
            .unwrap();
        assert_eq!(client.get_push_config(any()).await.unwrap(), oldest);
        let own = client
            .create_push_config(config(&task, None, URL))
            .await
            .unwrap();
        assert_eq!(client.get_push_config(any()).await.unwrap(), own);
    })
    .await;
}

#[tokio::test]
async fn an_inline_config_is_registered_with_the_task() {
    everywhere_on(server, async |client: Client| {
        let named = PushConfig {
            id: Some("w".into()),
            ..PushConfig::new(URL)
        };
        let task = send(&client, with_inline(message("ask"), named.clone())).await;
        let expected = PushConfig {
            task_id: Some(task.id.clone()),
            ..named.clone()
        };
        assert_eq!(list(&client, &task.id).await.unwrap(), [expected]);
        let other = PushConfig {
            id: Some("x".into()),
            ..PushConfig::new(URL)
        };
        send(&client, with_inline(message_to(&task, "ask"), other)).await;
        assert_eq!(list(&client, &task.id).await.unwrap().len(), 2);
        // Also with a streaming message.
        let mut events = super::stream(&client, with_inline(message("hi"), named)).await;
        let Some(attache::model::StreamResponse::Task(streamed)) = events.next().await else {
            panic!("the first event is the task")
        };
        assert_eq!(read(&client, &streamed.id, "w").await.unwrap().url, URL);
        events.all().await;
    })
    .await;
}

/// A refused message registers no webhook.
#[tokio::test]
async fn the_inline_config_of_a_refused_message_is_not_registered() {
    let small = || {
        server().settings(Settings {
            max_task_bytes: 10_000,
            ..Settings::default()
        })
    };
    everywhere_on(small, async |client: Client| {
        let hook = |id: &str, url: &str| PushConfig {
            id: Some(id.into()),
            ..PushConfig::new(url)
        };
        let task = send(&client, with_inline(message("ask"), hook("w", URL))).await;
        let before = list(&client, &task.id).await.unwrap();
        for id in ["w", "x"] {
            let long = message_to(&task, &"x".repeat(10_000));
            let sent = client
                .send_message(with_inline(long, hook(id, "http://127.0.0.1:9/other")))
                .await;
            let kind = error_kind(sent);
            assert!(
                matches!(
                    kind,
                    ErrorKind::PayloadTooLarge | ErrorKind::InvalidRequest | ErrorKind::RateLimited
                ),
                "{kind:?}"
            );
            assert_eq!(list(&client, &task.id).await.unwrap(), before, "{id}");
        }
    })
    .await;
}

#[tokio::test]
async fn s21_only_http_urls_are_accepted() {
    everywhere_on(server, async |client: Client| {
        let task = send_text(&client, "ask").await;
        for url in [
            "",
            "/hook",
            "example.com",
            "file:///etc/passwd",
            "ftp://example.com",
            "https://",
            "http:///x",
        ] {
            let error = client
                .create_push_config(config(&task, Some("w"), url))
                .await
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidParams, "{url}");
            assert!(error.message().contains("url"), "{error}");
            let sent = client
                .send_message(with_inline(message_to(&task, "x"), PushConfig::new(url)))
                .await;
            assert_eq!(error_kind(sent), ErrorKind::InvalidParams, "{url}");
        }
        assert_eq!(list(&client, &task.id).await.unwrap(), []);
        assert_eq!(get(&client, &task).await, task);
    })
    .await;
}

/// S22: the SSRF guard checks every operation that registers a webhook.
#[tokio::test]
async fn s22_every_registration_passes_the_ssrf_guard() {
    let strict = || Server::new(card(), TextCommandAgent);
    everywhere_on(strict, async |client: Client| {
        let task = send_text(&client, "ask").await;
        for url in [
            "https://127.0.0.1/",
            "https://10.0.0.1/",
            "https://[fd00::1]/",
            "http://[::ffff:7f00:1]/",
        ] {
            let inline = || PushConfig::new(url);
            let kinds = [
                error_kind(
                    client
                        .create_push_config(config(&task, Some("w"), url))
                        .await,
                ),
                error_kind(
                    client
                        .send_message(with_inline(message("hi"), inline()))
                        .await,
                ),
                error_kind(
                    client
                        .send_message(with_inline(message_to(&task, "x"), inline()))
                        .await,
                ),
                error_kind(
                    open(client.send_streaming_message(with_inline(message("hi"), inline()))).await,
                ),
                error_kind(
                    open(
                        client
                            .send_streaming_message(with_inline(message_to(&task, "x"), inline())),
                    )
                    .await,
                ),
            ];
            assert_eq!(kinds, [ErrorKind::InvalidParams; 5], "{url}");
        }
        assert_eq!(list(&client, &task.id).await.unwrap(), []);
        assert_eq!(get(&client, &task).await, task, "nothing was written");
    })
    .await;
}

/// S26: counts webhooks of open tasks; a replaced webhook does not count twice.
#[tokio::test]
async fn s26_webhooks_of_a_caller_are_limited() {
    let limited = || {
        let mut push = local_webhooks();
        push.max_webhooks_per_caller = 2;
        Server::new(card(), TextCommandAgent)
            .push(push)
            .access(Access::new(keys()))
    };
    everywhere_on(limited, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let bob = authenticated(&client, BOB);
        let task = send_text(&ann, "ask").await;
        let other = send_text(&ann, "ask").await;
        for (task, id) in [(&task, "one"), (&other, "two"), (&task, "one")] {
            ann.create_push_config(config(task, Some(id), URL))
                .await
                .unwrap();
        }
        let third = ann
            .create_push_config(config(&task, Some("three"), URL))
            .await;
        assert_eq!(error_kind(third), ErrorKind::RateLimited);
        let inline = || with_inline(message("ask"), PushConfig::new(URL));
        assert_eq!(
            error_kind(ann.send_message(inline()).await),
            ErrorKind::RateLimited
        );
        send(&bob, inline()).await;
        delete(&ann, &task.id, "one").await.unwrap();
        send(&ann, inline()).await;
    })
    .await;
}

#[tokio::test]
async fn webhooks_of_a_task_are_limited() {
    let limits = attache::model::Limits {
        max_push_configs: 2,
        ..Default::default()
    };
    everywhere_on(
        || server().limits(limits),
        async |client: Client| {
            let task = send_text(&client, "ask").await;
            for id in ["one", "two", "one"] {
                client
                    .create_push_config(config(&task, Some(id), URL))
                    .await
                    .unwrap();
            }
            let third = client
                .create_push_config(config(&task, Some("three"), URL))
                .await
                .unwrap_err();
            assert_eq!(third.kind(), ErrorKind::InvalidParams);
            assert!(third.message().contains("max_push_configs"), "{third}");
            assert_eq!(list(&client, &task.id).await.unwrap().len(), 2);
        },
    )
    .await;
}

#[tokio::test]
async fn a_config_belongs_to_one_task() {
    everywhere_on(server, async |client: Client| {
        let task = begin(&client, "ask").await;
        let other = begin(&client, "ask").await;
        client
            .create_push_config(config(&task, Some("w"), URL))
            .await
            .unwrap();
        assert_eq!(
            error_kind(read(&client, &other.id, "w").await),
            ErrorKind::TaskNotFound
        );
        delete(&client, &other.id, "w").await.unwrap();
        assert_eq!(list(&client, &task.id).await.unwrap().len(), 1);
    })
    .await;
}

/// Metadata members with the reserved prefix are not accepted from clients.
#[tokio::test]
async fn s53_reserved_metadata_is_dropped() {
    everywhere_on(server, async |client: Client| {
        let mut request = message("ask");
        let members = [
            ("attache.reason", "expired"),
            ("\u{61}ttache.script", "x"),
            ("attache", "mine"),
            ("own", "mine"),
        ];
        request.message.metadata = Some(members.into_iter().collect());
        let part = request.message.parts[0].clone();
        request.message.parts[0] = part.with_metadata(members.into_iter().collect());
        let task = send(&client, request).await;
        let metadata = task.history[0].metadata.as_ref().unwrap();
        let mut names: Vec<_> = metadata.iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, ["attache", "own"]);
        let metadata = task.history[0].parts[0].metadata().unwrap();
        let mut names: Vec<_> = metadata.iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, ["attache", "own"], "also in parts");
    })
    .await;
}

#[tokio::test]
async fn r17_a_replayed_message_does_not_register_its_webhook_again() {
    everywhere_on(server, async |client: Client| {
        let task = send_text(&client, "ask").await;
        let keyed = client.clone().with_header("Idempotency-Key", "k").unwrap();
        let request = with_inline(message_to(&task, "ask"), PushConfig::new(URL));
        send(&keyed, request.clone()).await;
        let configs = list(&client, &task.id).await.unwrap();
        assert_eq!(configs.len(), 1);
        send(&keyed, request.clone()).await;
        assert_eq!(list(&client, &task.id).await.unwrap(), configs);
        let id = configs[0].id.clone().unwrap();
        delete(&client, &task.id, id.as_str()).await.unwrap();
        send(&keyed, request).await;
        assert_eq!(
            list(&client, &task.id).await.unwrap(),
            [],
            "a deleted webhook stays deleted"
        );
    })
    .await;
}

/// Also for concurrent sends, to an existing and to a new task.
#[tokio::test]
async fn r17_concurrent_duplicates_register_one_webhook() {
    everywhere_on(server, async |client: Client| {
        let with_key = |key| client.clone().with_header("Idempotency-Key", key).unwrap();
        let waiting = send_text(&client, "ask").await;
        for (key, request) in [
            ("k-1", message_to(&waiting, "ask")),
            ("k-2", message("ask")),
        ] {
            let keyed_client = with_key(key);
            let request = with_inline(request, PushConfig::new(URL));
            let (one, two, three) = tokio::join!(
                send(&keyed_client, request.clone()),
                send(&keyed_client, request.clone()),
                send(&keyed_client, request.clone())
            );
            assert_eq!((&one.id, &one.id), (&two.id, &three.id), "{key}");
            assert_eq!(list(&client, &one.id).await.unwrap().len(), 1, "{key}");
            let again = send(&keyed_client, request).await;
            assert_eq!(list(&client, &again.id).await.unwrap().len(), 1, "{key}");
        }
    })
    .await;
}
