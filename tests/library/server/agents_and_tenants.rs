//! Several agents and tenants in one server, an agent without stored tasks, and discovery of all of them.

use std::net::SocketAddr;

use attache::store::Memory;
use attache::{AgentCard, Failure, HostedAgent, Outcome, Server, ServerSettings, Turn};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::{Answer, Echo, Running, message, request, start_with, with_deadline};

async fn shout(turn: Turn) -> Result<Outcome, Failure> {
    turn.write("shout", turn.text().to_uppercase()).await;
    Ok(Outcome::Completed)
}

fn shouting(server: Server) -> Server {
    server.agent(
        HostedAgent::new("shout", AgentCard::new("Shout", "Says it louder"), shout)
            .tenants(["blue"]),
    )
}

fn send(text: &str, more: &Value) -> String {
    let mut params = json!({"message": message(text, json!({}))});
    params
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    request("SendMessage", &params)
}

fn said(answer: &Value) -> &Value {
    &answer["result"]["task"]["artifacts"][0]["parts"][0]["text"]
}

#[tokio::test]
async fn each_agent_is_at_its_path_and_by_its_name() {
    let server = start_with(Echo, shouting).await;
    assert_eq!(
        said(&server.post("/", &send("hi", &json!({}))).await.json()),
        "hi"
    );
    for path in [
        "/agents/shout",
        "/agents/shout/",
        "/agents/shout/a2a",
        "/agents/%73hout",
    ] {
        let answer = server.post(path, &send("hi", &json!({}))).await.json();
        assert_eq!(said(&answer), "HI", "{path}");
    }
    assert_eq!(
        said(
            &server
                .post("/", &send("hi", &json!({"tenant": "shout"})))
                .await
                .json()
        ),
        "HI"
    );
    let body = json!({"message": message("hi", json!({}))}).to_string();
    for path in [
        "/agents/shout/message:send",
        "/shout/message:send",
        "/agents/shout/blue/message:send",
    ] {
        let answer = server.post(path, &body).await.json();
        assert_eq!(
            answer["task"]["artifacts"][0]["parts"][0]["text"], "HI",
            "{path}"
        );
    }
    // Unknown agent. An unknown tenant is indistinguishable from an unknown task.
    for (path, status) in [
        ("/agents/whisper", "UNIMPLEMENTED"),
        ("/agents/", "UNIMPLEMENTED"),
        ("/agents/whisper/message:send", "UNIMPLEMENTED"),
        ("/whisper/message:send", "NOT_FOUND"),
    ] {
        let answer = server.post(path, &body).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["status"]),
            (404, &json!(status)),
            "{path}"
        );
    }
}

#[tokio::test]
async fn s10_tasks_of_agents_and_tenants_are_apart() {
    let server = start_with(Echo, shouting).await;
    let sent = server
        .post("/agents/shout", &send("hi", &json!({})))
        .await
        .json();
    let id = &sent["result"]["task"]["id"];
    let get = |more: Value| {
        let mut params = json!({"id": id});
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        request("GetTask", &params)
    };
    let code = |answer: Answer| answer.json()["error"]["code"].clone();
    assert_eq!(
        server
            .post("/", &get(json!({"tenant": "shout"})))
            .await
            .json()["result"]["id"],
        *id
    );
    assert_eq!(code(server.post("/", &get(json!({}))).await), -32001);
    assert_eq!(
        code(
            server
                .post("/agents/shout", &get(json!({"tenant": "blue"})))
                .await
        ),
        -32001
    );
    // Tenants belong to one agent, and an agent's path does not reach another agent.
    assert_eq!(
        code(server.post("/", &get(json!({"tenant": "blue"}))).await),
        -32001
    );
    assert_eq!(
        code(
            server
                .post("/agents/shout", &get(json!({"tenant": "Echo"})))
                .await
        ),
        -32001
    );
}

