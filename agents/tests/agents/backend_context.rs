//! Conversation ids that backends receive.

use attache::auth::{Access, ApiKeys};
use attache::model::Secret;
use attache::{Agent, Server};
#[cfg(unix)]
use attache_agents::{CommandAgent, CommandInput, CommandSettings, CommandSpec};
use attache_agents::{HttpAgent, HttpSettings};
use serde_json::{Value, json};

use crate::harness::{TestServer, artifact, start, start_with};
use crate::http::backend;

/// Context id that all callers choose.
const SHARED: &str = "shared-conversation";

/// Server with two callers, beside anonymous ones.
struct Callers {
    server: TestServer,
    keys: [Option<Secret>; 3],
}

impl Callers {
    async fn start(agent: impl Agent) -> Self {
        let keys = ApiKeys::new();
        let ann = keys.issue("ann", |identity| identity);
        let bob = keys.issue("bob", |identity| identity);
        let access = |server: Server| server.access(Access::new(keys).allow_anonymous());
        Self {
            server: start_with(agent, access).await,
            keys: [Some(ann), Some(bob), None],
        }
    }

    /// Sends a message of a caller in the shared context, and returns the task.
    async fn send(&self, caller: usize) -> Value {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], "contextId": SHARED});
        let key = self.keys[caller].as_ref();
        let header = key.map_or_else(String::new, |key| {
            format!("X-API-Key: {}\r\n", key.expose())
        });
        let params = json!({"message": message});
        let answer = self
            .server
            .call_with_headers(&header, "SendMessage", params);
        let answer = answer.await;
        let task = answer["result"]["task"].clone();
        // The caller sees its own id.
        assert_eq!(task["contextId"], SHARED, "{answer}");
        task
    }
}

/// Each caller has its own id, which is the same for all its messages.
fn assert_separate(ids: [[String; 2]; 3]) {
    let [ann, bob, anonymous] = ids.map(|[first, second]| {
        assert_eq!(first, second);
        assert_eq!(first.len(), 36, "{first}");
        first
    });
    assert!(ann != bob && ann != anonymous && bob != anonymous);
}

#[cfg(unix)]
#[tokio::test]
async fn d11_a_command_receives_another_context_id_for_each_caller() {
    let line = r#"sh -c 'cat; printf "%s" "$ATTACHE_CONTEXT_ID"'"#;
    let settings = CommandSettings {
        command: CommandSpec::Line(line.to_owned()),
        input: Some(CommandInput::Json),
        ..CommandSettings::default()
    };
    let callers = Callers::start(CommandAgent::from_settings(settings).unwrap()).await;
    let mut ids = [const { [String::new(), String::new()] }; 3];
    for (caller, ids) in ids.iter_mut().enumerate() {
        for id in ids {
            let task = callers.send(caller).await;
            let output = artifact(&task, "output")[0]["text"].as_str().unwrap();
            assert!(!output.contains(SHARED), "{output}");
            let (input, variable) = output.trim().rsplit_once('\n').unwrap();
            let input: Value = serde_json::from_str(input).unwrap();
            assert_eq!(input["message"]["contextId"], variable);
            assert_eq!(input["task"]["contextId"], variable);
            *id = variable.to_owned();
        }
    }
    assert_separate(ids);
}

/// Sends a message of a KAOS client. The log keeps its dialect in the metadata of the message.
async fn send_kaos(agent: &TestServer) -> Value {
    let parts = json!([{"type": "text", "text": "hi"}]);
    let message =
        json!({"messageId": "m", "role": "user", "parts": parts, "metadata": {"mine": 1}});
    let params = json!({"message": message});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    serde_json::from_str(&agent.post("/", &body).await).unwrap()
}

#[cfg(unix)]
#[tokio::test]
async fn s53_a_command_receives_no_internal_metadata() {
    let settings = CommandSettings {
        command: CommandSpec::Line("cat".to_owned()),
        input: Some(CommandInput::Json),
        ..CommandSettings::default()
    };
    let agent = start(CommandAgent::from_settings(settings).unwrap()).await;
    let answer = send_kaos(&agent).await;
    let output = answer["result"]["output"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"));
    let input: Value = serde_json::from_str(output).unwrap();
    assert_eq!(input["message"]["metadata"], json!({"mine": 1}), "{input}");
    assert!(!output.contains("attache."), "{output}");
}

#[tokio::test]
async fn s53_an_http_backend_receives_no_internal_metadata() {
    let reply = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhello";
    let backend = backend(Box::leak(Box::new([reply]))).await;
    let settings = HttpSettings {
        url: backend.url.clone(),
        ..HttpSettings::default()
    };
    let agent = start(HttpAgent::new(settings).unwrap()).await;
    let answer = send_kaos(&agent).await;
    assert_eq!(answer["result"]["output"], "hello", "{answer}");
    let request = backend.requests.lock().unwrap().pop().unwrap();
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["message"]["metadata"], json!({"mine": 1}), "{body}");
}

#[tokio::test]
async fn d11_an_http_backend_receives_another_context_id_for_each_caller() {
    let reply = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhello";
    let backend = backend(Box::leak(Box::new([reply]))).await;
    let settings = HttpSettings {
        url: backend.url.clone(),
        ..HttpSettings::default()
    };
    let callers = Callers::start(HttpAgent::new(settings).unwrap()).await;
    let mut ids = [const { [String::new(), String::new()] }; 3];
    for (caller, ids) in ids.iter_mut().enumerate() {
        for id in ids {
            callers.send(caller).await;
            let request = backend.requests.lock().unwrap().pop().unwrap();
            assert!(!request.contains(SHARED), "{request}");
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let header = head
                .lines()
                .find_map(|line| line.strip_prefix("attache-context-id: "))
                .unwrap();
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["contextId"], header);
            assert_eq!(body["message"]["contextId"], header);
            *id = header.to_owned();
        }
    }
    assert_separate(ids);
}
