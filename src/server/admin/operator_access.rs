//! Authentication of operators by key, with a lockout after failed logins.

use crate::auth::{ApiKeys, AuthError, Authenticator, FailedLogins, RequestCredentials};
use crate::model::Error;
use crate::telemetry::metrics;

/// Keys of operators, and the failed logins of each address.
pub(super) struct OperatorAccess {
    keys: ApiKeys,
    failed_logins: Option<FailedLogins>,
}

/// Result of an authentication.
pub(super) enum OperatorLogin {
    Authenticated,
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
            Ok(Some(_)) => OperatorLogin::Authenticated,
            Ok(None) => OperatorLogin::Missing,
            Err(AuthError::InvalidCredential | AuthError::Unavailable(_)) => {
                self.record_failure(credentials)
            }
        }
    }

    fn record_failure(&self, credentials: &RequestCredentials<'_>) -> OperatorLogin {
        let recorded = match &self.failed_logins {
            Some(failed_logins) => failed_logins.record_failure(credentials.client()),
            None => Ok(()),
        };
        match recorded {
            Ok(()) => {
                metrics::record_auth_failure("invalid");
                OperatorLogin::Invalid
            }
            Err(error) => {
                metrics::record_auth_failure("locked_out");
                OperatorLogin::LockedOut(error)
            }
        }
    }
}
