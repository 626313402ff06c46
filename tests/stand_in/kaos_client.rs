//! Stand-in for the client of KAOS, written from the text of its documentation: `RemoteAgent` fetches the card from
//! `/.well-known/agent.json`, uses `SendMessage` if `supportedProtocols` has `jsonrpc`, and else chat completions. The
//! response is taken from artifacts, then `output`, then the last message of the agent in the history.
//!
//! Only the standard library and `serde_json`: the tests of every crate can include this file.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// Deadline of one exchange.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A client of one agent.
pub(crate) struct KaosClient {
    /// `host:port` of the agent.
    address: String,
    /// Name of the agent in the configuration of the client.
    name: String,
}

/// Answer of an agent.
#[derive(Debug, PartialEq)]
pub(crate) struct KaosAnswer {
    pub(crate) text: String,
    pub(crate) way: Way,
}

/// How an answer was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    SendMessage,
    ChatCompletions,
}

impl KaosClient {
    pub(crate) fn new(address: impl ToString, name: &str) -> Self {
        Self {
            address: address.to_string(),
            name: name.to_owned(),
        }
    }

    /// Delegates a message, as `RemoteAgent` does.
    pub(crate) fn delegate(&self, text: &str, session: &str) -> KaosAnswer {
        let card = self.exchange("GET", "/.well-known/agent.json", None).1;
        let protocols = card["supportedProtocols"].as_array();
        let supports_a2a = protocols.is_some_and(|all| all.iter().any(|one| one == "jsonrpc"));
        if supports_a2a {
            let answer = self.send(text, session);
            if answer["status"]["state"] == "completed" {
                return KaosAnswer {
                    text: response_text(&answer),
                    way: Way::SendMessage,
                };
            }
        }
        KaosAnswer {
            text: self.chat(text),
            way: Way::ChatCompletions,
        }
    }

    /// Calls `SendMessage` with the request of the documentation, and returns the result.
    pub(crate) fn send(&self, text: &str, session: &str) -> Value {
        let sample = include_str!("../golden/seed/kaos-send-request.json");
        let mut request: Value = serde_json::from_str(sample).unwrap();
        request["params"]["message"]["parts"][0]["text"] = json!(text);
        request["params"]["contextId"] = json!(session);
        self.call(&request)["result"].clone()
    }

    /// Calls `GetTask` or `CancelTask`, and returns the whole response.
    pub(crate) fn task_call(&self, method: &str, id: &str) -> Value {
        self.call(&json!({"jsonrpc": "2.0", "method": method, "id": 2, "params": {"id": id}}))
    }

    fn call(&self, request: &Value) -> Value {
        self.exchange("POST", "/", Some(request)).1
    }

    fn chat(&self, text: &str) -> String {
        let messages = json!([{"role": "user", "content": text}]);
        let request = json!({"model": self.name, "messages": messages});
        let (status, answer) = self.exchange("POST", "/v1/chat/completions", Some(&request));
        assert_eq!(status, 200, "{answer}");
        let content = &answer["choices"][0]["message"]["content"];
        content.as_str().unwrap().to_owned()
    }

    /// Sends a request and returns status and body of the response.
    fn exchange(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}

/// Returns the text of a task: artifacts, then output, then the last message of the agent.
pub(crate) fn response_text(task: &Value) -> String {
    let texts = |parts: &Value| -> String {
        let parts = parts.as_array().into_iter().flatten();
        let texts = parts.filter(|part| part["type"] == "text");
        texts.filter_map(|part| part["text"].as_str()).collect()
    };
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let text: String = artifacts
        .map(|artifact| texts(&artifact["parts"]))
        .collect();
    if !text.is_empty() {
        return text;
    }
    if let Some(output) = task["output"].as_str() {
        return output.to_owned();
    }
    let messages = task["history"].as_array().into_iter().flatten();
    let mut of_agent = messages.filter(|message| message["role"] == "agent");
    of_agent
        .next_back()
        .map(|last| texts(&last["parts"]))
        .unwrap_or_default()
}
