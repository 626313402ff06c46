//! Decoding of request bodies: small ones at once, large ones on threads of their own.
//!
//! Decoding 8 MiB takes about 100 ms. On a worker of the runtime it would delay every connection of that worker.

use std::time::Duration;

use crate::model::{CallerKey, Error, ErrorKind, Result};
use crate::rt::{PoolError, PoolLimits, ThreadPool};

/// Size up to which a body is decoded on the worker that has read it.
pub(super) const MAX_INLINE_BYTES: usize = 256 << 10;
/// Maximum number of large bodies of one caller that wait for a thread.
const MAX_WAITING_BODIES: usize = 64;
/// `Retry-After` of a request beyond it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Threads that decode large bodies, in turn for each caller. One caller uses at most half of them.
#[derive(Debug)]
pub(super) struct BodyDecoder {
    threads: usize,
    pool: ThreadPool<CallerKey>,
}

impl BodyDecoder {
    pub(super) fn new(threads: usize) -> Self {
        let limits = PoolLimits {
            threads,
            threads_per_owner: threads / 2,
            queue_per_owner: MAX_WAITING_BODIES,
        };
        Self {
            threads,
            pool: ThreadPool::new("attache-decode", limits),
        }
    }

    /// Returns the number of threads it was created with.
    pub(super) fn threads(&self) -> usize {
        self.threads
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
                PoolError::QueueFull => Error::new(ErrorKind::RateLimited)
                    .with_message(format!(
                        "too many large request bodies of this caller are being decoded (limit: {MAX_WAITING_BODIES})"
                    ))
                    .with_retry_after(RETRY_AFTER),
                PoolError::Panicked | PoolError::NoThread(_) => Error::internal(error),
            })
    }
}
