//! Test harness: a server on a free port, and a client that writes raw HTTP.

#[cfg(all(feature = "client", feature = "server"))]
pub(crate) mod everywhere;
#[cfg(all(feature = "server", target_os = "linux"))]
pub(crate) mod server_process;
mod sse_reader;
mod stepped_agent;
#[cfg(feature = "server")]
pub(crate) mod webhook_endpoint;
mod wire_format;

use std::net::SocketAddr;
use std::time::Duration;

use attache::{Agent, AgentCard, Failure, Outcome, PushSettings, Server, Turn};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(crate) use sse_reader::{SseReader, header};
pub(crate) use stepped_agent::{StepController, SteppedAgent};
pub(crate) use wire_format::{ObservedEvent, WIRE_FORMATS, WireFormat, WireRequest, task};

/// Echoes the message.
pub(crate) struct Echo;

impl Agent for Echo {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        turn.write("echo", turn.text()).await;
        Ok(Outcome::Completed)
    }
}

/// A running server; stops when dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    server: JoinSet<attache::Result<()>>,
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) async fn start(agent: impl Agent) -> Running {
    start_with(agent, |server| server).await
}

/// Starts a server with its own configuration.
pub(crate) async fn start_with(
    agent: impl Agent,
    set_up: impl FnOnce(Server) -> Server,
) -> Running {
    start_as(
        AgentCard::new("Echo", "Says it back").input_modes(["*/*"]),
        agent,
        set_up,
    )
    .await
}

/// Starts a server for an agent with the given card.
pub(crate) async fn start_as(
    card: AgentCard,
    agent: impl Agent,
    set_up: impl FnOnce(Server) -> Server,
) -> Running {
    run(set_up(Server::new(card, agent))).await
}

/// Push settings that allow webhooks on loopback.
pub(crate) fn local_webhooks() -> PushSettings {
    let mut settings = PushSettings::default();
    settings.egress.loopback = true;
    settings
}

/// Starts the given server.
pub(crate) async fn run(server: Server) -> Running {
    changing(server).await.0
}

/// Starts a server and returns the handle that reloads it.
pub(crate) async fn changing(server: Server) -> (Running, attache::ServerHandle) {
    let bound = server.bind("127.0.0.1:0").await.unwrap();
    let way = bound.handle();
    let address = bound.local_addr();
    let (stop, stopped) = oneshot::channel();
    let mut server = JoinSet::new();
    server.spawn(bound.serve_until(async move { stopped.await.unwrap_or(()) }));
    (
        Running {
            address,
            stop: Some(stop),
            server,
        },
        way,
    )
}

pub(crate) async fn with_deadline<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future)
        .await
        .expect("within the deadline")
}

impl Running {
    /// Requests a graceful shutdown.
    pub(crate) fn ask_to_stop(&mut self) {
        self.stop
            .take()
            .expect("stopped once")
            .send(())
            .expect("the server runs");
    }

    /// Requests a graceful shutdown and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.ask_to_stop();
        with_deadline(self.server.join_next())
            .await
            .expect("the server ran")
            .unwrap()
            .unwrap();
    }

    pub(crate) async fn send(&self, head: &str, body: &[u8]) -> Answer {
        with_deadline(async {
            let mut stream = self.begin(head, body).await;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            Answer::read(&String::from_utf8(bytes).unwrap())
        })
        .await
    }

    /// Sends a request and returns the connection without reading the response.
    pub(crate) async fn begin(&self, head: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let head = format!(
            "{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream
            .write_all(&[head.as_bytes(), body].concat())
            .await
            .unwrap();
        stream
    }

    pub(crate) async fn ask(&self, ask: &WireRequest) -> Answer {
        self.send(&ask.head, ask.body.as_bytes()).await
    }

    /// Opens a stream and reads its response head.
    pub(crate) async fn read(&self, ask: &WireRequest) -> SseReader {
        SseReader::open(self.begin(&ask.head, ask.body.as_bytes()).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1"), b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send(
            &format!("POST {path} HTTP/1.1\r\nContent-Type: application/json"),
            body.as_bytes(),
        )
        .await
    }

    /// Calls a JSON-RPC method and returns the whole response.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Value {
        let answer = self.post("/", &request(method, &params)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub(crate) async fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params).await;
        assert_eq!(answer["error"], Value::Null, "{answer}");
        answer["result"].clone()
    }

    pub(crate) async fn error(&self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params).await;
        assert_eq!(answer.get("result"), None, "{answer}");
        answer["error"].clone()
    }

    /// Sends a text message; `more` is merged into the message.
    pub(crate) async fn say(&self, text: &str, more: Value) -> Value {
        self.result("SendMessage", json!({"message": message(text, more)}))
            .await["task"]
            .clone()
    }
}

pub(crate) fn request(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

pub(crate) fn message(text: &str, more: Value) -> Value {
    let mut message = json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]});
    message
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    message
}

impl Answer {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub(crate) fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP answer");
        let status = head
            .split(' ')
            .nth(1)
            .expect("a status line")
            .parse()
            .unwrap();
        Self {
            status,
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn json(&self) -> Value {
        assert!(
            self.head.contains("content-type: application/json"),
            "{self:?}"
        );
        serde_json::from_str(&self.body).unwrap()
    }
}
