//! Index from hashed task ids and idempotency keys to row numbers.
//!
//! Both are random, so an index that is updated row by row writes one page for nearly every new task. This one is a
//! log-structured merge tree: new entries are buffered in memory, flushed in sorted order into a small level on disk, and
//! merged from there into a large level. Many entries then share a page.
//!
//! A crash loses nothing: the indexed rows are in the file, and a watermark records how far the levels reach. On start the
//! rows above it are read into the buffer. [`IdFilter`] answers "certainly new" for most new ids without an index lookup.
//!
//! An entry is a hint: the caller compares the row it finds with the id it looks for.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use rusqlite::{Connection, Row, TransactionBehavior};

use super::id_filter::IdFilter;
use super::sorted_pages::{self, LARGE_LEVEL, SMALL_LEVEL};
use crate::model::TaskId;
use crate::rt::lock;

/// Hash and row number: positive for a task, negative for a key.
pub(super) type IndexEntry = (i64, i64);

/// Number of buffered entries that starts a flush.
const FLUSH_ENTRIES: usize = 1 << 15;

/// Size of the small level in flushes. A flush then has about thirty entries for each page of the small level. With two
/// million entries in the large level, a merge has as many for each of its pages.
const SMALL_LEVEL_FLUSHES: usize = 8;

/// Maximum number of steps of a flush. If commits are small, several pass between two steps.
const MAX_FLUSH_STEPS: usize = 512;

/// Maximum number of pages to read for a filter region. With more entries, most of its bits would be set.
const MAX_REGION_PAGES: usize = 16;

/// The index, shared by the writer and all readers.
#[derive(Debug)]
pub(super) struct IdIndex {
    buffer: Mutex<IndexBuffer>,
    /// Used by the writer only.
    filter: Mutex<IdFilter>,
    flush_entries: usize,
}

/// Entries that are not in the levels on disk.
#[derive(Debug, Default)]
struct IndexBuffer {
    /// Entries that wait for the next flush.
    filling: BTreeSet<IndexEntry>,
    /// Entries of the current flush.
    flushing: BTreeSet<IndexEntry>,
    /// Row numbers given out last.
    last: RowNumbers,
    /// Value of `last` when the current flush began.
    watermark: RowNumbers,
    /// Hash up to which the small level is merged into the large one, in the current pass.
    merged_to: i64,
    /// Entries added since the last step.
    added: usize,
    /// Whether the levels on disk have entries.
    has_pages: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct RowNumbers {
    task: i64,
    key: i64,
}

/// Returns the hash of a task id. Hashes are on disk: do not change the function.
pub(super) fn hash_task_id(id: &TaskId) -> i64 {
    truncate_hash(id.as_str().bytes().fold(FNV_OFFSET_BASIS, fnv1a_step))
}

/// Returns the hash of an idempotency key. Hashes are on disk: do not change the function.
pub(super) fn hash_key(scope: i64, text: &str) -> i64 {
    truncate_hash(
        scope
            .to_be_bytes()
            .into_iter()
            .chain(text.bytes())
            .fold(FNV_OFFSET_BASIS, fnv1a_step),
    )
}

/// Initial value of FNV-1a.
pub(super) const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds a byte to an FNV-1a hash.
pub(super) fn fnv1a_step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

/// Keeps the upper 48 bits, which SQLite stores in six bytes.
fn truncate_hash(hash: u64) -> i64 {
    (hash >> 16).cast_signed()
}

/// Number of possible hashes.
const HASH_SPACE: i64 = 1 << 48;

impl IdIndex {
    /// Loads the index of a database: reads the rows above the watermark into the buffer.
    pub(super) fn load(connection: &mut Connection) -> rusqlite::Result<Self> {
        Self::load_with_threshold(connection, FLUSH_ENTRIES)
    }

