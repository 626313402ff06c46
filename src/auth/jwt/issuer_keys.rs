//! The keys of an issuer: fetched when they are needed, kept for a while, fetched again when one is not among them. Keys that
//! are only old are good meanwhile: an issuer that hangs holds up nobody whose key is known.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::super::AuthError;
use crate::egress::{CONNECT_TIMEOUT, ClientTls, Egress, Protocol, origin};
use crate::model::{Error, ErrorKind, Result};

/// How long keys are good before they are fetched again.
const MAX_AGE: Duration = Duration::from_secs(600);
/// How long they are used when the issuer does not answer.
const MAX_STALE: Duration = Duration::from_secs(24 * 3600);
/// How often the issuer is asked for a key that it may not have: anybody can make up a name.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// How long the issuer may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How much it may say, and how many keys it may have.
const MAX_RESPONSE_BYTES: usize = 512 << 10;
const MAX_KEYS: usize = 128;

/// Where keys come from.
pub(super) enum KeySource {
    /// A key set.
    Url(Uri),
    /// What an issuer says of itself, which says where the key set is.
    Discovery { url: Uri, issuer: String },
}

pub(super) struct IssuerKeys {
    source_text: String,
    pub(super) min_fetch_interval: Duration,
    issuer: Arc<IssuerClient>,
    /// Held by the one who asks the issuer; when it was asked last, and had answered or not.
    last_fetch: Arc<Mutex<Option<Instant>>>,
    /// Whoever asks is fetched out, also when nobody waits for that any more; over when this is dropped.
    tasks: TaskTracker,
    stop: CancellationToken,
    _stops: DropGuard,
}

struct IssuerClient {
    source: KeySource,
    egress: Egress,
    cached: RwLock<Option<Arc<CachedKeys>>>,
}

type FetchGuard = OwnedMutexGuard<Option<Instant>>;

struct CachedKeys {
    keys: Vec<Jwk>,
    since: Instant,
}

#[derive(Deserialize)]
struct OpenIdConfiguration {
    issuer: String,
    jwks_uri: String,
}

/// What of a set we know; keys of other kinds may be among them.
#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

impl IssuerKeys {
    pub(super) fn new(source: KeySource) -> Self {
        let (KeySource::Url(url) | KeySource::Discovery { url, .. }) = &source;
        // The operator names the issuer; where its keys are, the issuer says.
        let egress = Egress::following_document(&ClientTls::new(), CONNECT_TIMEOUT, url, &[]);
        let source_text = url.to_string();
        let stop = CancellationToken::new();
        Self {
            source_text,
            min_fetch_interval: MIN_FETCH_INTERVAL,
            issuer: Arc::new(IssuerClient {
                source,
                egress,
                cached: RwLock::default(),
            }),
            last_fetch: Arc::default(),
            tasks: TaskTracker::new(),
            _stops: stop.clone().drop_guard(),
            stop,
        }
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
    ) -> std::result::Result<Option<DecodingKey>, AuthError> {
        let cached = self.issuer.cached();
        if let Some(cached) = &cached
            && let Some(found) = cached.find(kid, algorithm)
        {
            if cached.since.elapsed() >= MAX_AGE {
                self.refresh_in_background();
            }
            return Ok(Some(found));
        }
        match (self.fetch_latest().await, cached) {
            (Ok(cached), _) => Ok(cached.find(kid, algorithm)),
            // The keys are known, and this is none of them.
            (Err(_), Some(_)) => Ok(None),
            (Err(error), None) => Err(AuthError::Unavailable(error)),
        }
    }

    /// Asks the issuer beside what is served, unless somebody does, or just did.
    fn refresh_in_background(&self) {
        if let Ok(last_fetch) = self.last_fetch.clone().try_lock_owned()
            && !self.was_fetched_recently(&last_fetch)
        {
            drop(self.spawn_fetch(last_fetch));
        }
    }

    /// The keys as the issuer has them now, or had them a moment ago. One asks, the others wait for what it hears.
    async fn fetch_latest(&self) -> Result<Arc<CachedKeys>> {
        let last_fetch = self.last_fetch.clone().lock_owned().await;
        if self.was_fetched_recently(&last_fetch) {
            return self.issuer.cached().ok_or_else(issuer_unavailable);
        }
        self.spawn_fetch(last_fetch)
            .await
            .ok()
            .flatten()
            .unwrap_or_else(|| Err(issuer_unavailable()))
    }

    fn was_fetched_recently(&self, last_fetch: &FetchGuard) -> bool {
        last_fetch.is_some_and(|at| at.elapsed() < self.min_fetch_interval)
    }

    fn spawn_fetch(
        &self,
        mut last_fetch: FetchGuard,
    ) -> JoinHandle<Option<Result<Arc<CachedKeys>>>> {
        let issuer = self.issuer.clone();
        self.tasks
            .spawn(self.stop.clone().run_until_cancelled_owned(async move {
                let fetched = timeout(FETCH_TIMEOUT, issuer.fetch_keys())
                    .await
                    .unwrap_or_else(|_| Err(issuer_unavailable()));
                // Only now: those who have waited for it must not ask one after the other.
                *last_fetch = Some(Instant::now());
                if let Err(error) = &fetched {
                    let (KeySource::Url(url) | KeySource::Discovery { url, .. }) = &issuer.source;
                    let cause = error as &dyn std::error::Error;
                    tracing::warn!(issuer = origin(url), cause, "the issuer does not answer");
                }
                fetched.map(|keys| issuer.cache_keys(keys))
            }))
    }
}

