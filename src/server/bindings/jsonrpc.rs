//! The JSON-RPC binding: decode, call, encode, in the version of the caller. HTTP 200 whatever the answer is, but for
//! what a caller can only wait for, or has no right to.

use std::pin::pin;

use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use crate::model::{
    Binding, Error, ErrorKind, GetTaskRequest, Request, Response, Result, SubscribeToTaskRequest,
    TaskId, Version,
};
use crate::server::admission::RequestContext;
use crate::server::body;
use crate::server::call_headers::{
    CallSpan, error_version, release_head, requested_version, response_dialect, set_version_header,
};
use crate::server::encodings;
use crate::server::reply::{self, Reply, ReplyBody};
use crate::server::routes::Routes;
use crate::server::sse_body::{JsonEventEncoder, SseBody};
use crate::service::{AgentEntry, ServiceResponse, TaskView};
use crate::wire::fast::{FastCall, LARGE_BODY_BYTES, fast_decode, fast_decode_large};
use crate::wire::jsonrpc::{
    self, JsonRpcId, RejectedRequest, begin_result, end_result, read_request, write_error,
};
use crate::wire::method::{JsonRpcMethod, find_method};
use crate::wire::negotiation::{NegotiationError, RequestedVersion, negotiate};
use crate::wire::{Dialect, read_params, rejects_in_stream, write_result, write_stream_error};

/// Where it is served, each also with a slash behind it.
pub(in crate::server) const PATHS: [&str; 3] = ["", "/a2a", "/api/a2a"];

/// A call, read from a body that is no longer needed.
struct DecodedCall {
    id: JsonRpcId<'static>,
    method: JsonRpcMethod,
    version: Version,
    params: Result<(Request, Dialect)>,
}

/// A body that is no call, and how to say so.
struct JsonRpcDecodeError {
    id: JsonRpcId<'static>,
    error: Error,
    reply_version: Version,
}

pub(in crate::server) async fn handle(
    routes: &Routes,
    agent: &AgentEntry,
    context: &mut RequestContext,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let (mut head, body) = (*request).into_parts();
    // Not in the match, which would have room for it until its end.
    let decoded = decode(routes, context, &head, body).await;
    let DecodedCall {
        id,
        method,
        version,
        params,
    } = match decoded {
        Ok(call) => call,
        Err(JsonRpcDecodeError {
            id,
            error,
            reply_version,
        }) => {
            return error_reply(
                &id,
                routes.charge_rejection(agent, context, error),
                reply_version,
            );
        }
    };
    let span = CallSpan::new(method.operation, Binding::JsonRpc, version, &head.headers);
    let caller = context.caller().clone();
    let result = span
        .instrument(
            &caller,
            pin!(execute(routes, agent, context, &mut head, (&id, params))),
        )
        .await;
    result.unwrap_or_else(|error| {
        let error = routes.charge_rejection(agent, context, error);
        match rejects_in_stream(method.operation, version) {
            true => error_stream(&id, error, version),
            false => error_reply(&id, error, version),
        }
    })
}

/// Answers a request of somebody whom we do not serve; what else it says is not even read.
pub(in crate::server) fn unauthenticated(request: &HttpRequest<Incoming>, error: Error) -> Reply {
    error_reply(
        &JsonRpcId::NULL,
        error,
        error_version(&requested_version(request.headers(), request.uri().query())),
    )
}

