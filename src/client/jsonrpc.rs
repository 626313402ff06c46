//! JSON-RPC binding: encodes a call as a POST request and decodes the response.

use ::http::{HeaderMap, Method};

use super::Client;
use super::event_stream::{EventStream, SseEvents};
use super::http::{ClientRequest, ClientResponse, EVENT_STREAM, HeadTimeout};
use crate::model::{ErrorKind, Request, Response, Result, Seq};
use crate::wire::jsonrpc::{JsonRpcId, read_http_error, read_response, write_request};
use crate::wire::{self, Dialect, method, read_jsonrpc_event, write_params};

const JSON: &str = "application/json";

pub(super) async fn call(client: &Client, request: &Request) -> Result<Response> {
    let response = post(client, request, JSON, None).await?;
    read(client, request, response).await
}

pub(super) async fn stream(
    client: &Client,
    request: &Request,
    after: Option<Seq>,
) -> Result<EventStream> {
    let dialect = Dialect::from(client.endpoint.version);
    let response = post(client, request, EVENT_STREAM, after).await?;
    if !response.is_stream() {
        return EventStream::from_response(read(client, request, response).await?);
    }
    Ok(SseEvents::new(
        response.into_body(),
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
) -> Result<ClientResponse> {
    let mut params = Vec::new();
    write_params(&mut params, request, client.endpoint.version)?;
    let method = method::method_name(request.operation(), client.endpoint.version)
        .ok_or(ErrorKind::UnsupportedOperation)?;
    let mut body = Vec::with_capacity(params.len() + 128);
    // One call per HTTP request, so a constant id is unambiguous.
    write_request(&mut body, &JsonRpcId::from(1), method, |out| {
        out.extend_from_slice(&params)
    });
    let url = client.endpoint.url.clone();
    let head_timeout = HeadTimeout::for_request(request);
    let extra_headers = HeaderMap::new();
    let body = Some((JSON, body));
    client
        .exchange(ClientRequest {
            method: Method::POST,
            url,
            accept,
            body,
            after,
            extra_headers,
            head_timeout,
        })
        .await
}

async fn read(client: &Client, request: &Request, response: ClientResponse) -> Result<Response> {
    let body = response.read(read_http_error).await?;
    let response = read_response(&body).map_err(wire::into_invalid_agent_response)?;
    wire::read_response(
        request.operation(),
        response.result?,
        &Dialect::from(client.endpoint.version),
    )
    .map_err(wire::into_invalid_agent_response)
}
