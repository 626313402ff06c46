//! An index in blocks has what was added and not removed, however its blocks were cut.

use std::collections::BTreeSet;

use super::super::blocks::{self, ALL, RECENT};
use super::super::names::Name;
use super::*;

/// Both indexes, and nothing else.
fn indexes() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    for table in ["recent", "name"] {
        let sql =
            format!("CREATE TABLE {table} (first INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT");
        connection.execute_batch(&sql).unwrap();
    }
    connection
}

fn all(connection: &Connection) -> Vec<Name> {
    let mut names = Vec::new();
    ALL.each(connection, 0, i64::MAX, usize::MAX, |name| names.push(name))
        .unwrap()
        .unwrap();
    names
}

/// The lengths of the blocks, in names.
fn lengths(connection: &Connection) -> Vec<i64> {
    let mut statement = connection
        .prepare("SELECT length(body) FROM name ORDER BY first")
        .unwrap();
    let lengths = statement.query_map((), |row| row.get::<_, i64>(0)).unwrap();
    lengths.map(|length| length.unwrap() / 12).collect()
}

fn in_order(names: impl IntoIterator<Item = Name>) -> Vec<Name> {
    names
        .into_iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[test]
fn names_come_and_go_and_the_others_stay() {
    let connection = indexes();
    let mut there = BTreeSet::new();
    // The same hashes come again, under other numbers too.
    let mut seed = 7_i64;
    let mut next = || {
        seed = (seed.wrapping_mul(25_214_903_917) + 11) & ((1 << 48) - 1);
        (seed >> 36 << 20, seed % 5 - 2)
    };
    for round in 0..60 {
        let more = in_order((0..400).map(|_| next()));
        ALL.add(&connection, &more).unwrap();
        there.extend(&more);
        let gone = in_order(
            there
                .iter()
                .copied()
                .skip(round)
                .step_by(3)
                .collect::<Vec<_>>(),
        );
        ALL.remove(&connection, &gone).unwrap();
        there.retain(|name| gone.binary_search(name).is_err());
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
            .map(|name| name.1)
            .collect();
        assert_eq!(blocks::find(&connection, *hash).unwrap(), expected);
        assert!(blocks::find(&connection, hash + 1).unwrap().is_empty());
    }
    ALL.remove(&connection, &in_order(there)).unwrap();
    assert!(
        lengths(&connection).is_empty(),
        "no block is left without a name"
    );
}

#[test]
fn a_block_that_is_full_becomes_two_and_a_name_is_there_once() {
    let connection = indexes();
    let names: Vec<Name> = (0..336).map(|n| (n * 10, n)).collect();
    ALL.add(&connection, &names).unwrap();
    ALL.add(&connection, &names).unwrap();
    assert_eq!((lengths(&connection), all(&connection)), (vec![336], names));
    ALL.add(&connection, &[(5, 1)]).unwrap();
    assert_eq!(
        (lengths(&connection), all(&connection).len()),
        (vec![336, 336], 337)
    );
}

/// Whoever sends keys may choose them so.
#[test]
fn a_thousand_names_of_one_hash_stay_together() {
    let connection = indexes();
    let same: Vec<Name> = (0..1_000).map(|number| (500, number)).collect();
    let beside: Vec<Name> = (0..1_000).map(|hash| (hash, -7)).collect();
    ALL.add(&connection, &same).unwrap();
    ALL.add(&connection, &beside).unwrap();
    assert_eq!(
        all(&connection),
        in_order(same.iter().chain(&beside).copied())
    );
    let found = blocks::find(&connection, 500).unwrap();
    assert_eq!(found, in_order_of_numbers(-7, 0..1_000));
    assert_eq!(blocks::find(&connection, 499).unwrap(), [-7]);
    assert_eq!(blocks::find(&connection, 501).unwrap(), [-7]);
}

fn in_order_of_numbers(first: i64, rest: std::ops::Range<i64>) -> Vec<i64> {
    std::iter::once(first).chain(rest).collect()
}

#[test]
fn what_is_taken_is_gone_and_its_blocks_are_used_again() {
    let connection = indexes();
    let names: Vec<Name> = (0..1_000).map(|n| (n * 10, n)).collect();
    RECENT.add(&connection, &names).unwrap();
    let mut taken = RECENT.take(&connection, 0, 5_000).unwrap();
    assert!(
        taken.len() >= 500 && taken.len() < 1_000,
        "{} were taken",
        taken.len()
    );
    assert!(RECENT.take(&connection, 0, 5_000).unwrap().is_empty());
    RECENT.add(&connection, &[(7, 7)]).unwrap();
    let rest = RECENT.take(&connection, 0, i64::MAX).unwrap();
    assert_eq!(rest.first(), Some(&(7, 7)));
    taken.extend(rest.into_iter().skip(1));
    assert_eq!(taken, names);
}

#[test]
fn names_of_a_range_are_told_unless_they_are_in_too_many_blocks() {
    let connection = indexes();
    let told = |from, to, most| {
        let mut names = Vec::new();
        let all = ALL
            .each(&connection, from, to, most, |name| names.push(name))
            .unwrap();
        all.map(|()| names)
    };
    assert_eq!(told(0, 100, 1), Some(Vec::new()));
    let names: Vec<Name> = (0..1_000).map(|n| (n * 10 + 3, n)).collect();
    ALL.add(&connection, &names).unwrap();
    let blocks = lengths(&connection).len();
    assert_eq!(told(0, i64::MAX, blocks), Some(names.clone()));
    assert_eq!(told(0, i64::MAX, blocks - 1), None);
    let some = told(4_000, 4_100, 2).unwrap();
    for name in names
        .iter()
        .filter(|(hash, _)| (4_000..4_100).contains(hash))
    {
        assert!(some.contains(name), "{name:?}");
    }
}

#[test]
fn a_block_that_is_damaged_is_told() {
    let connection = indexes();
    connection
        .execute("INSERT INTO name VALUES (0, x'0102')", ())
        .unwrap();
    assert!(
        ALL.add(&connection, &[(5, 5)])
            .unwrap_err()
            .to_string()
            .contains("half a name")
    );
}
