//! A stream as messages of gRPC: what a body is made of while a task goes on.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use super::{frame, too_late};
use crate::model::{Error, ErrorKind, Result, Version};
use crate::server::forms::event;
use crate::server::outgoing::Outgoing;
use crate::server::reply::{self, Fault};
use crate::service::{Item, Stream};
use crate::wire::grpc::to_status;
use crate::wire::write_grpc_event;

/// The first of the forms of an entry that are gRPC's; `forms.rs` has those before.
const FORMS: u8 = 16;

/// The body of a stream.
pub(super) struct Messages {
    stream: Outgoing,
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
            stream: Outgoing::new(stream),
            version,
            deadline: deadline.map(|at| Box::pin(sleep_until(at))),
            drain: Box::pin(drain.cancelled_owned()),
        }
    }

    /// What comes next, or how the stream ended.
    fn told(&mut self, told: Option<Result<Vec<u8>>>) -> Frame<Bytes> {
        match told {
            Some(Ok(out)) => Frame::data(out.into()),
            Some(Err(error)) => self.end(&to_status(&reply::logged(error), self.version)),
            None => self.end(&Status::ok("")),
        }
    }

    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.stream.end();
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
        if this.stream.is_over() {
            return Poll::Ready(None);
        }
        let version = this.version;
        let told = this.stream.poll(context, |out, stream, item| {
            write(out, stream, item, version)
        });
        let frame = if let Poll::Ready(told) = told {
            this.told(told)
        } else if this.drain.as_mut().poll(context).is_ready() {
            this.end(&to_status(&stopping(), this.version))
        } else if this
            .deadline
            .as_mut()
            .is_some_and(|at| at.as_mut().poll(context).is_ready())
        {
            this.end(&to_status(&too_late(), this.version))
        } else {
            return Poll::Pending;
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_over()
    }
}

/// What a stream ends with when the server stops.
pub(super) fn stopping() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the server is stopping; subscribe again")
}

fn write(out: &mut Vec<u8>, stream: &Stream, item: &Item, version: Version) {
    match item {
        // Where nothing follows, the event itself says so.
        Item::Whole(event, _) => {
            frame::write(out, |out| write_grpc_event(out, event, false, version))
        }
        Item::Update { entry, closes } => {
            let form = FORMS + 2 * (version as u8) + u8::from(*closes);
            frame::write(out, |out| {
                entry.form(form, out, |entry, out| {
                    event(entry, stream.ids(), |event| {
                        write_grpc_event(out, event, *closes, version)
                    });
                });
            });
        }
    }
}
