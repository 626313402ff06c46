//! Who calls, and what they may do.
//!
//! [`Access`] holds the ways in which callers prove who they are, each an [`Authenticator`], and the [`Rule`]s of what they need
//! for what. Whoever comes with a credential that is not good is refused, also where nobody has to bring one.

mod access;
mod allowance;
#[cfg(feature = "tls")]
mod certificates;
mod credentials;
mod guesses;
mod identity;
#[cfg(feature = "jwt")]
mod jwt;
mod key_file;
mod keys;
mod nodes;
mod rules;

/// For [`Authenticator`]s of one's own.
pub use async_trait::async_trait;

use crate::model::{Error, SecurityScheme};

pub use access::Access;
pub use allowance::Allowance;
pub(crate) use allowance::{Left, Meter, Spender, UnderWay};
#[cfg(feature = "tls")]
pub use certificates::Certificates;
pub use credentials::Credentials;
pub use identity::Identity;
#[cfg(feature = "jwt")]
pub use jwt::{Algorithm, Jwt};
pub use key_file::KeyFile;
pub use keys::{Key, KeyPlace, Keys};
pub(crate) use nodes::Word;
pub use rules::Rule;

/// A way in which callers prove who they are.
///
/// ```
/// use attache::auth::async_trait;
/// use attache::auth::{Authenticator, Credentials, Identity, Refused, Way};
///
/// /// A proxy in front of us has asked already, and nobody reaches us but through it.
/// struct AskedByProxy;
///
/// #[async_trait]
/// impl Authenticator for AskedByProxy {
///     async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Option<Identity>, Refused> {
///         Ok(credentials.header("x-user")?.map(|name| Identity::named(&format!("proxy:{name}"))))
///     }
///
///     fn ways(&self) -> Vec<Way> {
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
        credentials: &Credentials<'_>,
    ) -> Result<Option<Identity>, Refused>;

    /// What somebody of this name may do who is not here themselves: another server of ours calls for them. `None`: nobody of
    /// that name would be known in this way.
    fn known(&self, _name: &str) -> Option<Identity> {
        None
    }

    /// How the card describes it. Any one of these suffices.
    fn ways(&self) -> Vec<Way>;
}

/// How a card and a refusal tell callers what to bring.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
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
pub enum Refused {
    /// It is not good. Why is nobody's business.
    NotGood,
    /// It cannot be told now; the log has the cause.
    NotNow(Error),
}
