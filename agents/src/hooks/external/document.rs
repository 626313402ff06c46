//! JSON documents for external hooks. Requests, responses and events have their A2A 1.0 form.

use attache::model::{AgentCard, Request, Response, SendMessageRequest, Version};
use attache::wire::method::method_name;
use attache::{HookContext, HookError, HookPhase};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::decision::decode;

/// Document that an external hook receives.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HookDocument<'a, T> {
    phase: HookPhase,
    agent: &'a str,
    caller: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tenant: &'a str,
    /// A2A 1.0 name; absent for an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    #[serde(flatten)]
    subject: Subject<T>,
}

/// Request, response or event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Subject<T> {
    Request(T),
    Response(T),
    Event(T),
}

impl<'a, T> HookDocument<'a, T> {
    pub(super) fn new(context: &'a HookContext<'_>, phase: HookPhase, subject: T) -> Self {
        Self {
            phase,
            agent: context.agent(),
            caller: context.caller().name(),
            tenant: context.tenant(),
            method: context
                .operation()
                .and_then(|operation| method_name(operation, Version::V1)),
            task_id: context.task_id().map(|id| id.as_str()),
            context_id: context.context_id().map(|id| id.as_str()),
            subject: match phase {
                HookPhase::Call => Subject::Request(subject),
                HookPhase::Response => Subject::Response(subject),
                HookPhase::Event => Subject::Event(subject),
            },
        }
    }
}

/// Parameters of a request.
pub(super) struct RequestJson<'a>(pub(super) &'a Request);

impl Serialize for RequestJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
                request.serialize(serializer)
            }
            Request::GetTask(request) => request.serialize(serializer),
            Request::ListTasks(request) => request.serialize(serializer),
            Request::CancelTask(request) => request.serialize(serializer),
            Request::SubscribeToTask(request) => request.serialize(serializer),
            Request::CreatePushConfig(config) => config.serialize(serializer),
            Request::GetPushConfig(request) => request.serialize(serializer),
            Request::ListPushConfigs(request) => request.serialize(serializer),
            Request::DeletePushConfig(request) => request.serialize(serializer),
            Request::GetExtendedAgentCard(request) => request.serialize(serializer),
        }
    }
}

/// Result of an operation.
pub(super) struct ResponseJson<'a>(pub(super) &'a Response);

impl Serialize for ResponseJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Response::SendMessage(response) => response.serialize(serializer),
            Response::Task(task) => task.serialize(serializer),
            Response::ListTasks(response) => response.serialize(serializer),
            Response::PushConfig(config) => config.serialize(serializer),
            Response::ListPushConfigs(response) => response.serialize(serializer),
            Response::Empty => serializer.serialize_none(),
            Response::AgentCard(card) => card.serialize(serializer),
        }
    }
}

/// Replaces the parameters of a request. Members without a JSON form stay.
///
/// # Errors
/// The JSON has another form.
pub(super) fn change_request(request: &mut Request, changed: &RawValue) -> Result<(), HookError> {
    const MEMBER: &str = "request";
    match request {
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
            let changed = decode::<SendMessageRequest>(changed, MEMBER)?;
            **request = SendMessageRequest {
                alias: request.alias.take(),
                dialect: request.dialect.take(),
                tool_parts: std::mem::take(&mut request.tool_parts),
                ..changed
            };
        }
        Request::GetTask(request) => *request = decode(changed, MEMBER)?,
        Request::ListTasks(request) => *request = decode(changed, MEMBER)?,
        Request::CancelTask(request) => *request = decode(changed, MEMBER)?,
        Request::SubscribeToTask(request) => *request = decode(changed, MEMBER)?,
        Request::CreatePushConfig(config) => **config = decode(changed, MEMBER)?,
        Request::GetPushConfig(request) => {
            let allow_missing_id = request.allow_missing_id;
            *request = decode(changed, MEMBER)?;
            request.allow_missing_id = allow_missing_id;
        }
        Request::ListPushConfigs(request) => *request = decode(changed, MEMBER)?,
        Request::DeletePushConfig(request) => *request = decode(changed, MEMBER)?,
        Request::GetExtendedAgentCard(request) => *request = decode(changed, MEMBER)?,
    }
    Ok(())
}

/// Replaces the result of an operation. An empty result stays.
///
/// # Errors
/// The JSON has another form.
pub(super) fn change_response(
    response: &mut Response,
    changed: &RawValue,
) -> Result<(), HookError> {
    const MEMBER: &str = "response";
    match response {
        Response::SendMessage(response) => *response = decode(changed, MEMBER)?,
        Response::Task(task) => *task = decode(changed, MEMBER)?,
        Response::ListTasks(response) => *response = decode(changed, MEMBER)?,
        Response::PushConfig(config) => *config = decode(changed, MEMBER)?,
        Response::ListPushConfigs(response) => *response = decode(changed, MEMBER)?,
        Response::Empty => {}
        Response::AgentCard(card) => {
            let mut changed: AgentCard = decode(changed, MEMBER)?;
            changed.capabilities.state_transition_history =
                card.capabilities.state_transition_history;
            changed.legacy_interfaces = std::mem::take(&mut card.legacy_interfaces);
            **card = changed;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::{ClientDialect, Message};

    #[test]
    fn a_changed_request_keeps_members_without_a_json_form() {
        let sent = SendMessageRequest {
            alias: Some("mine".into()),
            dialect: Some(ClientDialect::Kaos),
            ..SendMessageRequest::new(Message::user("a"))
        };
        let mut request = Request::SendMessage(Box::new(sent));
        let changed =
            r#"{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "b"}]}}"#;
        let changed = RawValue::from_string(changed.to_owned()).unwrap();
        change_request(&mut request, &changed).unwrap();
        let Request::SendMessage(request) = request else {
            panic!("another kind");
        };
        assert_eq!(request.message.text(), "b");
        assert_eq!(request.alias, Some("mine".into()));
        assert_eq!(request.dialect, Some(ClientDialect::Kaos));
    }
}
