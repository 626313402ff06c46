//! Writing answers and events in the dialect of the caller.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::card::{CardForm, write_card};
use super::v03::rest::{Event, Proto};
use super::v03::{Age, StatusEventOut, V03};
use super::{Dialect, write};
use crate::model::{Error, ListTasksResponse, Response, SendMessageResponse, StreamResponse};

/// Writes the result of a JSON-RPC call.
///
/// # Errors
/// Unsupported: a card was asked for in a version that its agent does not speak.
pub fn write_result(out: &mut Vec<u8>, response: &Response, dialect: &Dialect) -> Result<(), Error> {
    match dialect {
        Dialect::V1 => write_v1(out, response),
        Dialect::V03 => return write_v03(out, response, Age::Today),
        Dialect::V01 { alias } => return write_v03(out, response, Age::First(alias.as_ref())),
        Dialect::V03Rest => return write_rest(out, response),
    }
    Ok(())
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
        Response::SendMessage(response) => write(out, response),
        Response::Task(task) => write(out, task),
        Response::ListTasks(page) => write(out, page),
        Response::PushConfig(config) => write(out, config),
        Response::ListPushConfigs(list) => write(out, list),
        Response::Empty => out.extend_from_slice(b"null"),
        Response::AgentCard(card) => write(out, &**card),
    }
}

fn write_v03(out: &mut Vec<u8>, response: &Response, age: Age<'_>) -> Result<(), Error> {
    match response {
        Response::SendMessage(SendMessageResponse::Task(task)) | Response::Task(task) => {
            write(out, &V03(task, age))
        }
        Response::SendMessage(SendMessageResponse::Message(message)) => write(out, &V03(message, age)),
        Response::ListTasks(page) => write(out, &Page(page, age)),
        Response::PushConfig(config) => write(out, &V03(config, age)),
        Response::ListPushConfigs(list) => {
            let configs: Vec<_> = list.configs.iter().map(|config| V03(config, age)).collect();
            write(out, &configs);
        }
        Response::Empty => out.extend_from_slice(b"null"),
        Response::AgentCard(card) => write_card(out, card, CardForm::V03)?,
    }
    Ok(())
}

fn write_rest(out: &mut Vec<u8>, response: &Response) -> Result<(), Error> {
    match response {
        Response::SendMessage(response) => write(out, &Proto(response)),
        Response::Task(task) => write(out, &Proto(task)),
        // No 0.3 REST client lists tasks; the page is the one of the alias in JSON-RPC.
        Response::ListTasks(page) => write(out, &Page(page, Age::Today)),
        Response::PushConfig(config) => write(out, &Proto(config)),
        Response::ListPushConfigs(list) => write(out, &Proto(list)),
        Response::Empty => out.extend_from_slice(b"{}"),
        Response::AgentCard(card) => write_card(out, card, CardForm::V03Wrapped)?,
    }
    Ok(())
}

/// A page of tasks, each as 0.3 writes it.
struct Page<'a>(&'a ListTasksResponse, Age<'a>);

impl Serialize for Page<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(page, age) = self;
        let tasks: Vec<_> = page.tasks.iter().map(|task| V03(task, *age)).collect();
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
    let age = match dialect {
        Dialect::V1 => return write(out, event),
        Dialect::V03Rest => return write(out, &Event(event, closes)),
        Dialect::V03 => Age::Today,
        Dialect::V01 { alias } => Age::First(alias.as_ref()),
    };
    match event {
        StreamResponse::Task(task) => write(out, &V03(task, age)),
        StreamResponse::Message(message) => write(out, &V03(message, age)),
        StreamResponse::StatusUpdate(event) => write(out, &StatusEventOut(event, closes, age)),
        StreamResponse::ArtifactUpdate(event) => write(out, &V03(event, age)),
    }
}
