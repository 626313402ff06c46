//! Whether a peer of HTTP/2 takes what we have for it. Its connection may be alive while its window is closed: then
//! nothing is written, and no write can take too long.

use std::cell::Cell;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

/// What is handed over at once: a slow peer takes this much well within the timeout, and shows that it does.
const PIECE: usize = 64 << 10;

tokio::task_local! {
    /// Whether something was handed over, and nothing has been asked for since.
    static HANDED: Cell<bool>;
}

/// Answers a call of HTTP/2, as long as the peer takes the answer. Its body tells by [`asked`].
pub(super) async fn within<T>(patience: Duration, answer: impl Future<Output = T>) -> Option<T> {
    let answer = async {
        let mut answer = pin!(answer);
        let mut stalled = None;
        std::future::poll_fn(|context| {
            if let Poll::Ready(done) = answer.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            if !HANDED.with(Cell::get) {
                stalled = None;
                return Poll::Pending;
            }
            let stalled = stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
            stalled.as_mut().poll(context).map(|()| None)
        })
        .await
    };
    HANDED.scope(Cell::new(false), answer).await
}

/// A body was asked for more, so what it gave before is on its way; notes whether it now gives something.
pub(super) fn asked<T>(given: Poll<Option<T>>) -> Poll<Option<T>> {
    // On HTTP/1 nobody looks: there the write itself waits.
    let _ = HANDED.try_with(|handed| handed.set(matches!(given, Poll::Ready(Some(_)))));
    given
}

/// The next piece of what is to go out; `None` when all is out.
pub(super) fn piece(bytes: &mut Bytes) -> Option<Bytes> {
    (!bytes.is_empty()).then(|| bytes.split_to(bytes.len().min(PIECE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn s64_an_answer_that_is_not_taken_is_given_up() {
        let begin = Instant::now();
        let stuck = async {
            let _ = asked(Poll::Ready(Some(())));
            std::future::pending::<()>().await;
        };
        assert_eq!(
            (within(PATIENCE, stuck).await, begin.elapsed()),
            (None, PATIENCE)
        );
        // One that has nothing to give may wait, and one that is taken piece by piece takes its time.
        let slow = async {
            for _ in 0..3 {
                let _ = asked(Poll::Ready(Some(())));
                sleep(PATIENCE - Duration::from_secs(1)).await;
                let _ = asked(Poll::<Option<()>>::Pending);
                sleep(PATIENCE * 2).await;
            }
        };
        assert_eq!(within(PATIENCE, slow).await, Some(()));
    }

    #[test]
    fn what_is_large_goes_out_in_pieces() {
        let mut bytes = Bytes::from(vec![0; 2 * PIECE + 1]);
        let pieces: Vec<_> = std::iter::from_fn(|| piece(&mut bytes))
            .map(|piece| piece.len())
            .collect();
        assert_eq!(pieces, [PIECE, PIECE, 1]);
        assert_eq!(piece(&mut bytes), None);
    }
}
