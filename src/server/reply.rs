//! What goes back: heads and bodies.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::taken;
use crate::model::{Error, ErrorKind};

pub(super) type Reply = Response<Body>;

/// Why a body ends before its time.
pub(super) type Fault = Box<dyn std::error::Error + Send + Sync>;

/// A body in pieces.
pub(super) type Frames = Box<dyn HttpBody<Data = Bytes, Error = Fault> + Send + Unpin>;

/// The body of an answer.
pub(super) enum Body {
    /// Known from the start.
    Whole(Bytes),
    /// Written while a task goes on, or with something behind it.
    Frames(Frames),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        taken::asked(match self.get_mut() {
            Self::Whole(rest) => Poll::Ready(taken::piece(rest).map(|piece| Ok(Frame::data(piece)))),
            Self::Frames(body) => Pin::new(body).poll_frame(context),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(rest) => rest.is_empty(),
            Self::Frames(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Self::Frames(body) => body.size_hint(),
        }
    }
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    whole(status, "application/json", body.into())
}

/// An answer as it happens. No cache keeps it, and no proxy holds it back.
pub(super) fn events(body: Body) -> Reply {
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    reply
}

/// An answer for people.
pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    whole(status, "text/plain; charset=utf-8", text.into())
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Body::Whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

pub(super) fn not_allowed(methods: &'static str) -> Reply {
    let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    reply
}

pub(super) fn whole(status: StatusCode, media_type: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(Body::Whole(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}

/// Tells when to come again.
pub(super) fn retry_after(reply: &mut Reply, error: &Error) {
    if let Some(after) = error.retry_after() {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
}

/// What is wrong with us and not with the caller goes to the log, and nothing of it to the caller.
pub(super) fn log(error: &Error) {
    let cause = std::error::Error::source(error);
    match (error.kind(), cause) {
        // A limit does its work; nobody has to come and see.
        (ErrorKind::Unavailable, None) => tracing::warn!(why = error.message(), "call put off"),
        (ErrorKind::Internal | ErrorKind::Unavailable, cause) => {
            tracing::error!(kind = ?error.kind(), cause, "call failed");
        }
        _ => {}
    }
}
