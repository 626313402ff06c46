//! Somebody who sees what passes between a client and its agent, and a card as it was received.

use std::sync::{Arc, Mutex};

use attache::model::{Binding, GetTaskRequest, Secret, Version};
use attache::{Client, ErrorKind, Traffic};
use serde_json::json;

use super::peer::{Peer, json, reply};
use crate::harness::soon;

#[tokio::test]
async fn a_watcher_sees_both_directions_and_knows_what_is_sensitive() {
    let task = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}});
    let peer = Peer::with(vec![json(200, &task)]).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = seen.clone();
    let client = Client::new(&peer.url, Binding::HttpJson, Version::V1).unwrap();
    let client = client.with_bearer(&Secret::from("hunter2")).unwrap().watched(move |traffic| {
        let line = match traffic {
            Traffic::Request { method, url, headers, .. } => {
                let secret = headers.iter().find(|header| header.name == "authorization").unwrap();
                format!("{method} {} {}", url.rsplit('/').next().unwrap(), secret.sensitive)
            }
            Traffic::Response { status, .. } => status.to_string(),
            Traffic::Received(bytes) => format!("{} bytes", bytes.len()),
            Traffic::Lost(why) => why.clone(),
        };
        all.lock().unwrap().push(line);
    });
    soon(client.get_task(GetTaskRequest { id: "t".into(), ..GetTaskRequest::default() })).await.unwrap();
    let length = task.to_string().len();
    assert_eq!(*seen.lock().unwrap(), ["GET t true".to_owned(), "200".to_owned(), format!("{length} bytes")]);
}

#[tokio::test]
async fn a_card_comes_as_it_was_written_or_not_at_all() {
    let text = "{ \"name\": \"x\",\n \"more\": 1.0 }";
    let peer = Peer::with(vec![reply(200, "", text), reply(404, "", "")]).await;
    let (builder, url) = (Client::builder(), format!("{}/card?a=b", peer.url));
    assert_eq!(soon(builder.card_text(&url)).await.unwrap(), text);
    assert_eq!(soon(builder.card_text(&url)).await.unwrap_err().kind(), ErrorKind::TaskNotFound);
    assert_eq!(peer.asked().await[0].target, "GET /card?a=b");
}
