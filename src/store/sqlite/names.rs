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

use super::blocks::{self, ALL, RECENT};
use super::sieve::Sieve;
use crate::model::TaskId;

/// A hash, and the number of a task or, below zero, of a key.
pub(super) type Name = (i64, i64);

/// How many names gather before they move.
const ROUND: usize = 1 << 15;

/// So many rounds are in the small index: a round has some thirty names for each of its blocks, and so has it for each block of
/// an index of two million.
const ROUNDS: usize = 8;

/// A round moves in this many steps at most: where commits are small, several go by between two of them.
const STEPS: usize = 512;

/// Regions of the sieve with more blocks than this are not learned: most of their bits would be set.
const MOST_LEARNED: usize = 16;

/// The names, shared by the writer and all readers.
#[derive(Debug)]
pub(super) struct Names {
    newest: RwLock<Newest>,
    /// The writer's alone.
    sieve: Mutex<Sieve>,
    round: usize,
}

/// Names that the index does not have.
#[derive(Debug, Default)]
struct Newest {
    /// They gather.
    young: BTreeSet<Name>,
    /// They move.
    old: BTreeSet<Name>,
    /// The last numbers that were given out.
    last: Numbers,
    /// What these were when the old ones began to move.
    mark: Numbers,
    /// The hash up to which those in the small index have gone on into the large one.
    swept: i64,
    /// How many have come since some were moved.
    come: usize,
    /// Whether any has moved, ever.
    indexed: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Numbers {
    task: i64,
    key: i64,
}

/// The hash of an id. It is in files: never changed.
pub(super) fn of_task(id: &TaskId) -> i64 {
    short(id.as_str().bytes().fold(START, mix))
}

/// The hash of a key. It is in files: never changed.
pub(super) fn of_key(scope: i64, text: &str) -> i64 {
    short(
        scope
            .to_be_bytes()
            .into_iter()
            .chain(text.bytes())
            .fold(START, mix),
    )
}

/// FNV-1a.
pub(super) const START: u64 = 0xcbf2_9ce4_8422_2325;

pub(super) fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

/// SQLite keeps 48 bits in six bytes.
fn short(hash: u64) -> i64 {
    (hash >> 16).cast_signed()
}

/// Beyond all hashes.
const HASHES: i64 = 1 << 48;

impl Names {
    /// Takes up the work where it was left.
    pub(super) fn load(connection: &mut Connection) -> rusqlite::Result<Self> {
        Self::load_in_rounds(connection, ROUND)
    }

