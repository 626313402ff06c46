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
pub struct Base64(Kept);

/// Where the text is.
#[derive(Clone)]
enum Kept {
    Alone(Arc<str>),
    /// In a longer text that it came with.
    Within(Arc<(String, Range<usize>)>),
}

/// A text is kept alone where what it came with would take more than this part of its own length.
const MOST: usize = 8;

/// The text is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotBase64;

/// Padding and unused bits are read as they come; what is written is exact.
const LIBERAL: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LIBERAL);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LIBERAL);

impl Base64 {
    /// Encodes bytes.
    #[must_use]
    pub fn encode(bytes: impl AsRef<[u8]>) -> Self {
        Self(Kept::Alone(Arc::from(STANDARD.encode(bytes))))
    }

    /// Reads standard or URL-safe base64, padded or not.
    ///
    /// # Errors
    /// A character or a length that no bytes have.
    pub fn parse(text: &str) -> Result<Self, NotBase64> {
        if exact_length(text.as_bytes()) == Some(text.len()) {
            return Ok(Self(Kept::Alone(Arc::from(text))));
        }
        let bytes = STANDARD
            .decode(text)
            .or_else(|_| URL_SAFE.decode(text))
            .map_err(|_| NotBase64)?;
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
            Kept::Alone(text) => text,
            Kept::Within(whole) => &whole.0[whole.1.clone()],
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
    pub(crate) fn end_in(text: &[u8], from: usize) -> Option<usize> {
        exact_length(text.get(from..)?).map(|length| from + length)
    }

    /// What lies between the two ends that [`end_in`](Self::end_in) has found in this text. It stays there, if it is
    /// nearly all that the text takes.
    pub(crate) fn within(text: String, range: Range<usize>) -> Self {
        debug_assert!(
            exact_length(&text.as_bytes()[range.clone()]) == Some(range.len()),
            "looked for before"
        );
        match text.capacity() - range.len() <= range.len() / MOST {
            true => Self(Kept::Within(Arc::new((text, range)))),
            false => Self(Kept::Alone(Arc::from(&text[range]))),
        }
    }

    /// How much memory it takes, in bytes, about.
    pub(super) fn weight(&self) -> usize {
        match &self.0 {
            Kept::Alone(text) => text.len(),
            Kept::Within(whole) => whole.0.capacity(),
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

impl fmt::Display for NotBase64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be base64")
    }
}

impl std::error::Error for NotBase64 {}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
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
fn exact_length(text: &[u8]) -> Option<usize> {
    let standard = standard_length(text);
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
fn standard_length(text: &[u8]) -> usize {
    let (chunks, _) = text.as_chunks::<64>();
    let is_good = |chunk: &&[u8; 64]| {
        chunk
            .iter()
            .fold(true, |good, &byte| good & is_standard(byte))
    };
    let many = 64 * chunks.iter().take_while(is_good).count();
    many + text[many..]
        .iter()
        .take_while(|&&byte| is_standard(byte))
        .count()
}

/// Cases differ in one bit, and the slash is before the digits.
fn is_standard(byte: u8) -> bool {
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
            assert_eq!(Base64::parse(bad), Err(NotBase64), "{bad}");
        }
    }
    #[test]
    fn the_alphabet_is_the_standard_one() {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        assert!((0..=u8::MAX).all(|byte| is_standard(byte) == alphabet.contains(&byte)));
    }

    #[test]
    fn the_end_is_found_wherever_it_is() {
        for length in (0..300).chain([4_000]) {
            let text = STANDARD.encode(vec![0xfb; length]);
            let whole = format!("\"{text}\"");
            assert_eq!(
                Base64::end_in(whole.as_bytes(), 1),
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
            assert_eq!(Base64::end_in(text.as_bytes(), 0), end, "{text}");
        }
        assert_eq!(Base64::end_in(b"AQID", 5), None);
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
            let kept = Base64::within(whole, 0..text.len());
            assert_eq!(kept.weight(), weight, "{around} and {room}");
            assert_eq!(kept, Base64::parse(&text).unwrap());
        }
    }
}
