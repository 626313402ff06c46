//! JSON-RPC binding, in the version of the caller.
//!
//! Errors have HTTP status 200. Proxies act on some, which have 401, 403, 408, 429 or 503.

use std::pin::pin;

use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, Method, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use super::is_task_ended;
use crate::model::{
    Binding, ClientDialect, Error, ErrorKind, GetTaskRequest, Limits, Request, Response, Result,
    StreamResponse, SubscribeToTaskRequest, Task, TaskId, Version,
};
use crate::server::admission::RequestContext;
use crate::server::admitted_call::{AdmittedCall, Budgeted};
use crate::server::body;
use crate::server::call_headers::{
    error_version, release_head, requested_version, response_dialect, set_version_header,
};
use crate::server::call_span::CallSpan;
use crate::server::encodings;
use crate::server::event_encoder::JsonEventEncoder;
use crate::server::peer::ConnectionPeer;
use crate::server::reply::{self, Reply, ReplyBody, method_not_allowed};
use crate::server::routes::Routes;
use crate::service::{AgentEntry, ServiceResponse, TaskView};
use crate::wire::errors::with_caller_path;
use crate::wire::fast::{FastCall, fast_decode};
use crate::wire::jsonrpc::{
    JsonRpcId, JsonRpcRequest, RejectedRequest, begin_result, end_result, read_request, write_error,
};
use crate::wire::method::{JsonRpcMethod, find_method};
use crate::wire::negotiation::{NegotiationError, RequestedVersion, negotiate};
use crate::wire::{
    Dialect, may_have_kaos_marks, read_params, read_unversioned_params, rejects_in_stream, sse,
    write_event, write_result, write_stream_error,
};

/// Paths below an agent that accept JSON-RPC, each also with a trailing slash.
pub(in crate::server) const PATHS: [&str; 3] = ["", "/a2a", "/api/a2a"];

/// Decoded call. It does not borrow from the body, which is freed. Boxed where it is passed on: it has 160 bytes.
struct DecodedCall {
    id: JsonRpcId<'static>,
    method: JsonRpcMethod,
    version: Version,
    params: Result<(Request, Dialect)>,
    /// Whether the reply may have the form of a client that names no version and mixes versions.
    is_unversioned: bool,
}

/// Body that is not a valid call, with the id and version of the error reply.
struct JsonRpcDecodeError {
    id: JsonRpcId<'static>,
    error: Error,
    reply_version: Version,
}

/// Handles a JSON-RPC request to `agent`.
pub(in crate::server) async fn handle(
    routes: &Routes,
    agent: &AgentEntry,
    peer: &ConnectionPeer,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    if *request.method() != Method::POST {
        return method_not_allowed("POST");
    }
    let admission = &routes.admission;
    // Results are bound before `match`: a future awaited in its scrutinee lives to the end of it.
    let authenticated = admission.authenticate(peer, &request).await;
    let mut context = match authenticated {
        Ok(context) => context,
        Err(error) => return unauthenticated(&request, error),
    };
    let (mut head, body) = HttpRequest::into_parts(*request);
    let decoded = decode(routes, &mut context, &head, body).await;
    let call = match decoded {
        Ok(call) => call,
        Err(rejection) => {
            let error = admission.charge_rejection(agent, &mut context, rejection.error);
            return error_reply(&rejection.id, error, rejection.reply_version);
        }
    };
    let DecodedCall {
        id,
        method,
        version,
        params,
        is_unversioned,
    } = *call;
    let span = CallSpan::new(method.operation, Binding::JsonRpc, version, &head.headers);
    let caller = context.caller().clone();
    let result = span
        .instrument(
            &caller,
            pin!(execute(
                routes,
                agent,
                &mut context,
                &mut head,
                &id,
                params,
                is_unversioned
            )),
        )
        .await;
    result.unwrap_or_else(|error| {
        let error = admission.charge_rejection(agent, &mut context, error);
        let error = with_caller_path(error, method.operation, version, Binding::JsonRpc);
        if rejects_in_stream(method.operation, version) {
            error_stream(&id, error, version)
        } else {
            error_reply(&id, error, version)
        }
    })
}

