//! Chat completions before every agent: a question is a message to it, on the same log as every other.

mod encoder;

use std::pin::pin;

use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request as HttpRequest, StatusCode};
use hyper::body::Incoming;
use sha2::{Digest, Sha256};

use crate::model::{
    Binding, Error, ErrorKind, Message, MessageId, Operation, Request, Response, Result,
    SendMessageResponse, Task, TaskState, Version,
};
use crate::server::admission::RequestContext;
use crate::server::body;
use crate::server::call_headers::{CallSpan, idempotency_key, release_head};
use crate::server::reply::{self, Reply, ReplyBody};
use crate::server::routes::Routes;
use crate::server::sse_body::SseBody;
use crate::service::{AgentEntry, ServiceResponse};
use crate::wire::errors::http_status;
use crate::wire::openai::{
    ChatCompletionRequest, CompletionUsage, CompletionWriter, OpenAiError, parts_text, task_text,
    write_error, write_models,
};
use encoder::CompletionEncoder;

/// Where questions go, below the root or an agent.
pub(in crate::server) const COMPLETIONS_PATH: &str = "/v1/chat/completions";
/// Where the agents are listed.
pub(in crate::server) const MODELS_PATH: &str = "/v1/models";
/// Clients of this kind ask again by themselves unless they are told not to.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Answers a question to the agent at this position, or at the root to the one that it names.
pub(in crate::server) async fn handle(
    routes: &Routes,
    index: usize,
    mut context: RequestContext,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let (mut head, body) = (*request).into_parts();
    let (operation, binding, version) = (Operation::SendMessage, Binding::HttpJson, Version::V1);
    let span = CallSpan::new(operation, binding, version, &head.headers);
    let caller = context.caller().clone();
    let result = span
        .instrument(
            &caller,
            pin!(execute(routes, index, &mut context, (&mut head, body))),
        )
        .await;
    result.unwrap_or_else(|error| {
        let agent = routes
            .directory
            .get(index)
            .unwrap_or(routes.directory.root());
        error_reply(routes.charge_rejection(agent, &mut context, error))
    })
}

/// All agents of a server, or the one at this position.
pub(in crate::server) fn list_models(
    routes: &Routes,
    index: usize,
    mut context: RequestContext,
) -> Reply {
    let agent = routes
        .directory
        .get(index)
        .unwrap_or(routes.directory.root());
    if let Err(error) = routes.check_rate_limit(&agent.namespace, &mut context) {
        return error_reply(error);
    }
    let mut out = Vec::new();
    match Some(agent).filter(|_| index > 0) {
        Some(one) => write_models(&mut out, [&*one.name]),
        None => write_models(&mut out, routes.directory.names()),
    }
    reply::json(StatusCode::OK, out)
}

/// An error, as clients of this kind understand it.
pub(in crate::server) fn error_reply(error: Error) -> Reply {
    let error = reply::log_failure(error);
    let mut out = Vec::new();
    write_error(&mut out, &error);
    let status = StatusCode::from_u16(http_status(error.kind(), Version::V1));
    let mut reply = reply::json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), out);
    reply::set_retry_after(&mut reply, &error);
    reply
}

async fn execute(
    routes: &Routes,
    index: usize,
    context: &mut RequestContext,
    (head, body): (&mut Parts, Incoming),
) -> Result<Reply> {
    body::check_content_type(&head.headers)?;
    let body = routes.read_body(context, body).await?;
    let completion = ChatCompletionRequest::parse(&body)?;
    // What came in is let go once it is read: the call may take long.
    drop(body);
    let Some(agent) = resolve_model(routes, index, completion.model.as_deref()) else {
        routes.check_rate_limit(&routes.directory.root().namespace, context)?;
        return Ok(model_not_found(
            completion.model.as_deref().unwrap_or_default(),
        ));
    };
    let (streams, includes_usage) = (completion.stream == Some(true), completion.includes_usage());
    let mut message = completion.into_request()?;
    if let Some(key) = idempotency_key(&head.headers)? {
        message.message.message_id = message_id_from_key(&key);
    }
    let mut request = match streams {
        true => Request::SendStreamingMessage(Box::new(message)),
        false => Request::SendMessage(Box::new(message)),
    };
    let writer = CompletionWriter {
        model: agent.name.to_string(),
        created: 0,
        task: None,
        context: None,
    };
    let authorized = routes.authorize(agent, context, &head.headers, Version::V1, &mut request)?;
    release_head(head);
    let mut reply = match authorized.call(request).await? {
        ServiceResponse::Single(Response::SendMessage(SendMessageResponse::Task(task))) => {
            task_reply(writer, &task)
        }
        ServiceResponse::Single(Response::SendMessage(SendMessageResponse::Message(message))) => {
            message_reply(writer, &message)
        }
        ServiceResponse::Single(_) | ServiceResponse::Task(_) => {
            return Err(Error::internal("an answer of another operation"));
        }
        ServiceResponse::Stream(stream) => {
            let encoder = CompletionEncoder::new(writer, includes_usage);
            let events = SseBody::new(
                *stream,
                encoder,
                routes.settings.heartbeat,
                routes.drain.clone(),
            );
            reply::event_stream(ReplyBody::Stream(Box::new(events)))
        }
    };
    authorized.add_response_headers(reply.headers_mut());
    Ok(reply)
}

