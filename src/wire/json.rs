//! JSON deserialization with errors that name the invalid field and never repeat its value.
//!
//! Parses twice only on error: the first pass has no path tracking, the second finds the field.

use serde::Deserialize;
use serde_json::error::Category;

use super::strict::Strict;
use crate::model::{Error, ErrorKind, Violation};

/// Maximum nesting depth of accepted JSON (S62).
pub const MAX_DEPTH: usize = 128;

/// Deserializes text that is known to be JSON, such as the params of an envelope.
///
/// # Errors
/// Invalid parameters; names the field.
pub fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Error> {
    // The path is tracked only after an error, because tracking costs time.
    read_strictly::<T, false>(text).map_err(|_| explain::<T>(text).into())
}

/// Deserializes text without members of older versions; `None` on any error.
pub(crate) fn read_v1_only<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    read_strictly::<T, true>(text).ok()
}

pub(super) fn read_strictly<'a, T: Deserialize<'a>, const V1_ONLY: bool>(
    text: &'a str,
) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Strict::<_, V1_ONLY>(&mut deserializer))?;
    deserializer.end().map(|()| value)
}

/// Deserializes a whole body.
///
/// # Errors
/// A parse error if the body is not JSON or nests too deeply, else invalid parameters with the
/// field.
pub fn read_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Error> {
    read(check(body)?)
}

/// Checks that a body is UTF-8, valid JSON, and nests at most [`MAX_DEPTH`] levels.
///
/// # Errors
/// A parse error.
pub fn check(body: &[u8]) -> Result<&str, Error> {
    let text = check_depth(body)?;
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|_| ErrorKind::Parse)?;
    Ok(text)
}

/// Checks that a body is UTF-8 and nests at most [`MAX_DEPTH`] levels, including JSON that stays
/// unparsed.
pub(crate) fn check_depth(body: &[u8]) -> Result<&str, Error> {
    check_nesting(body)?;
    std::str::from_utf8(body).map_err(|_| ErrorKind::Parse.into())
}

/// Checks that a text nests at most [`MAX_DEPTH`] levels, including JSON that stays unparsed.
pub(crate) fn check_nesting(body: &[u8]) -> Result<(), Error> {
    // Counting brackets is cheap and rules out deep nesting for nearly every body.
    if brackets(body) > MAX_DEPTH && depth(body) > MAX_DEPTH {
        return Err(Error::new(ErrorKind::Parse)
            .with_message("Invalid JSON payload: nested deeper than 128 levels"));
    }
    Ok(())
}

/// Counts opening brackets; `[` and `{` differ in one bit. Sums in `u8` per chunk, so that the
/// compiler vectorizes the loop.
fn brackets(body: &[u8]) -> usize {
    let in_chunk = |chunk: &[u8]| {
        chunk
            .iter()
            .fold(0_u8, |sum, byte| sum + u8::from(byte | 0x20 == b'{'))
    };
    body.chunks(240).map(in_chunk).map(usize::from).sum()
}

/// Returns the maximum nesting depth outside of strings. Works on invalid JSON too.
fn depth(body: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

/// Deserializes again with path tracking to find the invalid field.
fn explain<'a, T: Deserialize<'a>>(text: &'a str) -> Violation {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(Strict::<_, false>(&mut deserializer)) {
        Ok(_) => Violation::new("", "must be one JSON value"),
        Err(error) => {
            let path = printable_path(&error.path().to_string());
            let path = if path == "." {
                ""
            } else {
                path.trim_start_matches("?.")
            };
            violation(path, error.inner())
        }
    }
}

