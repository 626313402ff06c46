//! Lifetime of a credential. Streams that were opened with a credential end with it.

use std::future::pending;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::api_key::now_ms;
use crate::model::{Error, ErrorKind};

/// Revocation of a credential. Clones refer to the same credential.
#[derive(Debug, Clone, Default)]
pub struct Revocation(CancellationToken);

impl Revocation {
    /// Creates the revocation of a credential that is valid.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Revokes the credential. Streams that were opened with it end.
    pub fn revoke(&self) {
        self.0.cancel();
    }

    /// Whether the credential was revoked.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Time for which a credential is valid.
#[derive(Debug, Clone, Default)]
pub(crate) struct CredentialLifetime {
    /// `None`: the credential cannot be revoked.
    pub(super) revocation: Option<Revocation>,
    /// Expiry in Unix milliseconds; `None`: never.
    pub(super) expires_ms: Option<i64>,
}

impl CredentialLifetime {
    /// Whether the credential can end.
    pub(crate) fn is_limited(&self) -> bool {
        self.revocation.is_some() || self.expires_ms.is_some()
    }

    /// Whether the credential was revoked or has expired.
    pub(crate) fn has_ended(&self) -> bool {
        let is_revoked = self.revocation.as_ref().is_some_and(Revocation::is_revoked);
        is_revoked || self.expires_ms.is_some_and(|end| end <= now_ms())
    }

    /// Waits for the end of the credential, and returns the error of a stream that ends with it.
    pub(crate) async fn wait_ended(self) -> Error {
        let revoked = async {
            match &self.revocation {
                Some(Revocation(token)) => token.cancelled().await,
                None => pending().await,
            }
        };
        let expired = async {
            match self.expires_ms {
                Some(at) => tokio::time::sleep(time_until(at)).await,
                None => pending().await,
            }
        };
        let reason = tokio::select! {
            biased;
            () = revoked => "the credential was revoked",
            () = expired => "the credential has expired; subscribe again with a new one",
        };
        Error::new(ErrorKind::Unauthenticated).with_message(reason)
    }
}

fn time_until(unix_ms: i64) -> Duration {
    let left = unix_ms.saturating_sub(now_ms());
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
}
