//! Decoder of the primitives that the binary formats consist of; the reverse of [`super::encoder`].

use super::{CodecError, DecodeResult};
use crate::model::{ArtifactId, Timestamp};

/// Maximum number of list items to allocate before they are decoded.
const MAX_PREALLOCATED_ITEMS: usize = 256;

/// Cursor over encoded bytes with one method for each primitive.
pub(super) struct LogDecoder<'a> {
    bytes: &'a [u8],
    /// Last artifact id. Chunks of one artifact share its allocation.
    artifact_id: Option<ArtifactId>,
}

impl<'a> LogDecoder<'a> {
    /// Creates a decoder and consumes the format byte, which must be `format`.
    pub(super) fn new(bytes: &'a [u8], format: u8) -> DecodeResult<Self> {
        match bytes.split_first() {
            Some((&first, rest)) if first == format => Ok(Self {
                bytes: rest,
                artifact_id: None,
            }),
            Some(_) => Err(CodecError("unknown format")),
            None => Err(CodecError("empty")),
        }
    }

    /// Reads an artifact id.
    pub(super) fn artifact_id(&mut self) -> DecodeResult<ArtifactId> {
        let text = self.text()?;
        match &self.artifact_id {
            Some(last) if last.as_str() == text => Ok(last.clone()),
            _ => Ok(self.artifact_id.insert(text.into()).clone()),
        }
    }

    /// Returns the decoded value if no bytes are left.
    pub(super) fn finish<T>(self, value: T) -> DecodeResult<T> {
        if self.bytes.is_empty() {
            Ok(value)
        } else {
            Err(CodecError("trailing bytes"))
        }
    }

    pub(super) fn byte(&mut self) -> DecodeResult<u8> {
        let (&byte, rest) = self.bytes.split_first().ok_or(CodecError("truncated"))?;
        self.bytes = rest;
        Ok(byte)
    }

    /// Reads a LEB128 integer.
    pub(super) fn number(&mut self) -> DecodeResult<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(CodecError("integer over 64 bits"))
    }

    /// Reads a length or an item count. It cannot exceed the remaining bytes, because every item takes at least one: a
    /// forged count allocates nothing.
    pub(super) fn count(&mut self) -> DecodeResult<usize> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count <= self.bytes.len() {
            Ok(count)
        } else {
            Err(CodecError("truncated"))
        }
    }

    pub(super) fn time(&mut self) -> DecodeResult<Timestamp> {
        let number = self.number()?;
        let millis = (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
        Timestamp::from_millis(millis).ok_or(CodecError("time outside the years 1 to 9999"))
    }

    pub(super) fn bool(&mut self) -> DecodeResult<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError("boolean other than 0 and 1")),
        }
    }

    pub(super) fn text(&mut self) -> DecodeResult<&'a str> {
        let length = self.count()?;
        self.take_str(length)
    }

    pub(super) fn optional_text(&mut self) -> DecodeResult<Option<&'a str>> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        length
            .checked_sub(1)
            .map(|length| self.take_str(length))
            .transpose()
    }

    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> DecodeResult<T>,
    ) -> DecodeResult<Option<T>> {
        if self.bool()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> DecodeResult<T>,
    ) -> DecodeResult<Vec<T>> {
        let count = self.count()?;
        // A forged count gets no more than `MAX_PREALLOCATED_ITEMS` up front.
        let mut items = Vec::with_capacity(count.min(MAX_PREALLOCATED_ITEMS));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn take_str(&mut self, length: usize) -> DecodeResult<&'a str> {
        let (text, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or(CodecError("truncated"))?;
        self.bytes = rest;
        std::str::from_utf8(text).map_err(|_| CodecError("text that is not UTF-8"))
    }
}
