//! Encoder of the primitives that the binary formats consist of.
//!
//! Integers are LEB128. A text is its length and its UTF-8 bytes. An optional text is its length plus one, or 0 if absent.

use super::{COMPACT_FORMAT, OwnIds};
use crate::model::{ArtifactId, ContextId, TaskId, Timestamp};

/// Initial capacity: a whole short task fits, so that the buffer rarely grows.
const MIN_CAPACITY: usize = 512;

/// Append-only buffer with one method for each primitive.
pub(super) struct LogEncoder {
    bytes: Vec<u8>,
    /// Whether an id that was written before is written as one byte ([`COMPACT_FORMAT`]).
    is_compact: bool,
    own_ids: Option<OwnIds>,
    /// Last artifact id that was written in full.
    artifact_id: Option<ArtifactId>,
}

impl LogEncoder {
    /// Creates an encoder that holds `prefix` and the format byte, with capacity for about `capacity` more bytes.
    pub(super) fn with_prefix(prefix: &[u8], format: u8, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(prefix.len() + capacity.max(MIN_CAPACITY));
        bytes.extend_from_slice(prefix);
        bytes.push(format);
        Self {
            bytes,
            is_compact: format == COMPACT_FORMAT,
            own_ids: None,
            artifact_id: None,
        }
    }

    /// Writes the ids of the task and its context. Messages that follow are likely to repeat them.
    pub(super) fn own_ids(&mut self, id: &TaskId, context_id: &ContextId) {
        self.text(id.as_str());
        self.text(context_id.as_str());
        if self.is_compact {
            self.own_ids = Some(OwnIds {
                task: id.clone(),
                context: context_id.clone(),
            });
        }
    }

    /// Writes the context id of a message.
    pub(super) fn optional_context_id(&mut self, id: Option<&ContextId>) {
        let is_own = id.is_some() && id == self.own_ids.as_ref().map(|ids| &ids.context);
        self.optional_id(id.map(AsRef::as_ref), is_own);
    }

    /// Writes the task id of a message.
    pub(super) fn optional_task_id(&mut self, id: Option<&TaskId>) {
        let is_own = id.is_some() && id == self.own_ids.as_ref().map(|ids| &ids.task);
        self.optional_id(id.map(AsRef::as_ref), is_own);
    }

    /// Compact format: 0 for none, 1 for the task's own id, else length plus two and the bytes.
    fn optional_id(&mut self, id: Option<&str>, is_own: bool) {
        match id {
            Some(_) if is_own => self.byte(1),
            Some(id) if self.is_compact => {
                self.count(id.len() + 2);
                self.put_str(id);
            }
            id => self.optional_text(id),
        }
    }

    /// Writes an artifact id. Compact format: 0 repeats the last one, because chunks of an artifact share its id.
    pub(super) fn artifact_id(&mut self, id: &ArtifactId) {
        if !self.is_compact {
            return self.text(id.as_str());
        }
        if self.artifact_id.as_ref() == Some(id) {
            return self.byte(0);
        }
        self.optional_text(Some(id.as_str()));
        self.artifact_id = Some(id.clone());
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
