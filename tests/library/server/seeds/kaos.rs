//! Clients of KAOS: the form of requests and responses, also in later calls and after a restart.

use attache::model::Message;
use attache::store::Sqlite;
use attache::store::sqlite::Options;
use attache::{AgentCard, Failure, HostedAgent, Outcome, Server, Turn};
use serde_json::{Value, json};

use super::kaos_client::{KaosAnswer, KaosClient, Way, response_text};
use super::{post, sample, strict_server};
use crate::harness::{Echo, Running, SteppedAgent, run, start, start_with};

/// Agent whose answer is an artifact in two chunks and a file, or that asks or fails.
async fn analyst(turn: Turn) -> Result<Outcome, Failure> {
    match turn.text().as_str() {
        "ask" => Ok(Outcome::InputRequired("which data?".into())),
        "fail" => Ok(Outcome::Failed(Message::agent("no data"))),
        "quiet" => Ok(Outcome::Completed),
        "say" => Ok(Outcome::CompletedWith(Message::agent("Analysis result..."))),
        _ => {
            turn.write("analysis", "Analysis result...").await;
            Ok(Outcome::Completed)
        }
    }
}

/// The request of the seed, with another text.
fn send(text: &str) -> Value {
    let mut request = sample("kaos-send-request");
    request["params"]["message"]["parts"][0]["text"] = json!(text);
    request
}

fn task_call(method: &str, id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "id": 2, "params": {"id": id}})
}

/// Posts a request with `A2A-Version: 1.0`.
async fn post_v1(server: &Running, request: &Value) -> Value {
    let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0";
    server
        .send(head, request.to_string().as_bytes())
        .await
        .json()
}

/// Runs a call of the blocking client.
async fn with_client<T: Send + 'static>(
    server: &Running,
    call: impl FnOnce(KaosClient) -> T + Send + 'static,
) -> T {
    let client = KaosClient::new(server.address, "my-agent");
    tokio::task::spawn_blocking(move || call(client))
        .await
        .unwrap()
}

#[tokio::test]
async fn seed_0_05_the_response_is_that_of_the_seed() {
    let server = start(analyst).await;
    let mut ours = post(&server, &sample("kaos-send-request")).await;
    let mut seed = sample("kaos-send-response");
    assert_eq!(ours["result"]["sessionId"], "optional-session-id");
    assert_eq!(ours["result"]["output"], "Analysis result...");
    let artifact = json!({"type": "text", "text": "Analysis result..."});
    assert_eq!(ours["result"]["artifacts"][0]["parts"], json!([artifact]));
    // The seed names both, and its sample has neither.
    let result = ours["result"].as_object_mut().unwrap();
    result.remove("output");
    result.remove("artifacts");
    for member in ["id", "sessionId"] {
        seed["result"][member] = result[member].clone();
    }
    seed["result"]["status"]["timestamp"] = result["status"]["timestamp"].clone();
    assert_eq!(ours, seed);
}

#[tokio::test]
async fn seed_0_06_the_status_message_is_a_text() {
    let server = start(analyst).await;
    for (text, state, message) in [
        ("go", "completed", json!("Done")),
        ("say", "completed", json!("Done")),
        ("fail", "failed", json!("no data")),
        ("ask", "input-required", json!("which data?")),
    ] {
        let task = &post(&server, &send(text)).await["result"];
        assert_eq!(task["status"]["state"], state, "{task}");
        assert_eq!(task["status"]["message"], message, "{task}");
    }
}

#[tokio::test]
async fn seed_0_07_the_history_has_the_message_of_the_agent() {
    let server = start(analyst).await;
    for (text, answers) in [
        ("go", vec!["Analysis result..."]),
        ("say", vec!["Analysis result..."]),
        ("ask", vec!["which data?"]),
        ("quiet", vec![]),
    ] {
        let task = &post(&server, &send(text)).await["result"];
        let history = task["history"].as_array().unwrap();
        assert_eq!(history[0]["role"], "user");
        let of_agent = history.iter().filter(|message| message["role"] == "agent");
        let texts: Vec<_> = of_agent
            .map(|message| message["parts"][0]["text"].as_str().unwrap())
            .collect();
        assert_eq!(texts, answers, "{task}");
    }
}

