//! Chat completions before every agent: a question is a message to it, on the same log as every other.

mod pieces;

use std::pin::pin;

use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request as HttpRequest, StatusCode};
use hyper::body::Incoming;
use sha2::{Digest, Sha256};

use super::body;
use super::events::Events;
use super::guest::Guest;
use super::incoming::{Told, idempotency_key, let_go};
use super::reply::{self, Body, Reply};
use super::routes::Routes;
use crate::model::{
    Binding, Error, ErrorKind, Message, MessageId, Operation, Request, Response, Result,
    SendMessageResponse, Task, TaskState, Version,
};
use crate::service::{Answer, Resident};
use crate::wire::chat::{
    Answering, Asked, Usage, parts_text, text_of, write_error, write_failure, write_models,
};
use crate::wire::errors::http_status;
use pieces::Pieces;

/// Where questions go, below the root or an agent.
pub(super) const COMPLETIONS: &str = "/v1/chat/completions";
/// Where the agents are listed.
pub(super) const MODELS: &str = "/v1/models";
/// Clients of this kind ask again by themselves unless they are told not to.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Answers a question to the agent at this position, or at the root to the one that it names.
pub(super) async fn answer(
    routes: &Routes,
    at: usize,
    mut guest: Guest,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let (mut head, body) = (*request).into_parts();
    let (operation, binding, version) = (Operation::SendMessage, Binding::HttpJson, Version::V1);
    let told = Told::new(operation, binding, version, &head.headers);
    let caller = guest.caller().clone();
    let answer = told
        .of(
            &caller,
            pin!(served(routes, at, &mut guest, (&mut head, body))),
        )
        .await;
    answer.unwrap_or_else(|error| {
        let resident = routes.directory.at(at).unwrap_or(routes.directory.first());
        refused(routes.refuse(resident, &mut guest, error))
    })
}

/// All agents of a server, or the one at this position.
pub(super) fn models(routes: &Routes, at: usize, mut guest: Guest) -> Reply {
    let resident = routes.directory.at(at).unwrap_or(routes.directory.first());
    if let Err(error) = routes.count(&resident.namespace, &mut guest) {
        return refused(error);
    }
    let mut out = Vec::new();
    match Some(resident).filter(|_| at > 0) {
        Some(one) => write_models(&mut out, [&*one.name]),
        None => write_models(&mut out, routes.directory.names()),
    }
    reply::json(StatusCode::OK, out)
}

/// An error, as clients of this kind understand it.
pub(super) fn refused(error: Error) -> Reply {
    let error = reply::logged(error);
    let mut out = Vec::new();
    write_error(&mut out, &error);
    let status = StatusCode::from_u16(http_status(error.kind(), Version::V1));
    let mut reply = reply::json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), out);
    reply::retry_after(&mut reply, &error);
    reply
}

async fn served(
    routes: &Routes,
    at: usize,
    guest: &mut Guest,
    (head, body): (&mut Parts, Incoming),
) -> Result<Reply> {
    body::check_type(&head.headers)?;
    let body = routes.read(guest, body).await?;
    let asked = Asked::read(&body)?;
    // What came in is let go once it is read: the call may take long.
    drop(body);
    let Some(resident) = addressed(routes, at, asked.model.as_deref()) else {
        routes.count(&routes.directory.first().namespace, guest)?;
        return Ok(no_model(asked.model.as_deref().unwrap_or_default()));
    };
    let (streams, wants_usage) = (asked.stream == Some(true), asked.wants_usage());
    let mut message = asked.into_request()?;
    if let Some(key) = idempotency_key(&head.headers)? {
        message.message.message_id = again(&key);
    }
    let mut request = match streams {
        true => Request::SendStreamingMessage(Box::new(message)),
        false => Request::SendMessage(Box::new(message)),
    };
    let answering = Answering {
        model: resident.name.to_string(),
        created: 0,
        task: None,
        context: None,
    };
    let entered = routes.enter(resident, guest, &head.headers, Version::V1, &mut request)?;
    let_go(head);
    let mut reply = match entered.call(request).await? {
        Answer::One(Response::SendMessage(SendMessageResponse::Task(task))) => {
            of_task(answering, &task)
        }
        Answer::One(Response::SendMessage(SendMessageResponse::Message(message))) => {
            of_message(answering, &message)
        }
        Answer::One(_) | Answer::Task(_) => {
            return Err(Error::internal("an answer of another operation"));
        }
        Answer::Stream(stream) => {
            let pieces = Pieces::new(answering, wants_usage);
            let events = Events::new(
                *stream,
                pieces,
                routes.settings.heartbeat,
                routes.drain.clone(),
            );
            reply::events(Body::Frames(Box::new(events)))
        }
    };
    entered.mark(reply.headers_mut());
    Ok(reply)
}

