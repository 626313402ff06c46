//! Cache of a published key set: fetched on first use, after [`MAX_AGE`], and when a token names an unknown key.
//!
//! At most one fetch runs at a time, and at most one per [`MIN_FETCH_INTERVAL`] (R48).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{KeySet, TokenVerification};
use crate::egress::Egress;
use crate::model::{Error, ErrorKind, Result};
use crate::rt::lock;

/// Age after which keys are fetched again.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Minimum interval between fetches. Bounds the load that tokens with invented key ids cause.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);

/// The key set at a trusted URL.
pub struct PublishedKeys {
    url: Uri,
    egress: Egress,
    cached: std::sync::Mutex<Option<CachedKeySet>>,
    /// Time of the last fetch. Locked during a fetch, which makes fetches single-flight.
    last_fetch: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct CachedKeySet {
    keys: Arc<KeySet>,
    since: Instant,
}

impl PublishedKeys {
    /// Refers to the keys at a URL such as `https://agents.example.com/.well-known/jwks.json`.
    ///
    /// # Errors
    /// Invalid parameters: the URL may not be called.
    pub fn from_url(url: &str) -> Result<Self> {
        let url = url
            .parse()
            .map_err(|_| Error::invalid("url", "must be the URL of a key set"))?;
        crate::egress::check_url(&url)?;
        Ok(Self {
            url,
            egress: Egress::trusted(),
            cached: std::sync::Mutex::default(),
            last_fetch: Mutex::default(),
        })
    }

    /// Returns the claims of a token; `None` if no key of the set has signed it.
    ///
    /// # Errors
    /// Unavailable: the keys are not cached and cannot be fetched.
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
        lock(&self.cached).clone()
    }

    /// Fetches the keys, or returns those of a recent fetch. Concurrent calls wait for one fetch.
    async fn fetch_latest(&self) -> Result<Arc<KeySet>> {
        let mut last = self.last_fetch.lock().await;
        if last.is_some_and(|last| last.elapsed() < MIN_FETCH_INTERVAL) {
            return self
                .cached()
                .map(|cached| cached.keys)
                .ok_or_else(key_set_unavailable);
        }
        // Set when the fetch ends or its caller is dropped: calls that waited for it must not each start another.
        let timestamp = FetchTimestamp(&mut last);
        let fetched = KeySet::fetch_with(&self.egress, self.url.clone()).await;
        drop(timestamp);
        let keys = Arc::new(fetched?);
        let cached = CachedKeySet {
            keys: keys.clone(),
            since: Instant::now(),
        };
        *lock(&self.cached) = Some(cached);
        Ok(keys)
    }
}

/// Sets the time of the fetch on drop, also when the fetch is cancelled.
struct FetchTimestamp<'a>(&'a mut Option<Instant>);

impl Drop for FetchTimestamp<'_> {
    fn drop(&mut self) {
        *self.0 = Some(Instant::now());
    }
}

fn key_set_unavailable() -> Error {
    Error::new(ErrorKind::Unavailable).with_message(
        "the key set could not be fetched; the last attempt was less than 5 seconds ago",
    )
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
    async fn r48_concurrent_calls_share_one_failed_fetch() {
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
                assert_eq!(last, 1, "one fetch for all calls");
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
    async fn r48_a_cancelled_fetch_counts_as_a_fetch() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let keys = PublishedKeys::from_url(&format!(
            "http://{}/jwks.json",
            listener.local_addr().unwrap()
        ))
        .unwrap();
        let hangs = tokio::select! {
            _ = keys.verify_claims("a.b.c") => panic!("the publisher never responds"),
            accepted = listener.accept() => accepted.unwrap(),
        };
        let after = tokio::select! {
            after = keys.verify_claims("a.b.c") => after,
            _ = listener.accept() => panic!("fetched again"),
        };
        assert_eq!(after.unwrap_err().kind(), ErrorKind::Unavailable);
        drop(hangs);
    }
}
