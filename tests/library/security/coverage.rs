//! Coverage of the security rows of `docs/test-cases.md`: each row has a test with its number, or a reason in
//! `docs/security.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Row numbers, by letter.
const ROWS: &[(char, &[std::ops::RangeInclusive<u8>])] = &[
    (
        's',
        &[
            1..=41,
            43..=45,
            48..=48,
            53..=53,
            62..=62,
            65..=67,
            72..=76,
            78..=82,
            84..=84,
        ],
    ),
    ('r', &[13..=13, 28..=31, 48..=48, 51..=51]),
];

fn rows() -> BTreeSet<String> {
    let all = ROWS.iter().flat_map(|(letter, ranges)| {
        ranges
            .iter()
            .cloned()
            .flatten()
            .map(move |number| format!("{letter}{number:02}"))
    });
    all.collect()
}

/// Returns the rows at the start of a test name: `s01_s02_a_foreign_task…` has two.
fn row_prefixes(line: &str) -> impl Iterator<Item = String> {
    let name = line.split_once("fn ").map_or("", |(_, name)| name);
    let is_row = |word: &&str| {
        word.len() == 3
            && word.starts_with(['s', 'r'])
            && word[1..].bytes().all(|byte| byte.is_ascii_digit())
    };
    name.split('_').take_while(is_row).map(str::to_owned)
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_security_row_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in [
        "src",
        "tests/library",
        "cli/src",
        "cli/tests",
        "agents/src",
        "agents/tests",
    ] {
        rust_files(&root.join(folder), &mut files);
    }
    let tested: BTreeSet<String> = files
        .iter()
        .flat_map(|file| {
            fs::read_to_string(file)
                .unwrap()
                .lines()
                .flat_map(row_prefixes)
                .collect::<Vec<_>>()
        })
        .collect();
    let page = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let (_, listed) = page
        .split_once("## What is not tested here")
        .expect("the page has its list");
    let explained: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split([' ', ',']).next())
        .filter(|word| word.len() > 1 && word.starts_with(['S', 'R']))
        .map(|word| format!("{}{:0>2}", word[..1].to_lowercase(), &word[1..]))
        .collect();
    let rows = rows();
    let missing: Vec<_> = rows
        .iter()
        .filter(|row| !tested.contains(*row) && !explained.contains(*row))
        .collect();
    assert!(
        missing.is_empty(),
        "neither a test nor a reason in docs/security.md: {missing:?}"
    );
}

#[test]
fn all_row_prefixes_of_a_name_are_read() {
    let read = |line| row_prefixes(line).collect::<Vec<_>>();
    assert_eq!(read("    async fn s01_r13_nobody() {"), ["s01", "r13"]);
    assert_eq!(read("fn soon_s01() {"), [] as [&str; 0]);
    assert_eq!(rows().len(), 68);
}
