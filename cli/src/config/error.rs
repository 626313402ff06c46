//! Errors of the configuration: place, message, and the nearest valid name.

use std::fmt;

/// Minimum similarity of a suggested name, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.7;

/// An error with its place: a file and line, a variable or a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError {
    place: String,
    message: String,
    /// The key, if the error is about one.
    key: Option<ErrorKey>,
}

/// Key of a [`ConfigError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ErrorKey {
    /// Full key.
    pub(super) name: String,
    /// Whether it is set. The error of another key is that it is missing.
    pub(super) is_set: bool,
}

/// An error of a key, without its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyError {
    /// Full key.
    pub(crate) key: String,
    pub(crate) message: String,
}

impl KeyError {
    pub(super) fn new(key: impl Into<String>, message: impl fmt::Display) -> Self {
        Self {
            key: key.into(),
            message: message.to_string(),
        }
    }

    /// Prefixes the key with its section.
    pub(super) fn in_section(self, section: &str) -> Self {
        Self {
            key: format!("{section}.{}", self.key),
            ..self
        }
    }
}

impl ConfigError {
    pub(super) fn new(place: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self {
            place: place.to_string(),
            message: message.to_string(),
            key: None,
        }
    }

    pub(super) fn with_key(self, name: &str, is_set: bool) -> Self {
        let name = name.to_owned();
        Self {
            key: Some(ErrorKey { name, is_set }),
            ..self
        }
    }

    /// The key that the error is about.
    pub(super) fn key(&self) -> Option<&ErrorKey> {
        self.key.as_ref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for ConfigError {}

/// Message for an unknown name, with the nearest known one.
pub(super) fn unknown_name<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, &known) {
        Some(nearest) => format!("unknown {what} `{name}`; did you mean `{nearest}`?"),
        None => format!("unknown {what} `{name}`; known are {}", known.join(", ")),
    }
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let similarity = |other: &str| {
        strsim::normalized_damerau_levenshtein(name, other)
            .max(strsim::jaro_winkler(name, other) - 0.15)
    };
    let similar = known
        .iter()
        .map(|&other| (similarity(other), other))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    similar
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

/// Rewrites a serde error. For an unknown field or variant it adds the nearest known name, and returns the field. The names
/// are only in the message: ``unknown field `a`, expected one of `b`, `c` ``.
pub(super) fn explain_reader_error(message: &str) -> (Option<String>, String) {
    let message = message.trim_end();
    for (prefix, what) in [("unknown field ", "key"), ("unknown variant ", "value")] {
        let Some(rest) = message.strip_prefix(prefix) else {
            continue;
        };
        let mut quoted = rest.split('`').skip(1).step_by(2);
        let Some(name) = quoted.next() else { continue };
        let text = unknown_name(what, name, quoted);
        return ((what == "key").then(|| name.to_owned()), text);
    }
    (None, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_if_it_is_similar() {
        let known = ["listen", "max_body_bytes", "max_header_bytes", "heartbeat"];
        assert_eq!(nearest("lisen", &known), Some("listen"));
        assert_eq!(nearest("max_body_byte", &known), Some("max_body_bytes"));
        assert_eq!(nearest("heart_beat", &known), Some("heartbeat"));
        assert_eq!(nearest("colour", &known), None);
    }

    #[test]
    fn serde_errors_are_explained() {
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
