//! Log entries shared by all readers of a log, with a cache of their wire encodings.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock};

use crate::model::Entry;
use crate::rt::lock;

/// An entry of a log. All readers of the log share it and its wire encodings.
#[derive(Debug, Clone)]
pub(crate) struct SharedEntry {
    batch: EntryBatch,
    index: usize,
}

/// Entries that were committed together, in one allocation.
pub(super) type EntryBatch = Arc<[EncodedEntry]>;

/// An entry and its cached encodings.
#[derive(Debug)]
pub(super) struct EncodedEntry {
    entry: Entry,
    /// `None` if the entry has only one reader: its encodings are not cached.
    encodings: Option<EntryEncodings>,
}

/// Encodings of one entry. Most entries are requested in one format, which needs no allocation to look up.
#[derive(Debug, Default)]
struct EntryEncodings {
    first_format: OnceLock<u8>,
    first: EncodingCell,
    /// Boxed: every entry of a tail has this field, few need it.
    others: OnceLock<Box<EncodingCache<Box<[u8]>>>>,
}

/// Bytes of one encoding, set by the first reader that requests it.
type EncodingCell = OnceLock<Box<[u8]>>;

/// Encodings by format number. Cells are filled outside the lock, so a slow encoding does not block other formats.
#[derive(Debug)]
pub(super) struct EncodingCache<T>(Mutex<Vec<(u8, Arc<OnceLock<T>>)>>);

impl<T> Default for EncodingCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> EncodingCache<T> {
    /// Returns the cell of a format, and creates it if necessary.
    pub(super) fn cell(&self, format: u8) -> Arc<OnceLock<T>> {
        let mut cells = lock(&self.0);
        if let Some((_, cell)) = cells.iter().find(|(number, _)| *number == format) {
            return cell.clone();
        }
        let cell = Arc::<OnceLock<T>>::default();
        cells.push((format, cell.clone()));
        cell
    }
}

impl SharedEntry {
    /// Creates a batch whose entries cache their encodings.
    pub(super) fn batch(entries: impl IntoIterator<Item = Entry>) -> EntryBatch {
        entries
            .into_iter()
            .map(|entry| EncodedEntry {
                entry,
                encodings: Some(EntryEncodings::default()),
            })
            .collect()
    }

    /// Returns entries for a single reader, without a cache.
    pub(super) fn unshared(entries: impl IntoIterator<Item = Entry>) -> Vec<Self> {
        let batch: EntryBatch = entries
            .into_iter()
            .map(|entry| EncodedEntry {
                entry,
                encodings: None,
            })
            .collect();
        Self::iter_from(&batch, 0).collect()
    }

    /// Iterates over the entries of a batch, starting at an index.
    pub(super) fn iter_from(batch: &EntryBatch, start: usize) -> impl Iterator<Item = Self> {
        (start..batch.len()).map(|index| Self {
            batch: batch.clone(),
            index,
        })
    }

    /// Appends the encoding of the entry in this format to `out`.
    ///
    /// Calls `encode` the first time and caches the result for other readers. The meaning of the format number is up
    /// to the caller.
    pub(crate) fn encode_into(
        &self,
        format: u8,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&Entry, &mut Vec<u8>),
    ) {
        let EncodedEntry { entry, encodings } = &self.batch[self.index];
        let Some(encodings) = encodings else {
            return encode(entry, out);
        };
        if *encodings.first_format.get_or_init(|| format) == format {
            return encode_once(&encodings.first, out, |out| encode(entry, out));
        }
        let cell = encodings.others.get_or_init(Box::default).cell(format);
        encode_once(&cell, out, |out| encode(entry, out));
    }
}

/// Appends the cached bytes to `out`. The first caller encodes directly into `out` and caches a copy.
fn encode_once(cell: &EncodingCell, out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    let bytes = cell.get_or_init(|| {
        encode(out);
        Box::from(&out[start..])
    });
    if out.len() == start {
        out.extend_from_slice(bytes);
    }
}

impl Deref for SharedEntry {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.batch[self.index].entry
    }
}

impl Deref for EncodedEntry {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Event, Seq, Timestamp};

    fn entry() -> Entry {
        Entry {
            seq: Seq(1),
            time: Timestamp::default(),
            event: Event::TurnStarted,
        }
    }

    fn shared_entry() -> SharedEntry {
        let batch = SharedEntry::batch([entry()]);
        SharedEntry::iter_from(&batch, 0).next().unwrap()
    }

    fn encode(entry: &SharedEntry, format: u8, bytes: &str) -> String {
        let mut out = b"> ".to_vec();
        entry.encode_into(format, &mut out, |_, out| {
            out.extend_from_slice(bytes.as_bytes())
        });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_format_is_encoded_once() {
        let entry = shared_entry();
        for (format, bytes) in [
            (1, "first"),
            (2, "second"),
            (3, "third"),
            (2, "again"),
            (1, "again"),
        ] {
            let expected = ["", "> first", "> second", "> third"][usize::from(format)];
            assert_eq!(encode(&entry, format, bytes), expected);
        }
    }

    #[test]
    fn an_unshared_entry_is_encoded_directly_each_time() {
        let unshared = SharedEntry::unshared([entry()]).remove(0);
        assert_eq!(encode(&unshared, 1, "a"), "> a");
        assert_eq!(encode(&unshared, 1, "b"), "> b");
    }

    #[test]
    fn a_slow_encoding_blocks_no_other_format() {
        let entry = shared_entry();
        let mut out = Vec::new();
        entry.encode_into(1, &mut out, |_, out| {
            out.extend_from_slice(encode(&entry, 2, "quick").as_bytes())
        });
        assert_eq!(out, b"> quick");
    }
}
