//! HTTP endpoint for webhooks that records what it receives.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::with_deadline;

/// HTTP endpoint with a configurable response that records the requests.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    state: Arc<EndpointState>,
    _serving: JoinSet<()>,
}

/// State shared with the connections.
struct EndpointState {
    answer: Mutex<&'static str>,
    got: watch::Sender<Vec<ReceivedRequest>>,
    /// Clients whose connections are open, in no order.
    clients: watch::Sender<HashSet<SocketAddr>>,
}

/// Request that the endpoint received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: Value,
    /// Body as text.
    pub(crate) raw: String,
    pub(crate) answer: &'static str,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines();
        let line = lines.find_map(|line| {
            line.split_once(": ")
                .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        });
        line.map_or("", |(_, value)| value)
    }
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
pub(crate) const FAILING: &str = "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n";

impl Endpoint {
    pub(crate) async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let state = Arc::new(EndpointState {
            answer: Mutex::new(answer),
            got: watch::Sender::new(Vec::new()),
            clients: watch::Sender::default(),
        });
        let mut serving = JoinSet::new();
        let shared = state.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, client)) = listener.accept().await {
                shared.clients.send_modify(|all| {
                    all.insert(client);
                });
                let shared = shared.clone();
                connections.spawn(async move {
                    answer_all(stream, &shared).await;
                    shared.clients.send_modify(|all| {
                        all.remove(&client);
                    });
                });
            }
        });
        Self {
            url,
            state,
            _serving: serving,
        }
    }

    pub(crate) fn set_response(&self, answer: &'static str) {
        *self.state.answer.lock().unwrap() = answer;
    }

    /// Waits until all connections have ended, so that every request of a stopped server is recorded with the response
    /// it got.
    pub(crate) async fn until_disconnected(&self) {
        // Connections are accepted in order: once this one is, all earlier ones are.
        let address = self.url.strip_prefix("http://").unwrap();
        let address = address.strip_suffix("/hook").unwrap();
        let last = with_deadline(TcpStream::connect(address)).await.unwrap();
        let last_client = HashSet::from([last.local_addr().unwrap()]);
        let mut clients = self.state.clients.subscribe();
        with_deadline(clients.wait_for(|clients| *clients == last_client))
            .await
            .unwrap();
    }

    /// Number of requests received so far.
    pub(crate) fn count(&self) -> usize {
        self.state.got.borrow().len()
    }

    /// Waits until the received requests are enough and returns them.
    pub(crate) async fn until(
        &self,
        enough: impl Fn(&[ReceivedRequest]) -> bool,
    ) -> Vec<ReceivedRequest> {
        let mut got = self.state.got.subscribe();
        with_deadline(got.wait_for(|got| enough(got)))
            .await
            .unwrap()
            .clone()
    }
}

async fn answer_all(mut stream: TcpStream, state: &EndpointState) {
    let mut bytes = Vec::new();
    loop {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            match stream.read_buf(&mut bytes).await {
                Ok(1..) => continue,
                _ => return,
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let answer = *state.answer.lock().unwrap();
        let mut got = ReceivedRequest {
            head,
            body: Value::Null,
            raw: String::new(),
            answer,
        };
        let length: usize = got.header("content-length").parse().unwrap();
        while bytes.len() < end + 4 + length {
            let Ok(1..) = stream.read_buf(&mut bytes).await else {
                return;
            };
        }
        got.raw = String::from_utf8(bytes[end + 4..end + 4 + length].to_vec()).unwrap();
        got.body = serde_json::from_str(&got.raw).unwrap();
        bytes.drain(..end + 4 + length);
        state.got.send_modify(|all| all.push(got));
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
