//! Decoding of request bodies: small ones at once, large ones on threads of their own.
//!
//! Decoding 8 MiB takes about 100 ms. On a worker of the runtime it would delay every connection of that worker.

use std::time::Duration;

use crate::model::{CallerKey, Error, ErrorKind, Result};
use crate::rt::{PoolError, PoolLimits, ThreadPool};

/// Size up to which a body is decoded on the worker that has read it.
pub(super) const MAX_INLINE_BYTES: usize = 256 << 10;
/// `Retry-After` of a request beyond it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Threads that decode large bodies, in turn for each caller. One caller uses at most half of them.
#[derive(Debug)]
pub(super) struct BodyDecoder {
    limits: DecoderLimits,
    pool: ThreadPool<CallerKey>,
}

/// Limits of a [`BodyDecoder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DecoderLimits {
    pub(super) threads: usize,
    /// Maximum number of bodies of one caller that wait for a thread.
    pub(super) queue_per_caller: usize,
}

impl BodyDecoder {
    pub(super) fn new(limits: DecoderLimits) -> Self {
        let pool_limits = PoolLimits {
            threads: limits.threads,
            threads_per_owner: limits.threads / 2,
            queue_per_owner: limits.queue_per_caller,
        };
        Self {
            limits,
            pool: ThreadPool::new("attache-decode", pool_limits),
        }
    }

    /// Returns the limits it was created with.
    pub(super) fn limits(&self) -> DecoderLimits {
        self.limits
    }

    /// Runs the decoder of a large body on behalf of `owner`.
    ///
    /// # Errors
    /// Rate limited: too many bodies of the owner wait. Internal: the decoder panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        owner: &CallerKey,
        decode: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.pool
            .run(owner, decode)
            .await
            .map_err(|error| match error {
                PoolError::QueueFull => self.queue_full(),
                PoolError::Panicked | PoolError::NoThread(_) => Error::internal(error),
            })
    }

    fn queue_full(&self) -> Error {
        let limit = self.limits.queue_per_caller;
        Error::new(ErrorKind::RateLimited)
            .with_message(format!(
                "too many large request bodies of this caller wait to be decoded \
                 (limit: decoder_queue_per_caller = {limit})"
            ))
            .with_retry_after(RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::model::Caller;

    #[tokio::test]
    async fn d07_the_queue_of_a_caller_is_bounded() {
        let decoder = BodyDecoder::new(DecoderLimits {
            threads: 2,
            queue_per_caller: 1,
        });
        let caller = CallerKey::Caller(Caller::new("ann"));
        let (release, released) = mpsc::sync_channel::<()>(1);
        // One body is decoded, one waits, and the third is refused.
        let decoded = decoder.run(&caller, move || released.recv());
        let waiting = decoder.run(&caller, || ());
        let refused = async {
            let error = decoder.run(&caller, || ()).await.unwrap_err();
            release.send(()).unwrap();
            error
        };
        let (decoded, waiting, refused) = tokio::join!(biased; decoded, waiting, refused);
        decoded.unwrap().unwrap();
        waiting.unwrap();
        assert_eq!(refused.kind(), ErrorKind::RateLimited);
        let message = refused.message();
        assert!(
            message.contains("decoder_queue_per_caller = 1"),
            "{message}"
        );
    }
}
