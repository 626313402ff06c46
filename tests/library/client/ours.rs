//! The client against our own server.

use attache::Client;
use attache::model::{
    Binding, CancelTaskRequest, ErrorKind, GetTaskRequest, ListTasksRequest, Message,
    SendMessageConfiguration, SendMessageRequest, SendMessageResponse, Task, TaskState, Version,
};
use tokio::sync::mpsc;

use crate::harness::{Echo, Running, soon, start};
use crate::operations::Held;

fn client(server: &Running, version: Version) -> Client {
    Client::new(&format!("http://{}/", server.address), Binding::JsonRpc, version).unwrap()
}

async fn send(client: &Client, request: SendMessageRequest) -> Task {
    match soon(client.send_message(request)).await.unwrap() {
        SendMessageResponse::Task(task) => task,
        SendMessageResponse::Message(message) => panic!("{message:?}"),
    }
}

fn get(task: &Task) -> GetTaskRequest {
    GetTaskRequest { id: task.id.clone(), ..Default::default() }
}

#[tokio::test]
async fn a_message_is_answered_and_its_task_read_in_every_version() {
    let server = start(Echo).await;
    for version in Version::ALL {
        let client = client(&server, version);
        let task = send(&client, SendMessageRequest::new(Message::user("hello"))).await;
        assert_eq!(task.status.state, TaskState::Completed);
        assert_eq!(task.artifacts[0].parts[0].as_text(), Some("hello"));
        assert_eq!(soon(client.get_task(get(&task))).await.unwrap(), task);
        let gone = soon(client.get_task(GetTaskRequest { id: "gone".into(), ..Default::default() })).await;
        assert_eq!(gone.unwrap_err().kind(), ErrorKind::TaskNotFound);
        let cancel = CancelTaskRequest { id: task.id.clone(), ..Default::default() };
        let ended = soon(client.cancel_task(cancel)).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::TaskNotCancelable);
    }
}

#[tokio::test]
async fn tasks_are_listed_in_1_0_alone() {
    let server = start(Echo).await;
    let new = client(&server, Version::V1);
    let tasks = [
        send(&new, SendMessageRequest::new(Message::user("a"))).await,
        send(&new, SendMessageRequest::new(Message::user("b"))).await,
    ];
    let request = ListTasksRequest { include_artifacts: Some(true), ..Default::default() };
    let page = soon(new.list_tasks(request.clone())).await.unwrap();
    assert_eq!(page.total_size, 2);
    assert!(tasks.iter().all(|task| page.tasks.contains(task)), "{page:?}");
    let old = soon(client(&server, Version::V03).list_tasks(request)).await.unwrap_err();
    assert_eq!(old.kind(), ErrorKind::UnsupportedOperation);
}

#[tokio::test]
async fn a_task_that_is_worked_on_is_canceled() {
    let (started, mut heard) = mpsc::channel(1);
    let server = start(Held::new(started)).await;
    let client = client(&server, Version::V1);
    let at_once = SendMessageConfiguration { return_immediately: true, ..Default::default() };
    let request = SendMessageRequest::new(Message::user("wait"));
    let task = send(&client, SendMessageRequest { configuration: Some(at_once), ..request }).await;
    assert_eq!(soon(heard.recv()).await, Some(task.id.to_string()));
    let cancel = CancelTaskRequest { id: task.id.clone(), ..Default::default() };
    let canceled = soon(client.cancel_task(cancel)).await.unwrap();
    assert_eq!((canceled.id, canceled.status.state), (task.id, TaskState::Canceled));
}

#[tokio::test]
async fn r14_the_same_key_is_the_same_task() {
    let server = start(Echo).await;
    let client = client(&server, Version::V1);
    let request = SendMessageRequest::new(Message::user("once"));
    let keyed = client.clone().with_header("Idempotency-Key", "k-1").unwrap();
    let first = send(&keyed, request.clone()).await;
    assert_eq!(send(&keyed, request.clone()).await.id, first.id);
    assert_ne!(send(&client, request).await.id, first.id);
}
