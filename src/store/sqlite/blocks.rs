//! An index in blocks: a row has the names of a range of hashes, in their order.
//!
//! Names come in their order too, many at a time, so that one write takes in all that belong into a block. A block fills a page,
//! and has always the same size: it is written over where it is.

use rusqlite::{Connection, OptionalExtension, params};

use super::error::damaged;
use super::names::Name;
use crate::store::codec::Corrupt;

/// A table of blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks(&'static str);

/// The small index.
pub(super) const RECENT: Blocks = Blocks("recent");

/// The large one.
pub(super) const ALL: Blocks = Blocks("name");

/// Six bytes for the hash and six for the number.
const NAME: usize = 12;

/// With these, and what SQLite puts beside, a page of 4,096 bytes is full.
const MOST: usize = 336;

/// A block that is too large becomes blocks of at most this size, which leaves each some room.
const ROOMY: usize = MOST * 2 / 3;

/// No name has this number.
const NOTHING: [u8; NAME] = [0xff; NAME];

/// Numbers are below zero as often as above: this is added so that bytes are in the order of numbers.
const MIDDLE: i64 = 1 << 47;

struct Block {
    first: i64,
    names: Vec<Name>,
    /// Where the next one begins.
    end: i64,
}

impl Blocks {
    /// Adds names, which are in order. One that is there stays.
    pub(super) fn add(self, connection: &Connection, names: &[Name]) -> rusqlite::Result<()> {
        self.edit(connection, names, |there, more| {
            there.extend_from_slice(more);
            // Two runs, each in order: that is quick.
            there.sort();
            there.dedup();
        })
    }

    /// Removes names, which are in order. One that is not there does not matter.
    pub(super) fn remove(self, connection: &Connection, names: &[Name]) -> rusqlite::Result<()> {
        self.edit(connection, names, |there, gone| {
            there.retain(|name| gone.binary_search(name).is_err())
        })
    }

    /// Empties the blocks that begin in a range of hashes, and gives what was in them, in order.
    pub(super) fn take(
        self,
        connection: &Connection,
        from: i64,
        to: i64,
    ) -> rusqlite::Result<Vec<Name>> {
        let (sql, mut names) = (
            self.sql("SELECT first, body FROM _ WHERE first >= ?1 AND first < ?2"),
            Vec::new(),
        );
        let mut emptied = Vec::new();
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([from, to])?;
        while let Some(row) = rows.next()? {
            read(row.get_ref(1)?.as_blob()?, |name| names.push(name))?;
            emptied.push(row.get(0)?);
        }
        for first in emptied {
            // The row stays: there will be more, and the tree need not change for it.
            self.put(connection, first, &[])?;
        }
        Ok(names)
    }

    /// Tells of the names of a range of hashes, and of some beside it; `None` when they are in more blocks than these.
    pub(super) fn each(
        self,
        connection: &Connection,
        from: i64,
        to: i64,
        most: usize,
        mut tell: impl FnMut(Name),
    ) -> rusqlite::Result<Option<()>> {
        let sql = self.sql(
            "SELECT body FROM _ WHERE first >= (SELECT ifnull(max(first), 0) FROM _ WHERE first <= ?1) AND first < ?2",
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([from, to])?;
        for _ in 0..most {
            match rows.next()? {
                Some(row) => read(row.get_ref(0)?.as_blob()?, &mut tell)?,
                None => return Ok(Some(())),
            }
        }
        Ok(rows.next()?.is_none().then_some(()))
    }

    fn edit(
        self,
        connection: &Connection,
        mut names: &[Name],
        change: impl Fn(&mut Vec<Name>, &[Name]),
    ) -> rusqlite::Result<()> {
        while let Some((hash, _)) = names.first() {
            let mut block = self.block(connection, *hash)?;
            let (its, rest) = names.split_at(names.partition_point(|(hash, _)| *hash < block.end));
            let before = block.names.len();
            change(&mut block.names, its);
            if block.names.len() != before {
                self.write(connection, block.first, &block.names)?;
            }
            names = rest;
        }
        Ok(())
    }

    /// The block that a hash belongs into.
    fn block(self, connection: &Connection, hash: i64) -> rusqlite::Result<Block> {
        let sql =
            self.sql("SELECT first, body FROM _ WHERE first <= ?1 ORDER BY first DESC LIMIT 1");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([hash])?;
        let (mut first, mut names) = (0, Vec::with_capacity(MOST));
        if let Some(row) = rows.next()? {
            first = row.get(0)?;
            read(row.get_ref(1)?.as_blob()?, |name| names.push(name))?;
        }
        let sql = self.sql("SELECT first FROM _ WHERE first > ?1 ORDER BY first LIMIT 1");
        let end = connection
            .prepare_cached(&sql)?
            .query_row([hash], |row| row.get(0))
            .optional()?;
        Ok(Block {
            first,
            names,
            end: end.unwrap_or(i64::MAX),
        })
    }

    fn write(
        self,
        connection: &Connection,
        mut first: i64,
        names: &[Name],
    ) -> rusqlite::Result<()> {
        if names.is_empty() {
            let sql = self.sql("DELETE FROM _ WHERE first = ?1");
            connection.prepare_cached(&sql)?.execute([first])?;
            return Ok(());
        }
        let mut rest = names;
        let size = if names.len() > MOST { ROOMY } else { MOST };
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(cut(rest, size));
            self.put(connection, first, piece)?;
            first = others.first().map_or(first, |(hash, _)| *hash);
            rest = others;
        }
        Ok(())
    }

    fn put(self, connection: &Connection, first: i64, names: &[Name]) -> rusqlite::Result<()> {
        let sql = self.sql("INSERT OR REPLACE INTO _ (first, body) VALUES (?1, ?2)");
        connection
            .prepare_cached(&sql)?
            .execute(params![first, body(names)])?;
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
        let (names, _) = row.get_ref(0)?.as_blob()?.as_chunks::<NAME>();
        let from = names.partition_point(|name| unpack(name).0 < hash);
        let its = names
            .iter()
            .skip(from)
            .map(unpack)
            .take_while(|name| name.0 == hash);
        numbers.extend(its.map(|(_, number)| number));
    }
    Ok(numbers)
}

/// Where to cut so that the first piece has about this size. All names of one hash stay together.
fn cut(names: &[Name], size: usize) -> usize {
    let Some((hash, _)) = names.get(size) else {
        return names.len();
    };
    match names.partition_point(|(other, _)| other < hash) {
        0 => names.partition_point(|(other, _)| other <= hash),
        cut => cut,
    }
}

fn body(names: &[Name]) -> Vec<u8> {
    let mut body = Vec::with_capacity(MOST.max(names.len()) * NAME);
    for (hash, number) in names {
        body.extend_from_slice(&hash.to_be_bytes()[2..]);
        body.extend_from_slice(&(number + MIDDLE).to_be_bytes()[2..]);
    }
    body.resize(body.len().max(MOST * NAME), 0xff);
    body
}

fn read(body: &[u8], tell: impl FnMut(Name)) -> rusqlite::Result<()> {
    let (names, rest) = body.as_chunks::<NAME>();
    if !rest.is_empty() {
        return Err(damaged(Corrupt("half a name")));
    }
    names
        .iter()
        .take_while(|name| **name != NOTHING)
        .map(unpack)
        .for_each(tell);
    Ok(())
}

fn unpack(name: &[u8; NAME]) -> Name {
    let [a, b, c, d, e, f, u, v, w, x, y, z] = *name;
    let hash = i64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    (hash, i64::from_be_bytes([0, 0, u, v, w, x, y, z]) - MIDDLE)
}