    pub(super) fn load_in_rounds(
        connection: &mut Connection,
        round: usize,
    ) -> rusqlite::Result<Self> {
        let mark = "SELECT task, key, swept FROM named";
        let (mark, swept) = connection.query_row(mark, (), |row| {
            Ok((
                Numbers {
                    task: row.get(0)?,
                    key: row.get(1)?,
                },
                row.get(2)?,
            ))
        })?;
        let mut newest = Newest {
            last: mark,
            swept,
            ..Newest::default()
        };
        newest.last.task = load(
            connection,
            &mut newest.young,
            mark.task,
            round,
            "task",
            "number, id",
            |row| Ok((of_task(&row.get_ref(1)?.as_str()?.into()), row.get(0)?)),
        )?;
        newest.last.key = load(
            connection,
            &mut newest.young,
            mark.key,
            round,
            "key",
            "number, scope, text",
            |row| {
                Ok((
                    of_key(row.get(1)?, row.get_ref(2)?.as_str()?),
                    -row.get::<_, i64>(0)?,
                ))
            },
        )?;
        let sql = "SELECT EXISTS (SELECT 1 FROM recent) OR EXISTS (SELECT 1 FROM name)";
        newest.indexed = connection.query_row(sql, (), |row| row.get(0))?;
        Ok(Self {
            newest: RwLock::new(newest),
            sieve: Mutex::default(),
            round,
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
    pub(super) fn add(&self, name: Name) {
        self.write().young.insert(name);
        self.sieve().add(name.0);
    }

    /// Drops names whose rows are gone, or which the index has.
    pub(super) fn drop(&self, names: impl IntoIterator<Item = Name>) {
        let mut newest = self.write();
        for name in names {
            if !newest.old.remove(&name) {
                newest.young.remove(&name);
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
        for number in self.newest(hash) {
            if let Some(found) = follow(number)? {
                return Ok(Some(found));
            }
        }
        for number in blocks::find(connection, hash)? {
            if let Some(found) = follow(number)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether it is certain that nobody has a name of this hash. Asked by the writer, before it adds one.
    pub(super) fn is_new(&self, connection: &Connection, hash: i64) -> rusqlite::Result<bool> {
        if !self.read().indexed {
            // All of them are in memory: a small store has no sieve.
            return Ok(self.newest(hash).is_empty());
        }
        let mut sieve = self.sieve();
        if let Some(may_have) = sieve.may_have(hash) {
            return Ok(!may_have);
        }
        let (from, to) = Sieve::around(hash);
        sieve.learn(hash, |tell| {
            let newest = self.read();
            for names in [&newest.young, &newest.old] {
                names
                    .range((from, i64::MIN)..(to, i64::MIN))
                    .for_each(|(hash, _)| tell(*hash));
            }
            let small = RECENT.each(connection, from, to, MOST_LEARNED, |(hash, _)| tell(hash))?;
            let large = ALL.each(connection, from, to, MOST_LEARNED, |(hash, _)| tell(hash))?;
            Ok::<_, rusqlite::Error>(small.and(large))
        })?;
        Ok(sieve.may_have(hash) == Some(false))
    }

    fn newest(&self, hash: i64) -> Vec<i64> {
        let newest = self.read();
        let all = (hash, i64::MIN)..=(hash, i64::MAX);
        newest
            .young
            .range(all.clone())
            .chain(newest.old.range(all))
            .map(|(_, number)| *number)
            .collect()
    }

    /// How many are in memory.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let newest = self.read();
        newest.young.len() + newest.old.len()
    }

    /// Moves some names into the small index, within the transaction that has added so many, and about as many from
    /// there into the large one; gives those to be dropped from memory once that is committed.
    pub(super) fn settle(
        &self,
        connection: &Connection,
        added: usize,
    ) -> rusqlite::Result<Vec<Name>> {
        let Some(come) = self.due(added) else {
            return Ok(Vec::new());
        };
        let newest = self.read();
        // Twice as fast as they come: all have moved when the next round is full.
        let moving: Vec<Name> = newest.old.iter().copied().take(2 * come).collect();
        let is_last = moving.len() == newest.old.len();
        let mark = newest.mark;
        std::mem::drop(newest);
        RECENT.add(connection, &moving)?;
        let swept = self.sweep(connection, moving.len())?;
        if is_last {
            let sql = "UPDATE named SET task = ?1, key = ?2, swept = ?3";
            connection
                .prepare_cached(sql)?
                .execute([mark.task, mark.key, swept])?;
        }
        Ok(moving)
    }

    /// Moves the names of the next hashes from the small index into the large one. Hashes are even, so those that stand
    /// for as many names as have come keep the small index at its size; what they really hold need not be counted.
    fn sweep(&self, connection: &Connection, come: usize) -> rusqlite::Result<i64> {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let step = (HASHES / number(ROUNDS * self.round)).saturating_mul(number(come));
        let from = self.read().swept;
        let to = from.saturating_add(step).min(HASHES);
        ALL.add(connection, &RECENT.take(connection, from, to)?)?;
        // Names of tasks that were removed are still in it.
        self.sieve().forget(from, to);
        // What a transaction that comes to nothing leaves behind goes on the next time round.
        let swept = if to < HASHES { to } else { 0 };
        self.write().swept = swept;
        Ok(swept)
    }

    /// For how many that have come it is time to move others; begins the next round when it is full.
    fn due(&self, added: usize) -> Option<usize> {
        let mut newest = self.write();
        if newest.old.is_empty() && newest.young.len() >= self.round {
            if !newest.indexed {
                self.sieve()
                    .learn_all(newest.young.iter().map(|(hash, _)| *hash));
            }
            newest.old = std::mem::take(&mut newest.young);
            newest.mark = newest.last;
            newest.indexed = true;
        }
        newest.come += added;
        let is_due = !newest.old.is_empty() && newest.come > self.round / STEPS;
        is_due.then(|| std::mem::take(&mut newest.come))
    }

    fn sieve(&self) -> MutexGuard<'_, Sieve> {
        // A region is put there whole.
        self.sieve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Newest> {
        // Every section leaves the names whole.
        self.newest.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Newest> {
        self.newest.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the names of a table behind the mark and gives the last number. Whole rounds go into the index at once, so that
/// a file which never had one, or not for long, does not fill the memory.
fn load(
    connection: &mut Connection,
    young: &mut BTreeSet<Name>,
    mut mark: i64,
    round: usize,
    table: &str,
    columns: &str,
    name: fn(&Row<'_>) -> rusqlite::Result<Name>,
) -> rusqlite::Result<i64> {
    let most = ROUNDS * round;
    let sql =
        format!("SELECT {columns} FROM {table} WHERE number > ?1 ORDER BY number LIMIT {most}");
    loop {
        let mut names = connection
            .prepare(&sql)?
            .query_map([mark], name)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        mark = names.last().map_or(mark, |(_, number)| number.abs());
        if names.len() < round {
            young.extend(names);
            return Ok(mark);
        }
        names.sort_unstable();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        ALL.add(&transaction, &names)?;
        transaction.execute(&format!("UPDATE named SET {table} = ?1"), [mark])?;
        transaction.commit()?;
    }
}
