//! Base64 text of binary content in JSON.

use std::fmt;
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
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Base64(Arc<str>);

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
        Self(Arc::from(STANDARD.encode(bytes)))
    }

    /// Parses standard or URL-safe base64, padded or unpadded, into canonical form.
    ///
    /// # Errors
    /// [`InvalidBase64`] if a character or the length is invalid.
    pub fn parse(text: &str) -> Result<Self, InvalidBase64> {
        if is_canonical(text.as_bytes()) {
            return Ok(Self(Arc::from(text)));
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
        &self.0
    }

    /// Returns the length of the decoded content in bytes, without decoding.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        let text = self.as_str();
        let padding = text.bytes().rev().take_while(|&byte| byte == b'=').count();
        text.len() / 4 * 3 - padding
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

/// Whether a text is canonical base64. Only the last group of four characters needs decoding to
/// decide that.
fn is_canonical(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk::<4>() else {
        return text.is_empty();
    };
    let unpadded = text.strip_suffix(b"==").or(text.strip_suffix(b"="));
    text.len().is_multiple_of(4)
        && is_alphabet(unpadded.unwrap_or(text))
        && STANDARD
            .decode(last)
            .is_ok_and(|bytes| STANDARD.encode(bytes).as_bytes() == last)
}

/// Whether all bytes are in the base64 alphabet. Without branches, so that the compiler vectorizes
/// the loop.
fn is_alphabet(text: &[u8]) -> bool {
    text.iter()
        .fold(true, |good, &byte| good & is_alphabet_byte(byte))
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
    fn canonical_text_of_any_length_is_kept() {
        for length in (0..300).chain([4_000]) {
            let text = STANDARD.encode(vec![0xfb; length]);
            assert!(is_canonical(text.as_bytes()), "{length}");
            assert_eq!(Base64::parse(&text).unwrap().as_str(), text);
        }
        for text in ["AQID-", "AQIDA", "AQ", "/x==", "AQ===", "A===", "AQ=="] {
            assert_eq!(is_canonical(text.as_bytes()), text == "AQ==", "{text}");
        }
    }
}
