//! Operations while unread responses use up the share of their caller (D2): what took effect is reported.

use std::time::Duration;

use attache::model::{Binding, Limits, Message, SendMessageRequest, SendMessageResponse, Version};
use attache::{Client, ClientSettings};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::harness::server_process::BulkAgent;
use crate::harness::{Running, WIRE_FORMATS, WireFormat, WireRequest, start_with, with_deadline};
use crate::security::hostile_clients::{send, settings_with};
use crate::security::unread_responses::{
    HOSTILE, ask_and_ignore, ask_from, await_state, create_task, read_status,
};

/// Starts a server with a small budget and an unread response that takes all of it.
async fn start_exhausted(outgoing_timeout: Duration) -> (Running, TcpStream) {
    let settings = settings_with(|settings| {
        settings.max_outgoing_bytes = 1 << 20;
        settings.outgoing_timeout = outgoing_timeout;
    });
    let server = start_with(BulkAgent, |server| server.server_settings(settings)).await;
    let unread = exhaust(&server).await;
    (server, unread)
}

/// Requests a task that does not fit into the buffers of a connection, and reads the status line only.
async fn exhaust(server: &Running) -> TcpStream {
    let id = create_task(server.address, "complete 16").await;
    await_state(server.address, &id, "TASK_STATE_COMPLETED").await;
    let ask = WireFormat::Rpc1.ask("GetTask", json!({"id": id}));
    let mut unread = ask_and_ignore(server.address, &ask).await;
    assert_eq!(read_status(&mut unread).await, "HTTP/1.1 200");
    unread
}

/// Returns the task of a reply to a send or a cancel.
fn task_of(form: WireFormat, reply: &Value) -> Value {
    let result = if form.is_rpc() {
        &reply["result"]
    } else {
        reply
    };
    let wrapped = &result["task"];
    if wrapped.is_object() {
        wrapped.clone()
    } else {
        result.clone()
    }
}

fn assert_content_omitted(task: &Value) {
    assert!(task["id"].is_string(), "{task}");
    assert!(task["artifacts"][0].is_null(), "{task}");
    assert!(task["history"][0].is_null(), "{task}");
    assert_eq!(
        task["metadata"]["attache.omitted"][0], "artifacts",
        "{task}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_send_names_its_task_if_the_reply_does_not_fit() {
    let (server, unread) = start_exhausted(Duration::from_millis(50)).await;
    let mut ids = Vec::new();
    for form in WIRE_FORMATS {
        let answer = ask_from(HOSTILE, server.address, &send(form, "complete 1")).await;
        assert_eq!(answer.status, 200, "{form:?} {answer:?}");
        let task = task_of(form, &answer.json());
        assert_content_omitted(&task);
        let state = task["status"]["state"].as_str().unwrap().to_lowercase();
        assert!(state.ends_with("completed"), "{form:?} {task}");
        ids.push(task["id"].clone());
    }
    drop(unread);
    for id in ids {
        let ask = WireFormat::Rpc1.ask("GetTask", json!({"id": id}));
        let complete = async {
            loop {
                let answer = ask_from(HOSTILE, server.address, &ask).await;
                // Until the server has noticed that the connection is closed.
                if answer.status == 200 {
                    return answer.json()["result"].clone();
                }
            }
        };
        let task = with_deadline(complete).await;
        assert_eq!(task["artifacts"].as_array().map(Vec::len), Some(1));
        assert!(task["metadata"]["attache.omitted"].is_null());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_cancel_names_its_task_if_the_reply_does_not_fit() {
    let (server, _unread) = start_exhausted(Duration::from_millis(50)).await;
    for form in WIRE_FORMATS {
        let id = create_task(server.address, "hold 1").await;
        await_state(server.address, &id, "TASK_STATE_WORKING").await;
        let ask = form.ask("CancelTask", json!({"id": id}));
        let answer = ask_from(HOSTILE, server.address, &ask).await;
        assert_eq!(answer.status, 200, "{form:?} {answer:?}");
        let task = task_of(form, &answer.json());
        assert_eq!(task["id"], id);
        assert!(task["artifacts"][0].is_null(), "{task}");
    }
}

/// A stream continues a task with a snapshot of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_stream_that_continues_a_large_task_begins_without_its_content() {
    let (server, _unread) = start_exhausted(Duration::from_millis(50)).await;
    for form in WIRE_FORMATS {
        let id = create_task(server.address, "ask 1").await;
        await_state(server.address, &id, "TASK_STATE_INPUT_REQUIRED").await;
        let ask = form.stream("done", json!({"taskId": id}));
        let answer = ask_from(HOSTILE, server.address, &ask).await;
        assert_eq!(answer.status, 200, "{form:?} {answer:?}");
        assert!(answer.body.contains("attache.omitted"), "{form:?}");
        assert!(answer.body.len() < 64 << 10, "{form:?}");
        let end = answer.body.to_lowercase();
        assert!(end.contains("completed"), "{form:?} {answer:?}");
    }
}

/// A snapshot with less history than its task is a copy. It uses the part of the budget that was reserved for the task, and
/// does not compete with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_subscription_begins_with_a_part_of_a_large_task() {
    let settings = settings_with(|settings| {
        // The task and its encoding take the share of the caller.
        settings.max_outgoing_bytes = 4 << 20;
        settings.waiting_stream_timeout = Some(Duration::from_millis(50));
    });
    let limits = Limits {
        max_history_length: 0,
        ..Limits::default()
    };
    let server = start_with(BulkAgent, |server| {
        server.server_settings(settings).limits(limits)
    });
    let server = server.await;
    let id = create_task(server.address, "ask 1").await;
    await_state(server.address, &id, "TASK_STATE_INPUT_REQUIRED").await;
    let ask = WireFormat::Rpc1.subscribe(&id);
    let answer = ask_from(HOSTILE, server.address, &ask).await;
    assert!(!answer.body.contains("attache.omitted"), "{}", answer.head);
    assert!(answer.body.len() > 1 << 20, "{} bytes", answer.body.len());
}

/// A completion without text would look like an empty answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_chat_completion_names_its_task_if_the_text_does_not_fit() {
    let (server, _unread) = start_exhausted(Duration::from_millis(50)).await;
    let body = json!({"messages": [{"role": "user", "content": "complete 1"}]}).to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json".to_owned();
    let answer = ask_from(HOSTILE, server.address, &WireRequest { head, body }).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "content_omitted");
    let message = error["message"].as_str().unwrap().to_owned();
    let id = message
        .split_once("in task ")
        .unwrap()
        .1
        .split(' ')
        .next()
        .unwrap();
    let list = WireFormat::Rpc1.ask("ListTasks", json!({"historyLength": 0}));
    let page = ask_from(HOSTILE, server.address, &list).await.json();
    let tasks = page["result"]["tasks"].as_array().unwrap().clone();
    assert!(tasks.iter().any(|task| task["id"] == id), "{message}");
}

