//! Propagation of the trace context to commands, backends, models, tools and other agents.

use attache::Client;
use attache::model::{Message, TraceContext};
use attache_agents::{
    CommandAgent, HttpAgent, HttpSettings, LlmAgent, RemoteAgent, RemoteSettings, ToolSettings,
};
use serde_json::json;

use crate::harness::{TestServer, start, with_deadline};
use crate::http::{Backend, backend};
use crate::llm;
use crate::mcp::{Over, log, server_over, with};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const STATE: &str = "vendor=value";

/// Sends a message with a trace context, and returns the answer.
async fn ask_traced(agent: &TestServer) -> String {
    let client = with_deadline(Client::discover(&agent.url())).await.unwrap();
    let client = client.with_trace(TraceContext::parse(PARENT, Some(STATE)).unwrap());
    with_deadline(client.send(Message::user("where?")))
        .await
        .unwrap()
        .text()
}

/// Asserts that every request to a backend has the trace context.
fn assert_traced(backend: &Backend) {
    let requests = backend.requests.lock().unwrap();
    assert!(!requests.is_empty());
    for request in &*requests {
        for header in [
            format!("traceparent: {PARENT}\r\n"),
            format!("tracestate: {STATE}\r\n"),
        ] {
            assert!(request.contains(&header), "{request}");
        }
    }
}

#[tokio::test]
async fn commands_and_remote_agents_receive_the_trace() {
    let behind = start(CommandAgent::new("printenv", ["TRACEPARENT", "TRACESTATE"]).unwrap()).await;
    let expected = format!("{PARENT}\n{STATE}\n");
    assert_eq!(ask_traced(&behind).await, expected);
    let settings = RemoteSettings {
        url: behind.url(),
        ..RemoteSettings::default()
    };
    assert_eq!(
        ask_traced(&start(RemoteAgent::new(settings).unwrap()).await).await,
        expected
    );
}

#[tokio::test]
async fn backends_models_and_tools_receive_the_trace() {
    let text_backend = backend(&[
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine",
    ])
    .await;
    let settings = HttpSettings {
        url: text_backend.url.clone(),
        ..HttpSettings::default()
    };
    assert_eq!(
        ask_traced(&start(HttpAgent::new(settings).unwrap()).await).await,
        "fine"
    );
    assert_traced(&text_backend);

    let model = llm::model(&[llm::calls(&[("a", "look", json!({}))]), llm::says("done")]).await;
    let tool =
        backend(&["HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine"]).await;
    let mut settings = llm::settings(&model);
    let look = ToolSettings {
        description: "Looks".to_owned(),
        http: Some(tool.url.clone()),
        ..ToolSettings::default()
    };
    settings.tools.insert("look".to_owned(), look);
    assert_eq!(
        ask_traced(&start(LlmAgent::new(settings).unwrap()).await).await,
        "done"
    );
    assert_traced(&model);
    assert_traced(&tool);
}

#[tokio::test]
async fn mcp_servers_receive_the_trace() {
    for way in [Over::Pipes, Over::Http] {
        let (server, folder, _process) = server_over(way, false).await;
        let call = llm::calls(&[("a", "srv_echo", json!({"text": "hello"}))]);
        let model = llm::model(&[call, llm::says("done")]).await;
        assert_eq!(
            ask_traced(&start(LlmAgent::new(with(&model, server)).unwrap()).await).await,
            "done"
        );
        let log = log(&folder);
        assert!(
            log.contains(&format!("called echo {PARENT} {STATE}\n")),
            "{way:?}: {log}"
        );
        let in_head = log.contains(&format!("headers {PARENT} {STATE}\n"));
        assert_eq!(in_head, way == Over::Http, "{way:?}: {log}");
    }
}
