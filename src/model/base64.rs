//! Bytes as they travel in JSON.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// Bytes in base64: standard alphabet, padded, the one text for these bytes.
///
/// A large file mostly passes through us, so it is kept as it came and decoded only for whoever asks.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Base64(Arc<str>);

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
        Self(Arc::from(STANDARD.encode(bytes)))
    }

    /// Reads standard or URL-safe base64, padded or not.
    ///
    /// # Errors
    /// A character or a length that no bytes have.
    pub fn parse(text: &str) -> Result<Self, NotBase64> {
        if is_exact(text.as_bytes()) {
            return Ok(Self(Arc::from(text)));
        }
        let bytes = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).map_err(|_| NotBase64)?;
        Ok(Self::encode(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn decode(&self) -> Vec<u8> {
        // The text was checked when it was kept.
        STANDARD.decode(&*self.0).unwrap_or_default()
    }

    /// The text: standard alphabet, padded.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How many bytes it stands for.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        let padding = self.0.bytes().rev().take_while(|&byte| byte == b'=').count();
        self.0.len() / 4 * 3 - padding
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
        serializer.serialize_str(&self.0)
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

/// Whether the text is what [`Base64::encode`] would write; the last group settles it after the alphabet.
fn is_exact(text: &[u8]) -> bool {
    let Some((body, last)) = text.split_last_chunk::<4>() else { return text.is_empty() };
    text.len().is_multiple_of(4)
        && body.chunks(64).all(|chunk| chunk.iter().fold(true, |good, &byte| good & is_standard(byte)))
        && STANDARD.decode(last).is_ok_and(|bytes| STANDARD.encode(bytes).as_bytes() == last)
}

/// Without branches, so that the compiler checks many at once.
fn is_standard(byte: u8) -> bool {
    (byte.wrapping_sub(b'A') < 26)
        | (byte.wrapping_sub(b'a') < 26)
        | (byte.wrapping_sub(b'0') < 10)
        | (byte == b'+')
        | (byte == b'/')
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
}
