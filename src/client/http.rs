//! HTTP exchange of the JSON bindings: request, response head, timeouts and body limits.

use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use bytes::Bytes;
use tokio::time::timeout;

use super::Client;
use super::retry::deadline_exceeded;
use crate::egress::{Protocol, ResponseBody};
use crate::model::{Error, ErrorKind, Result, Seq};
use crate::wire::header::LAST_EVENT_ID;

/// Media type of server-sent events.
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// HTTP request of a call.
pub(super) struct ClientRequest {
    pub(super) method: Method,
    pub(super) url: Uri,
    pub(super) accept: &'static str,
    /// Media type and body.
    pub(super) body: Option<(&'static str, Vec<u8>)>,
    /// Position to resume behind, sent as `Last-Event-ID`.
    pub(super) after: Option<Seq>,
    /// Headers of this request only.
    pub(super) extra_headers: HeaderMap,
    pub(super) head_timeout: HeadTimeout,
}

impl ClientRequest {
    /// Returns a GET request.
    pub(super) fn get(url: Uri, accept: &'static str) -> Self {
        let extra_headers = HeaderMap::new();
        Self {
            method: Method::GET,
            url,
            accept,
            body: None,
            after: None,
            extra_headers,
            head_timeout: HeadTimeout::FirstByte,
        }
    }
}

/// Response head with an unread body.
pub(super) struct ClientResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: ResponseBody,
    limit: usize,
}

impl Client {
    /// Sends a request with the headers of this client.
    pub(super) async fn exchange(&self, request: ClientRequest) -> Result<ClientResponse> {
        let (media_type, body) = request.body.unzip();
        let mut http = Request::new(body.unwrap_or_default().into());
        *http.method_mut() = request.method;
        *http.uri_mut() = request.url;
        let headers = http.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(request.accept));
        if let Some(media_type) = media_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        if let Some(Seq(after)) = request.after {
            headers.insert(HeaderName::from_static(LAST_EVENT_ID), after.into());
        }
        self.add_headers(headers);
        headers.extend(request.extra_headers);
        let (head, body) = self
            .send_request(http, Protocol::Http1, request.head_timeout)
            .await?
            .into_parts();
        Ok(ClientResponse {
            status: head.status,
            headers: head.headers,
            body,
            limit: self.settings.max_bytes,
        })
    }

    /// Sends a request with credentials and waits for the response head.
    pub(super) async fn send_request(
        &self,
        request: Request<Bytes>,
        protocol: Protocol,
        head_timeout: HeadTimeout,
    ) -> Result<Response<ResponseBody>> {
        // Boxed: future size.
        let sending = Box::pin(self.send_with_credentials(request, protocol));
        let timeouts = &self.settings.timeouts;
        let limited = async |limit, sending| {
            timeout(limit, sending)
                .await
                .unwrap_or_else(|_| Err(deadline_exceeded(limit)))
        };
        let response = match head_timeout {
            HeadTimeout::FirstByte => limited(timeouts.first_byte, sending).await?,
            HeadTimeout::Idle => limited(timeouts.idle, sending).await?,
            HeadTimeout::Unbounded => sending.await?,
        };
        self.record_peer(response.headers());
        Ok(response.map(|body| body.with_idle(timeouts.idle)))
    }
}

/// Timeout that bounds the wait for the response head.
#[derive(Debug, Clone, Copy)]
pub(super) enum HeadTimeout {
    /// [`first_byte`](super::Timeouts::first_byte): the response does not depend on the agent.
    FirstByte,
    /// [`idle`](super::Timeouts::idle): some servers send the head of a stream with its first event.
    Idle,
    /// None: the response comes when the agent has finished.
    Unbounded,
}

impl HeadTimeout {
    /// Returns the timeout for a call. Some peers ignore `returnImmediately`, so a `SendMessage` is never bounded.
    pub(super) fn for_request(request: &crate::model::Request) -> Self {
        match request {
            crate::model::Request::SendMessage(_) => Self::Unbounded,
            request if request.operation().is_streaming() => Self::Idle,
            _ => Self::FirstByte,
        }
    }
}

impl ClientResponse {
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Lowers the maximum size of the body, in bytes.
    pub(super) fn with_limit(self, limit: usize) -> Self {
        Self {
            limit: limit.min(self.limit),
            ..self
        }
    }

    /// Whether the body is a stream of server-sent events.
    pub(super) fn is_stream(&self) -> bool {
        let media_type = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let essence = media_type
            .and_then(|text| text.split(';').next())
            .unwrap_or_default();
        self.status.is_success() && essence.trim().eq_ignore_ascii_case(EVENT_STREAM)
    }

    pub(super) fn into_body(self) -> ResponseBody {
        self.body
    }

    /// Reads the body of a success. `failure` converts the status and body of an error response.
    pub(super) async fn read(self, failure: impl FnOnce(u16, &[u8]) -> Error) -> Result<Vec<u8>> {
        let status = self.status;
        if status.is_success() {
            return self.body.read(self.limit).await;
        }
        if status.is_redirection() {
            return Err(redirect_error());
        }
        // An error response counts by its status, even if its body cannot be read.
        let body = self.body.read(self.limit).await.unwrap_or_default();
        let error = failure(status.as_u16(), &body);
        match retry_after(&self.headers) {
            Some(after) => Err(error.with_retry_after(after)),
            None => Err(error),
        }
    }
}

/// Returns the error for a redirect. It may lead to another origin, and the credentials are for this one.
fn redirect_error() -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message("Invalid agent response: a redirect, which is not followed")
}

/// Returns the `Retry-After` header if it is a number of seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}
