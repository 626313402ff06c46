//! Who calls, and what they may do.
//!
//! [`Access`] holds the ways in which callers prove who they are, each an [`Authenticator`], and the [`AccessRule`]s of what they need
//! for what. Whoever comes with a credential that is not good is refused, also where nobody has to bring one.

mod access;
mod access_rule;
mod api_keys;
#[cfg(feature = "tls")]
mod certificates;
mod credentials;
mod delegation;
mod failed_logins;
mod identity;
mod ip_key;
#[cfg(feature = "jwt")]
mod jwt;
mod key_file;
mod rate_limits;

/// For [`Authenticator`]s of one's own.
pub use async_trait::async_trait;

use crate::model::{Error, SecurityScheme};

pub use access::Access;
pub use access_rule::AccessRule;
pub use api_keys::{ApiKey, ApiKeys, KeyLocation};
#[cfg(feature = "tls")]
pub use certificates::Certificates;
pub use credentials::RequestCredentials;
pub(crate) use delegation::DelegationClaim;
pub use identity::Identity;
#[cfg(feature = "jwt")]
pub use jwt::{Algorithm, Jwt};
pub use key_file::KeyFile;
pub use rate_limits::CallerLimits;
pub(crate) use rate_limits::{CallLimiter, CallPermit, RateLimitKey, RateLimitStatus};

/// A way in which callers prove who they are.
///
/// ```
/// use attache::auth::async_trait;
/// use attache::auth::{AuthError, Authenticator, Identity, RequestCredentials, SchemeInfo};
///
/// /// A proxy in front of us has asked already, and nobody reaches us but through it.
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
    /// Says who calls; `None` if the request carries nothing of the kind that this one knows.
    ///
    /// # Errors
    /// It carries something, and it is not good, or nobody can tell now.
    async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> Result<Option<Identity>, AuthError>;

    /// What somebody of this name may do who is not here themselves: another server of ours calls for them. `None`: nobody of
    /// that name would be known in this way.
    fn find_identity(&self, _name: &str) -> Option<Identity> {
        None
    }

    /// How the card describes it. Any one of these suffices.
    fn schemes(&self) -> Vec<SchemeInfo>;
}

/// How a card and a refusal tell callers what to bring.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemeInfo {
    /// Its name in the card.
    pub name: String,
    /// What the card says of it.
    pub scheme: SecurityScheme,
    /// What a refusal says of it, in the words of `WWW-Authenticate`.
    pub challenge: String,
    /// Whether the scopes that rules need are scopes of this way, as those of OAuth are.
    pub has_scopes: bool,
}

/// Why nobody is known by what a request carries.
#[derive(Debug)]
#[non_exhaustive]
pub enum AuthError {
    /// It is not good. Why is nobody's business.
    InvalidCredential,
    /// It cannot be told now; the log has the cause.
    Unavailable(Error),
}
