//! Response and event deserialization for clients.
//!
//! Detects the form of each object separately: wrapped or bare, with or without `kind`, in the
//! spelling of any version.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Dialect;
use super::card::read_card_text;
use super::errors::{read_jsonrpc_error, read_rest_error};
use super::json::{check_nesting, prefix_field, read, read_v1_only};
use super::jsonrpc;
use super::v03::{V03ArtifactEvent, V03Message, V03PushConfig, V03StatusEvent, V03Task};
use crate::model::{
    Error, ErrorKind, ListPushConfigsResponse, ListTasksResponse, Message, Operation, PushConfig,
    Response, Role, SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
};

/// Reads the response to an operation from any peer. `dialect` is that of the request.
///
/// # Errors
/// Invalid agent response.
pub fn read_response(
    operation: Operation,
    text: &str,
    dialect: &Dialect,
) -> Result<Response, Error> {
    check_nesting(text.as_bytes())?;
    read_any_response(operation, text, dialect).map_err(into_invalid_agent_response)
}

/// Converts a parse or validation error of a peer's response to an invalid-agent-response error.
/// The caller of this process is not at fault.
#[must_use]
pub fn into_invalid_agent_response(error: Error) -> Error {
    let kind = error.kind();
    if !matches!(
        kind,
        ErrorKind::InvalidParams | ErrorKind::InvalidRequest | ErrorKind::Parse
    ) {
        return error;
    }
    let rule = match error.message().strip_prefix(kind.message()) {
        Some("") if kind == ErrorKind::Parse => ": not JSON",
        rule => rule.unwrap_or_default(),
    };
    let message = format!("{}{rule}", ErrorKind::InvalidAgentResponse.message());
    let fault = Error::new(ErrorKind::InvalidAgentResponse).with_message(message);
    error
        .violations()
        .iter()
        .cloned()
        .fold(fault, Error::with_violation)
}

fn read_any_response(
    operation: Operation,
    text: &str,
    dialect: &Dialect,
) -> Result<Response, Error> {
    Ok(match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            Response::SendMessage(match read_any_event(text, dialect)? {
                StreamResponse::Task(task) => SendMessageResponse::Task(task),
                StreamResponse::Message(message) => SendMessageResponse::Message(message),
                StreamResponse::StatusUpdate(_) | StreamResponse::ArtifactUpdate(_) => {
                    return Err(invalid_agent_response(
                        "expected a task or a message, found an event",
                    ));
                }
            })
        }
        Operation::GetTask | Operation::CancelTask | Operation::SubscribeToTask => {
            match read_event(text, dialect)? {
                StreamResponse::Task(task) => Response::Task(task),
                StreamResponse::Message(_)
                | StreamResponse::StatusUpdate(_)
                | StreamResponse::ArtifactUpdate(_) => {
                    return Err(invalid_agent_response("expected a task"));
                }
            }
        }
        Operation::ListTasks => Response::ListTasks(read_task_page(text, dialect)?),
        Operation::CreatePushConfig | Operation::GetPushConfig => {
            Response::PushConfig(read_push_config(text)?)
        }
        Operation::ListPushConfigs => Response::ListPushConfigs(read_push_configs(text)?),
        // Success in every form; peers disagree on the content.
        Operation::DeletePushConfig => Response::Empty,
        Operation::GetExtendedAgentCard => Response::AgentCard(Box::new(read_card_text(text)?)),
    })
}

fn invalid_agent_response(detail: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message(format!("Invalid agent response: {detail}"))
}

/// Members that identify the type of an object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventShape<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    task: Option<&'a RawValue>,
    #[serde(borrow, alias = "msg")]
    message: Option<&'a RawValue>,
    #[serde(borrow, alias = "status_update")]
    status_update: Option<&'a RawValue>,
    #[serde(borrow, alias = "artifact_update")]
    artifact_update: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, alias = "task_id")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "final")]
    closes: Option<&'a RawValue>,
    #[serde(borrow)]
    artifact: Option<&'a RawValue>,
    #[serde(borrow)]
    part: Option<&'a RawValue>,
    #[serde(borrow, alias = "content")]
    parts: Option<&'a RawValue>,
    #[serde(borrow, alias = "message_id")]
    message_id: Option<&'a RawValue>,
    /// Only in tasks of KAOS (09, 0.9).
    #[serde(borrow)]
    session_id: Option<&'a RawValue>,
}

