//! Endpoint selection, fallbacks, card discovery and the origins that receive headers.

use std::sync::Arc;
use std::time::Duration;

use attache::model::{Binding, ErrorKind, GetTaskRequest, Message, Secret, Version};
use attache::{Client, ClientSettings, InterfacePreference, MemoryCardCache, Result};
use serde_json::{Value, json};

use super::following::{fast_settings, rpc_error, task_response};
use super::peer::{Peer, http_response, json_response};
use crate::harness::with_deadline;

fn card(interfaces: &Value, streaming: bool) -> Value {
    json!({"name": "Tides", "description": "", "supportedInterfaces": interfaces,
        "capabilities": {"streaming": streaming}})
}

fn both() -> Value {
    let one = |version: &str| json!({"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": version});
    json!([one("1.0"), one("0.3")])
}

async fn send_text(client: &Client) -> Result<String> {
    let request = GetTaskRequest {
        id: "t".into(),
        ..Default::default()
    };
    with_deadline(client.get_task(request))
        .await
        .map(|task| task.id.as_str().to_owned())
}

#[tokio::test]
async fn unknown_version_falls_back_once() {
    for code in [-32601, -32009] {
        let peer = Peer::with_responses(vec![
            json_response(200, &card(&both(), false)),
            rpc_error(code),
            task_response("COMPLETED"),
            task_response("COMPLETED"),
        ])
        .await;
        let client = with_deadline(Client::discover(&peer.url)).await.unwrap();
        assert_eq!(client.interface().protocol_version, "1.0");
        send_text(&client).await.unwrap();
        send_text(&client.clone()).await.unwrap();
        assert_eq!(client.interface().protocol_version, "0.3");
        let versions: Vec<_> = peer
            .requests()
            .await
            .iter()
            .map(|one| one.head.contains("a2a-version: 0.3"))
            .collect();
        assert_eq!(
            versions,
            [false, false, true, true],
            "it stays with what works"
        );
    }
}

