//! What is somebody else's: 04 §2 and 06 §4, for every operation. A stranger hears what is heard of a task that is not there.

use attache::auth::{Access, ApiKeys};
use attache::model::{
    Artifact, Content, DeletePushConfigRequest, ErrorKind, GetPushConfigRequest,
    ListPushConfigsRequest, ListTasksRequest, Message, Part, PushConfig, SendMessageRequest,
    TaskId, TaskState,
};
use attache::{Agent, Client, Error, Failure, Outcome, Server, Turn};
use serde_json::json;

use super::{
    TextCommandAgent, begin, cancel, error_kind, find, get, message, return_immediately, say, send,
    subscribe,
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

/// The same client, as somebody.
pub(super) fn by(client: &Client, key: &str) -> Client {
    client.clone().with_bearer(&key.into()).unwrap()
}

/// Everything that can be asked about a task, and what was said to it.
async fn all(client: &Client, id: &TaskId) -> Vec<Error> {
    let to = SendMessageRequest::new(Message::user("more").in_task(id.clone()));
    let hook = PushConfig {
        task_id: Some(id.clone()),
        ..PushConfig::new("https://example.com/hook")
    };
    let hooks = ListPushConfigsRequest {
        task_id: id.clone(),
        ..Default::default()
    };
    let one = GetPushConfigRequest {
        task_id: id.clone(),
        id: Some("h".into()),
        ..Default::default()
    };
    let gone = DeletePushConfigRequest {
        task_id: id.clone(),
        id: "h".into(),
        ..Default::default()
    };
    vec![
        find(client, id).await.unwrap_err(),
        subscribe(client, id).await.err().unwrap(),
        cancel(client, id).await.unwrap_err(),
        client.send_message(to.clone()).await.unwrap_err(),
        open(client.send_streaming_message(to)).await.err().unwrap(),
        client.create_push_config(hook).await.unwrap_err(),
        client.list_push_configs(hooks).await.unwrap_err(),
        client.get_push_config(one).await.unwrap_err(),
        client.delete_push_config(gone).await.unwrap_err(),
    ]
}

/// An error without the id that the caller named itself.
fn agent_texts(error: &Error, id: &TaskId) -> String {
    format!("{error:?}").replace(id.as_str(), "…")
}

#[tokio::test]
async fn s01_s02_s03_s04_s07_a_stranger_hears_what_is_heard_of_no_task() {
    everywhere_on(server, async |client: Client| {
        let (ann, bob) = (by(&client, ANN), by(&client, BOB));
        let nobodys: TaskId = "0190a1b2-0000-4000-8000-000000000000".into();
        for text in ["hang", "ask", "done"] {
            let task = send(&ann, return_immediately(message(text))).await;
            let (strange, unknown) = (all(&bob, &task.id).await, all(&bob, &nobodys).await);
            for (strange, unknown) in strange.iter().zip(&unknown) {
                assert_eq!(strange.kind(), ErrorKind::TaskNotFound);
                assert_eq!(
                    agent_texts(strange, &task.id),
                    agent_texts(unknown, &nobodys),
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

/// The same to the byte, heads included: nothing else tells the two apart.
#[tokio::test]
async fn s01_a_stranger_gets_the_same_bytes_as_for_no_task() {
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
        let nobodys = "0190a1b2-0000-4000-8000-000000000000";
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
            let mut heard = Vec::new();
            for id in [id.as_str(), nobodys] {
                let ask = form
                    .ask(operation, json!({ name: id }))
                    .with("X-API-Key", BOB);
                let answer = server.ask(&ask).await;
                let head = answer.head.lines().filter(|line| {
                    !line.starts_with("date:")
                        && !line.starts_with("x-ratelimit")
                        && !line.starts_with("content-length")
                });
                let head: Vec<_> = head.map(str::to_owned).collect();
                heard.push((head, answer.body.replace(id, "…")));
            }
            assert_eq!(heard[0], heard[1], "{operation}");
        }
    }
}

#[tokio::test]
async fn s05_the_context_of_another_shows_nothing_of_it() {
    everywhere_on(server, async |client: Client| {
        let (ann, bob) = (by(&client, ANN), by(&client, BOB));
        let hers = say(&ann, "secret").await;
        let same = Message::user("mine").in_context(hers.context_id.clone());
        let his = send(&bob, SendMessageRequest::new(same)).await;
        assert_ne!(his.id, hers.id);
        assert_eq!(his.history.len(), 1);
        if can_list(&ann).await {
            let query = ListTasksRequest {
                context_id: Some(hers.context_id.clone()),
                ..Default::default()
            };
            let page = ann.list_tasks(query.clone()).await.unwrap();
            assert_eq!(
                page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(),
                [&hers.id]
            );
            let page = bob.list_tasks(query).await.unwrap();
            assert_eq!(
                page.tasks.iter().map(|task| &task.id).collect::<Vec<_>>(),
                [&his.id]
            );
        }
    })
    .await;
}

#[tokio::test]
async fn s06_a_context_that_is_not_the_tasks_is_invalid() {
    everywhere_on(server, async |client: Client| {
        let ann = by(&client, ANN);
        let task = begin(&ann, "ask").await;
        let wrong = Message::user("x")
            .in_task(task.id.clone())
            .in_context("another");
        let sent = ann.send_message(SendMessageRequest::new(wrong)).await;
        assert_eq!(error_kind(sent), ErrorKind::InvalidParams);
        assert_eq!(get(&ann, &task).await.history.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn s08_a_page_of_another_is_no_way_in() {
    everywhere_on(server, async |client: Client| {
        let (ann, bob) = (by(&client, ANN), by(&client, BOB));
        if !can_list(&ann).await {
            return;
        }
        for text in ["one", "two", "three"] {
            say(&ann, text).await;
        }
        let his = say(&bob, "his").await;
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
        assert!(page.tasks.iter().all(|task| task.id == his.id), "{page:?}");
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
async fn s09_what_nobody_owns_is_not_everybodys() {
    let server =
        || Server::new(card(), TextCommandAgent).access(Access::new(keys()).allow_anonymous());
    everywhere_on(server, async |client: Client| {
        let ann = by(&client, ANN);
        let (hers, nobodys) = (say(&ann, "hers").await, say(&client, "nobody's").await);
        assert_eq!(
            error_kind(find(&client, &hers.id).await),
            ErrorKind::TaskNotFound
        );
        assert_eq!(
            error_kind(find(&ann, &nobodys.id).await),
            ErrorKind::TaskNotFound
        );
        assert_eq!(get(&client, &nobodys).await.id, nobodys.id);
    })
    .await;
}

/// Writes a file.
struct Draws;

impl Agent for Draws {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let picture = Part::file(PICTURE, "image/png").with_filename("secret.png");
        turn.add_artifact(Artifact::new("picture", picture).with_id("a-1"))
            .await;
        Ok(Outcome::Completed)
    }
}

const PICTURE: &[u8] = b"\x89PNG of a secret";

/// There is no address of a result that could be passed on, guessed or kept for too long: its bytes are in the task.
#[tokio::test]
async fn s11_a_result_is_in_its_task_and_at_no_address() {
    let server = || Server::new(card(), Draws).access(Access::new(keys()));
    everywhere_on(server, async |client: Client| {
        let (ann, bob) = (by(&client, ANN), by(&client, BOB));
        let task = say(&ann, "draw").await;
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
        "no address is given out: {}",
        answer.body
    );
    let (id, context) = (
        task["id"].as_str().unwrap(),
        task["contextId"].as_str().unwrap(),
    );
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
async fn s13_a_task_that_a_caller_names_itself_is_not_adopted() {
    everywhere_on(server, async |client: Client| {
        let named = Message::user("x").in_task("i-chose-this");
        let sent = by(&client, ANN)
            .send_message(SendMessageRequest::new(named))
            .await;
        assert_eq!(error_kind(sent), ErrorKind::TaskNotFound);
    })
    .await;
}

#[tokio::test]
async fn s75_s76_a_key_of_idempotency_is_its_callers_own() {
    everywhere_on(server, async |client: Client| {
        let with_key = |key| {
            by(&client, key)
                .with_header("Idempotency-Key", "k-1")
                .unwrap()
        };
        let request = message("again");
        let first = send(&with_key(ANN), request.clone()).await;
        assert_eq!(send(&with_key(ANN), request.clone()).await.id, first.id);
        assert_ne!(send(&with_key(BOB), request.clone()).await.id, first.id);
        // Another body is refused to her alone: he has never used the key with it.
        assert_eq!(
            error_kind(with_key(ANN).send_message(message("other")).await),
            ErrorKind::InvalidParams
        );
    })
    .await;
}
