//! Robustness of all readers (S62, S81): no input makes one panic, hang, report an internal error,
//! or repeat the input in its error.

mod corpus;
mod families;
mod readers;

use std::collections::BTreeMap;

use attache::{Error, ErrorKind};
use serde_json::{Value, json};

use corpus::corpus;
use readers::{InputReader, readers};

/// Checks that an error blames the sender and names the violated rule.
fn check_blames_sender(error: &Error) -> Result<(), String> {
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
    let mut words = error_texts(error);
    if sensible && words.all(|text| text.len() < 1000 && !text.chars().any(char::is_control)) {
        return Ok(());
    }
    Err(format!("{error:?}"))
}

/// Returns all texts of an error that a caller can see.
fn error_texts(error: &Error) -> impl Iterator<Item = &str> {
    let violations = error
        .violations()
        .iter()
        .flat_map(|violation| [violation.field(), violation.description()]);
    std::iter::once(error.message())
        .chain(violations)
        .chain(error.metadata().map(|(_, value)| value))
}

fn feed(reader: &InputReader, input: &[u8], what: &str) {
    let read = std::panic::catch_unwind(|| reader.read(input));
    let fault = match read {
        Ok(None) => return,
        Ok(Some(error)) => check_blames_sender(&error).err(),
        Err(_) => Some("panicked".to_owned()),
    };
    if let Some(fault) = fault {
        let shown = String::from_utf8_lossy(&input[..input.len().min(2000)]);
        panic!("{} on {what}: {fault}\n{shown}", reader.name);
    }
}

/// Deterministic random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, sides: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }

    fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Returns each input of the corpus with the readers that accept it.
fn accepted_corpus(readers: &[InputReader]) -> Vec<(String, Vec<&InputReader>)> {
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

/// Applies one to four small mutations: flip, delete, repeat, insert.
fn mutate(rng: &mut Rng, input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() + 1);
        let to = (at + 1 + rng.below(40)).min(bytes.len());
        match rng.below(5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 if at < to => drop(bytes.drain(at..to)),
            2 if at < to => {
                let piece = bytes[at..to].to_vec();
                let into = rng.below(bytes.len() + 1);
                drop(bytes.splice(into..into, piece));
            }
            3 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, rng.choose(&TOKENS).bytes())),
        }
    }
    bytes
}

/// `ATTACHE_SEED` and `ATTACHE_ROUNDS` select other inputs and longer runs.
#[test]
fn s62_readers_survive_mutated_bodies() {
    let setting =
        |name: &str, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let seed = setting("ATTACHE_SEED", 0xA2A);
    let rounds = setting("ATTACHE_ROUNDS", 20_000);
    let readers = readers();
    let corpus = accepted_corpus(&readers);
    let mut rng = Rng(seed);
    for round in 0..rounds {
        let (input, takers) = rng.choose(&corpus);
        let input = mutate(&mut rng, input.as_bytes());
        let what = format!("round {round} of seed {seed}");
        for reader in [
            if takers.is_empty() {
                &readers[0]
            } else {
                rng.choose(takers)
            },
            rng.choose(&readers),
        ] {
            feed(reader, &input, &what);
        }
    }
}

const CANARY: &str = "CANARY-hunter2";

/// Replaces each value of a real body in turn by a secret of the wrong type.
#[test]
fn s81_errors_never_repeat_input_values() {
    let readers = readers();
    let mut refused = BTreeMap::new();
    for (input, takers) in accepted_corpus(&readers)
        .iter()
        .filter(|(_, takers)| !takers.is_empty())
    {
        let Ok(body) = serde_json::from_str::<Value>(input) else {
            continue;
        };
        let mut places = Vec::new();
        list_pointers(&body, String::new(), &mut places);
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
                    !error_texts(&error).any(|text| text.contains(CANARY)),
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

fn list_pointers(value: &Value, here: String, places: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            list_pointers(value, format!("{here}/{name}"), places);
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(at, value)| list_pointers(value, format!("{here}/{at}"), places)),
        _ => {}
    }
    places.push(here);
}

/// Feeds inputs of up to 64 KiB to every reader. A reader with superlinear cost makes this test
/// slow.
fn assert_survives(families: families::Families) {
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
fn s62_readers_survive_deep_and_wide_objects() {
    assert_survives(families::nested());
    assert_survives(families::members());
}

#[test]
fn s62_readers_survive_many_or_odd_parts() {
    assert_survives(families::parts());
}

#[test]
fn s62_readers_survive_long_numbers_cards_and_streams() {
    assert_survives(families::numbers());
    assert_survives(families::cards());
    assert_survives(families::lines());
}
