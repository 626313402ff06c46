//! The small pieces that the binary form is made of.
//!
//! Whole numbers are LEB128; text is its length and its bytes; what may be absent is its length plus one, or zero.

use std::fmt;

use crate::model::{ArtifactId, ContextId, TaskId, Timestamp};

/// Bytes that are not what we once wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Corrupt(pub(in crate::store) &'static str);

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stored bytes are damaged, or from a newer program: {}",
            self.0
        )
    }
}

impl std::error::Error for Corrupt {}

pub(super) type Read<T> = Result<T, Corrupt>;

/// The format in which ids that were written already are a byte.
pub(super) const SHORT: u8 = 2;

/// What a whole task of a few words takes: room that is there from the start need not grow step by step.
const USUAL: usize = 512;

/// Room for so many things is made before they were read.
const MOST_AT_ONCE: usize = 256;

/// The ids of a task and of its conversation.
type Own = (TaskId, ContextId);

/// Bytes that grow.
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// Whether ids that were written already are written as one byte.
    short: bool,
    own: Option<Own>,
    /// The last one that was written so.
    artifact: Option<ArtifactId>,
}

impl Writer {
    /// Begins, behind what is there, with the byte that says which format follows; about so much will.
    pub(super) fn behind(before: &[u8], format: u8, about: usize) -> Self {
        let mut bytes = Vec::with_capacity(before.len() + about.max(USUAL));
        bytes.extend_from_slice(before);
        bytes.push(format);
        Self {
            bytes,
            short: format == SHORT,
            own: None,
            artifact: None,
        }
    }

    /// The ids that messages behind this are likely to name.
    pub(super) fn own(&mut self, id: &TaskId, context_id: &ContextId) {
        self.text(id.as_str());
        self.text(context_id.as_str());
        if self.short {
            self.own = Some((id.clone(), context_id.clone()));
        }
    }

    /// The conversation that a message names.
    pub(super) fn maybe_context(&mut self, id: Option<&ContextId>) {
        let is_own = id.is_some() && id == self.own.as_ref().map(|own| &own.1);
        self.maybe_own(id.map(AsRef::as_ref), is_own);
    }

    /// The task that a message names.
    pub(super) fn maybe_task(&mut self, id: Option<&TaskId>) {
        let is_own = id.is_some() && id == self.own.as_ref().map(|own| &own.0);
        self.maybe_own(id.map(AsRef::as_ref), is_own);
    }

    fn maybe_own(&mut self, id: Option<&str>, is_own: bool) {
        match id {
            Some(_) if is_own => self.byte(1),
            Some(id) if self.short => {
                self.count(id.len() + 2);
                self.put(id);
            }
            id => self.maybe_text(id),
        }
    }

    /// An artifact; the chunks of one name it again and again.
    pub(super) fn artifact(&mut self, id: &ArtifactId) {
        if !self.short {
            return self.text(id.as_str());
        }
        if self.artifact.as_ref() == Some(id) {
            return self.byte(0);
        }
        self.maybe_text(Some(id.as_str()));
        self.artifact = Some(id.clone());
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
        self.put(text);
    }

    /// Bytes of a text. Behind a large one there is room for small things, which would else move it.
    fn put(&mut self, text: &str) {
        if text.len() > self.bytes.capacity() - self.bytes.len() {
            self.bytes.reserve(text.len() + USUAL);
        }
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn maybe_text(&mut self, text: Option<&str>) {
        match text {
            None => self.byte(0),
            Some(text) => {
                self.count(text.len() + 1);
                self.put(text);
            }
        }
    }

    pub(super) fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
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
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    short: bool,
    own: Option<Own>,
    /// The last one that was read: the chunks of an artifact share their id.
    artifact: Option<ArtifactId>,
}

impl<'a> Reader<'a> {
    /// Takes off the byte that says which format follows, which must be `format`.
    pub(super) fn new(bytes: &'a [u8], format: u8) -> Read<Self> {
        match bytes.split_first() {
            Some((&first, rest)) if first == format => Ok(Self {
                bytes: rest,
                short: format == SHORT,
                own: None,
                artifact: None,
            }),
            Some(_) => Err(Corrupt("an unknown format")),
            None => Err(Corrupt("nothing there")),
        }
    }

