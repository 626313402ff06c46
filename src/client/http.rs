//! One exchange with a peer that speaks JSON over HTTP.

use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use bytes::Bytes;
use tokio::time::timeout;

use super::Client;
use super::retry::late;
use crate::egress::{Body, Protocol};
use crate::model::{Error, ErrorKind, Result, Seq};
use crate::wire::header::LAST_EVENT_ID;

/// The media type of a stream.
pub(super) const EVENTS: &str = "text/event-stream";

/// What is asked.
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) url: Uri,
    pub(super) accept: &'static str,
    /// The body and its media type.
    pub(super) body: Option<(&'static str, Vec<u8>)>,
    pub(super) after: Option<Seq>,
    /// Headers of this request alone.
    pub(super) more: HeaderMap,
    pub(super) patience: Patience,
}

impl Ask {
    /// Asks for a document.
    pub(super) fn get(url: Uri, accept: &'static str) -> Self {
        let more = HeaderMap::new();
        Self {
            method: Method::GET,
            url,
            accept,
            body: None,
            after: None,
            more,
            patience: Patience::Answer,
        }
    }
}

/// The head of what came back; the body is still to be read.
pub(super) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
    limit: usize,
}

impl Client {
    /// Sends a request with all the headers that go with every one of them.
    pub(super) async fn exchange(&self, ask: Ask) -> Result<Answer> {
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
        headers.extend(ask.more);
        let (head, body) = self
            .out(request, Protocol::Http1, ask.patience)
            .await?
            .into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
            limit: self.settings.max_bytes,
        })
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn out(
        &self,
        request: Request<Bytes>,
        protocol: Protocol,
        patience: Patience,
    ) -> Result<Response<Body>> {
        // Boxed: what goes on in a connection is large, and every call has it inside.
        let sending = Box::pin(self.show_and_send(request, protocol));
        let budgets = &self.settings.budgets;
        let within = async |limit, sending| {
            timeout(limit, sending)
                .await
                .unwrap_or_else(|_| Err(late(limit)))
        };
        let answer = match patience {
            Patience::Answer => within(budgets.first_byte, sending).await?,
            Patience::Event => within(budgets.idle, sending).await?,
            Patience::Work => sending.await?,
        };
        Ok(answer.map(|body| body.with_idle(budgets.idle)))
    }
}

/// What the head of an answer waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
    /// For nobody's work.
    Answer,
    /// For the first event: some servers have no head without it.
    Event,
    /// For the agent to have done its work.
    Work,
}

impl Patience {
    /// Not every peer returns at once when asked to, so a message may always wait.
    pub(super) fn with(request: &crate::model::Request) -> Self {
        match request {
            crate::model::Request::SendMessage(_) => Self::Work,
            request if request.operation().is_streaming() => Self::Event,
            _ => Self::Answer,
        }
    }
}

impl Answer {
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Reads no more than so many bytes.
    pub(super) fn limited(self, limit: usize) -> Self {
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
        self.status.is_success() && essence.trim().eq_ignore_ascii_case(EVENTS)
    }

    pub(super) fn into_body(self) -> Body {
        self.body
    }

    /// Reads the body of a success; `failure` reads that of anything else.
    pub(super) async fn read(self, failure: impl FnOnce(u16, &[u8]) -> Error) -> Result<Vec<u8>> {
        let status = self.status;
        if status.is_success() {
            return self.body.read(self.limit).await;
        }
        if status.is_redirection() {
            return Err(redirected());
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
fn redirected() -> Error {
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
