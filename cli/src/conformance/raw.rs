//! Raw HTTP requests, which the client API cannot express.

use attache::Client;
use attache::model::Binding;
use serde_json::{Value, json};

use super::{
    AgentUnderTest, CheckResult, UNKNOWN_TASK_ID, ensure, expect_ok, skip, violation, with_timeout,
};

/// Maximum size of a response, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Content type of a JSON request.
pub(super) const JSON: (&str, &str) = ("content-type", "application/json");

/// A response with a JSON body; `null` if the body is not JSON.
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

/// Sends a request to the interface URL, or to a path below it.
pub(super) async fn send(
    agent: &AgentUnderTest<'_>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> CheckResult<RawResponse> {
    send_with(&agent.session.client, method, path, headers, body).await
}

/// Sends a request with another client.
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
    let status = answer.status().as_u16();
    let headers = answer.headers().clone();
    let body = expect_ok(with_timeout(answer.read(MAX_BYTES)).await)?;
    Ok(RawResponse {
        status,
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

/// A JSON-RPC call of GetTask for an unknown task.
pub(super) fn get_unknown_task(id: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "GetTask", "params": {"id": UNKNOWN_TASK_ID}})
        .to_string()
}

/// Checks that the body is a JSON-RPC error with this code.
pub(super) fn expect_code(body: &Value, code: i64) -> CheckResult {
    ensure(body["error"]["code"] == code, || {
        format!("the answer is {}", shortened(body))
    })
}

pub(super) fn shortened(body: &Value) -> String {
    let text = body.to_string();
    text.chars().take(200).collect()
}

/// Skips the check unless the session uses this binding in 1.0.
pub(super) fn require_binding(agent: &AgentUnderTest<'_>, binding: Binding) -> CheckResult {
    if agent.session.binding == binding && agent.is_v1() {
        return Ok(());
    }
    Err(skip(format!("only for {} in 1.0", binding.as_str())))
}
