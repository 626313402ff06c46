//! What is wrong with a configuration: where, what, and what to write instead.

use std::fmt;

/// How alike two names must be for one to be meant by the other.
const MIN_SIMILARITY: f64 = 0.7;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    place: String,
    what: String,
}

impl ConfigError {
    pub(super) fn new(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self {
            place: place.to_string(),
            what: what.to_string(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for ConfigError {}

/// A key that nobody knows, with the one that is nearest to it.
pub(super) fn unknown_name<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, &known) {
        Some(meant) => format!("unknown {what} `{name}`; did you mean `{meant}`?"),
        None => format!("unknown {what} `{name}`; known are {}", known.join(", ")),
    }
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |other: &str| {
        strsim::normalized_damerau_levenshtein(name, other)
            .max(strsim::jaro_winkler(name, other) - 0.15)
    };
    let alike = known
        .iter()
        .map(|&other| (likeness(other), other))
        .filter(|(likeness, _)| *likeness >= MIN_SIMILARITY);
    alike
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

/// What a reader complains about, with a name that is near to one that it does not know. Readers have no better way
/// to tell than their words: ``unknown field `a`, expected one of `b`, `c` ``.
pub(super) fn explain_reader_error(words: &str) -> (Option<String>, String) {
    let words = words.trim_end();
    for (beginning, what) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        let Some(rest) = words.strip_prefix(beginning) else {
            continue;
        };
        let mut quoted = rest.split('`').skip(1).step_by(2);
        let Some(name) = quoted.next() else { continue };
        let text = unknown_name(what, name, quoted);
        return ((what == "key").then(|| name.to_owned()), text);
    }
    (None, words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_strange_one_is_not() {
        let known = ["listen", "max_body_bytes", "max_header_bytes", "heartbeat"];
        assert_eq!(nearest("lisen", &known), Some("listen"));
        assert_eq!(nearest("max_body_byte", &known), Some("max_body_bytes"));
        assert_eq!(nearest("heart_beat", &known), Some("heartbeat"));
        assert_eq!(nearest("colour", &known), None);
    }

    #[test]
    fn a_readers_words_are_understood() {
        let (key, words) =
            explain_reader_error("unknown field `comand`, expected one of `command`, `shell`\n");
        assert_eq!(
            (key.as_deref(), &*words),
            (
                Some("comand"),
                "unknown key `comand`; did you mean `command`?"
            )
        );
        let (key, words) = explain_reader_error(
            "unknown variant `sqlit`, expected one of `sqlite`, `memory`, `null`",
        );
        assert_eq!(
            (key, &*words),
            (None, "unknown value `sqlit`; did you mean `sqlite`?")
        );
        assert_eq!(
            explain_reader_error("invalid type"),
            (None, "invalid type".to_owned())
        );
    }
}
