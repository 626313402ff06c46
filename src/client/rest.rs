//! The HTTP+JSON binding: encode, send, decode.

use ::http::{HeaderMap, Method, Uri};

use super::Client;
use super::events::{EventStream, Sse};
use super::http::{Answer, Ask, EVENTS, Patience};
use crate::model::{Error, ErrorKind, Request, Response, Result, Seq};
use crate::wire::errors::read_rest as read_failure;
use crate::wire::header::rest_media_type;
use crate::wire::{self, Dialect, RestRequest, read_rest_event, write_rest};

const ANY_JSON: &str = "application/a2a+json, application/json";

pub(super) async fn call(client: &Client, request: &Request) -> Result<Response> {
    let answer = send(client, request, ANY_JSON, None).await?;
    read(client, request, answer).await
}

pub(super) async fn stream(
    client: &Client,
    request: &Request,
    after: Option<Seq>,
) -> Result<EventStream> {
    let dialect = Dialect::rest(client.way.version);
    let answer = send(client, request, EVENTS, after).await?;
    if !answer.is_stream() {
        return EventStream::of(read(client, request, answer).await?);
    }
    Ok(Sse::new(
        answer.into_body(),
        client.settings.max_bytes,
        dialect,
        read_rest_event,
    )
    .into())
}

async fn send(
    client: &Client,
    request: &Request,
    accept: &'static str,
    after: Option<Seq>,
) -> Result<Answer> {
    let RestRequest { method, path, body } = write_rest(request, client.way.version)?;
    let method = Method::from_bytes(method.as_bytes()).map_err(Error::internal)?;
    let url = below(&client.way.url, &path)?;
    let body = body.map(|body| (rest_media_type(client.way.version), body));
    let more = HeaderMap::new();
    client
        .exchange(Ask {
            method,
            url,
            accept,
            body,
            after,
            more,
            patience: Patience::with(request),
        })
        .await
}

/// The url of a path below that of an interface.
pub(super) fn below(base: &Uri, path: &str) -> Result<Uri> {
    let mut parts = base.clone().into_parts();
    let path = format!("{}{path}", base.path().trim_end_matches('/'));
    parts.path_and_query = Some(path.parse().map_err(Error::internal)?);
    Uri::from_parts(parts).map_err(Error::internal)
}

async fn read(client: &Client, request: &Request, answer: Answer) -> Result<Response> {
    let failure = |status, body: &[u8]| read_failure(status, &String::from_utf8_lossy(body));
    let body = answer.read(failure).await?;
    let text =
        std::str::from_utf8(&body).map_err(|_| wire::peers_fault(ErrorKind::Parse.into()))?;
    wire::read_reply(
        request.operation(),
        text,
        &Dialect::rest(client.way.version),
    )
    .map_err(wire::peers_fault)
}
