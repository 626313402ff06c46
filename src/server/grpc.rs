//! The gRPC binding, both services: decode, call, encode; beside them health and, if asked for, reflection.

mod frame;
mod health;
mod messages;
mod reflection;

use std::pin::pin;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Request as HttpRequest};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::guest::Guest;
use super::incoming::{Told, asked, let_go, say_version};
use super::reply::{self, Reply};
use super::routes::Routes;
use crate::model::{
    Binding, Error, ErrorKind, GetTaskRequest, Operation, Request, Response, Result,
    StreamResponse, Version,
};
use crate::service::{Answer, Resident};
use crate::wire::decide::{Refusal, decide};
use crate::wire::grpc::{gives_ended_task, key, operation, to_status};
use crate::wire::{read_grpc, write_grpc, write_grpc_event};
use messages::Messages;

/// Whether cards say that there is gRPC.
pub(super) const SERVED: bool = true;

/// An rpc: what it does, in which version, and until when.
#[derive(Clone, Copy)]
struct Rpc {
    operation: Operation,
    version: Version,
    deadline: Option<Instant>,
}

pub(super) async fn answer(
    routes: &Routes,
    resident: &Resident,
    mut guest: Guest,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    if is_compressed(request.headers()) {
        return match routes.count(&resident.namespace, &mut guest) {
            Ok(_) => frame::refusal(&frame::no_compression()),
            Err(error) => refused(error, Version::V1),
        };
    }
    let path = request.uri().path();
    if let Some((operation, version)) = operation(path) {
        let rpc = Rpc {
            operation,
            version,
            deadline: deadline(request.headers()),
        };
        return called(routes, resident, guest, rpc, request).await;
    }
    if let Some(rpc) = health::rpc(path) {
        let answer = health::answer(routes, rpc, request.into_body()).await;
        return answer.unwrap_or_else(|error| refused(error, Version::V1));
    }
    if routes.settings.grpc_reflection
        && let Some(service) = reflection::service(path)
    {
        return match routes.count(&resident.namespace, &mut guest) {
            Ok(_) => service(*request).await,
            Err(error) => refused(error, Version::V1),
        };
    }
    refused(
        routes.refuse(resident, &mut guest, ErrorKind::MethodNotFound.into()),
        Version::V1,
    )
}

/// Whether anybody may call this, whoever they are: probes ask whether the server is well.
pub(super) fn is_public(path: &str) -> bool {
    health::rpc(path).is_some()
}

/// Answers a call of somebody whom we do not serve.
pub(super) fn turned_away(request: &HttpRequest<Incoming>, error: Error) -> Reply {
    refused(
        error,
        operation(request.uri().path()).map_or(Version::V1, |(_, version)| version),
    )
}

async fn called(
    routes: &Routes,
    resident: &Resident,
    mut guest: Guest,
    rpc: Rpc,
    request: Box<HttpRequest<Incoming>>,
) -> Reply {
    let asked = asked(request.headers(), None);
    if let Err(Refusal { error, form }) =
        decide(key(rpc.version), &asked, routes.settings.strict_version)
    {
        return refused(routes.refuse(resident, &mut guest, error), form);
    }
    let (mut head, body) = (*request).into_parts();
    let Rpc {
        operation, version, ..
    } = rpc;
    let told = Told::new(operation, Binding::Grpc, version, &head.headers);
    let caller = guest.caller().clone();
    let answer = {
        let served = pin!(served(routes, resident, &mut guest, rpc, (&mut head, body)));
        let answer = told.of(&caller, served);
        match rpc.deadline {
            Some(deadline) => timeout_at(deadline, answer)
                .await
                .unwrap_or_else(|_| Err(too_late())),
            None => answer.await,
        }
    };
    answer.unwrap_or_else(|error| refused(routes.refuse(resident, &mut guest, error), rpc.version))
}

async fn served(
    routes: &Routes,
    resident: &Resident,
    guest: &mut Guest,
    rpc: Rpc,
    (head, body): (&mut Parts, Incoming),
) -> Result<Reply> {
    let Rpc {
        operation,
        version,
        deadline,
    } = rpc;
    let message = frame::unframed(routes.read(guest, body).await?)?;
    let mut decoded = read_grpc(operation, version, &message)?;
    // What came in is let go once it is read: the call may take long.
    drop(message);
    let entered = routes.enter(resident, guest, &head.headers, version, &mut decoded)?;
    let_go(head);
    let get = get_ended(operation, version, &decoded);
    let answer = match entered.call(decoded).await {
        Err(error) if has_ended(&error) => {
            entered.call(Request::GetTask(get.ok_or(error)?)).await?
        }
        answer => answer?,
    };
    let mut reply = match answer {
        Answer::One(response) => frame::one(written(operation, version, response)?),
        Answer::Task(task) => {
            frame::one(written(operation, version, Response::Task(task.clone()))?)
        }
        Answer::Stream(stream) => {
            let messages = Messages::new(*stream, version, deadline, routes.drain.clone());
            frame::reply(Box::new(messages))
        }
    };
    entered.mark(reply.headers_mut());
    Ok(reply)
}

/// What to ask for where a subscription to a task that has ended gives the task.
fn get_ended(operation: Operation, version: Version, request: &Request) -> Option<GetTaskRequest> {
    match request {
        Request::SubscribeToTask(request) if gives_ended_task(operation, version) => {
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
fn has_ended(error: &Error) -> bool {
    error.kind() == ErrorKind::UnsupportedOperation
        && error.metadata().any(|(key, _)| key == "state")
}

/// The one message of an answer in its frame, even where a stream was asked for.
fn written(operation: Operation, version: Version, response: Response) -> Result<Vec<u8>> {
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
fn deadline(headers: &HeaderMap) -> Option<Instant> {
    let patience = headers
        .get("grpc-timeout")?
        .to_str()
        .ok()
        .and_then(patience)?;
    Instant::now().checked_add(patience)
}

/// At most eight digits and a unit. What is none is no deadline.
fn patience(text: &str) -> Option<Duration> {
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

fn too_late() -> Error {
    ErrorKind::DeadlineExceeded.into()
}

fn refused(error: Error, version: Version) -> Reply {
    let mut reply = frame::refusal(&to_status(&reply::logged(error), version));
    say_version(reply.headers_mut(), version);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_a_number_and_a_unit() {
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
            assert_eq!(patience(text), expected, "{text}");
        }
    }
}
