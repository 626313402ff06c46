//! Writing answers and events in the dialect of the caller.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::card::{CardForm, write_card};
use super::errors::RestError;
use super::jsonrpc::{self, JsonRpcId};
use super::v03::proto_json::{ProtoJsonEvent, V03ProtoJson};
use super::v03::{Audience, V03, V03StatusEventWriter};
use super::{Dialect, fast::encode, sse, write_json};
use crate::model::{
    Error, ListTasksResponse, Operation, Response, SendMessageResponse, StreamResponse, Task,
    Version,
};

/// Writes the result of a JSON-RPC call.
///
/// # Errors
/// Unsupported: a card was asked for in a version that its agent does not speak.
pub fn write_result(
    out: &mut Vec<u8>,
    response: &Response,
    dialect: &Dialect,
) -> Result<(), Error> {
    match dialect {
        Dialect::V1 => write_v1(out, response),
        Dialect::V03 => return write_v03(out, response, Audience::V03),
        Dialect::V03Tools => return write_v03(out, response, Audience::Tools),
        Dialect::V01 { alias } => return write_v03(out, response, Audience::V01(alias.as_ref())),
        Dialect::V03Rest => return write_rest(out, response),
    }
    Ok(())
}

/// Writes a task that is the result of a call on any JSON binding, as [`write_result`] does.
pub fn write_task(out: &mut Vec<u8>, task: &Task, dialect: &Dialect) {
    match dialect {
        Dialect::V1 => encode::write_task(out, task),
        Dialect::V03 => write_json(out, &V03(task, Audience::V03)),
        Dialect::V03Tools => write_json(out, &V03(task, Audience::Tools)),
        Dialect::V01 { alias } => write_json(out, &V03(task, Audience::V01(alias.as_ref()))),
        Dialect::V03Rest => write_json(out, &V03ProtoJson(task)),
    }
}

/// Writes the body of a REST reply; what has nothing to say is an empty object there.
///
/// # Errors
/// Unsupported: a card was asked for in a version that its agent does not speak.
pub fn write_body(out: &mut Vec<u8>, response: &Response, dialect: &Dialect) -> Result<(), Error> {
    match response {
        Response::Empty => {
            out.extend_from_slice(b"{}");
            Ok(())
        }
        response => write_result(out, response, dialect),
    }
}

fn write_v1(out: &mut Vec<u8>, response: &Response) {
    match response {
        Response::SendMessage(response) => encode::write_send_response(out, response),
        Response::Task(task) => encode::write_task(out, task),
        Response::ListTasks(page) => write_json(out, page),
        Response::PushConfig(config) => write_json(out, config),
        Response::ListPushConfigs(list) => write_json(out, list),
        Response::Empty => out.extend_from_slice(b"null"),
        Response::AgentCard(card) => write_json(out, &**card),
    }
}

fn write_v03(out: &mut Vec<u8>, response: &Response, audience: Audience<'_>) -> Result<(), Error> {
    match response {
        Response::SendMessage(SendMessageResponse::Task(task)) | Response::Task(task) => {
            write_json(out, &V03(task, audience))
        }
        Response::SendMessage(SendMessageResponse::Message(message)) => {
            write_json(out, &V03(message, audience))
        }
        Response::ListTasks(page) => write_json(out, &V03TaskPage(page, audience)),
        Response::PushConfig(config) => write_json(out, &V03(config, audience)),
        Response::ListPushConfigs(list) => {
            let configs: Vec<_> = list
                .configs
                .iter()
                .map(|config| V03(config, audience))
                .collect();
            write_json(out, &configs);
        }
        Response::Empty => out.extend_from_slice(b"null"),
        Response::AgentCard(card) => write_card(out, card, CardForm::V03)?,
    }
    Ok(())
}

