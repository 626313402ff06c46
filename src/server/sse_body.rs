//! A stream as server-sent events: what a body is made of while a task goes on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::chunked_stream::ChunkedStream;
use super::encodings::json_encoding;
use super::h2_stall::next_chunk;
use super::reply::{BodyError, log_failure};
use crate::model::{Entry, Error, Result};
use crate::service::{StreamItem, TaskEventStream};
use crate::wire::jsonrpc::{JsonRpcId, begin_result, end_result};
use crate::wire::{Dialect, StreamEventWriter, sse, write_event, write_stream_error};

/// What stands around each event, and how it is written.
pub(super) struct JsonEventEncoder {
    /// The call that is answered; REST has none.
    id: Option<JsonRpcId<'static>>,
    /// What stands before each event; the call is the same for all of them.
    prefix: Vec<u8>,
    event_writer: StreamEventWriter,
}

/// How what happens to a task is written.
pub(super) trait EventEncoder: Send + Unpin {
    /// Writes one thing that happened.
    fn write(&mut self, out: &mut Vec<u8>, stream: &TaskEventStream, item: &StreamItem);

    /// What is written when nothing can be told any more.
    fn encode_failure(&mut self, error: Error) -> Vec<u8>;

    /// What is written behind the last thing; nothing the second time.
    fn finish(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// The body of a stream.
pub(super) struct SseBody<T = JsonEventEncoder> {
    stream: ChunkedStream,
    encoder: T,
    /// What has been written and not handed over yet.
    unsent: Bytes,
    heartbeat: Option<Heartbeat>,
    /// Ready when the server is to stop: whoever reads comes again, and finds another.
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
}

struct Heartbeat {
    interval: Duration,
    next: Pin<Box<Sleep>>,
}

impl<T: EventEncoder> SseBody<T> {
    pub(super) fn new(
        stream: TaskEventStream,
        encoder: T,
        heartbeat: Option<Duration>,
        drain: CancellationToken,
    ) -> Self {
        Self {
            stream: ChunkedStream::new(stream),
            encoder,
            unsent: Bytes::new(),
            heartbeat: heartbeat
                .filter(|interval| !interval.is_zero())
                .map(|interval| Heartbeat {
                    interval,
                    next: Box::pin(sleep(interval)),
                }),
            drain: Box::pin(drain.cancelled_owned()),
        }
    }

    /// The next piece of what there is, or a sign of life; `None` at the end.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(chunk) = next_chunk(&mut self.unsent) {
            return Poll::Ready(Some(chunk));
        }
        while let Poll::Ready(bytes) = self.poll_encoded(context) {
            if bytes.as_ref().is_some_and(Vec::is_empty) {
                // Nothing that this reader is told of.
                continue;
            }
            if let Some(Heartbeat { interval, next }) = &mut self.heartbeat {
                next.as_mut().reset(Instant::now() + *interval);
            }
            self.unsent = bytes.unwrap_or_default().into();
            return Poll::Ready(next_chunk(&mut self.unsent));
        }
        if self.drain.as_mut().poll(context).is_ready() {
            self.stream.close();
            return Poll::Ready(Some(Bytes::from_static(sse::RECONNECT)));
        }
        if let Some(Heartbeat { interval, next }) = &mut self.heartbeat
            && next.as_mut().poll(context).is_ready()
        {
            next.as_mut().reset(Instant::now() + *interval);
            // Polled again for its waker: the reset alone wakes nobody.
            context.waker().wake_by_ref();
            return Poll::Ready(Some(Bytes::from_static(sse::KEEP_ALIVE)));
        }
        Poll::Pending
    }

    /// What comes next; `None` at the end.
    fn poll_encoded(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let Self {
            stream, encoder, ..
        } = self;
        let encoded = ready!(stream.poll_chunk(context, |out, stream, item| {
            encoder.write(out, stream, item)
        }));
        Poll::Ready(match encoded {
            Some(encoded) => Some(encoded.unwrap_or_else(|error| encoder.encode_failure(error))),
            None => encoder.finish(),
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
        self.poll_chunk(context)
            .map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}

impl EventEncoder for JsonEventEncoder {
    fn encode_failure(&mut self, error: Error) -> Vec<u8> {
        let mut out = Vec::new();
        write_stream_error(
            &mut out,
            &log_failure(error),
            self.id.as_ref(),
            self.event_writer.dialect().version(),
        );
        out
    }

    fn write(&mut self, out: &mut Vec<u8>, stream: &TaskEventStream, item: &StreamItem) {
        match item {
            StreamItem::Full(event, at) => {
                self.begin_event(out, at.map(|at| at.0));
                // Where nothing follows, the event itself says so.
                write_event(out, event, false, self.event_writer.dialect());
            }
            StreamItem::Update { entry, closes } => {
                self.begin_event(out, Some(entry.seq.0));
                let encoding = json_encoding(self.event_writer.dialect(), *closes);
                let mut write = |entry: &Entry, out: &mut Vec<u8>| {
                    let (task, context) = stream.ids();
                    self.event_writer
                        .write_entry(out, entry, task, context, *closes);
                };
                match encoding {
                    Some(encoding) => entry.encode_into(encoding, out, write),
                    None => write(entry, out),
                }
            }
        }
        self.end_event(out);
    }
}

impl JsonEventEncoder {
    pub(super) fn new(id: Option<JsonRpcId<'static>>, dialect: Dialect) -> Self {
        let mut prefix = Vec::new();
        if let Some(id) = &id {
            begin_result(&mut prefix, id);
        }
        Self {
            id,
            prefix,
            event_writer: StreamEventWriter::new(dialect),
        }
    }

    fn begin_event(&self, out: &mut Vec<u8>, at: Option<u64>) {
        sse::begin_event(out, at);
        out.extend_from_slice(&self.prefix);
    }

    fn end_event(&self, out: &mut Vec<u8>) {
        if self.id.is_some() {
            end_result(out);
        }
        sse::end_event(out);
    }
}
