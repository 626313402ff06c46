//! Frames of HTTP/2 responses that are not written yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

/// Unsent frames of one connection, by the period in which they were passed to it.
///
/// A period is one timeout. A frame of the period before the last one is thereby unsent for longer than the timeout, and no
/// frame needs a timer of its own.
#[derive(Debug, Default)]
pub(super) struct UnsentFrames {
    /// Number of frames of the current period and of the one before.
    counts: [AtomicUsize; 2],
    /// Index of the current period in `counts`.
    current: AtomicUsize,
}

/// Frame that the connection has not written yet. Counted until it is dropped.
pub(super) struct UnsentFrame {
    bytes: Bytes,
    frames: Arc<UnsentFrames>,
    period: usize,
}

impl UnsentFrame {
    pub(super) fn new(bytes: Bytes, frames: &Arc<UnsentFrames>) -> Self {
        let period = frames.current.load(Ordering::Relaxed);
        frames.counts[period].fetch_add(1, Ordering::Relaxed);
        Self {
            bytes,
            frames: frames.clone(),
            period,
        }
    }
}

impl AsRef<[u8]> for UnsentFrame {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnsentFrame {
    fn drop(&mut self) {
        self.frames.counts[self.period].fetch_sub(1, Ordering::Relaxed);
    }
}

impl UnsentFrames {
    /// Waits until a frame has been unsent for `timeout`. Notices it after one to two times `timeout`.
    pub(super) async fn wait_until_stalled(&self, timeout: Duration) {
        loop {
            sleep(timeout).await;
            let next = 1 - self.current.load(Ordering::Relaxed);
            if self.counts[next].load(Ordering::Relaxed) > 0 {
                return;
            }
            self.current.store(next, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn s64_a_frame_that_is_not_written_in_time_is_noticed() {
        let frames = Arc::new(UnsentFrames::default());
        let frame = || Bytes::from_owner(UnsentFrame::new(Bytes::from_static(b"x"), &frames));
        let begin = Instant::now();
        // Frames that are written in time, one after the other.
        let slow = async {
            for _ in 0..10 {
                let frame = frame();
                sleep(TIMEOUT - Duration::from_secs(1)).await;
                drop(frame);
            }
            let stuck = frame();
            let since = begin.elapsed();
            std::future::pending::<()>().await;
            drop(stuck);
            since
        };
        tokio::select! {
            () = frames.wait_until_stalled(TIMEOUT) => {}
            _ = slow => unreachable!("it is pending"),
        }
        let waited = begin.elapsed() - (TIMEOUT - Duration::from_secs(1)) * 10;
        assert!(waited >= TIMEOUT && waited <= 2 * TIMEOUT, "{waited:?}");
    }
}
