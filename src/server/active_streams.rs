//! Idle detection for HTTP/2 connections. A peer can answer every ping and still never call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// Counters of the streams started and ended on one HTTP/2 connection.
#[derive(Debug, Default)]
pub(super) struct ActiveStreams {
    started: AtomicUsize,
    ended: AtomicUsize,
}

/// Guard of one open stream. Dropping it counts the stream as ended.
pub(super) struct ActiveStream(Arc<ActiveStreams>);

impl ActiveStreams {
    pub(super) fn start(self: &Arc<Self>) -> ActiveStream {
        self.started.fetch_add(1, Ordering::Relaxed);
        ActiveStream(self.clone())
    }

    /// Waits until no stream has been open for `timeout`.
    ///
    /// Compares the counters once per `timeout`, so a stream costs two atomic increments and no
    /// timer. Idleness is detected after one to two times `timeout`.
    pub(super) async fn wait_until_idle(&self, timeout: Duration) {
        let mut last_ended = None;
        loop {
            // `ended` first: a stream that ends in between counts as open.
            let ended = self.ended.load(Ordering::Acquire);
            let started = self.started.load(Ordering::Acquire);
            if started == ended && last_ended == Some(ended) {
                return;
            }
            last_ended = Some(ended);
            sleep(timeout).await;
        }
    }
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn s63_connection_without_streams_becomes_idle() {
        let streams = Arc::new(ActiveStreams::default());
        let begin = Instant::now();
        streams.wait_until_idle(TIMEOUT).await;
        assert_eq!(begin.elapsed(), TIMEOUT);
        // An open stream and a recently ended one both keep the connection.
        let open = streams.start();
        let idle = streams.wait_until_idle(TIMEOUT);
        let end = async {
            sleep(TIMEOUT * 5 / 2).await;
            drop(open);
        };
        let begin = Instant::now();
        tokio::join!(idle, end);
        assert_eq!(begin.elapsed(), TIMEOUT * 4);
    }
}
