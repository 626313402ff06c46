//! HTTP replies: bodies, and helpers that build them with their headers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::{h2_stall, rate_limit_headers};
use crate::auth::RateLimitStatus;
use crate::model::{Error, ErrorKind};
use crate::rt::{Reservation, is_counted};

/// HTTP response of this server.
pub(super) type Reply = Response<ReplyBody>;

/// Cause of a body that ends early.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Body that is produced frame by frame.
pub(super) type BoxedFrames = Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send + Unpin>;

/// Body of a [`Reply`].
pub(super) enum ReplyBody {
    /// Complete body. Sent in frames of at most 64 KiB.
    Full(Bytes),
    /// Complete body in pieces. Boxed: few replies have it.
    Pieces(Box<PiecedBody>),
    /// Body that grows while it is sent, or has trailers.
    Stream(BoxedFrames),
}

/// Complete body in pieces, of which some are shared with other replies, and the trailers after it.
pub(super) struct PiecedBody {
    pieces: VecDeque<Bytes>,
    /// Whether the pieces count against the byte budget already.
    is_counted: bool,
    trailers: Option<HeaderMap>,
}

impl PiecedBody {
    pub(super) fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        Self {
            pieces: pieces.collect(),
            is_counted: false,
            trailers: None,
        }
    }

    #[cfg(feature = "grpc")]
    pub(super) fn with_trailers(self, trailers: HeaderMap) -> Self {
        Self {
            trailers: Some(trailers),
            ..self
        }
    }

    /// Marks a body whose large pieces count against the byte budget already.
    pub(super) fn counted(self) -> Self {
        Self {
            is_counted: true,
            ..self
        }
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        let Some(piece) = self.pieces.front_mut() else {
            return self.trailers.take().map(Frame::trailers);
        };
        let frame = h2_stall::next_frame(piece);
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        frame.map(Frame::data)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes() as u64)
    }
}

impl ReplyBody {
    /// Whether the body is to be counted against the byte budget.
    pub(super) fn is_counted(&self) -> bool {
        is_counted(self.uncounted_bytes())
    }

    /// Returns the number of bytes that do not count against the byte budget yet.
    pub(super) fn uncounted_bytes(&self) -> usize {
        match self {
            Self::Full(bytes) => bytes.len(),
            Self::Pieces(body) if !body.is_counted => body.bytes(),
            // Streams count their data themselves.
            Self::Pieces(_) | Self::Stream(_) => 0,
        }
    }

    /// Attaches a part of the byte budget, which the body holds until it is written or dropped.
    pub(super) fn attach(&mut self, reservation: Reservation) {
        let first = match self {
            Self::Full(bytes) => Some(bytes),
            Self::Pieces(body) => body.pieces.front_mut(),
            // Counts its data itself.
            Self::Stream(_) => None,
        };
        if let Some(bytes) = first {
            *bytes = reservation.attach(std::mem::take(bytes));
        }
    }
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Full(rest) => {
                Poll::Ready(h2_stall::next_frame(rest).map(|frame| Ok(Frame::data(frame))))
            }
            Self::Pieces(body) => Poll::Ready(body.next_frame().map(Ok)),
            Self::Stream(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(rest) => rest.is_empty(),
            Self::Pieces(body) => body.pieces.is_empty() && body.trailers.is_none(),
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(rest) => SizeHint::with_exact(rest.len() as u64),
            Self::Pieces(body) => body.size_hint(),
            Self::Stream(body) => body.size_hint(),
        }
    }
}

/// Returns a JSON reply.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    full(status, "application/json", body.into())
}

/// Returns a server-sent event stream that caches do not store and proxies do not buffer.
pub(super) fn event_stream(body: ReplyBody) -> Reply {
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    reply
}

/// Returns a plain-text reply.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    full(status, "text/plain; charset=utf-8", text.into())
}

/// Returns a reply without a body.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(ReplyBody::Full(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// Returns status 405 with the allowed methods.
pub(super) fn method_not_allowed(methods: &'static str) -> Reply {
    let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    reply
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    reply
}

