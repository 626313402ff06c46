//! What comes out of a stream, in chunks: a reader that is far behind has no more of it in memory, written out, than
//! one that keeps up.

use std::task::{Context, Poll, ready};
use std::vec;

use tokio_util::sync::ReusableBoxFuture;

use crate::model::Result;
use crate::service::{StreamItem, TaskEventStream};
use crate::telemetry::metrics;

/// What an event takes when it is written, mostly: room that is there from the start need not grow step by step.
const TYPICAL_EVENT_BYTES: usize = 384;

/// A piece is about so large: what is larger than that, allocators do not keep at hand.
const CHUNK_BYTES: usize = 32 << 10;

/// A stream, and what came out of it.
type NextItems = (TaskEventStream, Option<Result<Vec<StreamItem>>>);

/// A stream on its way out.
pub(super) struct ChunkedStream {
    /// None when all is said.
    next: Option<ReusableBoxFuture<'static, NextItems>>,
    /// What has come out and is not written yet.
    unwritten: Option<(TaskEventStream, vec::IntoIter<StreamItem>)>,
}

impl ChunkedStream {
    pub(super) fn new(stream: TaskEventStream) -> Self {
        Self {
            next: Some(ReusableBoxFuture::new(next_items(stream))),
            unwritten: None,
        }
    }

    /// Whether nothing follows; gRPC has trailers then.
    #[cfg(feature = "grpc")]
    pub(super) fn has_ended(&self) -> bool {
        self.next.is_none()
    }

    /// Says no more.
    pub(super) fn close(&mut self) {
        (self.next, self.unwritten) = (None, None);
    }

    /// The next piece, as `write` has it; `None` at the end. After an error nothing follows.
    pub(super) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnMut(&mut Vec<u8>, &TaskEventStream, &StreamItem),
    ) -> Poll<Option<Result<Vec<u8>>>> {
        let Some(future) = &mut self.next else {
            return Poll::Ready(None);
        };
        let (stream, mut items) = match self.unwritten.take() {
            Some(unwritten) => unwritten,
            None => match ready!(future.poll(context)) {
                (stream, Some(Ok(items))) => (stream, items.into_iter()),
                (_, failed) => {
                    self.close();
                    return Poll::Ready(failed.map(|items| items.map(|_| Vec::new())));
                }
            },
        };
        let before = items.len();
        let chunk = encode_chunk(&stream, &mut items, write);
        metrics::record_stream_events(before - items.len(), chunk.len());
        match items.len() {
            0 => future.set(next_items(stream)),
            _ => self.unwritten = Some((stream, items)),
        }
        Poll::Ready(Some(Ok(chunk)))
    }
}

/// Writes items until there is enough: what one item is too much for goes out all the same.
fn encode_chunk<S, I>(
    stream: &S,
    items: &mut vec::IntoIter<I>,
    mut write: impl FnMut(&mut Vec<u8>, &S, &I),
) -> Vec<u8> {
    let mut out = Vec::with_capacity((items.len() * TYPICAL_EVENT_BYTES).clamp(1024, CHUNK_BYTES));
    // One more that is as large as most still fits.
    while out.len() + TYPICAL_EVENT_BYTES <= CHUNK_BYTES
        && let Some(item) = items.next()
    {
        write(&mut out, stream, &item);
    }
    out
}

#[expect(
    clippy::manual_async_fn,
    reason = "an async fn would have room for the stream twice"
)]
fn next_items(mut stream: TaskEventStream) -> impl Future<Output = NextItems> {
    async move {
        let items = stream.next().await;
        (stream, items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r06_backlog_is_encoded_in_chunks() {
        let mut items = vec![vec![0_u8; CHUNK_BYTES / 4 + 1]; 1000].into_iter();
        let mut chunks = Vec::new();
        while items.len() > 0 {
            chunks.push(
                encode_chunk(&(), &mut items, |out, (), item| out.extend_from_slice(item)).len(),
            );
        }
        assert_eq!(
            (chunks.len(), chunks.iter().max()),
            (250, Some(&(CHUNK_BYTES + 4)))
        );
        let mut one = vec![vec![0_u8; 3 * CHUNK_BYTES]].into_iter();
        assert_eq!(
            encode_chunk(&(), &mut one, |out, (), item| out.extend_from_slice(item)).len(),
            3 * CHUNK_BYTES
        );
    }
}
