//! JSON values of the application: metadata, data parts and parameters.
//!
//! Values are stored as validated text instead of a parsed tree. Numbers therefore keep every
//! digit, and forwarding costs no parsing.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

/// JSON value, stored as text on one line.
///
/// Two values are equal if their texts are equal or if they parse to equal values.
#[derive(Clone)]
pub struct Json(pub(super) Box<RawValue>);

/// Error: the text is not JSON, or not the expected kind of JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidJson(pub(super) &'static str);

impl Json {
    /// Returns `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// Validates a text and stores it.
    ///
    /// # Errors
    /// [`InvalidJson`] if the text is not exactly one JSON value.
    pub fn parse(text: &str) -> Result<Self, InvalidJson> {
        let raw: Box<RawValue> =
            serde_json::from_str(text).map_err(|_| InvalidJson("must be JSON"))?;
        Self::from_raw(raw)
    }

    /// Serializes a value.
    ///
    /// # Errors
    /// The value is not representable, for example a map with keys that are not strings.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        // Validated like input from peers: the value may contain raw JSON text.
        Self::from_raw(serde_json::value::to_raw_value(value)?).map_err(serde::ser::Error::custom)
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Deserializes the value.
    ///
    /// # Errors
    /// The value does not match `T`.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    /// Whether the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.get().starts_with('{')
    }

    /// Whether the value is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.get() == "null"
    }

    /// Enforces two rules beyond the JSON grammar: no line breaks, because an SSE frame is one
    /// line, and no lone surrogates.
    fn from_raw(raw: Box<RawValue>) -> Result<Self, InvalidJson> {
        let text = raw.get();
        // Control characters inside strings are always escaped, so a raw one is whitespace between
        // tokens.
        if !contains_byte(text, |byte| (byte < b' ') | (byte == b'\\')) {
            return Ok(Self(raw));
        }
        if !has_paired_surrogates(text.as_bytes()) {
            return Err(InvalidJson("must not contain a lone surrogate escape"));
        }
        if !contains_byte(text, |byte| byte < b' ') {
            return Ok(Self(raw));
        }
        RawValue::from_string(strip_whitespace(text))
            .map(Self)
            .map_err(|_| InvalidJson("must be JSON"))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
            || matches!((self.read::<serde_json::Value>(), other.read::<serde_json::Value>()), (Ok(a), Ok(b)) if a == b)
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        // A `Value` has string keys and finite numbers, so serialization cannot fail.
        Self::from_serialize(&value).unwrap_or_default()
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        serde_json::Value::from(text).into()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(Box::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl fmt::Display for InvalidJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidJson {}

/// Whether a byte matches the predicate. Works on chunks of 64 bytes without branches, so that the
/// compiler vectorizes the loop.
pub(super) fn contains_byte(text: &str, matches: impl Fn(u8) -> bool) -> bool {
    text.as_bytes().chunks(64).any(|chunk| {
        chunk
            .iter()
            .fold(false, |found, &byte| found | matches(byte))
    })
}

/// Whether every surrogate escape (`\ud800` to `\udfff`) is part of a pair. Assumes valid JSON
/// otherwise.
fn has_paired_surrogates(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(found) = text[at..].iter().position(|&byte| byte == b'\\') {
        at += found;
        match parse_unicode_escape(text, at) {
            None => at += 2,
            Some(0xD800..=0xDBFF) => match parse_unicode_escape(text, at + 6) {
                Some(0xDC00..=0xDFFF) => at += 12,
                _ => return false,
            },
            Some(0xDC00..=0xDFFF) => return false,
            Some(_) => at += 6,
        }
        if at >= text.len() {
            break;
        }
    }
    true
}

fn parse_unicode_escape(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn strip_whitespace(text: &str) -> String {
    let mut in_string = false;
    let mut escaped = false;
    text.chars()
        .filter(|&c| {
            let keep = in_string || !matches!(c, ' ' | '\t' | '\r' | '\n');
            if escaped {
                escaped = false;
            } else if in_string && c == '\\' {
                escaped = true;
            } else if c == '"' {
                in_string = !in_string;
            }
            keep
        })
        .collect()
}

/// Deserializes `null` as the default value. In the JSON of 1.0, `null` means absent (01 §5).
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Option::deserialize(d).map(Option::unwrap_or_default)
}

/// Deserializes an empty string as `None`. A protobuf string without presence cannot distinguish
/// the two.
pub(crate) fn non_empty<'de, D, T>(d: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + AsRef<str>,
{
    Ok(Option::<T>::deserialize(d)?.filter(|text| !text.as_ref().is_empty()))
}

/// Deserializes an optional int32 in the ProtoJSON spellings `5`, `5.0` and `"5"`.
pub(crate) fn int32<'de, D: Deserializer<'de>>(d: D) -> Result<Option<i32>, D::Error> {
    Ok(Option::<Int32>::deserialize(d)?.map(|number| number.0))
}

struct Int32(i32);

impl<'de> Deserialize<'de> for Int32 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Int32Visitor).map(Self)
    }
}

struct Int32Visitor;

impl Visitor<'_> for Int32Visitor {
    type Value = i32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a 32-bit whole number")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<i32, E> {
        i32::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<i32, E> {
        i32::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<i32, E> {
        let whole = number.trunc();
        if whole == number && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&whole) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole and within range, as just checked"
            )]
            return Ok(whole as i32);
        }
        Err(E::invalid_value(de::Unexpected::Float(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<i32, E> {
        text.parse()
            .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        for text in [
            "1.0",
            "1e400",
            "18446744073709551616",
            "-0",
            r#"{"a":[1.10,2E+5]}"#,
        ] {
            assert_eq!(Json::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn line_breaks_between_tokens_are_removed() {
        let json = Json::parse("{\n \"a b\": [1,\r\n\t2], \"c\\\" d\": \"x  y\" }").unwrap();
        assert_eq!(json.get(), r#"{"a b":[1,2],"c\" d":"x  y"}"#);
    }

    #[test]
    fn lone_surrogates_are_rejected() {
        for good in [r#""\ud83d\ude00""#, r#""\\ud800""#, r#""\u0041\\""#] {
            assert!(Json::parse(good).is_ok(), "{good}");
        }
        for bad in [
            r#""\ud83d""#,
            r#""\ude00""#,
            r#""\ud83d\u0041""#,
            r#"{"\ud800":1}"#,
            r#""\ud83dx""#,
        ] {
            assert!(Json::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn int32_accepts_exactly_the_protojson_spellings() {
        #[derive(serde::Deserialize)]
        struct N(#[serde(deserialize_with = "int32")] Option<i32>);
        let read = |text: &str| serde_json::from_str::<N>(text).map(|n| n.0).ok();
        assert_eq!(read("5"), Some(Some(5)));
        assert_eq!(read("5.0"), Some(Some(5)));
        assert_eq!(read(r#""-5""#), Some(Some(-5)));
        assert_eq!(read("null"), Some(None));
        for bad in [
            "5.5",
            "2147483648",
            "-2147483649",
            "1e300",
            r#""x""#,
            "true",
            "[]",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
