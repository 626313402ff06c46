//! Base64 text of binary content in JSON.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// Binary content as canonical base64: standard alphabet, padded, unused bits zero.
///
/// The server mostly forwards files unchanged. The text is therefore stored as received and decoded
/// on demand.
#[derive(Clone)]
pub struct Base64(Base64Text);

/// Storage of the base64 text.
#[derive(Clone)]
enum Base64Text {
    Owned(Arc<str>),
    /// Range of the request body that contained it. Avoids a copy of a large file.
    Slice(Arc<(String, Range<usize>)>),
}

/// A slice is used only if the rest of the body's allocation is at most 1/8 of the text; otherwise
/// the text is copied.
const MAX_OVERHEAD_DIVISOR: usize = 8;

/// Error: the text is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidBase64;

/// Decodes with or without padding and ignores unused trailing bits. Encoding is always canonical.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

impl Base64 {
    /// Encodes bytes.
    #[must_use]
    pub fn encode(bytes: impl AsRef<[u8]>) -> Self {
        Self(Base64Text::Owned(Arc::from(STANDARD.encode(bytes))))
    }

    /// Parses standard or URL-safe base64, padded or unpadded, into canonical form.
    ///
    /// # Errors
    /// [`InvalidBase64`] if a character or the length is invalid.
    pub fn parse(text: &str) -> Result<Self, InvalidBase64> {
        if canonical_prefix_len(text.as_bytes()) == Some(text.len()) {
            return Ok(Self(Base64Text::Owned(Arc::from(text))));
        }
        let bytes = STANDARD
            .decode(text)
            .or_else(|_| URL_SAFE.decode(text))
            .map_err(|_| InvalidBase64)?;
        Ok(Self::encode(bytes))
    }

    /// Decodes the content.
    #[must_use]
    pub fn decode(&self) -> Vec<u8> {
        // Every constructor validates the text, so decoding cannot fail.
        STANDARD.decode(self.as_str()).unwrap_or_default()
    }

    /// Returns the text: standard alphabet, padded.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Base64Text::Owned(text) => text,
            Base64Text::Slice(whole) => &whole.0[whole.1.clone()],
        }
    }

    /// Returns the length of the decoded content in bytes, without decoding.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        let text = self.as_str();
        let padding = text.bytes().rev().take_while(|&byte| byte == b'=').count();
        text.len() / 4 * 3 - padding
    }

    /// Returns the end of the canonical base64 that starts at `from`, or `None` if it is not
    /// canonical.
    pub(crate) fn find_end(text: &[u8], from: usize) -> Option<usize> {
        canonical_prefix_len(text.get(from..)?).map(|length| from + length)
    }

    /// Creates a value from a range of `text` that [`find_end`](Self::find_end) returned. Keeps
    /// `text` if the range is nearly all of it, and copies the range otherwise.
    pub(crate) fn from_slice(text: String, range: Range<usize>) -> Self {
        debug_assert!(
            canonical_prefix_len(&text.as_bytes()[range.clone()]) == Some(range.len()),
            "the range comes from find_end"
        );
        let overhead = text.capacity() - range.len();
        if overhead <= range.len() / MAX_OVERHEAD_DIVISOR {
            Self(Base64Text::Slice(Arc::new((text, range))))
        } else {
            Self(Base64Text::Owned(Arc::from(&text[range])))
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn memory_size(&self) -> usize {
        match &self.0 {
            Base64Text::Owned(text) => text.len(),
            Base64Text::Slice(whole) => whole.0.capacity(),
        }
    }
}

impl PartialEq for Base64 {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Base64 {}

impl Hash for Base64 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Base64 {
    /// Prints the length, never the content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.byte_len())
    }
}

impl fmt::Display for InvalidBase64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be base64")
    }
}

impl std::error::Error for InvalidBase64 {}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Base64Visitor)
    }
}

struct Base64Visitor;

impl Visitor<'_> for Base64Visitor {
    type Value = Base64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string of base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Base64, E> {
        Base64::parse(text).map_err(E::custom)
    }
}

