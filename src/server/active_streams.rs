//! Whether anything is asked for on a connection of HTTP/2. Its peer may answer every ping and still want nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// The streams on one connection.
#[derive(Debug, Default)]
pub(super) struct ActiveStreams {
    started: AtomicUsize,
    ended: AtomicUsize,
}

/// One of them; it ends when dropped.
pub(super) struct ActiveStream(Arc<ActiveStreams>);

impl ActiveStreams {
    pub(super) fn start(self: &Arc<Self>) -> ActiveStream {
        self.started.fetch_add(1, Ordering::Relaxed);
        ActiveStream(self.clone())
    }

    /// Ready when there has been no call for so long. It looks only so often, so that a call costs nothing but its
    /// count; it may take twice as long.
    pub(super) async fn wait_until_idle(&self, timeout: Duration) {
        let mut last_ended = None;
        loop {
            let (ended, started) = (
                self.ended.load(Ordering::Acquire),
                self.started.load(Ordering::Acquire),
            );
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
        // A long call keeps it, and so does one that has only just ended.
        let long = streams.start();
        let (idle, ended) = (streams.wait_until_idle(TIMEOUT), async {
            sleep(TIMEOUT * 5 / 2).await;
            drop(long);
        });
        let begin = Instant::now();
        tokio::join!(idle, ended);
        assert_eq!(begin.elapsed(), TIMEOUT * 4);
    }
}
