//! Cache of an issuer's public keys.
//!
//! Keys are fetched on first use, after [`MAX_AGE`], and when a token names an unknown key. Stale keys stay valid while a
//! background fetch runs, so that an issuer that hangs does not delay callers with a known key (R48). At most one fetch runs at a
//! time, and at most one per [`MIN_FETCH_INTERVAL`].

use std::sync::{Arc, RwLock};
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
use crate::rt::{read_lock, write_lock};

/// Age after which keys are refreshed.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Age up to which keys are used if they cannot be refreshed.
const MAX_STALE: Duration = Duration::from_secs(24 * 3600);
/// Minimum interval between fetches. Bounds the load that tokens with invented key ids cause.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest accepted response.
const MAX_RESPONSE_BYTES: usize = 512 << 10;
/// Maximum number of keys; others are ignored.
const MAX_KEYS: usize = 128;

/// Source of the keys.
pub(super) enum KeySource {
    /// URL of a JWK set.
    Url(Uri),
    /// OpenID Connect discovery document, which names the JWK set.
    Discovery { url: Uri, issuer: String },
}

/// Public keys of one issuer.
pub(super) struct IssuerKeys {
    source_text: String,
    pub(super) min_fetch_interval: Duration,
    issuer: Arc<IssuerClient>,
    /// Time of the last fetch, successful or not. Locked during a fetch, which makes fetches single-flight.
    last_fetch: Arc<Mutex<Option<Instant>>>,
    /// Running fetches. They continue when the waiting call is dropped, and are cancelled with this cache.
    tasks: TaskTracker,
    stop: CancellationToken,
    _cancel_on_drop: DropGuard,
}

/// Fetches and caches the keys.
struct IssuerClient {
    source: KeySource,
    egress: Egress,
    cached: RwLock<Option<Arc<CachedKeys>>>,
}

/// Exclusive right to fetch.
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

/// A JWK set. Each key is decoded separately, so that unknown key types are skipped.
#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

impl IssuerKeys {
    pub(super) fn new(source: KeySource) -> Self {
        let (KeySource::Url(url) | KeySource::Discovery { url, .. }) = &source;
        // The operator configures the issuer; the issuer's document names the URL of the keys.
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
            _cancel_on_drop: stop.clone().drop_guard(),
            stop,
        }
    }

    pub(super) fn source(&self) -> &str {
        &self.source_text
    }

    /// Finds the key with this id for this algorithm. Without an id, the only suitable key.
    ///
    /// # Errors
    /// Unavailable: no keys are cached and they cannot be fetched.
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
            // Other keys of the issuer are cached, so the token's key is treated as unknown.
            (Err(_), Some(_)) => Ok(None),
            (Err(error), None) => Err(AuthError::Unavailable(error)),
        }
    }

    /// Fetches the keys in the background, unless a fetch is running or was made recently.
    fn refresh_in_background(&self) {
        if let Ok(last_fetch) = self.last_fetch.clone().try_lock_owned()
            && !self.was_fetched_recently(&last_fetch)
        {
            drop(self.spawn_fetch(last_fetch));
        }
    }

    /// Fetches the keys, or returns those of a recent fetch. Concurrent calls wait for one fetch.
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
                // Set at the end: calls that waited for this fetch must not each start another.
                *last_fetch = Some(Instant::now());
                if let Err(error) = &fetched {
                    let (KeySource::Url(url) | KeySource::Discovery { url, .. }) = &issuer.source;
                    let cause = error as &dyn std::error::Error;
                    tracing::warn!(
                        issuer = origin(url),
                        cause,
                        "cannot fetch the keys of the token issuer"
                    );
                }
                fetched.map(|keys| issuer.cache_keys(keys))
            }))
    }
}

impl IssuerClient {
    /// Cached keys, unless they are older than [`MAX_STALE`].
    fn cached(&self) -> Option<Arc<CachedKeys>> {
        let cached = read_lock(&self.cached).clone();
        cached.filter(|cached| cached.since.elapsed() < MAX_STALE)
    }

    fn cache_keys(&self, keys: Vec<Jwk>) -> Arc<CachedKeys> {
        let cached = Arc::new(CachedKeys {
            keys,
            since: Instant::now(),
        });
        *write_lock(&self.cached) = Some(cached.clone());
        cached
    }

    async fn fetch_keys(&self) -> Result<Vec<Jwk>> {
        let keys: JwkSet = match &self.source {
            KeySource::Url(url) => self.get_json(url.clone()).await?,
            KeySource::Discovery { url, issuer } => {
                let configuration: OpenIdConfiguration = self.get_json(url.clone()).await?;
                // OpenID Connect Discovery 4.3: the document must name the issuer that was asked for.
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

/// Whether a key may verify this algorithm: key type, use and declared algorithm match.
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
        // Symmetric keys in a public set are not secret.
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
    Error::new(ErrorKind::Unavailable).with_message("the token issuer does not respond")
}

fn invalid_issuer_response() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the token issuer returned an invalid response")
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    /// A P-256 public key (RFC 7517, A.1).
    const KEY: &str = r#"{"kty": "EC", "crv": "P-256", "kid": "one",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}"#;

    /// An issuer that accepts connections and never responds.
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
    async fn r48_concurrent_calls_wait_for_one_fetch() {
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
    async fn r48_stale_keys_are_used_while_the_issuer_hangs() {
        let (listener, keys) = hanging_issuer().await;
        keys.issuer
            .cache_keys(vec![serde_json::from_str(KEY).unwrap()]);
        tokio::time::advance(MAX_AGE).await;
        // A call with an unknown key id waits for a fetch; calls with a known key do not.
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
        // The background fetch has contacted the issuer.
        timeout(FETCH_TIMEOUT, listener.accept())
            .await
            .unwrap()
            .unwrap();
        tokio::time::advance(MAX_STALE).await;
        assert_eq!(
            find_concurrently(&keys, vec!["one".to_owned()]).await,
            [false],
            "older than MAX_STALE"
        );
    }
}
