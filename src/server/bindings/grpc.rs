//! gRPC binding, for the services of both versions, with health checking and optional reflection.

mod frame;
mod health;
mod reflection;
mod stream_body;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request as HttpRequest};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::is_task_ended;
use crate::model::{
    Binding, CallerKey, Error, ErrorKind, GetTaskRequest, Limits, Operation, Request, Response,
    Result, StreamResponse, Task, Version,
};
use crate::rt::ByteBudget;
use crate::server::admission::RequestContext;
use crate::server::admitted_call::{AdmittedCall, Budgeted};
use crate::server::call_headers::{
    has_base64_files, release_head, requested_version, set_version_header,
};
use crate::server::call_span::CallSpan;
use crate::server::encodings::FIRST_GRPC_ENCODING;
use crate::server::peer::ConnectionPeer;
use crate::server::reply::{self, PiecedBody, Reply};
use crate::server::routes::Routes;
use crate::service::{AgentEntry, ServiceResponse, TaskEventStream, TaskView};
use crate::wire::errors::with_caller_path;
use crate::wire::file_encoding::FileConversion;
use crate::wire::grpc::{
    operation, returns_ended_task, returns_public_card, route_version, to_status,
};
use crate::wire::negotiation::{NegotiationError, negotiate};
use crate::wire::{read_grpc, write_grpc, write_grpc_event, write_grpc_task};
use health::HealthRpc;
use reflection::ReflectionService;
use stream_body::GrpcStreamBody;

/// Whether cards declare gRPC interfaces.
pub(in crate::server) const IS_ENABLED: bool = true;

