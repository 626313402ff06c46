//! One exchange with a peer that speaks JSON over HTTP.

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

/// The media type of a stream.
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// What is asked.
pub(super) struct ClientRequest {
    pub(super) method: Method,
    pub(super) url: Uri,
    pub(super) accept: &'static str,
    /// The body and its media type.
    pub(super) body: Option<(&'static str, Vec<u8>)>,
    pub(super) after: Option<Seq>,
    /// Headers of this request alone.
    pub(super) extra_headers: HeaderMap,
    pub(super) head_timeout: HeadTimeout,
}

impl ClientRequest {
    /// Asks for a document.
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

/// The head of what came back; the body is still to be read.
pub(super) struct ClientResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: ResponseBody,
    limit: usize,
}

impl Client {
    /// Sends a request with all the headers that go with every one of them.
    pub(super) async fn exchange(&self, ask: ClientRequest) -> Result<ClientResponse> {
        let (media_type, body) = ask.body.unzip();
        let mut request = Request::new(body.unwrap_or_default().into());
        *request.method_mut() = ask.method;
        *request.uri_mut() = ask.url;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(ask.accept));
        if let Some(media_type) = media_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        if let Some(Seq(after)) = ask.after {
            headers.insert(HeaderName::from_static(LAST_EVENT_ID), after.into());
        }
        self.add_headers(headers);
        headers.extend(ask.extra_headers);
        let (head, body) = self
            .send_request(request, Protocol::Http1, ask.head_timeout)
            .await?
            .into_parts();
        Ok(ClientResponse {
            status: head.status,
            headers: head.headers,
            body,
            limit: self.settings.max_bytes,
        })
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send_request(
        &self,
        request: Request<Bytes>,
        protocol: Protocol,
        head_timeout: HeadTimeout,
    ) -> Result<Response<ResponseBody>> {
        // Boxed: what goes on in a connection is large, and every call has it inside.
        let sending = Box::pin(self.send_with_credentials(request, protocol));
        let timeouts = &self.settings.timeouts;
        let within = async |limit, sending| {
            timeout(limit, sending)
                .await
                .unwrap_or_else(|_| Err(deadline_exceeded(limit)))
        };
        let answer = match head_timeout {
            HeadTimeout::FirstByte => within(timeouts.first_byte, sending).await?,
            HeadTimeout::Idle => within(timeouts.idle, sending).await?,
            HeadTimeout::Unbounded => sending.await?,
        };
        Ok(answer.map(|body| body.with_idle(timeouts.idle)))
    }
}

/// What the head of an answer waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum HeadTimeout {
    /// For nobody's work.
    FirstByte,
    /// For the first event: some servers have no head without it.
    Idle,
    /// For the agent to have done its work.
    Unbounded,
}

impl HeadTimeout {
    /// Not every peer returns at once when asked to, so a message may always wait.
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

    /// Reads no more than so many bytes.
    pub(super) fn with_limit(self, limit: usize) -> Self {
        Self {
            limit: limit.min(self.limit),
            ..self
        }
    }

    /// Whether it is a stream of events, and not an answer of one piece.
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

    /// Reads the body of a success; `failure` reads that of anything else.
    pub(super) async fn read(self, failure: impl FnOnce(u16, &[u8]) -> Error) -> Result<Vec<u8>> {
        let status = self.status;
        if status.is_success() {
            return self.body.read(self.limit).await;
        }
        if status.is_redirection() {
            return Err(redirect_error());
        }
        // What was said is of use, but the status stands without it.
        let body = self.body.read(self.limit).await.unwrap_or_default();
        let error = failure(status.as_u16(), &body);
        match retry_after(&self.headers) {
            Some(after) => Err(error.with_retry_after(after)),
            None => Err(error),
        }
    }
}

/// Where it points may be anywhere, and our credentials are for here.
fn redirect_error() -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message("Invalid agent response: a redirect, which is not followed")
}

/// How long to wait, where that is said in seconds.
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