#[tokio::test]
async fn seed_0_08_each_mark_selects_the_dialect() {
    let server = start(analyst).await;
    let typed = json!([{"type": "text", "text": "go"}]);
    let plain = json!([{"text": "go"}]);
    let request = |params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    for params in [
        json!({"message": {"role": "user", "parts": typed}}),
        json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": typed}}),
        json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": plain}, "contextId": "c"}),
    ] {
        let answer = post(&server, &request(params)).await;
        assert_eq!(answer["result"]["status"]["message"], "Done", "{answer}");
    }
    // Without a mark it is 1.0, and its rules hold.
    let message = json!({"messageId": "m", "role": "user", "parts": plain, "contextId": "c"});
    let answer = post(&server, &request(json!({"message": message}))).await;
    let state = &answer["result"]["task"]["status"]["state"];
    assert_eq!(state, "TASK_STATE_COMPLETED", "{answer}");
    let nameless = json!({"message": {"role": "ROLE_USER", "parts": plain}});
    let answer = post(&server, &request(nameless)).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    // A client that names its version gets that version.
    let answer = post_v1(&server, &sample("kaos-send-request")).await;
    let state = &answer["result"]["task"]["status"]["state"];
    assert_eq!(state, "TASK_STATE_COMPLETED", "{answer}");
}

#[tokio::test]
async fn seed_0_09_get_task_answers_in_the_form_of_the_send() {
    let server = start(analyst).await;
    let sent = post(&server, &sample("kaos-send-request")).await["result"].clone();
    let read = post(&server, &task_call("GetTask", &sent["id"])).await;
    assert_eq!(read, json!({"jsonrpc": "2.0", "id": 2, "result": sent}));
    assert!(!read.to_string().contains("attache.dialect"), "{read}");
    // With a version, and over other bindings, the task has the form of the version.
    let v1 = post_v1(&server, &task_call("GetTask", &sent["id"])).await;
    assert_eq!(v1["result"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(!v1.to_string().contains("attache.dialect"), "{v1}");
    let v03 = post(&server, &task_call("tasks/get", &sent["id"])).await;
    assert_eq!(v03["result"]["kind"], "task", "{v03}");
    // Tasks of other clients are not affected.
    let other = server.say("go", json!({})).await;
    let other = post(&server, &task_call("GetTask", &other["id"])).await;
    assert_eq!(other["result"]["status"]["state"], "TASK_STATE_COMPLETED");
    let unknown = post(&server, &task_call("GetTask", &json!("task-uuid"))).await;
    assert_eq!(unknown["error"]["code"], -32001, "{unknown}");
}

#[tokio::test]
async fn seed_0_09_the_dialect_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let open = || async {
        let card = AgentCard::new("Analyst", "Analyzes");
        let store = Sqlite::open(&path, Options::default()).unwrap();
        run(Server::new(card, analyst).store(store)).await
    };
    let mut server = open().await;
    let sent = post(&server, &sample("kaos-send-request")).await["result"].clone();
    server.stop().await;
    let server = open().await;
    let read = post(&server, &task_call("GetTask", &sent["id"])).await;
    assert_eq!(read["result"], sent);
    let canceled = post(&server, &task_call("CancelTask", &sent["id"])).await;
    assert_eq!(canceled["result"], sent);
}

#[tokio::test]
async fn seed_0_10_cancel_of_an_ended_task_returns_it() {
    let server = start(analyst).await;
    let sent = post(&server, &sample("kaos-send-request")).await["result"].clone();
    let canceled = post(&server, &task_call("CancelTask", &sent["id"])).await;
    assert_eq!(canceled, json!({"jsonrpc": "2.0", "id": 2, "result": sent}));
    // All other clients get the error of the protocol.
    let v1 = post_v1(&server, &task_call("CancelTask", &sent["id"])).await;
    assert_eq!(v1["error"]["code"], -32002, "{v1}");
    let v03 = post(&server, &task_call("tasks/cancel", &sent["id"])).await;
    assert_eq!(v03["error"]["code"], -32002, "{v03}");
    let other = server.say("go", json!({})).await;
    let other = post(&server, &task_call("CancelTask", &other["id"])).await;
    assert_eq!(other["error"]["code"], -32002, "{other}");
    let unknown = post(&server, &task_call("CancelTask", &json!("task-uuid"))).await;
    assert_eq!(unknown["error"]["code"], -32001, "{unknown}");
}

#[tokio::test]
async fn seed_0_10_cancel_of_a_waiting_task_returns_it_canceled() {
    let server = start(analyst).await;
    let asked = post(&server, &send("ask")).await["result"].clone();
    let canceled = post(&server, &task_call("CancelTask", &asked["id"])).await["result"].clone();
    assert_eq!(canceled["status"]["state"], "canceled", "{canceled}");
    assert_eq!(canceled["sessionId"], "optional-session-id");
}

#[tokio::test]
async fn seed_0_05_bad_input_is_an_error_and_writes_nothing() {
    let server = start(Echo).await;
    let parts = json!([{"type": "text", "text": "x"}]);
    for (params, field) in [
        (json!({"contextId": "c"}), "message"),
        (
            json!({"contextId": "c", "message": {"role": "user", "parts": []}}),
            "message.parts",
        ),
        (
            json!({"message": {"role": "user", "parts": [{"type": "text"}]}}),
            "message.parts[0]",
        ),
        (
            json!({"message": {"role": "system", "parts": parts}}),
            "message.role",
        ),
        (
            json!({"contextId": 5, "message": {"role": "user", "parts": parts}}),
            "contextId",
        ),
        (
            json!({"contextId": "c\u{0}", "message": {"role": "user", "parts": parts}}),
            "contextId",
        ),
    ] {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
        let answer = post(&server, &request).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(
            answer["error"].to_string().contains(field),
            "{field}: {answer}"
        );
    }
    let all = server.result("ListTasks", json!({})).await;
    assert_eq!(all["totalSize"], 0, "{all}");
}

#[tokio::test]
async fn seed_0_05_strict_servers_refuse_the_dialect() {
    let server = strict_server().await;
    let answer = post(&server, &sample("kaos-send-request")).await;
    assert_eq!(answer["error"]["code"], -32009, "{answer}");
}

#[tokio::test]
async fn seed_0_05_a_direct_reply_is_a_completed_task() {
    struct Replier;
    impl attache::Agent for Replier {
        async fn reply(&self, _: &Message, _: &attache::model::Call) -> Option<Message> {
            Some(Message::agent("hello"))
        }
        async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
            Ok(Outcome::Completed)
        }
    }
    let server = start(Replier).await;
    let task = post(&server, &send("hi")).await["result"].clone();
    assert_eq!(
        task["status"],
        json!({"state": "completed", "message": "Done"})
    );
    assert_eq!(response_text(&task), "hello", "{task}");
}

