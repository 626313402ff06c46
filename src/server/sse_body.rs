//! Response body of a server-sent event stream: events of a task, heartbeats, and the end of the
//! stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::chunk_buffer::{ChunkBuffer, ChunkPieces};
use super::chunked_stream::ChunkedStream;
use super::event_encoder::EventEncoder;
use super::reply::BodyError;
use crate::model::Result;
use crate::service::TaskEventStream;
use crate::wire::sse;

/// Body of a server-sent event stream.
pub(super) struct SseBody<T> {
    stream: ChunkedStream,
    encoder: T,
    /// Encoded bytes that no frame has carried yet.
    unsent: ChunkPieces,
    heartbeat: Option<Heartbeat>,
    /// Ready when the server drains. The body then ends, so that the subscriber reconnects
    /// elsewhere.
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Timer of the comments that keep a silent stream open.
struct Heartbeat {
    interval: Duration,
    next: Pin<Box<Sleep>>,
}

impl Heartbeat {
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            next: Box::pin(sleep(interval)),
        }
    }

    fn reset(&mut self) {
        self.next.as_mut().reset(Instant::now() + self.interval);
    }
}

impl<T: EventEncoder> SseBody<T> {
    /// Creates the body. A `heartbeat` of `None` or zero sends no heartbeats.
    pub(super) fn new(
        stream: TaskEventStream,
        encoder: T,
        heartbeat: Option<Duration>,
        drain: CancellationToken,
    ) -> Self {
        Self {
            stream: ChunkedStream::new(stream),
            encoder,
            unsent: ChunkPieces::default(),
            heartbeat: heartbeat
                .filter(|interval| !interval.is_zero())
                .map(Heartbeat::new),
            drain: Box::pin(drain.cancelled_owned()),
        }
    }

    /// Polls for the bytes of the next frame: events, then drain, then a heartbeat. Returns `None`
    /// at the end.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(frame) = self.unsent.next_frame() {
            return Poll::Ready(Some(frame));
        }
        while let Poll::Ready(encoded) = self.poll_encoded(context) {
            if encoded.as_ref().is_some_and(|chunk| chunk.total_len() == 0) {
                // All items of the chunk are invisible to this subscriber.
                continue;
            }
            if let Some(heartbeat) = &mut self.heartbeat {
                heartbeat.reset();
            }
            self.unsent = encoded.unwrap_or_default().into_pieces();
            return Poll::Ready(self.unsent.next_frame());
        }
        if self.drain.as_mut().poll(context).is_ready() {
            self.stream.close();
            return Poll::Ready(Some(Bytes::from_static(sse::RECONNECT)));
        }
        self.poll_heartbeat(context)
    }

    fn poll_heartbeat(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(heartbeat) = &mut self.heartbeat else {
            return Poll::Pending;
        };
        ready!(heartbeat.next.as_mut().poll(context));
        heartbeat.reset();
        // `reset` does not register the waker; the next poll does.
        context.waker().wake_by_ref();
        Poll::Ready(Some(Bytes::from_static(sse::KEEP_ALIVE)))
    }

    /// Polls for the next encoded chunk. Returns `None` at the end.
    fn poll_encoded(&mut self, context: &mut Context<'_>) -> Poll<Option<ChunkBuffer>> {
        let Self {
            stream, encoder, ..
        } = self;
        let chunk = ready!(stream.poll_chunk(context, |out, stream, item| {
            encoder.write(out, stream, item)
        }));
        Poll::Ready(match chunk {
            Some(Ok(chunk)) => Some(chunk),
            Some(Err(error)) => Some(encoder.encode_failure(error).into()),
            None => encoder.finish().map(ChunkBuffer::from),
        })
    }
}

impl<T: EventEncoder> Body for SseBody<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.poll_bytes(context)
            .map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
    }
}
