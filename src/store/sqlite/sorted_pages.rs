//! One level of the id index: a table whose rows are pages of sorted entries.
//!
//! Entries are added in sorted batches, so one write takes all entries of a page. A row fills one SQLite page and always has
//! the same size, so SQLite overwrites it in place.

use rusqlite::{Connection, OptionalExtension, params};

use super::error::corrupt_row;
use super::id_index::IndexEntry;
use crate::store::codec::CodecError;

/// Table of sorted pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortedPages(&'static str);

/// Small level: receives the flushes.
pub(super) const SMALL_LEVEL: SortedPages = SortedPages("recent");

/// Large level: receives the merges.
pub(super) const LARGE_LEVEL: SortedPages = SortedPages("name");

/// Size of an encoded entry: six bytes each for hash and row number.
const ENTRY_BYTES: usize = 12;

/// Number of entries that fill a SQLite page of 4,096 bytes.
const PAGE_ENTRIES: usize = 336;

/// Maximum number of entries in a page after a split, which leaves room for more.
const SPLIT_ENTRIES: usize = PAGE_ENTRIES * 2 / 3;

/// Padding. No entry has this encoding.
const EMPTY_ENTRY: [u8; ENTRY_BYTES] = [0xff; ENTRY_BYTES];

/// Offset that makes row numbers positive, so that encoded bytes sort like numbers.
const NUMBER_BIAS: i64 = 1 << 47;

/// Page of entries with the range of hashes that it covers.
struct IndexPage {
    first: i64,
    entries: Vec<IndexEntry>,
    /// First hash of the next page.
    end: i64,
}

impl SortedPages {
    /// Adds sorted entries. Entries that exist already are kept once.
    pub(super) fn add(
        self,
        connection: &Connection,
        entries: &[IndexEntry],
    ) -> rusqlite::Result<()> {
        self.edit(connection, entries, |existing, added| {
            existing.extend_from_slice(added);
            // Two sorted runs: the merge sort of the standard library detects them.
            existing.sort();
            existing.dedup();
        })
    }

    /// Removes sorted entries. Absent ones are skipped.
    pub(super) fn remove(
        self,
        connection: &Connection,
        entries: &[IndexEntry],
    ) -> rusqlite::Result<()> {
        self.edit(connection, entries, |existing, removed| {
            existing.retain(|entry| removed.binary_search(entry).is_err())
        })
    }

    /// Empties the pages that begin in a range of hashes and returns their entries, sorted.
    pub(super) fn drain_range(
        self,
        connection: &Connection,
        from: i64,
        to: i64,
    ) -> rusqlite::Result<Vec<IndexEntry>> {
        let sql = self.sql("SELECT first, body FROM _ WHERE first >= ?1 AND first < ?2");
        let mut entries = Vec::new();
        let mut emptied = Vec::new();
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([from, to])?;
        while let Some(row) = rows.next()? {
            decode_page(row.get_ref(1)?.as_blob()?, |entry| entries.push(entry))?;
            emptied.push(row.get(0)?);
        }
        for first in emptied {
            // Keep the row for later entries: deleting it would change the B-tree.
            self.put(connection, first, &[])?;
        }
        Ok(entries)
    }

