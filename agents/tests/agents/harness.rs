//! Test server on a free port, and a client that writes raw HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use attache::{Agent, AgentCard, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Running server. Dropping it stops the server.
pub(crate) struct TestServer {
    address: SocketAddr,
    _server: JoinSet<attache::Result<()>>,
}

pub(crate) async fn start(agent: impl Agent) -> TestServer {
    start_with(agent, |server| server).await
}

/// Starts a server with settings other than the defaults.
pub(crate) async fn start_with(
    agent: impl Agent,
    set_up: impl FnOnce(Server) -> Server,
) -> TestServer {
    start_at_with(SocketAddr::from(([127, 0, 0, 1], 0)), agent, set_up).await
}

/// Starts a server at an address.
pub(crate) async fn start_at(address: SocketAddr, agent: impl Agent) -> TestServer {
    start_at_with(address, agent, |server| server).await
}

/// Starts a server at an address, with other settings.
pub(crate) async fn start_at_with(
    address: SocketAddr,
    agent: impl Agent,
    set_up: impl FnOnce(Server) -> Server,
) -> TestServer {
    serve(set_up(Server::new(card(), agent)), address).await
}

fn card() -> AgentCard {
    AgentCard::new("Tested", "An agent under test")
}

async fn serve(server: Server, address: SocketAddr) -> TestServer {
    let bound = server.bind(address).await.unwrap();
    let address = bound.local_addr();
    let mut server = JoinSet::new();
    server.spawn(bound.serve());
    TestServer {
        address,
        _server: server,
    }
}

pub(crate) async fn with_deadline<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future)
        .await
        .expect("within the deadline")
}

impl TestServer {
    /// Returns the base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Calls a JSON-RPC method and returns its result.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        let answer = self.call_with_headers("", method, params).await;
        assert_eq!(answer["error"], Value::Null, "{answer}");
        answer["result"].clone()
    }

    /// Calls a method with additional header lines, each with its line end. Returns the whole response.
    pub(crate) async fn call_with_headers(
        &self,
        lines: &str,
        method: &str,
        params: Value,
    ) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let lines = format!("A2A-Version: 1.0\r\n{lines}");
        let answer = self.post_with_headers("/", &lines, &body).await;
        serde_json::from_str(&answer).unwrap()
    }

    /// Posts JSON to a path, and returns the body of the response as received.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> String {
        self.post_with_headers(path, "", body).await
    }

    async fn post_with_headers(&self, path: &str, lines: &str, body: &Value) -> String {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json"
        );
        let request = format!(
            "{head}\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = with_deadline(async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            String::from_utf8(bytes).unwrap()
        });
        let answer = answer.await;
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Sends a text, waits for the end of the turn, and returns the task.
    pub(crate) async fn send_text(&self, text: &str) -> Value {
        self.send_parts(json!([{"text": text}])).await
    }

    pub(crate) async fn send_parts(&self, parts: Value) -> Value {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": parts});
        self.call("SendMessage", json!({"message": message})).await["task"].clone()
    }

    /// Answers a question of a task.
    pub(crate) async fn answer(&self, task: &Value, parts: Value) -> Value {
        let message =
            json!({"messageId": "m", "role": "ROLE_USER", "parts": parts, "taskId": task["id"]});
        self.call("SendMessage", json!({"message": message})).await["task"].clone()
    }

    /// Sends a text without waiting for the turn.
    pub(crate) async fn send_without_waiting(&self, text: &str) -> Value {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        self.call("SendMessage", params).await["task"].clone()
    }

    /// Polls a task until a condition holds.
    pub(crate) async fn poll_until(
        &self,
        task: &Value,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        with_deadline(async {
            loop {
                let task = self.call("GetTask", json!({"id": task["id"]})).await;
                if condition(&task) {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    pub(crate) async fn cancel(&self, task: &Value) -> Value {
        self.call("CancelTask", json!({"id": task["id"]})).await
    }
}

/// Returns the name of a task's state without its prefix.
pub(crate) fn state(task: &Value) -> &str {
    task["status"]["state"]
        .as_str()
        .and_then(|state| state.strip_prefix("TASK_STATE_"))
        .unwrap_or("none")
}

/// Returns the text of the status message.
pub(crate) fn status_text(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"]
        .as_str()
        .unwrap_or("none")
}

/// Returns the parts of an artifact by its name.
pub(crate) fn artifact<'a>(task: &'a Value, name: &str) -> &'a Value {
    let artifacts = task["artifacts"]
        .as_array()
        .unwrap_or_else(|| panic!("no artifacts: {task}"));
    let found = artifacts.iter().find(|artifact| artifact["name"] == name);
    &found.unwrap_or_else(|| panic!("no artifact {name}: {task}"))["parts"]
}
