//! Time at which a connection to the admin interface ends.
//!
//! A connection without a valid credential ends after 10 s, so that silent clients do not hold connections. Each request
//! of an operator, and each frame of a stream, moves the end.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use crate::rt::lock;
use crate::server::reply::{BodyError, BoxedFrames};

/// Maximum duration of a connection without a valid credential.
pub(super) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of a connection after a request of an operator, or a frame of a stream.
const ACTIVITY_TIMEOUT: Duration = Duration::from_secs(30);

/// End of a connection. Clones refer to the same connection.
#[derive(Clone)]
pub(super) struct ConnectionDeadline(Arc<Mutex<Instant>>);

impl ConnectionDeadline {
    /// Starts with [`CONNECTION_TIMEOUT`].
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now() + CONNECTION_TIMEOUT)))
    }

    /// Moves the end: the connection is in use by an operator.
    pub(super) fn extend(&self) {
        *lock(&self.0) = Instant::now() + ACTIVITY_TIMEOUT;
    }

    /// Waits for the end.
    pub(super) async fn passed(&self) {
        loop {
            let end = *lock(&self.0);
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Returns a stream whose frames move the end. A client that reads nothing stops the frames, so its connection ends.
    pub(super) fn extend_by(&self, frames: BoxedFrames) -> BoxedFrames {
        Box::new(ActiveFrames {
            frames,
            deadline: self.clone(),
        })
    }
}

/// Stream whose frames extend the connection.
struct ActiveFrames {
    frames: BoxedFrames,
    deadline: ConnectionDeadline,
}

impl HttpBody for ActiveFrames {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.frames).poll_frame(context));
        self.deadline.extend();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.frames.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s47_only_operators_move_the_end() {
        let start = Instant::now();
        let deadline = ConnectionDeadline::new();
        deadline.passed().await;
        assert_eq!(start.elapsed().as_secs(), CONNECTION_TIMEOUT.as_secs());
        let start = Instant::now();
        let deadline = ConnectionDeadline::new();
        let extended = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            deadline.extend();
            std::future::pending::<()>().await
        };
        tokio::select! {
            () = extended => {}
            () = deadline.passed() => {}
        }
        assert_eq!(start.elapsed().as_secs(), 9 + ACTIVITY_TIMEOUT.as_secs());
    }
}
