//! Response body of a gRPC stream: events of a task, then trailers.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use super::{GrpcCall, deadline_exceeded, encode_streamed_task, frame};
use crate::model::{Entry, Error, ErrorKind, Result, StreamResponse};
use crate::server::chunk_buffer::{ChunkBuffer, ChunkPieces};
use crate::server::chunked_stream::ChunkedStream;
use crate::server::encodings::{FIRST_GRPC_ENCODING, encode_unshared_event};
use crate::server::reply::{self, BodyError};
use crate::service::{StreamItem, TaskEventStream};
use crate::wire::file_encoding::FileConversion;
use crate::wire::grpc::to_status;
use crate::wire::write_grpc_event;

/// Body of a gRPC stream.
pub(super) struct GrpcStreamBody {
    stream: ChunkedStream,
    /// Encoded bytes that no frame has carried yet.
    unsent: ChunkPieces,
    rpc: GrpcCall,
    /// Deadline of the caller (`grpc-timeout`).
    deadline: Option<Pin<Box<Sleep>>>,
    /// Ready when the server drains. The stream then ends, so that the subscriber reconnects
    /// elsewhere.
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl GrpcStreamBody {
    pub(super) fn new(stream: TaskEventStream, rpc: GrpcCall, drain: CancellationToken) -> Self {
        Self {
            stream: ChunkedStream::new(stream),
            unsent: ChunkPieces::default(),
            rpc,
            deadline: rpc.deadline.map(|at| Box::pin(sleep_until(at))),
            drain: Box::pin(drain.cancelled_owned()),
        }
    }

    /// Returns the first data frame of a chunk, or the trailers at the end.
    fn next_frame(&mut self, chunk: Option<Result<ChunkBuffer>>) -> Frame<Bytes> {
        match chunk {
            Some(Ok(out)) => {
                self.unsent = out.into_pieces();
                Frame::data(self.unsent.next_frame().unwrap_or_default())
            }
            Some(Err(error)) => self.end(&to_status(&reply::log_failure(error), self.rpc.version)),
            None => self.end(&Status::ok("")),
        }
    }

    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.unsent = ChunkPieces::default();
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
        if let Some(frame) = this.unsent.next_frame() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        if this.stream.has_ended() {
            return Poll::Ready(None);
        }
        let rpc = this.rpc;
        let chunk = this.stream.poll_chunk(context, |out, stream, item| {
            write_item(out, stream, item, rpc)
        });
        let frame = if let Poll::Ready(chunk) = chunk {
            this.next_frame(chunk)
        } else if this.drain.as_mut().poll(context).is_ready() {
            this.end(&to_status(&server_stopping(), this.rpc.version))
        } else if this
            .deadline
            .as_mut()
            .is_some_and(|at| at.as_mut().poll(context).is_ready())
        {
            this.end(&to_status(&deadline_exceeded(), this.rpc.version))
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

fn write_item(
    out: &mut ChunkBuffer,
    stream: &TaskEventStream,
    item: StreamItem,
    rpc: GrpcCall,
) -> Result<()> {
    match item {
        // `false`: a task or message without successors says so itself.
        StreamItem::Full(event, _) => frame::write(out, |out| write_event(out, *event, false, rpc)),
        StreamItem::LargeTask(task, _) if rpc.has_base64_files => {
            out.push_shared(encode_unshared_event(stream, task, |out, event| {
                frame::write(out, |out| write_event(out, event, false, rpc));
            })?);
        }
        StreamItem::LargeTask(mut task, _) => {
            let message = encode_streamed_task(stream, rpc.version, &mut task)?;
            out.extend_from_slice(&frame::task_header(message.len(), true));
            out.push_shared(message);
        }
        StreamItem::Update { entry, closes } => frame::write(out, |out| {
            let (task, context) = stream.ids();
            let write = |entry: &Entry, out: &mut Vec<u8>| {
                if let Some(event) = entry.update(task, context) {
                    write_event(out, event, closes, rpc);
                }
            };
            if rpc.has_base64_files {
                write(&entry, out);
                return;
            }
            let encoding = FIRST_GRPC_ENCODING + 2 * (rpc.version as u8) + u8::from(closes);
            entry.encode_into(encoding, out, write);
        }),
    }
    Ok(())
}

/// Writes an event with its files as the caller expects them.
fn write_event(out: &mut Vec<u8>, mut event: StreamResponse, closes: bool, rpc: GrpcCall) {
    if rpc.has_base64_files {
        FileConversion::Encode.apply_to_event(&mut event);
    }
    write_grpc_event(out, &event, closes, rpc.version);
}