impl EventShape<'_> {
    /// Whether no member of a bare object is present. `kind` then only accompanies a wrapper.
    fn has_only_kind(&self) -> bool {
        [
            self.status,
            self.id,
            self.task_id,
            self.artifact,
            self.part,
            self.parts,
            self.message_id,
        ]
        .iter()
        .all(Option::is_none)
    }
}

/// Reads a stream event or the body of a push notification.
///
/// # Errors
/// Invalid agent response.
pub fn read_event(text: &str, dialect: &Dialect) -> Result<StreamResponse, Error> {
    check_nesting(text.as_bytes())?;
    read_any_event(text, dialect).map_err(into_invalid_agent_response)
}

/// Reads an event of a JSON-RPC stream from its SSE name and data: a response whose result is the
/// event, or an error.
///
/// # Errors
/// The error from the peer, or an invalid agent response.
pub fn read_jsonrpc_event(
    name: Option<&str>,
    data: &str,
    dialect: &Dialect,
) -> Result<StreamResponse, Error> {
    let answer = jsonrpc::read_response(data.as_bytes()).map_err(into_invalid_agent_response)?;
    match (answer.result, name) {
        (Err(error), _) => Err(error),
        (Ok(_), Some("error")) => Err(read_jsonrpc_error(data)),
        (Ok(result), _) => read_event(result, dialect),
    }
}

/// Reads an event of a REST stream from its SSE name and data: the event itself, or an error.
///
/// # Errors
/// The error from the peer, or an invalid agent response.
pub fn read_rest_event(
    name: Option<&str>,
    data: &str,
    dialect: &Dialect,
) -> Result<StreamResponse, Error> {
    #[derive(Deserialize)]
    struct RestFault {
        error: Option<Code>,
    }
    #[derive(Deserialize)]
    struct Code {
        code: Option<u16>,
    }
    check_nesting(data.as_bytes()).map_err(into_invalid_agent_response)?;
    let fault = serde_json::from_str::<RestFault>(data)
        .ok()
        .and_then(|fault| fault.error);
    if name == Some("error") || fault.is_some() {
        return Err(read_rest_error(
            fault.and_then(|fault| fault.code).unwrap_or(500),
            data,
        ));
    }
    read_event(data, dialect)
}

fn read_any_event(text: &str, dialect: &Dialect) -> Result<StreamResponse, Error> {
    if *dialect == Dialect::V1
        && let Some(event) = read_exact_v1(text)
    {
        return Ok(event);
    }
    let shape: EventShape<'_> = read(text)?;
    let wrapped = [
        shape.task,
        shape.message,
        shape.status_update,
        shape.artifact_update,
    ];
    let wraps = shape.kind.is_none() || shape.has_only_kind();
    match (wraps, wrapped.iter().flatten().count()) {
        (true, 2..) => {
            return Err(Error::invalid(
                "",
                "must have exactly one of task, message, statusUpdate, artifactUpdate",
            ));
        }
        (true, 1) => return read_wrapped(&shape, dialect),
        _ => {}
    }
    // Bare objects are 0.x, even in a response to a 1.0 request.
    let dialect = if *dialect == Dialect::V1 {
        &Dialect::V03
    } else {
        dialect
    };
    match shape.kind.as_deref().or_else(|| guess_kind(&shape)) {
        Some("task") => read_task(text, dialect).map(StreamResponse::Task),
        Some("message") => read_message(text, dialect).map(StreamResponse::Message),
        Some("status-update") => read_status(text, dialect).map(StreamResponse::StatusUpdate),
        Some("artifact-update") => read_artifact(text, dialect).map(StreamResponse::ArtifactUpdate),
        Some(_) | None => Err(invalid_agent_response(
            "expected a task, a message or an event",
        )),
    }
}

/// Fast path for exact 1.0 events: one pass, no shape detection. Returns `None` for everything
/// else; the general path then reports errors.
fn read_exact_v1(text: &str) -> Option<StreamResponse> {
    let mut event: StreamResponse = read_v1_only(text)?;
    match &mut event {
        StreamResponse::Task(task) => task.default_role_to_agent(),
        StreamResponse::Message(message) => message.default_role_to_agent(),
        StreamResponse::StatusUpdate(event) => event.default_role_to_agent(),
        StreamResponse::ArtifactUpdate(event) => event.default_role_to_agent(),
    }
    Some(event)
}

