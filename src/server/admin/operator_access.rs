//! Authentication of operators by key, with a lockout after failed logins.

use std::net::IpAddr;

use super::operator::Operator;
use crate::auth::{ApiKeys, AuthError, Authenticator, FailedLogins, Identity, RequestCredentials};
use crate::model::{Error, Result};
use crate::telemetry::metrics;

/// Keys of operators, and the failed logins of each address.
pub(super) struct OperatorAccess {
    keys: ApiKeys,
    failed_logins: Option<FailedLogins>,
}

/// Result of an authentication.
pub(super) enum OperatorLogin {
    Authenticated(Operator),
    /// The request has no key.
    Missing,
    Invalid,
    /// The key is invalid, and there were too many others before it.
    LockedOut(Error),
}

impl OperatorAccess {
    /// Accepts `keys`. `max_failed_logins` is per minute and address; `None`: unlimited.
    pub(super) fn new(keys: ApiKeys, max_failed_logins: Option<u32>) -> Self {
        Self {
            keys,
            failed_logins: max_failed_logins.map(FailedLogins::new),
        }
    }

    /// Authenticates a request. A valid key is accepted even from an address that is locked out.
    pub(super) async fn authenticate(&self, credentials: &RequestCredentials<'_>) -> OperatorLogin {
        match self.keys.authenticate(credentials).await {
            Ok(Some(identity)) => OperatorLogin::Authenticated(Operator::with_key(&identity)),
            Ok(None) => OperatorLogin::Missing,
            Err(AuthError::InvalidCredential | AuthError::Unavailable(_)) => {
                self.record_failure(credentials)
            }
        }
    }

    fn record_failure(&self, credentials: &RequestCredentials<'_>) -> OperatorLogin {
        match self.record_sign_in_failure(credentials.client()) {
            Ok(()) => OperatorLogin::Invalid,
            Err(error) => OperatorLogin::LockedOut(error),
        }
    }

    /// Returns the identity of a key.
    pub(super) fn identify(&self, key: &str) -> Option<Identity> {
        self.keys.identify(key)
    }

    /// Counts a wrong key or link.
    ///
    /// # Errors
    /// Rate limited: there were too many from this address.
    pub(super) fn record_sign_in_failure(&self, client: IpAddr) -> Result<()> {
        let recorded = match &self.failed_logins {
            Some(failed_logins) => failed_logins.record_failure(client),
            None => Ok(()),
        };
        let reason = match &recorded {
            Ok(()) => "invalid",
            Err(_) => "locked_out",
        };
        metrics::record_auth_failure(reason);
        recorded
    }
}
