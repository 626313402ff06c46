//! The JSON-RPC binding: decode, call, encode, in the version of the caller. HTTP 200 whatever the answer is, but for
//! what a caller can only wait for, or has no right to.

use std::pin::pin;

use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use super::body;
use super::events::{Envelope, Events};
use super::forms;
use super::guest::Guest;
use super::incoming::{Told, asked, dialect_of, form, let_go, say_version};
use super::reply::{self, Body, Reply};
use super::routes::Routes;
use crate::model::{
    Binding, Error, ErrorKind, GetTaskRequest, Request, Response, Result, SubscribeToTaskRequest,
    TaskId, Version,
};
use crate::service::{Answer, Resident, Standing};
use crate::wire::decide::{Asked, Refusal, decide};
use crate::wire::jsonrpc::{self, Id, Refused, begin_result, end, read_request, write_error};
use crate::wire::method::{Method, method};
use crate::wire::quick::{LARGE, Quick, read_large, read_quickly};
use crate::wire::{Dialect, read_params, refuses_in_stream, write_failure, write_result};

/// Where it is served, each also with a slash behind it.
pub(super) const PATHS: [&str; 3] = ["", "/a2a", "/api/a2a"];

/// A call, read from a body that is no longer needed.
struct Called {
    id: Id<'static>,
    method: Method,
    version: Version,
    params: Result<(Request, Dialect)>,
}

/// A body that is no call, and how to say so.
struct NoCall {
    id: Id<'static>,
    error: Error,
    form: Version,
}

pub(super) async fn answer(
    routes: &Routes,
    resident: &Resident,
    guest: &mut Guest,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let (mut head, body) = (*request).into_parts();
    // Not in the match, which would have room for it until its end.
    let called = read(routes, guest, &head, body).await;
    let Called {
        id,
        method,
        version,
        params,
    } = match called {
        Ok(called) => called,
        Err(NoCall { id, error, form }) => {
            return refused(&id, routes.refuse(resident, guest, error), form);
        }
    };
    let told = Told::new(method.operation, Binding::JsonRpc, version, &head.headers);
    let caller = guest.caller().clone();
    let answer = told
        .of(
            &caller,
            pin!(served(routes, resident, guest, &mut head, (&id, params))),
        )
        .await;
    answer.unwrap_or_else(|error| {
        let error = routes.refuse(resident, guest, error);
        match refuses_in_stream(method.operation, version) {
            true => refused_stream(&id, error, version),
            false => refused(&id, error, version),
        }
    })
}

/// Answers a request of somebody whom we do not serve; what else it says is not even read.
pub(super) fn turned_away(request: &HttpRequest<Incoming>, error: Error) -> Reply {
    refused(
        &Id::NULL,
        error,
        form(&asked(request.headers(), request.uri().query())),
    )
}

/// Reads the call, and lets go of its body: what it asks for may take long.
async fn read(
    routes: &Routes,
    guest: &mut Guest,
    head: &Parts,
    body: Incoming,
) -> Result<Called, NoCall> {
    let asked = asked(&head.headers, head.uri.query());
    let no_call = |error| NoCall {
        id: Id::NULL,
        error,
        form: form(&asked),
    };
    body::check_type(&head.headers).map_err(no_call)?;
    let body = routes.read(guest, body).await.map_err(no_call)?;
    let strict = routes.settings.strict_version;
    let (large, body) = large(body);
    if let Some(Quick {
        id,
        method,
        request,
    }) = large.or_else(|| read_quickly(&body))
    {
        let id = id.into_owned();
        return match decide(method.key, &asked, strict) {
            Ok(version) => Ok(Called {
                id,
                method,
                version,
                params: Ok((request, Dialect::V1)),
            }),
            Err(Refusal { error, form }) => Err(NoCall { id, error, form }),
        };
    }
    let request = read_request(&body).map_err(|Refused { id, error }| NoCall {
        id: id.into_owned(),
        error,
        form: form(&asked),
    })?;
    let (method, version) =
        version(&request, &asked, strict).map_err(|Refusal { error, form }| NoCall {
            id: request.id.clone().into_owned(),
            error,
            form,
        })?;
    let params = read_params(method, request.params);
    Ok(Called {
        id: request.id.into_owned(),
        method,
        version,
        params,
    })
}

/// A call that is mostly a file, or else the body as it came.
fn large(body: Bytes) -> (Option<Quick<'static>>, Bytes) {
    if body.len() < LARGE {
        return (None, body);
    }
    match read_large(body.into()) {
        Ok(quick) => (Some(quick), Bytes::new()),
        Err(body) => (None, body.into()),
    }
}

