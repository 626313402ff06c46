//! Discovery of a card and selection of an interface.

use attache::model::{AgentInterface, Binding, ErrorKind, Version};
use attache::{AgentCard, Client};
use serde_json::{Value, json};

use super::peer::{Peer, http_response, json_response};
use crate::harness::with_deadline;

async fn discover(interfaces: Value) -> (attache::Result<Client>, String) {
    let card = json!({"name": "Tides", "supportedInterfaces": interfaces});
    let peer =
        Peer::with_responses(vec![http_response(404, "", ""), json_response(200, &card)]).await;
    let url = peer.url.clone();
    let client = with_deadline(Client::discover(&format!("{url}/agents/tides/"))).await;
    let targets: Vec<_> = peer
        .requests()
        .await
        .into_iter()
        .map(|request| request.target)
        .collect();
    let base = "GET /agents/tides/.well-known";
    assert_eq!(
        targets,
        [
            format!("{base}/agent-card.json"),
            format!("{base}/agent.json")
        ]
    );
    (client, url)
}

#[tokio::test]
async fn first_supported_interface_is_selected_with_its_tenant() {
    let (client, _) = discover(json!([
        {"url": "http://a/", "protocolBinding": "urn:telegraph", "protocolVersion": "1.0"},
        {"url": "http://b/", "protocolBinding": "JSONRPC", "protocolVersion": "9.9"},
        {"url": "http://c/x", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "brest"},
        {"url": "http://d/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
    ]))
    .await;
    let client = client.unwrap();
    let wanted = AgentInterface::new("http://c/x", Binding::HttpJson, Version::V1);
    assert_eq!(
        client.interface(),
        AgentInterface {
            tenant: Some("brest".to_owned()),
            ..wanted
        }
    );
    assert_eq!(client.card().map(|card| &*card.name), Some("Tides"));
}

#[tokio::test]
async fn relative_interface_url_is_resolved_against_the_card() {
    for (url, path) in [("", "/agents/tides/"), ("/rpc", "/rpc")] {
        let interface =
            json!([{"url": url, "protocolBinding": "jsonrpc", "protocolVersion": "0.3.0"}]);
        let (client, host) = discover(interface).await;
        let wanted = AgentInterface::new(format!("{host}{path}"), Binding::JsonRpc, Version::V03);
        assert_eq!(client.unwrap().interface(), wanted);
    }
}

#[tokio::test]
async fn s21_unsupported_interfaces_are_listed() {
    let (none, _) = discover(json!([])).await;
    assert_eq!(none.unwrap_err().kind(), ErrorKind::InvalidAgentResponse);
    let secure = Client::new("https://a/", Binding::JsonRpc, Version::V1);
    let refused = secure.err().map(|error| error.to_string());
    let expected = "Invalid parameters: url must begin with http://: https needs the feature `tls`";
    assert_eq!(
        refused.as_deref(),
        (!cfg!(feature = "tls")).then_some(expected)
    );
    for url in ["", "127.0.0.1:1", "file:///etc/passwd", "/a2a"] {
        let error = Client::new(url, Binding::JsonRpc, Version::V1).unwrap_err();
        assert_eq!(error.violations()[0].field(), "url", "{url}");
    }
}

#[tokio::test]
async fn s48_invalid_cards_are_refused() {
    for (status, body, kind) in [
        (200, " ".repeat(11 << 20), ErrorKind::InvalidAgentResponse),
        (200, "[".repeat(1000), ErrorKind::InvalidAgentResponse),
        (200, "<html>".to_owned(), ErrorKind::InvalidAgentResponse),
        (302, String::new(), ErrorKind::InvalidAgentResponse),
        (401, String::new(), ErrorKind::Unauthenticated),
    ] {
        let peer = Peer::with_responses(vec![http_response(
            status,
            "Location: http://127.0.0.1:1/\r\n",
            &body,
        )])
        .await;
        let error = with_deadline(Client::discover(&peer.url))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{status}");
    }
    let peer =
        Peer::with_responses(vec![http_response(404, "", ""), http_response(404, "", "")]).await;
    let error = with_deadline(Client::discover(&peer.url))
        .await
        .unwrap_err();
    assert!(
        error.message().contains("/.well-known/agent.json"),
        "{error}"
    );
}

#[tokio::test]
async fn discovery_finds_a_server_of_this_crate() {
    let server = crate::harness::start(crate::harness::Echo).await;
    let client = with_deadline(Client::discover(&format!("http://{}", server.address)))
        .await
        .unwrap();
    assert_eq!(client.interface().binding(), Some(Binding::JsonRpc));
    assert_eq!(
        client.card().map(|card: &AgentCard| &*card.name),
        Some("Echo")
    );
}
