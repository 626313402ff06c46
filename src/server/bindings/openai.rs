//! OpenAI chat completions API in front of every agent. A completion request becomes a message to
//! the agent.

mod encoder;

use std::pin::pin;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;
use sha2::{Digest, Sha256};

use crate::model::{
    Binding, Error, ErrorKind, Limits, Message, MessageId, Operation, Request, Response, Result,
    SendMessageResponse, Task, TaskState, Version,
};
use crate::server::admission::RequestContext;
use crate::server::admitted_call::Budgeted;
use crate::server::body;
use crate::server::call_headers::{idempotency_key, release_head};
use crate::server::call_span::CallSpan;
use crate::server::peer::ConnectionPeer;
use crate::server::reply::{self, Reply, method_not_allowed};
use crate::server::routes::Routes;
use crate::service::{AgentEntry, ServiceResponse};
use crate::wire::errors::http_status;
use crate::wire::openai::{
    ChatCompletionRequest, CompletionUsage, CompletionWriter, OpenAiError, message_text, task_text,
    write_error, write_models,
};
use encoder::CompletionEncoder;

/// Path of chat completions, below the root or an agent.
pub(in crate::server) const COMPLETIONS_PATH: &str = "/v1/chat/completions";
/// Path of the list of agents.
pub(in crate::server) const MODELS_PATH: &str = "/v1/models";
/// Header that disables the automatic retries of OpenAI clients.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Handles a chat completion. `index` is the agent of the path; at the root `model` can name
/// another one.
pub(in crate::server) async fn handle(
    routes: &Routes,
    index: usize,
    peer: &ConnectionPeer,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    if *request.method() != Method::POST {
        return method_not_allowed("POST");
    }
    let admission = &routes.admission;
    let authenticated = admission.authenticate(peer, &request).await;
    let mut context = match authenticated {
        Ok(context) => context,
        Err(error) => return error_reply(error),
    };
    let (mut head, body) = HttpRequest::into_parts(*request);
    let operation = Operation::SendMessage;
    let span = CallSpan::new(operation, Binding::HttpJson, Version::V1, &head.headers);
    let caller = context.caller().clone();
    let result = span
        .instrument(
            &caller,
            pin!(execute(routes, index, &mut context, &mut head, body)),
        )
        .await;
    result.unwrap_or_else(|error| {
        let agent = agent_or_root(routes, index);
        error_reply(admission.charge_rejection(agent, &mut context, error))
    })
}

/// Runs a completion: decode, resolve agent, authorize, rate-limit, call, encode.
async fn execute(
    routes: &Routes,
    index: usize,
    context: &mut RequestContext,
    head: &mut Parts,
    body: Incoming,
) -> Result<Reply> {
    let admission = &routes.admission;
    body::check_content_type(&head.headers)?;
    let body = admission.read_body(context, body).await?;
    let DecodedCompletion {
        model,
        includes_usage,
        request,
    } = admission
        .decode(context, body, DecodedCompletion::read)
        .await??;
    let Some(agent) = resolve_model(routes, index, model.as_deref()) else {
        admission.rate_limit(admission.directory.root(), context)?;
        return Ok(model_not_found(&model.unwrap_or_default()));
    };
    let mut request = with_message_id(request?, &head.headers)?;
    let call = admission
        .resolve_agent(agent, context, &head.headers, Version::V1, &mut request)?
        .authorize(&request)?
        .rate_limit()?;
    release_head(head);
    let response = call.call(request).await?;
    // Awaited outside of `match`: future size.
    let waiting = match call.encode(
        response,
        |_| None,
        |response| encode(routes, agent, response, includes_usage),
    )? {
        Budgeted::Ready(reply) => return Ok(call.with_response_headers(reply)),
        Budgeted::Waiting(waiting) => waiting,
    };
    let reply = waiting.await?;
    Ok(call.with_response_headers(reply))
}

/// Decoded body. It does not borrow from the body, which is freed: the call can run for hours.
struct DecodedCompletion {
    model: Option<String>,
    includes_usage: bool,
    /// The request, or why there is none. An unknown model is reported first.
    request: Result<Request>,
}

impl DecodedCompletion {
    fn read(body: Bytes, limits: &Limits) -> Result<Self> {
        let mut completion = ChatCompletionRequest::parse(&body)?;
        Ok(Self {
            model: completion.model.take(),
            includes_usage: completion.includes_usage(),
            request: decode(completion, limits),
        })
    }
}

/// Turns a completion request into an operation, and checks the size of its content.
fn decode(completion: ChatCompletionRequest, limits: &Limits) -> Result<Request> {
    let is_streaming = completion.stream == Some(true);
    let message = Box::new(completion.into_request()?);
    let request = if is_streaming {
        Request::SendStreamingMessage(message)
    } else {
        Request::SendMessage(message)
    };
    request.check_content_size(limits)?;
    Ok(request)
}

/// Derives the message id from the idempotency key, if there is one.
fn with_message_id(mut request: Request, headers: &HeaderMap) -> Result<Request> {
    if let Some(key) = idempotency_key(headers)?
        && let Request::SendMessage(send) | Request::SendStreamingMessage(send) = &mut request
    {
        send.message.message_id = message_id_from_key(&key);
    }
    Ok(request)
}

