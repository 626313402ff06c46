//! The keys of an issuer: fetched when they are needed, kept for a while, fetched again when one is not among them.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::super::Refused;
use crate::egress::{CONNECT_TIMEOUT, ClientTls, Egress, Protocol, origin};
use crate::model::{Error, ErrorKind, Result};

/// How long keys are good before they are fetched again.
const MAX_AGE: Duration = Duration::from_secs(600);
/// How long they are used when the issuer does not answer.
const MAX_STALE: Duration = Duration::from_secs(24 * 3600);
/// How often the issuer is asked for a key that it may not have: anybody can make up a name.
const PAUSE: Duration = Duration::from_secs(5);
/// How long the issuer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much it may say, and how many keys it may have.
const MAX_BYTES: usize = 512 << 10;
const MAX_KEYS: usize = 128;

/// Where keys come from.
pub(super) enum Source {
    /// A key set.
    Url(Uri),
    /// What an issuer says of itself, which says where the key set is.
    Discovery { url: Uri, issuer: String },
}

pub(super) struct KeySet {
    source: Source,
    source_text: String,
    egress: Egress,
    pub(super) pause: Duration,
    kept: RwLock<Option<Arc<Kept>>>,
    /// Held by the one who asks the issuer; when it was asked last.
    asking: Mutex<Option<Instant>>,
}

struct Kept {
    keys: Vec<Jwk>,
    since: Instant,
}

#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

/// What of a set we know; keys of other kinds may be among them.
#[derive(Deserialize)]
struct Keys {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    pub(super) fn new(source: Source) -> Self {
        let (Source::Url(url) | Source::Discovery { url, .. }) = &source;
        // The operator names the issuer; where its keys are, the issuer says.
        let egress = Egress::led(&ClientTls::new(), CONNECT_TIMEOUT, url, &[]);
        let source_text = url.to_string();
        Self { source, source_text, egress, pause: PAUSE, kept: RwLock::default(), asking: Mutex::default() }
    }

    pub(super) fn source(&self) -> &str {
        &self.source_text
    }

    /// The key of this name for this algorithm; without a name, the only one there is.
    ///
    /// # Errors
    /// Not now: the issuer does not answer, and nothing of it is known.
    pub(super) async fn find(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> std::result::Result<Option<DecodingKey>, Refused> {
        let kept = self.kept();
        let age = kept.as_ref().map(|kept| kept.since.elapsed());
        let found = kept.and_then(|kept| kept.find(kid, algorithm));
        if found.is_some() && age.is_some_and(|age| age < MAX_AGE) {
            return Ok(found);
        }
        match (self.fetch().await, age) {
            (Ok(kept), _) => Ok(kept.find(kid, algorithm)),
            (Err(_), Some(age)) if age < MAX_STALE => Ok(found),
            (Err(error), _) => Err(Refused::NotNow(error)),
        }
    }

    fn kept(&self) -> Option<Arc<Kept>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys as the issuer has them now, or had them a moment ago. One asks, the others wait for what it hears.
    async fn fetch(&self) -> Result<Arc<Kept>> {
        let mut asked = self.asking.lock().await;
        if asked.is_some_and(|asked| asked.elapsed() < self.pause) {
            return self.kept().ok_or_else(silent);
        }
        *asked = Some(Instant::now());
        let answered = timeout(PATIENCE, self.ask()).await.unwrap_or_else(|_| Err(silent()));
        let keys = answered.inspect_err(|error| {
            let (Source::Url(url) | Source::Discovery { url, .. }) = &self.source;
            let cause = error as &dyn std::error::Error;
            tracing::warn!(issuer = origin(url), cause, "the issuer does not answer");
        })?;
        let kept = Arc::new(Kept { keys, since: Instant::now() });
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(kept.clone());
        Ok(kept)
    }

    async fn ask(&self) -> Result<Vec<Jwk>> {
        let keys: Keys = match &self.source {
            Source::Url(url) => self.get(url.clone()).await?,
            Source::Discovery { url, issuer } => {
                let said: Configuration = self.get(url.clone()).await?;
                // Who says that it is somebody else speaks for somebody else.
                if said.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
                    return Err(wrong());
                }
                self.get(super::parsed(&said.jwks_uri)?).await?
            }
        };
        let keys = keys.keys.into_iter().take(MAX_KEYS);
        Ok(keys.filter_map(|key| serde_json::from_value(key).ok()).collect())
    }

    async fn get<T: DeserializeOwned>(&self, url: Uri) -> Result<T> {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = url;
        let response = self.egress.send(request, Protocol::Http1).await?;
        if response.status() != StatusCode::OK {
            return Err(wrong());
        }
        let body = response.into_body().read(MAX_BYTES).await?;
        serde_json::from_slice(&body).map_err(|_| wrong())
    }
}

impl Kept {
    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let mut fit = self.keys.iter().filter(|key| fits(key, algorithm));
        let key = match kid {
            Some(kid) => fit.find(|key| key.common.key_id.as_deref() == Some(kid))?,
            None => fit.next().filter(|_| fit.next().is_none())?,
        };
        DecodingKey::from_jwk(key).ok()
    }
}

/// Whether a key may verify this algorithm: of its kind, for signatures, and for this one if it names one.
fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    use Algorithm as A;
    let kind = match &key.algorithm {
        AlgorithmParameters::RSA(_) => {
            matches!(algorithm, A::RS256 | A::RS384 | A::RS512 | A::PS256 | A::PS384 | A::PS512)
        }
        AlgorithmParameters::EllipticCurve(_) => matches!(algorithm, A::ES256 | A::ES384),
        AlgorithmParameters::OctetKeyPair(_) => algorithm == A::EdDSA,
        // A secret in a set that everybody can read is no secret.
        _ => false,
    };
    let signs = !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption));
    kind && signs && key.common.key_algorithm.is_none_or(|named| named == algorithm.into())
}

fn silent() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the issuer does not answer")
}

fn wrong() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the issuer answers with something else")
}
