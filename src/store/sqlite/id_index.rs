//! Where the task of an id is, and the key of a text.
//!
//! Both are random. An index that took each as it comes would write a page of its own for nearly every new task. So the
//! newest names are in memory, and move into a small index in its own order, many to a page, and from there in the same way
//! into the large one. Nothing is lost with the memory: the rows they name are in the file, behind a mark that says how
//! far the indexes reach. A sieve knows most of the hashes that nobody has, so that a new name costs no look for it.
//!
//! A name is a hint. Whoever follows one compares what it finds with what it looks for.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rusqlite::{Connection, Row, TransactionBehavior};

use super::id_filter::IdFilter;
use super::sorted_pages::{self, LARGE_LEVEL, SMALL_LEVEL};
use crate::model::TaskId;

/// A hash, and the number of a task or, below zero, of a key.
pub(super) type IndexEntry = (i64, i64);

/// How many names gather before they move.
const FLUSH_ENTRIES: usize = 1 << 15;

/// So many rounds are in the small index: a round has some thirty names for each of its blocks, and so has it for each block of
/// an index of two million.
const SMALL_LEVEL_FLUSHES: usize = 8;

/// A round moves in this many steps at most: where commits are small, several go by between two of them.
const MAX_FLUSH_STEPS: usize = 512;

/// Regions of the sieve with more blocks than this are not learned: most of their bits would be set.
const MAX_REGION_PAGES: usize = 16;

/// The names, shared by the writer and all readers.
#[derive(Debug)]
pub(super) struct IdIndex {
    buffer: RwLock<IndexBuffer>,
    /// The writer's alone.
    filter: Mutex<IdFilter>,
    flush_entries: usize,
}

/// Names that the index does not have.
#[derive(Debug, Default)]
struct IndexBuffer {
    /// They gather.
    filling: BTreeSet<IndexEntry>,
    /// They move.
    flushing: BTreeSet<IndexEntry>,
    /// The last numbers that were given out.
    last: RowNumbers,
    /// What these were when the old ones began to move.
    watermark: RowNumbers,
    /// The hash up to which those in the small index have gone on into the large one.
    merged_to: i64,
    /// How many have come since some were moved.
    added: usize,
    /// Whether any has moved, ever.
    has_pages: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct RowNumbers {
    task: i64,
    key: i64,
}

/// The hash of an id. It is in files: never changed.
pub(super) fn hash_task_id(id: &TaskId) -> i64 {
    truncate_hash(id.as_str().bytes().fold(FNV_OFFSET_BASIS, fnv1a_step))
}

/// The hash of a key. It is in files: never changed.
pub(super) fn hash_key(scope: i64, text: &str) -> i64 {
    truncate_hash(
        scope
            .to_be_bytes()
            .into_iter()
            .chain(text.bytes())
            .fold(FNV_OFFSET_BASIS, fnv1a_step),
    )
}

/// FNV-1a.
pub(super) const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

pub(super) fn fnv1a_step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

/// SQLite keeps 48 bits in six bytes.
fn truncate_hash(hash: u64) -> i64 {
    (hash >> 16).cast_signed()
}

/// Beyond all hashes.
const HASH_SPACE: i64 = 1 << 48;

impl IdIndex {
    /// Takes up the work where it was left.
    pub(super) fn load(connection: &mut Connection) -> rusqlite::Result<Self> {
        Self::load_with_threshold(connection, FLUSH_ENTRIES)
    }

    pub(super) fn load_with_threshold(
        connection: &mut Connection,
        flush_entries: usize,
    ) -> rusqlite::Result<Self> {
        let watermark = "SELECT task, key, swept FROM named";
        let (watermark, merged_to) = connection.query_row(watermark, (), |row| {
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
            buffer: RwLock::new(buffer),
            filter: Mutex::default(),
            flush_entries,
        })
    }

    /// A number for a new task.
    pub(super) fn next_task(&self) -> i64 {
        let last = &mut self.write().last.task;
        *last += 1;
        *last
    }