#[tokio::test]
async fn every_agent_has_a_card_and_all_are_in_the_catalog() {
    let server = start_with(Echo, shouting).await;
    let base = format!("http://{}/", server.address);
    let card = server
        .get("/agents/shout/.well-known/agent-card.json")
        .await
        .json();
    assert_eq!(
        (&card["name"], &card["url"]),
        (&json!("Shout"), &json!(format!("{base}agents/shout")))
    );
    let catalog = server.get("/.well-known/ai-catalog.json").await.json();
    assert_eq!(catalog["specVersion"], "1.0");
    let urls: Vec<_> = catalog["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["url"])
        .collect();
    assert_eq!(
        urls,
        [
            &json!(format!("{base}.well-known/agent-card.json")),
            &json!(format!("{base}agents/shout/.well-known/agent-card.json"))
        ]
    );
    let named = catalog["entries"][1]["url"]
        .as_str()
        .unwrap()
        .strip_prefix(base.trim_end_matches('/'))
        .unwrap();
    assert_eq!(server.get(named).await.json()["name"], "Shout");
}

#[tokio::test]
async fn two_agents_of_one_name_are_refused() {
    let again = HostedAgent::new("Echo", AgentCard::new("Other", "Of the same name"), shout);
    let server = Server::new(AgentCard::new("Echo", "Says it back"), Echo).agent(again);
    let refused = with_deadline(server.bind("127.0.0.1:0"))
        .await
        .err()
        .expect("one name is one agent");
    assert!(
        refused
            .message()
            .contains("`Echo` is used by another agent"),
        "{refused}"
    );
}

#[tokio::test]
async fn s33_only_a_trusted_proxy_says_where_we_are() {
    let ask = async |server: &Running| {
        let head = "GET /.well-known/agent-card.json HTTP/1.1\r\nX-Forwarded-Host: agents.example.com\r\n\
                    X-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /a";
        server.send(head, b"").await.json()["url"].clone()
    };
    let server = start_with(Echo, |server| server).await;
    assert_eq!(ask(&server).await, format!("http://{}", server.address));
    let mut settings = ServerSettings::default();
    settings.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    let trusting = |server: Server| server.server_settings(settings.clone()).allow_anonymous();
    let server = start_with(Echo, trusting).await;
    assert_eq!(ask(&server).await, "https://agents.example.com/a");
    // On a non-loopback address the card ignores the caller's Host header.
    let bound = Server::new(AgentCard::new("Echo", "Says it back"), Echo)
        .allow_anonymous()
        .bind("0.0.0.0:0")
        .await
        .unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], bound.local_addr().port()));
    let mut open = JoinSet::new();
    open.spawn(bound.serve());
    let mut stream = TcpStream::connect(at).await.unwrap();
    let head = "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    with_deadline(stream.read_to_string(&mut text))
        .await
        .unwrap();
    assert!(
        text.contains(&format!("http://{at}\"")) && !text.contains("evil"),
        "{text}"
    );
    let fixed = |server: Server| {
        server
            .server_settings(settings)
            .public_url("https://fixed.example.com")
            .allow_anonymous()
    };
    let server = start_with(Echo, fixed).await;
    assert_eq!(ask(&server).await, "https://fixed.example.com");
}

#[tokio::test]
async fn an_agent_that_keeps_no_tasks_answers_with_messages() {
    let server = start_with(Echo, |server| server.store(Memory::ephemeral())).await;
    let card = server.get("/.well-known/agent-card.json").await.json();
    assert_eq!(card["capabilities"]["streaming"], false);
    for more in [
        json!({}),
        json!({"configuration": {"returnImmediately": true}}),
    ] {
        let answer = server.post("/", &send("hi", &more)).await.json();
        let message = &answer["result"]["message"];
        assert_eq!(message["parts"], json!([{"text": "hi"}]), "{answer}");
        assert_eq!(message["role"], "ROLE_AGENT");
        assert_eq!(message.get("taskId"), None);
    }
    assert_eq!(server.result("ListTasks", json!({})).await["totalSize"], 0);
    assert_eq!(
        server.error("GetTask", json!({"id": "any"})).await["code"],
        -32001
    );
    assert_eq!(
        server.error("CancelTask", json!({"id": "any"})).await["code"],
        -32001
    );
    let stream = json!({"message": message("hi", json!({}))});
    assert_eq!(
        server.error("SendStreamingMessage", stream).await["code"],
        -32004
    );
}

#[tokio::test]
async fn a_failure_without_a_task_says_so_in_its_message() {
    let fails = |_: Turn| async { Err::<Outcome, Failure>(std::io::Error::other("secret").into()) };
    let server = start_with(fails, |server| server.store(Memory::ephemeral())).await;
    let answer = server.post("/", &send("hi", &json!({}))).await.json();
    let message = &answer["result"]["message"];
    assert_eq!(
        message["metadata"]["attache.state"], "TASK_STATE_FAILED",
        "{answer}"
    );
    assert!(!answer.to_string().contains("secret"));
}

#[tokio::test]
async fn a_tenant_has_a_name_that_nobody_else_has() {
    for tenants in [&["shout"][..], &["v1"], &[".x"], &[""]] {
        let first = Server::new(AgentCard::new("Echo", "Says it back"), Echo)
            .tenants(tenants.iter().copied());
        assert!(
            with_deadline(shouting(first).bind("127.0.0.1:0"))
                .await
                .is_err(),
            "{tenants:?}"
        );
    }
}

#[tokio::test]
async fn health_is_two_questions() {
    let server = start_with(Echo, |server| server).await;
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(server.get("/readyz").await.status, 200);
    assert_eq!(server.post("/healthz", "").await.status, 405);
}
