//! Splits a byte stream into lines, in time linear in its length.

/// Collects bytes until a line is complete. The caller bounds the length of the stream.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    /// Bytes after the last line break.
    partial: Vec<u8>,
    #[cfg(test)]
    touched_bytes: usize,
}

impl LineBuffer {
    /// Adds a chunk. Returns all complete lines, up to the last line break; empty if there is none.
    ///
    /// Searches the new bytes only: a line that arrives in many chunks is not searched again with each of them.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        #[cfg(test)]
        self.count(chunk.len());
        let Some(last_break) = chunk.iter().rposition(|byte| *byte == b'\n') else {
            self.partial.extend_from_slice(chunk);
            return Vec::new();
        };
        let (whole, rest) = chunk.split_at(last_break + 1);
        #[cfg(test)]
        self.count(self.partial.len());
        let mut lines = std::mem::replace(&mut self.partial, rest.to_vec());
        lines.extend_from_slice(whole);
        lines
    }

    /// Length of the line that is not complete yet.
    #[cfg(unix)]
    pub(crate) fn partial_len(&self) -> usize {
        self.partial.len()
    }

    /// Returns the last line, which may lack its line break.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.partial
    }

    /// Counts bytes that were searched or moved.
    #[cfg(test)]
    fn count(&mut self, bytes: usize) {
        self.touched_bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_at_every_chunk_boundary() {
        let text = b"one\n\ntwo\nthree";
        for size in 1..=text.len() {
            let mut buffer = LineBuffer::default();
            let mut lines = Vec::new();
            for chunk in text.chunks(size) {
                let whole = buffer.push(chunk);
                assert!(whole.is_empty() || whole.ends_with(b"\n"));
                lines.extend(whole);
            }
            assert_eq!(lines, b"one\n\ntwo\n", "chunks of {size}");
            assert_eq!(buffer.finish(), b"three", "chunks of {size}");
        }
    }

    #[test]
    fn d23_a_line_without_an_end_costs_linear_work() {
        const LENGTH: usize = 10_000_000;
        let chunk = [b'x'; 8192];
        let mut buffer = LineBuffer::default();
        let mut length = 0;
        while length < LENGTH {
            assert!(buffer.push(&chunk).is_empty());
            length += chunk.len();
        }
        buffer.push(b"\n");
        assert!(buffer.touched_bytes <= 2 * length + 1);
    }
}
