//! Encoder of the primitives that the binary formats consist of.
//!
//! Integers are LEB128. A text is its length and its UTF-8 bytes. An optional text is its length plus one, or 0 if absent.

use crate::model::Timestamp;

/// Initial capacity: a whole short task fits, so that the buffer rarely grows.
const MIN_CAPACITY: usize = 512;

/// Append-only buffer with one method for each primitive.
pub(super) struct LogEncoder {
    bytes: Vec<u8>,
}

impl LogEncoder {
    /// Creates an encoder that holds the format byte, with capacity for about `capacity` more bytes.
    pub(super) fn new(format: u8, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity.max(MIN_CAPACITY));
        bytes.push(format);
        Self { bytes }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Writes an integer in LEB128.
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }

    pub(super) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    /// Writes milliseconds in zigzag encoding: 0, -1, 1, -2 become 0, 1, 2, 3.
    pub(super) fn time(&mut self, time: Timestamp) {
        let millis = time.as_millis();
        self.number(((millis << 1) ^ (millis >> 63)).cast_unsigned());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.put_str(text);
    }

    /// Appends the bytes of a text. Growth reserves `MIN_CAPACITY` more, so that small fields after a large text do not
    /// reallocate it.
    fn put_str(&mut self, text: &str) {
        if text.len() > self.bytes.capacity() - self.bytes.len() {
            self.bytes.reserve(text.len() + MIN_CAPACITY);
        }
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn optional_text(&mut self, text: Option<&str>) {
        match text {
            None => self.byte(0),
            Some(text) => {
                self.count(text.len() + 1);
                self.put_str(text);
            }
        }
    }

    pub(super) fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T)) {
        self.count(items.len());
        items.iter().for_each(|item| write(self, item));
    }
}
