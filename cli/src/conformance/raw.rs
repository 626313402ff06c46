//! Requests that no client would send.

use attache::Client;
use attache::model::Binding;
use serde_json::{Value, json};

use super::{Agent, NOBODY, Ruling, broken, fine, holds, moot, within};

/// As much as is read of an answer.
const MAX_BYTES: usize = 1 << 20;

/// The media type of what is sent.
pub(super) const JSON: (&str, &str) = ("content-type", "application/json");

pub(super) struct Answer {
    pub(super) status: u16,
    headers: http::HeaderMap,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn has_header(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }
}

/// Sends a body to the interface, or below it, and reads what comes as JSON.
pub(super) async fn send(
    agent: &Agent<'_>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Ruling<Answer> {
    send_by(&agent.session.client, method, path, headers, body).await
}

/// The same, by somebody else.
pub(super) async fn send_by(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Ruling<Answer> {
    let interface = client.interface();
    let tenant = interface
        .tenant
        .filter(|_| !path.is_empty())
        .map(|it| format!("/{it}"))
        .unwrap_or_default();
    let url = format!("{}{tenant}{path}", interface.url.trim_end_matches('/'));
    let mut request = http::Request::builder()
        .method(method)
        .uri(if path.is_empty() { interface.url } else { url });
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(body.to_owned().into())
        .map_err(|error| broken(error.to_string()))?;
    let answer = fine(within(client.send_raw(request)).await)?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body = fine(within(answer.read(MAX_BYTES)).await)?;
    Ok(Answer {
        status,
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

/// A call for a task that is not there.
pub(super) fn get_nobody(id: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "GetTask", "params": {"id": NOBODY}}).to_string()
}

/// It is an error of JSON-RPC with this code.
pub(super) fn is_code(body: &Value, code: i64) -> Ruling {
    holds(body["error"]["code"] == code, || {
        format!("the answer is {}", shortened(body))
    })
}

pub(super) fn shortened(body: &Value) -> String {
    let text = body.to_string();
    text.chars().take(200).collect()
}

/// Only where this binding is spoken, in 1.0.
pub(super) fn over(agent: &Agent<'_>, binding: Binding) -> Ruling {
    match agent.session.binding == binding && agent.is_new() {
        true => Ok(()),
        false => Err(moot(format!("of {} in 1.0", binding.as_str()))),
    }
}
