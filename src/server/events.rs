//! A stream as server-sent events: what a body is made of while a task goes on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::forms::form;
use super::outgoing::Outgoing;
use super::reply::{Fault, logged};
use super::taken::piece;
use crate::model::{Entry, Error, Result};
use crate::service::{Item, Stream};
use crate::wire::jsonrpc::{Id, begin_result, end};
use crate::wire::{Dialect, Updates, sse, write_event, write_failure};

/// What stands around each event, and how it is written.
pub(super) struct Envelope {
    /// The call that is answered; REST has none.
    id: Option<Id<'static>>,
    /// What stands before each event; the call is the same for all of them.
    begin: Vec<u8>,
    updates: Updates,
}

/// How what happens to a task is written.
pub(super) trait Tell: Send + Unpin {
    /// Writes one thing that happened.
    fn write(&mut self, out: &mut Vec<u8>, stream: &Stream, item: &Item);

    /// What is written when nothing can be told any more.
    fn failure(&mut self, error: Error) -> Vec<u8>;

    /// What is written behind the last thing; nothing the second time.
    fn last(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// The body of a stream.
pub(super) struct Events<T = Envelope> {
    stream: Outgoing,
    envelope: T,
    /// What has been written and not handed over yet.
    rest: Bytes,
    heartbeat: Option<Heartbeat>,
    /// Ready when the server is to stop: whoever reads comes again, and finds another.
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
}

struct Heartbeat {
    every: Duration,
    at: Pin<Box<Sleep>>,
}

impl<T: Tell> Events<T> {
    pub(super) fn new(
        stream: Stream,
        envelope: T,
        heartbeat: Option<Duration>,
        drain: CancellationToken,
    ) -> Self {
        Self {
            stream: Outgoing::new(stream),
            envelope,
            rest: Bytes::new(),
            heartbeat: heartbeat
                .filter(|every| !every.is_zero())
                .map(|every| Heartbeat {
                    every,
                    at: Box::pin(sleep(every)),
                }),
            drain: Box::pin(drain.cancelled_owned()),
        }
    }

    /// The next piece of what there is, or a sign of life; `None` at the end.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(piece) = piece(&mut self.rest) {
            return Poll::Ready(Some(piece));
        }
        while let Poll::Ready(bytes) = self.poll_bytes(context) {
            if bytes.as_ref().is_some_and(Vec::is_empty) {
                // Nothing that this reader is told of.
                continue;
            }
            if let Some(Heartbeat { every, at }) = &mut self.heartbeat {
                at.as_mut().reset(Instant::now() + *every);
            }
            self.rest = bytes.unwrap_or_default().into();
            return Poll::Ready(piece(&mut self.rest));
        }
        if self.drain.as_mut().poll(context).is_ready() {
            self.stream.end();
            return Poll::Ready(Some(Bytes::from_static(sse::RECONNECT)));
        }
        if let Some(Heartbeat { every, at }) = &mut self.heartbeat
            && at.as_mut().poll(context).is_ready()
        {
            at.as_mut().reset(Instant::now() + *every);
            // Polled again for its waker: the reset alone wakes nobody.
            context.waker().wake_by_ref();
            return Poll::Ready(Some(Bytes::from_static(sse::COMMENT)));
        }
        Poll::Pending
    }

    /// What comes next; `None` at the end.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let Self {
            stream, envelope, ..
        } = self;
        let told = ready!(stream.poll(context, |out, stream, item| {
            envelope.write(out, stream, item)
        }));
        Poll::Ready(match told {
            Some(told) => Some(told.unwrap_or_else(|error| envelope.failure(error))),
            None => envelope.last(),
        })
    }
}

impl<T: Tell> Body for Events<T> {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        self.poll_piece(context)
            .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl Tell for Envelope {
    fn failure(&mut self, error: Error) -> Vec<u8> {
        let mut out = Vec::new();
        write_failure(
            &mut out,
            &logged(error),
            self.id.as_ref(),
            self.updates.dialect().version(),
        );
        out
    }

    fn write(&mut self, out: &mut Vec<u8>, stream: &Stream, item: &Item) {
        match item {
            Item::Whole(event, at) => {
                self.begin(out, at.map(|at| at.0));
                // Where nothing follows, the event itself says so.
                write_event(out, event, false, self.updates.dialect());
            }
            Item::Update { entry, closes } => {
                self.begin(out, Some(entry.seq.0));
                let form = form(self.updates.dialect(), *closes);
                let mut write = |entry: &Entry, out: &mut Vec<u8>| {
                    self.updates.write(out, entry, stream.ids(), *closes);
                };
                match form {
                    Some(form) => entry.form(form, out, write),
                    None => write(entry, out),
                }
            }
        }
        self.end(out);
    }
}

impl Envelope {
    pub(super) fn new(id: Option<Id<'static>>, dialect: Dialect) -> Self {
        let mut begin = Vec::new();
        if let Some(id) = &id {
            begin_result(&mut begin, id);
        }
        Self {
            id,
            begin,
            updates: Updates::new(dialect),
        }
    }

    fn begin(&self, out: &mut Vec<u8>, at: Option<u64>) {
        sse::begin(out, at);
        out.extend_from_slice(&self.begin);
    }

    fn end(&self, out: &mut Vec<u8>) {
        if self.id.is_some() {
            end(out);
        }
        sse::end(out);
    }
}