#[tokio::test]
async fn pinned_version_has_no_fallback() {
    let pinned = [
        Client::builder().version(Version::V1),
        Client::builder().settings(ClientSettings {
            interface: InterfacePreference {
                no_fallback: true,
                ..InterfacePreference::default()
            },
            ..ClientSettings::default()
        }),
    ];
    for builder in pinned {
        let peer = Peer::with_responses(vec![
            json_response(200, &card(&both(), false)),
            rpc_error(-32009),
        ])
        .await;
        let client = with_deadline(builder.discover(&peer.url)).await.unwrap();
        assert_eq!(
            send_text(&client).await.unwrap_err().kind(),
            ErrorKind::VersionNotSupported
        );
        assert_eq!(peer.requests().await.len(), 2);
    }
    let old = json!([{"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}]);
    let peer = Peer::with_responses(vec![json_response(200, &card(&old, false))]).await;
    let error = with_deadline(Client::builder().version(Version::V1).discover(&peer.url))
        .await
        .unwrap_err();
    assert!(error.message().contains("JSONRPC 0.3"), "{error}");
}

#[tokio::test]
async fn unreachable_interface_falls_back() {
    let gone = Peer::with_responses(vec![]).await;
    let url = gone.url.clone();
    gone.requests().await;
    let peer = Peer::with_responses(vec![]).await;
    drop(peer);
    let interfaces = json!([
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    ]);
    let peer = Peer::with_responses(vec![
        json_response(200, &card(&interfaces, false)),
        task_response("COMPLETED"),
    ])
    .await;
    let client = with_deadline(Client::discover(&peer.url)).await.unwrap();
    send_text(&client).await.unwrap();
    peer.requests().await;
}

#[tokio::test]
async fn s30_s42_headers_stay_in_the_origin_of_the_card() {
    for is_trusted in [false, true] {
        let other = Peer::with_responses(vec![task_response("COMPLETED")]).await;
        let there =
            json!([{"url": other.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]);
        let peer = Peer::with_responses(vec![json_response(200, &card(&there, false))]).await;
        let mut builder = Client::builder().bearer(&Secret::from("hunter2")).unwrap();
        if is_trusted {
            builder = builder.trust(&other.url).unwrap();
        }
        let client = with_deadline(builder.discover(&peer.url)).await.unwrap();
        send_text(&client.with_header("X-Api-Key", "swordfish").unwrap())
            .await
            .unwrap();
        assert!(peer.requests().await[0].head.contains("hunter2"));
        let head = &other.requests().await[0].head;
        assert_eq!(
            (head.contains("hunter2"), head.contains("swordfish")),
            (is_trusted, is_trusted)
        );
    }
}

#[tokio::test]
async fn s31_redirects_are_followed_within_the_origin_only() {
    let elsewhere = Peer::with_responses(vec![]).await;
    let away = format!("Location: {}/card\r\n", elsewhere.url);
    let peer = Peer::with_responses(vec![
        http_response(302, &away, ""),
        http_response(301, "Location: /here.json\r\n", ""),
        json_response(200, &card(&both(), false)),
    ])
    .await;
    let builder = Client::builder().bearer(&Secret::from("hunter2")).unwrap();
    let client = with_deadline(builder.discover(&peer.url)).await.unwrap();
    assert_eq!(client.card().unwrap().name, "Tides");
    let targets: Vec<_> = peer
        .requests()
        .await
        .into_iter()
        .map(|request| request.target)
        .collect();
    assert_eq!(
        targets[1..],
        ["GET /.well-known/agent.json", "GET /here.json"]
    );
    assert!(elsewhere.requests().await.is_empty());
}

#[tokio::test]
async fn discovery_error_lists_every_url() {
    let missing = || http_response(404, "", "");
    let page = http_response(200, "Content-Type: text/html\r\n", "<html>");
    let peer = Peer::with_responses(vec![
        missing(),
        missing(),
        missing(),
        missing(),
        missing(),
        page,
    ])
    .await;
    let url = peer.url.clone();
    let error = with_deadline(Client::discover(&format!("{url}/agents/tides")))
        .await
        .unwrap_err();
    for place in [
        "/agents/tides/.well-known/agent-card.json",
        "/agents/tides/.well-known/agent.json",
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/agents/tides/v1/card",
        "/agents/tides",
    ] {
        assert!(
            error.message().contains(&format!("{url}{place} (")),
            "{place}: {error}"
        );
    }
    peer.requests().await;
}

#[tokio::test]
async fn cached_card_is_revalidated_when_stale() {
    let body = card(&both(), false).to_string();
    let fresh = http_response(200, "Cache-Control: max-age=600\r\n", &body);
    let peer = Peer::with_responses(vec![fresh]).await;
    let builder = Client::builder().card_cache(Arc::new(MemoryCardCache::default()));
    for _ in 0..3 {
        with_deadline(builder.discover(&peer.url)).await.unwrap();
    }
    peer.requests().await;
    let known = http_response(200, "ETag: \"v1\"\r\nCache-Control: no-cache\r\n", &body);
    let same = http_response(304, "", "");
    let peer = Peer::with_responses(vec![known, same]).await;
    let builder = Client::builder();
    for _ in 0..2 {
        assert!(
            with_deadline(builder.clone().discover(&peer.url))
                .await
                .unwrap()
                .card()
                .is_some()
        );
    }
    assert!(
        peer.requests().await[1]
            .head
            .contains("if-none-match: \"v1\"")
    );
}

#[tokio::test]
async fn s49_wrong_streaming_capability_is_detected() {
    let peer = Peer::with_responses(vec![
        json_response(200, &card(&both(), false)),
        task_response("WORKING"),
        task_response("COMPLETED"),
    ])
    .await;
    let client = with_deadline(
        Client::builder()
            .settings(fast_settings())
            .discover(&peer.url),
    )
    .await
    .unwrap();
    with_deadline(client.send(Message::user("hi")))
        .await
        .unwrap();
    let requests = peer.requests().await;
    assert!(
        String::from_utf8_lossy(&requests[2].body).contains("GetTask"),
        "no stream was tried"
    );
    let peer = Peer::with_responses(vec![
        json_response(200, &card(&both(), true)),
        rpc_error(-32004),
        task_response("COMPLETED"),
    ])
    .await;
    let client = with_deadline(
        Client::builder()
            .settings(fast_settings())
            .discover(&peer.url),
    )
    .await
    .unwrap();
    with_deadline(client.send(Message::user("hi")))
        .await
        .unwrap();
    peer.requests().await;
}

#[tokio::test]
async fn s48_oversized_cards_are_refused() {
    let skills: Vec<_> = (0..20_000).map(|n| json!({"id": n.to_string()})).collect();
    let many = json!({"name": "Many", "skills": skills}).to_string();
    let deep = format!(
        "{{\"name\":\"Deep\",\"x\":{}1{}}}",
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let twice = r#"{"name":"A","name":"B","url":"/","protocolVersion":"0.3.0"}"#.to_owned();
    let large = " ".repeat(50 << 20);
    for (body, why) in [
        (many, "more than 10000 skills"),
        (large, "larger than"),
        (deep, "nest"),
        (twice, "only once"),
    ] {
        let peer = Peer::with_responses(vec![http_response(200, "", &body)]).await;
        let error = with_deadline(Client::discover(&peer.url))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "{error}");
        assert!(error.message().contains(why), "{error}");
    }
}

#[tokio::test]
async fn s25_endless_card_times_out() {
    let peer = Peer::with_open_stream(vec![
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec(),
    ])
    .await;
    let mut settings = fast_settings();
    settings.timeouts.total = Duration::from_millis(100);
    let error = with_deadline(Client::builder().settings(settings).discover(&peer.url))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
}

#[tokio::test]
async fn s28_card_cannot_lead_to_other_services() {
    for url in [
        "file:///etc/passwd",
        "gopher://x/",
        "http://me:secret@x/",
        "ftp://x",
    ] {
        let interfaces =
            json!([{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]);
        let peer = Peer::with_responses(vec![json_response(200, &card(&interfaces, false))]).await;
        let error = with_deadline(Client::discover(&peer.url))
            .await
            .unwrap_err();
        assert!(!error.message().contains("secret"), "{error}");
        assert_eq!(error.violations()[0].field(), "url", "{url}");
    }
}

/// Even a card of this machine leads to no special-purpose address. Its own origin stays reachable.
#[tokio::test]
async fn s28_card_cannot_lead_to_private_addresses() {
    for url in [
        "http://169.254.169.254/",
        "http://0.0.0.0:1/",
        "http://[fe80::1]/",
        "http://0x7f.1/",
    ] {
        let inside = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        let peer =
            Peer::with_responses(vec![json_response(200, &card(&json!([inside]), false))]).await;
        let client = with_deadline(
            Client::builder()
                .settings(fast_settings())
                .discover(&peer.url),
        )
        .await
        .unwrap();
        let error = with_deadline(client.send(Message::user("hi")))
            .await
            .unwrap_err();
        assert!(error.message().contains("are blocked"), "{url}: {error}");
        let home = json!({"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        let both = json!([inside, home]);
        let peer = Peer::with_responses(vec![
            json_response(200, &card(&both, false)),
            task_response("COMPLETED"),
        ])
        .await;
        let client = with_deadline(Client::discover(&peer.url)).await.unwrap();
        send_text(&client).await.unwrap();
        peer.requests().await;
    }
}

#[tokio::test]
async fn preferred_binding_is_selected() {
    let interfaces = json!([
        {"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ]);
    for (preferred, binding) in [
        (vec![Binding::HttpJson], Binding::HttpJson),
        (vec![Binding::Grpc], Binding::JsonRpc),
        (vec![], Binding::JsonRpc),
    ] {
        let peer = Peer::with_responses(vec![json_response(200, &card(&interfaces, false))]).await;
        let client = with_deadline(Client::builder().bindings(preferred).discover(&peer.url))
            .await
            .unwrap();
        assert_eq!(client.interface().binding(), Some(binding));
    }
}

#[tokio::test]
async fn chat_completions_fallback_is_opt_in() {
    let missing = || http_response(404, "", "");
    let nothing = || vec![missing(), missing(), missing(), missing()];
    let peer = Peer::with_responses(nothing()).await;
    assert!(with_deadline(Client::discover(&peer.url)).await.is_err());
    let completed = json!({"choices": [{"message": {"role": "assistant", "content": "ebb"}}]});
    let mut answers = nothing();
    answers.push(json_response(200, &completed));
    let peer = Peer::with_responses(answers).await;
    let settings = ClientSettings {
        chat_completions: Some("tides".to_owned()),
        ..fast_settings()
    };
    let client = with_deadline(Client::builder().settings(settings).discover(&peer.url))
        .await
        .unwrap();
    assert_eq!(client.interface().protocol_binding, "chat/completions");
    assert_eq!(
        send_text(&client).await.unwrap_err().kind(),
        ErrorKind::UnsupportedOperation
    );
    assert_eq!(
        with_deadline(client.send(Message::user("ebb or flow?")))
            .await
            .unwrap()
            .text(),
        "ebb"
    );
    let request = peer.requests().await.pop().unwrap();
    assert_eq!(request.target, "POST /v1/chat/completions");
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(
        body,
        json!({"model": "tides", "messages": [{"role": "user", "content": "ebb or flow?"}]})
    );
}
