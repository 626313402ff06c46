//! The HTTP that streamable MCP goes over: our own door out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attache::model::TraceContext;
use attache::{Error, HttpClient, HttpResponse};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::request::Builder;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestParamsMeta,
    ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

/// How much is read of what a server says about its own failure.
const MAX_ERROR_BODY: usize = 16 << 10;

/// What is said here of a request that found no session. No server is believed that says so itself.
pub(super) const SESSION_EXPIRED: ErrorCode = ErrorCode(-32_900);

/// What is known of a session.
#[derive(Debug, Default)]
pub(super) struct HttpSession {
    has_id: AtomicBool,
    is_expired: AtomicBool,
}

impl HttpSession {
    /// Whether the server would know us again, and tells what changes; one that does not has to be asked.
    pub(super) fn has_id(&self) -> bool {
        self.has_id.load(Ordering::Acquire)
    }

    /// Whether the server has forgotten us: it may have begun anew, as somebody else.
    pub(super) fn is_expired(&self) -> bool {
        self.is_expired.load(Ordering::Acquire)
    }
}

/// Sends what an MCP client says.
#[derive(Debug, Clone)]
pub(super) struct HttpTransport {
    http: HttpClient,
    session: Arc<HttpSession>,
    /// How large one message may be.
    max_message: usize,
}

type Headers = HashMap<HeaderName, HeaderValue>;
type TransportError = StreamableHttpError<Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

impl HttpTransport {
    pub(super) fn new(max_message: usize, session: Arc<HttpSession>) -> Self {
        Self {
            http: HttpClient::new(),
            session,
            max_message,
        }
    }

    async fn send(
        &self,
        request: Builder,
        headers: Headers,
        body: Bytes,
    ) -> Result<HttpResponse, TransportError> {
        let request = headers.into_iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let request = request
            .header(USER_AGENT, concat!("attache/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/json, text/event-stream");
        let request = request
            .body(body)
            .map_err(|_| unexpected_response("the request cannot be sent"))?;
        self.http
            .send(request)
            .await
            .map_err(StreamableHttpError::Client)
    }

    /// What an answer other than a success means; `None` where its body says it better.
    async fn read_error(
        &self,
        response: HttpResponse,
    ) -> Result<ServerJsonRpcMessage, TransportError> {
        let status = response.status();
        let is_json = has_content_type(&response, JSON_MIME_TYPE);
        let pause = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|pause| Some(pause.to_str().ok()?.to_owned()));
        let is_auth_error = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if is_json && !is_auth_error && status != StatusCode::TOO_MANY_REQUESTS {
            let body = response.read(MAX_ERROR_BODY).await.unwrap_or_default();
            if let Ok(error @ JsonRpcMessage::Error(_)) = serde_json::from_slice(&body) {
                return Ok(error);
            }
        }
        Err(HttpStatusError::new(status.as_u16(), pause).into())
    }
}

impl StreamableHttpClient for HttpTransport {
    type Error = Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, TransportError> {
        let body = Bytes::from(serde_json::to_vec(&message)?);
        let mut request =
            request_to(Method::POST, &uri, session.as_deref()).header(CONTENT_TYPE, JSON_MIME_TYPE);
        for (name, value) in request_trace(&message)
            .iter()
            .flat_map(TraceContext::headers)
        {
            request = request.header(name, value);
        }
        let response = self.send(request, headers, body).await?;
        let status = response.status();
        let wants_answer = matches!(message, JsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let named = response
            .headers()
            .get(HEADER_SESSION_ID)
            .and_then(|id| Some(id.to_str().ok()?.to_owned()));
        if named.is_some() {
            self.session.has_id.store(true, Ordering::Release);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            // A new session would be with a server whose tools nobody has looked at: whoever asked has to begin anew.
            self.session.is_expired.store(true, Ordering::Release);
            let error = ErrorData::new(SESSION_EXPIRED, "there is no such session", None);
            let error = ServerJsonRpcMessage::error(error, None);
            return Ok(match wants_answer {
                true => StreamableHttpPostResponse::Json(with_request_id(error, &message), named),
                false => StreamableHttpPostResponse::Accepted,
            });
        }
        if !status.is_success() {
            let error = self.read_error(response).await?;
            return Ok(StreamableHttpPostResponse::Json(
                with_request_id(error, &message),
                named,
            ));
        }
        // Where nothing is expected, whatever comes is as good as nothing.
        if !wants_answer {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if has_content_type(&response, EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(
                event_stream(response, self.max_message),
                named,
            ));
        }
        if !has_content_type(&response, JSON_MIME_TYPE) {
            return Err(StreamableHttpError::UnexpectedContentType(None));
        }
        let body = response
            .read(self.max_message)
            .await
            .map_err(StreamableHttpError::Client)?;
        Ok(StreamableHttpPostResponse::Json(
            serde_json::from_slice(&body)?,
            named,
        ))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), TransportError> {
        // Whatever comes of it: the session is not used any more.
        self.send(
            request_to(Method::DELETE, &uri, Some(&session)),
            headers,
            Bytes::new(),
        )
        .await
        .map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<Events, TransportError> {
        let mut request = request_to(Method::GET, &uri, session.as_deref());
        if let Some(last) = last {
            request = request.header(HEADER_LAST_EVENT_ID, last);
        }
        let response = self.send(request, headers, Bytes::new()).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => {
                if status == StatusCode::NOT_FOUND && session.is_some() {
                    self.session.is_expired.store(true, Ordering::Release);
                }
                Err(HttpStatusError::new(status.as_u16(), None).into())
            }
            _ if has_content_type(&response, EVENT_STREAM_MIME_TYPE) => {
                Ok(event_stream(response, self.max_message))
            }
            _ => Err(StreamableHttpError::UnexpectedContentType(None)),
        }
    }
}

fn request_to(method: Method, url: &str, session: Option<&str>) -> Builder {
    let request = Request::builder().method(method).uri(url);
    match session {
        Some(session) => request.header(HEADER_SESSION_ID, session),
        None => request,
    }
}

/// Where a request is in a trace, as it says itself.
fn request_trace(message: &ClientJsonRpcMessage) -> Option<TraceContext> {
    let JsonRpcMessage::Request(asked) = message else {
        return None;
    };
    let ClientRequest::CallToolRequest(call) = &asked.request else {
        return None;
    };
    TraceContext::parse(call.params.traceparent()?, call.params.tracestate())
}

fn has_content_type(response: &HttpResponse, media_type: &str) -> bool {
    let said = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|said| said.to_str().ok());
    said.is_some_and(|said| said.to_ascii_lowercase().starts_with(media_type))
}

