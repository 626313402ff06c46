//! What goes back: heads and bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::h2_stall;
use crate::model::{Error, ErrorKind};

pub(super) type Reply = Response<ReplyBody>;

/// Why a body ends before its time.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body in pieces.
pub(super) type BoxedFrames = Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send + Unpin>;

/// The body of an answer.
pub(super) enum ReplyBody {
    /// Known from the start.
    Full(Bytes),
    /// Written while a task goes on, or with something behind it.
    Stream(BoxedFrames),
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        h2_stall::record_poll(match self.get_mut() {
            Self::Full(rest) => {
                Poll::Ready(h2_stall::next_chunk(rest).map(|piece| Ok(Frame::data(piece))))
            }
            Self::Stream(body) => Pin::new(body).poll_frame(context),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(rest) => rest.is_empty(),
            Self::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(rest) => SizeHint::with_exact(rest.len() as u64),
            Self::Stream(body) => body.size_hint(),
        }
    }
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    full(status, "application/json", body.into())
}

/// An answer as it happens. No cache keeps it, and no proxy holds it back.
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

/// An answer for people.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    full(status, "text/plain; charset=utf-8", text.into())
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(ReplyBody::Full(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

pub(super) fn method_not_allowed(methods: &'static str) -> Reply {
    let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    reply
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    reply
}

pub(super) fn full(status: StatusCode, media_type: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(ReplyBody::Full(body));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

/// Tells when to come again.
pub(super) fn set_retry_after(reply: &mut Reply, error: &Error) {
    if let Some(after) = error.retry_after() {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
        let limit = error
            .metadata()
            .find(|(key, _)| *key == "limit")
            .and_then(|(_, limit)| limit.parse().ok());
        if let Some(limit) = limit {
            set_rate_limit(reply.headers_mut(), limit, 0, seconds);
        }
    }
}

/// Tells which scopes were missing, as RFC 6750 has it.
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

/// Tells how many calls there may be, how many are left, and in how many seconds all of them will be.
pub(super) fn set_rate_limit(headers: &mut HeaderMap, limit: u32, remaining: u32, reset: u64) {
    headers.insert(HeaderName::from_static("x-ratelimit-limit"), limit.into());
    headers.insert(
        HeaderName::from_static("x-ratelimit-remaining"),
        remaining.into(),
    );
    headers.insert(HeaderName::from_static("x-ratelimit-reset"), reset.into());
}

/// What is wrong with us and not with the caller goes to the log, and nothing of it to the caller but the id under which
/// it is found there.
pub(super) fn log_failure(error: Error) -> Error {
    let cause = std::error::Error::source(&error);
    match (error.kind(), cause) {
        // A limit does its work; nobody has to come and see.
        (ErrorKind::Unavailable, None) => {
            tracing::warn!(why = error.message(), "call put off");
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

    /// What is logged, field by field.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Visit for Log {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0.lock().unwrap().push(format!("{field}={value:?}"));
        }
    }

    impl Subscriber for Log {
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
        let log = Log::default();
        let cause = || "postgres://root:hunter2@10.0.0.7";
        let down = Error::new(ErrorKind::Unavailable).with_source(cause());
        for error in [Error::internal(cause()), down] {
            let told = tracing::subscriber::with_default(log.clone(), || log_failure(error));
            let (key, id) = told.metadata().next().expect("an id");
            assert_eq!((key, id.len()), ("errorId", 36));
            let lines = std::mem::take(&mut *log.0.lock().unwrap()).join("\n");
            assert!(lines.contains(id) && lines.contains("hunter2"), "{lines}");
            assert!(!told.to_string().contains("hunter2"), "{told}");
        }
        for fine in [ErrorKind::TaskNotFound, ErrorKind::Unavailable] {
            assert_eq!(log_failure(fine.into()).metadata().len(), 0, "{fine:?}");
        }
    }
}
