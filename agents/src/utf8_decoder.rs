//! Bytes that come in pieces, as text.

/// Bytes that come in pieces, as text: characters stay whole, and what is no text is shown as such.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    incomplete: Vec<u8>,
}

impl Utf8Decoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.incomplete.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.incomplete);
        let chunks: Vec<_> = bytes.utf8_chunks().collect();
        let last = chunks.last().map_or(&[][..], |chunk| chunk.invalid());
        // No more than the beginning of a character: the rest of it may be on its way.
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

    pub(crate) fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.incomplete)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole_wherever_the_pieces_end() {
        let all = "aé€😀".as_bytes();
        for cut in 0..=all.len() {
            let mut text = Utf8Decoder::default();
            let pieces = [text.push(&all[..cut]), text.push(&all[cut..]), text.flush()];
            assert_eq!(pieces.concat(), "aé€😀");
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        let mut text = Utf8Decoder::default();
        assert_eq!(text.push(b"a\xff\xfeb"), "a\u{fffd}\u{fffd}b");
        assert_eq!(text.push(b"\xf0\x9f"), "");
        assert_eq!(text.push(b"x"), "\u{fffd}x");
        assert_eq!(text.push(b"\xe2\x82"), "");
        assert_eq!(text.flush(), "\u{fffd}");
    }
}
