//! Retry rules: exponential backoff with jitter, the classification of errors, and the fallback to another endpoint.

use std::borrow::Cow;
use std::time::Duration;

use uuid::Uuid;

use super::Client;
use super::endpoint::Endpoint;
use super::settings::RetryPolicy;
use crate::egress::{was_blocked, was_not_sent};
use crate::model::{Error, ErrorKind, Result};
use crate::wire::jsonrpc::is_missing_endpoint;

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
}

/// Search for an endpoint that accepts a request, after another one refused it.
pub(super) struct FallbackSearch {
    /// Client of the endpoint that was tried last.
    client: Client,
    tried: Vec<Endpoint>,
    first_error: Option<Error>,
}

impl FallbackSearch {
    /// Starts the search with the client that was refused.
    pub(super) fn new(client: &Client) -> Self {
        Self {
            tried: vec![client.endpoint.clone()],
            client: client.clone(),
            first_error: None,
        }
    }

    /// Whether an error allows the search to go on: the peer certainly did not execute the request.
    pub(super) fn is_refusal(error: &Error) -> bool {
        is_unsupported(error)
            || was_not_sent(error)
            || error.kind() == ErrorKind::VersionNotSupported
    }

    /// Returns a client of the next endpoint: of another version if the peer does not know this one, at another URL if
    /// the peer is unreachable or has no endpoint there.
    ///
    /// # Errors
    /// The first error of the search, if no endpoint is left.
    pub(super) fn next(&mut self, error: Error) -> Result<Client> {
        let Some(endpoint) = self.next_endpoint(&error).cloned() else {
            return Err(self.first_error.take().unwrap_or(error));
        };
        self.first_error.get_or_insert(error);
        self.tried.push(endpoint.clone());
        self.client.endpoint = endpoint;
        Ok(self.client.clone())
    }

    fn next_endpoint(&self, error: &Error) -> Option<&Endpoint> {
        let fallbacks = &self.client.fallbacks;
        if self.client.settings.interface.no_fallback || fallbacks.active().is_some() {
            return None;
        }
        let current = &self.client.endpoint;
        let is_missing = is_missing_endpoint(error);
        let is_version_unknown = matches!(
            error.kind(),
            ErrorKind::MethodNotFound | ErrorKind::VersionNotSupported
        );
        let declared = fallbacks.find_declared(|endpoint| {
            let is_other_version = endpoint.version != current.version;
            let is_other_url = endpoint.url != current.url;
            !self.tried.contains(endpoint)
                && ((is_version_unknown && is_other_version)
                    || ((is_missing || was_not_sent(error)) && is_other_url))
        });
        let guessed = || fallbacks.find_guessed(|endpoint| !self.tried.contains(endpoint));
        declared.or_else(|| is_missing.then(guessed).flatten())
    }
}
