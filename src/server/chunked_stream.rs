//! Encodes a task stream in chunks of bounded size.
//!
//! A subscriber with a long backlog has at most one encoded chunk in memory, like one that keeps up
//! (R6).

use std::task::{Context, Poll, ready};
use std::vec;

use tokio_util::sync::ReusableBoxFuture;

use super::chunk_buffer::ChunkBuffer;
use crate::model::Result;
use crate::service::{StreamItem, TaskEventStream};
use crate::telemetry::metrics;

/// Typical size of an encoded event. Used to allocate the buffer of a chunk at once.
const TYPICAL_EVENT_BYTES: usize = 384;

/// Target size of a chunk. Allocators cache blocks up to about this size.
const CHUNK_BYTES: usize = 32 << 10;

/// Result of one read: the stream, and its next items, an error, or `None` at the end.
type NextItems = (TaskEventStream, Option<Result<Vec<StreamItem>>>);

/// Task stream that is read and encoded chunk by chunk.
pub(super) struct ChunkedStream {
    /// Pending read of the stream. `None` once the stream has ended.
    next: Option<ReusableBoxFuture<'static, NextItems>>,
    /// Items that were read and are not encoded yet. While there are any, `next` is complete.
    unwritten: Option<(TaskEventStream, vec::IntoIter<StreamItem>)>,
}

impl ChunkedStream {
    pub(super) fn new(stream: TaskEventStream) -> Self {
        Self {
            next: Some(ReusableBoxFuture::new(next_items(stream))),
            unwritten: None,
        }
    }

    /// Whether the stream has ended. The gRPC body sends its trailers then.
    #[cfg(feature = "grpc")]
    pub(super) fn has_ended(&self) -> bool {
        self.next.is_none()
    }

    /// Ends the stream. Later polls return `None`.
    pub(super) fn close(&mut self) {
        self.next = None;
        self.unwritten = None;
    }

    /// Polls for the next chunk, encoded by `write`. Returns `None` at the end. The stream ends
    /// after an error.
    pub(super) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnMut(&mut ChunkBuffer, &TaskEventStream, StreamItem) -> Result<()>,
    ) -> Poll<Option<Result<ChunkBuffer>>> {
        let Some(future) = &mut self.next else {
            return Poll::Ready(None);
        };
        let (stream, mut items) = match self.unwritten.take() {
            Some(unwritten) => unwritten,
            None => match ready!(future.poll(context)) {
                (stream, Some(Ok(items))) => (stream, items.into_iter()),
                (_, failed) => {
                    self.close();
                    return Poll::Ready(failed.map(|items| items.map(|_| ChunkBuffer::default())));
                }
            },
        };
        let before = items.len();
        let chunk = match encode_chunk(&stream, &mut items, write) {
            Ok(chunk) => chunk,
            Err(error) => {
                self.close();
                return Poll::Ready(Some(Err(error)));
            }
        };
        metrics::record_stream_events(before - items.len(), chunk.total_len());
        match items.len() {
            0 => future.set(next_items(stream)),
            _ => self.unwritten = Some((stream, items)),
        }
        Poll::Ready(Some(Ok(chunk)))
    }
}

/// Encodes items until the chunk is full. An item larger than a chunk is encoded whole.
fn encode_chunk<S, I>(
    stream: &S,
    items: &mut vec::IntoIter<I>,
    mut write: impl FnMut(&mut ChunkBuffer, &S, I) -> Result<()>,
) -> Result<ChunkBuffer> {
    let capacity = (items.len() * TYPICAL_EVENT_BYTES).clamp(1024, CHUNK_BYTES);
    let mut out = ChunkBuffer::with_capacity(capacity);
    // Stops while another event of typical size would still fit.
    while out.len() + TYPICAL_EVENT_BYTES <= CHUNK_BYTES
        && let Some(item) = items.next()
    {
        write(&mut out, stream, item)?;
    }
    Ok(out)
}

#[expect(
    clippy::manual_async_fn,
    reason = "an async fn stores its argument twice"
)]
pub(super) fn next_items(mut stream: TaskEventStream) -> impl Future<Output = NextItems> {
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
        let append = |out: &mut ChunkBuffer, (): &(), item: Vec<u8>| {
            out.extend_from_slice(&item);
            Ok(())
        };
        let encoded_bytes =
            |items: &mut vec::IntoIter<_>| encode_chunk(&(), items, append).unwrap().len();
        let mut items = vec![vec![0_u8; CHUNK_BYTES / 4 + 1]; 1000].into_iter();
        let mut chunks = Vec::new();
        while items.len() > 0 {
            chunks.push(encoded_bytes(&mut items));
        }
        assert_eq!(chunks.len(), 250);
        assert_eq!(chunks.iter().max(), Some(&(CHUNK_BYTES + 4)));
        let mut large = vec![vec![0_u8; 3 * CHUNK_BYTES]].into_iter();
        assert_eq!(encoded_bytes(&mut large), 3 * CHUNK_BYTES);
    }
}
