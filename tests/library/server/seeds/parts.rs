//! Parts and questions: nothing is rewritten, and only clients that run tools get tool parts.

use attache::model::{Json, Message, Object, Part, Role};
use attache::{Failure, Outcome, Question, Turn};
use serde_json::{Value, json};

use super::{post, post_for_events, sample, user_message};
use crate::harness::everywhere::everywhere;
use crate::harness::webhook_endpoint::{Endpoint, OK};
use crate::harness::{Running, WireFormat, local_webhooks, start, start_with};

const REQUEST: &str = "urn:attache:ext:input-request:v1";

fn tool_use() -> Part {
    let kind: Object = [("kind", Json::from("tool-use"))].into_iter().collect();
    Part::data(json!({"toolUseId": "input-1", "name": "key"})).with_metadata(kind)
}

fn has_tool_result(message: &Message) -> bool {
    let is_result = |kind: Json| kind.get() == r#""tool-result""#;
    let metadata = message.parts.iter().filter_map(Part::metadata);
    metadata
        .filter_map(|metadata| metadata.get("kind"))
        .any(is_result)
}

/// Agent that asks for a tool call with the request of the seed, and then returns a tool part.
async fn tool_agent(turn: Turn) -> Result<Outcome, Failure> {
    if has_tool_result(turn.message()) {
        let used = Message::agent("used").part(tool_use());
        return Ok(Outcome::CompletedWith(used));
    }
    let request = sample("rxjs-input-required");
    let request = &request["result"]["status"]["message"]["inputRequest"];
    Ok(Outcome::InputRequired(Question {
        message: Message::agent("Please provide your API key").part(tool_use()),
        request: Some(Json::parse(&request.to_string()).unwrap()),
    }))
}

/// Agent that asks in plain text, and returns the parts of the answer.
async fn plain_agent(turn: Turn) -> Result<Outcome, Failure> {
    if turn.message().text() == "ask" {
        return Ok(Outcome::InputRequired("which port?".into()));
    }
    let parts = turn.message().parts.clone();
    Ok(Outcome::CompletedWith(Message {
        parts,
        ..Message::agent("")
    }))
}

fn stream_request(message: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": message}})
}

fn text(text: &str) -> Value {
    user_message(json!([{"kind": "text", "text": text}]))
}

fn data_part() -> Value {
    json!({"kind": "data", "data": {"toolUseId": "input-1", "name": "key"}, "metadata": {"kind": "tool-use"}})
}

fn tool_part() -> Value {
    json!({"kind": "tool-use", "toolUseId": "input-1", "name": "key"})
}

async fn get(server: &Running, id: &Value, headers: &str) -> Value {
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": id}});
    let head = format!("POST / HTTP/1.1\r\nContent-Type: application/json{headers}");
    let answer = server.send(&head, get.to_string().as_bytes()).await;
    answer.json()["result"].clone()
}

#[tokio::test]
async fn seed_1_29_clients_get_only_standard_parts() {
    let server = start(tool_agent).await;
    let task = server
        .result("message/send", json!({"message": text("go")}))
        .await;
    assert_eq!(task["status"]["message"]["parts"][1], data_part(), "{task}");
    let events = post_for_events(&server, &stream_request(text("go"))).await;
    let last = &events.last().unwrap()["result"];
    assert_eq!(last["status"]["message"]["parts"][1], data_part(), "{last}");
    // A client that answers with a standard data part is not one that runs tools.
    let result = json!({"toolUseId": "input-1", "result": 42});
    let result = json!([{"kind": "data", "data": result, "metadata": {"kind": "tool-result"}}]);
    let mut answer = user_message(result.clone());
    answer["taskId"] = task["id"].clone();
    let task = server
        .result("message/send", json!({"message": answer}))
        .await;
    assert_eq!(task["status"]["state"], "completed");
    assert_eq!(task["status"]["message"]["parts"][1], data_part(), "{task}");
    assert_eq!(task["history"][2]["parts"], result, "{task}");
}

#[tokio::test]
async fn seed_1_32_data_parts_are_returned_as_they_came() {
    let server = start(plain_agent).await;
    for kind in ["invoice", "tool-use", "text"] {
        let parts = json!([{"kind": "data", "data": {"a": 1}, "metadata": {"kind": kind}}]);
        let message = user_message(parts.clone());
        let task = server
            .result("message/send", json!({"message": message}))
            .await;
        assert_eq!(task["history"][0]["parts"], parts, "{task}");
        assert_eq!(task["status"]["message"]["parts"], parts, "{task}");
    }
}

#[tokio::test]
async fn seed_2_10_large_tasks_have_tool_parts_too() {
    let server = start(tool_agent).await;
    let filler = "x".repeat(100_000);
    let task = server
        .result("message/send", json!({"message": text(&filler)}))
        .await;
    let result = json!([{"kind": "tool-result", "toolUseId": "input-1", "result": 42}]);
    let mut answer = user_message(result);
    answer["taskId"] = task["id"].clone();
    server
        .result("message/send", json!({"message": answer}))
        .await;
    let read = get(&server, &task["id"], "").await;
    assert_eq!(
        read["status"]["message"]["parts"][1],
        tool_part(),
        "{}",
        read["status"]
    );
}

