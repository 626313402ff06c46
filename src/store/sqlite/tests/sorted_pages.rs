//! Sorted pages: add, remove, split, drain and scan.

use std::collections::BTreeSet;

use super::super::id_index::IndexEntry;
use super::super::sorted_pages::{self, LARGE_LEVEL, SMALL_LEVEL};
use super::*;

/// Returns a database with the tables of both levels.
fn indexes() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for table in ["recent", "name"] {
        let sql =
            format!("CREATE TABLE {table} (first INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT");
        connection.execute_batch(&sql).unwrap();
    }
    connection
}

fn all(connection: &Connection) -> Vec<IndexEntry> {
    let mut entries = Vec::new();
    LARGE_LEVEL
        .scan(connection, 0, i64::MAX, usize::MAX, |entry| {
            entries.push(entry)
        })
        .unwrap()
        .unwrap();
    entries
}

/// Returns the sizes of the pages in entries.
fn lengths(connection: &Connection) -> Vec<i64> {
    let mut statement = connection
        .prepare("SELECT length(body) FROM name ORDER BY first")
        .unwrap();
    let lengths = statement.query_map((), |row| row.get::<_, i64>(0)).unwrap();
    lengths.map(|length| length.unwrap() / 12).collect()
}

fn sorted(entries: impl IntoIterator<Item = IndexEntry>) -> Vec<IndexEntry> {
    entries
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[test]
fn adds_and_removes_entries() {
    let connection = indexes();
    let mut there = BTreeSet::new();
    // Hashes repeat, also with other row numbers.
    let mut seed = 7_i64;
    let mut next = || {
        seed = (seed.wrapping_mul(25_214_903_917) + 11) & ((1 << 48) - 1);
        (seed >> 36 << 20, seed % 5 - 2)
    };
    for round in 0..60 {
        let more = sorted((0..400).map(|_| next()));
        LARGE_LEVEL.add(&connection, &more).unwrap();
        there.extend(&more);
        let gone = sorted(
            there
                .iter()
                .copied()
                .skip(round)
                .step_by(3)
                .collect::<Vec<_>>(),
        );
        LARGE_LEVEL.remove(&connection, &gone).unwrap();
        there.retain(|entry| gone.binary_search(entry).is_err());
        assert_eq!(
            all(&connection),
            there.iter().copied().collect::<Vec<_>>(),
            "round {round}"
        );
    }
    assert!(lengths(&connection).iter().all(|length| *length == 336));
    for (hash, _) in there.iter().step_by(7) {
        let expected: Vec<_> = there
            .range((*hash, i64::MIN)..=(*hash, i64::MAX))
            .map(|entry| entry.1)
            .collect();
        assert_eq!(sorted_pages::find(&connection, *hash).unwrap(), expected);
        assert!(
            sorted_pages::find(&connection, hash + 1)
                .unwrap()
                .is_empty()
        );
    }
    LARGE_LEVEL.remove(&connection, &sorted(there)).unwrap();
    assert!(lengths(&connection).is_empty(), "no empty page is left");
}

#[test]
fn a_full_page_is_split_and_entries_are_unique() {
    let connection = indexes();
    let entries: Vec<IndexEntry> = (0..336).map(|n| (n * 10, n)).collect();
    LARGE_LEVEL.add(&connection, &entries).unwrap();
    LARGE_LEVEL.add(&connection, &entries).unwrap();
    assert_eq!(
        (lengths(&connection), all(&connection)),
        (vec![336], entries)
    );
    LARGE_LEVEL.add(&connection, &[(5, 1)]).unwrap();
    assert_eq!(
        (lengths(&connection), all(&connection).len()),
        (vec![336, 336], 337)
    );
}

/// Callers choose their keys, so they can make hashes collide.
#[test]
fn entries_with_the_same_hash_stay_together() {
    let connection = indexes();
    let same: Vec<IndexEntry> = (0..1_000).map(|number| (500, number)).collect();
    let with_suffix: Vec<IndexEntry> = (0..1_000).map(|hash| (hash, -7)).collect();
    LARGE_LEVEL.add(&connection, &same).unwrap();
    LARGE_LEVEL.add(&connection, &with_suffix).unwrap();
    assert_eq!(
        all(&connection),
        sorted(same.iter().chain(&with_suffix).copied())
    );
    let found = sorted_pages::find(&connection, 500).unwrap();
    assert_eq!(found, with_first(-7, 0..1_000));
    assert_eq!(sorted_pages::find(&connection, 499).unwrap(), [-7]);
    assert_eq!(sorted_pages::find(&connection, 501).unwrap(), [-7]);
}

fn with_first(first: i64, rest: std::ops::Range<i64>) -> Vec<i64> {
    std::iter::once(first).chain(rest).collect()
}

#[test]
fn drained_pages_are_reused() {
    let connection = indexes();
    let entries: Vec<IndexEntry> = (0..1_000).map(|n| (n * 10, n)).collect();
    SMALL_LEVEL.add(&connection, &entries).unwrap();
    let mut taken = SMALL_LEVEL.drain_range(&connection, 0, 5_000).unwrap();
    assert!(
        taken.len() >= 500 && taken.len() < 1_000,
        "{} drained",
        taken.len()
    );
    assert!(
        SMALL_LEVEL
            .drain_range(&connection, 0, 5_000)
            .unwrap()
            .is_empty()
    );
    SMALL_LEVEL.add(&connection, &[(7, 7)]).unwrap();
    let rest = SMALL_LEVEL.drain_range(&connection, 0, i64::MAX).unwrap();
    assert_eq!(rest.first(), Some(&(7, 7)));
    taken.extend(rest.into_iter().skip(1));
    assert_eq!(taken, entries);
}

#[test]
fn scan_visits_a_range_unless_it_has_too_many_pages() {
    let connection = indexes();
    let scan = |from, to, max_pages| {
        let mut entries = Vec::new();
        let all = LARGE_LEVEL
            .scan(&connection, from, to, max_pages, |entry| {
                entries.push(entry)
            })
            .unwrap();
        all.map(|()| entries)
    };
    assert_eq!(scan(0, 100, 1), Some(Vec::new()));
    let entries: Vec<IndexEntry> = (0..1_000).map(|n| (n * 10 + 3, n)).collect();
    LARGE_LEVEL.add(&connection, &entries).unwrap();
    let blocks = lengths(&connection).len();
    assert_eq!(scan(0, i64::MAX, blocks), Some(entries.clone()));
    assert_eq!(scan(0, i64::MAX, blocks - 1), None);
    let some = scan(4_000, 4_100, 2).unwrap();
    for entry in entries
        .iter()
        .filter(|(hash, _)| (4_000..4_100).contains(hash))
    {
        assert!(some.contains(entry), "{entry:?}");
    }
}

#[test]
fn a_damaged_page_is_reported() {
    let connection = indexes();
    connection
        .execute("INSERT INTO name VALUES (0, x'0102')", ())
        .unwrap();
    assert!(
        LARGE_LEVEL
            .add(&connection, &[(5, 5)])
            .unwrap_err()
            .to_string()
            .contains("incomplete index entry")
    );
}