/// Runs a decoded call: resolve agent, authorize, rate-limit, call, encode.
async fn execute(
    routes: &Routes,
    agent: &AgentEntry,
    context: &mut RequestContext,
    head: &mut Parts,
    id: &JsonRpcId<'static>,
    params: Result<(Request, Dialect)>,
    is_unversioned: bool,
) -> Result<Reply> {
    let PreparedCall {
        call,
        request,
        dialect,
        task_alias,
        fallback,
    } = prepare(routes, agent, context, head, params, is_unversioned)?;
    let response = call.call(request);
    release_head(head);
    // Bound before `match`: future size.
    let result = response.await;
    let reply_form = ReplyForm {
        id,
        dialect,
        task_alias,
        is_unversioned,
    };
    // Awaited outside of `match`: future size.
    let waiting = match respond(routes, &call, result, fallback, reply_form)? {
        Budgeted::Ready(reply) => return Ok(call.with_response_headers(reply)),
        Budgeted::Waiting(waiting) => waiting,
    };
    let reply = waiting.await?;
    Ok(call.with_response_headers(reply))
}

/// Form of the reply to a call.
struct ReplyForm<'a> {
    id: &'a JsonRpcId<'static>,
    dialect: Dialect,
    task_alias: Option<TaskId>,
    is_unversioned: bool,
}

/// Encodes the result of an operation, or reads the task that replaces a failed one.
fn respond<'a>(
    routes: &'a Routes,
    call: &'a AdmittedCall<'_>,
    result: Result<ServiceResponse>,
    fallback: Option<Box<Fallback>>,
    form: ReplyForm<'a>,
) -> Result<Budgeted<'a, Reply>> {
    let ReplyForm {
        id,
        dialect,
        task_alias,
        is_unversioned,
    } = form;
    match result {
        Ok(response) => {
            let dialect = match response_task(&response) {
                Some(task) if is_unversioned => dialect.for_unversioned_task(task),
                _ => dialect,
            };
            encode_within_budget(routes, call, id, response, dialect, task_alias)
        }
        Err(error) => {
            let Some(fallback) = fallback else {
                return Err(error);
            };
            let reply = fallback.reply(routes, call, id, error, dialect);
            Ok(Budgeted::Waiting(Box::pin(reply)))
        }
    }
}

/// Admitted call with what its reply needs.
struct PreparedCall<'a> {
    call: Box<AdmittedCall<'a>>,
    request: Request,
    dialect: Dialect,
    task_alias: Option<TaskId>,
    fallback: Option<Box<Fallback>>,
}

/// Admits a call: resolve agent, authorize, rate-limit. Not part of [`execute`]: its locals would enlarge the future.
fn prepare<'a>(
    routes: &'a Routes,
    agent: &'a AgentEntry,
    context: &'a mut RequestContext,
    head: &Parts,
    params: Result<(Request, Dialect)>,
    is_unversioned: bool,
) -> Result<PreparedCall<'a>> {
    let (request, dialect) = params?;
    let mut request = request;
    let dialect = response_dialect(&head.headers, &mut request, dialect);
    let (mut request, read) = match request {
        Request::GetTask(read) if accepts_only_events(&head.headers) => {
            (subscription(&read), Some(read))
        }
        request => (request, None),
    };
    let call = routes
        .admission
        .resolve_agent(
            agent,
            context,
            &head.headers,
            dialect.version(),
            &mut request,
        )?
        .authorize(&request)?
        .rate_limit()?;
    let task_alias = requested_task_id(&request);
    let may_be_kaos = is_unversioned && dialect == Dialect::V1;
    let fallback = match read {
        Some(read) => Some(Box::new(Fallback::EndedStream(read))),
        None if may_be_kaos => canceled_task(&request)
            .map(Fallback::KaosCancel)
            .map(Box::new),
        None => None,
    };
    Ok(PreparedCall {
        call,
        request,
        dialect,
        task_alias,
        fallback,
    })
}

