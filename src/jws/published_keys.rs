//! A key set that somebody publishes: read when it is needed, kept for a while, read again when a key is not in it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::Uri;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{KeySet, TokenVerification};
use crate::egress::Egress;
use crate::model::{Error, ErrorKind, Result};

/// How long keys are good before they are read again.
const MAX_AGE: Duration = Duration::from_secs(600);
/// How often the publisher is asked: anybody can make up the name of a key.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);

/// The key set at a url that the caller trusts.
pub struct PublishedKeys {
    url: Uri,
    egress: Egress,
    cached: RwLock<Option<CachedKeySet>>,
    /// Held by the one who asks; when it was asked last.
    last_fetch: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct CachedKeySet {
    keys: Arc<KeySet>,
    since: Instant,
}

impl PublishedKeys {
    /// The keys at this url, such as `https://agents.example.com/.well-known/jwks.json`.
    ///
    /// # Errors
    /// Invalid parameters: it is no url that can be called.
    pub fn from_url(url: &str) -> Result<Self> {
        let url = url
            .parse()
            .map_err(|_| Error::invalid("url", "must be that of a key set"))?;
        crate::egress::check_url(&url)?;
        Ok(Self {
            url,
            egress: Egress::trusted(),
            cached: RwLock::default(),
            last_fetch: Mutex::default(),
        })
    }

    /// The claims of a token that one of the keys signed; `None`: none of them did.
    ///
    /// # Errors
    /// The keys are not known, and cannot be read now.
    pub(crate) async fn verify_claims(&self, token: &str) -> Result<Option<Value>> {
        let cached = self
            .cached()
            .filter(|cached| cached.since.elapsed() < MAX_AGE);
        let verification = cached.map(|cached| cached.keys.verify_token(token));
        let verification = match verification {
            Some(verification) if verification != TokenVerification::UnknownKey => verification,
            _ => self.fetch_latest().await?.verify_token(token),
        };
        match verification {
            TokenVerification::Verified(claims) => Ok(Some(claims)),
            TokenVerification::UnknownKey | TokenVerification::Invalid => Ok(None),
        }
    }

    fn cached(&self) -> Option<CachedKeySet> {
        self.cached
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The keys as they are now, or were a moment ago. One asks, the others wait for what it hears.
    async fn fetch_latest(&self) -> Result<Arc<KeySet>> {
        let mut last = self.last_fetch.lock().await;
        if last.is_some_and(|last| last.elapsed() < MIN_FETCH_INTERVAL) {
            return self
                .cached()
                .map(|cached| cached.keys)
                .ok_or_else(key_set_unavailable);
        }
        // Counted at its end, or when its caller leaves: those who have waited for one that hangs must not ask one after
        // the other.
        let timestamp = FetchTimestamp(&mut last);
        let fetched = KeySet::fetch_with(&self.egress, self.url.clone()).await;
        drop(timestamp);
        let keys = Arc::new(fetched?);
        let cached = CachedKeySet {
            keys: keys.clone(),
            since: Instant::now(),
        };
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = Some(cached);
        Ok(keys)
    }
}

/// Notes when the publisher was asked, however that ends.
struct FetchTimestamp<'a>(&'a mut Option<Instant>);

impl Drop for FetchTimestamp<'_> {
    fn drop(&mut self) {
        *self.0 = Some(Instant::now());
    }
}

fn key_set_unavailable() -> Error {
    Error::new(ErrorKind::Unavailable).with_message("the key set could not be read a moment ago")
}

impl fmt::Debug for PublishedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublishedKeys").field(&self.url).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn r48_a_publisher_that_fails_is_not_asked_by_everybody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let keys = PublishedKeys::from_url(&format!(
            "http://{}/jwks.json",
            listener.local_addr().unwrap()
        ))
        .unwrap();
        let publisher = async {
            let mut last = 0;
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                last += 1;
                assert_eq!(last, 1, "once, however many want to know");
                let _ = stream.read(&mut [0; 1024]).await.unwrap();
                stream
                    .write_all(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")
                    .await
                    .unwrap();
            }
        };
        let callers = async {
            let (one, other) =
                tokio::join!(keys.verify_claims("a.b.c"), keys.verify_claims("a.b.c"));
            assert!(one.is_err() && other.is_err());
            assert!(keys.verify_claims("a.b.c").await.is_err());
        };
        tokio::select! {
            () = publisher => {}
            () = callers => {}
        }
    }

    #[tokio::test]
    async fn r48_a_publisher_that_hangs_is_not_asked_again_by_those_who_come_after_one_that_left() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let keys = PublishedKeys::from_url(&format!(
            "http://{}/jwks.json",
            listener.local_addr().unwrap()
        ))
        .unwrap();
        let hangs = tokio::select! {
            _ = keys.verify_claims("a.b.c") => panic!("nobody has answered"),
            accepted = listener.accept() => accepted.unwrap(),
        };
        let after = tokio::select! {
            after = keys.verify_claims("a.b.c") => after,
            _ = listener.accept() => panic!("asked again"),
        };
        assert_eq!(after.unwrap_err().kind(), ErrorKind::Unavailable);
        drop(hangs);
    }
}
