//! Response and event serialization in the dialect of the client.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::card::{CardForm, write_card};
use super::errors::RestError;
use super::fasta2a::Fasta2a;
use super::jsonrpc::{self, JsonRpcId};
use super::kaos::{KaosMessage, KaosTask};
use super::v03::proto_json::{ProtoJsonEvent, V03ProtoJson};
use super::v03::{Audience, V03, V03PushSuccess, V03StatusEventWriter};
use super::{Dialect, fast::encode, sse, write_json};
use crate::model::{
    Error, ListTasksResponse, Operation, Publish, Response, SendMessageResponse, StreamResponse,
    Task, Version,
};

/// Writes the result of a JSON-RPC call, without internal metadata.
///
/// # Errors
/// Unsupported operation: the card has no interface of the requested version.
pub fn write_result(
    out: &mut Vec<u8>,
    response: &Response,
    dialect: &Dialect,
) -> Result<(), Error> {
    if let (Dialect::V03 | Dialect::V03Tools, Response::ListTasks(page)) = (dialect, response) {
        write_json(out, &V03TaskPage(page, dialect));
        return Ok(());
    }
    let response = &*published(response, dialect);
    match dialect {
        Dialect::V1 => write_v1(out, response),
        Dialect::Kaos => write_kaos(out, response),
        Dialect::Fasta2a => return write_fasta2a(out, response),
        Dialect::V03PushSuccess => match response {
            Response::PushConfig(config) => write_json(out, &V03PushSuccess(config)),
            response => return write_v03(out, response, Audience::V03),
        },
        Dialect::V03 => return write_v03(out, response, Audience::V03),
        Dialect::V03Tools => return write_v03(out, response, Audience::Tools),
        Dialect::V01 { alias } => return write_v03(out, response, Audience::V01(alias.as_ref())),
        Dialect::V03Rest => return write_rest(out, response),
    }
    Ok(())
}

/// Returns a value for callers of a dialect, without internal metadata. Parts for clients that run tools keep
/// them: their writer needs them to choose the form, and omits them.
fn published<'a, T: Publish>(value: &'a T, dialect: &Dialect) -> Cow<'a, T> {
    match dialect {
        Dialect::V03Tools => Cow::Borrowed(value),
        Dialect::V1
        | Dialect::Kaos
        | Dialect::Fasta2a
        | Dialect::V03
        | Dialect::V03PushSuccess
        | Dialect::V03Rest
        | Dialect::V01 { .. } => value.published(),
    }
}

/// Writes a task as the result of a call on any JSON binding, like [`write_result`].
pub fn write_task(out: &mut Vec<u8>, task: &Task, dialect: &Dialect) {
    let task = &*published(task, dialect);
    match dialect {
        Dialect::V1 => encode::write_task(out, task),
        Dialect::Kaos => write_json(out, &KaosTask(task)),
        Dialect::Fasta2a => write_json(out, &Fasta2a(task)),
        Dialect::V03 | Dialect::V03PushSuccess => write_json(out, &V03(task, Audience::V03)),
        Dialect::V03Tools => write_json(out, &V03(task, Audience::Tools)),
        Dialect::V01 { alias } => write_json(out, &V03(task, Audience::V01(alias.as_ref()))),
        Dialect::V03Rest => write_json(out, &V03ProtoJson(task)),
    }
}

/// Writes the body of a REST response. An empty response is an empty object.
///
/// # Errors
/// Unsupported operation: the card has no interface of the requested version.
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

fn write_kaos(out: &mut Vec<u8>, response: &Response) {
    match response {
        Response::SendMessage(SendMessageResponse::Task(task)) | Response::Task(task) => {
            write_json(out, &KaosTask(task));
        }
        Response::SendMessage(SendMessageResponse::Message(message)) => {
            write_json(out, &KaosMessage(message));
        }
        // KAOS has no other operations.
        Response::ListTasks(_)
        | Response::PushConfig(_)
        | Response::ListPushConfigs(_)
        | Response::Empty
        | Response::AgentCard(_) => write_v1(out, response),
    }
}

fn write_fasta2a(out: &mut Vec<u8>, response: &Response) -> Result<(), Error> {
    match response {
        Response::SendMessage(response) => write_json(out, &Fasta2a(response)),
        Response::Task(task) => write_json(out, &Fasta2a(task)),
        // Only sends are recognized.
        Response::ListTasks(_)
        | Response::PushConfig(_)
        | Response::ListPushConfigs(_)
        | Response::Empty
        | Response::AgentCard(_) => return write_v03(out, response, Audience::V03),
    }
    Ok(())
}

fn write_v03(out: &mut Vec<u8>, response: &Response, audience: Audience<'_>) -> Result<(), Error> {
    match response {
        Response::SendMessage(SendMessageResponse::Task(task)) | Response::Task(task) => {
            write_json(out, &V03(task, audience))
        }
        Response::SendMessage(SendMessageResponse::Message(message)) => {
            write_json(out, &V03(message, audience))
        }
        Response::ListTasks(page) => write_json(out, &V03TaskPage(page, &Dialect::V03)),
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
        // 0.3 REST cannot list tasks; uses the page of the JSON-RPC alias.
        Response::ListTasks(page) => write_json(out, &V03TaskPage(page, &Dialect::V03)),
        Response::PushConfig(config) => write_json(out, &V03ProtoJson(config)),
        Response::ListPushConfigs(list) => write_json(out, &V03ProtoJson(list)),
        Response::Empty => out.extend_from_slice(b"{}"),
        Response::AgentCard(card) => write_card(out, card, CardForm::V03Wrapped)?,
    }
    Ok(())
}

