//! Bytes as they travel in JSON.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// Bytes in base64: standard alphabet, padded, the one text for these bytes.
///
/// A large file mostly passes through us, so it is kept as it came and decoded only for whoever asks.
#[derive(Clone)]
pub struct Base64(Base64Text);

/// Where the text is.
#[derive(Clone)]
enum Base64Text {
    Owned(Arc<str>),
    /// In a longer text that it came with.
    Slice(Arc<(String, Range<usize>)>),
}

/// A text is kept alone where what it came with would take more than this part of its own length.
const MAX_OVERHEAD_DIVISOR: usize = 8;

/// The text is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidBase64;

/// Padding and unused bits are read as they come; what is written is exact.
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

    /// Reads standard or URL-safe base64, padded or not.
    ///
    /// # Errors
    /// A character or a length that no bytes have.
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

    /// The bytes.
    #[must_use]
    pub fn decode(&self) -> Vec<u8> {
        // The text was checked when it was kept.
        STANDARD.decode(self.as_str()).unwrap_or_default()
    }

    /// The text: standard alphabet, padded.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Base64Text::Owned(text) => text,
            Base64Text::Slice(whole) => &whole.0[whole.1.clone()],
        }
    }

    /// How many bytes it stands for.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        let text = self.as_str();
        let padding = text.bytes().rev().take_while(|&byte| byte == b'=').count();
        text.len() / 4 * 3 - padding
    }

    /// Where base64 ends that begins at `from` and is written as we would write it, however long it is.
    pub(crate) fn find_end(text: &[u8], from: usize) -> Option<usize> {
        canonical_prefix_len(text.get(from..)?).map(|length| from + length)
    }

    /// What lies between the two ends that [`find_end`](Self::find_end) has found in this text. It stays there, if it is
    /// nearly all that the text takes.
    pub(crate) fn from_slice(text: String, range: Range<usize>) -> Self {
        debug_assert!(
            canonical_prefix_len(&text.as_bytes()[range.clone()]) == Some(range.len()),
            "looked for before"
        );
        match text.capacity() - range.len() <= range.len() / MAX_OVERHEAD_DIVISOR {
            true => Self(Base64Text::Slice(Arc::new((text, range)))),
            false => Self(Base64Text::Owned(Arc::from(&text[range]))),
        }
    }

    /// How much memory it takes, in bytes, about.
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
    /// Says how much, never what.
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

/// How long the text is that [`Base64::encode`] would write and this one begins with, up to what no such text can have;
/// the last group settles it after the alphabet.
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

/// How many characters of the alphabet it begins with. Many are checked at once: their number is known to the compiler,
/// and there are no branches.
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

/// Cases differ in one bit, and the slash is before the digits.
fn is_alphabet_byte(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte.wrapping_sub(b'/') < 11) | (byte == b'+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_the_same_bytes_is_one_text() {
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
    fn illegal_characters_are_refused_and_not_dropped() {
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
    fn the_end_is_found_wherever_it_is() {
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
    fn a_text_stays_where_it_came_if_that_is_hardly_more() {
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
