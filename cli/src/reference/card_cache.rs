//! Cards that were read before, in files that anybody may look at and delete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use attache::model::Timestamp;
use attache::{CachedCard, CardCache};
use serde::{Deserialize, Serialize};

use super::{is_loopback, url_host};

/// How many are kept.
const MAX_CARDS: usize = 200;

/// A folder of cards, as one version of the protocol sees them.
pub(super) struct FileCardCache {
    folder: PathBuf,
    version: String,
}

/// One of them.
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

    /// Readable, and another for every url: what is in the file decides.
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

    /// Whoever reads at the same time sees the old file or the new one.
    fn write(&self, url: &str, entry: &CacheEntry) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.make_room()?;
        let (file, text) = (self.file(url), serde_json::to_vec_pretty(entry)?);
        let fresh = file.with_extension(format!("{}.new", std::process::id()));
        fs::write(&fresh, text)?;
        fs::rename(&fresh, file)
    }

    fn make_room(&self) -> io::Result<()> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            all.push((entry.metadata()?.modified()?, entry.path()));
        }
        all.sort();
        let many = (all.len() + 1).saturating_sub(MAX_CARDS);
        all.iter()
            .take(many)
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
        // Who works on an agent on this machine wants to see it as it is: it is asked, and says if nothing has changed.
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
        // A card that is not kept is read again.
        let _ = self.write(url, &entry);
    }
}

/// FNV-1a: the same on every machine, and no more than a name.
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
    fn card_get_001_cards_are_kept_by_url_and_version_and_those_of_this_machine_are_asked_after() {
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
        let kept = cards.get("http://127.0.0.1:1/").unwrap();
        assert_eq!(
            (kept.body.as_str(), kept.fresh_until),
            ("b", Timestamp::default())
        );
        std::fs::write(cards.file("https://a.example/x"), "spoilt").unwrap();
        assert_eq!(cards.get("https://a.example/x"), None);
    }

    #[test]
    fn s48_only_so_many_files_are_kept() {
        let folder = tempfile::TempDir::new().unwrap();
        let cards = FileCardCache::new(folder.path(), "1.0");
        (0..MAX_CARDS + 5).for_each(|n| cards.put(&format!("https://a.example/{n}"), card("a")));
        assert!(fs::read_dir(folder.path().join("cards")).unwrap().count() <= MAX_CARDS);
    }
}
