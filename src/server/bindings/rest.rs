//! The HTTP+JSON binding, both versions: decode, call, encode.

use std::pin::pin;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use crate::model::{Binding, Error, ErrorKind, Result, Version};
use crate::server::admission::RequestContext;
use crate::server::body;
use crate::server::call_headers::{
    CallSpan, release_head, requested_version, response_dialect, set_version_header,
};
use crate::server::encodings;
use crate::server::reply::{self, Reply, ReplyBody};
use crate::server::routes::Routes;
use crate::server::sse_body::{JsonEventEncoder, SseBody};
use crate::service::{AgentEntry, ServiceResponse};
use crate::wire::errors::{RestError, http_status};
use crate::wire::negotiation::{NegotiationError, RouteVersion, negotiate};
use crate::wire::path::{RestRoute, RouteError, route};
use crate::wire::{self, A2A_JSON, read_rest, rest_content_type, write_body};

/// A request that is no call, and how to say so.
struct RestDecodeError {
    error: Error,
    reply_version: Version,
    allowed_methods: Option<&'static str>,
}

/// Answers a request whose path begins below the agent's base.
pub(in crate::server) async fn handle(
    routes: &Routes,
    agent: &AgentEntry,
    mut context: RequestContext,
    path: &str,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let (mut head, body) = (*request).into_parts();
    let (route, version) = match resolve_route(&head, path, routes.settings.strict_version) {
        Ok(resolved) => resolved,
        Err(RestDecodeError {
            error,
            reply_version,
            allowed_methods,
        }) => {
            let mut reply = error_reply(
                routes.charge_rejection(agent, &mut context, error),
                reply_version,
            );
            if let Some(methods) =
                allowed_methods.filter(|_| reply.status() == StatusCode::METHOD_NOT_ALLOWED)
            {
                reply
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static(methods));
            }
            return reply;
        }
    };
    let span = CallSpan::new(route.operation, Binding::HttpJson, version, &head.headers);
    let caller = context.caller().clone();
    let result = span
        .instrument(
            &caller,
            pin!(execute(
                routes,
                agent,
                &mut context,
                &route,
                (&mut head, body)
            )),
        )
        .await;
    result.unwrap_or_else(|error| {
        error_reply(routes.charge_rejection(agent, &mut context, error), version)
    })
}

/// Which operation a request is for, in which version.
fn resolve_route(
    head: &Parts,
    path: &str,
    strict: bool,
) -> Result<(RestRoute, Version), RestDecodeError> {
    let rejection = |error, reply_version| RestDecodeError {
        error,
        reply_version,
        allowed_methods: None,
    };
    let route = route(head.method.as_str(), path).map_err(|error| match error {
        RouteError::NotFound(key) => rejection(ErrorKind::MethodNotFound.into(), key.version()),
        RouteError::MethodNotAllowed(key, methods) => RestDecodeError {
            allowed_methods: Some(methods),
            ..rejection(ErrorKind::MethodNotAllowed.into(), key.version())
        },
    })?;
    // 04 §2: what the body is comes before what version it is in.
    if head.method == Method::POST {
        body::check_content_type(&head.headers)
            .map_err(|error| rejection(error, route.route_version.version()))?;
    }
    let requested = requested_version(&head.headers, head.uri.query());
    let version = negotiate(route.route_version, &requested, strict).map_err(
        |NegotiationError {
             error,
             reply_version,
         }| rejection(error, reply_version),
    )?;
    Ok((route, version))
}

/// Answers a request of somebody whom we do not serve: whatever it asks for, they are told no more.
pub(in crate::server) fn unauthenticated(
    path: &str,
    request: &HttpRequest<Incoming>,
    error: Error,
) -> Reply {
    let key = match route(request.method().as_str(), path) {
        Ok(route) => route.route_version,
        Err(RouteError::NotFound(key) | RouteError::MethodNotAllowed(key, _)) => key,
    };
    error_reply(error, key.version())
}

/// Answers a request to an agent that is not there.
pub(in crate::server) fn not_found() -> Reply {
    error_reply(
        ErrorKind::MethodNotFound.into(),
        RouteVersion::PathV1.version(),
    )
}

async fn execute(
    routes: &Routes,
    agent: &AgentEntry,
    context: &mut RequestContext,
    route: &RestRoute,
    (head, body): (&mut Parts, Incoming),
) -> Result<Reply> {
    let body = match head.method {
        Method::POST => routes.read_body(context, body).await?,
        _ => Bytes::new(),
    };
    let (mut decoded, dialect) = read_rest(route, head.uri.query().unwrap_or_default(), &body)?;
    let dialect = response_dialect(&head.headers, &decoded, dialect);
    let version = route.route_version.version();
    // What came in is let go once it is read: the call may take long.
    drop(body);
    let authorized = routes.authorize(agent, context, &head.headers, version, &mut decoded)?;
    let media_type = rest_content_type(mentions_a2a_json(&head.headers), version);
    release_head(head);
    let mut reply = match authorized.call(decoded).await? {
        ServiceResponse::Single(response) => {
            let mut out = Vec::with_capacity(1024);
            write_body(&mut out, &response, &dialect)?;
            reply::full(StatusCode::OK, media_type, out.into())
        }
        ServiceResponse::Task(task) => reply::full(
            StatusCode::OK,
            media_type,
            encodings::encode_task(&task, &dialect),
        ),
        ServiceResponse::Stream(stream) => {
            let encoder = JsonEventEncoder::new(None, dialect);
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

/// Whether the client sends or accepts the media type of 1.0.
fn mentions_a2a_json(headers: &HeaderMap) -> bool {
    let values = [CONTENT_TYPE, ACCEPT]
        .into_iter()
        .flat_map(|name| headers.get_all(name));
    let mut texts = values.filter_map(|value| value.to_str().ok());
    texts.any(|text| text.to_ascii_lowercase().contains(A2A_JSON))
}

fn error_reply(error: Error, version: Version) -> Reply {
    let error = reply::log_failure(error);
    let mut out = Vec::new();
    wire::write_json(&mut out, &RestError(&error, version));
    let status = StatusCode::from_u16(http_status(error.kind(), version));
    let mut reply = reply::json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), out);
    reply::set_retry_after(&mut reply, &error);
    reply::set_missing_scopes(&mut reply, &error);
    set_version_header(reply.headers_mut(), version);
    reply
}
