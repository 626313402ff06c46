//! Requests that no client would send.

use attache::model::Binding;
use serde_json::Value;

use super::{Agent, Ruling, broken, fine, moot, within};

/// As much as is read of an answer.
const MAX_BYTES: usize = 1 << 20;

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// Sends a body to the interface, or below it, and reads what comes as JSON.
pub(super) async fn send(
    agent: &Agent<'_>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Ruling<Answer> {
    let interface = agent.session.client.interface();
    let tenant = interface.tenant.filter(|_| !path.is_empty()).map(|it| format!("/{it}")).unwrap_or_default();
    let url = format!("{}{tenant}{path}", interface.url.trim_end_matches('/'));
    let mut request =
        http::Request::builder().method(method).uri(if path.is_empty() { interface.url } else { url });
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.to_owned().into()).map_err(|error| broken(error.to_string()))?;
    let answer = fine(within(agent.session.client.send_raw(request)).await)?;
    let status = answer.status().as_u16();
    let body = fine(within(answer.read(MAX_BYTES)).await)?;
    Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

/// Only where this binding is spoken, in 1.0.
pub(super) fn over(agent: &Agent<'_>, binding: Binding) -> Ruling {
    match agent.session.binding == binding && agent.is_new() {
        true => Ok(()),
        false => Err(moot(format!("of {} in 1.0", binding.as_str()))),
    }
}
