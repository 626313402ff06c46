//! The JSON-RPC binding: decode, call, encode. Always 1.0, and HTTP 200 whatever the answer is.

use http::Request as HttpRequest;
use hyper::body::Incoming;
use tracing::Instrument;

use super::body;
use super::routes::{Reply, json};
use crate::model::{Call, Error, ErrorKind, Request, Response, Result, Version};
use crate::service::Service;
use crate::wire::json::read;
use crate::wire::jsonrpc::{Id, Refused, begin_result, end, read_request, write_error};
use crate::wire::write;

/// Where it is served, each also with a slash behind it.
pub(super) const PATHS: [&str; 3] = ["", "/a2a", "/api/a2a"];

const VERSION: Version = Version::V1;

pub(super) async fn answer(service: &Service, call: &Call, request: HttpRequest<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let read = match body::check_type(&head.headers) {
        Ok(()) => body::read(body).await,
        Err(error) => Err(error),
    };
    match read {
        Ok(body) => json(called(service, call, &body).await),
        Err(error) => json(refused(&Id::NULL, &error)),
    }
}

async fn called(service: &Service, call: &Call, body: &[u8]) -> Vec<u8> {
    let request = match read_request(body) {
        Ok(request) => request,
        Err(Refused { id, error }) => return refused(&id, &error),
    };
    let span = tracing::info_span!(
        "call",
        method = ?request.method,
        binding = "JSONRPC",
        version = VERSION.as_str(),
        caller = call.caller().name()
    );
    let answer = async { service.call(call, decode(&request.method, request.params)?).await };
    match answer.instrument(span).await {
        Ok(response) => result(&request.id, &response),
        Err(error) => refused(&request.id, &error),
    }
}

/// The methods served so far.
fn decode(method: &str, params: &str) -> Result<Request> {
    match method {
        "SendMessage" => Ok(Request::SendMessage(read(params)?)),
        "GetTask" => Ok(Request::GetTask(read(params)?)),
        _ => Err(ErrorKind::MethodNotFound.into()),
    }
}

fn result(id: &Id<'_>, response: &Response) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    begin_result(&mut out, id);
    match response {
        Response::SendMessage(sent) => write(&mut out, sent),
        Response::Task(task) => write(&mut out, task),
        Response::ListTasks(page) => write(&mut out, page),
        Response::PushConfig(config) => write(&mut out, config),
        Response::ListPushConfigs(page) => write(&mut out, page),
        Response::Empty => write(&mut out, &()),
        Response::AgentCard(card) => write(&mut out, card),
    }
    end(&mut out);
    out
}

fn refused(id: &Id<'_>, error: &Error) -> Vec<u8> {
    if error.kind() == ErrorKind::Internal {
        tracing::error!(cause = std::error::Error::source(error), "call failed");
    }
    let mut out = Vec::new();
    write_error(&mut out, id, error, VERSION);
    out
}
