//! HTTP+JSON binding: encodes a call as a REST request and decodes the response.

use ::http::{HeaderMap, Method, Uri};

use super::Client;
use super::event_stream::{EventStream, SseEvents};
use super::http::{ClientRequest, ClientResponse, EVENT_STREAM, HeadTimeout};
use crate::model::{Error, ErrorKind, Request, Response, Result, Seq};
use crate::wire::errors::read_rest_error;
use crate::wire::header::rest_media_type;
use crate::wire::{self, Dialect, RestRequest, read_rest_event, write_rest};

const ANY_JSON: &str = "application/a2a+json, application/json";

pub(super) async fn call(client: &Client, request: &Request) -> Result<Response> {
    let response = send(client, request, ANY_JSON, None).await?;
    read(client, request, response).await
}

pub(super) async fn stream(
    client: &Client,
    request: &Request,
    after: Option<Seq>,
) -> Result<EventStream> {
    let dialect = Dialect::for_rest(client.endpoint.version);
    let response = send(client, request, EVENT_STREAM, after).await?;
    if !response.is_stream() {
        return EventStream::from_response(read(client, request, response).await?);
    }
    Ok(SseEvents::new(
        response.into_body(),
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
) -> Result<ClientResponse> {
    let RestRequest { method, path, body } = write_rest(request, client.endpoint.version)?;
    let method = Method::from_bytes(method.as_bytes()).map_err(Error::internal)?;
    let url = join_path(&client.endpoint.url, &path)?;
    let body = body.map(|body| (rest_media_type(client.endpoint.version), body));
    let extra_headers = HeaderMap::new();
    client
        .exchange(ClientRequest {
            method,
            url,
            accept,
            body,
            after,
            extra_headers,
            head_timeout: HeadTimeout::for_request(request),
        })
        .await
}

/// Appends a path to the URL of an interface.
pub(super) fn join_path(base: &Uri, path: &str) -> Result<Uri> {
    let mut parts = base.clone().into_parts();
    let path = format!("{}{path}", base.path().trim_end_matches('/'));
    parts.path_and_query = Some(path.parse().map_err(Error::internal)?);
    Uri::from_parts(parts).map_err(Error::internal)
}

async fn read(client: &Client, request: &Request, response: ClientResponse) -> Result<Response> {
    let failure = |status, body: &[u8]| read_rest_error(status, &String::from_utf8_lossy(body));
    let body = response.read(failure).await?;
    let text = std::str::from_utf8(&body)
        .map_err(|_| wire::into_invalid_agent_response(ErrorKind::Parse.into()))?;
    wire::read_response(
        request.operation(),
        text,
        &Dialect::for_rest(client.endpoint.version),
    )
    .map_err(wire::into_invalid_agent_response)
}