#[tokio::test]
async fn seed_0_26_the_card_names_the_protocol() {
    let server = start(analyst).await;
    let seed = sample("kaos-card");
    let card = server.get("/.well-known/agent.json").await.json();
    assert_eq!(card["supportedProtocols"], seed["supportedProtocols"]);
    assert_eq!(card["protocolVersion"], seed["protocolVersion"]);
    // 0.29; 0.28 differs on purpose.
    for capability in ["streaming", "stateTransitionHistory"] {
        let declared = &card["capabilities"][capability];
        assert_eq!(*declared, seed["capabilities"][capability], "{capability}");
    }
}

#[tokio::test]
async fn seed_0_41_any_model_names_the_only_agent() {
    let server = start(analyst).await;
    let messages = json!([{"role": "user", "content": "go"}]);
    let request = json!({"model": "my-agent", "messages": messages}).to_string();
    let answer = server.post("/v1/chat/completions", &request).await.json();
    let content = &answer["choices"][0]["message"]["content"];
    assert_eq!(content, "Analysis result...", "{answer}");
    // With several agents the name matters.
    let card = AgentCard::new("Analyst", "Analyzes");
    let other = HostedAgent::new("other", AgentCard::new("Other", "Echoes"), Echo);
    let server = run(Server::new(card, analyst).agent(other)).await;
    let answer = server.post("/v1/chat/completions", &request).await;
    assert_eq!(answer.status, 404, "{answer:?}");
}

/// The client of the documentation against the server: delegation, and its fallback.
#[tokio::test]
async fn seed_0_34_the_client_of_kaos_delegates() {
    let server = start(analyst).await;
    let answer = with_client(&server, |client| client.delegate("go", "session")).await;
    let expected = "Analysis result...";
    let text = expected.to_owned();
    assert_eq!(
        answer,
        KaosAnswer {
            text,
            way: Way::SendMessage
        }
    );
    let task = with_client(&server, |client| client.send("say", "session")).await;
    assert_eq!(response_text(&task), expected, "{task}");
    let id = task["id"].as_str().unwrap().to_owned();
    for method in ["GetTask", "CancelTask"] {
        let id = id.clone();
        let read = with_client(&server, move |client| client.task_call(method, &id)).await;
        assert_eq!(read["result"], task, "{method}");
    }
    // A task that asks is not completed: the client falls back to chat completions.
    let answer = with_client(&server, |client| client.delegate("ask", "session")).await;
    assert_eq!(answer.way, Way::ChatCompletions);
    assert_eq!(answer.text, "which data?");
}

/// A KAOS client that polls sees a running task in its form.
#[tokio::test]
async fn seed_0_09_a_running_task_has_the_form_too() {
    let (agent, mut steps) = SteppedAgent::new();
    let server = start_with(agent, |server| server).await;
    let mut request = send("go");
    request["params"]["configuration"] = json!({"blocking": false});
    let sent = post(&server, &request).await["result"].clone();
    steps.next_task().await;
    let read = post(&server, &task_call("GetTask", &sent["id"])).await["result"].clone();
    assert!(
        ["submitted", "working"].contains(&read["status"]["state"].as_str().unwrap()),
        "{read}"
    );
    assert_eq!(read["sessionId"], "optional-session-id");
    steps.end(Outcome::Completed).await;
}
