//! The JSON-RPC binding: encode, post, decode.

use ::http::{HeaderMap, Method};

use super::Client;
use super::events::{EventStream, Sse};
use super::http::{Answer, Ask, EVENTS, Patience};
use crate::model::{ErrorKind, Request, Response, Result, Seq};
use crate::wire::jsonrpc::{Id, read_failure, read_response, write_request};
use crate::wire::{self, Dialect, method, read_jsonrpc_event, write_params};

const JSON: &str = "application/json";

pub(super) async fn call(client: &Client, request: &Request) -> Result<Response> {
    let answer = post(client, request, JSON, None).await?;
    read(client, request, answer).await
}

pub(super) async fn stream(
    client: &Client,
    request: &Request,
    after: Option<Seq>,
) -> Result<EventStream> {
    let dialect = Dialect::from(client.way.version);
    let answer = post(client, request, EVENTS, after).await?;
    if !answer.is_stream() {
        return EventStream::of(read(client, request, answer).await?);
    }
    Ok(Sse::new(
        answer.into_body(),
        client.settings.max_bytes,
        dialect,
        read_jsonrpc_event,
    )
    .into())
}

async fn post(
    client: &Client,
    request: &Request,
    accept: &'static str,
    after: Option<Seq>,
) -> Result<Answer> {
    let mut params = Vec::new();
    write_params(&mut params, request, client.way.version)?;
    let method = method::name(request.operation(), client.way.version)
        .ok_or(ErrorKind::UnsupportedOperation)?;
    let mut body = Vec::with_capacity(params.len() + 128);
    // One call per exchange: there is nothing that its id would have to tell apart.
    write_request(&mut body, &Id::from(1), method, |out| {
        out.extend_from_slice(&params)
    });
    let url = client.way.url.clone();
    let patience = Patience::with(request);
    let more = HeaderMap::new();
    let body = Some((JSON, body));
    client
        .exchange(Ask {
            method: Method::POST,
            url,
            accept,
            body,
            after,
            more,
            patience,
        })
        .await
}

async fn read(client: &Client, request: &Request, answer: Answer) -> Result<Response> {
    let body = answer.read(read_failure).await?;
    let answer = read_response(&body).map_err(wire::peers_fault)?;
    wire::read_reply(
        request.operation(),
        answer.result?,
        &Dialect::from(client.way.version),
    )
    .map_err(wire::peers_fault)
}
