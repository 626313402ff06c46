//! Agents of the seed documents (`docs/compatibility.md`): KAOS, selectools, and servers of the 0.2 generation.

use attache::model::{
    CancelTaskRequest, ErrorKind, GetTaskRequest, Message, PushConfig, TaskState,
};
use attache::{Client, ClientSettings};
use serde_json::{Value, json};

use super::following::{fast_settings, rpc_error, rpc_result};
use super::kaos::{Answer, KaosServer};
use super::peer::{Peer, http_response, json_response, sse_response};
use crate::harness::with_deadline;

fn seed(name: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/seed");
    let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn discover(url: &str) -> Client {
    with_deadline(Client::discover(url)).await.unwrap()
}

fn get(id: &str) -> GetTaskRequest {
    GetTaskRequest {
        id: id.into(),
        ..GetTaskRequest::default()
    }
}

#[tokio::test]
async fn seed_0_34_kaos_is_called_at_its_base_with_its_methods() {
    let server = KaosServer::start(Answer::History);
    let client = discover(&server.url).await;
    let message = Message::user("Analyze this data").in_context("optional-session-id");
    let answer = with_deadline(client.send(message)).await.unwrap();
    assert_eq!(answer.text(), "from history: Analyze this data");
    let task = answer.task().unwrap();
    assert_eq!(task.context_id.as_str(), "optional-session-id");
    assert_eq!(task.status.state, TaskState::Completed);
    let read = with_deadline(client.get_task(get("task-0"))).await.unwrap();
    assert_eq!(read.text(), answer.text());
    let cancel = CancelTaskRequest {
        id: "task-0".into(),
        ..CancelTaskRequest::default()
    };
    let canceled = with_deadline(client.cancel_task(cancel)).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Completed, "as documented");
    let sent = &server.params("SendMessage")[0];
    assert_eq!(sent["contextId"], "optional-session-id");
    assert_eq!(sent["message"]["parts"][0]["type"], "text");
    let calls = server.calls();
    assert_eq!(
        calls[calls.len() - 3..],
        ["POST / SendMessage", "POST / GetTask", "POST / CancelTask"]
    );
    let unknown = with_deadline(client.get_task(get("task-9"))).await;
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::TaskNotFound);
}

#[tokio::test]
async fn seed_0_34_kaos_methods_are_used_even_if_its_card_has_a_url() {
    for path in ["/", "/a2a", "/agents/x"] {
        let mut card = seed("kaos-card");
        card["url"] = json!("/agents/x");
        let server = KaosServer::with_card(Answer::History, path, card);
        let client = discover(&server.url).await;
        for _ in 0..2 {
            let answer = with_deadline(client.send(Message::user("hi"))).await;
            assert_eq!(answer.unwrap().text(), "from history: hi");
        }
        let posts = server.calls().into_iter();
        let posts: Vec<_> = posts.filter(|call| call.starts_with("POST")).collect();
        let last = format!("POST {path} SendMessage");
        assert_eq!(
            posts[posts.len() - 2..],
            [last.clone(), last],
            "it stays there"
        );
    }
}

#[tokio::test]
async fn seed_0_38_answers_are_found_in_every_place() {
    for (answer, text) in [
        (Answer::History, "from history: hi"),
        (Answer::Output, "from output: hi"),
        (Answer::Artifact, "from artifact: hi"),
        (Answer::Nowhere, ""),
    ] {
        let server = KaosServer::start(answer);
        let client = discover(&server.url).await;
        let reply = with_deadline(client.send(Message::user("hi")))
            .await
            .unwrap();
        assert_eq!(reply.text(), text, "{answer:?}");
        let is_empty = reply.task().unwrap().result().is_empty();
        assert_eq!(is_empty, answer == Answer::Nowhere);
    }
}

#[tokio::test]
async fn seed_0_38_the_sample_of_the_seed_is_read() {
    let peer = Peer::with_responses(vec![
        http_response(404, "", ""),
        json_response(200, &seed("kaos-card")),
        json_response(200, &seed("kaos-send-response")),
    ])
    .await;
    let client = discover(&peer.url).await;
    let answer = with_deadline(client.send(Message::user("Analyze this data"))).await;
    assert_eq!(answer.unwrap().text(), "Analysis result...");
    peer.requests().await;
}

#[tokio::test]
async fn seed_4_36_selectools_is_found_below_the_address_of_its_card() {
    let peer = Peer::with_responses(vec![
        http_response(404, "", ""),
        json_response(200, &seed("selectools-card")),
        http_response(404, "", "Not Found"),
        json_response(200, &seed("selectools-send-response")),
        json_response(200, &seed("selectools-send-response")),
    ])
    .await;
    let client = discover(&peer.url).await;
    let answer = with_deadline(client.send(Message::user("hi")))
        .await
        .unwrap();
    assert_eq!(answer.text(), "Quantum computing trends");
    with_deadline(client.get_task(get("9f1c"))).await.unwrap();
    let requests = peer.requests().await;
    let targets: Vec<_> = requests.iter().map(|one| one.target.as_str()).collect();
    assert_eq!(targets[2..], ["POST /", "POST /a2a", "POST /a2a"]);
}