/// Page of tasks in 0.3 JSON. Each task is in the dialect of its client.
struct V03TaskPage<'a>(&'a ListTasksResponse, &'a Dialect);

impl Serialize for V03TaskPage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(page, dialect) = self;
        let audience = |task: &Task| match (*dialect).clone().for_task(task) {
            Dialect::V03Tools => Audience::Tools,
            _ => Audience::V03,
        };
        // The published task has lost the dialect of its client.
        let tasks: Vec<_> = page
            .tasks
            .iter()
            .map(|task| match audience(task) {
                Audience::Tools => (Cow::Borrowed(task), Audience::Tools),
                audience => (task.published(), audience),
            })
            .collect();
        let tasks: Vec<_> = tasks
            .iter()
            .map(|(task, audience)| V03(&**task, *audience))
            .collect();
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("tasks", &tasks)?;
        map.serialize_entry("nextPageToken", &page.next_page_token)?;
        map.serialize_entry("pageSize", &page.page_size)?;
        map.serialize_entry("totalSize", &page.total_size)?;
        map.end()
    }
}

/// Writes a stream event, without internal metadata. `closes` marks the last event, which 0.3 sends as `final`.
pub fn write_event(out: &mut Vec<u8>, event: &StreamResponse, closes: bool, dialect: &Dialect) {
    let event = &*published(event, dialect);
    let audience = match dialect {
        Dialect::V1 => {
            return match event {
                StreamResponse::Task(task) => encode::write_wrapped_task(out, task),
                event => write_json(out, event),
            };
        }
        Dialect::V03Rest => return write_json(out, &ProtoJsonEvent { event, closes }),
        Dialect::Fasta2a => return write_json(out, &Fasta2a(event)),
        Dialect::V03 | Dialect::V03PushSuccess => Audience::V03,
        Dialect::Kaos => Audience::Kaos,
        Dialect::V03Tools => Audience::Tools,
        Dialect::V01 { alias } => Audience::V01(alias.as_ref()),
    };
    match event {
        StreamResponse::Task(task) => write_json(out, &V03(task, audience)),
        StreamResponse::Message(message) => write_json(out, &V03(message, audience)),
        StreamResponse::StatusUpdate(event) => write_json(
            out,
            &V03StatusEventWriter {
                event,
                closes,
                audience,
            },
        ),
        StreamResponse::ArtifactUpdate(event) => write_json(out, &V03(event, audience)),
    }
}

/// Returns the bytes before and after the result of [`write_task`] that make it the event of [`write_event`]. `None`:
/// the event has the task in another form.
#[must_use]
pub fn task_event_envelope(dialect: &Dialect) -> Option<(&'static [u8], &'static [u8])> {
    match dialect {
        Dialect::V1 | Dialect::V03Rest => Some((br#"{"task":"#, b"}")),
        Dialect::V03 | Dialect::V03Tools | Dialect::V03PushSuccess | Dialect::V01 { .. } => {
            Some((b"", b""))
        }
        Dialect::Fasta2a | Dialect::Kaos => None,
    }
}

/// Writes the SSE frame for an error after the stream started. `id` is the JSON-RPC request id;
/// `None` on REST.
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
        // 0.3 clients may deliver plain events only (01 §6).
        Version::V03 => sse::write_event(out, None, &data),
    }
}

/// Whether a rejection is sent as the only event of a stream. 0.3 JSON-RPC stream clients read
/// nothing else (01 §6).
#[must_use]
pub fn rejects_in_stream(operation: Operation, version: Version) -> bool {
    let streams = matches!(
        operation,
        Operation::SendStreamingMessage | Operation::SubscribeToTask
    );
    streams && version == Version::V03
}

/// Returns the media type of a REST response. `names_a2a` tells whether the client accepts that of
/// 1.0 (01 §4).
#[must_use]
pub fn rest_content_type(names_a2a: bool, version: Version) -> &'static str {
    match version {
        Version::V1 if names_a2a => A2A_JSON,
        Version::V1 | Version::V03 => "application/json",
    }
}

/// Payload of push notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushPayload {
    /// Status and artifact updates, as in a stream.
    Update,
    /// Whole task after every change of state.
    Task,
}

/// Returns the payload for webhooks that were registered in this version (05 §5).
#[must_use]
pub fn push_payload(version: Version) -> PushPayload {
    match version {
        Version::V1 => PushPayload::Update,
        Version::V03 => PushPayload::Task,
    }
}

/// Media type of 1.0.
pub const A2A_JSON: &str = "application/a2a+json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d03_the_event_of_a_task_is_the_task_in_its_envelope() {
        let task = Task {
            id: "t".into(),
            context_id: "c".into(),
            ..Task::default()
        };
        for dialect in [
            Dialect::V1,
            Dialect::V03,
            Dialect::V03Rest,
            Dialect::V03Tools,
        ] {
            let (before, after) = task_event_envelope(&dialect).unwrap();
            let mut pieces = before.to_vec();
            write_task(&mut pieces, &task, &dialect);
            pieces.extend_from_slice(after);
            let mut event = Vec::new();
            write_event(
                &mut event,
                &StreamResponse::Task(task.clone()),
                false,
                &dialect,
            );
            assert_eq!(pieces, event, "{dialect:?}");
        }
    }
}
