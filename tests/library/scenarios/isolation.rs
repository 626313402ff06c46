//! Isolation of callers (04 §2, 06 §4), for every operation: a task of another caller is indistinguishable from one that does
//! not exist.

use attache::auth::{Access, ApiKeys};
use attache::model::{
    Artifact, Content, DeletePushConfigRequest, ErrorKind, GetPushConfigRequest,
    ListPushConfigsRequest, ListTasksRequest, Message, Part, PushConfig, SendMessageRequest,
    TaskId, TaskState,
};
use attache::{Agent, Client, Error, Failure, Outcome, Server, Turn};
use serde_json::json;

use super::{
    TextCommandAgent, begin, cancel, error_kind, find, get, message, return_immediately, send,
    send_text, subscribe,
};
use crate::harness::everywhere::{can_list, card, everywhere_on, open};
use crate::harness::{WIRE_FORMATS, run};

pub(super) const ANN: &str = "ann-has-a-long-key-0001";
pub(super) const BOB: &str = "bob-has-a-long-key-0002";

pub(super) fn keys() -> ApiKeys {
    let keys = ApiKeys::new();
    keys.add("ann", &ANN.into(), |ann| ann).unwrap();
    keys.add("bob", &BOB.into(), |bob| bob).unwrap();
    keys
}

fn server() -> Server {
    let mut card = card();
    card.capabilities.push_notifications = Some(true);
    Server::new(card, TextCommandAgent).access(Access::new(keys()))
}

/// The client with an API key.
pub(super) fn authenticated(client: &Client, key: &str) -> Client {
    client.clone().with_bearer(&key.into()).unwrap()
}

/// Errors of every operation on a task.
async fn every_error(client: &Client, id: &TaskId) -> Vec<Error> {
    let more = SendMessageRequest::new(Message::user("more").in_task(id.clone()));
    let create = PushConfig {
        task_id: Some(id.clone()),
        ..PushConfig::new("https://example.com/hook")
    };
    let list = ListPushConfigsRequest {
        task_id: id.clone(),
        ..Default::default()
    };
    let get = GetPushConfigRequest {
        task_id: id.clone(),
        id: Some("h".into()),
        ..Default::default()
    };
    let delete = DeletePushConfigRequest {
        task_id: id.clone(),
        id: "h".into(),
        ..Default::default()
    };
    vec![
        find(client, id).await.unwrap_err(),
        subscribe(client, id).await.err().unwrap(),
        cancel(client, id).await.unwrap_err(),
        client.send_message(more.clone()).await.unwrap_err(),
        open(client.send_streaming_message(more))
            .await
            .err()
            .unwrap(),
        client.create_push_config(create).await.unwrap_err(),
        client.list_push_configs(list).await.unwrap_err(),
        client.get_push_config(get).await.unwrap_err(),
        client.delete_push_config(delete).await.unwrap_err(),
    ]
}

/// The error without the task id of the request.
fn without_id(error: &Error, id: &TaskId) -> String {
    format!("{error:?}").replace(id.as_str(), "…")
}

#[tokio::test]
async fn s01_s02_s03_s04_s07_a_foreign_task_is_reported_as_not_found() {
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let bob = authenticated(&client, BOB);
        let nonexistent: TaskId = "0190a1b2-0000-4000-8000-000000000000".into();
        for text in ["hang", "ask", "done"] {
            let task = send(&ann, return_immediately(message(text))).await;
            let foreign = every_error(&bob, &task.id).await;
            let unknown = every_error(&bob, &nonexistent).await;
            for (foreign, unknown) in foreign.iter().zip(&unknown) {
                assert_eq!(foreign.kind(), ErrorKind::TaskNotFound);
                assert_eq!(
                    without_id(foreign, &task.id),
                    without_id(unknown, &nonexistent),
                    "{text}"
                );
            }
            let after = get(&ann, &task).await;
            assert_eq!(after.history.len(), 1, "nothing was added");
            assert_ne!(after.status.state, TaskState::Canceled);
        }
    })
    .await;
}

