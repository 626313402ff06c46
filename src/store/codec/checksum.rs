//! Checksums of stored rows: the last four bytes are the CRC-32 of the bytes before them.
//!
//! SQLite does not detect a flipped bit inside a row, and most flips decode to another valid value.

use super::{CodecError, DecodeResult};

/// Size of a checksum.
const CHECKSUM_BYTES: usize = 4;

/// Appends the checksum of the bytes.
pub(in crate::store) fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Returns the bytes before the checksum, if it matches them.
pub(in crate::store) fn verify_checksum(bytes: &[u8]) -> DecodeResult<&[u8]> {
    let (content, checksum) = bytes
        .split_last_chunk::<CHECKSUM_BYTES>()
        .ok_or(CodecError("no checksum"))?;
    if crc32fast::hash(content) == u32::from_le_bytes(*checksum) {
        Ok(content)
    } else {
        Err(CodecError("wrong checksum"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d16_every_flipped_bit_is_detected() {
        let stored = with_checksum(b"content".to_vec());
        assert_eq!(verify_checksum(&stored).unwrap(), b"content");
        for bit in 0..stored.len() * 8 {
            let mut damaged = stored.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                verify_checksum(&damaged),
                Err(CodecError("wrong checksum")),
                "{bit}"
            );
        }
        assert_eq!(verify_checksum(b"abc"), Err(CodecError("no checksum")));
    }
}
