//! A scripted agent that records its requests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::DEADLINE;

/// A recorded request.
#[derive(Debug, Clone)]
pub(super) struct RecordedRequest {
    /// Method and target.
    pub(super) line: String,
    /// Head in lower case.
    pub(super) head: String,
    pub(super) body: String,
}

impl RecordedRequest {
    /// The method of a JSON-RPC body.
    pub(super) fn method(&self) -> String {
        self.json()["method"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

pub(super) struct ScriptedAgent {
    pub(super) url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

type Responder = dyn Fn(&RecordedRequest, usize) -> Vec<u8> + Send + Sync;

impl ScriptedAgent {
    /// Starts an agent. `answer` receives each request with its number; card requests are not counted.
    pub(super) fn new(
        card: impl Fn(&str) -> Value + Send + Sync + 'static,
        answer: impl Fn(&RecordedRequest, usize) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let card = card(&url);
        let all = requests.clone();
        let answer: Arc<Responder> = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let card = card.clone();
                let all = all.clone();
                let answer = answer.clone();
                thread::spawn(move || serve(stream, &card, &all, &*answer));
            }
        });
        Self { url, requests }
    }

    /// All requests so far, card requests included.
    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The bodies of POST requests.
    pub(super) fn posted_bodies(&self) -> Vec<Value> {
        self.requests()
            .iter()
            .filter(|request| request.line.starts_with("POST"))
            .map(RecordedRequest::json)
            .collect()
    }
}

fn serve(
    mut stream: TcpStream,
    card: &Value,
    all: &Mutex<Vec<RecordedRequest>>,
    answer: &Responder,
) {
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let Some(request) = read(&mut stream) else {
        return;
    };
    let reply = {
        let mut all = all.lock().unwrap();
        all.push(request.clone());
        let number = all
            .iter()
            .filter(|one| !one.line.contains("well-known"))
            .count();
        if request.line.contains("well-known") {
            json_reply(200, card)
        } else {
            answer(&request, number)
        }
    };
    let _ = stream.write_all(&reply);
    if reply.ends_with(HOLD) {
        // Until the client closes the connection.
        let _ = stream.read(&mut [0]);
    }
}

fn read(stream: &mut TcpStream) -> Option<RecordedRequest> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let line = head
        .lines()
        .next()?
        .trim_end_matches(" HTTP/1.1")
        .to_owned();
    let head = head.to_ascii_lowercase();
    let length = head
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next());
    let whole = end + length.map_or(0, |length| length.parse().unwrap());
    while bytes.len() < whole {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
    }
    Some(RecordedRequest {
        line,
        head,
        body: String::from_utf8_lossy(&bytes[end..whole]).into_owned(),
    })
}

/// Marker at the end of a stream that stays open.
const HOLD: &[u8] = b": held\n\n";

pub(super) fn json_reply(status: u16, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

pub(super) fn result(result: &Value) -> Vec<u8> {
    json_reply(200, &json!({"jsonrpc": "2.0", "id": 1, "result": result}))
}

pub(super) fn error(code: i32, message: &str) -> Vec<u8> {
    json_reply(
        200,
        &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}),
    )
}

/// A stream that ends with the connection.
pub(super) fn events(events: &[Value]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n";
    let frame = |event| {
        format!(
            "data: {}\n\n",
            json!({"jsonrpc": "2.0", "id": 1, "result": event})
        )
    };
    let frames: String = events.iter().map(frame).collect();
    format!("{head}{frames}").into_bytes()
}

/// A stream that stays open after these events.
pub(super) fn open_stream(all: &[Value]) -> Vec<u8> {
    [&events(all), HOLD].concat()
}

/// A 1.0 card with a JSON-RPC interface. `more` adds or replaces members.
pub(super) fn card(url: &str, more: Value) -> Value {
    let mut card = json!({
        "name": "Peer", "description": "A scripted peer", "version": "1", "capabilities": {},
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "d", "tags": []}],
    });
    let Value::Object(more) = more else {
        panic!("an object")
    };
    card.as_object_mut().unwrap().extend(more);
    card
}

pub(super) fn streaming(url: &str) -> Value {
    card(url, json!({"capabilities": {"streaming": true}}))
}

pub(super) fn plain(url: &str) -> Value {
    card(url, json!({}))
}

pub(super) fn task(state: &str) -> Value {
    json!({"id": "t-1", "contextId": "c-1", "status": {"state": state}})
}

pub(super) fn status(state: &str) -> Value {
    json!({"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": {"state": state}}})
}

/// Answers every request with this task.
pub(super) fn answer_with(
    task: Value,
) -> impl Fn(&RecordedRequest, usize) -> Vec<u8> + Send + Sync + 'static {
    move |request, _| match request.method().as_str() {
        "SendMessage" => result(&json!({"task": task})),
        "SendStreamingMessage" | "SubscribeToTask" => events(&[json!({"task": task})]),
        _ => result(&task),
    }
}

/// Answers every request with a completed task.
pub(super) fn answer_completed()
-> impl Fn(&RecordedRequest, usize) -> Vec<u8> + Send + Sync + 'static {
    answer_with(task("TASK_STATE_COMPLETED"))
}
