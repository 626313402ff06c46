//! JSON-RPC binding: encodes a call as a POST request and decodes the response.

use ::http::{HeaderMap, Method};

use super::Client;
use super::endpoint::Endpoint;
use super::event_stream::{EventStream, SseEvents};
use super::http::{ClientRequest, ClientResponse, EVENT_STREAM, HeadTimeout};
use crate::model::{ErrorKind, Request, Response, Result, Seq};
use crate::wire::jsonrpc::{JsonRpcId, read_http_error, read_response, write_request};
use crate::wire::{self, Dialect, method, read_jsonrpc_event, write_params};

const JSON: &str = "application/json";

pub(super) async fn call(client: &Client, request: &Request) -> Result<Response> {
    let body = write_call(&client.endpoint, request)?;
    let response = post(client, request, body, JSON, None).await?;
    read(client, request, response).await
}

/// Calls a method by another name than that of the version.
pub(super) async fn call_method(
    client: &Client,
    request: &Request,
    method: &str,
) -> Result<Response> {
    let mut body = Vec::new();
    write_request(&mut body, &JsonRpcId::from(1), method, |out| {
        out.extend_from_slice(b"{}")
    });
    let response = post(client, request, body, JSON, None).await?;
    read(client, request, response).await
}

pub(super) async fn stream(
    client: &Client,
    request: &Request,
    after: Option<Seq>,
) -> Result<EventStream> {
    let dialect = Dialect::from(client.endpoint.version);
    let body = write_call(&client.endpoint, request)?;
    let response = post(client, request, body, EVENT_STREAM, after).await?;
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
    body: Vec<u8>,
    accept: &'static str,
    after: Option<Seq>,
) -> Result<ClientResponse> {
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

fn write_call(endpoint: &Endpoint, request: &Request) -> Result<Vec<u8>> {
    // One call per HTTP request, so a constant id is unambiguous.
    let id = JsonRpcId::from(1);
    let mut body = Vec::new();
    if endpoint.is_kaos {
        wire::write_kaos_call(&mut body, &id, request)?;
        return Ok(body);
    }
    let mut params = Vec::new();
    write_params(&mut params, request, endpoint.version)?;
    let method = method::method_name(request.operation(), endpoint.version)
        .ok_or(ErrorKind::UnsupportedOperation)?;
    body.reserve(params.len() + 128);
    write_request(&mut body, &id, method, |out| out.extend_from_slice(&params));
    Ok(body)
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
