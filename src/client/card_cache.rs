//! Cache of agent cards, with the lifetime that HTTP caching headers give them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::{AGE, AsHeaderName, CACHE_CONTROL, ETAG, LAST_MODIFIED, VARY};
use serde::{Deserialize, Serialize};

use crate::model::Timestamp;
use crate::rt::lock;

/// Maximum lifetime of a cached card, whatever `max-age` the server sends.
const MAX_CACHE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of cards in memory.
const MAX_CACHED_CARDS: usize = 64;

/// Cache of agent cards. [`MemoryCardCache`] is the default; a program may store cards in files.
///
/// A cache that is shared between callers with different credentials exposes the cards of one to the others.
pub trait CardCache: Send + Sync + 'static {
    /// Returns the card that was read from this URL.
    fn get(&self, url: &str) -> Option<CachedCard>;

    /// Stores a card and replaces an earlier one of the same URL.
    fn put(&self, url: &str, card: CachedCard);
}

/// Card as received, with its cache headers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedCard {
    /// The document.
    pub body: String,
    /// `ETag` of the response.
    pub etag: Option<String>,
    /// `Last-Modified` of the response.
    pub last_modified: Option<String>,
    /// End of the time in which the card is used without revalidation.
    pub fresh_until: Timestamp,
}

impl CachedCard {
    /// Returns a cache entry; `None` if the headers forbid caching or allow neither reuse nor revalidation.
    pub(super) fn new(body: &str, headers: &HeaderMap, now: Timestamp) -> Option<Self> {
        let age = max_age(headers)?;
        let card = Self {
            body: body.to_owned(),
            etag: header_text(headers, ETAG),
            last_modified: header_text(headers, LAST_MODIFIED),
            fresh_until: expiry(now, age),
        };
        (!age.is_zero() || card.etag.is_some() || card.last_modified.is_some()).then_some(card)
    }

    /// Extends the lifetime after a 304 response.
    pub(super) fn revalidate(self, headers: &HeaderMap, now: Timestamp) -> Self {
        Self {
            fresh_until: expiry(now, max_age(headers).unwrap_or_default()),
            ..self
        }
    }
}

/// Returns the remaining lifetime of a response; `None` if it must not be stored.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let cache_control = header_text(headers, CACHE_CONTROL)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let directives: Vec<_> = cache_control.split(',').map(str::trim).collect();
    if directives.contains(&"no-store")
        || header_text(headers, VARY).is_some_and(|vary| vary.contains('*'))
    {
        return None;
    }
    let seconds = directives
        .iter()
        .find_map(|one| one.strip_prefix("max-age=")?.parse().ok());
    let age = header_text(headers, AGE)
        .and_then(|age| age.parse().ok())
        .unwrap_or(0);
    let left = seconds
        .filter(|_| !directives.contains(&"no-cache"))
        .unwrap_or(0_u64)
        .saturating_sub(age);
    Some(Duration::from_secs(left).min(MAX_CACHE_AGE))
}

fn expiry(now: Timestamp, age: Duration) -> Timestamp {
    let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_add(millis)).unwrap_or(Timestamp::MAX)
}

fn header_text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

pub(super) fn now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// Cache of the 64 most recently stored cards, in memory.
#[derive(Debug, Default)]
pub struct MemoryCardCache(Mutex<VecDeque<(String, CachedCard)>>);

impl CardCache for MemoryCardCache {
    fn get(&self, url: &str) -> Option<CachedCard> {
        let cards = lock(&self.0);
        cards
            .iter()
            .find(|(one, _)| one == url)
            .map(|(_, card)| card.clone())
    }

    fn put(&self, url: &str, card: CachedCard) {
        let mut cards = lock(&self.0);
        cards.retain(|(one, _)| one != url);
        cards.truncate(MAX_CACHED_CARDS - 1);
        cards.push_front((url.to_owned(), card));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(headers: &[(&'static str, &'static str)]) -> Option<i64> {
        let headers = headers.iter().map(|(name, value)| {
            (
                name.parse().expect("valid header name"),
                ::http::HeaderValue::from_static(value),
            )
        });
        let now = Timestamp::from_millis(0)?;
        CachedCard::new("{}", &headers.collect(), now)
            .map(|card| card.fresh_until.as_millis() / 1000)
    }

    #[test]
    fn cache_lifetime_follows_http_headers() {
        assert_eq!(
            cached(&[("cache-control", "public, Max-Age=300"), ("age", "100")]),
            Some(200)
        );
        assert_eq!(
            cached(&[("cache-control", "max-age=99999999")]),
            Some(24 * 3600)
        );
        assert_eq!(cached(&[("etag", "\"1\"")]), Some(0), "to be revalidated");
        assert_eq!(
            cached(&[("cache-control", "no-cache, max-age=9"), ("etag", "\"1\"")]),
            Some(0)
        );
        assert_eq!(cached(&[("cache-control", "no-store, max-age=9")]), None);
        assert_eq!(cached(&[]), None);
    }

    #[test]
    fn s48_memory_cache_is_bounded() {
        let cards = MemoryCardCache::default();
        let card = CachedCard::new("{}", &HeaderMap::new(), Timestamp::default());
        let card = card.unwrap_or(CachedCard {
            body: "{}".to_owned(),
            etag: None,
            last_modified: None,
            fresh_until: Timestamp::MAX,
        });
        (0..=MAX_CACHED_CARDS).for_each(|n| cards.put(&n.to_string(), card.clone()));
        assert_eq!((cards.get("0"), cards.get("1")), (None, Some(card)));
    }
}
