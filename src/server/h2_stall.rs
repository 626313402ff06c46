//! Write-stall timeout for HTTP/2 responses.
//!
//! With a closed flow-control window nothing is written to the socket, so the write timeout of the
//! connection never starts. A stall shows in the response body instead: it has returned a frame and
//! is not polled for the next one. The stream is reset then.
//!
//! A window of 1 byte suffices to pass a frame to the connection, which buffers the rest. Frames are therefore counted
//! until they are written ([`UnsentFrames`]). The connection is closed if one of them is not.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::sleep;

use super::reply::{BodyError, ReplyBody};
use super::unsent_frames::{UnsentFrame, UnsentFrames};

/// Largest frame that a body returns. A slow peer takes this much well within the timeout.
const FRAME_BYTES: usize = 64 << 10;

tokio::task_local! {
    /// Whether the body has returned a frame and has not been polled since.
    static FRAME_PENDING: Cell<bool>;
}

/// Runs `response` until it completes. Returns `None` once its body has been stalled for
/// `stall_timeout`.
///
/// A [`WatchedBody`] reports its polls through a task-local.
pub(super) async fn timeout<T>(
    stall_timeout: Duration,
    response: impl Future<Output = T>,
) -> Option<T> {
    let watched = async {
        let mut response = pin!(response);
        let mut stalled = None;
        std::future::poll_fn(|context| {
            if let Poll::Ready(done) = response.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            if !FRAME_PENDING.with(Cell::get) {
                stalled = None;
                return Poll::Pending;
            }
            let stalled = stalled.get_or_insert_with(|| Box::pin(sleep(stall_timeout)));
            stalled.as_mut().poll(context).map(|()| None)
        })
        .await
    };
    FRAME_PENDING.scope(Cell::new(false), watched).await
}

/// Body of an HTTP/2 response. HTTP/1 has a write timeout of its own.
pub(super) struct WatchedBody {
    body: ReplyBody,
    unsent: Arc<UnsentFrames>,
}

impl WatchedBody {
    pub(super) fn new(body: ReplyBody, unsent: Arc<UnsentFrames>) -> Self {
        Self { body, unsent }
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let frame = record_poll(Pin::new(&mut this.body).poll_frame(context));
        let count = |bytes| Bytes::from_owner(UnsentFrame::new(bytes, &this.unsent));
        frame.map_ok(|frame| frame.map_data(count))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Records the result of polling a response body, and returns it.
fn record_poll<T>(frame: Poll<Option<T>>) -> Poll<Option<T>> {
    // The task-local is unset outside of `timeout`.
    let _ = FRAME_PENDING.try_with(|pending| pending.set(matches!(frame, Poll::Ready(Some(_)))));
    frame
}

/// Splits off the next frame of at most 64 KiB. Returns `None` if `bytes` is empty.
pub(super) fn next_frame(bytes: &mut Bytes) -> Option<Bytes> {
    (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(FRAME_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn s64_stalled_response_is_dropped() {
        let begin = Instant::now();
        let stuck = async {
            let _ = record_poll(Poll::Ready(Some(())));
            std::future::pending::<()>().await;
        };
        assert_eq!(timeout(TIMEOUT, stuck).await, None);
        assert_eq!(begin.elapsed(), TIMEOUT);
        // A body without data may wait, and a body that is read slowly may take any time.
        let slow = async {
            for _ in 0..3 {
                let _ = record_poll(Poll::Ready(Some(())));
                sleep(TIMEOUT - Duration::from_secs(1)).await;
                let _ = record_poll(Poll::<Option<()>>::Pending);
                sleep(TIMEOUT * 2).await;
            }
        };
        assert_eq!(timeout(TIMEOUT, slow).await, Some(()));
    }

    #[test]
    fn large_bodies_are_split_into_frames() {
        let mut bytes = Bytes::from(vec![0; 2 * FRAME_BYTES + 1]);
        let frames: Vec<_> = std::iter::from_fn(|| next_frame(&mut bytes))
            .map(|frame| frame.len())
            .collect();
        assert_eq!(frames, [FRAME_BYTES, FRAME_BYTES, 1]);
        assert_eq!(next_frame(&mut bytes), None);
    }
}
