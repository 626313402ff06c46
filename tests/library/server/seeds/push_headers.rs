//! Push configurations with `headers`, as in the document on core methods.

use attache::store::Sqlite;
use attache::store::sqlite::Options;
use attache::{AgentCard, Outcome, Server};
use serde_json::{Value, json};

use super::{post, sample, user_message};
use crate::harness::webhook_endpoint::{Endpoint, OK};
use crate::harness::{Running, SteppedAgent, local_webhooks, run, start_with};

/// Sends a message and returns its task, on which the agent still works.
async fn working_task(server: &Running) -> Value {
    let message = user_message(json!([{"kind": "text", "text": "go"}]));
    let configuration = json!({"blocking": false});
    let params = json!({"message": message, "configuration": configuration});
    server.result("message/send", params).await
}

/// The request of the seed, for a task and a webhook.
fn request(task: &Value, url: &str) -> Value {
    let mut request = sample("core-push-set-request");
    request["params"]["taskId"] = task["id"].clone();
    request["params"]["pushNotificationConfig"]["url"] = json!(url);
    request
}

#[tokio::test]
async fn seed_3_17_headers_are_kept_and_sent() {
    let webhook = Endpoint::start(OK).await;
    let (agent, mut steps) = SteppedAgent::new();
    let server = start_with(agent, |server| server.push(local_webhooks())).await;
    let task = working_task(&server).await;
    let reply = post(&server, &request(&task, &webhook.url)).await;
    let config = &reply["result"]["pushNotificationConfig"];
    assert_eq!(
        config["headers"],
        json!({"X-Custom-Header": "value"}),
        "{reply}"
    );
    let authentication = json!({"schemes": ["Bearer"], "credentials": "webhook-secret"});
    assert_eq!(config["authentication"], authentication, "{reply}");
    let read = server
        .result(
            "tasks/pushNotificationConfig/get",
            json!({"id": task["id"]}),
        )
        .await;
    assert_eq!(read["pushNotificationConfig"], *config, "{read}");
    steps.next_task().await;
    steps.end(Outcome::Completed).await;
    let got = webhook.until(|got| !got.is_empty()).await;
    assert_eq!(got[0].header("X-Custom-Header"), "value");
    assert_eq!(got[0].header("Authorization"), "Bearer webhook-secret");
}

#[tokio::test]
async fn seed_3_18_the_reply_has_success() {
    let (agent, _steps) = SteppedAgent::new();
    let server = start_with(agent, |server| server.push(local_webhooks())).await;
    let task = working_task(&server).await;
    let request = request(&task, "http://127.0.0.1:9/hook");
    let reply = post(&server, &request).await;
    let seed = sample("core-push-set-response");
    assert_eq!(reply["result"]["success"], seed["result"]["success"]);
    assert_eq!(reply["id"], seed["id"]);
    // Beside the configuration, which all others get alone.
    assert_eq!(reply["result"]["taskId"], task["id"], "{reply}");
    let mut plain = request.clone();
    let config = plain["params"]["pushNotificationConfig"]
        .as_object_mut()
        .unwrap();
    config.remove("headers");
    let reply = post(&server, &plain).await;
    assert_eq!(reply["result"].get("success"), None, "{reply}");
    assert_eq!(reply["result"]["taskId"], task["id"], "{reply}");
}