fn read_wrapped(shape: &EventShape<'_>, dialect: &Dialect) -> Result<StreamResponse, Error> {
    if let Some(task) = shape.task {
        return read_task(task.get(), dialect)
            .map(StreamResponse::Task)
            .map_err(|error| prefix_field("task", error));
    }
    if let Some(message) = shape.message {
        let read = read_message(message.get(), dialect);
        return read
            .map(StreamResponse::Message)
            .map_err(|error| prefix_field("message", error));
    }
    if let Some(event) = shape.status_update {
        let read = read_status(event.get(), dialect);
        return read
            .map(StreamResponse::StatusUpdate)
            .map_err(|error| prefix_field("statusUpdate", error));
    }
    let event = shape.artifact_update.map_or("null", RawValue::get);
    read_artifact(event, dialect)
        .map(StreamResponse::ArtifactUpdate)
        .map_err(|error| prefix_field("artifactUpdate", error))
}

fn guess_kind(shape: &EventShape<'_>) -> Option<&'static str> {
    if shape.artifact.is_some() || shape.part.is_some() {
        return Some("artifact-update");
    }
    if shape.status.is_some() {
        let event = shape.task_id.is_some() || shape.closes.is_some() && shape.session_id.is_none();
        return Some(if event { "status-update" } else { "task" });
    }
    if shape.parts.is_some() || shape.message_id.is_some() {
        return Some("message");
    }
    shape.id.map(|_| "task")
}

/// Reads in the requested dialect, and on failure in the most lenient one.
macro_rules! reader {
    ($name:ident, $model:ty, $old:ident) => {
        fn $name(text: &str, dialect: &Dialect) -> Result<$model, Error> {
            let mut value: $model = match dialect {
                Dialect::V1 if !is_pre_v1(text) => read::<$model>(text).or_else(|error| {
                    read::<$old<false>>(text)
                        .map(|old| old.0)
                        .map_err(|_| error)
                })?,
                Dialect::V1
                | Dialect::V03
                | Dialect::V03Tools
                | Dialect::V03PushSuccess
                | Dialect::Fasta2a
                | Dialect::Kaos
                | Dialect::V01 { .. } => read::<$old<false>>(text)?.0,
                Dialect::V03Rest if has_member(text, "kind") => read::<$old<false>>(text)?.0,
                Dialect::V03Rest => read::<$old<true>>(text)?.0,
            };
            value.default_role_to_agent();
            Ok(value)
        }
    };
}

reader!(read_task, Task, V03Task);
reader!(read_message, Message, V03Message);
reader!(read_status, TaskStatusUpdateEvent, V03StatusEvent);
reader!(read_artifact, TaskArtifactUpdateEvent, V03ArtifactEvent);

/// Whether an object in a 1.0 response has members of an older version.
fn is_pre_v1(text: &str) -> bool {
    has_member(text, "kind") || has_member(text, "sessionId")
}

fn has_member(text: &str, name: &str) -> bool {
    serde_json::from_str::<crate::model::Object>(text)
        .is_ok_and(|object| object.get(name).is_some())
}

/// Sets a missing role. Some peers omit it; in a response the sender is the agent.
trait DefaultRole {
    fn default_role_to_agent(&mut self);
}

impl DefaultRole for Message {
    fn default_role_to_agent(&mut self) {
        if self.role == Role::Unspecified {
            self.role = Role::Agent;
        }
    }
}

impl DefaultRole for Task {
    fn default_role_to_agent(&mut self) {
        for message in self
            .status
            .message
            .iter_mut()
            .filter(|message| message.role == Role::Unspecified)
        {
            std::sync::Arc::make_mut(message).default_role_to_agent();
        }
    }
}

impl DefaultRole for TaskStatusUpdateEvent {
    fn default_role_to_agent(&mut self) {
        for message in self
            .status
            .message
            .iter_mut()
            .filter(|message| message.role == Role::Unspecified)
        {
            std::sync::Arc::make_mut(message).default_role_to_agent();
        }
    }
}

impl DefaultRole for TaskArtifactUpdateEvent {
    fn default_role_to_agent(&mut self) {}
}

fn read_task_page(text: &str, dialect: &Dialect) -> Result<ListTasksResponse, Error> {
    #[derive(Deserialize)]
    struct TaskPage<'a> {
        #[serde(borrow)]
        tasks: Option<Vec<&'a RawValue>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Numbers {
        #[serde(
            default,
            alias = "next_page_token",
            deserialize_with = "crate::model::or_default"
        )]
        next_page_token: String,
        #[serde(default, alias = "page_size", deserialize_with = "crate::model::int32")]
        page_size: Option<i32>,
        #[serde(
            default,
            alias = "total_size",
            deserialize_with = "crate::model::int32"
        )]
        total_size: Option<i32>,
    }
    let tasks = read::<TaskPage<'_>>(text)?.tasks.unwrap_or_default();
    let numbers: Numbers = read(text)?;
    Ok(ListTasksResponse {
        tasks: tasks
            .into_iter()
            .map(|task| read_task(task.get(), dialect))
            .collect::<Result<_, _>>()?,
        next_page_token: numbers.next_page_token,
        page_size: numbers.page_size.unwrap_or_default(),
        total_size: numbers.total_size.unwrap_or_default(),
    })
}