/// Reads the call, and lets go of its body: what it asks for may take long.
async fn decode(
    routes: &Routes,
    context: &mut RequestContext,
    head: &Parts,
    body: Incoming,
) -> Result<DecodedCall, JsonRpcDecodeError> {
    let requested = requested_version(&head.headers, head.uri.query());
    let rejection = |error| JsonRpcDecodeError {
        id: JsonRpcId::NULL,
        error,
        reply_version: error_version(&requested),
    };
    body::check_content_type(&head.headers).map_err(rejection)?;
    let body = routes.read_body(context, body).await.map_err(rejection)?;
    let strict = routes.settings.strict_version;
    let (large, body) = decode_large(body);
    if let Some(FastCall {
        id,
        method,
        request,
    }) = large.or_else(|| fast_decode(&body))
    {
        let id = id.into_owned();
        return match negotiate(method.route_version, &requested, strict) {
            Ok(version) => Ok(DecodedCall {
                id,
                method,
                version,
                params: Ok((request, Dialect::V1)),
            }),
            Err(NegotiationError {
                error,
                reply_version,
            }) => Err(JsonRpcDecodeError {
                id,
                error,
                reply_version,
            }),
        };
    }
    let request =
        read_request(&body).map_err(|RejectedRequest { id, error }| JsonRpcDecodeError {
            id: id.into_owned(),
            error,
            reply_version: error_version(&requested),
        })?;
    let (method, version) = negotiate_method(&request, &requested, strict).map_err(
        |NegotiationError {
             error,
             reply_version,
         }| JsonRpcDecodeError {
            id: request.id.clone().into_owned(),
            error,
            reply_version,
        },
    )?;
    let params = read_params(method, request.params);
    Ok(DecodedCall {
        id: request.id.into_owned(),
        method,
        version,
        params,
    })
}

/// A call that is mostly a file, or else the body as it came.
fn decode_large(body: Bytes) -> (Option<FastCall<'static>>, Bytes) {
    if body.len() < LARGE_BODY_BYTES {
        return (None, body);
    }
    match fast_decode_large(body.into()) {
        Ok(call) => (Some(call), Bytes::new()),
        Err(body) => (None, body.into()),
    }
}

fn negotiate_method(
    request: &jsonrpc::JsonRpcRequest<'_>,
    requested: &RequestedVersion,
    strict: bool,
) -> Result<(JsonRpcMethod, Version), NegotiationError> {
    let reject = |error: ErrorKind, reply_version| NegotiationError {
        error: error.into(),
        reply_version,
    };
    let method = find_method(&request.method)
        .map_err(|key| reject(ErrorKind::MethodNotFound, key.version()))?;
    negotiate(method.route_version, requested, strict).map(|version| (method, version))
}

async fn execute(
    routes: &Routes,
    agent: &AgentEntry,
    context: &mut RequestContext,
    head: &mut Parts,
    (id, params): (&JsonRpcId<'static>, Result<(Request, Dialect)>),
) -> Result<Reply> {
    let (decoded, dialect) = params?;
    let headers = &head.headers;
    let dialect = response_dialect(headers, &decoded, dialect);
    let mut decoded = if accepts_only_events(headers) {
        as_subscription(decoded)
    } else {
        decoded
    };
    let authorized = routes.authorize(agent, context, headers, dialect.version(), &mut decoded)?;
    let task_alias = requested_task_id(&decoded);
    release_head(head);
    let mut reply = match authorized.call(decoded).await? {
        ServiceResponse::Single(response) => {
            let dialect = dialect.with_alias_in_response(task_alias, &response);
            reply::json(StatusCode::OK, encode_result(id, &response, &dialect)?)
        }
        ServiceResponse::Task(task) => {
            let dialect = dialect.with_alias(task_alias, &task.id);
            reply::json(StatusCode::OK, encode_task_result(id, &task, &dialect))
        }
        ServiceResponse::Stream(stream) => {
            let encoder = JsonEventEncoder::new(Some(id.clone()), dialect);
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

/// By what name a request asks for its task.
fn requested_task_id(request: &Request) -> Option<TaskId> {
    match request {
        Request::GetTask(request) => Some(request.id.clone()),
        Request::CancelTask(request) => Some(request.id.clone()),
        _ => None,
    }
}

/// Seed S2: whoever reads a task and takes nothing but events wants to be told what happens to it.
fn as_subscription(request: Request) -> Request {
    match request {
        Request::GetTask(GetTaskRequest { tenant, id, .. }) => {
            Request::SubscribeToTask(SubscribeToTaskRequest { tenant, id })
        }
        other => other,
    }
}

fn accepts_only_events(headers: &HeaderMap) -> bool {
    headers
        .get(ACCEPT)
        .is_some_and(|accept| accept.as_bytes().trim_ascii() == b"text/event-stream")
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

/// 01 §9: what asks a caller to wait, to come again, or to say who it is, is said to proxies too.
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