/// Returns a reply with a complete body in pieces that count against the byte budget already.
pub(super) fn pieces(
    status: StatusCode,
    media_type: &'static str,
    pieces: impl IntoIterator<Item = Bytes>,
) -> Reply {
    let body = ReplyBody::Pieces(Box::new(PiecedBody::new(pieces).counted()));
    full(status, media_type, Bytes::new()).map(|_| body)
}

/// Returns a reply with a complete body.
pub(super) fn full(status: StatusCode, media_type: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(ReplyBody::Full(body));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

/// Sets `Retry-After`, and the rate-limit headers if a rate limit caused the error.
pub(super) fn set_retry_after(reply: &mut Reply, error: &Error) {
    let Some(after) = error.retry_after() else {
        return;
    };
    reply
        .headers_mut()
        .insert(RETRY_AFTER, ceil_seconds(after).into());
    let detail = |name: &str| {
        let mut details = error.metadata();
        details.find(|(key, _)| *key == name).map(|(_, text)| text)
    };
    let limit = detail("limit").and_then(|limit| limit.parse().ok());
    let policy = detail("policy").and_then(|policy| HeaderValue::from_str(policy).ok());
    if let (Some(limit), Some(policy)) = (limit, policy) {
        let status = RateLimitStatus {
            policy,
            limit,
            remaining: 0,
            reset: after,
        };
        rate_limit_headers::set(reply.headers_mut(), &status);
    }
}

/// Sets `WWW-Authenticate` with the missing scopes of a permission error (RFC 6750).
pub(super) fn set_missing_scopes(reply: &mut Reply, error: &Error) {
    let scopes = error
        .metadata()
        .find(|(key, _)| *key == "scope")
        .map(|(_, scopes)| scopes);
    let (ErrorKind::PermissionDenied, Some(scopes)) = (error.kind(), scopes) else {
        return;
    };
    if scopes.is_empty() || scopes.contains(['"', '\\']) {
        return;
    }
    let challenge =
        format!("Bearer realm=\"attache\", error=\"insufficient_scope\", scope=\"{scopes}\"");
    if let Ok(challenge) = HeaderValue::try_from(challenge) {
        reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
}

/// Rounds a duration up to whole seconds.
pub(super) fn ceil_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Logs a server-side failure and returns the error for the caller.
///
/// The log gets the cause under a new error id. The caller gets the id as `errorId`, and never the
/// cause (S81).
pub(super) fn log_failure(error: Error) -> Error {
    let cause = std::error::Error::source(&error);
    match (error.kind(), cause) {
        // A limit was reached. No operator action is needed, so no error id.
        (ErrorKind::Unavailable, None) => {
            tracing::warn!(reason = error.message(), "call refused: unavailable");
            error
        }
        (ErrorKind::Internal | ErrorKind::Unavailable, cause) => {
            let id = uuid::Uuid::new_v4().to_string();
            tracing::error!(kind = ?error.kind(), error_id = id, cause, "call failed");
            error.with_detail("errorId", id)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Subscriber that records the fields of log events.
    #[derive(Clone, Default)]
    struct RecordedFields(Arc<Mutex<Vec<String>>>);

    impl Visit for RecordedFields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0.lock().unwrap().push(format!("{field}={value:?}"));
        }
    }

    impl Subscriber for RecordedFields {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn s81_caller_gets_an_error_id_and_the_log_gets_the_cause() {
        let log = RecordedFields::default();
        let cause = || "postgres://root:hunter2@10.0.0.7";
        let down = Error::new(ErrorKind::Unavailable).with_source(cause());
        for error in [Error::internal(cause()), down] {
            let error = tracing::subscriber::with_default(log.clone(), || log_failure(error));
            let (key, id) = error.metadata().next().expect("an id");
            assert_eq!(key, "errorId");
            assert_eq!(id.len(), 36);
            let lines = std::mem::take(&mut *log.0.lock().unwrap()).join("\n");
            assert!(lines.contains(id) && lines.contains("hunter2"), "{lines}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        for kind in [ErrorKind::TaskNotFound, ErrorKind::Unavailable] {
            assert_eq!(log_failure(kind.into()).metadata().len(), 0, "{kind:?}");
        }
    }
}