    /// A number for a new key.
    pub(super) fn next_key(&self) -> i64 {
        let last = &mut self.write().last.key;
        *last += 1;
        *last
    }

    /// Adds the name of a row that is about to be committed. Who follows it too early finds nothing there.
    pub(super) fn add(&self, entry: IndexEntry) {
        self.write().filling.insert(entry);
        self.filter().add(entry.0);
    }

    /// Drops names whose rows are gone, or which the index has.
    pub(super) fn forget(&self, entries: impl IntoIterator<Item = IndexEntry>) {
        let mut buffer = self.write();
        for entry in entries {
            if !buffer.flushing.remove(&entry) {
                buffer.filling.remove(&entry);
            }
        }
    }

    /// The first of the numbers under a hash for which `follow` finds what it looks for.
    pub(super) fn find<T>(
        &self,
        connection: &Connection,
        hash: i64,
        mut follow: impl FnMut(i64) -> rusqlite::Result<Option<T>>,
    ) -> rusqlite::Result<Option<T>> {
        // Memory first: what has moved meanwhile is in an index by now.
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

    /// Whether it is certain that nobody has a name of this hash. Asked by the writer, before it adds one.
    pub(super) fn is_new(&self, connection: &Connection, hash: i64) -> rusqlite::Result<bool> {
        if !self.read().has_pages {
            // All of them are in memory: a small store has no sieve.
            return Ok(self.buffered(hash).is_empty());
        }
        let mut filter = self.filter();
        if let Some(may_contain) = filter.may_contain(hash) {
            return Ok(!may_contain);
        }
        let (from, to) = IdFilter::region_range(hash);
        filter.load_region(hash, |visit| {
            let buffer = self.read();
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

    fn buffered(&self, hash: i64) -> Vec<i64> {
        let buffer = self.read();
        let all = (hash, i64::MIN)..=(hash, i64::MAX);
        buffer
            .filling
            .range(all.clone())
            .chain(buffer.flushing.range(all))
            .map(|(_, number)| *number)
            .collect()
    }

    /// How many are in memory.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let buffer = self.read();
        buffer.filling.len() + buffer.flushing.len()
    }

    /// Moves some names into the small index, within the transaction that has added so many, and about as many from
    /// there into the large one; gives those to be dropped from memory once that is committed.
    pub(super) fn flush_step(
        &self,
        connection: &Connection,
        added: usize,
    ) -> rusqlite::Result<Vec<IndexEntry>> {
        let Some(arrived) = self.begin_step(added) else {
            return Ok(Vec::new());
        };
        let buffer = self.read();
        // Twice as fast as they come: all have moved when the next round is full.
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

    /// Moves the names of the next hashes from the small index into the large one. Hashes are even, so those that stand
    /// for as many names as have come keep the small index at its size; what they really hold need not be counted.
    fn merge_step(&self, connection: &Connection, moved: usize) -> rusqlite::Result<i64> {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let step = (HASH_SPACE / number(SMALL_LEVEL_FLUSHES * self.flush_entries))
            .saturating_mul(number(moved));
        let from = self.read().merged_to;
        let to = from.saturating_add(step).min(HASH_SPACE);
        LARGE_LEVEL.add(connection, &SMALL_LEVEL.drain_range(connection, from, to)?)?;
        // Names of tasks that were removed are still in it.
        self.filter().invalidate(from, to);
        // What a transaction that comes to nothing leaves behind goes on the next time round.
        let merged_to = if to < HASH_SPACE { to } else { 0 };
        self.write().merged_to = merged_to;
        Ok(merged_to)
    }

    /// For how many that have come it is time to move others; begins the next round when it is full.
    fn begin_step(&self, added: usize) -> Option<usize> {
        let mut buffer = self.write();
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
        // A region is put there whole.
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, IndexBuffer> {
        // Every section leaves the names whole.
        self.buffer.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, IndexBuffer> {
        self.buffer.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the names of a table behind the mark and gives the last number. Whole rounds go into the index at once, so that
/// a file which never had one, or not for long, does not fill the memory.
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
