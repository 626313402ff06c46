//! HTTP+JSON (REST) binding, in both versions.

use std::pin::{Pin, pin};

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use crate::model::{Binding, Error, ErrorKind, Limits, Request, Response, Result, Task, Version};
use crate::server::admission::RequestContext;
use crate::server::admitted_call::{AdmittedCall, Budgeted};
use crate::server::body;
use crate::server::call_headers::{
    has_base64_files, release_head, requested_version, response_dialect, set_version_header,
};
use crate::server::call_span::CallSpan;
use crate::server::encodings;
use crate::server::event_encoder::JsonEventEncoder;
use crate::server::peer::ConnectionPeer;
use crate::server::reply::{self, Reply};
use crate::server::routes::Routes;
use crate::service::{AgentEntry, ServiceResponse};
use crate::wire::errors::{RestError, http_status, with_caller_path};
use crate::wire::file_encoding::FileConversion;
use crate::wire::negotiation::{NegotiationError, RouteVersion, negotiate};
use crate::wire::path::{RestRoute, RouteError, route};
use crate::wire::{self, A2A_JSON, Dialect, read_rest, rest_content_type, write_body};

/// Request that is not a valid call, with the version of the error reply.
struct RestDecodeError {
    error: Error,
    reply_version: Version,
    /// Value of `Allow`, if the path exists and the method does not.
    allowed_methods: Option<&'static str>,
}

/// Form of a successful reply.
struct ReplyForm {
    dialect: Dialect,
    media_type: &'static str,
    /// Whether the caller expects base64 text in the bytes of files.
    has_base64_files: bool,
}

/// Handles a request to `agent`. `path` is the path below the agent.
pub(in crate::server) async fn handle(
    routes: &Routes,
    agent: &AgentEntry,
    peer: &ConnectionPeer,
    path: &str,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let admission = &routes.admission;
    let authenticated = admission.authenticate(peer, &request).await;
    let mut context = match authenticated {
        Ok(context) => context,
        Err(error) => return unauthenticated(path, &request, error),
    };
    let (mut head, body) = HttpRequest::into_parts(*request);
    let (route, version) = match decode_route(&head, path, routes.settings.strict_version) {
        Ok(decoded) => decoded,
        Err(rejection) => {
            let error = admission.charge_rejection(agent, &mut context, rejection.error);
            let reply = error_reply(error, rejection.reply_version);
            return with_allowed_methods(reply, rejection.allowed_methods);
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
                &mut head,
                body
            )),
        )
        .await;
    result.unwrap_or_else(|error| {
        let error = admission.charge_rejection(agent, &mut context, error);
        let error = with_caller_path(error, route.operation, version, Binding::HttpJson);
        error_reply(error, version)
    })
}

/// Runs a call: decode, resolve agent, authorize, rate-limit, call, encode.
async fn execute(
    routes: &Routes,
    agent: &AgentEntry,
    context: &mut RequestContext,
    route: &RestRoute,
    head: &mut Parts,
    body: Incoming,
) -> Result<Reply> {
    let admission = &routes.admission;
    let body = if head.method == Method::POST {
        admission.read_body(context, body).await?
    } else {
        Bytes::new()
    };
    let query = head.uri.query().unwrap_or_default().to_owned();
    let codec = {
        let route = route.clone();
        move |body: Bytes, limits: &Limits| decode(&route, &query, &body, limits)
    };
    let (mut request, dialect) = admission.decode(context, body, codec).await??;
    let dialect = routes.settings.v03_rest_form.dialect(dialect, &request);
    let dialect = response_dialect(&head.headers, &mut request, dialect);
    let version = route.route_version.version();
    // Bodies with `kind` have base64 text in any case.
    let has_base64_files = dialect == Dialect::V03Rest && has_base64_files(&head.headers, version);
    if has_base64_files {
        FileConversion::Decode.apply_to_request(&mut request);
    }
    let call = admission
        .resolve_agent(agent, context, &head.headers, version, &mut request)?
        .authorize(&request)?
        .rate_limit()?;
    let media_type = rest_content_type(mentions_a2a_json(&head.headers), version);
    let form = ReplyForm {
        dialect,
        media_type,
        has_base64_files,
    };
    let response = pin!(call.call(request));
    release_head(head);
    finish(routes, &call, response, form).await
}

/// Awaits the response and encodes it. Not part of [`execute`]: its locals would be live at two await points, and share no
/// memory with those of decoding.
async fn finish(
    routes: &Routes,
    call: &AdmittedCall<'_>,
    response: Pin<&mut (impl Future<Output = Result<ServiceResponse>> + Send)>,
    form: ReplyForm,
) -> Result<Reply> {
    let response = response.await?;
    // Awaited outside of `match`: future size.
    let waiting = match respond(routes, call, response, form)? {
        Budgeted::Ready(reply) => return Ok(call.with_response_headers(reply)),
        Budgeted::Waiting(waiting) => waiting,
    };
    let reply = waiting.await?;
    Ok(call.with_response_headers(reply))
}

