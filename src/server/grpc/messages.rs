//! A stream as messages of gRPC: what a body is made of while a task goes on.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, ReusableBoxFuture, WaitForCancellationFutureOwned};
use tonic::Status;

use super::{frame, too_late};
use crate::model::{Error, ErrorKind, Result, Version};
use crate::server::events::{Next, next};
use crate::server::forms::event;
use crate::server::reply::{self, Fault};
use crate::service::{Item, Stream};
use crate::wire::grpc::to_status;
use crate::wire::write_grpc_event;

/// The first of the forms of an entry that are gRPC's; `forms.rs` has those before.
const FORMS: u8 = 16;

/// The body of a stream.
pub(super) struct Messages {
    /// None when all is said.
    next: Option<ReusableBoxFuture<'static, Next>>,
    version: Version,
    /// When the caller stops waiting.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Ready when the server is to stop: whoever reads comes again, and finds another.
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Messages {
    pub(super) fn new(
        stream: Stream,
        version: Version,
        deadline: Option<Instant>,
        drain: CancellationToken,
    ) -> Self {
        Self {
            next: Some(ReusableBoxFuture::new(next(stream))),
            version,
            deadline: deadline.map(|at| Box::pin(sleep_until(at))),
            drain: Box::pin(drain.cancelled_owned()),
        }
    }

    /// Everything there is, in one piece, or how the stream ended.
    fn told(&mut self, (stream, items): Next) -> Frame<Bytes> {
        match items {
            Some(Ok(items)) => {
                let mut out = Vec::with_capacity(1024);
                items.iter().for_each(|item| write(&mut out, &stream, item, self.version));
                if let Some(future) = &mut self.next {
                    future.set(next(stream));
                }
                Frame::data(out.into())
            }
            Some(Err(error)) => self.failed(&error),
            None => self.end(&Status::ok("")),
        }
    }

    fn failed(&mut self, error: &Error) -> Frame<Bytes> {
        reply::log(error);
        self.end(&to_status(error, self.version))
    }

    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.next = None;
        Frame::trailers(frame::trailers(status))
    }
}

impl Body for Messages {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = &mut *self;
        let Some(next) = &mut this.next else { return Poll::Ready(None) };
        let frame = if let Poll::Ready(next) = next.poll(context) {
            this.told(next)
        } else if this.drain.as_mut().poll(context).is_ready() {
            this.end(&to_status(&stopping(), this.version))
        } else if this.deadline.as_mut().is_some_and(|at| at.as_mut().poll(context).is_ready()) {
            this.end(&to_status(&too_late(), this.version))
        } else {
            return Poll::Pending;
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none()
    }
}

/// What a stream ends with when the server stops.
pub(super) fn stopping() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the server is stopping; subscribe again")
}

fn write(out: &mut Vec<u8>, stream: &Stream, item: &Item, version: Version) {
    match item {
        // Where nothing follows, the event itself says so.
        Item::Whole(event, _) => frame::write(out, |out| write_grpc_event(out, event, false, version)),
        Item::Update { entry, closes } => {
            let form = FORMS + 2 * (version as u8) + u8::from(*closes);
            let message = entry.form(form, |entry| {
                let mut message = Vec::with_capacity(256);
                event(entry, stream.ids(), |event| {
                    write_grpc_event(&mut message, event, *closes, version);
                });
                message.into()
            });
            frame::write(out, |out| out.extend_from_slice(&message));
        }
    }
}