    pub(super) fn load_with_threshold(
        connection: &mut Connection,
        flush_entries: usize,
    ) -> rusqlite::Result<Self> {
        let sql = "SELECT task, key, swept FROM named";
        let (watermark, merged_to) = connection.query_row(sql, (), |row| {
            Ok((
                RowNumbers {
                    task: row.get(0)?,
                    key: row.get(1)?,
                },
                row.get(2)?,
            ))
        })?;
        let mut buffer = IndexBuffer {
            last: watermark,
            merged_to,
            ..IndexBuffer::default()
        };
        buffer.last.task = load_table(
            connection,
            &mut buffer.filling,
            watermark.task,
            flush_entries,
            "task",
            "number, id",
            |row| Ok((hash_task_id(&row.get_ref(1)?.as_str()?.into()), row.get(0)?)),
        )?;
        buffer.last.key = load_table(
            connection,
            &mut buffer.filling,
            watermark.key,
            flush_entries,
            "key",
            "number, scope, text",
            |row| {
                Ok((
                    hash_key(row.get(1)?, row.get_ref(2)?.as_str()?),
                    -row.get::<_, i64>(0)?,
                ))
            },
        )?;
        let sql = "SELECT EXISTS (SELECT 1 FROM recent) OR EXISTS (SELECT 1 FROM name)";
        buffer.has_pages = connection.query_row(sql, (), |row| row.get(0))?;
        Ok(Self {
            buffer: Mutex::new(buffer),
            filter: Mutex::default(),
            flush_entries,
        })
    }

    /// Returns an unused row number for a task.
    pub(super) fn next_task(&self) -> i64 {
        let last = &mut self.buffer().last.task;
        *last += 1;
        *last
    }

    /// Returns an unused row number for a key.
    pub(super) fn next_key(&self) -> i64 {
        let last = &mut self.buffer().last.key;
        *last += 1;
        *last
    }

    /// Adds the entry of a row that is about to be committed. A reader that follows it earlier finds no row.
    pub(super) fn add(&self, entry: IndexEntry) {
        self.buffer().filling.insert(entry);
        self.filter().add(entry.0);
    }

    /// Removes entries from the buffer: their rows were deleted, or they are on disk.
    pub(super) fn forget(&self, entries: impl IntoIterator<Item = IndexEntry>) {
        let mut buffer = self.buffer();
        for entry in entries {
            if !buffer.flushing.remove(&entry) {
                buffer.filling.remove(&entry);
            }
        }
    }