/// Encodes a response within the byte budget.
fn respond<'a>(
    routes: &'a Routes,
    call: &'a AdmittedCall<'_>,
    response: ServiceResponse,
    form: ReplyForm,
) -> Result<Budgeted<'a, Reply>> {
    let dialect = form.dialect.clone();
    let format = |task: &Task| encodings::task_format(&dialect, None, task);
    call.encode(response, format, move |response| {
        encode(routes, call, response, form)
    })
}

/// Resolves operation and version from method, path and headers.
fn decode_route(
    head: &Parts,
    path: &str,
    strict: bool,
) -> Result<(RestRoute, Version), RestDecodeError> {
    let reject = |error, reply_version| RestDecodeError {
        error,
        reply_version,
        allowed_methods: None,
    };
    let route = route(head.method.as_str(), path).map_err(|error| match error {
        RouteError::NotFound(key) => reject(ErrorKind::MethodNotFound.into(), key.version()),
        RouteError::MethodNotAllowed(key, methods) => RestDecodeError {
            allowed_methods: Some(methods),
            ..reject(ErrorKind::MethodNotAllowed.into(), key.version())
        },
    })?;
    // 04 §2: the content type is checked before the version.
    if head.method == Method::POST {
        body::check_content_type(&head.headers)
            .map_err(|error| reject(error, route.route_version.version()))?;
    }
    let requested = requested_version(&head.headers, head.uri.query());
    let version = negotiate(route.route_version, &requested, strict).map_err(
        |NegotiationError {
             error,
             reply_version,
         }| reject(error, reply_version),
    )?;
    Ok((route, version))
}

/// Decodes query and body, and checks the size of the content.
fn decode(
    route: &RestRoute,
    query: &str,
    body: &[u8],
    limits: &Limits,
) -> Result<(Request, Dialect)> {
    let (request, dialect) = read_rest(route, query, body)?;
    request.check_content_size(limits)?;
    Ok((request, dialect))
}

/// Encodes a response as JSON or an event stream.
fn encode(
    routes: &Routes,
    call: &AdmittedCall<'_>,
    response: ServiceResponse,
    form: ReplyForm,
) -> Result<Reply> {
    let ReplyForm {
        dialect,
        media_type,
        has_base64_files,
    } = form;
    let response = match response {
        // The cached encoding of a task has files in another form.
        ServiceResponse::Task(task) if has_base64_files => {
            Response::Task(Task::clone(&task)).into()
        }
        response => response,
    };
    Ok(match response {
        ServiceResponse::Single(mut response, _) => {
            if has_base64_files {
                FileConversion::Encode.apply_to_response(&mut response);
            }
            let dialect = dialect.for_response(&response);
            let mut out = Vec::with_capacity(1024);
            write_body(&mut out, &response, &dialect)?;
            reply::full(StatusCode::OK, media_type, out.into())
        }
        ServiceResponse::Task(mut task) if task.large_size().is_some() => {
            let dialect = dialect.for_task(&task);
            let body = encodings::encode_large_task(call, &mut task, &dialect)?;
            reply::pieces(StatusCode::OK, media_type, [body])
        }
        ServiceResponse::Task(task) => {
            let body = encodings::encode_task(&task, &dialect.for_task(&task));
            reply::full(StatusCode::OK, media_type, body)
        }
        ServiceResponse::Stream(stream) => {
            let encoder = JsonEventEncoder::new(None, dialect);
            routes.event_stream(*stream, encoder.with_base64_files(has_base64_files))
        }
    })
}

/// Replies to a request whose caller is not authenticated, in the version of its path.
pub(in crate::server) fn unauthenticated(
    path: &str,
    request: &HttpRequest<Incoming>,
    error: Error,
) -> Reply {
    let route_version = match route(request.method().as_str(), path) {
        Ok(route) => route.route_version,
        Err(RouteError::NotFound(version) | RouteError::MethodNotAllowed(version, _)) => version,
    };
    error_reply(error, route_version.version())
}

/// Replies to a request whose path addresses no agent.
pub(in crate::server) fn not_found() -> Reply {
    error_reply(
        ErrorKind::MethodNotFound.into(),
        RouteVersion::PathV1.version(),
    )
}

/// Whether the client sends or accepts `application/a2a+json`, the media type of version 1.0.
fn mentions_a2a_json(headers: &HeaderMap) -> bool {
    let values = [CONTENT_TYPE, ACCEPT]
        .into_iter()
        .flat_map(|name| headers.get_all(name));
    let mut texts = values.filter_map(|value| value.to_str().ok());
    texts.any(|text| text.to_ascii_lowercase().contains(A2A_JSON))
}

/// Adds `Allow` to a reply with status 405.
fn with_allowed_methods(mut reply: Reply, methods: Option<&'static str>) -> Reply {
    if reply.status() == StatusCode::METHOD_NOT_ALLOWED
        && let Some(methods) = methods
    {
        let headers = reply.headers_mut();
        headers.insert(ALLOW, HeaderValue::from_static(methods));
    }
    reply
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
