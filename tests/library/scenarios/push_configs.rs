//! Webhook registrations: 04 §3.7, row by row.

use attache::auth::Access;
use attache::model::{
    AuthenticationInfo, Binding, DeletePushConfigRequest, ErrorKind, GetPushConfigRequest,
    ListPushConfigsRequest, PushConfig, Secret, SendMessageConfiguration, SendMessageRequest, Task,
    TaskId, Version,
};
use attache::{Client, Result, Server, Settings};

use super::strangers::{ANN, BOB, by, keys};
use super::{TextCommandAgent, begin, configured, error_kind, get, message, say, send, to};
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

/// Also on a task that has ended.
#[tokio::test]
async fn a_registration_is_made_read_listed_replaced_and_removed() {
    everywhere_on(server, async |client: Client| {
        for task in [say(&client, "ask").await, say(&client, "hi").await] {
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
            // Twice: what is gone is as good as removed.
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

/// 0.3: a second registration without an id takes the place of the first.
#[tokio::test]
async fn a_registration_without_an_id_gets_one() {
    everywhere_on(server, async |client: Client| {
        let task = say(&client, "ask").await;
        let first = client
            .create_push_config(config(&task, None, URL))
            .await
            .unwrap();
        let second = client
            .create_push_config(config(&task, None, "http://127.0.0.1:9/2"))
            .await
            .unwrap();
        let kept = list(&client, &task.id).await.unwrap();
        match version(&client) {
            Version::V1 => assert_eq!(kept, [first, second]),
            Version::V03 => {
                assert_eq!(
                    second.id.as_ref().map(|id| id.as_str()),
                    Some(task.id.as_str())
                );
                assert_eq!(kept, [second]);
            }
        }
    })
    .await;
}

/// 0.3 JSON-RPC alone can ask for a registration without its id.
#[tokio::test]
async fn without_an_id_one_of_the_registrations_is_read() {
    everywhere_on(server, async |client: Client| {
        let can_ask = (client.interface().binding(), version(&client));
        if can_ask != (Some(Binding::JsonRpc), Version::V03) {
            return;
        }
        let task = say(&client, "ask").await;
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
async fn a_webhook_that_comes_with_a_message_is_registered_with_its_task() {
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
        send(&client, with_inline(to(&task, "ask"), other)).await;
        assert_eq!(list(&client, &task.id).await.unwrap().len(), 2);
        // And in a stream.
        let mut events = super::stream(&client, with_inline(message("hi"), named)).await;
        let Some(attache::model::StreamResponse::Task(streamed)) = events.next().await else {
            panic!("the task comes first")
        };
        assert_eq!(read(&client, &streamed.id, "w").await.unwrap().url, URL);
        events.all().await;
    })
    .await;
}

/// Nobody hears of a task by a message that was not taken.
#[tokio::test]
async fn a_webhook_that_comes_with_a_message_that_is_refused_is_not_registered() {
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
            let long = to(&task, &"x".repeat(10_000));
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
async fn s21_only_the_web_is_called() {
    everywhere_on(server, async |client: Client| {
        let task = say(&client, "ask").await;
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
                .send_message(with_inline(to(&task, "x"), PushConfig::new(url)))
                .await;
            assert_eq!(error_kind(sent), ErrorKind::InvalidParams, "{url}");
        }
        assert_eq!(list(&client, &task.id).await.unwrap(), []);
        assert_eq!(get(&client, &task).await, task);
    })
    .await;
}

/// S22: the same rule, whichever way a webhook comes in.
#[tokio::test]
async fn s22_no_way_in_is_without_the_guard() {
    let strict = || Server::new(card(), TextCommandAgent);
    everywhere_on(strict, async |client: Client| {
        let task = say(&client, "ask").await;
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
                        .send_message(with_inline(to(&task, "x"), inline()))
                        .await,
                ),
                error_kind(
                    open(client.send_streaming_message(with_inline(message("hi"), inline()))).await,
                ),
                error_kind(
                    open(client.send_streaming_message(with_inline(to(&task, "x"), inline())))
                        .await,
                ),
            ];
            assert_eq!(kinds, [ErrorKind::InvalidParams; 5], "{url}");
        }
        assert_eq!(list(&client, &task.id).await.unwrap(), []);
        assert_eq!(get(&client, &task).await, task, "nothing was taken");
    })
    .await;
}

/// S26: of tasks that are open; one that takes the place of another is not one more.
#[tokio::test]
async fn s26_a_caller_has_only_so_many_webhooks() {
    let few = || {
        let mut push = local_webhooks();
        push.max_webhooks_per_caller = 2;
        Server::new(card(), TextCommandAgent)
            .push(push)
            .access(Access::new(keys()))
    };
    everywhere_on(few, async |client: Client| {
        let (ann, bob) = (by(&client, ANN), by(&client, BOB));
        let (task, other) = (say(&ann, "ask").await, say(&ann, "ask").await);
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
async fn a_task_has_only_so_many_webhooks() {
    let limits = attache::model::Limits {
        max_push_configs: 2,
        ..Default::default()
    };
    everywhere_on(
        || server().limits(limits.clone()),
        async |client: Client| {
            let task = say(&client, "ask").await;
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
async fn a_registration_belongs_to_one_task() {
    everywhere_on(server, async |client: Client| {
        let (mine, other) = (begin(&client, "ask").await, begin(&client, "ask").await);
        client
            .create_push_config(config(&mine, Some("w"), URL))
            .await
            .unwrap();
        assert_eq!(
            error_kind(read(&client, &other.id, "w").await),
            ErrorKind::TaskNotFound
        );
        delete(&client, &other.id, "w").await.unwrap();
        assert_eq!(list(&client, &mine.id).await.unwrap().len(), 1);
    })
    .await;
}

/// What only we may say in metadata is not taken from others.
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
        assert_eq!(names, ["attache", "own"], "of the part too");
    })
    .await;
}

#[tokio::test]
async fn r17_a_message_that_comes_again_does_not_register_again() {
    everywhere_on(server, async |client: Client| {
        let task = say(&client, "ask").await;
        let keyed = client.clone().with_header("Idempotency-Key", "k").unwrap();
        let request = with_inline(to(&task, "ask"), PushConfig::new(URL));
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
            "what was removed stays removed"
        );
    })
    .await;
}

/// Also where the two race, to a task that is there and for a new one.
#[tokio::test]
async fn r17_a_webhook_that_comes_twice_under_one_key_is_registered_once() {
    everywhere_on(server, async |client: Client| {
        let keyed = |key| client.clone().with_header("Idempotency-Key", key).unwrap();
        let asked = say(&client, "ask").await;
        for (key, request) in [("k-1", to(&asked, "ask")), ("k-2", message("ask"))] {
            let (once, request) = (keyed(key), with_inline(request, PushConfig::new(URL)));
            let (one, two, three) = tokio::join!(
                send(&once, request.clone()),
                send(&once, request.clone()),
                send(&once, request.clone())
            );
            assert_eq!((&one.id, &one.id), (&two.id, &three.id), "{key}");
            assert_eq!(list(&client, &one.id).await.unwrap().len(), 1, "{key}");
            let again = send(&once, request).await;
            assert_eq!(list(&client, &again.id).await.unwrap().len(), 1, "{key}");
        }
    })
    .await;
}
