//! Documents that hooks outside of the server receive.

use std::sync::{Arc, Mutex};

use attache::{Hook, HookPhase};
use attache_agents::{ExternalHook, HttpHookSettings};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{echo_behind, send};
use crate::http::request;

/// Service that records requests, and replies with a function of the document.
async fn recorder(
    decide: fn(Value) -> Value,
) -> (String, Arc<Mutex<Vec<(String, Value)>>>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
    let log = seen.clone();
    let mut server = JoinSet::new();
    server.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let received = request(&mut stream).await;
            let (head, body) = received.split_once("\r\n\r\n").unwrap();
            let document: Value = serde_json::from_str(body).unwrap();
            log.lock()
                .unwrap()
                .push((head.to_owned(), document.clone()));
            let reply = decide(document).to_string();
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
            stream
                .write_all((head.to_owned() + &reply).as_bytes())
                .await
                .unwrap();
        }
    });
    (url, seen, server)
}

fn hook(url: &str) -> Hook {
    let settings = HttpHookSettings {
        url: url.to_owned(),
        headers: [("Authorization".to_owned(), "Bearer key".into())].into(),
        ..HttpHookSettings::default()
    };
    Hook::new("policy", ExternalHook::http(settings).unwrap())
}

#[tokio::test]
async fn a_document_describes_call_event_and_response() {
    let (url, seen, _service) = recorder(|_| json!({"decision": "allow"})).await;
    let server = echo_behind(hook(&url)).await;
    let answer = send(&server).await;
    let task = &answer["result"]["task"];
    let seen = seen.lock().unwrap();
    assert!(
        seen[0].0.starts_with("POST /hook HTTP/1.1"),
        "{}",
        seen[0].0
    );
    assert!(
        seen[0].0.contains("authorization: Bearer key"),
        "{}",
        seen[0].0
    );
    let documents: Vec<_> = seen.iter().map(|(_, document)| document).collect();
    let phases: Vec<_> = documents
        .iter()
        .map(|document| &document["phase"])
        .collect();
    assert_eq!(phases.first().unwrap(), &"call");
    assert_eq!(phases.last().unwrap(), &"response");
    let call = documents[0];
    assert_eq!(call["agent"], "Tested");
    assert_eq!(call["caller"], "anonymous");
    assert_eq!(call["method"], "SendMessage");
    assert_eq!(
        call["request"]["message"]["parts"],
        json!([{"text": "my secret"}])
    );
    let event = documents
        .iter()
        .find(|document| document["event"]["artifactUpdate"].is_object());
    let event = event.unwrap();
    assert_eq!(event["taskId"], task["id"]);
    assert_eq!(event["contextId"], task["contextId"]);
    assert_eq!(event["method"], Value::Null);
    assert_eq!(
        documents.last().unwrap()["response"]["task"]["id"],
        task["id"]
    );
}

#[tokio::test]
async fn s38_documents_have_no_webhook_credentials_and_a_change_keeps_them() {
    let (url, seen, _service) = recorder(|mut document| {
        document["decision"] = "change".into();
        document
    })
    .await;
    let hook = hook(&url).phases([HookPhase::Call, HookPhase::Response]);
    let server = crate::harness::start_with(attache_agents::Echo, |server| {
        let mut push = attache::PushSettings::default();
        push.egress.loopback = true;
        server.hook(hook).push(push)
    })
    .await;
    let config = json!({
        "url": "http://127.0.0.1:1/webhook",
        "token": "hunter2",
        "authentication": {"scheme": "Bearer", "credentials": "hunter2"},
    });
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    let configuration = json!({"taskPushNotificationConfig": config});
    let sent = json!({"message": message, "configuration": configuration});
    let task = server.call("SendMessage", sent).await["task"]["id"].clone();
    let params = json!({"taskId": task});
    let listed = server.call("ListTaskPushNotificationConfigs", params).await;
    assert_eq!(listed["configs"][0]["token"], "hunter2", "{listed}");
    let seen = format!("{:?}", seen.lock().unwrap());
    assert!(seen.contains("127.0.0.1:1/webhook"), "{seen}");
    assert!(!seen.contains("hunter2"), "{seen}");
}

#[tokio::test]
async fn a_changed_message_is_stored() {
    let (url, _, _service) = recorder(|mut document| {
        document["decision"] = "change".into();
        document["request"]["message"]["parts"] = json!([{"text": "new"}]);
        document
    })
    .await;
    let server = echo_behind(hook(&url).phases([HookPhase::Call])).await;
    let answer = send(&server).await;
    let history = &answer["result"]["task"]["history"];
    assert_eq!(history[0]["parts"], json!([{"text": "new"}]), "{answer}");
}