/// Equal to the byte, headers included.
#[tokio::test]
async fn s01_responses_for_foreign_and_unknown_tasks_are_identical() {
    let server = run(server()).await;
    for form in WIRE_FORMATS {
        let task = form.ask(
            "SendMessage",
            json!({"message": form.message("ask", json!({}))}),
        );
        let answer = server.ask(&task.with("X-API-Key", ANN)).await;
        let text = answer.body;
        let payload = form.payload(&text);
        let id = payload.get("task").unwrap_or(&payload)["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let nonexistent = "0190a1b2-0000-4000-8000-000000000000";
        for operation in [
            "GetTask",
            "CancelTask",
            "SubscribeToTask",
            "ListTaskPushNotificationConfigs",
        ] {
            let name = if operation.contains("Push") {
                "taskId"
            } else {
                "id"
            };
            let mut responses = Vec::new();
            for id in [id.as_str(), nonexistent] {
                let ask = form
                    .ask(operation, json!({ name: id }))
                    .with("X-API-Key", BOB);
                let answer = server.ask(&ask).await;
                let head = answer.head.lines().filter(|line| {
                    !line.starts_with("date:")
                        && !line.starts_with("x-ratelimit")
                        && !line.starts_with("ratelimit:")
                        && !line.starts_with("content-length")
                });
                let head: Vec<_> = head.map(str::to_owned).collect();
                responses.push((head, answer.body.replace(id, "…")));
            }
            assert_eq!(responses[0], responses[1], "{operation}");
        }
    }
}

#[tokio::test]
async fn s05_a_context_is_not_shared_between_callers() {
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let bob = authenticated(&client, BOB);
        let anns_task = send_text(&ann, "secret").await;
        let same = Message::user("mine").in_context(anns_task.context_id.clone());
        let bobs_task = send(&bob, SendMessageRequest::new(same)).await;
        assert_ne!(bobs_task.id, anns_task.id);
        assert_eq!(bobs_task.history.len(), 1);
        if can_list(&ann).await {
            let query = ListTasksRequest {
                context_id: Some(anns_task.context_id.clone()),
                ..Default::default()
            };
            let page = ann.list_tasks(query.clone()).await.unwrap();
            assert_eq!(
                page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(),
                [&anns_task.id]
            );
            let page = bob.list_tasks(query).await.unwrap();
            assert_eq!(
                page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(),
                [&bobs_task.id]
            );
        }
    })
    .await;
}

#[tokio::test]
async fn s06_a_context_that_does_not_match_the_task_is_invalid() {
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let task = begin(&ann, "ask").await;
        let mismatched = Message::user("x")
            .in_task(task.id.clone())
            .in_context("another");
        let sent = ann.send_message(SendMessageRequest::new(mismatched)).await;
        assert_eq!(error_kind(sent), ErrorKind::InvalidParams);
        assert_eq!(get(&ann, &task).await.history.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn s08_a_page_token_of_another_caller_gives_no_access() {
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let bob = authenticated(&client, BOB);
        if !can_list(&ann).await {
            return;
        }
        for text in ["one", "two", "three"] {
            send_text(&ann, text).await;
        }
        let bobs_task = send_text(&bob, "his").await;
        let query = ListTasksRequest {
            page_size: Some(1),
            ..Default::default()
        };
        let token = ann.list_tasks(query.clone()).await.unwrap().next_page_token;
        let stolen = ListTasksRequest {
            page_token: Some(token.clone()),
            ..query.clone()
        };
        let page = bob.list_tasks(stolen).await.unwrap();
        assert!(
            page.tasks.iter().all(|task| task.id == bobs_task.id),
            "{page:?}"
        );
        assert_eq!(page.total_size, 1);
        let tampered = ListTasksRequest {
            page_token: Some(format!("x{token}")),
            ..query
        };
        assert_eq!(
            error_kind(ann.list_tasks(tampered).await),
            ErrorKind::InvalidParams
        );
    })
    .await;
}

