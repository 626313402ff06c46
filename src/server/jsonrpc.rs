//! The JSON-RPC binding: decode, call, encode, in the version of the caller. HTTP 200 whatever the answer is.

use http::{HeaderMap, Request as HttpRequest};
use hyper::body::Incoming;
use tracing::Instrument;

use super::body;
use super::routes::{Reply, json};
use crate::model::{Call, Error, ErrorKind, Response, Result, Version};
use crate::service::Service;
use crate::wire::decide::{Asked, Refusal, decide};
use crate::wire::jsonrpc::{Id, Refused, Request, begin_result, end, read_request, write_error};
use crate::wire::method::{Method, method};
use crate::wire::{Dialect, read_params, write_result};

/// Where it is served, each also with a slash behind it.
pub(super) const PATHS: [&str; 3] = ["", "/a2a", "/api/a2a"];

pub(super) async fn answer(service: &Service, call: &Call, request: HttpRequest<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let asked = asked(&head.headers, head.uri.query());
    let read = match body::check_type(&head.headers) {
        Ok(()) => body::read(body).await,
        Err(error) => Err(error),
    };
    let key =
        head.headers.get("idempotency-key").map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned());
    let call = Call { idempotency_key: key, ..call.clone() };
    match read {
        Ok(body) => json(called(service, &call, &asked, &body).await),
        Err(error) => json(refused(&Id::NULL, &error, form(&asked))),
    }
}

/// The version that the header and the query ask for; one that cannot be read is one that we do not speak.
fn asked(headers: &HeaderMap, query: Option<&str>) -> Asked {
    let in_headers = headers.get_all("a2a-version").iter().map(|value| value.to_str().unwrap_or("?"));
    let query = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let in_query: Vec<_> = query.filter(|(name, _)| name == "A2A-Version").map(|(_, value)| value).collect();
    Asked::read(in_headers.chain(in_query.iter().map(|value| &**value)))
}

/// In which version to answer what is no call.
fn form(asked: &Asked) -> Version {
    match asked {
        Asked::For(version) => *version,
        Asked::Nothing | Asked::Other(_) => Version::V03,
    }
}

async fn called(service: &Service, call: &Call, asked: &Asked, body: &[u8]) -> Vec<u8> {
    let request = match read_request(body) {
        Ok(request) => request,
        Err(Refused { id, error }) => return refused(&id, &error, form(asked)),
    };
    match version(&request, asked) {
        Ok((method, version)) => {
            let span = tracing::info_span!(
                "call",
                method = ?method.operation,
                binding = "JSONRPC",
                version = version.as_str(),
                caller = call.caller().name()
            );
            served(service, call, method, &request).instrument(span).await
        }
        Err(Refusal { error, form }) => refused(&request.id, &error, form),
    }
}

fn version(request: &Request<'_>, asked: &Asked) -> Result<(Method, Version), Refusal> {
    let unknown = |error: ErrorKind, form| Refusal { error: error.into(), form };
    let method = method(&request.method).map_err(|key| unknown(ErrorKind::MethodNotFound, key.version()))?;
    decide(method.key, asked, false).map(|version| (method, version))
}

async fn served(service: &Service, call: &Call, method: Method, request: &Request<'_>) -> Vec<u8> {
    let version = method.key.version();
    let (decoded, dialect) = match read_params(method, request.params) {
        Ok(read) => read,
        Err(error) => return refused(&request.id, &error, version),
    };
    let answer = service.call(call, decoded).await;
    match answer.and_then(|response| result(&request.id, &response, &dialect)) {
        Ok(out) => out,
        Err(error) => refused(&request.id, &error, version),
    }
}

fn result(id: &Id<'_>, response: &Response, dialect: &Dialect) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    begin_result(&mut out, id);
    write_result(&mut out, response, dialect)?;
    end(&mut out);
    Ok(out)
}

fn refused(id: &Id<'_>, error: &Error, version: Version) -> Vec<u8> {
    if error.kind() == ErrorKind::Internal {
        tracing::error!(cause = std::error::Error::source(error), "call failed");
    }
    let mut out = Vec::new();
    write_error(&mut out, id, error, version);
    out
}
