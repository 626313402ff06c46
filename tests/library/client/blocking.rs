//! Blocking client.

use std::thread;

use attache::model::{Binding, ErrorKind, Message, TaskState, Version};
use attache::{BlockingClient, Client, TaskStream};

use crate::harness::{Echo, start, with_deadline};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn blocking_client_has_all_operations() {
    let server = start(Echo).await;
    let url = format!("http://{}", server.address);
    let (done, finished) = tokio::sync::oneshot::channel();
    thread::spawn(move || {
        let client = BlockingClient::discover(&url).unwrap();
        assert_eq!(client.card().unwrap().name, "Echo");
        let answer = client.send(Message::user("hello")).unwrap();
        assert_eq!(
            (answer.text().as_str(), answer.state()),
            ("hello", TaskState::Completed)
        );
        let id = answer.task().unwrap().id.clone();
        assert_eq!(client.get_task(id.clone()).unwrap().text(), "hello");
        assert_eq!(
            client.list_tasks(Default::default()).unwrap().tasks.len(),
            1
        );
        assert_eq!(
            client.cancel_task(id.clone()).unwrap_err().kind(),
            ErrorKind::TaskNotCancelable
        );
        assert!(
            client
                .stream(Message::user("again"))
                .unwrap()
                .all(|event| event.is_ok())
        );
        let mut events = client.follow(id, None);
        assert!(events.next().unwrap().is_ok());
        assert!(events.next().is_none() && events.task().unwrap().is_ended());
        done.send(()).unwrap();
    });
    with_deadline(finished).await.unwrap();
}

#[tokio::test]
async fn blocking_client_wraps_an_async_client() {
    let server = start(Echo).await;
    let client = Client::new(
        &format!("http://{}", server.address),
        Binding::JsonRpc,
        Version::V03,
    )
    .unwrap();
    let stream: TaskStream = with_deadline(client.stream(Message::user("hello")))
        .await
        .unwrap();
    assert_eq!(
        with_deadline(stream.finish()).await.unwrap().text(),
        "hello"
    );
}
