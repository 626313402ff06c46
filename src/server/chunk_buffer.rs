//! Encoded events of a stream: bytes of its own, and large pieces that it shares with other streams.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;

/// Buffer that events are encoded into. It dereferences to the bytes after the last shared piece.
#[derive(Debug, Default)]
pub(super) struct ChunkBuffer {
    pieces: VecDeque<Bytes>,
    out: Vec<u8>,
}

impl ChunkBuffer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            pieces: VecDeque::new(),
            out: Vec::with_capacity(bytes),
        }
    }

    /// Appends bytes without a copy.
    pub(super) fn push_shared(&mut self, bytes: Bytes) {
        let before = std::mem::take(&mut self.out);
        self.pieces.push_back(before.into());
        self.pieces.push_back(bytes);
    }

    /// Returns the number of bytes.
    pub(super) fn total_len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.out.len()
    }

    /// Returns the bytes in order.
    pub(super) fn into_pieces(self) -> ChunkPieces {
        let mut pieces = self.pieces;
        let last = Bytes::from(self.out);
        match pieces.pop_front() {
            None => ChunkPieces {
                first: last,
                others: pieces,
            },
            Some(first) => {
                pieces.push_back(last);
                ChunkPieces {
                    first,
                    others: pieces,
                }
            }
        }
    }
}

impl Deref for ChunkBuffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.out
    }
}

impl DerefMut for ChunkBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

impl From<Vec<u8>> for ChunkBuffer {
    fn from(out: Vec<u8>) -> Self {
        Self {
            pieces: VecDeque::new(),
            out,
        }
    }
}

/// Bytes of a chunk that are not sent yet. Most chunks have one piece, which needs no queue.
#[derive(Debug, Default)]
pub(super) struct ChunkPieces {
    first: Bytes,
    others: VecDeque<Bytes>,
}

impl ChunkPieces {
    /// Splits off the next frame of at most 64 KiB. Returns `None` if no bytes are left.
    pub(super) fn next_frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = super::h2_stall::next_frame(&mut self.first) {
                return Some(frame);
            }
            self.first = self.others.pop_front()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d03_shared_pieces_are_sent_in_order_without_a_copy() {
        let shared = Bytes::from(vec![b'x'; 100_000]);
        let mut buffer = ChunkBuffer::with_capacity(16);
        buffer.extend_from_slice(b"before");
        buffer.push_shared(shared.clone());
        buffer.extend_from_slice(b"after");
        assert_eq!(buffer.total_len(), 100_011);
        let mut pieces = buffer.into_pieces();
        let frames: Vec<_> = std::iter::from_fn(|| pieces.next_frame()).collect();
        assert_eq!(frames[1].as_ptr(), shared.as_ptr());
        let mut expected = b"before".to_vec();
        expected.extend_from_slice(&shared);
        expected.extend_from_slice(b"after");
        assert_eq!(frames.concat(), expected);
        let mut small = ChunkBuffer::from(b"one".to_vec()).into_pieces();
        assert_eq!(small.next_frame().unwrap(), "one");
        assert_eq!(small.next_frame(), None);
    }
}