#[tokio::test]
async fn seed_3_17_bad_headers_are_refused_and_nothing_is_stored() {
    let (agent, _steps) = SteppedAgent::new();
    let server = start_with(agent, |server| server.push(local_webhooks())).await;
    let task = working_task(&server).await;
    let many: serde_json::Map<_, _> = (0..17)
        .map(|index| (format!("X-{index}"), json!("v")))
        .collect();
    let mut cases = vec![
        (json!({"X-A": 5}), "X-A must be a string"),
        (json!({"X-A": null}), "X-A must be a string"),
        (json!(["X-A"]), "headers"),
        (json!({"X A": "v"}), "must be the name of an HTTP header"),
        (json!({"": "v"}), "must be the name of an HTTP header"),
        (
            json!({"X-A": "v\r\nX-B: w"}),
            "must not contain control characters",
        ),
        (
            json!({"X-A": "v", "x-a": "w"}),
            "x-a must be given only once",
        ),
        (Value::Object(many), "must have at most 16 members, not 17"),
        (
            json!({"Authorization": "abc123"}),
            "must be a scheme and credentials",
        ),
        (
            json!({"X-A": "v".repeat(8190)}),
            "must have at most 8192 bytes",
        ),
    ];
    let forbidden = [
        "Host",
        "cookie",
        "Content-Type",
        "Content-Length",
        "Connection",
        "Transfer-Encoding",
        "TE",
        "Upgrade",
        "Keep-Alive",
        "Proxy-Authorization",
        "Trailer",
        "A2A-Notification-JWT",
        "X-A2A-Notification-Token",
        "A2A-Event-Id",
        "Traceparent",
        "User-Agent",
    ];
    for name in forbidden {
        cases.push((json!({name: "v"}), "must not be set"));
    }
    for (headers, expected) in cases {
        let mut request = request(&task, "http://127.0.0.1:9/hook");
        request["params"]["pushNotificationConfig"]["headers"] = headers.clone();
        let reply = post(&server, &request).await;
        assert_eq!(reply["error"]["code"], -32602, "{headers}: {reply}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{headers}: {message}");
        // The same in a send.
        let message = user_message(json!([{"kind": "text", "text": "go"}]));
        let config = &request["params"]["pushNotificationConfig"];
        let params =
            json!({"message": message, "configuration": {"pushNotificationConfig": config}});
        let error = server.error("message/send", params).await;
        assert_eq!(error["code"], -32602, "{headers}: {error}");
    }
    let list = server
        .result(
            "tasks/pushNotificationConfig/list",
            json!({"id": task["id"]}),
        )
        .await;
    assert_eq!(list, json!([]));
    let tasks = server.result("ListTasks", json!({})).await;
    assert_eq!(tasks["totalSize"], 1, "{tasks}");
}

/// 1.0 has no such member: it is ignored like any other unknown one.
#[tokio::test]
async fn seed_3_17_version_1_has_no_headers() {
    let (agent, _steps) = SteppedAgent::new();
    let server = start_with(agent, |server| server.push(local_webhooks())).await;
    let task = working_task(&server).await;
    let url = "http://127.0.0.1:9/hook";
    for headers in [
        json!({"Host": "x"}),
        json!({"Authorization": "Bearer x"}),
        json!({"X-A": 5}),
    ] {
        for params in [
            json!({"taskId": task["id"], "url": url, "headers": headers}),
            json!({"taskId": task["id"], "config": {"url": url, "headers": headers}}),
        ] {
            let config = server
                .result("CreateTaskPushNotificationConfig", params)
                .await;
            assert_eq!(config["url"], url, "{config}");
            assert_eq!(config.get("headers"), None, "{config}");
            assert_eq!(config.get("authentication"), None, "{config}");
        }
    }
}

/// The SDKs refuse members that the protobuf file does not have.
#[tokio::test]
async fn seed_3_17_rest_of_0_3_has_no_headers() {
    let (agent, _steps) = SteppedAgent::new();
    let server = start_with(agent, |server| server.push(local_webhooks())).await;
    let task = working_task(&server).await;
    post(&server, &request(&task, "http://127.0.0.1:9/hook")).await;
    let task = task["id"].as_str().unwrap();
    let list = format!("/v1/tasks/{task}/pushNotificationConfigs");
    let listed = server.get(&list).await.json();
    let config = listed["configs"][0]["pushNotificationConfig"].clone();
    assert_eq!(config["url"], "http://127.0.0.1:9/hook", "{listed}");
    assert_eq!(config.get("headers"), None, "{listed}");
    let one = format!("{list}/{}", config["id"].as_str().unwrap());
    let read = server.get(&one).await.json();
    assert_eq!(read["pushNotificationConfig"], config, "{read}");
}

#[tokio::test]
async fn seed_3_17_headers_are_encrypted_at_rest() {
    let folder = tempfile::tempdir().unwrap();
    let (agent, _steps) = SteppedAgent::new();
    let store = Sqlite::open(folder.path().join("tasks.db"), Options::default()).unwrap();
    let card = AgentCard::new("Stepped", "Waits");
    let mut server = run(Server::new(card, agent).store(store).push(local_webhooks())).await;
    let task = working_task(&server).await;
    let mut request = request(&task, "http://127.0.0.1:9/hook");
    let headers = json!({"X-Custom-Header": "lighthouse-keeper"});
    request["params"]["pushNotificationConfig"]["headers"] = headers;
    let reply = post(&server, &request).await;
    assert_eq!(reply["result"]["success"], true, "{reply}");
    server.stop().await;
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    let id = task["id"].as_str().unwrap().as_bytes();
    let contains = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    assert!(contains(id), "the files are those of the store");
    assert!(!contains(b"lighthouse-keeper"));
}