/// Reads and decodes the body.
async fn decode(
    routes: &Routes,
    context: &mut RequestContext,
    head: &Parts,
    body: Incoming,
) -> Result<Box<DecodedCall>, JsonRpcDecodeError> {
    let requested = requested_version(&head.headers, head.uri.query());
    let reject = |error| JsonRpcDecodeError {
        id: JsonRpcId::NULL,
        error,
        reply_version: error_version(&requested),
    };
    body::check_content_type(&head.headers).map_err(reject)?;
    let admission = &routes.admission;
    let body = admission.read_body(context, body).await.map_err(reject)?;
    let strict = routes.settings.strict_version;
    let codec = {
        let requested = requested.clone();
        move |body, limits: &Limits| decode_body(body, &requested, strict, limits)
    };
    let decoded = admission.decode(context, body, codec).await;
    decoded.map_err(reject)?
}

/// Decodes a call and checks the size of its content.
fn decode_body(
    body: Bytes,
    requested: &RequestedVersion,
    strict: bool,
    limits: &Limits,
) -> Result<Box<DecodedCall>, JsonRpcDecodeError> {
    let mut call = read_call(body, requested, strict)?;
    if let Ok((request, _)) = &call.params
        && let Err(error) = request.check_content_size(limits)
    {
        call.params = Err(error);
    }
    Ok(call)
}

/// Reads a call, with the fast decoder if it covers the body.
fn read_call(
    body: Bytes,
    requested: &RequestedVersion,
    strict: bool,
) -> Result<Box<DecodedCall>, JsonRpcDecodeError> {
    let is_unversioned = *requested == RequestedVersion::Absent && !strict;
    // The fast decoder does not recognize KAOS clients.
    let may_be_kaos = is_unversioned && may_have_kaos_marks(&body);
    if !may_be_kaos && let Some(call) = fast_decode(&body) {
        return decode_fast(call, requested, strict);
    }
    let request =
        read_request(&body).map_err(|RejectedRequest { id, error }| JsonRpcDecodeError {
            id: id.into_owned(),
            error,
            reply_version: error_version(requested),
        })?;
    let (method, version) = negotiate_method(&request, requested, strict).map_err(
        |NegotiationError {
             error,
             reply_version,
         }| JsonRpcDecodeError {
            id: request.id.clone().into_owned(),
            error,
            reply_version,
        },
    )?;
    let params = if is_unversioned {
        read_unversioned_params(method, request.params)
    } else {
        read_params(method, request.params)
    };
    Ok(Box::new(DecodedCall {
        id: request.id.into_owned(),
        method,
        version,
        params,
        is_unversioned,
    }))
}

/// Negotiates the version of a call that the fast decoder has read. Its dialect is always 1.0.
fn decode_fast(
    call: FastCall<'_>,
    requested: &RequestedVersion,
    strict: bool,
) -> Result<Box<DecodedCall>, JsonRpcDecodeError> {
    let FastCall {
        id,
        method,
        request,
    } = call;
    let id = id.into_owned();
    match negotiate(method.route_version, requested, strict) {
        Ok(version) => Ok(Box::new(DecodedCall {
            id,
            method,
            version,
            params: Ok((request, Dialect::V1)),
            is_unversioned: *requested == RequestedVersion::Absent && !strict,
        })),
        Err(NegotiationError {
            error,
            reply_version,
        }) => Err(JsonRpcDecodeError {
            id,
            error,
            reply_version,
        }),
    }
}

fn negotiate_method(
    request: &JsonRpcRequest<'_>,
    requested: &RequestedVersion,
    strict: bool,
) -> Result<(JsonRpcMethod, Version), NegotiationError> {
    let method = find_method(&request.method).map_err(|route_version| NegotiationError {
        error: ErrorKind::MethodNotFound.into(),
        reply_version: route_version.version(),
    })?;
    let version = negotiate(method.route_version, requested, strict)?;
    Ok((method, version))
}

/// Returns the task id of the request. A dialect with aliases repeats it in the reply.
fn requested_task_id(request: &Request) -> Option<TaskId> {
    match request {
        Request::GetTask(request) => Some(request.id.clone()),
        Request::CancelTask(request) => Some(request.id.clone()),
        _ => None,
    }
}