/// Reads a push configuration, flat or nested. One implementation returns only `{"success": true}`
/// (09, 3.12).
fn read_push_config(text: &str) -> Result<PushConfig, Error> {
    if has_member(text, "pushNotificationConfig") || has_member(text, "push_notification_config") {
        return Ok(read::<V03PushConfig>(text)?.0);
    }
    read(text).or_else(|error| {
        read::<V03PushConfig>(text)
            .map(|config| config.0)
            .map_err(|_| error)
    })
}

/// Reads the push configurations of a task: an object or a bare array.
fn read_push_configs(text: &str) -> Result<ListPushConfigsResponse, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PushConfigList<'a> {
        #[serde(borrow)]
        configs: Option<Vec<&'a RawValue>>,
        #[serde(
            default,
            alias = "next_page_token",
            deserialize_with = "crate::model::or_default"
        )]
        next_page_token: String,
    }
    let list = if text.trim_start().starts_with('[') {
        PushConfigList {
            configs: Some(read(text)?),
            next_page_token: String::new(),
        }
    } else {
        read::<PushConfigList<'_>>(text)?
    };
    let configs = list
        .configs
        .into_iter()
        .flatten()
        .map(|config| read_push_config(config.get()))
        .collect::<Result<_, _>>()?;
    Ok(ListPushConfigsResponse {
        configs,
        next_page_token: list.next_page_token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: &str = r#"{"code":404,"message":"gone","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","domain":"a2a-protocol.org","reason":"TASK_NOT_FOUND"}]}"#;

    fn kinds(name: Option<&str>, data: &str) -> (ErrorKind, ErrorKind) {
        let jsonrpc = read_jsonrpc_event(name, data, &Dialect::V1).unwrap_err();
        let rest = read_rest_event(name, data, &Dialect::V1).unwrap_err();
        (jsonrpc.kind(), rest.kind())
    }

    #[test]
    fn stream_errors_are_read_with_and_without_event_name() {
        let jsonrpc = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"gone"}}"#;
        let rest = format!(r#"{{"error":{FAULT}}}"#);
        for name in [None, Some("error")] {
            assert_eq!(kinds(name, jsonrpc).0, ErrorKind::TaskNotFound);
            assert_eq!(kinds(name, &rest).1, ErrorKind::TaskNotFound);
        }
        let status = r#"{"error":{"code":503,"message":"later"}}"#;
        assert_eq!(kinds(None, status).1, ErrorKind::Unavailable);
        assert_eq!(
            kinds(Some("error"), r#"{"code":-32002,"message":"no"}"#),
            (ErrorKind::TaskNotCancelable, ErrorKind::Internal)
        );
    }

    #[test]
    fn invalid_events_are_invalid_agent_responses() {
        let deep = "[".repeat(200);
        for data in [
            "",
            "{}",
            "null",
            "[]",
            "nope",
            r#"{"jsonrpc":"2.0","id":1}"#,
            &deep,
        ] {
            assert_eq!(
                kinds(None, data),
                (
                    ErrorKind::InvalidAgentResponse,
                    ErrorKind::InvalidAgentResponse
                ),
                "{data}"
            );
        }
    }
}