/// Truncates a path to 200 characters and removes control characters. Member names in it may come
/// from the client (S81).
pub(crate) fn printable_path(path: &str) -> String {
    path.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn violation(path: &str, error: &serde_json::Error) -> Violation {
    let text = error.to_string();
    let text = text
        .rsplit_once(" at line ")
        .map_or(&*text, |(text, _)| text);
    if let Some((field, rule)) = text
        .strip_prefix("field `")
        .and_then(|rest| rest.split_once("`: "))
    {
        return Violation::new(join(path, field), rule.to_owned());
    }
    for (prefix, rule) in [
        ("missing field `", "is required"),
        ("duplicate field `", "must be given only once"),
    ] {
        if let Some(field) = text.strip_prefix(prefix) {
            return Violation::new(join(path, field.trim_end_matches('`')), rule);
        }
    }
    if error.classify() != Category::Data {
        return Violation::new(path, "must be valid Unicode text");
    }
    // Serde's text for a wrong type contains the value, which may be secret. Keep only the
    // expectation.
    match text
        .starts_with("invalid ")
        .then(|| text.rsplit_once(", expected "))
        .flatten()
    {
        Some((_, expected)) => Violation::new(path, format!("must be {}", in_json_words(expected))),
        None => Violation::new(path, text.to_owned()),
    }
}

fn in_json_words(expected: &str) -> &str {
    match expected {
        "a map" => "an object",
        "a sequence" => "an array",
        "a boolean" => "true or false",
        _ if expected.starts_with("struct ") => "an object",
        _ => expected,
    }
}

/// Joins a path and a member name; either may be empty.
pub(crate) fn join(path: &str, field: &str) -> String {
    let dot = if path.is_empty() || field.is_empty() {
        ""
    } else {
        "."
    };
    format!("{path}{dot}{field}")
}

/// Creates an error for a member below the one being deserialized. [`read`] adds the path above it.
pub(crate) fn field_error<E: serde::de::Error>(field: &str, rule: impl std::fmt::Display) -> E {
    E::custom(format_args!("field `{field}`: {rule}"))
}

/// Prefixes the field of an error with `name`.
pub(crate) fn prefix_field(name: &str, error: Error) -> Error {
    match error.violations().first() {
        Some(violation) => Error::invalid(
            join(name, violation.field()),
            violation.description().to_owned(),
        ),
        None => error,
    }
}

/// Converts an error of a nested read to a deserializer error at `field`.
pub(crate) fn nested_field_error<E: serde::de::Error>(field: &str, error: &Error) -> E {
    match error.violations().first() {
        Some(violation) => field_error(&join(field, violation.field()), violation.description()),
        None => field_error(field, error.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SendMessageRequest;

    fn fault(text: &str) -> (String, String) {
        let error = read::<SendMessageRequest>(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        let violation = &error.violations()[0];
        (
            violation.field().to_owned(),
            violation.description().to_owned(),
        )
    }

    #[test]
    fn errors_name_the_field_and_hide_its_value() {
        for (text, field, rule) in [
            ("[]", "", "must be an object"),
            (r#"{"message":5}"#, "message", "must be an object"),
            (
                r#"{"message":{"parts":"hunter2"}}"#,
                "message.parts",
                "must be an array",
            ),
            (
                r#"{"message":{"messageId":"hunter2","messageId":"b"}}"#,
                "message.messageId",
                "must be given only once",
            ),
            (
                r#"{"message":{"messageId":"a","message_id":"b"}}"#,
                "message.messageId",
                "must be given only once",
            ),
            (
                r#"{"message":{"role":"hunter2"}}"#,
                "message.role",
                "must be ROLE_USER or ROLE_AGENT",
            ),
            (
                r#"{"message":{"metadata":"hunter2"}}"#,
                "message.metadata",
                "must be an object",
            ),
            (
                r#"{"message":{"messageId":"\ud800"}}"#,
                "message.messageId",
                "must be valid Unicode text",
            ),
            (
                r#"{"configuration":{"historyLength":5.5}}"#,
                "configuration.historyLength",
                "must be a 32-bit whole number",
            ),
            (
                r#"{"configuration":{"returnImmediately":"hunter2"}}"#,
                "configuration.returnImmediately",
                "must be true or false",
            ),
        ] {
            assert_eq!(fault(text), (field.to_owned(), rule.to_owned()), "{text}");
        }
    }

    #[test]
    fn s81_echoed_names_are_truncated_and_printable() {
        type Named = std::collections::BTreeMap<String, bool>;
        let read = |name: &str| read::<Named>(&format!(r#"{{"{name}":5}}"#)).unwrap_err();
        assert_eq!(read(r"a\u0000\nb").violations()[0].field(), "ab");
        assert_eq!(read(&"x".repeat(5000)).violations()[0].field().len(), 200);
    }

    #[test]
    fn s62_nesting_is_bounded_outside_of_strings() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(check(nested(128).as_bytes()).is_ok());
        assert_eq!(
            check(nested(129).as_bytes()).unwrap_err().kind(),
            ErrorKind::Parse
        );
        assert!(check(format!("\"\\\"{}\"", "[".repeat(1000)).as_bytes()).is_ok());
        assert!(check(format!("[{}[]]", "[],".repeat(1000)).as_bytes()).is_ok());
        let inside = |levels| {
            format!(
                r#"{{"message":{{"parts":[{{"data":{}}}]}}}}"#,
                nested(levels)
            )
        };
        assert!(read_body::<SendMessageRequest>(inside(124).as_bytes()).is_ok());
        assert_eq!(
            read_body::<SendMessageRequest>(inside(125).as_bytes())
                .unwrap_err()
                .kind(),
            ErrorKind::Parse
        );
        let unknown = |levels| format!(r#"{{"whatever":{}}}"#, nested(levels));
        assert!(read_body::<SendMessageRequest>(unknown(127).as_bytes()).is_ok());
        assert_eq!(
            read_body::<SendMessageRequest>(unknown(128).as_bytes())
                .unwrap_err()
                .kind(),
            ErrorKind::Parse
        );
    }

    #[test]
    fn invalid_json_is_a_parse_error() {
        for body in [&b"{"[..], b"\xff", b"", b"{} {}", b"{'a':1}", b"[1,]"] {
            assert_eq!(check(body).unwrap_err().kind(), ErrorKind::Parse);
        }
    }
}