    /// Calls `follow` with the row numbers of a hash and returns its first result.
    pub(super) fn find<T>(
        &self,
        connection: &Connection,
        hash: i64,
        mut follow: impl FnMut(i64) -> rusqlite::Result<Option<T>>,
    ) -> rusqlite::Result<Option<T>> {
        // Buffer first: an entry that is flushed in between is on disk when the levels are read.
        for number in self.buffered(hash) {
            if let Some(found) = follow(number)? {
                return Ok(Some(found));
            }
        }
        for number in sorted_pages::find(connection, hash)? {
            if let Some(found) = follow(number)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns whether certainly no entry has this hash. Only the writer may call it, before it adds an entry.
    pub(super) fn is_new(&self, connection: &Connection, hash: i64) -> rusqlite::Result<bool> {
        if !self.buffer().has_pages {
            // All entries are in the buffer: a small store needs no filter.
            return Ok(self.buffered(hash).is_empty());
        }
        let mut filter = self.filter();
        if let Some(may_contain) = filter.may_contain(hash) {
            return Ok(!may_contain);
        }
        let (from, to) = IdFilter::region_range(hash);
        filter.load_region(hash, |visit| {
            let buffer = self.buffer();
            for entries in [&buffer.filling, &buffer.flushing] {
                entries
                    .range((from, i64::MIN)..(to, i64::MIN))
                    .for_each(|(hash, _)| visit(*hash));
            }
            let small = SMALL_LEVEL.scan(connection, from, to, MAX_REGION_PAGES, |(hash, _)| {
                visit(hash)
            })?;
            let large = LARGE_LEVEL.scan(connection, from, to, MAX_REGION_PAGES, |(hash, _)| {
                visit(hash)
            })?;
            Ok::<_, rusqlite::Error>(small.and(large))
        })?;
        Ok(filter.may_contain(hash) == Some(false))
    }

    /// Returns the row numbers of a hash in the buffer.
    fn buffered(&self, hash: i64) -> Vec<i64> {
        let buffer = self.buffer();
        let all = (hash, i64::MIN)..=(hash, i64::MAX);
        buffer
            .filling
            .range(all.clone())
            .chain(buffer.flushing.range(all))
            .map(|(_, number)| *number)
            .collect()
    }

    /// Returns the number of buffered entries.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let buffer = self.buffer();
        buffer.filling.len() + buffer.flushing.len()
    }

    /// Performs one step of the flush inside a transaction that has added `added` entries: moves entries from the buffer into
    /// the small level, and about as many from there into the large level.
    ///
    /// Returns the moved entries. The caller removes them from the buffer after the commit.
    pub(super) fn flush_step(
        &self,
        connection: &Connection,
        added: usize,
    ) -> rusqlite::Result<Vec<IndexEntry>> {
        let Some(arrived) = self.begin_step(added) else {
            return Ok(Vec::new());
        };
        let buffer = self.buffer();
        // Twice the arrival rate: the flush ends before the buffer is full again.
        let moving: Vec<IndexEntry> = buffer.flushing.iter().copied().take(2 * arrived).collect();
        let is_last = moving.len() == buffer.flushing.len();
        let watermark = buffer.watermark;
        std::mem::drop(buffer);
        SMALL_LEVEL.add(connection, &moving)?;
        let merged_to = self.merge_step(connection, moving.len())?;
        if is_last {
            let sql = "UPDATE named SET task = ?1, key = ?2, swept = ?3";
            connection
                .prepare_cached(sql)?
                .execute([watermark.task, watermark.key, merged_to])?;
        }
        Ok(moving)
    }

    /// Merges the next range of hashes from the small level into the large level. Hashes are uniform, so a range in
    /// proportion to the moved entries keeps the small level at its size.
    fn merge_step(&self, connection: &Connection, moved: usize) -> rusqlite::Result<i64> {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let step = (HASH_SPACE / number(SMALL_LEVEL_FLUSHES * self.flush_entries))
            .saturating_mul(number(moved));
        let from = self.buffer().merged_to;
        let to = from.saturating_add(step).min(HASH_SPACE);
        LARGE_LEVEL.add(connection, &SMALL_LEVEL.drain_range(connection, from, to)?)?;
        // The filter still has the bits of removed entries.
        self.filter().invalidate(from, to);
        // After a rollback the range stays in the small level until the next pass.
        let merged_to = if to < HASH_SPACE { to } else { 0 };
        self.buffer().merged_to = merged_to;
        Ok(merged_to)
    }

    /// Starts a flush if the buffer is full. Returns the entries added since the last step if a step is due.
    fn begin_step(&self, added: usize) -> Option<usize> {
        let mut buffer = self.buffer();
        if buffer.flushing.is_empty() && buffer.filling.len() >= self.flush_entries {
            if !buffer.has_pages {
                self.filter()
                    .load_all(buffer.filling.iter().map(|(hash, _)| *hash));
            }
            buffer.flushing = std::mem::take(&mut buffer.filling);
            buffer.watermark = buffer.last;
            buffer.has_pages = true;
        }
        buffer.added += added;
        let is_due =
            !buffer.flushing.is_empty() && buffer.added > self.flush_entries / MAX_FLUSH_STEPS;
        is_due.then(|| std::mem::take(&mut buffer.added))
    }

    fn filter(&self) -> MutexGuard<'_, IdFilter> {
        lock(&self.filter)
    }

    fn buffer(&self) -> MutexGuard<'_, IndexBuffer> {
        lock(&self.buffer)
    }
}

/// Reads the entries of a table above the watermark into the buffer and returns the last row number.
///
/// Large amounts go directly into the large level, so that a file without an index does not fill the memory.
fn load_table(
    connection: &mut Connection,
    filling: &mut BTreeSet<IndexEntry>,
    mut watermark: i64,
    flush_entries: usize,
    table: &str,
    columns: &str,
    entry: fn(&Row<'_>) -> rusqlite::Result<IndexEntry>,
) -> rusqlite::Result<i64> {
    let page_size = SMALL_LEVEL_FLUSHES * flush_entries;
    let sql = format!(
        "SELECT {columns} FROM {table} WHERE number > ?1 ORDER BY number LIMIT {page_size}"
    );
    loop {
        let mut entries = connection
            .prepare(&sql)?
            .query_map([watermark], entry)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        watermark = entries.last().map_or(watermark, |(_, number)| number.abs());
        if entries.len() < flush_entries {
            filling.extend(entries);
            return Ok(watermark);
        }
        entries.sort_unstable();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        LARGE_LEVEL.add(&transaction, &entries)?;
        transaction.execute(&format!("UPDATE named SET {table} = ?1"), [watermark])?;
        transaction.commit()?;
    }
}
