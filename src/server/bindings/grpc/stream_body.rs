//! Response body of a gRPC stream: events of a task, then trailers.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use super::{deadline_exceeded, frame};
use crate::model::{Error, ErrorKind, Result, Version};
use crate::server::chunked_stream::ChunkedStream;
use crate::server::encodings::{FIRST_GRPC_ENCODING, with_stream_response};
use crate::server::reply::{self, BodyError};
use crate::service::{StreamItem, TaskEventStream};
use crate::wire::grpc::to_status;
use crate::wire::write_grpc_event;

/// Body of a gRPC stream.
pub(super) struct GrpcStreamBody {
    stream: ChunkedStream,
    version: Version,
    /// Deadline of the caller (`grpc-timeout`).
    deadline: Option<Pin<Box<Sleep>>>,
    /// Ready when the server drains. The stream then ends, so that the subscriber reconnects
    /// elsewhere.
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl GrpcStreamBody {
    pub(super) fn new(
        stream: TaskEventStream,
        version: Version,
        deadline: Option<Instant>,
        drain: CancellationToken,
    ) -> Self {
        Self {
            stream: ChunkedStream::new(stream),
            version,
            deadline: deadline.map(|at| Box::pin(sleep_until(at))),
            drain: Box::pin(drain.cancelled_owned()),
        }
    }

    /// Returns the next data frame, or the trailers at the end.
    fn next_frame(&mut self, chunk: Option<Result<Vec<u8>>>) -> Frame<Bytes> {
        match chunk {
            Some(Ok(out)) => Frame::data(out.into()),
            Some(Err(error)) => self.end(&to_status(&reply::log_failure(error), self.version)),
            None => self.end(&Status::ok("")),
        }
    }

    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.stream.close();
        Frame::trailers(frame::trailers(status))
    }
}

impl Body for GrpcStreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if this.stream.has_ended() {
            return Poll::Ready(None);
        }
        let version = this.version;
        let chunk = this.stream.poll_chunk(context, |out, stream, item| {
            write_item(out, stream, item, version)
        });
        let frame = if let Poll::Ready(chunk) = chunk {
            this.next_frame(chunk)
        } else if this.drain.as_mut().poll(context).is_ready() {
            this.end(&to_status(&server_stopping(), this.version))
        } else if this
            .deadline
            .as_mut()
            .is_some_and(|at| at.as_mut().poll(context).is_ready())
        {
            this.end(&to_status(&deadline_exceeded(), this.version))
        } else {
            return Poll::Pending;
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.has_ended()
    }
}

/// Returns the error that ends a stream on shutdown.
pub(super) fn server_stopping() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the server is stopping; subscribe again")
}

fn write_item(out: &mut Vec<u8>, stream: &TaskEventStream, item: &StreamItem, version: Version) {
    match item {
        // `false`: a task or message without successors says so itself.
        StreamItem::Full(event, _) => {
            frame::write(out, |out| write_grpc_event(out, event, false, version))
        }
        StreamItem::Update { entry, closes } => {
            let encoding = FIRST_GRPC_ENCODING + 2 * (version as u8) + u8::from(*closes);
            frame::write(out, |out| {
                entry.encode_into(encoding, out, |entry, out| {
                    let (task, context) = stream.ids();
                    with_stream_response(entry, task, context, |event| {
                        write_grpc_event(out, event, *closes, version)
                    });
                });
            });
        }
    }
}