impl IssuerClient {
    /// The keys that are good, be they old.
    fn cached(&self) -> Option<Arc<CachedKeys>> {
        let cached = self
            .cached
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        cached.filter(|cached| cached.since.elapsed() < MAX_STALE)
    }

    fn cache_keys(&self, keys: Vec<Jwk>) -> Arc<CachedKeys> {
        let cached = Arc::new(CachedKeys {
            keys,
            since: Instant::now(),
        });
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = Some(cached.clone());
        cached
    }

    async fn fetch_keys(&self) -> Result<Vec<Jwk>> {
        let keys: JwkSet = match &self.source {
            KeySource::Url(url) => self.get_json(url.clone()).await?,
            KeySource::Discovery { url, issuer } => {
                let configuration: OpenIdConfiguration = self.get_json(url.clone()).await?;
                // Who says that it is somebody else speaks for somebody else.
                if configuration.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
                    return Err(invalid_issuer_response());
                }
                self.get_json(super::parse_url(&configuration.jwks_uri)?)
                    .await?
            }
        };
        let keys = keys.keys.into_iter().take(MAX_KEYS);
        Ok(keys
            .filter_map(|key| serde_json::from_value(key).ok())
            .collect())
    }

    async fn get_json<T: DeserializeOwned>(&self, url: Uri) -> Result<T> {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = url;
        let response = self.egress.send(request, Protocol::Http1).await?;
        if response.status() != StatusCode::OK {
            return Err(invalid_issuer_response());
        }
        let body = response.into_body().read(MAX_RESPONSE_BYTES).await?;
        serde_json::from_slice(&body).map_err(|_| invalid_issuer_response())
    }
}

impl CachedKeys {
    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let mut candidates = self.keys.iter().filter(|key| can_verify(key, algorithm));
        let key = match kid {
            Some(kid) => candidates.find(|key| key.common.key_id.as_deref() == Some(kid))?,
            None => candidates.next().filter(|_| candidates.next().is_none())?,
        };
        DecodingKey::from_jwk(key).ok()
    }
}

/// Whether a key may verify this algorithm: of its kind, for signatures, and for this one if it names one.
fn can_verify(key: &Jwk, algorithm: Algorithm) -> bool {
    use Algorithm as A;
    let kind = match &key.algorithm {
        AlgorithmParameters::RSA(_) => {
            matches!(
                algorithm,
                A::RS256 | A::RS384 | A::RS512 | A::PS256 | A::PS384 | A::PS512
            )
        }
        AlgorithmParameters::EllipticCurve(_) => matches!(algorithm, A::ES256 | A::ES384),
        AlgorithmParameters::OctetKeyPair(_) => algorithm == A::EdDSA,
        // A secret in a set that everybody can read is no secret.
        _ => false,
    };
    let is_for_signing = !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption));
    kind && is_for_signing
        && key
            .common
            .key_algorithm
            .is_none_or(|named| named == algorithm.into())
}

fn issuer_unavailable() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the issuer does not answer")
}

fn invalid_issuer_response() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the issuer answers with something else")
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    /// The public half of a key of P-256 (RFC 7517, A.1).
    const KEY: &str = r#"{"kty": "EC", "crv": "P-256", "kid": "one",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}"#;

    /// An issuer that takes calls and answers none.
    async fn hanging_issuer() -> (TcpListener, Arc<IssuerKeys>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        (listener, Arc::new(IssuerKeys::new(KeySource::Url(url))))
    }

    async fn find_concurrently(
        keys: &Arc<IssuerKeys>,
        kids: impl IntoIterator<Item = String>,
    ) -> Vec<bool> {
        let mut calls = JoinSet::new();
        for kid in kids {
            let keys = keys.clone();
            calls.spawn(async move { keys.find(Some(&kid), Algorithm::ES256).await });
        }
        calls
            .join_all()
            .await
            .into_iter()
            .map(|found| matches!(found, Ok(Some(_))))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn r48_an_issuer_that_hangs_is_waited_for_once() {
        let (_listener, keys) = hanging_issuer().await;
        let began = Instant::now();
        let found = find_concurrently(&keys, (0..20).map(|number| format!("k-{number}"))).await;
        assert!(found.iter().all(|found| !found));
        assert!(
            began.elapsed() < FETCH_TIMEOUT + Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn r48_old_keys_serve_at_once_while_the_issuer_hangs() {
        let (listener, keys) = hanging_issuer().await;
        keys.issuer
            .cache_keys(vec![serde_json::from_str(KEY).unwrap()]);
        tokio::time::advance(MAX_AGE).await;
        // Somebody makes up a name and waits; those whose key is known do not.
        let waiting = keys.last_fetch.clone().lock_owned().await;
        let began = Instant::now();
        assert_eq!(
            find_concurrently(&keys, vec!["one".to_owned(); 5]).await,
            [true; 5]
        );
        drop(waiting);
        assert_eq!(
            find_concurrently(&keys, vec!["one".to_owned(); 5]).await,
            [true; 5]
        );
        assert_eq!(began.elapsed(), Duration::ZERO);
        // And the issuer is asked beside that.
        timeout(FETCH_TIMEOUT, listener.accept())
            .await
            .unwrap()
            .unwrap();
        tokio::time::advance(MAX_STALE).await;
        assert_eq!(
            find_concurrently(&keys, vec!["one".to_owned()]).await,
            [false],
            "too old to be believed"
        );
    }
}
