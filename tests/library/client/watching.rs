//! Somebody who sees what passes between a client and its agent, and a card as it was received.

use std::sync::{Arc, Mutex};

use attache::model::{Binding, GetTaskRequest, Secret, Version};
use attache::{Client, ErrorKind, Traffic};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::peer::{Peer, json, read, reply};
use crate::harness::with_deadline;

#[tokio::test]
async fn a_watcher_sees_both_directions_and_knows_what_is_sensitive() {
    let task = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}});
    let peer = Peer::with(vec![json(200, &task)]).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let client = Client::new(&peer.url, Binding::HttpJson, Version::V1).unwrap();
    let client = client
        .with_bearer(&Secret::from("hunter2"))
        .unwrap()
        .with_traffic_observer(move |traffic| {
            let line = match traffic {
                Traffic::Request {
                    method,
                    url,
                    headers,
                    ..
                } => {
                    let secret = headers
                        .iter()
                        .find(|header| header.name == "authorization")
                        .unwrap();
                    format!(
                        "{method} {} {}",
                        url.rsplit('/').next().unwrap(),
                        secret.sensitive
                    )
                }
                Traffic::Response { status, .. } => status.to_string(),
                Traffic::BodyChunk(bytes) => format!("{} bytes", bytes.len()),
                Traffic::ConnectionError(why) => why.clone(),
            };
            all.lock().unwrap().push(line);
        });
    with_deadline(client.get_task(GetTaskRequest {
        id: "t".into(),
        ..GetTaskRequest::default()
    }))
    .await
    .unwrap();
    let length = task.to_string().len();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "GET t true".to_owned(),
            "200".to_owned(),
            format!("{length} bytes")
        ]
    );
}

#[tokio::test]
async fn a_card_comes_as_it_was_written_or_not_at_all() {
    let text = "{ \"name\": \"x\",\n \"more\": 1.0 }";
    let peer = Peer::with(vec![reply(200, "", text), reply(404, "", "")]).await;
    let (builder, url) = (Client::builder(), format!("{}/card?a=b", peer.url));
    assert_eq!(with_deadline(builder.card_text(&url)).await.unwrap(), text);
    assert_eq!(
        with_deadline(builder.card_text(&url))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::TaskNotFound
    );
    assert_eq!(peer.asked().await[0].target, "GET /card?a=b");
}

#[tokio::test]
async fn s38_a_watcher_sees_whole_lines_so_that_it_can_hide_what_is_in_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (seen, line_came) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
    let (told, came) = (seen.clone(), line_came.clone());
    let client = Client::new(&url, Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_traffic_observer(move |traffic| {
            if let Traffic::BodyChunk(bytes) = traffic {
                told.lock()
                    .unwrap()
                    .push(String::from_utf8_lossy(bytes).into_owned());
                came.notify_one();
            }
        });
    let lines = [
        "{\"jsonrpc\":\"2.0\",\"id\":1,\n",
        "\"error\":{\"code\":-32603,\"message\":\"hunter2\"}}",
    ];
    let torn = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read(&mut stream).await;
        let body = lines.concat();
        let (one, other) = body.split_at(body.find("ter2").unwrap());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream
            .write_all(format!("{head}{one}").as_bytes())
            .await
            .unwrap();
        // The piece that ends in the middle of the word has come, since the line before it was shown.
        line_came.notified().await;
        stream.write_all(other.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let request = GetTaskRequest {
        id: "t".into(),
        ..GetTaskRequest::default()
    };
    let (answer, ()) = with_deadline(async { tokio::join!(client.get_task(request), torn) }).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(*seen.lock().unwrap(), lines, "no piece ends within a line");
}
