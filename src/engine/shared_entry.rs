//! An entry that is in the log, with room for the forms it goes out in.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::model::Entry;

/// An entry of a log, with those that were recorded at the same time. Everybody who follows the log shares it, and what it
/// looks like on the wire.
#[derive(Debug, Clone)]
pub(crate) struct SharedEntry {
    batch: EntryBatch,
    index: usize,
}

/// Entries that were recorded at the same time: one allocation for all of them.
pub(super) type EntryBatch = Arc<[EncodedEntry]>;

#[derive(Debug)]
pub(super) struct EncodedEntry {
    entry: Entry,
    /// The forms that were asked for; `None` where one reader has the entry, who needs no copy of what is written.
    encodings: Option<EntryEncodings>,
}

/// Most often one form is asked for, and it needs no allocation to find it.
#[derive(Debug, Default)]
struct EntryEncodings {
    first: OnceLock<u8>,
    bytes: Bytes,
    /// Apart: every entry of a live log has room for its forms, and few are asked for in a second one.
    others: OnceLock<Box<EncodingCache<Box<[u8]>>>>,
}

/// What a form looks like, once somebody has written it.
type Bytes = OnceLock<Box<[u8]>>;

/// Forms by their numbers, each with room for what it looks like. Places are filled outside the lock: whoever wants another
/// form need not wait for this one.
#[derive(Debug)]
pub(super) struct EncodingCache<T>(Mutex<Vec<(u8, Arc<OnceLock<T>>)>>);

impl<T> Default for EncodingCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> EncodingCache<T> {
    pub(super) fn cell(&self, format: u8) -> Arc<OnceLock<T>> {
        // Places are added whole, so a panic elsewhere spoils nothing.
        let mut encodings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cell)) = encodings.iter().find(|(known, _)| *known == format) {
            return cell.clone();
        }
        let cell = Arc::<OnceLock<T>>::default();
        encodings.push((format, cell.clone()));
        cell
    }
}

impl SharedEntry {
    /// Makes a sheet of entries.
    pub(super) fn batch(entries: impl IntoIterator<Item = Entry>) -> EntryBatch {
        entries
            .into_iter()
            .map(|entry| EncodedEntry {
                entry,
                encodings: Some(EntryEncodings::default()),
            })
            .collect()
    }

    /// Entries that one reader has.
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

    /// The entries of a sheet, from one of them on.
    pub(super) fn iter_from(batch: &EntryBatch, from: usize) -> impl Iterator<Item = Self> {
        (from..batch.len()).map(|index| Self {
            batch: batch.clone(),
            index,
        })
    }

    /// Writes the entry in a wire form: the first who asks does it, the others share the bytes. What a form is, is
    /// nothing that we need to know.
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
        if *encodings.first.get_or_init(|| format) == format {
            return encode_once(&encodings.bytes, out, |out| encode(entry, out));
        }
        encode_once(
            &encodings.others.get_or_init(Box::default).cell(format),
            out,
            |out| encode(entry, out),
        );
    }
}

/// Whoever is first writes where it goes, and leaves a copy to the others.
fn encode_once(bytes: &Bytes, out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let begun = out.len();
    let bytes = bytes.get_or_init(|| {
        encode(out);
        Box::from(&out[begun..])
    });
    if out.len() == begun {
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

    fn shared_entry() -> SharedEntry {
        let entry = Entry {
            seq: Seq(1),
            time: Timestamp::default(),
            event: Event::TurnStarted,
        };
        SharedEntry::iter_from(&SharedEntry::batch([entry]), 0)
            .next()
            .unwrap()
    }

    fn encode_into(shared_entry: &SharedEntry, format: u8, bytes: &str) -> String {
        let mut out = b"> ".to_vec();
        shared_entry.encode_into(format, &mut out, |_, out| {
            out.extend_from_slice(bytes.as_bytes())
        });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_format_is_encoded_once() {
        let shared_entry = shared_entry();
        for (number, bytes) in [
            (1, "first"),
            (2, "second"),
            (3, "third"),
            (2, "again"),
            (1, "again"),
        ] {
            let expected = ["", "> first", "> second", "> third"][usize::from(number)];
            assert_eq!(encode_into(&shared_entry, number, bytes), expected);
        }
    }

    #[test]
    fn an_unshared_entry_is_encoded_directly_each_time() {
        let entry = Entry {
            seq: Seq(1),
            time: Timestamp::default(),
            event: Event::TurnStarted,
        };
        let own = SharedEntry::unshared([entry]).remove(0);
        assert_eq!(
            (encode_into(&own, 1, "a"), encode_into(&own, 1, "b")),
            ("> a".to_owned(), "> b".to_owned())
        );
    }

    #[test]
    fn a_slow_encoding_blocks_no_other_format() {
        let shared_entry = shared_entry();
        let mut out = Vec::new();
        shared_entry.encode_into(1, &mut out, |_, out| {
            out.extend_from_slice(encode_into(&shared_entry, 2, "quick").as_bytes())
        });
        assert_eq!(out, b"> quick");
    }
}
