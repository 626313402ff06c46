//! gRPC frames: a header of 5 bytes before each message. No I/O.

use std::fmt;

const HEADER_BYTES: usize = 5;

/// Appends an uncompressed frame.
///
/// # Errors
/// The message is longer than a frame can express.
pub fn write_frame(out: &mut Vec<u8>, message: &[u8]) -> Result<(), FrameError> {
    let length = u32::try_from(message.len()).map_err(|_| FrameError::TooLarge {
        limit: u32::MAX as usize,
    })?;
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    Ok(())
}

/// Reason why a body cannot be decoded further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A message exceeds the limit.
    TooLarge {
        /// Exceeded limit in bytes.
        limit: usize,
    },
    /// A message is compressed, although the client did not offer compression.
    Compressed,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "gRPC message larger than {limit} bytes"),
            Self::Compressed => f.write_str("gRPC message is compressed"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Incremental decoder of gRPC frames; accepts any chunking. Rejects an oversized message by its
/// header, before it arrives.
#[derive(Debug)]
pub struct FrameDecoder {
    limit: usize,
    bytes: Vec<u8>,
    /// Start of the next frame in `bytes`.
    at: usize,
}

impl FrameDecoder {
    /// Creates a decoder with a size limit for messages.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: Vec::new(),
            at: 0,
        }
    }

    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    /// The body cannot be decoded further.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(([flag, length @ ..], rest)) =
            self.bytes[self.at..].split_first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        if *flag != 0 {
            return Err(FrameError::Compressed);
        }
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.limit {
            return Err(FrameError::TooLarge { limit: self.limit });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let start = self.at + HEADER_BYTES;
        self.at = start + length;
        Ok(Some(&self.bytes[start..self.at]))
    }

    /// Whether the body may end here without loss.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.at == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], piece: usize, limit: usize) -> (Vec<Vec<u8>>, Option<FrameError>, bool) {
        let mut frames = FrameDecoder::new(limit);
        let mut found = Vec::new();
        for piece in bytes.chunks(piece) {
            frames.push(piece);
            loop {
                match frames.next_frame() {
                    Ok(Some(message)) => found.push(message.to_vec()),
                    Ok(None) => break,
                    Err(fault) => return (found, Some(fault), frames.is_at_boundary()),
                }
            }
        }
        (found, None, frames.is_at_boundary())
    }

    #[test]
    fn frames_round_trip_in_any_chunking() {
        let messages = [b"one".to_vec(), Vec::new(), vec![7; 300]];
        let mut bytes = Vec::new();
        for message in &messages {
            write_frame(&mut bytes, message).unwrap();
        }
        for piece in [1, 2, 5, 7, 64, bytes.len()] {
            assert_eq!(
                read(&bytes, piece, 300),
                (messages.to_vec(), None, true),
                "{piece}"
            );
        }
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(read(cut, 4, 300), (messages[..2].to_vec(), None, false));
    }

    #[test]
    fn s25_oversized_message_is_rejected_by_its_header() {
        let head = [0, 0, 0, 1, 45];
        assert_eq!(
            read(&head, 5, 300),
            (vec![], Some(FrameError::TooLarge { limit: 300 }), false)
        );
        assert_eq!(
            read(&[1, 0, 0, 0, 0], 1, 300).1,
            Some(FrameError::Compressed)
        );
    }
}