/// The id of a message that comes under a key. Questions of this kind have none, and one that is asked again under its key is
/// the same message.
fn again(key: &str) -> MessageId {
    let digest = Sha256::digest(key);
    digest
        .iter()
        .take(16)
        .fold(String::new(), |id, byte| format!("{id}{byte:02x}"))
        .into()
}

/// Below an agent it is that one, whatever it is called; at the root the one that is named.
fn addressed<'a>(routes: &'a Routes, at: usize, model: Option<&str>) -> Option<&'a Resident> {
    match model {
        Some(model) if at == 0 => routes.directory.at(routes.directory.position(model)?),
        _ => routes.directory.at(at),
    }
}

fn no_model(model: &str) -> Reply {
    let mut out = Vec::new();
    let why = format!("there is no agent `{model}`; GET {MODELS} lists those that there are");
    write_failure(
        &mut out,
        &why,
        ("invalid_request_error", Some("model"), "model_not_found"),
    );
    reply::json(StatusCode::NOT_FOUND, out)
}

fn of_task(answering: Answering, task: &Task) -> Reply {
    let answering = about(answering, task);
    let mut out = Vec::new();
    if let Some((status, code)) = failed(task.status.state) {
        write_failure(&mut out, &reason(task), ("server_error", None, code));
        let mut reply = reply::json(status, out);
        // It was worked on: asked again it would be worked on again.
        reply
            .headers_mut()
            .insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        return reply;
    }
    answering.write_whole(&mut out, &text_of(task), Usage::of(task.metadata.as_ref()));
    reply::json(StatusCode::OK, out)
}

fn of_message(answering: Answering, message: &Message) -> Reply {
    let context = message.context_id.as_ref().map(ToString::to_string);
    let mut out = Vec::new();
    Answering {
        context,
        ..answering
    }
    .write_whole(&mut out, &parts_text(&message.parts), None);
    reply::json(StatusCode::OK, out)
}

/// What an answer says of the task that it comes from.
fn about(answering: Answering, task: &Task) -> Answering {
    Answering {
        created: task
            .status
            .timestamp
            .map_or(0, |time| time.as_millis() / 1000),
        task: Some(task.id.to_string()),
        context: Some(task.context_id.to_string()),
        ..answering
    }
}

/// What a task that has no answer is to a client of this kind. One that waits for somebody asks in its answer.
fn failed(state: TaskState) -> Option<(StatusCode, &'static str)> {
    match state {
        TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired => None,
        TaskState::Rejected => Some((StatusCode::BAD_REQUEST, "rejected")),
        TaskState::Failed => Some((StatusCode::INTERNAL_SERVER_ERROR, "failed")),
        TaskState::Canceled => Some((StatusCode::INTERNAL_SERVER_ERROR, "canceled")),
        TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
            Some((StatusCode::GATEWAY_TIMEOUT, "still_working"))
        }
    }
}

fn reason(task: &Task) -> String {
    let said = task
        .status
        .message
        .as_ref()
        .map(|message| parts_text(&message.parts));
    said.filter(|said| !said.is_empty())
        .unwrap_or_else(|| match task.status.state {
            TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
                format!("the task {} is still worked on", task.id)
            }
            state => format!("the task has ended: {state}"),
        })
}

/// What is said where a stream was cut.
fn cut() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the stream was cut; the task goes on")
}