/// Returns the length of the canonical base64 that `text` starts with, or `None` if the encoding
/// there is not canonical. Only the last group of four characters needs decoding to decide that.
fn canonical_prefix_len(text: &[u8]) -> Option<usize> {
    let standard = alphabet_prefix_len(text);
    let padding = text[standard..]
        .iter()
        .take(2)
        .take_while(|&&byte| byte == b'=')
        .count();
    let exact = &text[..standard + padding];
    let Some(last) = exact.last_chunk::<4>() else {
        return exact.is_empty().then_some(0);
    };
    let is_exact = exact.len().is_multiple_of(4)
        && STANDARD
            .decode(last)
            .is_ok_and(|bytes| STANDARD.encode(bytes).as_bytes() == last);
    is_exact.then_some(exact.len())
}

/// Returns the number of leading bytes in the base64 alphabet. Checks 64 bytes at a time without
/// branches, so that the compiler vectorizes the loop.
fn alphabet_prefix_len(text: &[u8]) -> usize {
    let (chunks, _) = text.as_chunks::<64>();
    let is_all_alphabet = |chunk: &&[u8; 64]| {
        chunk
            .iter()
            .fold(true, |good, &byte| good & is_alphabet_byte(byte))
    };
    let many = 64 * chunks.iter().take_while(is_all_alphabet).count();
    many + text[many..]
        .iter()
        .take_while(|&&byte| is_alphabet_byte(byte))
        .count()
}

/// Upper and lower case differ in one bit, and `/` directly precedes the digits.
fn is_alphabet_byte(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte.wrapping_sub(b'/') < 11) | (byte == b'+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_of_the_same_bytes_becomes_canonical() {
        for (text, exact) in [
            ("", ""),
            ("AQID", "AQID"),
            ("+/8=", "+/8="),
            ("-_8", "+/8="),
            ("+/8", "+/8="),
            ("-_8=", "+/8="),
            ("/x==", "/w=="),
        ] {
            let read = Base64::parse(text).unwrap();
            assert_eq!(read.as_str(), exact, "{text}");
            assert_eq!(read.byte_len(), read.decode().len());
            assert_eq!(Base64::encode(read.decode()), read);
        }
    }

    #[test]
    fn invalid_characters_are_rejected_and_not_dropped() {
        for bad in ["A", "AQ D", "AQ\nID", "A===", "AQID=", "é", "AQ=D", "+_8="] {
            assert_eq!(Base64::parse(bad), Err(InvalidBase64), "{bad}");
        }
    }
    #[test]
    fn the_alphabet_is_the_standard_one() {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        assert!((0..=u8::MAX).all(|byte| is_alphabet_byte(byte) == alphabet.contains(&byte)));
    }

    #[test]
    fn canonical_end_is_found_at_any_length() {
        for length in (0..300).chain([4_000]) {
            let text = STANDARD.encode(vec![0xfb; length]);
            let whole = format!("\"{text}\"");
            assert_eq!(
                Base64::find_end(whole.as_bytes(), 1),
                Some(1 + text.len()),
                "{length}"
            );
            assert_eq!(Base64::parse(&text).unwrap().as_str(), text);
        }
        for (text, end) in [
            ("AQID-", Some(4)),
            ("AQIDA", None),
            ("AQ", None),
            ("/x==", None),
            ("AQ===", Some(4)),
        ] {
            assert_eq!(Base64::find_end(text.as_bytes(), 0), end, "{text}");
        }
        assert_eq!(Base64::find_end(b"AQID", 5), None);
    }

    #[test]
    fn body_is_kept_only_with_little_overhead() {
        let text = "QUJD".repeat(100);
        for (around, room, weight) in [
            (2, 0, 402),
            (50, 0, 450),
            (51, 0, 400),
            (2, 48, 450),
            (2, 49, 400),
        ] {
            let mut whole = String::with_capacity(text.len() + around + room);
            whole.extend([&*text, &" ".repeat(around)]);
            let slice = Base64::from_slice(whole, 0..text.len());
            assert_eq!(slice.memory_size(), weight, "{around} and {room}");
            assert_eq!(slice, Base64::parse(&text).unwrap());
        }
    }
}
