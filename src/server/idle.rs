//! Whether anything is asked for on a connection of HTTP/2. Its peer may answer every ping and still want nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// The calls on one connection.
#[derive(Debug, Default)]
pub(super) struct Calls {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

/// One of them; it ends when dropped.
pub(super) struct Call(Arc<Calls>);

impl Calls {
    pub(super) fn begin(self: &Arc<Self>) -> Call {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Call(self.clone())
    }

    /// Ready when there has been no call for so long. It looks only so often, so that a call costs nothing but its
    /// count; it may take twice as long.
    pub(super) async fn idle(&self, patience: Duration) {
        let mut before = None;
        loop {
            let (ended, begun) = (
                self.ended.load(Ordering::Acquire),
                self.begun.load(Ordering::Acquire),
            );
            if begun == ended && before == Some(ended) {
                return;
            }
            before = Some(ended);
            sleep(patience).await;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn s63_a_connection_is_idle_when_no_call_has_been_there_for_long_enough() {
        let calls = Arc::new(Calls::default());
        let begin = Instant::now();
        calls.idle(PATIENCE).await;
        assert_eq!(begin.elapsed(), PATIENCE);
        // A long call keeps it, and so does one that has only just ended.
        let long = calls.begin();
        let (idle, ended) = (calls.idle(PATIENCE), async {
            sleep(PATIENCE * 5 / 2).await;
            drop(long);
        });
        let begin = Instant::now();
        tokio::join!(idle, ended);
        assert_eq!(begin.elapsed(), PATIENCE * 4);
    }
}
