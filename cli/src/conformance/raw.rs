//! Requests that no client would send.

use attache::Client;
use attache::model::Binding;
use serde_json::{Value, json};

use super::{
    AgentUnderTest, CheckResult, UNKNOWN_TASK_ID, ensure, expect_ok, skip, violation, with_timeout,
};

/// As much as is read of an answer.
const MAX_BYTES: usize = 1 << 20;

/// The media type of what is sent.
pub(super) const JSON: (&str, &str) = ("content-type", "application/json");

pub(super) struct RawResponse {
    pub(super) status: u16,
    headers: http::HeaderMap,
    pub(super) body: Value,
}

impl RawResponse {
    pub(super) fn has_header(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }
}

/// Sends a body to the interface, or below it, and reads what comes as JSON.
pub(super) async fn send(
    agent: &AgentUnderTest<'_>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> CheckResult<RawResponse> {
    send_with(&agent.session.client, method, path, headers, body).await
}

/// The same, by somebody else.
pub(super) async fn send_with(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> CheckResult<RawResponse> {
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
        .map_err(|error| violation(error.to_string()))?;
    let answer = expect_ok(with_timeout(client.send_raw(request)).await)?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body = expect_ok(with_timeout(answer.read(MAX_BYTES)).await)?;
    Ok(RawResponse {
        status,
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

/// A call for a task that is not there.
pub(super) fn get_unknown_task(id: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "GetTask", "params": {"id": UNKNOWN_TASK_ID}})
        .to_string()
}

/// It is an error of JSON-RPC with this code.
pub(super) fn expect_code(body: &Value, code: i64) -> CheckResult {
    ensure(body["error"]["code"] == code, || {
        format!("the answer is {}", shortened(body))
    })
}

pub(super) fn shortened(body: &Value) -> String {
    let text = body.to_string();
    text.chars().take(200).collect()
}

/// Only where this binding is spoken, in 1.0.
pub(super) fn require_binding(agent: &AgentUnderTest<'_>, binding: Binding) -> CheckResult {
    match agent.session.binding == binding && agent.is_v1() {
        true => Ok(()),
        false => Err(skip(format!("of {} in 1.0", binding.as_str()))),
    }
}
