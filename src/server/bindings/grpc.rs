//! The gRPC binding, both services: decode, call, encode; beside them health and, if asked for, reflection.

mod frame;
mod health;
mod reflection;
mod stream_body;

use std::pin::pin;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Request as HttpRequest};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::model::{
    Binding, Error, ErrorKind, GetTaskRequest, Operation, Request, Response, Result,
    StreamResponse, Version,
};
use crate::server::admission::RequestContext;
use crate::server::call_headers::{CallSpan, release_head, requested_version, set_version_header};
use crate::server::reply::{self, Reply};
use crate::server::routes::Routes;
use crate::service::{AgentEntry, ServiceResponse};
use crate::wire::grpc::{operation, returns_ended_task, route_version, to_status};
use crate::wire::negotiation::{NegotiationError, negotiate};
use crate::wire::{read_grpc, write_grpc, write_grpc_event};
use stream_body::GrpcStreamBody;

/// Whether cards say that there is gRPC.
pub(in crate::server) const IS_ENABLED: bool = true;

/// An rpc: what it does, in which version, and until when.
#[derive(Clone, Copy)]
struct GrpcCall {
    operation: Operation,
    version: Version,
    deadline: Option<Instant>,
}

pub(in crate::server) async fn handle(
    routes: &Routes,
    agent: &AgentEntry,
    mut context: RequestContext,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    if is_compressed(request.headers()) {
        return match routes.check_rate_limit(&agent.namespace, &mut context) {
            Ok(_) => frame::status_reply(&frame::compression_unsupported()),
            Err(error) => error_reply(error, Version::V1),
        };
    }
    let path = request.uri().path();
    if let Some((operation, version)) = operation(path) {
        let rpc = GrpcCall {
            operation,
            version,
            deadline: read_deadline(request.headers()),
        };
        return handle_call(routes, agent, context, rpc, request).await;
    }
    if let Some(rpc) = health::parse_rpc(path) {
        let result = health::handle(routes, rpc, request.into_body()).await;
        return result.unwrap_or_else(|error| error_reply(error, Version::V1));
    }
    if routes.settings.grpc_reflection
        && let Some(service) = reflection::service(path)
    {
        return match routes.check_rate_limit(&agent.namespace, &mut context) {
            Ok(_) => service(*request).await,
            Err(error) => error_reply(error, Version::V1),
        };
    }
    error_reply(
        routes.charge_rejection(agent, &mut context, ErrorKind::MethodNotFound.into()),
        Version::V1,
    )
}

/// Whether anybody may call this, whoever they are: probes ask whether the server is well.
pub(in crate::server) fn is_public(path: &str) -> bool {
    health::parse_rpc(path).is_some()
}

/// Answers a call of somebody whom we do not serve.
pub(in crate::server) fn unauthenticated(request: &HttpRequest<Incoming>, error: Error) -> Reply {
    error_reply(
        error,
        operation(request.uri().path()).map_or(Version::V1, |(_, version)| version),
    )
}

async fn handle_call(
    routes: &Routes,
    agent: &AgentEntry,
    mut context: RequestContext,
    rpc: GrpcCall,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let requested = requested_version(request.headers(), None);
    if let Err(NegotiationError {
        error,
        reply_version,
    }) = negotiate(
        route_version(rpc.version),
        &requested,
        routes.settings.strict_version,
    ) {
        return error_reply(
            routes.charge_rejection(agent, &mut context, error),
            reply_version,
        );
    }
    let (mut head, body) = (*request).into_parts();
    let GrpcCall {
        operation, version, ..
    } = rpc;
    let span = CallSpan::new(operation, Binding::Grpc, version, &head.headers);
    let caller = context.caller().clone();
    let result = {
        let execution = pin!(execute(routes, agent, &mut context, rpc, (&mut head, body)));
        let call = span.instrument(&caller, execution);
        match rpc.deadline {
            Some(deadline) => timeout_at(deadline, call)
                .await
                .unwrap_or_else(|_| Err(deadline_exceeded())),
            None => call.await,
        }
    };
    result.unwrap_or_else(|error| {
        error_reply(
            routes.charge_rejection(agent, &mut context, error),
            rpc.version,
        )
    })
}

