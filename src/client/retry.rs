//! What may be tried again, how, and what to fall back on.

use std::borrow::Cow;
use std::time::Duration;

use uuid::Uuid;

use super::Client;
use super::settings::Retries;
use crate::egress::{never_arrived, was_refused};
use crate::model::{Error, ErrorKind, Result};

/// Pauses between tries.
pub(super) struct Backoff {
    retries: Retries,
    tried: u32,
}

impl Backoff {
    pub(super) fn new(retries: &Retries) -> Self {
        Self {
            retries: retries.clone(),
            tried: 0,
        }
    }

    /// How long to wait before the next try; `None` if it was tried often enough, or the peer asks for more patience
    /// than we have.
    pub(super) fn next(&mut self, error: &Error) -> Option<Duration> {
        let asked = error.retry_after();
        if self.tried >= self.retries.attempts
            || asked.is_some_and(|asked| asked > self.retries.longest)
        {
            return None;
        }
        let doubled = self
            .retries
            .first
            .saturating_mul(1 << self.tried.min(16))
            .min(self.retries.longest);
        self.tried += 1;
        Some(asked.unwrap_or_else(|| less_by_chance(doubled)))
    }

    /// It went well: the next trouble is a new one.
    pub(super) fn reset(&mut self) {
        self.tried = 0;
    }
}

/// Less by up to a half, so that those who were cut off together do not come back together.
fn less_by_chance(pause: Duration) -> Duration {
    let (high, _) = Uuid::new_v4().as_u64_pair();
    let sixteenths = u32::try_from(high >> 60).unwrap_or(0);
    pause - pause / 32 * sixteenths
}

/// Whether the same question may bring an answer in a moment.
pub(super) fn may_pass(error: &Error) -> bool {
    let for_now = matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::RateLimited
    );
    is_lost(error) || (for_now && !was_refused(error))
}

/// Whether the peer went silent, or away: it said nothing itself.
pub(super) fn is_lost(error: &Error) -> bool {
    let ours = std::error::Error::source(error).is_some() && !was_refused(error);
    ours && matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::DeadlineExceeded
    )
}

/// Whether the peer surely did nothing of what it was asked.
pub(super) fn surely_undone(error: &Error) -> bool {
    (never_arrived(error) && !was_refused(error)) || error.kind() == ErrorKind::RateLimited
}

/// Whether the peer does not do this at all, in this way.
pub(super) fn is_unknown(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnsupportedOperation | ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed
    )
}

/// A peer that took longer than it may.
pub(super) fn late(limit: Duration) -> Error {
    Error::new(ErrorKind::DeadlineExceeded)
        .with_message(format!("the agent did not answer within {limit:?}"))
        .with_source("a budget of the client ran out")
}

impl Client {
    /// The client of the way that is in use.
    pub(super) fn current(&self) -> Cow<'_, Self> {
        match self.others.taken() {
            Some(way) => Cow::Owned(Self {
                way: way.clone(),
                ..self.clone()
            }),
            None => Cow::Borrowed(self),
        }
    }

    /// The client to try instead when a call was refused: of another version, if that one is not known there; of
    /// another place, if nobody is.
    pub(super) fn instead(&self, refused: &Error) -> Option<Self> {
        if self.settings.choice.no_fallback || self.others.taken().is_some() {
            return None;
        }
        let misunderstood = matches!(
            refused.kind(),
            ErrorKind::MethodNotFound | ErrorKind::VersionNotSupported
        );
        let way = self.others.find(|way| {
            (misunderstood && way.version != self.way.version)
                || (never_arrived(refused) && way.url != self.way.url)
        })?;
        Some(Self {
            way: way.clone(),
            ..self.clone()
        })
    }

    /// What came of trying `other` instead: if it knows no better, nothing was gained.
    pub(super) fn settle<T>(&self, other: &Self, refused: Error, answer: Result<T>) -> Result<T> {
        match answer {
            Err(error) if is_unknown(&error) || never_arrived(&error) => Err(refused),
            answer => {
                self.others.take(&other.way);
                answer
            }
        }
    }
}
