//! Stand-in for a KAOS agent, written from the text of its documentation: the card at `/.well-known/agent.json`, three
//! JSON-RPC methods at `POST /`, bare tasks with `sessionId` and a text as status message, and chat completions.
//!
//! Only the standard library and `serde_json`: the tests of every crate include this file.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// Where the agent puts its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// In the history, with the status message `Done`: the sample of the documentation.
    History,
    /// In the member `output`.
    Output,
    /// In an artifact.
    Artifact,
    /// Nowhere: the task completes without content.
    Nowhere,
    /// Error -32603 instead of a task.
    InternalError,
    /// HTTP status instead of a JSON-RPC response.
    Status(u16),
}

/// A running agent. It ends with the test process.
pub(crate) struct KaosServer {
    pub(crate) url: String,
    state: Arc<State>,
}

struct State {
    answer: Answer,
    /// Path of the JSON-RPC endpoint.
    path: &'static str,
    card: Value,
    /// Request lines and bodies, in order.
    requests: Mutex<Vec<(String, Value)>>,
    tasks: Mutex<Vec<Value>>,
}

impl KaosServer {
    /// Starts an agent as documented.
    pub(crate) fn start(answer: Answer) -> Self {
        let card = include_str!("../golden/seed/kaos-card.json");
        Self::with_card(answer, "/", serde_json::from_str(card).unwrap())
    }

    /// Starts an agent with another card, and another path of its endpoint.
    pub(crate) fn with_card(answer: Answer, path: &'static str, card: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            answer,
            path,
            card,
            requests: Mutex::default(),
            tasks: Mutex::default(),
        });
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                thread::spawn(move || state.serve(stream));
            }
        });
        Self { url, state }
    }

    /// The request lines so far, such as `POST /`, with the JSON-RPC method behind them.
    pub(crate) fn calls(&self) -> Vec<String> {
        let requests = self.state.requests.lock().unwrap();
        let call = |(line, body): &(String, Value)| match body["method"].as_str() {
            Some(method) => format!("{line} {method}"),
            None => line.clone(),
        };
        requests.iter().map(call).collect()
    }

    /// The params of the calls of a method.
    pub(crate) fn params(&self, method: &str) -> Vec<Value> {
        let requests = self.state.requests.lock().unwrap();
        let calls = requests.iter().map(|(_, body)| body);
        let calls = calls.filter(|body| body["method"] == method);
        calls.map(|body| body["params"].clone()).collect()
    }
}

impl State {
    fn serve(&self, mut stream: TcpStream) {
        let Some((line, body)) = read_request(&mut stream) else {
            return;
        };
        self.requests
            .lock()
            .unwrap()
            .push((line.clone(), body.clone()));
        let (status, reply) = self.reply(&line, &body);
        let reply = reply.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            reply.len()
        );
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(reply.as_bytes());
    }

    fn reply(&self, line: &str, body: &Value) -> (u16, Value) {
        if line == "GET /.well-known/agent.json" {
            return (200, self.card.clone());
        }
        if line == "POST /v1/chat/completions" {
            let text = &body["messages"][0]["content"];
            let text = format!("chat: {}", text.as_str().unwrap_or_default());
            return (200, json!({"choices": [{"message": {"content": text}}]}));
        }
        if line != format!("POST {}", self.path) {
            return (404, json!({"detail": "Not Found"}));
        }
        if let Answer::Status(status) = self.answer {
            return (status, json!({"detail": "no"}));
        }
        let id = &body["id"];
        (
            200,
            match self.call(body) {
                Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                Err(code) => {
                    let error = json!({"code": code, "message": "refused"});
                    json!({"jsonrpc": "2.0", "id": id, "error": error})
                }
            },
        )
    }

    /// Answers one of the three methods or their aliases.
    fn call(&self, body: &Value) -> Result<Value, i32> {
        let params = &body["params"];
        match body["method"].as_str().unwrap_or_default() {
            "SendMessage" | "tasks/send" => self.send(params),
            "GetTask" | "tasks/get" | "CancelTask" | "tasks/cancel" => {
                let tasks = self.tasks.lock().unwrap();
                let task = tasks.iter().find(|task| task["id"] == params["id"]);
                task.cloned().ok_or(-32001)
            }
            _ => Err(-32601),
        }
    }

    fn send(&self, params: &Value) -> Result<Value, i32> {
        let message = &params["message"];
        // Only `type` parts are read, and only a lower-case role.
        let parts = message["parts"].as_array().ok_or(-32602)?;
        let text = parts.iter().find(|part| part["type"] == "text");
        let text = text.and_then(|part| part["text"].as_str()).ok_or(-32602)?;
        if message["role"] != "user" {
            return Err(-32602);
        }
        let answer = format!("from history: {text}");
        let mut task = self.task(params, text);
        match self.answer {
            Answer::History => {
                let answer = json!({"role": "agent", "parts": [{"type": "text", "text": answer}]});
                task["history"].as_array_mut().unwrap().push(answer);
            }
            Answer::Output => task["output"] = json!(format!("from output: {text}")),
            Answer::Artifact => {
                let text = format!("from artifact: {text}");
                let parts = json!([{"type": "text", "text": text}]);
                task["artifacts"] = json!([{"name": "answer", "parts": parts}]);
            }
            Answer::Nowhere => task["status"]["message"] = Value::Null,
            Answer::InternalError => return Err(-32603),
            Answer::Status(_) => {}
        }
        self.tasks.lock().unwrap().push(task.clone());
        Ok(task)
    }

    fn task(&self, params: &Value, text: &str) -> Value {
        let number = self.tasks.lock().unwrap().len();
        let session = params["contextId"].as_str().unwrap_or("session-new");
        let status =
            json!({"state": "completed", "message": "Done", "timestamp": "2026-06-10T12:00:00Z"});
        let question = json!({"role": "user", "parts": [{"type": "text", "text": text}]});
        json!({"id": format!("task-{number}"), "sessionId": session, "status": status, "history": [question]})
    }
}

/// Reads a request: its method and path, and its JSON body.
fn read_request(stream: &mut TcpStream) -> Option<(String, Value)> {
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
    let lower = head.to_ascii_lowercase();
    let length = lower.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    while bytes.len() < end + length.unwrap_or(0) {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
    }
    let line = head.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Some((
        line,
        serde_json::from_slice(&bytes[end..]).unwrap_or_default(),
    ))
}