#[tokio::test]
async fn seed_0_34_a_method_that_is_refused_is_not_sent_to_other_urls() {
    let peer = Peer::with_responses(vec![
        http_response(404, "", ""),
        json_response(200, &seed("selectools-card")),
        rpc_error(-32601),
    ])
    .await;
    let client = discover(&peer.url).await;
    let error = with_deadline(client.get_task(get("t"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MethodNotFound);
    assert_eq!(peer.requests().await.len(), 3);
}

async fn send_with_chat(answer: Answer, message: Message) -> attache::Result<String> {
    let server = KaosServer::start(answer);
    let settings = ClientSettings {
        chat_completions: Some("my-agent".to_owned()),
        ..fast_settings()
    };
    let client = with_deadline(Client::builder().settings(settings).discover(&server.url)).await?;
    let answer = with_deadline(client.send(message)).await?;
    Ok(answer.text())
}

#[tokio::test]
async fn seed_0_37_chat_completions_replace_a_send_that_fails() {
    for answer in [
        Answer::InternalError,
        Answer::Status(404),
        Answer::Status(405),
        Answer::Status(500),
        Answer::Status(502),
        Answer::Status(503),
    ] {
        let text = send_with_chat(answer, Message::user("hi")).await.unwrap();
        assert_eq!(text, "chat: hi", "{answer:?}");
    }
    let text = send_with_chat(Answer::History, Message::user("hi")).await;
    assert_eq!(
        text.unwrap(),
        "from history: hi",
        "no fallback after a success"
    );
    for refusal in [Answer::Status(401), Answer::Status(403)] {
        let error = send_with_chat(refusal, Message::user("hi")).await;
        assert!(error.is_err(), "{refusal:?}");
    }
}

#[tokio::test]
async fn seed_0_37_a_message_to_a_task_is_not_sent_elsewhere() {
    let message = Message::user("hi").in_task("task-0");
    let error = send_with_chat(Answer::InternalError, message)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
}

#[tokio::test]
async fn seed_0_37_chat_completions_are_opt_in() {
    let server = KaosServer::start(Answer::InternalError);
    let client = discover(&server.url).await;
    let error = with_deadline(client.send(Message::user("hi"))).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Internal);
    assert!(
        !server
            .calls()
            .contains(&"POST /v1/chat/completions".to_owned())
    );
}

#[tokio::test]
async fn seed_1_59_seed_1_60_seed_3_22_extended_card_is_read_with_the_method_of_each_generation() {
    let extended = json!({"name": "extended", "url": "http://a.example"});
    for (answered_at, target) in [
        (1, "POST /"),
        (2, "POST /"),
        (3, "GET /agent/authenticatedExtendedCard"),
    ] {
        let peer = Peer::with_responses(
            [
                http_response(404, "", ""),
                json_response(200, &seed("selectools-card")),
            ]
            .into_iter()
            .chain((0..answered_at).map(|_| rpc_error(-32601)))
            .chain([match answered_at {
                3 => json_response(200, &extended),
                _ => json_response(200, &rpc_result(&extended)),
            }])
            .collect(),
        )
        .await;
        let client = discover(&peer.url).await;
        let clone = client.clone();
        let card = with_deadline(client.get_extended_agent_card())
            .await
            .unwrap();
        assert_eq!(card.name, "extended");
        assert_eq!(clone.card().unwrap().name, "extended", "seed_1_60");
        let requests = peer.requests().await;
        assert_eq!(requests.last().unwrap().target, target);
        let methods = requests.iter().filter_map(|one| {
            let body: Value = serde_json::from_slice(&one.body).ok()?;
            body["method"].as_str().map(str::to_owned)
        });
        let expected = [
            "agent/getAuthenticatedExtendedCard",
            "GetExtendedAgentCard",
            "agent/authenticatedExtendedCard",
        ];
        assert_eq!(
            methods.collect::<Vec<_>>(),
            expected[..(answered_at + 1).min(3)],
            "seed_3_22"
        );
    }
}

#[tokio::test]
async fn seed_1_59_the_first_refusal_is_reported() {
    let peer = Peer::with_responses(vec![
        http_response(404, "", ""),
        json_response(200, &seed("selectools-card")),
        rpc_error(-32601),
        rpc_error(-32601),
        rpc_error(-32601),
        http_response(404, "", ""),
    ])
    .await;
    let client = discover(&peer.url).await;
    let error = with_deadline(client.get_extended_agent_card())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MethodNotFound);
    assert_eq!(
        client.card().unwrap().name,
        "researcher",
        "the public card stays"
    );
    peer.requests().await;
}

#[tokio::test]
async fn seed_2_36_error_within_a_stream_is_reported() {
    let task = json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working"}});
    let error =
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "out of tokens"}});
    let events = format!("data: {}\n\ndata: {error}\n\n", rpc_result(&task));
    let peer = Peer::with_responses(vec![sse_response(events.as_bytes()), rpc_error(-32601)]).await;
    let client = super::following::client(&peer);
    let mut stream = with_deadline(client.stream(Message::user("hi")))
        .await
        .unwrap();
    with_deadline(stream.next()).await.unwrap().unwrap();
    let error = with_deadline(stream.next()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(error.message(), "out of tokens");
    assert_eq!(peer.requests().await.len(), 2, "the task is asked for once");
}

#[tokio::test]
async fn seed_3_19_push_config_that_is_only_confirmed_is_understood() {
    let confirmed = json_response(200, &rpc_result(&json!({"success": true})));
    let stored = json!({"taskId": "t", "pushNotificationConfig": {"id": "p", "url": "https://client.com/webhook"}});
    let config = PushConfig {
        task_id: Some("t".into()),
        ..PushConfig::new("https://client.com/webhook")
    };
    let known = json_response(200, &rpc_result(&stored));
    for (second, id) in [(known, Some("p")), (rpc_error(-32601), None)] {
        let peer = Peer::with_responses(vec![confirmed.clone(), second]).await;
        let client = super::following::client(&peer);
        let created = with_deadline(client.create_push_config(config.clone())).await;
        let created = created.unwrap();
        assert_eq!(created.url, config.url);
        assert_eq!(created.id.as_ref().map(|id| id.as_str()), id);
        peer.requests().await;
    }
}