fn unexpected_response(what: &'static str) -> TransportError {
    StreamableHttpError::UnexpectedServerResponse(Cow::Borrowed(what))
}

/// An error as the answer to what was asked: those who refuse before they read do not know to what.
fn with_request_id(
    error: ServerJsonRpcMessage,
    asked: &ClientJsonRpcMessage,
) -> ServerJsonRpcMessage {
    match (error, asked) {
        (JsonRpcMessage::Error(error), JsonRpcMessage::Request(asked)) => {
            let ErrorData {
                code,
                message,
                data,
                ..
            } = error.error;
            ServerJsonRpcMessage::error(ErrorData::new(code, message, data), Some(asked.id.clone()))
        }
        (error, _) => error,
    }
}

/// The events of an answer, none of them larger than `max_message`.
fn event_stream(response: HttpResponse, max_message: usize) -> Events {
    let pieces = stream::unfold(
        Some((response, EventSizeLimit::new(max_message))),
        |state| async move {
            let (mut response, mut limit) = state?;
            let piece = response
                .chunk()
                .await?
                .map_err(EventStreamError::Connection)
                .and_then(|piece| limit.check(piece));
            let next = piece.is_ok().then_some((response, limit));
            Some((piece, next))
        },
    );
    SseStream::from_bytes_stream(Box::pin(pieces)).boxed()
}

/// How much of an event has come.
struct EventSizeLimit {
    max_message: usize,
    seen: usize,
    /// Whether the line has nothing on it so far.
    is_empty: bool,
}

/// Why events end before their end.
#[derive(Debug)]
enum EventStreamError {
    Connection(Error),
    TooLarge,
}

impl EventSizeLimit {
    fn new(max_message: usize) -> Self {
        Self {
            max_message,
            seen: 0,
            is_empty: true,
        }
    }

    fn check(&mut self, piece: Bytes) -> Result<Bytes, EventStreamError> {
        for byte in &piece {
            self.seen += 1;
            match byte {
                b'\n' if self.is_empty => self.seen = 0,
                b'\n' => self.is_empty = true,
                b'\r' => {}
                _ => self.is_empty = false,
            }
            if self.seen > self.max_message {
                return Err(EventStreamError::TooLarge);
            }
        }
        Ok(piece)
    }
}

impl std::fmt::Display for EventStreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connection(error) => error.fmt(f),
            Self::TooLarge => f.write_str("an event is larger than a message may be"),
        }
    }
}

impl std::error::Error for EventStreamError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_bounded_and_a_stream_is_not() {
        let mut limit = EventSizeLimit::new(12);
        for _ in 0..3 {
            assert!(limit.check(Bytes::from_static(b"data: 12")).is_ok());
            assert!(limit.check(Bytes::from_static(b"\r\n\r\n")).is_ok());
        }
        assert!(limit.check(Bytes::from_static(b"data: 123456")).is_ok());
        assert!(limit.check(Bytes::from_static(b"7")).is_err());
    }
}