fn version(
    request: &jsonrpc::Request<'_>,
    asked: &Asked,
    strict: bool,
) -> Result<(Method, Version), Refusal> {
    let unknown = |error: ErrorKind, form| Refusal {
        error: error.into(),
        form,
    };
    let method =
        method(&request.method).map_err(|key| unknown(ErrorKind::MethodNotFound, key.version()))?;
    decide(method.key, asked, strict).map(|version| (method, version))
}

async fn served(
    routes: &Routes,
    resident: &Resident,
    guest: &mut Guest,
    head: &mut Parts,
    (id, params): (&Id<'static>, Result<(Request, Dialect)>),
) -> Result<Reply> {
    let (decoded, dialect) = params?;
    let headers = &head.headers;
    let dialect = dialect_of(headers, &decoded, dialect);
    let mut decoded = if wants_events(headers) {
        streamed(decoded)
    } else {
        decoded
    };
    let entered = routes.enter(resident, guest, headers, dialect.version(), &mut decoded)?;
    let name = name(&decoded);
    let_go(head);
    let mut reply = match entered.call(decoded).await? {
        Answer::One(response) => {
            let dialect = dialect.by_name(name, &response);
            reply::json(StatusCode::OK, result(id, &response, &dialect)?)
        }
        Answer::Task(task) => {
            let dialect = dialect.by_name_of(name, &task.id);
            reply::json(StatusCode::OK, result_task(id, &task, &dialect))
        }
        Answer::Stream(stream) => {
            let envelope = Envelope::new(Some(id.clone()), dialect);
            let events = Events::new(
                *stream,
                envelope,
                routes.settings.heartbeat,
                routes.drain.clone(),
            );
            reply::events(Body::Frames(Box::new(events)))
        }
    };
    entered.mark(reply.headers_mut());
    Ok(reply)
}

/// By what name a request asks for its task.
fn name(request: &Request) -> Option<TaskId> {
    match request {
        Request::GetTask(request) => Some(request.id.clone()),
        Request::CancelTask(request) => Some(request.id.clone()),
        _ => None,
    }
}

/// Seed S2: whoever reads a task and takes nothing but events wants to be told what happens to it.
fn streamed(request: Request) -> Request {
    match request {
        Request::GetTask(GetTaskRequest { tenant, id, .. }) => {
            Request::SubscribeToTask(SubscribeToTaskRequest { tenant, id })
        }
        other => other,
    }
}

fn wants_events(headers: &HeaderMap) -> bool {
    headers
        .get(ACCEPT)
        .is_some_and(|accept| accept.as_bytes().trim_ascii() == b"text/event-stream")
}

fn result(id: &Id<'_>, response: &Response, dialect: &Dialect) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    begin_result(&mut out, id);
    write_result(&mut out, response, dialect)?;
    end(&mut out);
    Ok(out)
}

fn result_task(id: &Id<'_>, task: &Standing, dialect: &Dialect) -> Vec<u8> {
    let task = forms::task(task, dialect);
    let mut out = Vec::with_capacity(64 + id.as_json().len() + task.len());
    begin_result(&mut out, id);
    out.extend_from_slice(&task);
    end(&mut out);
    out
}

fn refused(id: &Id<'_>, error: Error, version: Version) -> Reply {
    let error = reply::logged(error);
    let mut out = Vec::new();
    write_error(&mut out, id, &error, version);
    marked(reply::json(StatusCode::OK, out), &error, version)
}

fn refused_stream(id: &Id<'_>, error: Error, version: Version) -> Reply {
    let error = reply::logged(error);
    let mut out = Vec::new();
    write_failure(&mut out, &error, Some(id), version);
    marked(reply::events(Body::Whole(out.into())), &error, version)
}

/// 01 §9: what asks a caller to wait, to come again, or to say who it is, is said to proxies too.
fn marked(mut reply: Reply, error: &Error, version: Version) -> Reply {
    match error.kind() {
        ErrorKind::Unavailable => *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::RateLimited => *reply.status_mut() = StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::RequestTimeout => *reply.status_mut() = StatusCode::REQUEST_TIMEOUT,
        ErrorKind::Unauthenticated => *reply.status_mut() = StatusCode::UNAUTHORIZED,
        ErrorKind::PermissionDenied => *reply.status_mut() = StatusCode::FORBIDDEN,
        _ => {}
    }
    reply::retry_after(&mut reply, error);
    reply::scopes_needed(&mut reply, error);
    say_version(reply.headers_mut(), version);
    reply
}