    /// Visits the entries of a range of hashes, and some beside it; `None` if they take more than `max_pages` pages.
    pub(super) fn scan(
        self,
        connection: &Connection,
        from: i64,
        to: i64,
        max_pages: usize,
        mut visit: impl FnMut(IndexEntry),
    ) -> rusqlite::Result<Option<()>> {
        let sql = self.sql(
            "SELECT body FROM _ WHERE first >= (SELECT ifnull(max(first), 0) FROM _ WHERE first <= ?1) AND first < ?2",
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([from, to])?;
        for _ in 0..max_pages {
            match rows.next()? {
                Some(row) => decode_page(row.get_ref(0)?.as_blob()?, &mut visit)?,
                None => return Ok(Some(())),
            }
        }
        Ok(rows.next()?.is_none().then_some(()))
    }

    /// Changes the pages that cover the entries, one write for each changed page.
    fn edit(
        self,
        connection: &Connection,
        mut entries: &[IndexEntry],
        change: impl Fn(&mut Vec<IndexEntry>, &[IndexEntry]),
    ) -> rusqlite::Result<()> {
        while let Some((hash, _)) = entries.first() {
            let mut page = self.load_page(connection, *hash)?;
            let (own, rest) =
                entries.split_at(entries.partition_point(|(hash, _)| *hash < page.end));
            let before = page.entries.len();
            change(&mut page.entries, own);
            if page.entries.len() != before {
                self.write(connection, page.first, &page.entries)?;
            }
            entries = rest;
        }
        Ok(())
    }

    /// Loads the page that covers a hash.
    fn load_page(self, connection: &Connection, hash: i64) -> rusqlite::Result<IndexPage> {
        let sql =
            self.sql("SELECT first, body FROM _ WHERE first <= ?1 ORDER BY first DESC LIMIT 1");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([hash])?;
        let mut first = 0;
        let mut entries = Vec::with_capacity(PAGE_ENTRIES);
        if let Some(row) = rows.next()? {
            first = row.get(0)?;
            decode_page(row.get_ref(1)?.as_blob()?, |entry| entries.push(entry))?;
        }
        let sql = self.sql("SELECT first FROM _ WHERE first > ?1 ORDER BY first LIMIT 1");
        let end = connection
            .prepare_cached(&sql)?
            .query_row([hash], |row| row.get(0))
            .optional()?;
        Ok(IndexPage {
            first,
            entries,
            end: end.unwrap_or(i64::MAX),
        })
    }

    fn write(
        self,
        connection: &Connection,
        mut first: i64,
        entries: &[IndexEntry],
    ) -> rusqlite::Result<()> {
        if entries.is_empty() {
            let sql = self.sql("DELETE FROM _ WHERE first = ?1");
            connection.prepare_cached(&sql)?.execute([first])?;
            return Ok(());
        }
        let mut rest = entries;
        let size = if entries.len() > PAGE_ENTRIES {
            SPLIT_ENTRIES
        } else {
            PAGE_ENTRIES
        };
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(split_point(rest, size));
            self.put(connection, first, piece)?;
            first = others.first().map_or(first, |(hash, _)| *hash);
            rest = others;
        }
        Ok(())
    }

    fn put(
        self,
        connection: &Connection,
        first: i64,
        entries: &[IndexEntry],
    ) -> rusqlite::Result<()> {
        let sql = self.sql("INSERT OR REPLACE INTO _ (first, body) VALUES (?1, ?2)");
        connection
            .prepare_cached(&sql)?
            .execute(params![first, encode_page(entries)])?;
        Ok(())
    }

    /// Inserts the table name for `_`.
    fn sql(self, text: &str) -> String {
        text.replace('_', self.0)
    }
}

/// Returns the row numbers of a hash in both levels, read in one statement.
pub(super) fn find(connection: &Connection, hash: i64) -> rusqlite::Result<Vec<i64>> {
    let sql =
        "SELECT * FROM (SELECT body FROM recent WHERE first <= ?1 ORDER BY first DESC LIMIT 1) UNION ALL
               SELECT * FROM (SELECT body FROM name WHERE first <= ?1 ORDER BY first DESC LIMIT 1)";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([hash])?;
    let mut numbers = Vec::new();
    while let Some(row) = rows.next()? {
        let (entries, _) = row.get_ref(0)?.as_blob()?.as_chunks::<ENTRY_BYTES>();
        let from = entries.partition_point(|entry| decode_entry(entry).0 < hash);
        let matching = entries
            .iter()
            .skip(from)
            .map(decode_entry)
            .take_while(|entry| entry.0 == hash);
        numbers.extend(matching.map(|(_, number)| number));
    }
    Ok(numbers)
}

/// Returns the split point for a first page of about this size. Entries with the same hash stay together.
fn split_point(entries: &[IndexEntry], size: usize) -> usize {
    let Some((hash, _)) = entries.get(size) else {
        return entries.len();
    };
    match entries.partition_point(|(other, _)| other < hash) {
        0 => entries.partition_point(|(other, _)| other <= hash),
        cut => cut,
    }
}

fn encode_page(entries: &[IndexEntry]) -> Vec<u8> {
    let mut body = Vec::with_capacity(PAGE_ENTRIES.max(entries.len()) * ENTRY_BYTES);
    for (hash, number) in entries {
        body.extend_from_slice(&hash.to_be_bytes()[2..]);
        body.extend_from_slice(&(number + NUMBER_BIAS).to_be_bytes()[2..]);
    }
    body.resize(body.len().max(PAGE_ENTRIES * ENTRY_BYTES), 0xff);
    body
}

fn decode_page(body: &[u8], visit: impl FnMut(IndexEntry)) -> rusqlite::Result<()> {
    let (entries, rest) = body.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(corrupt_row(CodecError("incomplete index entry")));
    }
    entries
        .iter()
        .take_while(|entry| **entry != EMPTY_ENTRY)
        .map(decode_entry)
        .for_each(visit);
    Ok(())
}

fn decode_entry(entry: &[u8; ENTRY_BYTES]) -> IndexEntry {
    let [a, b, c, d, e, f, u, v, w, x, y, z] = *entry;
    let hash = i64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    (
        hash,
        i64::from_be_bytes([0, 0, u, v, w, x, y, z]) - NUMBER_BIAS,
    )
}
