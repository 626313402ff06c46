//! Server-sent events: encoder and incremental decoder (01 §6). No I/O.
//!
//! The encoder writes one `data:` line per event with LF line ends. The decoder follows the HTML
//! standard and accepts any chunking.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

/// Comment that keeps an idle connection open; decoders ignore it.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Reconnection hint of 1 s, sent before the server closes a stream early.
pub const RECONNECT: &[u8] = b"retry: 1000\n\n";

/// Default size limit of an event. The protocol requires at least 10 MiB.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Appends an event. `data` must not contain line breaks, as compact JSON does not.
pub fn write_event(out: &mut Vec<u8>, id: Option<u64>, data: &[u8]) {
    debug_assert!(!data.iter().any(is_line_end), "data is one line");
    begin_event(out, id);
    out.extend_from_slice(data);
    end_event(out);
}

/// Appends an error event for a failure after the stream started. 1.0 only; 0.3 uses a plain event.
pub fn write_error(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"event: error\n");
    write_event(out, None, data);
}

/// Starts an event. The caller appends the data without line breaks, then [`end_event`].
pub fn begin_event(out: &mut Vec<u8>, id: Option<u64>) {
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        push_decimal(out, id);
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
}

/// Ends the event that [`begin_event`] started.
pub fn end_event(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n\n");
}

fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&digits[at..]);
        }
    }
}

/// Decoded event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// Event type; absent means `message`.
    pub event: Option<String>,
    /// Last event id, possibly from an earlier event. Shared, so that a long id is not copied into
    /// every event.
    pub id: Option<Arc<str>>,
    /// Data; lines are joined with `\n`. Never empty. Invalid UTF-8 is replaced by U+FFFD.
    pub data: String,
    /// Reconnection time in milliseconds.
    pub retry: Option<u64>,
}

/// Reason why a stream cannot be decoded further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An event or an unterminated line exceeds the limit.
    TooLarge {
        /// Exceeded limit in bytes.
        limit: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooLarge { limit } => write!(f, "server-sent event larger than {limit} bytes"),
        }
    }
}

impl std::error::Error for Error {}

/// Incremental decoder of server-sent events.
///
/// [`push`](Decoder::push) received bytes, then iterate until `None`; later pushes may add events.
/// The result does not depend on the chunking. Decoding takes linear time. Between pushes the
/// decoder buffers at most the limit, plus events that were not yet taken.
///
/// One deviation from the HTML standard: an event with empty data is dropped like one without data.
/// No JSON document is empty, and some servers use `data:` as keep-alive.
///
/// ```
/// use attache::wire::sse::Decoder;
///
/// let mut decoder = Decoder::default();
/// decoder.push(b"id: 7\ndata: {\"task\":");
/// assert!(decoder.next().is_none());
/// decoder.push(b"{}}\n\n");
/// let event = decoder.next().expect("the event is complete")?;
/// assert_eq!((event.id.as_deref(), event.data.as_str()), (Some("7"), r#"{"task":{}}"#));
/// assert!(decoder.is_at_boundary());
/// # Ok::<(), attache::wire::sse::Error>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// Start of an incomplete line.
    partial: Vec<u8>,
    /// Whether the last line ended in CR. An LF directly after it belongs to the same line end.
    after_cr: bool,
    first_line: bool,
    /// Bytes of all fields since the last blank line, including ignored ones.
    size: usize,
    event: Option<String>,
    data: Option<Vec<u8>>,
    /// Value for `last_event_id` at the next blank line.
    id: Option<Arc<str>>,
    last_event_id: Option<Arc<str>>,
    retry: Option<u64>,
    failed: bool,
    ready: VecDeque<Result<SseEvent, Error>>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl Iterator for Decoder {
    type Item = Result<SseEvent, Error>;

    /// Returns the next complete event. After an error the iterator ends.
    fn next(&mut self) -> Option<Self::Item> {
        self.ready.pop_front()
    }
}

impl Decoder {
    /// Creates a decoder. The limit counts the lines of an event without line ends; a comment
    /// counts only while it is read.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            limit: max_event_bytes,
            partial: Vec::new(),
            after_cr: false,
            first_line: true,
            size: 0,
            event: None,
            data: None,
            id: None,
            last_event_id: None,
            retry: None,
            failed: false,
            ready: VecDeque::new(),
        }
    }

    /// Appends received bytes. Ignored after an error.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !self.failed {
            let end = bytes.iter().position(is_line_end).unwrap_or(bytes.len());
            let (piece, rest) = bytes.split_at(end);
            if self
                .size
                .saturating_add(self.partial.len())
                .saturating_add(piece.len())
                > self.limit
            {
                return self.fail();
            }
            let Some((&line_end, rest)) = rest.split_first() else {
                return self.partial.extend_from_slice(piece);
            };
            self.end_line(piece, line_end);
            bytes = rest;
        }
    }

    /// Whether the stream may end here without loss: no line or event is incomplete.
    pub fn is_at_boundary(&self) -> bool {
        !self.failed && self.partial.is_empty() && self.size == 0
    }

    /// Returns the id to resume from: that of the last complete event, even one without data.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// Returns the reconnection time that the server requested, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    fn fail(&mut self) {
        self.failed = true;
        self.partial = Vec::new();
        self.data = None;
        self.ready
            .push_back(Err(Error::TooLarge { limit: self.limit }));
    }

    fn end_line(&mut self, piece: &[u8], line_end: u8) {
        let second_half =
            self.after_cr && line_end == b'\n' && self.partial.is_empty() && piece.is_empty();
        self.after_cr = line_end == b'\r';
        if second_half {
            return;
        }
        if self.partial.is_empty() {
            return self.read_line(piece);
        }
        let mut line = mem::take(&mut self.partial);
        line.extend_from_slice(piece);
        self.read_line(&line);
    }

    fn read_line(&mut self, mut line: &[u8]) {
        if mem::take(&mut self.first_line) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        match line {
            [] => self.dispatch(),
            [b':', ..] => {}
            field => self.read_field(field),
        }
    }

    fn read_field(&mut self, line: &[u8]) {
        self.size += line.len();
        let mut halves = line.splitn(2, |&byte| byte == b':');
        let name = halves.next().unwrap_or_default();
        let value = halves.next().unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => self.add_data(value),
            b"event" => self.event = non_empty(value).map(text),
            b"id" if !value.contains(&0) => self.id = non_empty(value).map(|id| text(id).into()),
            b"retry" => self.retry = milliseconds(value).or(self.retry),
            _ => {}
        }
    }

    fn add_data(&mut self, value: &[u8]) {
        match &mut self.data {
            None => self.data = Some(value.to_vec()),
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
        }
    }

    fn dispatch(&mut self) {
        self.size = 0;
        self.last_event_id.clone_from(&self.id);
        let event = self.event.take();
        if let Some(data) = self.data.take().filter(|data| !data.is_empty()) {
            let id = self.last_event_id.clone();
            self.ready.push_back(Ok(SseEvent {
                event,
                id,
                data: owned_text(data),
                retry: self.retry,
            }));
        }
    }
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Returns `None` for an empty value, which resets `event` and `id`.
fn non_empty(value: &[u8]) -> Option<&[u8]> {
    Some(value).filter(|value| !value.is_empty())
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Decodes UTF-8 like [`text`], without copying valid input.
fn owned_text(value: Vec<u8>) -> String {
    String::from_utf8(value).unwrap_or_else(|error| text(error.as_bytes()))
}

/// Parses digits only; `parse` would accept a sign.
fn milliseconds(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|value| value.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}