fn write_rest(out: &mut Vec<u8>, response: &Response) -> Result<(), Error> {
    match response {
        Response::SendMessage(response) => write_json(out, &V03ProtoJson(response)),
        Response::Task(task) => write_json(out, &V03ProtoJson(task)),
        // No 0.3 REST client lists tasks; the page is the one of the alias in JSON-RPC.
        Response::ListTasks(page) => write_json(out, &V03TaskPage(page, Audience::V03)),
        Response::PushConfig(config) => write_json(out, &V03ProtoJson(config)),
        Response::ListPushConfigs(list) => write_json(out, &V03ProtoJson(list)),
        Response::Empty => out.extend_from_slice(b"{}"),
        Response::AgentCard(card) => write_card(out, card, CardForm::V03Wrapped)?,
    }
    Ok(())
}

/// A page of tasks, each as 0.3 writes it.
struct V03TaskPage<'a>(&'a ListTasksResponse, Audience<'a>);

impl Serialize for V03TaskPage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(page, audience) = self;
        let tasks: Vec<_> = page.tasks.iter().map(|task| V03(task, *audience)).collect();
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("tasks", &tasks)?;
        map.serialize_entry("nextPageToken", &page.next_page_token)?;
        map.serialize_entry("pageSize", &page.page_size)?;
        map.serialize_entry("totalSize", &page.total_size)?;
        map.end()
    }
}

/// Writes an event of a stream; `closes` says whether the stream ends with it, which 0.3 wants to know.
pub fn write_event(out: &mut Vec<u8>, event: &StreamResponse, closes: bool, dialect: &Dialect) {
    let audience = match dialect {
        Dialect::V1 => {
            return match event {
                StreamResponse::Task(task) => encode::write_wrapped_task(out, task),
                event => write_json(out, event),
            };
        }
        Dialect::V03Rest => return write_json(out, &ProtoJsonEvent(event, closes)),
        Dialect::V03 => Audience::V03,
        Dialect::V03Tools => Audience::Tools,
        Dialect::V01 { alias } => Audience::V01(alias.as_ref()),
    };
    match event {
        StreamResponse::Task(task) => write_json(out, &V03(task, audience)),
        StreamResponse::Message(message) => write_json(out, &V03(message, audience)),
        StreamResponse::StatusUpdate(event) => {
            write_json(out, &V03StatusEventWriter(event, closes, audience))
        }
        StreamResponse::ArtifactUpdate(event) => write_json(out, &V03(event, audience)),
    }
}

/// Writes the frame that tells of a failure after a stream has begun; `id` is the call that is answered, in JSON-RPC.
pub fn write_stream_error(
    out: &mut Vec<u8>,
    error: &Error,
    id: Option<&JsonRpcId<'_>>,
    version: Version,
) {
    let mut data = Vec::new();
    match id {
        Some(id) => jsonrpc::write_error(&mut data, id, error, version),
        None => write_json(&mut data, &RestError(error, version)),
    }
    match version {
        Version::V1 => sse::write_error(out, &data),
        // 01 §6: readers of 0.3 may deliver plain events only.
        Version::V03 => sse::write_event(out, None, &data),
    }
}

/// Whether a refusal comes as the one event of a stream: the stream client of 0.3 JSON-RPC reads nothing else (01 §6).
#[must_use]
pub fn rejects_in_stream(operation: Operation, version: Version) -> bool {
    let streams = matches!(
        operation,
        Operation::SendStreamingMessage | Operation::SubscribeToTask
    );
    streams && version == Version::V03
}

/// The media type of a REST answer, by whether the client named that of 1.0 (01 §4).
#[must_use]
pub fn rest_content_type(names_a2a: bool, version: Version) -> &'static str {
    match version {
        Version::V1 if names_a2a => A2A_JSON,
        Version::V1 | Version::V03 => "application/json",
    }
}

/// What a webhook is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushPayload {
    /// Each status and each artifact, as a stream has them.
    Update,
    /// The whole task, whenever its state changes.
    Task,
}

/// What a webhook that was registered in this version is sent (05 §5).
#[must_use]
pub fn push_payload(version: Version) -> PushPayload {
    match version {
        Version::V1 => PushPayload::Update,
        Version::V03 => PushPayload::Task,
    }
}

/// The media type that 1.0 has for itself.
pub const A2A_JSON: &str = "application/a2a+json";
