//! Repeated reads of a task: the cached task is never older than an acknowledged write, and only its owner can read it.

use attache::auth::Access;
use attache::model::{ErrorKind, GetTaskRequest, Task, TaskId, TaskState};
#[cfg(feature = "sqlite")]
use attache::store::{Sqlite, sqlite::Options};
use attache::{Client, Server};
use serde_json::json;

use super::isolation::{ANN, BOB, authenticated, keys};
use super::{TextCommandAgent, error_kind, find, get, history_texts, message_to, send, send_text};
use crate::harness::everywhere::{MATRIX, card, everywhere_on, history};
use crate::harness::{WIRE_FORMATS, run};

/// Runs a scenario over every binding and version, on every store.
async fn on_every_store(server: impl Fn() -> Server, scenario: impl AsyncFn(Client)) {
    everywhere_on(&server, &scenario).await;
    #[cfg(feature = "sqlite")]
    {
        let folder = tempfile::tempdir().unwrap();
        let number = std::cell::Cell::new(0);
        let stored = || {
            number.set(number.get() + 1);
            let file = folder.path().join(format!("{}.db", number.get()));
            server().store(Sqlite::open(file, Options::default()).unwrap())
        };
        everywhere_on(stored, &scenario).await;
    }
}

async fn read_last_texts(client: &Client, task: &Task, length: usize) -> Vec<String> {
    let history_length = Some(i32::try_from(length).unwrap());
    let request = GetTaskRequest {
        id: task.id.clone(),
        history_length,
        ..Default::default()
    };
    history_texts(&client.get_task(request).await.unwrap())
}

#[tokio::test]
async fn a_cached_task_includes_new_messages() {
    let server = || Server::new(card(), TextCommandAgent);
    on_every_store(server, async |client: Client| {
        let mut task = send_text(&client, "ask").await;
        for text in ["ask", "ask", "done"] {
            for _ in 0..3 {
                assert_eq!(get(&client, &task).await, task);
            }
            let all = history_texts(&task);
            for length in [1, 0, all.len(), all.len() + 1, 2] {
                let expected = &all[all.len() - history(&client, length, all.len())..];
                assert_eq!(
                    read_last_texts(&client, &task, length).await,
                    expected,
                    "the last {length}"
                );
                assert_eq!(history_texts(&get(&client, &task).await), all);
            }
            task = send(&client, message_to(&task, text)).await;
            assert!(history_texts(&task).contains(&text.to_owned()));
        }
        assert_eq!(get(&client, &task).await, task);
        assert_eq!(get(&client, &task).await.status.state, TaskState::Completed);
    })
    .await;
}

#[tokio::test]
async fn s01_a_cached_task_is_visible_to_its_owner_only() {
    let server = || Server::new(card(), TextCommandAgent).access(Access::new(keys()));
    on_every_store(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let bob = authenticated(&client, BOB);
        let task = send_text(&ann, "ask").await;
        for _ in 0..3 {
            assert_eq!(get(&ann, &task).await, task);
            assert_eq!(
                error_kind(find(&bob, &task.id).await),
                ErrorKind::TaskNotFound
            );
        }
    })
    .await;
}

/// Clients of all bindings and versions read the same task in turn, three times.
#[tokio::test]
async fn each_version_and_binding_has_its_own_form_of_a_task() {
    let server = run(Server::new(card(), TextCommandAgent)).await;
    let url = format!("http://{}/", server.address);
    let clients: Vec<Client> = MATRIX
        .iter()
        .map(|(binding, version)| Client::new(&url, *binding, *version).unwrap())
        .collect();
    let task = send_text(&clients[0], "done").await;
    let mut bodies = Vec::new();
    for round in 0..3 {
        for client in &clients {
            assert_eq!(history_texts(&get(client, &task).await), ["done"]);
        }
        let mut all = Vec::new();
        for form in WIRE_FORMATS {
            let answer = server
                .ask(&form.ask("GetTask", json!({"id": task.id.as_str()})))
                .await;
            assert_eq!(
                answer.header("a2a-version"),
                Some(form.version()),
                "{form:?}"
            );
            let body = answer.json();
            let task_json = if form.is_rpc() {
                &body["result"]
            } else {
                &body
            };
            let is_kind = task_json["kind"] == "task";
            let state = task_json["status"]["state"].as_str().unwrap();
            assert_eq!(
                (is_kind, state.starts_with("TASK_STATE_")),
                (state == "completed", !is_kind),
                "{form:?}"
            );
            assert_eq!(
                task_json["history"][0].get("content").is_some(),
                form == WIRE_FORMATS[3],
                "{form:?}"
            );
            all.push(answer.body);
        }
        if round == 0 {
            bodies.clone_from(&all);
        }
        assert_eq!(all, bodies, "nothing changes from one reader to the next");
    }
}

/// 04 §4: a request with the task id of the client is answered with that id, even if the task is cached under its own id.
#[tokio::test]
async fn a_client_task_id_of_0_1_is_not_answered_from_the_cache() {
    let server = run(Server::new(card(), TextCommandAgent)).await;
    let message = json!({"role": "user", "parts": [{"type": "text", "text": "ask"}]});
    server
        .result("tasks/send", json!({"id": "mine", "message": message}))
        .await;
    let listed = server.result("ListTasks", json!({})).await;
    let id = TaskId::from(listed["tasks"][0]["id"].as_str().unwrap());
    for _ in 0..3 {
        assert_eq!(
            server.result("tasks/get", json!({"id": id.as_str()})).await["id"],
            id.as_str()
        );
        assert_eq!(
            server.result("GetTask", json!({"id": id.as_str()})).await["id"],
            id.as_str()
        );
        assert_eq!(
            server.result("tasks/get", json!({"id": "mine"})).await["id"],
            "mine"
        );
    }
}
