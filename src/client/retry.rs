//! What may be tried again, how, and what to fall back on.

use std::borrow::Cow;
use std::time::Duration;

use uuid::Uuid;

use super::Client;
use super::settings::RetryPolicy;
use crate::egress::{was_blocked, was_not_sent};
use crate::model::{Error, ErrorKind, Result};

/// Pauses between tries.
pub(super) struct Backoff {
    policy: RetryPolicy,
    retries: u32,
}

impl Backoff {
    pub(super) fn new(policy: &RetryPolicy) -> Self {
        Self {
            policy: policy.clone(),
            retries: 0,
        }
    }

    /// How long to wait before the next try; `None` if it was tried often enough, or the peer asks for more patience
    /// than we have.
    pub(super) fn next(&mut self, error: &Error) -> Option<Duration> {
        let asked = error.retry_after();
        if self.retries >= self.policy.max_retries
            || asked.is_some_and(|asked| asked > self.policy.max_delay)
        {
            return None;
        }
        let doubled = self
            .policy
            .initial_delay
            .saturating_mul(1 << self.retries.min(16))
            .min(self.policy.max_delay);
        self.retries += 1;
        Some(asked.unwrap_or_else(|| with_jitter(doubled)))
    }

    /// It went well: the next trouble is a new one.
    pub(super) fn reset(&mut self) {
        self.retries = 0;
    }
}

/// Less by up to a half, so that those who were cut off together do not come back together.
fn with_jitter(pause: Duration) -> Duration {
    let (high, _) = Uuid::new_v4().as_u64_pair();
    let sixteenths = u32::try_from(high >> 60).unwrap_or(0);
    pause - pause / 32 * sixteenths
}

/// Whether the same question may bring an answer in a moment.
pub(super) fn is_transient(error: &Error) -> bool {
    let for_now = matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::RateLimited
    );
    is_connection_lost(error) || (for_now && !was_blocked(error))
}

/// Whether the peer went silent, or away: it said nothing itself.
pub(super) fn is_connection_lost(error: &Error) -> bool {
    let ours = std::error::Error::source(error).is_some() && !was_blocked(error);
    ours && matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::DeadlineExceeded
    )
}

/// Whether the peer surely did nothing of what it was asked.
pub(super) fn was_not_executed(error: &Error) -> bool {
    (was_not_sent(error) && !was_blocked(error)) || error.kind() == ErrorKind::RateLimited
}

/// Whether the peer does not do this at all, in this way.
pub(super) fn is_unsupported(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnsupportedOperation | ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed
    )
}

/// A peer that took longer than it may.
pub(super) fn deadline_exceeded(limit: Duration) -> Error {
    Error::new(ErrorKind::DeadlineExceeded)
        .with_message(format!("the agent did not answer within {limit:?}"))
        .with_source("a budget of the client ran out")
}

impl Client {
    /// The client of the way that is in use.
    pub(super) fn active_client(&self) -> Cow<'_, Self> {
        match self.fallbacks.active() {
            Some(endpoint) => Cow::Owned(Self {
                endpoint: endpoint.clone(),
                ..self.clone()
            }),
            None => Cow::Borrowed(self),
        }
    }

    /// The client to try instead when a call was refused: of another version, if that one is not known there; of
    /// another place, if nobody is.
    pub(super) fn fallback_for(&self, refused: &Error) -> Option<Self> {
        if self.settings.interface.no_fallback || self.fallbacks.active().is_some() {
            return None;
        }
        let misunderstood = matches!(
            refused.kind(),
            ErrorKind::MethodNotFound | ErrorKind::VersionNotSupported
        );
        let endpoint = self.fallbacks.find(|endpoint| {
            (misunderstood && endpoint.version != self.endpoint.version)
                || (was_not_sent(refused) && endpoint.url != self.endpoint.url)
        })?;
        Some(Self {
            endpoint: endpoint.clone(),
            ..self.clone()
        })
    }

    /// What came of trying `other` instead: if it knows no better, nothing was gained.
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