#[tokio::test]
async fn seed_2_10_the_extension_activates_tool_parts() {
    let server = start(tool_agent).await;
    let task = server
        .result("message/send", json!({"message": text("go")}))
        .await;
    let extension = format!("\r\nX-A2A-Extensions: {REQUEST}");
    let read = get(&server, &task["id"], &extension).await;
    assert_eq!(read["status"]["message"]["parts"][1], tool_part(), "{read}");
    let read = get(&server, &task["id"], "").await;
    assert_eq!(read["status"]["message"]["parts"][1], data_part(), "{read}");
}

#[tokio::test]
async fn seed_2_17_questions_have_the_input_request_of_the_seed() {
    let server = start(tool_agent).await;
    let events = post_for_events(&server, &stream_request(text("go"))).await;
    let mut event = events.last().unwrap().clone();
    let mut seed = sample("rxjs-input-required");
    let message = &mut event["result"]["status"]["message"];
    let request = &seed["result"]["status"]["message"]["inputRequest"];
    // Beyond the seed: the same request as an extension, the ids of the task, our part.
    assert_eq!(message["metadata"][REQUEST], *request);
    assert_eq!(message["extensions"], json!([REQUEST]));
    for member in ["metadata", "extensions", "taskId", "contextId"] {
        message.as_object_mut().unwrap().remove(member);
    }
    message["parts"].as_array_mut().unwrap().pop();
    message["messageId"] = json!("msg-5");
    event["result"]["taskId"] = json!("task-789");
    event["result"]["contextId"] = json!("ctx-1");
    event["result"]["status"]["timestamp"] = json!("2025-10-30T10:00:02Z");
    // The stream ends with the question (05 §2).
    seed["result"]["final"] = json!(true);
    assert_eq!(event, seed);
}

#[tokio::test]
async fn seed_2_17_plain_questions_have_an_input_request() {
    let server = start(plain_agent).await;
    let task = server
        .result("message/send", json!({"message": text("ask")}))
        .await;
    let message = &task["status"]["message"];
    let request = json!({"kind": "input-request", "prompt": "which port?", "sensitive": false,
        "requestId": message["messageId"]});
    assert_eq!(message["inputRequest"], request, "{task}");
    assert_eq!(message["metadata"][REQUEST], request, "{task}");
    // Clients of ProtoJSON refuse unknown members: it is in the metadata alone.
    let path = format!("/v1/tasks/{}", task["id"].as_str().unwrap());
    let read = server.get(&path).await.json();
    let message = &read["status"]["message"];
    assert_eq!(message["metadata"][REQUEST], request, "{read}");
    assert_eq!(message.get("inputRequest"), None, "{read}");
    // The answer of the seed's client finds the task by the request.
    let mut answer = sample("rxjs-tool-result-request");
    let sent = &mut answer["params"]["message"];
    sent["parts"][1]["toolUseId"] = request["requestId"].clone();
    sent["referenceTaskIds"] = json!([task["id"]]);
    let events = post_for_events(&server, &answer).await;
    let last = &events.last().unwrap()["result"];
    assert_eq!(last["taskId"], task["id"], "{last}");
    assert_eq!(last["status"]["state"], "completed", "{last}");
}

/// In every binding and version the metadata of a question have its request.
#[tokio::test]
async fn seed_2_17_the_input_request_is_in_the_metadata_everywhere() {
    everywhere(
        || plain_agent,
        async |client: attache::Client| {
            let reply = client.send(Message::user("ask")).await.unwrap();
            let question = reply.task().unwrap().status.message.clone().unwrap();
            assert_eq!(question.role, Role::Agent);
            let metadata = question.metadata.clone().unwrap();
            let request: Value = metadata.get(REQUEST).unwrap().read().unwrap();
            assert_eq!(request["prompt"], "which port?");
            assert_eq!(request["requestId"], question.message_id.as_str());
        },
    )
    .await;
}

#[tokio::test]
async fn seed_2_20_resumed_streams_and_lists_have_tool_parts() {
    let server = start(tool_agent).await;
    let asked = server
        .result("message/send", json!({"message": text("go")}))
        .await;
    let mut answer = sample("rxjs-tool-result-request");
    answer["params"]["message"]["referenceTaskIds"] = json!([asked["id"]]);
    post_for_events(&server, &answer).await;
    let plain = server
        .result("message/send", json!({"message": text("go")}))
        .await;
    // Without the first event, which is the task.
    let params = json!({"id": asked["id"]});
    let resumed = WireFormat::Rpc03.ask("SubscribeToTask", params).resuming(2);
    let events = server.read(&resumed).await.rest().await;
    let last: Value = serde_json::from_str(&events.last().unwrap().data).unwrap();
    let message = &last["result"]["status"]["message"];
    assert_eq!(message["parts"][1], tool_part(), "{last}");
    let page = server.result("tasks/list", json!({})).await;
    let tasks = page["tasks"].as_array().unwrap();
    let listed = |id: &Value| tasks.iter().find(|task| task["id"] == *id).unwrap();
    let parts = |id: &Value| listed(id)["status"]["message"]["parts"][1].clone();
    assert_eq!(parts(&asked["id"]), tool_part(), "{page}");
    assert_eq!(parts(&plain["id"]), data_part(), "{page}");
    assert!(!page.to_string().contains("attache.dialect"), "{page}");
}