/// Returns the task that a response is.
fn response_task(response: &ServiceResponse) -> Option<&Task> {
    match response {
        ServiceResponse::Single(response, _) => match &**response {
            Response::Task(task) => Some(task),
            _ => None,
        },
        ServiceResponse::Task(task) => Some(task),
        ServiceResponse::Stream(_) => None,
    }
}

/// Returns the request that reads the task of a `CancelTask` request.
fn canceled_task(request: &Request) -> Option<GetTaskRequest> {
    match request {
        Request::CancelTask(cancel) => Some(GetTaskRequest {
            tenant: cancel.tenant.clone(),
            id: cancel.id.clone(),
            history_length: None,
        }),
        _ => None,
    }
}

/// Read of a task that replaces a failed operation.
enum Fallback {
    /// The client accepts only events, and the task has ended (09, 2.11).
    EndedStream(GetTaskRequest),
    /// The client may be one of KAOS, which expects the task if it cannot be canceled (09, 0.12).
    KaosCancel(GetTaskRequest),
}

impl Fallback {
    /// Reads the task instead.
    ///
    /// # Errors
    /// `error`: it has another cause, or the task is not one of a KAOS client.
    async fn reply(
        self,
        routes: &Routes,
        call: &AdmittedCall<'_>,
        id: &JsonRpcId<'static>,
        error: Error,
        dialect: Dialect,
    ) -> Result<Reply> {
        let reply = match self {
            Self::EndedStream(read) if is_task_ended(&error) => {
                let task = call.call(Request::GetTask(read)).await?;
                call.encode(task, |_| None, |task| task_stream(id, &task, dialect))?
            }
            Self::KaosCancel(read) if error.kind() == ErrorKind::TaskNotCancelable => {
                let task = call.call(Request::GetTask(read)).await?;
                match response_task(&task).and_then(Task::client_dialect) {
                    Some(ClientDialect::Kaos) => {
                        encode_within_budget(routes, call, id, task, Dialect::Kaos, None)?
                    }
                    Some(ClientDialect::Tools) | None => return Err(error),
                }
            }
            Self::EndedStream(_) | Self::KaosCancel(_) => return Err(error),
        };
        match reply {
            Budgeted::Ready(reply) => Ok(reply),
            Budgeted::Waiting(reply) => reply.await,
        }
    }
}

/// Returns the subscription that replaces `GetTask` if the client accepts only events (09, 2.11).
fn subscription(read: &GetTaskRequest) -> Request {
    Request::SubscribeToTask(SubscribeToTaskRequest {
        tenant: read.tenant.clone(),
        id: read.id.clone(),
    })
}

fn accepts_only_events(headers: &HeaderMap) -> bool {
    headers
        .get(ACCEPT)
        .is_some_and(|accept| accept.as_bytes().trim_ascii() == b"text/event-stream")
}

/// Encodes a response, as [`encode`], within the byte budget.
fn encode_within_budget<'a>(
    routes: &'a Routes,
    call: &'a AdmittedCall<'_>,
    id: &'a JsonRpcId<'static>,
    response: ServiceResponse,
    dialect: Dialect,
    task_alias: Option<TaskId>,
) -> Result<Budgeted<'a, Reply>> {
    let format = {
        let dialect = dialect.clone();
        let task_alias = task_alias.clone();
        move |task: &Task| encodings::task_format(&dialect, task_alias.as_ref(), task)
    };
    call.encode(response, format, move |response| {
        encode(routes, call, id, response, dialect, task_alias)
    })
}

/// Encodes a response as a JSON-RPC result or an event stream.
fn encode(
    routes: &Routes,
    call: &AdmittedCall<'_>,
    id: &JsonRpcId<'static>,
    response: ServiceResponse,
    dialect: Dialect,
    task_alias: Option<TaskId>,
) -> Result<Reply> {
    Ok(match response {
        ServiceResponse::Single(response, _) => {
            let dialect = dialect
                .with_alias_in_response(task_alias, &response)
                .for_response(&response);
            reply::json(StatusCode::OK, encode_result(id, &response, &dialect)?)
        }
        ServiceResponse::Task(mut task) if task.large_size().is_some() => {
            let dialect = dialect.with_alias(task_alias, &task.id).for_task(&task);
            let task = encodings::encode_large_task(call, &mut task, &dialect)?;
            large_result(id, task)
        }
        ServiceResponse::Task(task) => {
            let dialect = dialect.with_alias(task_alias, &task.id).for_task(&task);
            reply::json(StatusCode::OK, encode_task_result(id, &task, &dialect))
        }
        ServiceResponse::Stream(stream) => {
            let encoder = JsonEventEncoder::new(Some(id.clone()), dialect);
            routes.event_stream(*stream, encoder)
        }
    })
}

