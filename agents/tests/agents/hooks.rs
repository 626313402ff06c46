//! Hooks outside of the server: every phase with every decision and failure, over HTTP and as a program.

mod documents;
#[cfg(unix)]
mod processes;

use std::time::Duration;

use attache::{FailurePolicy, Hook, HookPhase};
use attache_agents::{Echo, ExternalHook, HttpHookSettings};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{TestServer, artifact, start_with, state, status_text};
use crate::http::request;

/// Behaviour of a hook outside of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    Allow,
    /// Replaces `secret` by `***`.
    Change,
    Deny,
    /// Never replies.
    Hang,
    /// Ends without a reply.
    Crash,
    /// Replies with something else.
    Confused,
    /// Replies with more than `max_reply`.
    Flood,
}

use Behaviour::{Allow, Change, Confused, Crash, Deny, Flood, Hang};

/// Result that a caller sees.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    Text(&'static str),
    Denied,
    Failed,
}

const TABLE: [(Behaviour, FailurePolicy, Expected); 11] = [
    (Allow, FailurePolicy::Deny, Expected::Text("my secret")),
    (Change, FailurePolicy::Deny, Expected::Text("my ***")),
    (Change, FailurePolicy::Allow, Expected::Text("my ***")),
    (Deny, FailurePolicy::Deny, Expected::Denied),
    (Deny, FailurePolicy::Allow, Expected::Denied),
    (Hang, FailurePolicy::Deny, Expected::Failed),
    (Hang, FailurePolicy::Allow, Expected::Text("my secret")),
    (Crash, FailurePolicy::Deny, Expected::Failed),
    (Crash, FailurePolicy::Allow, Expected::Text("my secret")),
    (Confused, FailurePolicy::Deny, Expected::Failed),
    (Flood, FailurePolicy::Deny, Expected::Failed),
];

const DENIED: &str = "the policy forbids it";
const FAILED: &str = "a hook of this server failed";

/// Maximum size of a reply in these tests.
const MAX_REPLY: usize = 64 * 1024;

/// Service with a behaviour. Dropping it stops the service.
struct HookService {
    url: String,
    _server: JoinSet<()>,
}

async fn service(behaviour: Behaviour) -> HookService {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(reply(stream, behaviour));
        }
    });
    HookService {
        url,
        _server: server,
    }
}

/// Replies to one document, and closes the connection.
async fn reply(mut stream: TcpStream, behaviour: Behaviour) {
    let received = request(&mut stream).await;
    let document = received.split_once("\r\n\r\n").unwrap().1;
    let body = match behaviour {
        Allow => json!({"decision": "allow"}).to_string(),
        Change => {
            let mut document: Value =
                serde_json::from_str(&document.replace("secret", "***")).unwrap();
            document["decision"] = "change".into();
            document.to_string()
        }
        Deny => json!({"decision": "deny", "message": DENIED}).to_string(),
        Hang => return std::future::pending().await,
        Crash => return,
        Confused => "hunter2".to_owned(),
        Flood => " ".repeat(MAX_REPLY + 1),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // The server may close the connection before it has read a reply that is too large.
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

fn configured(hook: Hook, behaviour: Behaviour, policy: FailurePolicy, phase: HookPhase) -> Hook {
    let hook = hook.phases([phase]).on_failure(policy).traced();
    hook.timeout(match behaviour {
        Hang => Duration::from_millis(200),
        _ => Duration::from_secs(30),
    })
}

fn http_hook(url: &str) -> Hook {
    let settings = HttpHookSettings {
        url: url.to_owned(),
        max_reply: MAX_REPLY,
        ..HttpHookSettings::default()
    };
    Hook::new("test", ExternalHook::http(settings).unwrap())
}

async fn echo_behind(hook: Hook) -> TestServer {
    start_with(Echo, |server| server.hook(hook)).await
}

async fn send(server: &TestServer) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "my secret"}]});
    let params = json!({"message": message});
    server.call_with_headers("", "SendMessage", params).await
}

/// Sends a text through a hook, and asserts the result.
async fn check(hook: Hook, phase: HookPhase, expected: Expected) {
    let server = echo_behind(hook).await;
    let answer = send(&server).await;
    let task = &answer["result"]["task"];
    let shown = format!("{phase:?} {expected:?}: {answer}");
    match (phase, expected) {
        (_, Expected::Text(text)) => {
            assert_eq!(artifact(task, "echo")[0]["text"], text, "{shown}");
        }
        (HookPhase::Event, Expected::Denied) => {
            assert_eq!(
                (state(task), status_text(task)),
                ("FAILED", DENIED),
                "{shown}"
            );
            assert_eq!(task["artifacts"], Value::Null, "{shown}");
        }
        (HookPhase::Event, Expected::Failed) => {
            assert_eq!(
                (state(task), status_text(task)),
                ("FAILED", FAILED),
                "{shown}"
            );
            assert_eq!(task["artifacts"], Value::Null, "{shown}");
        }
        (HookPhase::Call | HookPhase::Response, Expected::Denied) => {
            assert_eq!(answer["error"]["message"], DENIED, "{shown}");
        }
        (HookPhase::Call | HookPhase::Response, Expected::Failed) => {
            assert_eq!(answer["error"]["message"], FAILED, "{shown}");
        }
    }
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn an_http_hook_decides_in_every_phase() {
    for phase in HookPhase::ALL {
        for (behaviour, policy, expected) in TABLE {
            let service = service(behaviour).await;
            let hook = configured(http_hook(&service.url), behaviour, policy, phase);
            check(hook, phase, expected).await;
        }
    }
}

#[tokio::test]
async fn a_service_that_is_down_or_returns_an_error_is_a_failure() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    check(
        http_hook(&url).phases([HookPhase::Call]),
        HookPhase::Call,
        Expected::Failed,
    )
    .await;
    for answer in [
        "HTTP/1.1 500 Oops\r\nConnection: close\r\n\r\n{\"decision\": \"allow\"}",
        "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    ] {
        let answers: &'static [&'static str] = Box::leak(Box::new([answer]));
        let backend = crate::http::backend(answers).await;
        let hook = http_hook(&backend.url).phases([HookPhase::Call]);
        check(hook, HookPhase::Call, Expected::Failed).await;
    }
}