#[tokio::test]
async fn seed_2_20_webhooks_of_clients_with_the_extension_have_tool_parts() {
    let server = start_with(tool_agent, |server| server.push(local_webhooks())).await;
    for (header, expected) in [
        (format!("\r\nX-A2A-Extensions: {REQUEST}"), tool_part()),
        (String::new(), data_part()),
    ] {
        let endpoint = Endpoint::start(OK).await;
        let configuration = json!({"pushNotificationConfig": {"url": endpoint.url}});
        let params = json!({"message": text("go"), "configuration": configuration});
        let send = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params});
        let head = format!("POST / HTTP/1.1\r\nContent-Type: application/json{header}");
        let answer = server.send(&head, send.to_string().as_bytes()).await;
        assert!(answer.json()["result"]["id"].is_string(), "{answer:?}");
        let is_question = |body: &Value| body["status"]["state"] == "input-required";
        let received = endpoint
            .until(|got| got.iter().any(|request| is_question(&request.body)))
            .await;
        let question = received.iter().find(|got| is_question(&got.body)).unwrap();
        let part = &question.body["status"]["message"]["parts"][1];
        assert_eq!(*part, expected, "{question:?}");
    }
}

#[tokio::test]
async fn seed_2_20_clients_that_send_tool_parts_get_them_in_this_task() {
    let server = start(tool_agent).await;
    let asked = server
        .result("message/send", json!({"message": text("go")}))
        .await;
    let mut answer = sample("rxjs-tool-result-request");
    answer["params"]["message"]["referenceTaskIds"] = json!([asked["id"]]);
    let events = post_for_events(&server, &answer).await;
    assert_eq!(events[0]["id"], 3);
    let last = &events.last().unwrap()["result"];
    assert_eq!(last["taskId"], asked["id"], "{last}");
    assert_eq!(last["status"]["message"]["parts"][1], tool_part(), "{last}");
    // The task remembers it for calls without a tool part.
    let sent = &answer["params"]["message"]["parts"];
    let read = get(&server, &asked["id"], "").await;
    assert_eq!(read["status"]["message"]["parts"][1], tool_part(), "{read}");
    assert_eq!(read["history"][2]["parts"], *sent, "{read}");
    assert!(!read.to_string().contains("attache.dialect"), "{read}");
    let mut subscribe = sample("rxjs-get-request");
    subscribe["params"]["taskId"] = asked["id"].clone();
    let events = post_for_events(&server, &subscribe).await;
    assert_eq!(events[0]["result"], read);
    // Other tasks and other versions have data parts.
    let other = server
        .result("message/send", json!({"message": text("go")}))
        .await;
    assert_eq!(other["status"]["message"]["parts"][1], data_part());
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": asked["id"]}});
    let v1 = post(&server, &request).await;
    let part = &v1["result"]["status"]["message"]["parts"][1];
    assert_eq!(part["metadata"], json!({"kind": "tool-use"}), "{v1}");
    assert_eq!(part["data"]["toolUseId"], "input-1", "{v1}");
}

#[tokio::test]
async fn seed_1_32_data_parts_of_clients_that_run_tools_stay_data_parts() {
    let server = start(plain_agent).await;
    let parts = json!([
        {"kind": "data", "data": {"a": 1}, "metadata": {"kind": "tool-use"}},
        {"kind": "tool-result", "toolUseId": "input-1", "result": 42},
        {"data": {"b": 2}, "metadata": {"kind": "tool-result", "mine": true}},
    ]);
    let mut expected = parts.clone();
    expected[2]["kind"] = json!("data");
    let message = user_message(parts);
    let task = server
        .result("message/send", json!({"message": message.clone()}))
        .await;
    let read = get(&server, &task["id"], "").await;
    let events = post_for_events(&server, &stream_request(message)).await;
    let last = &events.last().unwrap()["result"];
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": {"includeArtifacts": true}});
    let listed = post(&server, &list).await["result"]["tasks"].clone();
    for (from, parts) in [
        ("send", &task["history"][0]["parts"]),
        ("send", &task["status"]["message"]["parts"]),
        ("get", &read["history"][0]["parts"]),
        ("get", &read["status"]["message"]["parts"]),
        ("stream", &last["status"]["message"]["parts"]),
        ("list", &listed[0]["status"]["message"]["parts"]),
    ] {
        assert_eq!(*parts, expected, "{from}");
    }
    for document in [&task, &read, last, &listed] {
        assert!(!document.to_string().contains("attache."), "{document}");
    }
}