    /// The reverse of [`Writer::own`].
    pub(super) fn own(&mut self) -> Read<Own> {
        let own: Own = (self.text()?.into(), self.text()?.into());
        if self.short {
            self.own = Some(own.clone());
        }
        Ok(own)
    }

    /// The conversation that a message names.
    pub(super) fn maybe_context(&mut self) -> Read<Option<ContextId>> {
        self.maybe_own(|own| own.1.clone())
    }

    /// The task that a message names.
    pub(super) fn maybe_task(&mut self) -> Read<Option<TaskId>> {
        self.maybe_own(|own| own.0.clone())
    }

    fn maybe_own<T: From<&'a str>>(&mut self, own: impl FnOnce(&Own) -> T) -> Read<Option<T>> {
        if !self.short {
            return Ok(self.maybe_text()?.map(Into::into));
        }
        match usize::try_from(self.number()?).unwrap_or(usize::MAX) {
            0 => Ok(None),
            1 => self
                .own
                .as_ref()
                .map(own)
                .map(Some)
                .ok_or(Corrupt("an id that stands for none")),
            length => Ok(Some(self.take(length - 2)?.into())),
        }
    }

    /// The reverse of [`Writer::artifact`].
    pub(super) fn artifact(&mut self) -> Read<ArtifactId> {
        let text = if self.short {
            self.maybe_text()?
        } else {
            Some(self.text()?)
        };
        let Some(text) = text else {
            return self
                .artifact
                .clone()
                .ok_or(Corrupt("an artifact without an id"));
        };
        match &self.artifact {
            Some(last) if last.as_str() == text => Ok(last.clone()),
            _ => Ok(self.artifact.insert(text.into()).clone()),
        }
    }

    /// What was read, if that was all there is.
    pub(super) fn end<T>(self, value: T) -> Read<T> {
        if self.bytes.is_empty() {
            Ok(value)
        } else {
            Err(Corrupt("bytes behind the end"))
        }
    }

    pub(super) fn byte(&mut self) -> Read<u8> {
        let (&byte, rest) = self.bytes.split_first().ok_or(Corrupt("cut off"))?;
        self.bytes = rest;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> Read<u64> {
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
        Err(Corrupt("a number beyond 64 bits"))
    }

    /// How many things follow; each takes a byte at least, so that no lie makes us reserve memory.
    pub(super) fn count(&mut self) -> Read<usize> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count <= self.bytes.len() {
            Ok(count)
        } else {
            Err(Corrupt("cut off"))
        }
    }

    pub(super) fn time(&mut self) -> Read<Timestamp> {
        let number = self.number()?;
        let millis = (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
        Timestamp::from_millis(millis).ok_or(Corrupt("a time outside the years 1 to 9999"))
    }

    pub(super) fn flag(&mut self) -> Read<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Corrupt("neither yes nor no")),
        }
    }

    pub(super) fn text(&mut self) -> Read<&'a str> {
        let length = self.count()?;
        self.take(length)
    }

    pub(super) fn maybe_text(&mut self) -> Read<Option<&'a str>> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        length
            .checked_sub(1)
            .map(|length| self.take(length))
            .transpose()
    }

    pub(super) fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<Option<T>> {
        if self.flag()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn list<T>(&mut self, read: impl Fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.count()?;
        // As many as are really there most of the time; one that lies about more gets no more than this.
        let mut items = Vec::with_capacity(count.min(MOST_AT_ONCE));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn take(&mut self, length: usize) -> Read<&'a str> {
        let (text, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or(Corrupt("cut off"))?;
        self.bytes = rest;
        std::str::from_utf8(text).map_err(|_| Corrupt("text that is not UTF-8"))
    }
}
