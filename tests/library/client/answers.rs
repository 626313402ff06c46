//! Golden exchanges of both JSON bindings, sent by the client.

use attache::Client;
use attache::model::{Binding, Error, ErrorKind, Operation, Request, Secret, Version};
use attache::wire::errors::{read_jsonrpc_error, read_rest_error};
use attache::wire::method::find_method;
use attache::wire::negotiation::RouteVersion;
use attache::wire::path::route;
use attache::wire::{self, Dialect, jsonrpc, sse};
use serde_json::{Value, json};

use super::peer::{Peer, ReceivedRequest, http_response, json_response, sse_response};
use super::{CallResult, call};
use crate::harness::with_deadline;

/// Exchange of the golden files whose request a client can send.
struct Exchange {
    file: String,
    binding: Binding,
    version: Version,
    operation: Operation,
    request: Request,
    response: Value,
}

fn exchanges() -> Vec<Exchange> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    paths.sort();
    paths
        .iter()
        .filter_map(|path| {
            exchange(&serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
        })
        .collect()
}

fn exchange(golden: &Value) -> Option<Exchange> {
    let binding = Binding::from_name(golden["binding"].as_str()?)?;
    let version = Version::ALL
        .into_iter()
        .find(|version| version.as_str() == golden["version"])?;
    let (operation, request) = match binding {
        Binding::JsonRpc => read_call(&golden["request"]["body"])?,
        Binding::HttpJson => {
            let body = golden["request"]
                .get("body")
                .map(Value::to_string)
                .unwrap_or_default();
            let target = golden["request"]["path"].as_str()?;
            read_http(
                golden["request"]["httpMethod"].as_str()?,
                target,
                body.as_bytes(),
            )?
        }
        Binding::Grpc => return None,
    };
    let file = golden["id"].as_str()?.to_owned();
    Some(Exchange {
        file,
        binding,
        version,
        operation,
        request,
        response: golden["response"].clone(),
    })
}

fn read_call(body: &Value) -> Option<(Operation, Request)> {
    let body = body.to_string();
    let call = jsonrpc::read_request(body.as_bytes()).ok()?;
    let method = find_method(&call.method)
        .ok()
        .filter(|method| method.route_version != RouteVersion::MethodV01)?;
    Some((
        method.operation,
        wire::read_params(method, call.params).ok()?.0,
    ))
}

fn read_http(http_method: &str, target: &str, body: &[u8]) -> Option<(Operation, Request)> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let route = route(http_method, path).ok()?;
    Some((
        route.operation,
        wire::read_rest(&route, query, body).ok()?.0,
    ))
}

/// Decodes a request that the client sent.
fn decode_request(received: &ReceivedRequest, binding: Binding) -> Request {
    let decoded = match binding {
        Binding::HttpJson => {
            let (http_method, target) = received.target.split_once(' ').unwrap();
            read_http(http_method, target, &received.body)
        }
        _ => read_call(&serde_json::from_slice(&received.body).unwrap()),
    };
    decoded.unwrap().1
}

/// Encodes a golden response.
fn encode_response(response: &Value) -> Vec<u8> {
    let status = u16::try_from(response["status"].as_u64().unwrap()).unwrap();
    let Some(list) = response["sse"].as_array() else {
        return json_response(status, &response["body"]);
    };
    let mut body = sse::KEEP_ALIVE.to_vec();
    for event in list {
        match event["event"].as_str() {
            Some(_) => sse::write_error(&mut body, event["data"].to_string().as_bytes()),
            None => sse::write_event(&mut body, None, event["data"].to_string().as_bytes()),
        }
    }
    sse_response(&body)
}

