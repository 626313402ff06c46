//! Sets of public keys (JWK sets, RFC 7517).

#[cfg(feature = "client")]
use std::time::Duration;

#[cfg(feature = "client")]
use bytes::Bytes;
#[cfg(feature = "client")]
use http::header::{ACCEPT, HeaderValue};
#[cfg(feature = "client")]
use http::{Request, Uri};
use serde_json::Value;
#[cfg(feature = "client")]
use tokio::time::timeout;

use super::public_key::PublicKey;
#[cfg(feature = "client")]
use crate::egress::{Egress, Protocol};
#[cfg(feature = "client")]
use crate::model::ErrorKind;
use crate::model::{Error, Result};

/// Maximum number of keys in a set.
const MAX_KEYS: usize = 100;
/// Largest key set that is fetched.
#[cfg(feature = "client")]
const MAX_KEY_SET_BYTES: usize = 256 << 10;
#[cfg(feature = "client")]
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Public keys (RFC 7517) that verify signatures.
///
/// Keys of unknown types, symmetric keys, revoked keys and keys for encryption are left out. A key past its `exp` is not used.
#[derive(Debug, Clone, Default)]
pub struct KeySet(Vec<PublicKey>);

impl KeySet {
    /// Parses a key set, `{"keys": […]}`, or a single key.
    ///
    /// # Errors
    /// Invalid parameters: the document is neither, or has more than 100 keys.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let invalid = || Error::invalid("keys", "must be a JSON Web Key Set of at most 100 keys");
        let value: Value = serde_json::from_slice(json).map_err(|_| invalid())?;
        let keys = match value.get("keys") {
            Some(Value::Array(keys)) => keys.clone(),
            None if value.get("kty").is_some() => vec![value],
            _ => return Err(invalid()),
        };
        if keys.len() > MAX_KEYS {
            return Err(invalid());
        }
        Ok(Self(
            keys.into_iter().filter_map(PublicKey::parse).collect(),
        ))
    }

    /// Fetches the key set at a trusted URL. Redirects are not followed.
    ///
    /// # Errors
    /// The connection fails, the set is larger than 256 KiB or invalid, or the fetch takes longer than 10 seconds.
    #[cfg(feature = "client")]
    pub async fn fetch(url: &str) -> Result<Self> {
        let url: Uri = url
            .parse()
            .map_err(|_| Error::invalid("url", "must be the URL of a key set"))?;
        Self::fetch_with(&Egress::trusted(), url).await
    }

    #[cfg(feature = "client")]
    pub(crate) async fn fetch_with(egress: &Egress, url: Uri) -> Result<Self> {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = url;
        let accept = HeaderValue::from_static("application/jwk-set+json, application/json");
        request.headers_mut().insert(ACCEPT, accept);
        let fetching = async {
            let response = egress.send(request, Protocol::Http1).await?;
            let status = response.status();
            if !status.is_success() {
                return Err(Error::new(ErrorKind::Unavailable)
                    .with_message(format!("the key set request returned HTTP status {status}")));
            }
            Self::parse(&response.into_body().read(MAX_KEY_SET_BYTES).await?)
        };
        timeout(FETCH_TIMEOUT, fetching)
            .await
            .map_err(|_| ErrorKind::DeadlineExceeded)?
    }

    /// Adds the keys of another set.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether the set has no usable key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keys with this id that have not expired.
    pub(super) fn find<'a>(&'a self, kid: &'a str) -> impl Iterator<Item = &'a PublicKey> {
        let now = jiff::Timestamp::now().as_second();
        self.0
            .iter()
            .filter(move |key| key.kid == kid && key.is_valid_at(now))
    }
}
