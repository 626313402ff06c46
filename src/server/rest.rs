//! The HTTP+JSON binding, both versions: decode, call, encode.

use std::pin::pin;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use super::body;
use super::events::{Envelope, Events};
use super::forms;
use super::guest::Guest;
use super::incoming::{Told, asked, dialect_of, let_go, say_version};
use super::reply::{self, Body, Reply};
use super::routes::Routes;
use crate::model::{Binding, Error, ErrorKind, Result, Version};
use crate::service::{Answer, Resident};
use crate::wire::decide::{Key, Refusal, decide};
use crate::wire::errors::{RestError, http_status};
use crate::wire::path::{NoRoute, Route, route};
use crate::wire::{self, A2A_JSON, read_rest, rest_type, write_body};

/// A request that is no call, and how to say so.
struct NoCall {
    error: Error,
    form: Version,
    allowed: Option<&'static str>,
}

/// Answers a request whose path begins below the agent's base.
pub(super) async fn answer(
    routes: &Routes,
    resident: &Resident,
    mut guest: Guest,
    path: &str,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let (mut head, body) = (*request).into_parts();
    let (route, version) = match recognised(&head, path, routes.settings.strict_version) {
        Ok(recognised) => recognised,
        Err(NoCall {
            error,
            form,
            allowed,
        }) => {
            let mut reply = refused(routes.refuse(resident, &mut guest, error), form);
            if let Some(methods) =
                allowed.filter(|_| reply.status() == StatusCode::METHOD_NOT_ALLOWED)
            {
                reply
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static(methods));
            }
            return reply;
        }
    };
    let told = Told::new(route.operation, Binding::HttpJson, version, &head.headers);
    let caller = guest.caller().clone();
    let answer = told
        .of(
            &caller,
            pin!(served(
                routes,
                resident,
                &mut guest,
                &route,
                (&mut head, body)
            )),
        )
        .await;
    answer.unwrap_or_else(|error| refused(routes.refuse(resident, &mut guest, error), version))
}

/// Which operation a request is for, in which version.
fn recognised(head: &Parts, path: &str, strict: bool) -> Result<(Route, Version), NoCall> {
    let no_call = |error, form| NoCall {
        error,
        form,
        allowed: None,
    };
    let route = route(head.method.as_str(), path).map_err(|no_route| match no_route {
        NoRoute::NotFound(key) => no_call(ErrorKind::MethodNotFound.into(), key.version()),
        NoRoute::NotAllowed(key, methods) => NoCall {
            allowed: Some(methods),
            ..no_call(ErrorKind::MethodNotAllowed.into(), key.version())
        },
    })?;
    // 04 §2: what the body is comes before what version it is in.
    if head.method == Method::POST {
        body::check_type(&head.headers).map_err(|error| no_call(error, route.key.version()))?;
    }
    let asked = asked(&head.headers, head.uri.query());
    let version = decide(route.key, &asked, strict)
        .map_err(|Refusal { error, form }| no_call(error, form))?;
    Ok((route, version))
}

/// Answers a request of somebody whom we do not serve: whatever it asks for, they are told no more.
pub(super) fn turned_away(path: &str, request: &HttpRequest<Incoming>, error: Error) -> Reply {
    let key = match route(request.method().as_str(), path) {
        Ok(route) => route.key,
        Err(NoRoute::NotFound(key) | NoRoute::NotAllowed(key, _)) => key,
    };
    refused(error, key.version())
}

/// Answers a request to an agent that is not there.
pub(super) fn unknown() -> Reply {
    refused(ErrorKind::MethodNotFound.into(), Key::PathV1.version())
}

async fn served(
    routes: &Routes,
    resident: &Resident,
    guest: &mut Guest,
    route: &Route,
    (head, body): (&mut Parts, Incoming),
) -> Result<Reply> {
    let body = match head.method {
        Method::POST => routes.read(guest, body).await?,
        _ => Bytes::new(),
    };
    let (mut decoded, dialect) = read_rest(route, head.uri.query().unwrap_or_default(), &body)?;
    let dialect = dialect_of(&head.headers, &decoded, dialect);
    let version = route.key.version();
    // What came in is let go once it is read: the call may take long.
    drop(body);
    let entered = routes.enter(resident, guest, &head.headers, version, &mut decoded)?;
    let media_type = rest_type(names_a2a(&head.headers), version);
    let_go(head);
    let mut reply = match entered.call(decoded).await? {
        Answer::One(response) => {
            let mut out = Vec::with_capacity(1024);
            write_body(&mut out, &response, &dialect)?;
            reply::whole(StatusCode::OK, media_type, out.into())
        }
        Answer::Task(task) => {
            reply::whole(StatusCode::OK, media_type, forms::task(&task, &dialect))
        }
        Answer::Stream(stream) => {
            let envelope = Envelope::new(None, dialect);
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

/// Whether the client sends or accepts the media type of 1.0.
fn names_a2a(headers: &HeaderMap) -> bool {
    let values = [CONTENT_TYPE, ACCEPT]
        .into_iter()
        .flat_map(|name| headers.get_all(name));
    let mut texts = values.filter_map(|value| value.to_str().ok());
    texts.any(|text| text.to_ascii_lowercase().contains(A2A_JSON))
}

fn refused(error: Error, version: Version) -> Reply {
    let error = reply::logged(error);
    let mut out = Vec::new();
    wire::write(&mut out, &RestError(&error, version));
    let status = StatusCode::from_u16(http_status(error.kind(), version));
    let mut reply = reply::json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), out);
    reply::retry_after(&mut reply, &error);
    reply::scopes_needed(&mut reply, &error);
    say_version(reply.headers_mut(), version);
    reply
}