/// Decodes a golden response with the codecs, which have tests of their own.
fn expected(exchange: &Exchange) -> Result<CallResult, Error> {
    let Exchange {
        binding,
        version,
        operation,
        response,
        ..
    } = exchange;
    let rest = *binding == Binding::HttpJson;
    let dialect = if rest {
        Dialect::for_rest(*version)
    } else {
        Dialect::from(*version)
    };
    let error = |status: u16, body: &Value| match body.get("error") {
        Some(_) if rest => Some(read_rest_error(status, &body.to_string())),
        Some(error) => Some(read_jsonrpc_error(&error.to_string())),
        None => None,
    };
    let result = |body: &Value| {
        if rest {
            body.to_string()
        } else {
            body["result"].to_string()
        }
    };
    let Some(list) = response["sse"].as_array() else {
        let status = u16::try_from(response["status"].as_u64().unwrap()).unwrap();
        let body = &response["body"];
        return match error(status, body) {
            Some(error) => Err(error),
            None => {
                wire::read_response(*operation, &result(body), &dialect).map(CallResult::Response)
            }
        };
    };
    let last = list.last().and_then(|event| error(500, &event["data"]));
    let events = list.iter().take(list.len() - usize::from(last.is_some()));
    let events = events.map(|event| wire::read_event(&result(&event["data"]), &dialect).unwrap());
    Ok(CallResult::Events(events.collect(), last))
}

#[tokio::test]
async fn client_passes_every_golden_exchange() {
    let mut operations = Vec::new();
    for exchange in exchanges() {
        let peer = Peer::with_responses(vec![encode_response(&exchange.response)]).await;
        let client = Client::new(&peer.url, exchange.binding, exchange.version).unwrap();
        let got = call(&client, exchange.request.clone()).await;
        assert_eq!(got, expected(&exchange), "{}", exchange.file);
        let received = &peer.requests().await[0];
        let decoded = decode_request(received, exchange.binding);
        assert_eq!(decoded, exchange.request, "{}", exchange.file);
        let version = format!("\r\na2a-version: {}\r\n", exchange.version);
        assert!(
            received.head.contains(&version),
            "{}: {received:?}",
            exchange.file
        );
        operations.push((exchange.binding, exchange.version, exchange.operation));
    }
    let missing: Vec<_> = Operation::ALL
        .into_iter()
        .flat_map(|one| Version::ALL.map(|version| (Binding::JsonRpc, version, one)))
        .filter(|one| !operations.contains(one))
        .collect();
    assert_eq!(
        missing,
        [(Binding::JsonRpc, Version::V03, Operation::ListTasks)]
    );
    assert!(
        operations
            .iter()
            .filter(|(binding, ..)| *binding == Binding::HttpJson)
            .count()
            >= 10
    );
}

fn get_task() -> Request {
    Request::GetTask(attache::model::GetTaskRequest {
        id: "t".into(),
        ..Default::default()
    })
}

async fn error(binding: Binding, answer: Vec<u8>) -> Error {
    let peer = Peer::with_responses(vec![answer]).await;
    let client = Client::new(&peer.url, binding, Version::V1)
        .unwrap()
        .with_max_bytes(1000);
    call(&client, get_task()).await.unwrap_err()
}

#[tokio::test]
async fn non_a2a_responses_are_classified_by_status() {
    let plain = |status: u16, head: &str| {
        http_response(
            status,
            &format!("{head}Content-Type: text/html\r\n"),
            "<html>",
        )
    };
    for (status, jsonrpc, rest) in [
        (
            200,
            ErrorKind::InvalidAgentResponse,
            ErrorKind::InvalidAgentResponse,
        ),
        (
            307,
            ErrorKind::InvalidAgentResponse,
            ErrorKind::InvalidAgentResponse,
        ),
        (401, ErrorKind::Unauthenticated, ErrorKind::Unauthenticated),
        (404, ErrorKind::MethodNotFound, ErrorKind::TaskNotFound),
        (500, ErrorKind::Internal, ErrorKind::Internal),
    ] {
        let response = || plain(status, "Location: http://127.0.0.1:1/\r\n");
        assert_eq!(
            error(Binding::JsonRpc, response()).await.kind(),
            jsonrpc,
            "{status}"
        );
        assert_eq!(
            error(Binding::HttpJson, response()).await.kind(),
            rest,
            "{status}"
        );
    }
    for binding in [Binding::JsonRpc, Binding::HttpJson] {
        let error = error(binding, plain(503, "Retry-After: 7\r\n")).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(7)));
        assert!(
            std::error::Error::source(&error).is_none(),
            "the peer said so"
        );
    }
}

