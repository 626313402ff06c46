//! Whether a peer of HTTP/2 takes what we have for it. Its connection may be alive while its window is closed: then
//! nothing is written, and no write can take too long.

use std::cell::Cell;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

/// What is handed over at once: a slow peer takes this much well within the timeout, and shows that it does.
const CHUNK_BYTES: usize = 64 << 10;

tokio::task_local! {
    /// Whether something was handed over, and nothing has been asked for since.
    static CHUNK_PENDING: Cell<bool>;
}

/// Answers a call of HTTP/2, as long as the peer takes the answer. Its body tells by [`record_poll`].
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
            if !CHUNK_PENDING.with(Cell::get) {
                stalled = None;
                return Poll::Pending;
            }
            let stalled = stalled.get_or_insert_with(|| Box::pin(sleep(stall_timeout)));
            stalled.as_mut().poll(context).map(|()| None)
        })
        .await
    };
    CHUNK_PENDING.scope(Cell::new(false), watched).await
}

/// A body was asked for more, so what it gave before is on its way; notes whether it now gives something.
pub(super) fn record_poll<T>(frame: Poll<Option<T>>) -> Poll<Option<T>> {
    // On HTTP/1 nobody looks: there the write itself waits.
    let _ = CHUNK_PENDING.try_with(|pending| pending.set(matches!(frame, Poll::Ready(Some(_)))));
    frame
}

/// The next piece of what is to go out; `None` when all is out.
pub(super) fn next_chunk(bytes: &mut Bytes) -> Option<Bytes> {
    (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(CHUNK_BYTES)))
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
        assert_eq!(
            (timeout(TIMEOUT, stuck).await, begin.elapsed()),
            (None, TIMEOUT)
        );
        // One that has nothing to give may wait, and one that is taken piece by piece takes its time.
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
    fn large_bodies_are_split_into_chunks() {
        let mut bytes = Bytes::from(vec![0; 2 * CHUNK_BYTES + 1]);
        let pieces: Vec<_> = std::iter::from_fn(|| next_chunk(&mut bytes))
            .map(|piece| piece.len())
            .collect();
        assert_eq!(pieces, [CHUNK_BYTES, CHUNK_BYTES, 1]);
        assert_eq!(next_chunk(&mut bytes), None);
    }
}
