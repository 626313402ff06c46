//! What comes out of a stream, in pieces: a reader that is far behind has no more of it in memory, written out, than
//! one that keeps up.

use std::task::{Context, Poll, ready};
use std::vec;

use tokio_util::sync::ReusableBoxFuture;

use crate::metrics;
use crate::model::Result;
use crate::service::{Item, Stream};

/// What an event takes when it is written, mostly: room that is there from the start need not grow step by step.
const USUAL: usize = 384;

/// A piece is about so large: what is larger than that, allocators do not keep at hand.
const PIECE: usize = 32 << 10;

/// A stream, and what came out of it.
type Next = (Stream, Option<Result<Vec<Item>>>);

/// A stream on its way out.
pub(super) struct Outgoing {
    /// None when all is said.
    next: Option<ReusableBoxFuture<'static, Next>>,
    /// What has come out and is not written yet.
    left: Option<(Stream, vec::IntoIter<Item>)>,
}

impl Outgoing {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            next: Some(ReusableBoxFuture::new(next(stream))),
            left: None,
        }
    }

    /// Whether nothing follows; gRPC has trailers then.
    #[cfg(feature = "grpc")]
    pub(super) fn is_over(&self) -> bool {
        self.next.is_none()
    }

    /// Says no more.
    pub(super) fn end(&mut self) {
        (self.next, self.left) = (None, None);
    }

    /// The next piece, as `write` has it; `None` at the end. After an error nothing follows.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnMut(&mut Vec<u8>, &Stream, &Item),
    ) -> Poll<Option<Result<Vec<u8>>>> {
        let Some(future) = &mut self.next else {
            return Poll::Ready(None);
        };
        let (stream, mut items) = match self.left.take() {
            Some(left) => left,
            None => match ready!(future.poll(context)) {
                (stream, Some(Ok(items))) => (stream, items.into_iter()),
                (_, failed) => {
                    self.end();
                    return Poll::Ready(failed.map(|items| items.map(|_| Vec::new())));
                }
            },
        };
        let before = items.len();
        let piece = piece(&stream, &mut items, write);
        metrics::sent(before - items.len(), piece.len());
        match items.len() {
            0 => future.set(next(stream)),
            _ => self.left = Some((stream, items)),
        }
        Poll::Ready(Some(Ok(piece)))
    }
}

/// Writes items until there is enough: what one item is too much for goes out all the same.
fn piece<S, I>(
    stream: &S,
    items: &mut vec::IntoIter<I>,
    mut write: impl FnMut(&mut Vec<u8>, &S, &I),
) -> Vec<u8> {
    let mut out = Vec::with_capacity((items.len() * USUAL).clamp(1024, PIECE));
    // One more that is as large as most still fits.
    while out.len() + USUAL <= PIECE
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
fn next(mut stream: Stream) -> impl Future<Output = Next> {
    async move {
        let items = stream.next().await;
        (stream, items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r06_what_a_lagging_reader_has_missed_comes_in_pieces() {
        let mut items = vec![vec![0_u8; PIECE / 4 + 1]; 1000].into_iter();
        let mut pieces = Vec::new();
        while items.len() > 0 {
            pieces.push(piece(&(), &mut items, |out, (), item| out.extend_from_slice(item)).len());
        }
        assert_eq!(
            (pieces.len(), pieces.iter().max()),
            (250, Some(&(PIECE + 4)))
        );
        let mut one = vec![vec![0_u8; 3 * PIECE]].into_iter();
        assert_eq!(
            piece(&(), &mut one, |out, (), item| out.extend_from_slice(item)).len(),
            3 * PIECE
        );
    }
}
