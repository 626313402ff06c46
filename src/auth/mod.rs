//! Authentication and authorization of callers.
//!
//! [`Access`] combines [`Authenticator`]s (API keys, JWT verification, client certificates), [`AccessRule`]s, rate limits
//! ([`CallerLimits`]), the lockout after failed logins, and delegation by trusted servers. An invalid credential is refused even
//! where anonymous callers are allowed.

mod access;
mod access_rule;
mod api_key;
mod api_keys;
#[cfg(feature = "tls")]
mod certificates;
mod credential_lifetime;
mod credentials;
mod delegation;
mod failed_logins;
mod identity;
mod ip_key;
#[cfg(feature = "jwt")]
mod jwt;
mod key_file;
mod key_location;
mod operator_role;
mod rate_limits;
#[cfg(feature = "jws")]
mod trusted_delegators;

/// Attribute for implementations of [`Authenticator`].
pub use async_trait::async_trait;

use crate::model::{Error, SecurityScheme};

pub use access::Access;
pub use access_rule::AccessRule;
pub use api_key::ApiKey;
pub use api_keys::ApiKeys;
#[cfg(feature = "tls")]
pub use certificates::Certificates;
pub(crate) use credential_lifetime::CredentialLifetime;
pub use credential_lifetime::Revocation;
pub use credentials::RequestCredentials;
pub(crate) use delegation::DelegationClaim;
pub(crate) use failed_logins::FailedLogins;
pub use identity::Identity;
pub(crate) use ip_key::ip_key;
#[cfg(feature = "jwt")]
pub use jwt::{Algorithm, Jwt};
pub use key_file::KeyFile;
pub use key_location::KeyLocation;
pub use operator_role::OperatorRole;
pub use rate_limits::CallerLimits;
pub(crate) use rate_limits::{CallLimiter, CallPermit, RateLimitKey, RateLimitStatus};

/// Verifies one kind of credential.
///
/// ```
/// use attache::auth::async_trait;
/// use attache::auth::{AuthError, Authenticator, Identity, RequestCredentials, SchemeInfo};
///
/// /// Trusts the user name that an authenticating reverse proxy adds.
/// struct ProxyAuthenticator;
///
/// #[async_trait]
/// impl Authenticator for ProxyAuthenticator {
///     async fn authenticate(&self, credentials: &RequestCredentials<'_>) -> Result<Option<Identity>, AuthError> {
///         Ok(credentials.header("x-user")?.map(|name| Identity::named(&format!("proxy:{name}"))))
///     }
///
///     fn schemes(&self) -> Vec<SchemeInfo> {
///         Vec::new()
///     }
/// }
/// ```
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Identifies the caller; `None` if the request has no credential of this kind.
    ///
    /// # Errors
    /// The credential is invalid, or cannot be verified at the moment.
    async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> Result<Option<Identity>, AuthError>;

    /// Returns the identity of a caller by name, without a credential. Used when a trusted server calls on behalf of others.
    ///
    /// `None` if this authenticator does not know the name.
    fn find_identity(&self, _name: &str) -> Option<Identity> {
        None
    }

    /// Returns whether a caller has a credential, even an expired one. The webhooks of a caller without one end.
    ///
    /// `None` if this authenticator does not store the credentials of this caller.
    fn has_credential(&self, _name: &str) -> Option<bool> {
        None
    }

    /// Security schemes for the agent card. Satisfying any one of them suffices.
    fn schemes(&self) -> Vec<SchemeInfo>;
}

/// Description of a security scheme, for the agent card and for `401` responses.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemeInfo {
    /// Name in the card.
    pub name: String,
    /// Declaration in the card.
    pub scheme: SecurityScheme,
    /// Challenge in `WWW-Authenticate`.
    pub challenge: String,
    /// Whether the scopes of rules are scopes of this scheme, as in OAuth.
    pub has_scopes: bool,
}

/// Authentication error.
#[derive(Debug)]
#[non_exhaustive]
pub enum AuthError {
    /// The credential is invalid. The caller does not learn why.
    InvalidCredential,
    /// The credential cannot be verified at the moment. The cause is logged.
    Unavailable(Error),
}