#[tokio::test]
async fn s25_response_size_is_limited() {
    for binding in [Binding::JsonRpc, Binding::HttpJson] {
        let error = error(binding, http_response(200, "", &" ".repeat(2000))).await;
        assert_eq!(
            error.message(),
            "Invalid agent response: larger than 1000 bytes"
        );
    }
}

#[tokio::test]
async fn unreachable_or_closing_peer_is_unavailable() {
    for binding in [Binding::JsonRpc, Binding::HttpJson] {
        let closed = Peer::with_responses(vec![]).await;
        let client = Client::new(&closed.url, binding, Version::V1).unwrap();
        closed.requests().await;
        let gone = call(&client, get_task()).await.unwrap_err();
        let short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_vec();
        let silent = error(binding, Vec::new()).await;
        let cut = error(binding, short).await;
        for (error, message) in [
            (gone, "cannot connect to the agent"),
            (silent, "the connection to the agent was lost"),
            (cut, "the connection to the agent was lost"),
        ] {
            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Unavailable, message)
            );
            assert!(
                std::error::Error::source(&error).is_some(),
                "the cause is kept"
            );
        }
    }
}

#[tokio::test]
async fn headers_are_sent_with_every_request() {
    let task = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}});
    let task = json_response(200, &task);
    let peer = Peer::with_responses(vec![task.clone(), task]).await;
    let client = Client::new(&peer.url, Binding::HttpJson, Version::V1)
        .and_then(|client| client.with_bearer(&Secret::from("hunter2")))
        .and_then(|client| {
            client.with_extensions(["https://example.com/a", "https://example.com/b"])
        })
        .unwrap()
        .with_tenant("brest");
    assert!(!format!("{client:?}").contains("hunter2"));
    let once = client
        .clone()
        .with_header("Idempotency-Key", "k-1")
        .unwrap();
    call(&once, get_task()).await.unwrap();
    call(&client, get_task()).await.unwrap();
    let received = peer.requests().await;
    for one in &received {
        assert_eq!(one.target, "GET /brest/tasks/t");
        for line in [
            "authorization: bearer hunter2\r\n",
            "a2a-extensions: https://example.com/a, https://example.com/b\r\n",
            "accept: application/a2a+json, application/json\r\n",
        ] {
            assert!(one.head.contains(line), "{line} {one:?}");
        }
        assert!(!one.head.contains("x-a2a-extensions"));
    }
    let keys = received
        .iter()
        .map(|one| one.head.contains("idempotency-key: k-1\r\n"));
    assert_eq!(keys.collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn old_extension_header_is_sent_to_old_peers() {
    let peer = Peer::with_responses(vec![http_response(200, "", "{}")]).await;
    let client = Client::new(&peer.url, Binding::JsonRpc, Version::V03).unwrap();
    let client = client.with_extensions(["urn:a"]).unwrap();
    let _ = with_deadline(client.get_extended_agent_card()).await;
    let head = &peer.requests().await[0].head;
    assert!(
        head.contains("\r\na2a-extensions: urn:a\r\n")
            && head.contains("\r\nx-a2a-extensions: urn:a\r\n")
    );
}

#[test]
fn s32_line_breaks_in_headers_are_refused() {
    let client = || Client::new("http://127.0.0.1:1", Binding::JsonRpc, Version::V1).unwrap();
    assert!(client().with_header("X-Note", "a\r\nHost: evil").is_err());
    assert!(client().with_header("X\r\n", "a").is_err());
    let error = client()
        .with_bearer(&Secret::from("hunter2\n"))
        .unwrap_err();
    assert_eq!(error.violations()[0].field(), "authorization");
    assert!(!format!("{error:?}").contains("hunter2"));
}
