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
    source_text: String,
    pub(super) pause: Duration,
    issuer: Arc<Issuer>,
    /// Held by the one who asks the issuer; when it was asked last, and had answered or not.
    asking: Arc<Mutex<Option<Instant>>>,
    /// Whoever asks is heard out, also when nobody waits for that any more; over when this is dropped.
    tasks: TaskTracker,
    stop: CancellationToken,
    _stops: DropGuard,
}

struct Issuer {
    source: Source,
    egress: Egress,
    kept: RwLock<Option<Arc<Kept>>>,
}

type Asking = OwnedMutexGuard<Option<Instant>>;

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
        let stop = CancellationToken::new();
        Self {
            source_text,
            pause: PAUSE,
            issuer: Arc::new(Issuer {
                source,
                egress,
                kept: RwLock::default(),
            }),
            asking: Arc::default(),
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
    ) -> std::result::Result<Option<DecodingKey>, Refused> {
        let kept = self.issuer.kept();
        if let Some(kept) = &kept
            && let Some(found) = kept.find(kid, algorithm)
        {
            if kept.since.elapsed() >= MAX_AGE {
                self.refresh();
            }
            return Ok(Some(found));
        }
        match (self.newest().await, kept) {
            (Ok(kept), _) => Ok(kept.find(kid, algorithm)),
            // The keys are known, and this is none of them.
            (Err(_), Some(_)) => Ok(None),
            (Err(error), None) => Err(Refused::NotNow(error)),
        }
    }

    /// Asks the issuer beside what is served, unless somebody does, or just did.
    fn refresh(&self) {
        if let Ok(asking) = self.asking.clone().try_lock_owned()
            && !self.asked(&asking)
        {
            drop(self.ask(asking));
        }
    }

    /// The keys as the issuer has them now, or had them a moment ago. One asks, the others wait for what it hears.
    async fn newest(&self) -> Result<Arc<Kept>> {
        let asking = self.asking.clone().lock_owned().await;
        if self.asked(&asking) {
            return self.issuer.kept().ok_or_else(silent);
        }
        self.ask(asking)
            .await
            .ok()
            .flatten()
            .unwrap_or_else(|| Err(silent()))
    }

    fn asked(&self, asking: &Asking) -> bool {
        asking.is_some_and(|asked| asked.elapsed() < self.pause)
    }

    fn ask(&self, mut asking: Asking) -> JoinHandle<Option<Result<Arc<Kept>>>> {
        let issuer = self.issuer.clone();
        self.tasks
            .spawn(self.stop.clone().run_until_cancelled_owned(async move {
                let heard = timeout(PATIENCE, issuer.ask())
                    .await
                    .unwrap_or_else(|_| Err(silent()));
                // Only now: those who have waited for it must not ask one after the other.
                *asking = Some(Instant::now());
                if let Err(error) = &heard {
                    let (Source::Url(url) | Source::Discovery { url, .. }) = &issuer.source;
                    let cause = error as &dyn std::error::Error;
                    tracing::warn!(issuer = origin(url), cause, "the issuer does not answer");
                }
                heard.map(|keys| issuer.keep(keys))
            }))
    }
}

impl Issuer {
    /// The keys that are good, be they old.
    fn kept(&self) -> Option<Arc<Kept>> {
        let kept = self
            .kept
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        kept.filter(|kept| kept.since.elapsed() < MAX_STALE)
    }

    fn keep(&self, keys: Vec<Jwk>) -> Arc<Kept> {
        let kept = Arc::new(Kept {
            keys,
            since: Instant::now(),
        });
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(kept.clone());
        kept
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
        Ok(keys
            .filter_map(|key| serde_json::from_value(key).ok())
            .collect())
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
    let signs = !matches!(key.common.public_key_use, Some(PublicKeyUse::Encryption));
    kind && signs
        && key
            .common
            .key_algorithm
            .is_none_or(|named| named == algorithm.into())
}

fn silent() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the issuer does not answer")
}

fn wrong() -> Error {
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
    async fn hanging() -> (TcpListener, Arc<KeySet>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        (listener, Arc::new(KeySet::new(Source::Url(url))))
    }

    async fn all_at_once(keys: &Arc<KeySet>, kids: impl IntoIterator<Item = String>) -> Vec<bool> {
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
        let (_listener, keys) = hanging().await;
        let began = Instant::now();
        let found = all_at_once(&keys, (0..20).map(|number| format!("k-{number}"))).await;
        assert!(found.iter().all(|found| !found));
        assert!(
            began.elapsed() < PATIENCE + Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn r48_old_keys_serve_at_once_while_the_issuer_hangs() {
        let (listener, keys) = hanging().await;
        keys.issuer.keep(vec![serde_json::from_str(KEY).unwrap()]);
        tokio::time::advance(MAX_AGE).await;
        // Somebody makes up a name and waits; those whose key is known do not.
        let waiting = keys.asking.clone().lock_owned().await;
        let began = Instant::now();
        assert_eq!(
            all_at_once(&keys, vec!["one".to_owned(); 5]).await,
            [true; 5]
        );
        drop(waiting);
        assert_eq!(
            all_at_once(&keys, vec!["one".to_owned(); 5]).await,
            [true; 5]
        );
        assert_eq!(began.elapsed(), Duration::ZERO);
        // And the issuer is asked beside that.
        timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        tokio::time::advance(MAX_STALE).await;
        assert_eq!(
            all_at_once(&keys, vec!["one".to_owned()]).await,
            [false],
            "too old to be believed"
        );
    }
}
