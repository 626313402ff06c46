//! Retry rules: exponential backoff with jitter, the classification of errors, and the fallback to another endpoint.

use std::borrow::Cow;
use std::time::Duration;

use uuid::Uuid;

use super::Client;
use super::settings::RetryPolicy;
use crate::egress::{was_blocked, was_not_sent};
use crate::model::{Error, ErrorKind, Result};

/// Exponential backoff between consecutive retries.
pub(super) struct RetryBackoff {
    policy: RetryPolicy,
    retries: u32,
}

impl RetryBackoff {
    pub(super) fn new(policy: &RetryPolicy) -> Self {
        Self {
            policy: policy.clone(),
            retries: 0,
        }
    }

    /// Returns the delay before the next retry; `None` if no retry is left, or the peer's `Retry-After` exceeds the
    /// maximum delay.
    pub(super) fn next(&mut self, error: &Error) -> Option<Duration> {
        let requested = error.retry_after();
        if self.retries >= self.policy.max_retries
            || requested.is_some_and(|requested| requested > self.policy.max_delay)
        {
            return None;
        }
        let doubled = self
            .policy
            .initial_delay
            .saturating_mul(1 << self.retries.min(16))
            .min(self.policy.max_delay);
        self.retries += 1;
        Some(requested.unwrap_or_else(|| with_jitter(doubled)))
    }

    /// Starts over after a success.
    pub(super) fn reset(&mut self) {
        self.retries = 0;
    }
}

/// Shortens a delay by a random fraction of up to one half, so that clients that were cut off together do not reconnect
/// together.
fn with_jitter(delay: Duration) -> Duration {
    let (high, _) = Uuid::new_v4().as_u64_pair();
    let sixteenths = u32::try_from(high >> 60).unwrap_or(0);
    delay - delay / 32 * sixteenths
}

/// Whether the same request may succeed later.
pub(super) fn is_transient(error: &Error) -> bool {
    let is_temporary = matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::RateLimited
    );
    is_connection_lost(error) || (is_temporary && !was_blocked(error))
}

/// Whether the connection failed or timed out, as opposed to an error response of the peer.
pub(super) fn is_connection_lost(error: &Error) -> bool {
    let is_local = std::error::Error::source(error).is_some() && !was_blocked(error);
    is_local
        && matches!(
            error.kind(),
            ErrorKind::Unavailable | ErrorKind::DeadlineExceeded
        )
}

/// Whether the peer certainly did not execute the request.
pub(super) fn was_not_executed(error: &Error) -> bool {
    (was_not_sent(error) && !was_blocked(error)) || error.kind() == ErrorKind::RateLimited
}

/// Whether the peer does not support this operation in this form.
pub(super) fn is_unsupported(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnsupportedOperation | ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed
    )
}

/// Returns the error for an expired timeout of the client.
pub(super) fn deadline_exceeded(limit: Duration) -> Error {
    Error::new(ErrorKind::DeadlineExceeded)
        .with_message(format!("the agent did not answer within {limit:?}"))
        .with_source("a timeout of the client expired")
}

impl Client {
    /// Returns this client with the endpoint it fell back to, if any.
    pub(super) fn active_client(&self) -> Cow<'_, Self> {
        match self.fallbacks.active() {
            Some(endpoint) => Cow::Owned(Self {
                endpoint: endpoint.clone(),
                ..self.clone()
            }),
            None => Cow::Borrowed(self),
        }
    }

    /// Returns a client of another endpoint of the card: of another version if the peer does not know this one, or at
    /// another URL if the peer is unreachable.
    pub(super) fn fallback_for(&self, refused: &Error) -> Option<Self> {
        if self.settings.interface.no_fallback || self.fallbacks.active().is_some() {
            return None;
        }
        let is_version_unknown = matches!(
            refused.kind(),
            ErrorKind::MethodNotFound | ErrorKind::VersionNotSupported
        );
        let endpoint = self.fallbacks.find(|endpoint| {
            (is_version_unknown && endpoint.version != self.endpoint.version)
                || (was_not_sent(refused) && endpoint.url != self.endpoint.url)
        })?;
        Some(Self {
            endpoint: endpoint.clone(),
            ..self.clone()
        })
    }

    /// Keeps the fallback `other` if it worked. Returns the original error `refused` if the fallback failed the same way.
    pub(super) fn resolve_fallback<T>(
        &self,
        other: &Self,
        refused: Error,
        answer: Result<T>,
    ) -> Result<T> {
        match answer {
            Err(error) if is_unsupported(&error) || was_not_sent(&error) => Err(refused),
            answer => {
                self.fallbacks.activate(&other.endpoint);
                answer
            }
        }
    }
}
