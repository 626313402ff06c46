//! The small pieces that the binary form is made of.
//!
//! Whole numbers are LEB128; text is its length and its bytes; what may be absent is its length plus one, or zero.

use std::fmt;

use crate::model::{ArtifactId, ContextId, TaskId, Timestamp};

/// Bytes that are not what we once wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct CodecError(pub(in crate::store) &'static str);

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stored bytes are damaged, or from a newer program: {}",
            self.0
        )
    }
}

impl std::error::Error for CodecError {}

pub(super) type DecodeResult<T> = Result<T, CodecError>;

/// The format in which ids that were written already are a byte.
pub(super) const COMPACT_FORMAT: u8 = 2;

/// What a whole task of a few words takes: room that is there from the start need not grow step by step.
const MIN_CAPACITY: usize = 512;

/// Room for so many things is made before they were read.
const MAX_PREALLOCATED_ITEMS: usize = 256;

/// The ids of a task and of its conversation.
type OwnIds = (TaskId, ContextId);

/// Bytes that grow.
pub(super) struct LogEncoder {
    bytes: Vec<u8>,
    /// Whether ids that were written already are written as one byte.
    compact: bool,
    own_ids: Option<OwnIds>,
    /// The last one that was written so.
    artifact_id: Option<ArtifactId>,
}

impl LogEncoder {
    /// Begins, behind what is there, with the byte that says which format follows; about so much will.
    pub(super) fn with_prefix(before: &[u8], format: u8, about: usize) -> Self {
        let mut bytes = Vec::with_capacity(before.len() + about.max(MIN_CAPACITY));
        bytes.extend_from_slice(before);
        bytes.push(format);
        Self {
            bytes,
            compact: format == COMPACT_FORMAT,
            own_ids: None,
            artifact_id: None,
        }
    }

    /// The ids that messages behind this are likely to name.
    pub(super) fn own_ids(&mut self, id: &TaskId, context_id: &ContextId) {
        self.text(id.as_str());
        self.text(context_id.as_str());
        if self.compact {
            self.own_ids = Some((id.clone(), context_id.clone()));
        }
    }

    /// The conversation that a message names.
    pub(super) fn optional_context_id(&mut self, id: Option<&ContextId>) {
        let is_own = id.is_some() && id == self.own_ids.as_ref().map(|ids| &ids.1);
        self.optional_id(id.map(AsRef::as_ref), is_own);
    }

    /// The task that a message names.
    pub(super) fn optional_task_id(&mut self, id: Option<&TaskId>) {
        let is_own = id.is_some() && id == self.own_ids.as_ref().map(|ids| &ids.0);
        self.optional_id(id.map(AsRef::as_ref), is_own);
    }

    fn optional_id(&mut self, id: Option<&str>, is_own: bool) {
        match id {
            Some(_) if is_own => self.byte(1),
            Some(id) if self.compact => {
                self.count(id.len() + 2);
                self.put_str(id);
            }
            id => self.optional_text(id),
        }
    }

    /// An artifact; the chunks of one name it again and again.
    pub(super) fn artifact_id(&mut self, id: &ArtifactId) {
        if !self.compact {
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

    /// Small numbers of either sign are short: 0, -1, 1, -2 become 0, 1, 2, 3.
    pub(super) fn time(&mut self, time: Timestamp) {
        let millis = time.as_millis();
        self.number(((millis << 1) ^ (millis >> 63)).cast_unsigned());
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.put_str(text);
    }

    /// Bytes of a text. Behind a large one there is room for small things, which would else move it.
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

/// Bytes yet to be read.
pub(super) struct LogDecoder<'a> {
    bytes: &'a [u8],
    compact: bool,
    own_ids: Option<OwnIds>,
    /// The last one that was read: the chunks of an artifact share their id.
    artifact_id: Option<ArtifactId>,
}

impl<'a> LogDecoder<'a> {
    /// Takes off the byte that says which format follows, which must be `format`.
    pub(super) fn new(bytes: &'a [u8], format: u8) -> DecodeResult<Self> {
        match bytes.split_first() {
            Some((&first, rest)) if first == format => Ok(Self {
                bytes: rest,
                compact: format == COMPACT_FORMAT,
                own_ids: None,
                artifact_id: None,
            }),
            Some(_) => Err(CodecError("an unknown format")),
            None => Err(CodecError("nothing there")),
        }
    }

    /// The reverse of [`LogEncoder::own_ids`].
    pub(super) fn own_ids(&mut self) -> DecodeResult<OwnIds> {
        let ids: OwnIds = (self.text()?.into(), self.text()?.into());
        if self.compact {
            self.own_ids = Some(ids.clone());
        }
        Ok(ids)
    }

    /// The conversation that a message names.
    pub(super) fn optional_context_id(&mut self) -> DecodeResult<Option<ContextId>> {
        self.optional_id(|ids| ids.1.clone())
    }

    /// The task that a message names.
    pub(super) fn optional_task_id(&mut self) -> DecodeResult<Option<TaskId>> {
        self.optional_id(|ids| ids.0.clone())
    }

    fn optional_id<T: From<&'a str>>(
        &mut self,
        select: impl FnOnce(&OwnIds) -> T,
    ) -> DecodeResult<Option<T>> {
        if !self.compact {
            return Ok(self.optional_text()?.map(Into::into));
        }
        match usize::try_from(self.number()?).unwrap_or(usize::MAX) {
            0 => Ok(None),
            1 => self
                .own_ids
                .as_ref()
                .map(select)
                .map(Some)
                .ok_or(CodecError("an id that stands for none")),
            length => Ok(Some(self.take_str(length - 2)?.into())),
        }
    }

    /// The reverse of [`LogEncoder::artifact_id`].
    pub(super) fn artifact_id(&mut self) -> DecodeResult<ArtifactId> {
        let text = if self.compact {
            self.optional_text()?
        } else {
            Some(self.text()?)
        };
        let Some(text) = text else {
            return self
                .artifact_id
                .clone()
                .ok_or(CodecError("an artifact without an id"));
        };
        match &self.artifact_id {
            Some(last) if last.as_str() == text => Ok(last.clone()),
            _ => Ok(self.artifact_id.insert(text.into()).clone()),
        }
    }

    /// What was read, if that was all there is.
    pub(super) fn finish<T>(self, value: T) -> DecodeResult<T> {
        if self.bytes.is_empty() {
            Ok(value)
        } else {
            Err(CodecError("bytes behind the end"))
        }
    }

    pub(super) fn byte(&mut self) -> DecodeResult<u8> {
        let (&byte, rest) = self.bytes.split_first().ok_or(CodecError("cut off"))?;
        self.bytes = rest;
        Ok(byte)
    }

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
        Err(CodecError("a number beyond 64 bits"))
    }

    /// How many things follow; each takes a byte at least, so that no lie makes us reserve memory.
    pub(super) fn count(&mut self) -> DecodeResult<usize> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count <= self.bytes.len() {
            Ok(count)
        } else {
            Err(CodecError("cut off"))
        }
    }

    pub(super) fn time(&mut self) -> DecodeResult<Timestamp> {
        let number = self.number()?;
        let millis = (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
        Timestamp::from_millis(millis).ok_or(CodecError("a time outside the years 1 to 9999"))
    }

    pub(super) fn bool(&mut self) -> DecodeResult<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError("neither yes nor no")),
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
        // As many as are really there most of the time; one that lies about more gets no more than this.
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
            .ok_or(CodecError("cut off"))?;
        self.bytes = rest;
        std::str::from_utf8(text).map_err(|_| CodecError("text that is not UTF-8"))
    }
}