async fn execute(
    routes: &Routes,
    agent: &AgentEntry,
    context: &mut RequestContext,
    rpc: GrpcCall,
    (head, body): (&mut Parts, Incoming),
) -> Result<Reply> {
    let GrpcCall {
        operation,
        version,
        deadline,
    } = rpc;
    let message = frame::unframe(routes.read_body(context, body).await?)?;
    let mut decoded = read_grpc(operation, version, &message)?;
    // What came in is let go once it is read: the call may take long.
    drop(message);
    let authorized = routes.authorize(agent, context, &head.headers, version, &mut decoded)?;
    release_head(head);
    let fallback = ended_task_request(operation, version, &decoded);
    let response = match authorized.call(decoded).await {
        Err(error) if is_task_ended(&error) => {
            authorized
                .call(Request::GetTask(fallback.ok_or(error)?))
                .await?
        }
        response => response?,
    };
    let mut reply = match response {
        ServiceResponse::Single(response) => {
            frame::unary_reply(encode_response(operation, version, response)?)
        }
        ServiceResponse::Task(task) => frame::unary_reply(encode_response(
            operation,
            version,
            Response::Task(task.clone()),
        )?),
        ServiceResponse::Stream(stream) => {
            let messages = GrpcStreamBody::new(*stream, version, deadline, routes.drain.clone());
            frame::stream_reply(Box::new(messages))
        }
    };
    authorized.add_response_headers(reply.headers_mut());
    Ok(reply)
}

/// What to ask for where a subscription to a task that has ended gives the task.
fn ended_task_request(
    operation: Operation,
    version: Version,
    request: &Request,
) -> Option<GetTaskRequest> {
    match request {
        Request::SubscribeToTask(request) if returns_ended_task(operation, version) => {
            let (tenant, id) = (request.tenant.clone(), request.id.clone());
            Some(GetTaskRequest {
                tenant,
                id,
                history_length: None,
            })
        }
        _ => None,
    }
}

/// Whether it is the state of the task that stands in the way.
fn is_task_ended(error: &Error) -> bool {
    error.kind() == ErrorKind::UnsupportedOperation
        && error.metadata().any(|(key, _)| key == "state")
}

/// The one message of an answer in its frame, even where a stream was asked for.
fn encode_response(operation: Operation, version: Version, response: Response) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    frame::write(&mut out, |out| match response {
        Response::Task(task) if operation.is_streaming() => {
            write_grpc_event(out, &StreamResponse::Task(task), true, version);
            Ok(())
        }
        response => write_grpc(out, &response, version),
    })?;
    Ok(out)
}

/// Messages come as they are: what is small on the wire must not be large in memory.
fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding != "identity")
}

/// When the caller stops waiting, if it says so.
fn read_deadline(headers: &HeaderMap) -> Option<Instant> {
    let timeout = headers
        .get("grpc-timeout")?
        .to_str()
        .ok()
        .and_then(parse_timeout)?;
    Instant::now().checked_add(timeout)
}

/// At most eight digits and a unit. What is none is no deadline.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

fn deadline_exceeded() -> Error {
    ErrorKind::DeadlineExceeded.into()
}

fn error_reply(error: Error, version: Version) -> Reply {
    let mut reply = frame::status_reply(&to_status(&reply::log_failure(error), version));
    set_version_header(reply.headers_mut(), version);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_is_a_number_and_a_unit() {
        for (text, expected) in [
            ("1S", Some(Duration::from_secs(1))),
            ("90m", Some(Duration::from_millis(90))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("100000000S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("+1S", None),
            ("1x", None),
            ("1µ", None),
        ] {
            assert_eq!(parse_timeout(text), expected, "{text}");
        }
    }
}