/// Encodes a response as a completion or a stream of chunks.
fn encode(
    routes: &Routes,
    agent: &AgentEntry,
    response: ServiceResponse,
    includes_usage: bool,
) -> Result<Reply> {
    let writer = CompletionWriter {
        model: agent.name.to_string(),
        created: 0,
        task: None,
        context: None,
    };
    match response {
        ServiceResponse::Single(response, _) => match *response {
            Response::SendMessage(SendMessageResponse::Task(task)) => Ok(task_reply(writer, &task)),
            Response::SendMessage(SendMessageResponse::Message(message)) => {
                Ok(message_reply(writer, &message))
            }
            _ => Err(Error::internal("response of another operation")),
        },
        ServiceResponse::Task(_) => Err(Error::internal("response of another operation")),
        ServiceResponse::Stream(stream) => {
            let encoder = CompletionEncoder::new(writer, includes_usage);
            Ok(routes.event_stream(*stream, encoder))
        }
    }
}

/// Lists the agents as models: all of them at the root, or the agent of the path.
pub(in crate::server) async fn list_models(
    routes: &Routes,
    index: usize,
    peer: &ConnectionPeer,
    request: &HttpRequest<Incoming>,
) -> Reply {
    if *request.method() != Method::GET {
        return method_not_allowed("GET");
    }
    let admission = &routes.admission;
    let authenticated = admission.authenticate(peer, request).await;
    let mut context = match authenticated {
        Ok(context) => context,
        Err(error) => return error_reply(error),
    };
    let agent = agent_or_root(routes, index);
    if let Err(error) = admission.rate_limit(agent, &mut context) {
        return error_reply(error);
    }
    let mut out = Vec::new();
    if index > 0 {
        write_models(&mut out, [&*agent.name]);
    } else {
        write_models(&mut out, admission.directory.names());
    }
    reply::json(StatusCode::OK, out)
}

/// Encodes an error in the format of the OpenAI API.
fn error_reply(error: Error) -> Reply {
    let error = reply::log_failure(error);
    let mut out = Vec::new();
    write_error(&mut out, &error);
    let status = StatusCode::from_u16(http_status(error.kind(), Version::V1));
    let mut reply = reply::json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), out);
    reply::set_retry_after(&mut reply, &error);
    reply
}

/// Derives the message id of an idempotency key, so that a retry is the same message. Completion
/// requests have no ids.
fn message_id_from_key(key: &str) -> MessageId {
    let digest = Sha256::digest(key);
    digest
        .iter()
        .take(16)
        .fold(String::new(), |id, byte| format!("{id}{byte:02x}"))
        .into()
}

/// Returns the agent that `model` names at the root. Below an agent, and if there is only one, `model` is
/// ignored: KAOS clients send their own name for a peer (09, 0.19).
fn resolve_model<'a>(
    routes: &'a Routes,
    index: usize,
    model: Option<&str>,
) -> Option<&'a AgentEntry> {
    let directory = &routes.admission.directory;
    match model {
        Some(model) if index == 0 && !directory.has_single_agent() => {
            directory.get(directory.position(model)?)
        }
        _ => directory.get(index),
    }
}

fn agent_or_root(routes: &Routes, index: usize) -> &AgentEntry {
    let directory = &routes.admission.directory;
    directory.get(index).unwrap_or(directory.root())
}

fn model_not_found(model: &str) -> Reply {
    let mut out = Vec::new();
    let message = format!("no agent named `{model}`; GET {MODELS_PATH} lists the agents");
    let error = OpenAiError {
        message: &message,
        kind: "invalid_request_error",
        param: Some("model"),
        code: "model_not_found",
    };
    error.write(&mut out);
    reply::json(StatusCode::NOT_FOUND, out)
}

/// Encodes a task as a completion or an error.
fn task_reply(writer: CompletionWriter, task: &Task) -> Reply {
    let writer = with_task(writer, task);
    let mut out = Vec::new();
    if let Some((status, code)) = task_failure(task) {
        let error = OpenAiError {
            message: &failure_message(task),
            kind: "server_error",
            param: None,
            code,
        };
        error.write(&mut out);
        let mut reply = reply::json(status, out);
        // The agent has run. A retry would run it again.
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
    CompletionWriter { context, ..writer }.write_completion(&mut out, &message_text(message), None);
    reply::json(StatusCode::OK, out)
}

/// Adds ids and time of the task to the completion.
fn with_task(writer: CompletionWriter, task: &Task) -> CompletionWriter {
    CompletionWriter {
        created: task
            .status
            .timestamp
            .map_or(0, |time| time.as_millis().div_euclid(1000)),
        task: Some(task.id.to_string()),
        context: Some(task.context_id.to_string()),
        ..writer
    }
}

/// Returns status and error code of a task without a completion, or without its text. A completion without text would look
/// like an empty answer.
fn task_failure(task: &Task) -> Option<(StatusCode, &'static str)> {
    let omitted = (StatusCode::SERVICE_UNAVAILABLE, "content_omitted");
    let is_omitted = task.is_content_omitted();
    failure_status(task.status.state).or(is_omitted.then_some(omitted))
}

/// Returns status and error code of a state without a completion. An interrupted task has one: its
/// question.
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

/// Returns the status message of a task, or a text that names its state.
fn failure_message(task: &Task) -> String {
    if task.is_content_omitted() {
        let id = &task.id;
        return format!(
            "too many unread responses in memory; the answer is in task {id} (GetTask)"
        );
    }
    let message = task
        .status
        .message
        .as_ref()
        .map(|message| message_text(message));
    message
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| match task.status.state {
            TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
                format!("task {} is still running", task.id)
            }
            state => format!("task ended in state {state}"),
        })
}

/// Returns the error of a stream that ends before the task.
fn stream_interrupted() -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message("the stream was interrupted; the task continues")
}
