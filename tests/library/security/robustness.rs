//! No input makes a reader panic, hang, blame us, or repeat what it was sent.

mod corpus;
mod families;
mod readers;

use std::collections::BTreeMap;

use attache::{Error, ErrorKind};
use serde_json::{Value, json};

use corpus::corpus;
use readers::{SseReader, readers};

/// What a reader may say of what it cannot read: the sender is at fault, and learns which rule it broke.
fn blames_the_sender(error: &Error) -> Result<(), String> {
    let sensible = matches!(
        error.kind(),
        ErrorKind::Parse
            | ErrorKind::InvalidRequest
            | ErrorKind::InvalidParams
            | ErrorKind::InvalidAgentResponse
            | ErrorKind::MethodNotFound
            | ErrorKind::UnsupportedOperation
            | ErrorKind::VersionNotSupported
    );
    let mut words = said(error);
    if sensible && words.all(|text| text.len() < 1000 && !text.chars().any(char::is_control)) {
        return Ok(());
    }
    Err(format!("{error:?}"))
}

/// All that the caller reads of an error.
fn said(error: &Error) -> impl Iterator<Item = &str> {
    let violations = error
        .violations()
        .iter()
        .flat_map(|violation| [violation.field(), violation.description()]);
    std::iter::once(error.message())
        .chain(violations)
        .chain(error.metadata().map(|(_, value)| value))
}

fn feed(reader: &SseReader, input: &[u8], what: &str) {
    let read = std::panic::catch_unwind(|| reader.read(input));
    let fault = match read {
        Ok(None) => return,
        Ok(Some(error)) => blames_the_sender(&error).err(),
        Err(_) => Some("panicked".to_owned()),
    };
    if let Some(fault) = fault {
        let shown = String::from_utf8_lossy(&input[..input.len().min(2000)]);
        panic!("{} on {what}: {fault}\n{shown}", reader.name);
    }
}

/// A source of numbers that is the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.roll(items.len())]
    }
}

/// Each input with the readers that take it as it is.
fn natural(readers: &[SseReader]) -> Vec<(String, Vec<&SseReader>)> {
    let takes = |input: &String| {
        readers
            .iter()
            .filter(|reader| reader.read(input.as_bytes()).is_none())
            .collect()
    };
    corpus()
        .into_iter()
        .map(|input| (takes(&input), input))
        .map(|(readers, input)| (input, readers))
        .collect()
}

const TOKENS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    "null",
    "true",
    "\\ud800",
    "\\u0000",
    "\n",
    "\u{1}",
    "é😀",
    "-",
    "1e400",
    "9223372036854775808",
    "0.1",
    "\"kind\":\"message\"",
    "\"parts\":",
    "\"taskId\":",
    "{}",
    "data: ",
];

/// One to four small changes: flip, delete, repeat, insert.
fn mutate(dice: &mut Dice, input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len() + 1);
        let to = (at + 1 + dice.roll(40)).min(bytes.len());
        match dice.roll(5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << dice.roll(8),
            1 if at < to => drop(bytes.drain(at..to)),
            2 if at < to => {
                let piece = bytes[at..to].to_vec();
                let into = dice.roll(bytes.len() + 1);
                drop(bytes.splice(into..into, piece));
            }
            3 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, dice.of(&TOKENS).bytes())),
        }
    }
    bytes
}

/// `ATTACHE_SEED` and `ATTACHE_ROUNDS` look elsewhere and longer.
#[test]
fn s62_no_mutation_of_a_real_body_breaks_a_reader() {
    let setting =
        |name: &str, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let (seed, rounds) = (
        setting("ATTACHE_SEED", 0xA2A),
        setting("ATTACHE_ROUNDS", 20_000),
    );
    let readers = readers();
    let corpus = natural(&readers);
    let mut dice = Dice(seed);
    for round in 0..rounds {
        let (input, takers) = dice.of(&corpus);
        let input = mutate(&mut dice, input.as_bytes());
        let what = format!("round {round} of seed {seed}");
        for reader in [
            if takers.is_empty() {
                &readers[0]
            } else {
                dice.of(takers)
            },
            dice.of(&readers),
        ] {
            feed(reader, &input, &what);
        }
    }
}

const CANARY: &str = "CANARY-hunter2";

/// Every place of a real body in turn holds a secret of the wrong type.
#[test]
fn s81_no_error_repeats_a_value_that_was_sent() {
    let readers = readers();
    let mut refused = BTreeMap::new();
    for (input, takers) in natural(&readers)
        .iter()
        .filter(|(_, takers)| !takers.is_empty())
    {
        let Ok(body) = serde_json::from_str::<Value>(input) else {
            continue;
        };
        let mut places = Vec::new();
        list_places(&body, String::new(), &mut places);
        for (at, place) in places.iter().enumerate() {
            for (turn, secret) in [json!(CANARY), json!([CANARY]), json!({"x": CANARY})]
                .iter()
                .enumerate()
            {
                let mut body = body.clone();
                *body.pointer_mut(place).unwrap() = secret.clone();
                let body = body.to_string();
                let reader = takers[(at + turn) % takers.len()];
                feed(reader, body.as_bytes(), place);
                let Some(error) = reader.read(body.as_bytes()) else {
                    continue;
                };
                assert!(
                    !said(&error).any(|text| text.contains(CANARY)),
                    "{} at {place}: {error:?}",
                    reader.name
                );
                *refused.entry(error.kind().message()).or_insert(0) += 1;
            }
        }
    }
    let faults = refused["Invalid parameters"] + refused["Invalid agent response"];
    assert!(faults > 1000, "too few were refused: {refused:?}");
}

fn list_places(value: &Value, here: String, places: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            list_places(value, format!("{here}/{name}"), places);
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(at, value)| list_places(value, format!("{here}/{at}"), places)),
        _ => {}
    }
    places.push(here);
}

/// Each of 64 KiB, through every reader. Whoever makes one of them slow sees it here.
fn survive(families: families::Families) {
    let readers = readers();
    for (name, body) in families {
        assert!(body.len() <= 64 * 1024, "{name} has {} bytes", body.len());
        readers
            .iter()
            .filter(|reader| !reader.twin)
            .for_each(|reader| feed(reader, &body, name));
    }
}

#[test]
fn s62_deep_and_wide_objects_are_read_or_refused() {
    survive(families::nested());
    survive(families::members());
}

#[test]
fn s62_messages_of_many_or_odd_parts_are_read_or_refused() {
    survive(families::parts());
}

#[test]
fn s62_long_numbers_large_cards_and_long_streams_are_read_or_refused() {
    survive(families::numbers());
    survive(families::cards());
    survive(families::lines());
}