/// Returns the reply with a large task, whose bytes are shared with other replies.
fn large_result(id: &JsonRpcId<'_>, task: Bytes) -> Reply {
    let mut prefix = Vec::new();
    begin_result(&mut prefix, id);
    let mut suffix = Vec::new();
    end_result(&mut suffix);
    let pieces = [prefix.into(), task, suffix.into()];
    reply::pieces(StatusCode::OK, "application/json", pieces)
}

/// Encodes a task that has ended as an event stream: the task is its only event.
fn task_stream(id: &JsonRpcId<'_>, response: &ServiceResponse, dialect: Dialect) -> Result<Reply> {
    let Some(task) = response_task(response).cloned() else {
        return Err(Error::internal("response of another operation"));
    };
    let dialect = dialect.for_task(&task);
    let mut out = Vec::with_capacity(1024);
    sse::begin_event(&mut out, None);
    begin_result(&mut out, id);
    write_event(&mut out, &StreamResponse::Task(task), false, &dialect);
    end_result(&mut out);
    sse::end_event(&mut out);
    Ok(reply::event_stream(ReplyBody::Full(out.into())))
}

fn encode_result(id: &JsonRpcId<'_>, response: &Response, dialect: &Dialect) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    begin_result(&mut out, id);
    write_result(&mut out, response, dialect)?;
    end_result(&mut out);
    Ok(out)
}

fn encode_task_result(id: &JsonRpcId<'_>, task: &TaskView, dialect: &Dialect) -> Vec<u8> {
    let task = encodings::encode_task(task, dialect);
    let mut out = Vec::with_capacity(64 + id.as_json().len() + task.len());
    begin_result(&mut out, id);
    out.extend_from_slice(&task);
    end_result(&mut out);
    out
}

/// Replies to a request whose caller is not authenticated. Its body is not read.
fn unauthenticated(request: &HttpRequest<Incoming>, error: Error) -> Reply {
    let requested = requested_version(request.headers(), request.uri().query());
    error_reply(&JsonRpcId::NULL, error, error_version(&requested))
}

fn error_reply(id: &JsonRpcId<'_>, error: Error, version: Version) -> Reply {
    let error = reply::log_failure(error);
    let mut out = Vec::new();
    write_error(&mut out, id, &error, version);
    with_error_headers(reply::json(StatusCode::OK, out), &error, version)
}

fn error_stream(id: &JsonRpcId<'_>, error: Error, version: Version) -> Reply {
    let error = reply::log_failure(error);
    let mut out = Vec::new();
    write_stream_error(&mut out, &error, Some(id), version);
    with_error_headers(
        reply::event_stream(ReplyBody::Full(out.into())),
        &error,
        version,
    )
}

/// Sets the HTTP status of errors that proxies act on, and the headers that go with them (01 §9).
fn with_error_headers(mut reply: Reply, error: &Error, version: Version) -> Reply {
    match error.kind() {
        ErrorKind::Unavailable => *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::RateLimited => *reply.status_mut() = StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::RequestTimeout => *reply.status_mut() = StatusCode::REQUEST_TIMEOUT,
        ErrorKind::Unauthenticated => *reply.status_mut() = StatusCode::UNAUTHORIZED,
        ErrorKind::PermissionDenied => *reply.status_mut() = StatusCode::FORBIDDEN,
        _ => {}
    }
    reply::set_retry_after(&mut reply, error);
    reply::set_missing_scopes(&mut reply, error);
    set_version_header(reply.headers_mut(), version);
    reply
}
