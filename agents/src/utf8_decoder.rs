//! Incremental UTF-8 decoder for byte streams that may split characters.

/// Decodes UTF-8 that arrives in chunks. Invalid bytes become U+FFFD.
///
/// A character that is split between two chunks is returned whole with the second one.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    /// Beginning of a character whose remaining bytes have not arrived, at most 3 bytes.
    incomplete: Vec<u8>,
}

impl Utf8Decoder {
    /// Decodes one chunk.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.incomplete.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.incomplete);
        let chunks: Vec<_> = bytes.utf8_chunks().collect();
        let last = chunks.last().map_or(&[][..], |chunk| chunk.invalid());
        // `error_len` is `None` if the bytes are the beginning of a valid character.
        let is_incomplete =
            std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        let end = if is_incomplete {
            bytes.len() - last.len()
        } else {
            bytes.len()
        };
        self.incomplete.extend_from_slice(&bytes[end..]);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// Decodes the remaining bytes at the end of the stream.
    pub(crate) fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.incomplete)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_characters_are_returned_whole() {
        let all = "aé€😀".as_bytes();
        for cut in 0..=all.len() {
            let mut text = Utf8Decoder::default();
            let pieces = [text.push(&all[..cut]), text.push(&all[cut..]), text.flush()];
            assert_eq!(pieces.concat(), "aé€😀");
        }
    }

    #[test]
    fn invalid_bytes_become_replacement_characters() {
        let mut text = Utf8Decoder::default();
        assert_eq!(text.push(b"a\xff\xfeb"), "a\u{fffd}\u{fffd}b");
        assert_eq!(text.push(b"\xf0\x9f"), "");
        assert_eq!(text.push(b"x"), "\u{fffd}x");
        assert_eq!(text.push(b"\xe2\x82"), "");
        assert_eq!(text.flush(), "\u{fffd}");
    }
}
