//! Cards that were read before, kept as HTTP says.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::{AGE, AsHeaderName, CACHE_CONTROL, ETAG, LAST_MODIFIED, VARY};
use serde::{Deserialize, Serialize};

use crate::model::Timestamp;

/// However long a peer says that its card stays as it is.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// How many cards are kept in memory.
const MAX_CARDS: usize = 64;

/// Where cards are kept between reads. [`MemoryCards`] is the default; a program may keep them in files.
///
/// Whoever shares one between callers with different credentials shows the one what the other may see.
pub trait CardStore: Send + Sync + 'static {
    /// The card that was read from this url.
    fn get(&self, url: &str) -> Option<KeptCard>;

    /// Keeps a card, in place of what there was.
    fn put(&self, url: &str, card: KeptCard);
}

/// A card as it was read, and how long it may be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptCard {
    /// The document.
    pub body: String,
    /// What its server calls this state of it.
    pub etag: Option<String>,
    /// When its server says that it was changed.
    pub last_modified: Option<String>,
    /// Until then it may be used without asking.
    pub fresh_until: Timestamp,
}

impl KeptCard {
    /// A card with the headers it came with; `None` if it may not be kept, or there would be no use in it.
    pub(super) fn new(body: &str, headers: &HeaderMap, now: Timestamp) -> Option<Self> {
        let age = max_age(headers)?;
        let card = Self {
            body: body.to_owned(),
            etag: text(headers, ETAG),
            last_modified: text(headers, LAST_MODIFIED),
            fresh_until: after(now, age),
        };
        (!age.is_zero() || card.etag.is_some() || card.last_modified.is_some()).then_some(card)
    }

    /// Its server says that it has not changed.
    pub(super) fn renewed(self, headers: &HeaderMap, now: Timestamp) -> Self {
        Self {
            fresh_until: after(now, max_age(headers).unwrap_or_default()),
            ..self
        }
    }
}

/// How long an answer may be used; `None` if it may not be kept at all.
fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let said = text(headers, CACHE_CONTROL)
        .unwrap_or_default()
        .to_ascii_lowercase();
    let directives: Vec<_> = said.split(',').map(str::trim).collect();
    if directives.contains(&"no-store")
        || text(headers, VARY).is_some_and(|vary| vary.contains('*'))
    {
        return None;
    }
    let seconds = directives
        .iter()
        .find_map(|one| one.strip_prefix("max-age=")?.parse().ok());
    let age = text(headers, AGE)
        .and_then(|age| age.parse().ok())
        .unwrap_or(0);
    let left = seconds
        .filter(|_| !directives.contains(&"no-cache"))
        .unwrap_or(0_u64)
        .saturating_sub(age);
    Some(Duration::from_secs(left).min(MAX_AGE))
}

fn after(now: Timestamp, age: Duration) -> Timestamp {
    let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_add(millis)).unwrap_or(Timestamp::MAX)
}

fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

pub(super) fn now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// Keeps the cards that were read last.
#[derive(Debug, Default)]
pub struct MemoryCards(Mutex<VecDeque<(String, KeptCard)>>);

impl CardStore for MemoryCards {
    fn get(&self, url: &str) -> Option<KeptCard> {
        let cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cards
            .iter()
            .find(|(one, _)| one == url)
            .map(|(_, card)| card.clone())
    }

    fn put(&self, url: &str, card: KeptCard) {
        let mut cards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cards.retain(|(one, _)| one != url);
        cards.truncate(MAX_CARDS - 1);
        cards.push_front((url.to_owned(), card));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(headers: &[(&'static str, &'static str)]) -> Option<i64> {
        let headers = headers.iter().map(|(name, value)| {
            (
                name.parse().expect("a name"),
                ::http::HeaderValue::from_static(value),
            )
        });
        let now = Timestamp::from_millis(0)?;
        KeptCard::new("{}", &headers.collect(), now).map(|card| card.fresh_until.as_millis() / 1000)
    }

    #[test]
    fn a_card_is_kept_as_http_says() {
        assert_eq!(
            kept(&[("cache-control", "public, Max-Age=300"), ("age", "100")]),
            Some(200)
        );
        assert_eq!(
            kept(&[("cache-control", "max-age=99999999")]),
            Some(24 * 3600)
        );
        assert_eq!(kept(&[("etag", "\"1\"")]), Some(0), "to be asked after");
        assert_eq!(
            kept(&[("cache-control", "no-cache, max-age=9"), ("etag", "\"1\"")]),
            Some(0)
        );
        assert_eq!(kept(&[("cache-control", "no-store, max-age=9")]), None);
        assert_eq!(kept(&[]), None);
    }

    #[test]
    fn s48_only_so_many_are_kept() {
        let cards = MemoryCards::default();
        let card = KeptCard::new("{}", &HeaderMap::new(), Timestamp::default());
        let card = card.unwrap_or(KeptCard {
            body: "{}".to_owned(),
            etag: None,
            last_modified: None,
            fresh_until: Timestamp::MAX,
        });
        (0..=MAX_CARDS).for_each(|n| cards.put(&n.to_string(), card.clone()));
        assert_eq!((cards.get("0"), cards.get("1")), (None, Some(card)));
    }
}
