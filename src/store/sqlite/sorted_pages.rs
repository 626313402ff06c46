//! An index in blocks: a row has the names of a range of hashes, in their order.
//!
//! Names come in their order too, many at a time, so that one write takes in all that belong into a page. A page fills a page,
//! and has always the same size: it is written over where it is.

use rusqlite::{Connection, OptionalExtension, params};

use super::error::corrupt_row;
use super::id_index::IndexEntry;
use crate::store::codec::CodecError;

/// A table of blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortedPages(&'static str);

/// The small index.
pub(super) const SMALL_LEVEL: SortedPages = SortedPages("recent");

/// The large one.
pub(super) const LARGE_LEVEL: SortedPages = SortedPages("name");

/// Six bytes for the hash and six for the number.
const ENTRY_BYTES: usize = 12;

/// With these, and what SQLite puts beside, a page of 4,096 bytes is full.
const PAGE_ENTRIES: usize = 336;

/// A page that is too large becomes blocks of at most this size, which leaves each some room.
const SPLIT_ENTRIES: usize = PAGE_ENTRIES * 2 / 3;

/// No name has this number.
const EMPTY_ENTRY: [u8; ENTRY_BYTES] = [0xff; ENTRY_BYTES];

/// Numbers are below zero as often as above: this is added so that bytes are in the order of numbers.
const NUMBER_BIAS: i64 = 1 << 47;

struct IndexPage {
    first: i64,
    entries: Vec<IndexEntry>,
    /// Where the next one begins.
    end: i64,
}

impl SortedPages {
    /// Adds names, which are in order. One that is there stays.
    pub(super) fn add(
        self,
        connection: &Connection,
        entries: &[IndexEntry],
    ) -> rusqlite::Result<()> {
        self.edit(connection, entries, |there, more| {
            there.extend_from_slice(more);
            // Two runs, each in order: that is quick.
            there.sort();
            there.dedup();
        })
    }

    /// Removes names, which are in order. One that is not there does not matter.
    pub(super) fn remove(
        self,
        connection: &Connection,
        entries: &[IndexEntry],
    ) -> rusqlite::Result<()> {
        self.edit(connection, entries, |there, gone| {
            there.retain(|entry| gone.binary_search(entry).is_err())
        })
    }

    /// Empties the blocks that begin in a range of hashes, and gives what was in them, in order.
    pub(super) fn drain_range(
        self,
        connection: &Connection,
        from: i64,
        to: i64,
    ) -> rusqlite::Result<Vec<IndexEntry>> {
        let (sql, mut entries) = (
            self.sql("SELECT first, body FROM _ WHERE first >= ?1 AND first < ?2"),
            Vec::new(),
        );
        let mut emptied = Vec::new();
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([from, to])?;
        while let Some(row) = rows.next()? {
            decode_page(row.get_ref(1)?.as_blob()?, |entry| entries.push(entry))?;
            emptied.push(row.get(0)?);
        }
        for first in emptied {
            // The row stays: there will be more, and the tree need not change for it.
            self.put(connection, first, &[])?;
        }
        Ok(entries)
    }

    /// Tells of the names of a range of hashes, and of some beside it; `None` when they are in more blocks than these.
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

    fn edit(
        self,
        connection: &Connection,
        mut entries: &[IndexEntry],
        change: impl Fn(&mut Vec<IndexEntry>, &[IndexEntry]),
    ) -> rusqlite::Result<()> {
        while let Some((hash, _)) = entries.first() {
            let mut page = self.load_page(connection, *hash)?;
            let (its, rest) =
                entries.split_at(entries.partition_point(|(hash, _)| *hash < page.end));
            let before = page.entries.len();
            change(&mut page.entries, its);
            if page.entries.len() != before {
                self.write(connection, page.first, &page.entries)?;
            }
            entries = rest;
        }
        Ok(())
    }

    /// The page that a hash belongs into.
    fn load_page(self, connection: &Connection, hash: i64) -> rusqlite::Result<IndexPage> {
        let sql =
            self.sql("SELECT first, body FROM _ WHERE first <= ?1 ORDER BY first DESC LIMIT 1");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([hash])?;
        let (mut first, mut entries) = (0, Vec::with_capacity(PAGE_ENTRIES));
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

    fn sql(self, text: &str) -> String {
        text.replace('_', self.0)
    }
}

/// The numbers under a hash in both indexes, as they are at one moment.
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
        let its = entries
            .iter()
            .skip(from)
            .map(decode_entry)
            .take_while(|entry| entry.0 == hash);
        numbers.extend(its.map(|(_, number)| number));
    }
    Ok(numbers)
}

/// Where to cut so that the first piece has about this size. All names of one hash stay together.
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
        return Err(corrupt_row(CodecError("half a name")));
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