#[tokio::test]
async fn s09_anonymous_and_authenticated_callers_are_isolated() {
    let server =
        || Server::new(card(), TextCommandAgent).access(Access::new(keys()).allow_anonymous());
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let owned = send_text(&ann, "owned").await;
        let anonymous = send_text(&client, "anonymous").await;
        assert_eq!(
            error_kind(find(&client, &owned.id).await),
            ErrorKind::TaskNotFound
        );
        assert_eq!(
            error_kind(find(&ann, &anonymous.id).await),
            ErrorKind::TaskNotFound
        );
        assert_eq!(get(&client, &anonymous).await.id, anonymous.id);
    })
    .await;
}

/// Adds a file artifact.
struct FileAgent;

impl Agent for FileAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let picture = Part::file(PICTURE, "image/png").with_filename("secret.png");
        turn.add_artifact(Artifact::new("picture", picture).with_id("a-1"))
            .await;
        Ok(Outcome::Completed)
    }
}

const PICTURE: &[u8] = b"\x89PNG of a secret";

/// Artifacts have no URL that could leak: their bytes are part of the task.
#[tokio::test]
async fn s11_artifacts_have_no_url() {
    let server = || Server::new(card(), FileAgent).access(Access::new(keys()));
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let bob = authenticated(&client, BOB);
        let task = send_text(&ann, "draw").await;
        for seen in [&task, &get(&ann, &task).await] {
            let part = &seen.artifacts[0].parts[0];
            assert!(
                matches!(&part.content, Content::Raw(bytes) if bytes.decode() == PICTURE),
                "{part:?}"
            );
        }
        assert_eq!(
            error_kind(find(&bob, &task.id).await),
            ErrorKind::TaskNotFound
        );
    })
    .await;
    let server = run(server()).await;
    let sent = WIRE_FORMATS[0].ask(
        "SendMessage",
        json!({"message": WIRE_FORMATS[0].message("draw", json!({}))}),
    );
    let answer = server.ask(&sent.with("X-API-Key", ANN)).await;
    let task = &answer.json()["result"]["task"];
    assert!(
        !answer.body.contains("http"),
        "the response contains a URL: {}",
        answer.body
    );
    let id = task["id"].as_str().unwrap();
    let context = task["contextId"].as_str().unwrap();
    for path in [
        format!("/tasks/{id}/artifacts"),
        format!("/tasks/{id}/artifacts/a-1"),
        format!("/tasks/{id}/artifacts/a-1/parts/0"),
        format!("/v1/tasks/{id}/artifacts/a-1"),
        format!("/artifacts/a-1?taskId={id}"),
        format!("/files/{context}/secret.png"),
        "/files/secret.png".to_owned(),
        "/download/a-1".to_owned(),
    ] {
        for key in [ANN, BOB] {
            let found = server
                .send(&format!("GET {path} HTTP/1.1\r\nX-API-Key: {key}"), b"")
                .await;
            assert!(
                found.status == 404 && !found.body.contains("PNG"),
                "{path}: {found:?}"
            );
        }
    }
}

#[tokio::test]
async fn s13_a_task_id_chosen_by_the_client_is_not_accepted() {
    everywhere_on(server, async |client: Client| {
        let named = Message::user("x").in_task("i-chose-this");
        let sent = authenticated(&client, ANN)
            .send_message(SendMessageRequest::new(named))
            .await;
        assert_eq!(error_kind(sent), ErrorKind::TaskNotFound);
    })
    .await;
}

#[tokio::test]
async fn s75_s76_idempotency_keys_are_scoped_to_the_caller() {
    everywhere_on(server, async |client: Client| {
        let with_key = |key| {
            authenticated(&client, key)
                .with_header("Idempotency-Key", "k-1")
                .unwrap()
        };
        let request = message("again");
        let first = send(&with_key(ANN), request.clone()).await;
        assert_eq!(send(&with_key(ANN), request.clone()).await.id, first.id);
        assert_ne!(send(&with_key(BOB), request.clone()).await.id, first.id);
        // Another body is refused only to the caller that has used the key.
        assert_eq!(
            error_kind(with_key(ANN).send_message(message("other")).await),
            ErrorKind::InvalidParams
        );
    })
    .await;
}
