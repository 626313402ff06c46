//! Server on a free port, and a client on one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use attache::store::Store;
use attache::{AgentCard, Failure, Outcome, Server, Turn};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// Server whose agent waits for `release` and then writes the chunks that the message requests: `<chunks> <bytes>`. It
/// yields after each chunk, like an agent that waits for a language model.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    gate: Arc<Semaphore>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
    runtime: Runtime,
}

impl Running {
    pub(crate) fn start(store: impl Store) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let gate = Arc::new(Semaphore::new(0));
        let agent = {
            let gate = gate.clone();
            move |turn: Turn| write(gate.clone(), turn)
        };
        let server = Server::new(AgentCard::new("Bench", "Writes"), agent).store(store);
        let bound = runtime
            .block_on(server.bind("127.0.0.1:0"))
            .expect("a free port");
        let address = bound.local_addr();
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(async move {
            let stopped = async move { stopped.await.unwrap_or(()) };
            bound
                .serve_until(stopped)
                .await
                .expect("serving does not fail");
        });
        Self {
            address,
            gate,
            stop,
            served,
            runtime,
        }
    }

    /// Releases this number of turns.
    pub(crate) fn release(&self, turns: usize) {
        self.gate.add_permits(turns);
    }

    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        self.runtime
            .block_on(self.served)
            .expect("the server does not panic");
    }
}

async fn write(gate: Arc<Semaphore>, turn: Turn) -> Result<Outcome, Failure> {
    let text = turn.text();
    let (chunks, bytes) = text.split_once(' ').unwrap_or_default();
    let chunks = chunks.parse::<usize>()?;
    let text = "x".repeat(bytes.parse()?);
    gate.acquire().await?.forget();
    let mut writer = turn.writer("text");
    for _ in 0..chunks {
        writer.write(text.clone()).await;
        tokio::task::yield_now().await;
    }
    Ok(Outcome::Completed)
}

/// Client with one keep-alive connection.
pub(crate) struct Caller(BufReader<TcpStream>);

impl Caller {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        Self(BufReader::new(stream))
    }

    /// Creates a task that writes `chunks` chunks of `bytes` bytes after its release. Returns its id.
    pub(crate) fn open(&mut self, chunks: usize, bytes: usize) -> String {
        let message = json!({
            "messageId": "m", "role": "ROLE_USER", "parts": [{"text": format!("{chunks} {bytes}")}],
        });
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        let answer: Value =
            serde_json::from_slice(&self.call("SendMessage", &params)).expect("JSON");
        answer["result"]["task"]["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    /// Calls a method and returns the response body.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Vec<u8> {
        self.0
            .get_mut()
            .write_all(&request(method, params))
            .expect("the server reads");
        let mut length = 0;
        let mut line = String::new();
        while self.0.read_line(&mut line).expect("the server answers") > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            line.clear();
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a whole body");
        body
    }
}

pub(crate) fn request(method: &str, params: &Value) -> Vec<u8> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let length = body.len();
    let head =
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0";
    format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}
