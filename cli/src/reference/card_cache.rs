//! Card cache on disk: readable JSON files that users may inspect and delete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use attache::model::Timestamp;
use attache::{CachedCard, CardCache};
use serde::{Deserialize, Serialize};

use super::{is_loopback, url_host};

/// Maximum number of cached cards; the oldest files are evicted.
const MAX_CARDS: usize = 200;

/// Directory of cached cards, for one protocol version.
pub(super) struct FileCardCache {
    folder: PathBuf,
    version: String,
}

/// Content of a cache file.
#[derive(Serialize, Deserialize)]
struct CacheEntry {
    url: String,
    version: String,
    card: CachedCard,
}

impl FileCardCache {
    pub(super) fn new(folder: &Path, version: &str) -> Self {
        Self {
            folder: folder.join("cards"),
            version: version.to_owned(),
        }
    }

    /// The file of a URL: a readable prefix and a hash. The URL in the file is authoritative.
    fn file(&self, url: &str) -> PathBuf {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || ".-".contains(c) {
                c
            } else {
                '_'
            }
        };
        let readable: String = url.chars().take(80).map(plain).collect();
        self.folder.join(format!(
            "{}-{:016x}.json",
            readable.trim_start_matches('.'),
            hash(&self.version, url)
        ))
    }

    /// Replaces a file atomically: concurrent readers see the old or the new content.
    fn write(&self, url: &str, entry: &CacheEntry) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.evict()?;
        let file = self.file(url);
        let text = serde_json::to_vec_pretty(entry)?;
        let fresh = file.with_extension(format!("{}.new", std::process::id()));
        fs::write(&fresh, text)?;
        fs::rename(&fresh, file)
    }

    /// Deletes the oldest files beyond the limit.
    fn evict(&self) -> io::Result<()> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            all.push((entry.metadata()?.modified()?, entry.path()));
        }
        all.sort();
        let excess = (all.len() + 1).saturating_sub(MAX_CARDS);
        all.iter()
            .take(excess)
            .try_for_each(|(_, path)| fs::remove_file(path))
    }
}

impl CardCache for FileCardCache {
    fn get(&self, url: &str) -> Option<CachedCard> {
        let text = fs::read(self.file(url)).ok()?;
        let entry: CacheEntry = serde_json::from_slice(&text).ok()?;
        (entry.url == url && entry.version == self.version).then_some(entry.card)
    }

    fn put(&self, url: &str, card: CachedCard) {
        // A local agent may be under development, so its card is always revalidated.
        let fresh_until = if is_loopback(&url_host(url)) {
            Timestamp::default()
        } else {
            card.fresh_until
        };
        let card = CachedCard {
            fresh_until,
            ..card
        };
        let entry = CacheEntry {
            url: url.to_owned(),
            version: self.version.clone(),
            card,
        };
        // A card that cannot be cached is fetched again.
        let _ = self.write(url, &entry);
    }
}

/// FNV-1a hash, which is stable across platforms and only names a file.
fn hash(version: &str, url: &str) -> u64 {
    let bytes = version.bytes().chain([0]).chain(url.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(body: &str) -> CachedCard {
        CachedCard {
            body: body.to_owned(),
            etag: None,
            last_modified: None,
            fresh_until: Timestamp::MAX,
        }
    }

    #[test]
    fn card_get_001_cards_are_cached_by_url_and_version_and_local_ones_are_revalidated() {
        let folder = tempfile::TempDir::new().unwrap();
        let cards = FileCardCache::new(folder.path(), "1.0");
        cards.put("https://a.example/x", card("a"));
        assert_eq!(cards.get("https://a.example/x"), Some(card("a")));
        assert_eq!(cards.get("https://a.example/y"), None);
        assert_eq!(
            FileCardCache::new(folder.path(), "0.3").get("https://a.example/x"),
            None
        );
        cards.put("http://127.0.0.1:1/", card("b"));
        let cached = cards.get("http://127.0.0.1:1/").unwrap();
        assert_eq!(
            (cached.body.as_str(), cached.fresh_until),
            ("b", Timestamp::default())
        );
        std::fs::write(cards.file("https://a.example/x"), "spoilt").unwrap();
        assert_eq!(cards.get("https://a.example/x"), None);
    }

    #[test]
    fn s48_the_number_of_files_is_bounded() {
        let folder = tempfile::TempDir::new().unwrap();
        let cards = FileCardCache::new(folder.path(), "1.0");
        (0..MAX_CARDS + 5).for_each(|n| cards.put(&format!("https://a.example/{n}"), card("a")));
        assert!(fs::read_dir(folder.path().join("cards")).unwrap().count() <= MAX_CARDS);
    }
}
