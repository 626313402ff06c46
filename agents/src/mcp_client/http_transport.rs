//! Streamable HTTP transport of MCP, over the HTTP client of `attache`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attache::model::TraceContext;
use attache::{Error, HttpClient, HttpResponse};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
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

use crate::outgoing::USER_AGENT;

/// Maximum size of an error body.
const MAX_ERROR_BODY: usize = 16 << 10;

/// Error code of a request whose session the server does not have.
///
/// This transport sets it after a 404 response. The code alone is not trusted, because a server could send it too.
pub(super) const SESSION_EXPIRED: ErrorCode = ErrorCode(-32_900);

/// State of an MCP session.
#[derive(Debug, Default)]
pub(super) struct HttpSession {
    has_id: AtomicBool,
    is_expired: AtomicBool,
}

impl HttpSession {
    /// Returns whether the server assigned a session id. Without one it cannot send change notifications.
    pub(super) fn has_id(&self) -> bool {
        self.has_id.load(Ordering::Acquire)
    }

    /// Returns whether the server no longer has the session, for example after a restart.
    pub(super) fn is_expired(&self) -> bool {
        self.is_expired.load(Ordering::Acquire)
    }
}

/// HTTP client for the streamable HTTP transport of rmcp.
#[derive(Debug, Clone)]
pub(super) struct HttpTransport {
    http: HttpClient,
    session: Arc<HttpSession>,
    /// Maximum size of one message.
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
            .header("user-agent", USER_AGENT)
            .header(ACCEPT, "application/json, text/event-stream");
        let request = request
            .body(body)
            .map_err(|_| unexpected_response("the request cannot be sent"))?;
        self.http
            .send(request)
            .await
            .map_err(StreamableHttpError::Client)
    }

    /// Returns the JSON-RPC error in the body of an error response.
    ///
    /// # Errors
    /// The body has none, or the status decides: 401, 403 and 429.
    async fn read_error(
        &self,
        response: HttpResponse,
    ) -> Result<ServerJsonRpcMessage, TransportError> {
        let status = response.status();
        let is_json = has_content_type(&response, JSON_MIME_TYPE);
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| Some(value.to_str().ok()?.to_owned()));
        let is_auth_error = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if is_json && !is_auth_error && status != StatusCode::TOO_MANY_REQUESTS {
            let body = response.read(MAX_ERROR_BODY).await.unwrap_or_default();
            if let Ok(error @ JsonRpcMessage::Error(_)) = serde_json::from_slice(&body) {
                return Ok(error);
            }
        }
        Err(HttpStatusError::new(status.as_u16(), retry_after).into())
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
        let expects_response = matches!(message, JsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session_id = response
            .headers()
            .get(HEADER_SESSION_ID)
            .and_then(|id| Some(id.to_str().ok()?.to_owned()));
        if session_id.is_some() {
            self.session.has_id.store(true, Ordering::Release);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            // Not reopened here: a new session may be with a server whose tools differ from the reviewed ones.
            self.session.is_expired.store(true, Ordering::Release);
            if !expects_response {
                return Ok(StreamableHttpPostResponse::Accepted);
            }
            let error = ErrorData::new(SESSION_EXPIRED, "the session has expired", None);
            let error = ServerJsonRpcMessage::error(error, None);
            let error = with_request_id(error, &message);
            return Ok(StreamableHttpPostResponse::Json(error, session_id));
        }
        if !status.is_success() {
            let error = self.read_error(response).await?;
            return Ok(StreamableHttpPostResponse::Json(
                with_request_id(error, &message),
                session_id,
            ));
        }
        // A response to a notification is ignored.
        if !expects_response {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if has_content_type(&response, EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(
                event_stream(response, self.max_message),
                session_id,
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
            session_id,
        ))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), TransportError> {
        // The status is ignored: the session is not used any more.
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

/// Returns the trace context in the `_meta` of a tool call.
fn request_trace(message: &ClientJsonRpcMessage) -> Option<TraceContext> {
    let JsonRpcMessage::Request(request) = message else {
        return None;
    };
    let ClientRequest::CallToolRequest(call) = &request.request else {
        return None;
    };
    TraceContext::parse(call.params.traceparent()?, call.params.tracestate())
}

fn has_content_type(response: &HttpResponse, media_type: &str) -> bool {
    let content_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| value.to_ascii_lowercase().starts_with(media_type))
}

fn unexpected_response(what: &'static str) -> TransportError {
    StreamableHttpError::UnexpectedServerResponse(Cow::Borrowed(what))
}

/// Sets the id of the request in an error. A server that refuses a request unread does not know its id.
fn with_request_id(
    error: ServerJsonRpcMessage,
    request: &ClientJsonRpcMessage,
) -> ServerJsonRpcMessage {
    match (error, request) {
        (JsonRpcMessage::Error(error), JsonRpcMessage::Request(request)) => {
            let ErrorData {
                code,
                message,
                data,
                ..
            } = error.error;
            ServerJsonRpcMessage::error(
                ErrorData::new(code, message, data),
                Some(request.id.clone()),
            )
        }
        (error, _) => error,
    }
}

/// Returns the server-sent events of a response. The stream fails at an event larger than `max_message`.
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

/// Size limit of server-sent events in a byte stream.
struct EventSizeLimit {
    max_message: usize,
    /// Size of the current event so far.
    size: usize,
    /// Whether the current line is empty so far. An empty line ends an event.
    is_line_empty: bool,
}

/// Failure of an event stream.
#[derive(Debug)]
enum EventStreamError {
    Connection(Error),
    TooLarge,
}

impl EventSizeLimit {
    fn new(max_message: usize) -> Self {
        Self {
            max_message,
            size: 0,
            is_line_empty: true,
        }
    }

    /// Counts a chunk, and returns it if no event exceeds the limit.
    fn check(&mut self, chunk: Bytes) -> Result<Bytes, EventStreamError> {
        for byte in &chunk {
            self.size += 1;
            match byte {
                b'\n' if self.is_line_empty => self.size = 0,
                b'\n' => self.is_line_empty = true,
                b'\r' => {}
                _ => self.is_line_empty = false,
            }
            if self.size > self.max_message {
                return Err(EventStreamError::TooLarge);
            }
        }
        Ok(chunk)
    }
}

impl std::fmt::Display for EventStreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connection(error) => error.fmt(f),
            Self::TooLarge => {
                f.write_str("an event is larger than the maximum size of a message (max_message)")
            }
        }
    }
}

impl std::error::Error for EventStreamError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_applies_to_events_not_to_the_stream() {
        let mut limit = EventSizeLimit::new(12);
        for _ in 0..3 {
            assert!(limit.check(Bytes::from_static(b"data: 12")).is_ok());
            assert!(limit.check(Bytes::from_static(b"\r\n\r\n")).is_ok());
        }
        assert!(limit.check(Bytes::from_static(b"data: 123456")).is_ok());
        assert!(limit.check(Bytes::from_static(b"7")).is_err());
    }
}
