//! Memory budget of request bodies, until the call that they contain has ended.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::StatusCode;
use attache::model::CallerKey;
use attache::{FairPermit, FairSemaphore};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::timeout;

use super::MAX_REQUEST_BYTES;

/// Unit of the budget.
const BLOCK_BYTES: usize = 64 << 10;

/// Memory of request bodies, shared among callers.
pub(super) struct BodyBudget {
    blocks: FairSemaphore<CallerKey>,
    timeout: Duration,
}

/// Part of the budget that a body takes. Released on drop.
pub(super) type BodyPermits = Vec<FairPermit<CallerKey>>;

/// Body of a response, with the part of the budget that its request takes.
pub(super) struct HeldBody {
    pub(super) body: BoxBody<Bytes, Infallible>,
    pub(super) permits: BodyPermits,
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) {
            self.permits.clear();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reason why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// Larger than the maximum.
    TooLarge,
    /// No memory is left for it.
    BudgetExhausted,
    /// It took too long.
    Timeout,
    /// The client disconnected.
    Incomplete,
}

impl BodyError {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BudgetExhausted => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Incomplete => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn message(self) -> &'static str {
        match self {
            Self::TooLarge => "the body is too large (limit: 8 MiB)\n",
            Self::BudgetExhausted => {
                "too many request bodies in memory (limit: max_buffered_body_bytes)\n"
            }
            Self::Timeout => "the body took too long (limit: body_timeout)\n",
            Self::Incomplete => "the body is incomplete\n",
        }
    }
}

impl BodyBudget {
    pub(super) fn new(max_bytes: usize, timeout: Duration) -> Self {
        Self {
            blocks: FairSemaphore::new(max_bytes / BLOCK_BYTES, None),
            timeout,
        }
    }

    /// Reads a body. Its memory counts until the permits are dropped.
    pub(super) async fn read(
        &self,
        body: Incoming,
        caller: &CallerKey,
    ) -> Result<(Bytes, BodyPermits), BodyError> {
        let read = timeout(self.timeout, self.read_frames(body, caller)).await;
        read.unwrap_or(Err(BodyError::Timeout))
    }

    async fn read_frames<B>(
        &self,
        mut body: B,
        caller: &CallerKey,
    ) -> Result<(Bytes, BodyPermits), BodyError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut bytes = BytesMut::new();
        let mut blocks = BodyPermits::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| BodyError::Incomplete)?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > MAX_REQUEST_BYTES {
                return Err(BodyError::TooLarge);
            }
            while blocks.len() * BLOCK_BYTES < bytes.len() + data.len() {
                let block = self.blocks.try_acquire(caller.clone());
                blocks.push(block.ok_or(BodyError::BudgetExhausted)?);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), blocks))
    }
}

#[cfg(test)]
mod tests {
    use attache::model::Caller;
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn d15_bodies_are_bounded_and_their_memory_is_released() {
        let budget = BodyBudget::new(4 * BLOCK_BYTES, Duration::from_secs(1));
        let caller = CallerKey::Caller(Caller::new("one"));
        let read = async |bytes: usize| {
            let body = Full::new(Bytes::from(vec![0; bytes]));
            let read = budget.read_frames(body, &caller).await;
            read.map(|(bytes, permits)| (bytes.len(), permits.len()))
        };
        for _ in 0..10 {
            // Half of the budget is for one caller.
            assert_eq!(read(2 * BLOCK_BYTES).await, Ok((2 * BLOCK_BYTES, 2)));
            let refused = read(2 * BLOCK_BYTES + 1).await;
            assert_eq!(refused, Err(BodyError::BudgetExhausted));
        }
        let refused = read(MAX_REQUEST_BYTES + 1).await;
        assert_eq!(refused, Err(BodyError::TooLarge));
        assert_eq!(budget.blocks.free_permits(), 4);
    }

    #[tokio::test]
    async fn d15_a_body_counts_until_the_response_is_sent() {
        let budget = BodyBudget::new(2 * BLOCK_BYTES, Duration::from_secs(1));
        let caller = CallerKey::Caller(Caller::new("one"));
        let body = || Full::new(Bytes::from(vec![0; BLOCK_BYTES]));
        let (_, permits) = budget.read_frames(body(), &caller).await.unwrap();
        let refused = budget.read_frames(body(), &caller).await.err();
        assert_eq!(refused, Some(BodyError::BudgetExhausted));
        let response = Full::new(Bytes::from_static(b"done")).boxed();
        let response = HeldBody {
            body: response,
            permits,
        };
        assert_eq!(budget.blocks.free_permits(), 1);
        assert_eq!(response.collect().await.unwrap().to_bytes(), "done");
        assert_eq!(budget.blocks.free_permits(), 2);
    }
}