/// Service that a path addresses.
enum Target {
    Call {
        operation: Operation,
        version: Version,
    },
    Health(HealthRpc),
    Reflection(&'static ReflectionService),
    Unknown,
}

/// Operation of the A2A service, with its version and deadline.
#[derive(Clone, Copy)]
struct GrpcCall {
    operation: Operation,
    version: Version,
    deadline: Option<Instant>,
    /// Whether the caller puts base64 text into the bytes of files.
    has_base64_files: bool,
}

/// Whether a path is that of a health check. A health watch is a stream and none.
pub(in crate::server) fn is_health_check(path: &str) -> bool {
    matches!(health::parse_rpc(path), Some(HealthRpc::Check))
}

/// Refuses a request of a server whose settings exclude gRPC.
pub(in crate::server) fn not_served() -> Reply {
    frame::status_reply(&tonic::Status::unimplemented("gRPC is not served"))
}

/// Handles a gRPC request. Its path names the service; the tenant in its message can name an agent.
pub(in crate::server) async fn handle(
    routes: &Routes,
    peer: &ConnectionPeer,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let admission = &routes.admission;
    let agent = admission.directory.root();
    let target = target(routes, &request);
    // Health probes are not authenticated.
    let authenticated = if matches!(target, Target::Health(_)) {
        Ok(admission.skip_authentication(peer, &request))
    } else {
        admission.authenticate(peer, &request).await
    };
    let mut context = match authenticated {
        Ok(context) => context,
        Err(error) => return error_reply(error, target.version()),
    };
    if is_compressed(request.headers()) {
        return match admission.rate_limit(agent, &mut context) {
            Ok(_) => frame::status_reply(&frame::compression_unsupported()),
            Err(error) => error_reply(error, Version::V1),
        };
    }
    match target {
        Target::Call { operation, version } => {
            let rpc = GrpcCall {
                operation,
                version,
                deadline: read_deadline(request.headers()),
                has_base64_files: has_base64_files(request.headers(), version),
            };
            handle_call(routes, agent, context, rpc, request).await
        }
        Target::Health(rpc) => health::handle(routes, &mut context, rpc, request.into_body())
            .await
            .unwrap_or_else(|error| error_reply(error, Version::V1)),
        Target::Reflection(service) => reflect(routes, agent, &mut context, service, *request)
            .await
            .unwrap_or_else(|error| error_reply(error, Version::V1)),
        Target::Unknown => {
            let error = ErrorKind::MethodNotFound.into();
            let error = admission.charge_rejection(agent, &mut context, error);
            error_reply(error, Version::V1)
        }
    }
}

/// Handles a reflection request: a stream of requests, each of a bounded size.
///
/// # Errors
/// Rate limited. Unavailable: too many streams, or too many request bodies.
async fn reflect(
    routes: &Routes,
    agent: &AgentEntry,
    context: &mut RequestContext,
    service: &ReflectionService,
    request: HttpRequest<Incoming>,
) -> Result<Reply> {
    let admission = &routes.admission;
    let _permit = admission.rate_limit(agent, context)?;
    let (head, body) = request.into_parts();
    let body = admission.count_body(context, body, reflection::MAX_REQUEST_BYTES)?;
    Ok(service(HttpRequest::from_parts(head, body)).await)
}

/// Returns the service that the path of a request addresses.
fn target(routes: &Routes, request: &HttpRequest<Incoming>) -> Target {
    let path = request.uri().path();
    if let Some((operation, version)) = operation(path) {
        return Target::Call { operation, version };
    }
    if let Some(rpc) = health::parse_rpc(path) {
        return Target::Health(rpc);
    }
    if routes.settings.grpc_reflection
        && let Some(service) = reflection::service(path)
    {
        return Target::Reflection(service);
    }
    Target::Unknown
}

impl Target {
    /// Returns the version of error replies.
    fn version(&self) -> Version {
        match self {
            Self::Call { version, .. } => *version,
            Self::Health(_) | Self::Reflection(_) | Self::Unknown => Version::V1,
        }
    }
}

/// Handles an operation of the A2A service, within its deadline.
async fn handle_call(
    routes: &Routes,
    agent: &AgentEntry,
    mut context: RequestContext,
    rpc: GrpcCall,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let admission = &routes.admission;
    let strict = routes.settings.strict_version;
    let requested = requested_version(request.headers(), None);
    if let Err(NegotiationError {
        error,
        reply_version,
    }) = negotiate(route_version(rpc.version), &requested, strict)
    {
        let error = admission.charge_rejection(agent, &mut context, error);
        return error_reply(error, reply_version);
    }
    let (mut head, body) = HttpRequest::into_parts(*request);
    let span = CallSpan::new(rpc.operation, Binding::Grpc, rpc.version, &head.headers);
    let caller = context.caller().clone();
    let result = {
        let call = pin!(execute(routes, agent, &mut context, rpc, &mut head, body));
        let call = span.instrument(&caller, call);
        match rpc.deadline {
            Some(deadline) => timeout_at(deadline, call)
                .await
                .unwrap_or_else(|_| Err(deadline_exceeded())),
            None => call.await,
        }
    };
    result.unwrap_or_else(|error| {
        let error = admission.charge_rejection(agent, &mut context, error);
        let error = with_caller_path(error, rpc.operation, rpc.version, Binding::Grpc);
        error_reply(error, rpc.version)
    })
}

/// Runs a call: decode, resolve agent, authorize, rate-limit, call, encode.
async fn execute(
    routes: &Routes,
    agent: &AgentEntry,
    context: &mut RequestContext,
    rpc: GrpcCall,
    head: &mut Parts,
    body: Incoming,
) -> Result<Reply> {
    let admission = &routes.admission;
    let body = admission.read_body(context, body).await?;
    let codec = move |body, limits: &Limits| decode(rpc, body, limits);
    let mut request = admission.decode(context, body, codec).await??;
    if rpc.has_base64_files {
        FileConversion::Decode.apply_to_request(&mut request);
    }
    let call = admission
        .resolve_agent(agent, context, &head.headers, rpc.version, &mut request)?
        .authorize(&request)?
        .rate_limit()?;
    release_head(head);
    let fallback = ended_task_request(rpc, &request);
    let response = match call.call(request).await {
        Err(error) if is_task_ended(&error) => {
            call.call(Request::GetTask(fallback.ok_or(error)?)).await?
        }
        Err(error) if returns_public_card(&error, rpc.operation, rpc.version) => {
            call.public_card(&routes.cards).ok_or(error)?
        }
        response => response?,
    };
    let format = |_: &Task| Some(task_format(rpc.version));
    // Awaited outside of `match`: future size.
    let waiting = match call.encode(response, format, |response| {
        encode(routes, &call, rpc, response)
    })? {
        Budgeted::Ready(reply) => return Ok(call.with_response_headers(reply)),
        Budgeted::Waiting(waiting) => waiting,
    };
    let reply = waiting.await?;
    Ok(call.with_response_headers(reply))
}

/// Decodes the one message of a request, frees the body, and checks the size of the content.
fn decode(rpc: GrpcCall, body: Bytes, limits: &Limits) -> Result<Request> {
    let message = frame::unframe(body)?;
    let request = read_grpc(rpc.operation, rpc.version, &message)?;
    request.check_content_size(limits)?;
    Ok(request)
}

/// Encodes a response as one message or a stream of messages.
fn encode(
    routes: &Routes,
    call: &AdmittedCall<'_>,
    rpc: GrpcCall,
    response: ServiceResponse,
) -> Result<Reply> {
    Ok(match response {
        ServiceResponse::Single(response, _) => frame::unary_reply(encode_message(rpc, *response)?),
        ServiceResponse::Task(mut task) if task.large_size().is_some() && !rpc.has_base64_files => {
            let message = encode_large_task(call, rpc.version, &mut task)?;
            let header = frame::task_header(message.len(), rpc.operation.is_streaming());
            frame::pieced_reply(PiecedBody::new([header, message]).counted())
        }
        ServiceResponse::Task(task) => {
            frame::unary_reply(encode_message(rpc, Response::Task(task.clone()))?)
        }
        ServiceResponse::Stream(stream) => {
            let drain = routes.drain.clone();
            let body = GrpcStreamBody::new(*stream, rpc, drain);
            frame::stream_reply(Box::new(body))
        }
    })
}

/// Returns the cache key of a task.
fn task_format(version: Version) -> u8 {
    FIRST_GRPC_ENCODING + 2 * (version as u8)
}

/// Returns the message of a large task without its frame, shared by all readers of the version. It counts against the
/// byte budget until they have dropped it.
fn encode_large_task(
    call: &AdmittedCall<'_>,
    version: Version,
    task: &mut TaskView,
) -> Result<Bytes> {
    encode_counted(task, version, call.outgoing(), &call.caller_key())
}

/// Returns the message of a large task in a stream, like [`encode_large_task`].
fn encode_streamed_task(
    stream: &TaskEventStream,
    version: Version,
    task: &mut TaskView,
) -> Result<Bytes> {
    match stream.outgoing() {
        Some((outgoing, caller)) => encode_counted(task, version, outgoing, caller),
        None => Err(Error::internal("a stream of a task has a budget")),
    }
}

fn encode_counted(
    task: &mut TaskView,
    version: Version,
    outgoing: &Arc<ByteBudget>,
    caller: &CallerKey,
) -> Result<Bytes> {
    let encoding = task_format(version);
    let write = |task: &Task, out: &mut Vec<u8>| write_grpc_task(out, task, version);
    task.encoded_large(encoding, outgoing, caller, write)
}

/// Encodes a single message in its frame. A streaming operation gets it as a stream event.
fn encode_message(rpc: GrpcCall, mut response: Response) -> Result<Vec<u8>> {
    if rpc.has_base64_files {
        FileConversion::Encode.apply_to_response(&mut response);
    }
    let mut out = Vec::with_capacity(1024);
    frame::write(&mut out, |out| match response {
        Response::Task(task) if rpc.operation.is_streaming() => {
            write_grpc_event(out, &StreamResponse::Task(task), true, rpc.version);
            Ok(())
        }
        response => write_grpc(out, &response, rpc.version),
    })?;
    Ok(out)
}

/// Returns the read that replaces a subscription to an ended task, in versions that return the task
/// then.
fn ended_task_request(rpc: GrpcCall, request: &Request) -> Option<GetTaskRequest> {
    match request {
        Request::SubscribeToTask(request) if returns_ended_task(rpc.operation, rpc.version) => {
            Some(GetTaskRequest {
                tenant: request.tenant.clone(),
                id: request.id.clone(),
                history_length: None,
            })
        }
        _ => None,
    }
}

/// Whether the message is compressed. Compression is not supported, so there are no decompression
/// bombs.
fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding != "identity")
}

/// Returns the deadline of `grpc-timeout`.
fn read_deadline(headers: &HeaderMap) -> Option<Instant> {
    let timeout = headers
        .get("grpc-timeout")?
        .to_str()
        .ok()
        .and_then(parse_timeout)?;
    Instant::now().checked_add(timeout)
}

/// Parses a `grpc-timeout`: at most eight digits and a unit. Returns `None` for malformed values.
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
