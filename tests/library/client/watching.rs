//! Traffic observers, and the card as received.

use std::sync::{Arc, Mutex};

use attache::model::{Binding, GetTaskRequest, Secret, Version};
use attache::{Client, ErrorKind, Traffic};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::peer::{Peer, http_response, json_response, read_request};
use crate::harness::with_deadline;

#[tokio::test]
async fn observer_receives_both_directions_and_marks_sensitive_headers() {
    let task = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}});
    let peer = Peer::with_responses(vec![json_response(200, &task)]).await;
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
async fn card_text_is_returned_unchanged() {
    let text = "{ \"name\": \"x\",\n \"more\": 1.0 }";
    let peer = Peer::with_responses(vec![
        http_response(200, "", text),
        http_response(404, "", ""),
    ])
    .await;
    let builder = Client::builder();
    let url = format!("{}/card?a=b", peer.url);
    assert_eq!(with_deadline(builder.card_text(&url)).await.unwrap(), text);
    assert_eq!(
        with_deadline(builder.card_text(&url))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::TaskNotFound
    );
    assert_eq!(peer.requests().await[0].target, "GET /card?a=b");
}

#[tokio::test]
async fn s38_observer_receives_complete_lines() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let line_received = Arc::new(Notify::new());
    let observed = chunks.clone();
    let notify = line_received.clone();
    let client = Client::new(&url, Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_traffic_observer(move |traffic| {
            if let Traffic::BodyChunk(bytes) = traffic {
                observed
                    .lock()
                    .unwrap()
                    .push(String::from_utf8_lossy(bytes).into_owned());
                notify.notify_one();
            }
        });
    let lines = [
        "{\"jsonrpc\":\"2.0\",\"id\":1,\n",
        "\"error\":{\"code\":-32603,\"message\":\"hunter2\"}}",
    ];
    let split_response = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let body = lines.concat();
        let (one, other) = body.split_at(body.find("ter2").unwrap());
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream
            .write_all(format!("{head}{one}").as_bytes())
            .await
            .unwrap();
        // The observer has the first line, so the partial second line has arrived too.
        line_received.notified().await;
        stream.write_all(other.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let request = GetTaskRequest {
        id: "t".into(),
        ..GetTaskRequest::default()
    };
    let (answer, ()) =
        with_deadline(async { tokio::join!(client.get_task(request), split_response) }).await;
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(
        *chunks.lock().unwrap(),
        lines,
        "no chunk ends within a line"
    );
}