/// The id of a message that comes under a key. Questions of this kind have none, and one that is asked again under its key is
/// the same message.
fn message_id_from_key(key: &str) -> MessageId {
    let digest = Sha256::digest(key);
    digest
        .iter()
        .take(16)
        .fold(String::new(), |id, byte| format!("{id}{byte:02x}"))
        .into()
}

/// Below an agent it is that one, whatever it is called; at the root the one that is named.
fn resolve_model<'a>(
    routes: &'a Routes,
    index: usize,
    model: Option<&str>,
) -> Option<&'a AgentEntry> {
    match model {
        Some(model) if index == 0 => routes.directory.get(routes.directory.position(model)?),
        _ => routes.directory.get(index),
    }
}

fn model_not_found(model: &str) -> Reply {
    let mut out = Vec::new();
    let message =
        format!("there is no agent `{model}`; GET {MODELS_PATH} lists those that there are");
    let error = OpenAiError {
        message: &message,
        kind: "invalid_request_error",
        param: Some("model"),
        code: "model_not_found",
    };
    error.write(&mut out);
    reply::json(StatusCode::NOT_FOUND, out)
}

fn task_reply(writer: CompletionWriter, task: &Task) -> Reply {
    let writer = with_task(writer, task);
    let mut out = Vec::new();
    if let Some((status, code)) = failure_status(task.status.state) {
        let error = OpenAiError {
            message: &failure_message(task),
            kind: "server_error",
            param: None,
            code,
        };
        error.write(&mut out);
        let mut reply = reply::json(status, out);
        // It was worked on: asked again it would be worked on again.
        reply
            .headers_mut()
            .insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        return reply;
    }
    writer.write_completion(
        &mut out,
        &task_text(task),
        CompletionUsage::from_metadata(task.metadata.as_ref()),
    );
    reply::json(StatusCode::OK, out)
}

fn message_reply(writer: CompletionWriter, message: &Message) -> Reply {
    let context = message.context_id.as_ref().map(ToString::to_string);
    let mut out = Vec::new();
    CompletionWriter { context, ..writer }.write_completion(
        &mut out,
        &parts_text(&message.parts),
        None,
    );
    reply::json(StatusCode::OK, out)
}

/// What an answer says of the task that it comes from.
fn with_task(writer: CompletionWriter, task: &Task) -> CompletionWriter {
    CompletionWriter {
        created: task
            .status
            .timestamp
            .map_or(0, |time| time.as_millis() / 1000),
        task: Some(task.id.to_string()),
        context: Some(task.context_id.to_string()),
        ..writer
    }
}

/// What a task that has no answer is to a client of this kind. One that waits for somebody asks in its answer.
fn failure_status(state: TaskState) -> Option<(StatusCode, &'static str)> {
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

fn failure_message(task: &Task) -> String {
    let message = task
        .status
        .message
        .as_ref()
        .map(|message| parts_text(&message.parts));
    message
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| match task.status.state {
            TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
                format!("the task {} is still worked on", task.id)
            }
            state => format!("the task has ended: {state}"),
        })
}

/// What is said where a stream was cut.
fn stream_interrupted() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the stream was cut; the task goes on")
}
