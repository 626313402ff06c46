//! Connection pool: shared by clones, reused, and closed with the last clone and stream.

use attache::Client;
use attache::model::{Binding, GetTaskRequest, SubscribeToTaskRequest, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::peer;
use crate::harness::with_deadline;

const TASK: &str = r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#;

async fn listen() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (
        listener,
        Client::new(&url, Binding::HttpJson, Version::V1).unwrap(),
    )
}

async fn get(client: &Client) {
    let request = GetTaskRequest {
        id: "t".into(),
        ..Default::default()
    };
    with_deadline(client.get_task(request)).await.unwrap();
}

async fn respond(stream: &mut TcpStream) {
    with_deadline(peer::read_request(stream)).await;
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{TASK}",
        TASK.len()
    );
    stream.write_all(response.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn clones_share_a_connection_until_the_last_is_dropped() {
    let (listener, client) = listen().await;
    let (mut stream, ()) = tokio::join!(
        async {
            let (mut stream, _) = with_deadline(listener.accept()).await.unwrap();
            respond(&mut stream).await;
            stream
        },
        get(&client)
    );
    let clone = client.clone();
    drop(client);
    tokio::join!(respond(&mut stream), get(&clone));
    drop(clone);
    assert_eq!(
        with_deadline(stream.read(&mut [0; 16])).await.unwrap(),
        0,
        "closed"
    );
}

#[tokio::test]
async fn stream_outlives_its_client_and_closes_on_drop() {
    let (listener, client) = listen().await;
    let subscribe = async {
        let request = SubscribeToTaskRequest {
            id: "t".into(),
            ..Default::default()
        };
        with_deadline(client.subscribe_to_task(request, None))
            .await
            .unwrap()
    };
    let accept = async {
        let (mut stream, _) = with_deadline(listener.accept()).await.unwrap();
        with_deadline(peer::read_request(&mut stream)).await;
        stream.write_all(&peer::sse_response(b"")).await.unwrap();
        stream
    };
    let (mut events, mut stream) = tokio::join!(subscribe, accept);
    drop(client);
    let event = format!("id: 3\ndata: {{\"task\":{TASK}}}\n\n");
    stream.write_all(event.as_bytes()).await.unwrap();
    assert!(with_deadline(events.next()).await.unwrap().is_ok());
    drop(events);
    assert_eq!(
        with_deadline(stream.read(&mut [0; 16])).await.unwrap(),
        0,
        "closed"
    );
}
