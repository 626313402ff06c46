//! A server on a free port, and a caller who writes HTTP by hand.

use std::net::SocketAddr;
use std::time::Duration;

use attache::{Agent, AgentCard, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Runs until it is dropped.
pub(crate) struct Running {
    address: SocketAddr,
    _server: JoinSet<attache::Result<()>>,
}

pub(crate) async fn start(agent: impl Agent) -> Running {
    start_with(agent, |server| server).await
}

/// Starts a server that is set up otherwise than by default.
pub(crate) async fn start_with(
    agent: impl Agent,
    set_up: impl FnOnce(Server) -> Server,
) -> Running {
    start_there(SocketAddr::from(([127, 0, 0, 1], 0)), agent, set_up).await
}

/// Starts it at an address.
pub(crate) async fn start_at(address: SocketAddr, agent: impl Agent) -> Running {
    start_there(address, agent, |server| server).await
}

/// Starts one at an address that is set up otherwise.
pub(crate) async fn start_there(
    address: SocketAddr,
    agent: impl Agent,
    set_up: impl FnOnce(Server) -> Server,
) -> Running {
    serve(set_up(Server::new(card(), agent)), address).await
}

fn card() -> AgentCard {
    AgentCard::new("Tested", "An agent under test")
}

async fn serve(server: Server, address: SocketAddr) -> Running {
    let bound = server.bind(address).await.unwrap();
    let address = bound.local_addr();
    let mut server = JoinSet::new();
    server.spawn(bound.serve());
    Running {
        address,
        _server: server,
    }
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future)
        .await
        .expect("within the deadline")
}

impl Running {
    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Calls a method; gives its result.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        let answer = self.call_as("", method, params).await;
        assert_eq!(answer["error"], Value::Null, "{answer}");
        answer["result"].clone()
    }

    /// The same with more lines in the head, each with its end; gives the whole answer.
    pub(crate) async fn call_as(&self, lines: &str, method: &str, params: Value) -> Value {
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json";
        let request = format!(
            "{head}\r\nA2A-Version: 1.0\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = soon(async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            String::from_utf8(bytes).unwrap()
        });
        let answer = answer.await;
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Sends a text and waits for the end of its turn; gives the task.
    pub(crate) async fn say(&self, text: &str) -> Value {
        self.say_parts(json!([{"text": text}])).await
    }

    pub(crate) async fn say_parts(&self, parts: Value) -> Value {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": parts});
        self.call("SendMessage", json!({"message": message})).await["task"].clone()
    }

    /// Answers a task that waits.
    pub(crate) async fn answer(&self, task: &Value, parts: Value) -> Value {
        let message =
            json!({"messageId": "m", "role": "ROLE_USER", "parts": parts, "taskId": task["id"]});
        self.call("SendMessage", json!({"message": message})).await["task"].clone()
    }

    /// Sends a text and does not wait.
    pub(crate) async fn begin(&self, text: &str) -> Value {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        self.call("SendMessage", params).await["task"].clone()
    }

    /// Looks at a task until it is as it should be.
    pub(crate) async fn until(&self, task: &Value, such: impl Fn(&Value) -> bool) -> Value {
        soon(async {
            loop {
                let task = self.call("GetTask", json!({"id": task["id"]})).await;
                if such(&task) {
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

/// The name of a state, without its prefix.
pub(crate) fn state(task: &Value) -> &str {
    task["status"]["state"]
        .as_str()
        .and_then(|state| state.strip_prefix("TASK_STATE_"))
        .unwrap_or("none")
}

/// The words of the status.
pub(crate) fn words(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"]
        .as_str()
        .unwrap_or("none")
}

/// The parts of an artifact, by its name.
pub(crate) fn artifact<'a>(task: &'a Value, name: &str) -> &'a Value {
    let artifacts = task["artifacts"]
        .as_array()
        .unwrap_or_else(|| panic!("no artifacts: {task}"));
    let found = artifacts.iter().find(|artifact| artifact["name"] == name);
    &found.unwrap_or_else(|| panic!("no artifact {name}: {task}"))["parts"]
}