/// The reply waits for the budget. Every format gets the whole task when it is free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_reply_that_waits_for_the_budget_is_complete() {
    let (server, unread) = start_exhausted(Duration::from_secs(3600)).await;
    let mut unread = Some(unread);
    for form in WIRE_FORMATS {
        let held = match unread.take() {
            Some(unread) => unread,
            None => exhaust(&server).await,
        };
        let ask = send(form, "ask 1");
        let reply = ask_from(HOSTILE, server.address, &ask);
        let release = async {
            let newest =
                json!({"pageSize": 1, "historyLength": 0, "status": "TASK_STATE_INPUT_REQUIRED"});
            let list = WireFormat::Rpc1.ask("ListTasks", newest);
            let total = WIRE_FORMATS
                .iter()
                .position(|other| *other == form)
                .unwrap()
                + 1;
            loop {
                let page = ask_from([127, 0, 0, 2], server.address, &list).await.json();
                if page["result"]["totalSize"] == total {
                    break drop(held);
                }
            }
        };
        let (answer, ()) = with_deadline(async { tokio::join!(reply, release) }).await;
        assert_eq!(answer.status, 200, "{form:?}");
        let task = task_of(form, &answer.json());
        let text = task["artifacts"][0]["parts"][0]["text"].as_str();
        assert_eq!(text.map(str::len), Some(1 << 20), "{form:?}");
    }
}

/// The client tries to read the task again. If that fails too, the caller still gets the id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_the_client_returns_the_task_without_its_content() {
    let (server, _unread) = start_exhausted(Duration::from_millis(50)).await;
    let url = format!("http://{}", server.address);
    for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
        for version in [Version::V1, Version::V03] {
            let mut settings = ClientSettings::default();
            settings.retries.max_retries = 0;
            let client = Client::new(&url, binding, version).unwrap();
            let client = client.with_settings(settings);
            let request = SendMessageRequest::new(Message::user("complete 1"));
            let response = with_deadline(client.send_message(request)).await;
            let SendMessageResponse::Task(task) = response.unwrap() else {
                panic!("{binding:?} {version:?}: not a task");
            };
            assert!(task.is_content_omitted(), "{binding:?} {version:?}");
            assert!(task.is_ended() && task.artifacts.is_empty());
        }
    }
}
