//! Which way is taken, what is fallen back on, and where credentials go.

use std::sync::Arc;
use std::time::Duration;

use attache::model::{Binding, ErrorKind, GetTaskRequest, Message, Secret, Version};
use attache::{Client, ClientSettings, InterfacePreference, MemoryCardCache, Result};
use serde_json::{Value, json};

use super::following::{got, quick, refusal};
use super::peer::{Peer, json as answer, reply};
use crate::harness::with_deadline;

fn card(interfaces: &Value, streaming: bool) -> Value {
    json!({"name": "Tides", "description": "", "supportedInterfaces": interfaces,
        "capabilities": {"streaming": streaming}})
}

fn both() -> Value {
    let one = |version: &str| json!({"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": version});
    json!([one("1.0"), one("0.3")])
}

async fn ask(client: &Client) -> Result<String> {
    let request = GetTaskRequest {
        id: "t".into(),
        ..Default::default()
    };
    with_deadline(client.get_task(request))
        .await
        .map(|task| task.id.as_str().to_owned())
}

#[tokio::test]
async fn a_version_that_is_not_known_there_is_left_once_for_the_other() {
    for code in [-32601, -32009] {
        let peer = Peer::with(vec![
            answer(200, &card(&both(), false)),
            refusal(code),
            got("COMPLETED"),
            got("COMPLETED"),
        ])
        .await;
        let client = with_deadline(Client::discover(&peer.url)).await.unwrap();
        assert_eq!(client.interface().protocol_version, "1.0");
        ask(&client).await.unwrap();
        ask(&client.clone()).await.unwrap();
        assert_eq!(client.interface().protocol_version, "0.3");
        let versions: Vec<_> = peer
            .asked()
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
async fn a_pinned_version_is_never_left() {
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
        let peer = Peer::with(vec![answer(200, &card(&both(), false)), refusal(-32009)]).await;
        let client = with_deadline(builder.discover(&peer.url)).await.unwrap();
        assert_eq!(
            ask(&client).await.unwrap_err().kind(),
            ErrorKind::VersionNotSupported
        );
        assert_eq!(peer.asked().await.len(), 2);
    }
    let old = json!([{"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}]);
    let peer = Peer::with(vec![answer(200, &card(&old, false))]).await;
    let error = with_deadline(Client::builder().version(Version::V1).discover(&peer.url))
        .await
        .unwrap_err();
    assert!(error.message().contains("JSONRPC 0.3"), "{error}");
}

#[tokio::test]
async fn an_interface_where_nobody_is_is_left_for_another() {
    let gone = Peer::with(vec![]).await;
    let url = gone.url.clone();
    gone.asked().await;
    let peer = Peer::with(vec![]).await;
    drop(peer);
    let interfaces = json!([
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    ]);
    let peer = Peer::with(vec![
        answer(200, &card(&interfaces, false)),
        got("COMPLETED"),
    ])
    .await;
    let client = with_deadline(Client::discover(&peer.url)).await.unwrap();
    ask(&client).await.unwrap();
    peer.asked().await;
}

#[tokio::test]
async fn s30_s42_headers_stay_where_the_card_came_from() {
    for is_trusted in [false, true] {
        let other = Peer::with(vec![got("COMPLETED")]).await;
        let there =
            json!([{"url": other.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]);
        let peer = Peer::with(vec![answer(200, &card(&there, false))]).await;
        let mut builder = Client::builder().bearer(&Secret::from("hunter2")).unwrap();
        if is_trusted {
            builder = builder.trust(&other.url).unwrap();
        }
        let client = with_deadline(builder.discover(&peer.url)).await.unwrap();
        ask(&client.with_header("X-Api-Key", "swordfish").unwrap())
            .await
            .unwrap();
        assert!(peer.asked().await[0].head.contains("hunter2"));
        let head = &other.asked().await[0].head;
        assert_eq!(
            (head.contains("hunter2"), head.contains("swordfish")),
            (is_trusted, is_trusted)
        );
    }
}

#[tokio::test]
async fn s31_a_redirect_is_followed_on_the_same_server_only() {
    let elsewhere = Peer::with(vec![]).await;
    let away = format!("Location: {}/card\r\n", elsewhere.url);
    let peer = Peer::with(vec![
        reply(302, &away, ""),
        reply(301, "Location: /here.json\r\n", ""),
        answer(200, &card(&both(), false)),
    ])
    .await;
    let builder = Client::builder().bearer(&Secret::from("hunter2")).unwrap();
    let client = with_deadline(builder.discover(&peer.url)).await.unwrap();
    assert_eq!(client.card().unwrap().name, "Tides");
    let targets: Vec<_> = peer
        .asked()
        .await
        .into_iter()
        .map(|asked| asked.target)
        .collect();
    assert_eq!(
        targets[1..],
        ["GET /.well-known/agent.json", "GET /here.json"]
    );
    assert!(elsewhere.asked().await.is_empty());
}

#[tokio::test]
async fn everything_that_was_tried_is_said() {
    let missing = || reply(404, "", "");
    let page = reply(200, "Content-Type: text/html\r\n", "<html>");
    let peer = Peer::with(vec![
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
    peer.asked().await;
}

#[tokio::test]
async fn a_card_is_asked_for_again_only_when_it_may_have_changed() {
    let body = card(&both(), false).to_string();
    let fresh = reply(200, "Cache-Control: max-age=600\r\n", &body);
    let peer = Peer::with(vec![fresh]).await;
    let builder = Client::builder().card_cache(Arc::new(MemoryCardCache::default()));
    for _ in 0..3 {
        with_deadline(builder.discover(&peer.url)).await.unwrap();
    }
    peer.asked().await;
    let known = reply(200, "ETag: \"v1\"\r\nCache-Control: no-cache\r\n", &body);
    let same = reply(304, "", "");
    let peer = Peer::with(vec![known, same]).await;
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
    assert!(peer.asked().await[1].head.contains("if-none-match: \"v1\""));
}

#[tokio::test]
async fn s49_what_a_card_says_of_streams_is_believed_until_it_is_seen_to_be_wrong() {
    let peer = Peer::with(vec![
        answer(200, &card(&both(), false)),
        got("WORKING"),
        got("COMPLETED"),
    ])
    .await;
    let client = with_deadline(Client::builder().settings(quick()).discover(&peer.url))
        .await
        .unwrap();
    with_deadline(client.send(Message::user("hi")))
        .await
        .unwrap();
    let asked = peer.asked().await;
    assert!(
        String::from_utf8_lossy(&asked[2].body).contains("GetTask"),
        "no stream was tried"
    );
    let peer = Peer::with(vec![
        answer(200, &card(&both(), true)),
        refusal(-32004),
        got("COMPLETED"),
    ])
    .await;
    let client = with_deadline(Client::builder().settings(quick()).discover(&peer.url))
        .await
        .unwrap();
    with_deadline(client.send(Message::user("hi")))
        .await
        .unwrap();
    peer.asked().await;
}

#[tokio::test]
async fn s48_cards_that_are_bombs_are_refused() {
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
        let peer = Peer::with(vec![reply(200, "", &body)]).await;
        let error = with_deadline(Client::discover(&peer.url))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse, "{error}");
        assert!(error.message().contains(why), "{error}");
    }
}

#[tokio::test]
async fn s25_a_card_without_end_is_given_up() {
    let peer = Peer::holding(vec![
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec(),
    ])
    .await;
    let mut settings = quick();
    settings.timeouts.total = Duration::from_millis(100);
    let error = with_deadline(Client::builder().settings(settings).discover(&peer.url))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
}

#[tokio::test]
async fn s28_a_card_does_not_lead_to_what_is_no_agent() {
    for url in [
        "file:///etc/passwd",
        "gopher://x/",
        "http://me:secret@x/",
        "ftp://x",
    ] {
        let interfaces =
            json!([{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]);
        let peer = Peer::with(vec![answer(200, &card(&interfaces, false))]).await;
        let error = with_deadline(Client::discover(&peer.url))
            .await
            .unwrap_err();
        assert!(!error.message().contains("secret"), "{error}");
        assert_eq!(error.violations()[0].field(), "url", "{url}");
    }
}

/// Not even a card of this machine leads to what is nobody's; and it leads back to where it came from all the same.
#[tokio::test]
async fn s28_a_card_does_not_lead_inside() {
    for url in [
        "http://169.254.169.254/",
        "http://0.0.0.0:1/",
        "http://[fe80::1]/",
        "http://0x7f.1/",
    ] {
        let inside = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        let peer = Peer::with(vec![answer(200, &card(&json!([inside]), false))]).await;
        let client = with_deadline(Client::builder().settings(quick()).discover(&peer.url))
            .await
            .unwrap();
        let error = with_deadline(client.send(Message::user("hi")))
            .await
            .unwrap_err();
        assert!(error.message().contains("are blocked"), "{url}: {error}");
        let home = json!({"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        let both = json!([inside, home]);
        let peer = Peer::with(vec![answer(200, &card(&both, false)), got("COMPLETED")]).await;
        let client = with_deadline(Client::discover(&peer.url)).await.unwrap();
        ask(&client).await.unwrap();
        peer.asked().await;
    }
}

#[tokio::test]
async fn a_preferred_binding_is_taken_where_the_card_has_it() {
    let interfaces = json!([
        {"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
    ]);
    for (preferred, binding) in [
        (vec![Binding::HttpJson], Binding::HttpJson),
        (vec![Binding::Grpc], Binding::JsonRpc),
        (vec![], Binding::JsonRpc),
    ] {
        let peer = Peer::with(vec![answer(200, &card(&interfaces, false))]).await;
        let client = with_deadline(Client::builder().bindings(preferred).discover(&peer.url))
            .await
            .unwrap();
        assert_eq!(client.interface().binding(), Some(binding));
    }
}

#[tokio::test]
async fn a_peer_that_only_completes_chats_is_talked_to_if_the_caller_says_so() {
    let missing = || reply(404, "", "");
    let nothing = || vec![missing(), missing(), missing(), missing()];
    let peer = Peer::with(nothing()).await;
    assert!(with_deadline(Client::discover(&peer.url)).await.is_err());
    let completed = json!({"choices": [{"message": {"role": "assistant", "content": "ebb"}}]});
    let mut answers = nothing();
    answers.push(answer(200, &completed));
    let peer = Peer::with(answers).await;
    let settings = ClientSettings {
        chat_completions: Some("tides".to_owned()),
        ..quick()
    };
    let client = with_deadline(Client::builder().settings(settings).discover(&peer.url))
        .await
        .unwrap();
    assert_eq!(client.interface().protocol_binding, "chat/completions");
    assert_eq!(
        ask(&client).await.unwrap_err().kind(),
        ErrorKind::UnsupportedOperation
    );
    assert_eq!(
        with_deadline(client.send(Message::user("ebb or flow?")))
            .await
            .unwrap()
            .text(),
        "ebb"
    );
    let asked = peer.asked().await.pop().unwrap();
    assert_eq!(asked.target, "POST /v1/chat/completions");
    let said: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(
        said,
        json!({"model": "tides", "messages": [{"role": "user", "content": "ebb or flow?"}]})
    );
}
