//! Server-sent events, written and read; bytes only, no I/O.
//!
//! Written exactly: one `data:` line per event, LF line ends. Read as the HTML standard says, in any chunking.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

/// Keeps an idle connection open; readers skip it.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Asks a reader to come again soon, as the stream is about to end before its time.
pub const RECONNECT: &[u8] = b"retry: 1000\n\n";

/// How large one event may be unless said otherwise; the protocol asks readers for at least 10 MiB.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Appends one event. `data` is one line, as JSON without layout is.
pub fn write_event(out: &mut Vec<u8>, id: Option<u64>, data: &[u8]) {
    debug_assert!(!data.iter().any(is_line_end), "data is one line");
    begin_event(out, id);
    out.extend_from_slice(data);
    end_event(out);
}

/// Appends the event that tells of a failure after the stream began. 1.0 only: 0.3 uses a plain event.
pub fn write_error(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"event: error\n");
    write_event(out, None, data);
}

/// Opens an event whose data the caller appends in place, in one line; [`end_event`] closes it.
pub fn begin_event(out: &mut Vec<u8>, id: Option<u64>) {
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        push_decimal(out, id);
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
}

/// Closes the event that [`begin_event`] opened.
pub fn end_event(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\n\n");
}

fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let (mut digits, mut at) = ([b'0'; 20], 20);
    loop {
        at -= 1;
        digits[at] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&digits[at..]);
        }
    }
}

/// One event as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SseEvent {
    /// Its type; absent means `message`.
    pub event: Option<String>,
    /// The last event id in force, which may come from an earlier event. Shared, so that a long id is not copied
    /// into each of many short events.
    pub id: Option<Arc<str>>,
    /// Its data, several lines joined with `\n`; never empty. Bytes that are not UTF-8 read as U+FFFD.
    pub data: String,
    /// The reconnection time in force, in milliseconds.
    pub retry: Option<u64>,
}

/// Why a stream can not be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An event, or a line that never ends, is larger than this many bytes.
    TooLarge {
        /// The limit that was passed.
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

/// Reads events from bytes that arrive in any pieces.
///
/// [`push`](Decoder::push) what arrived, then iterate until `None`; more may follow after the next push. Where the
/// pieces are cut never changes what is read. Each byte is looked at a fixed number of times, and at most the limit
/// is kept between pushes apart from events not yet taken.
///
/// One departure from the HTML standard: an event whose data is the empty string is dropped like one without data,
/// since no JSON document is empty and some servers keep a connection open with `data:`.
///
/// ```
/// use attache::wire::sse::Decoder;
///
/// let mut decoder = Decoder::default();
/// decoder.push(b"id: 7\ndata: {\"task\":");
/// assert!(decoder.next().is_none());
/// decoder.push(b"{}}\n\n");
/// let event = decoder.next().expect("the event is whole")?;
/// assert_eq!((event.id.as_deref(), event.data.as_str()), (Some("7"), r#"{"task":{}}"#));
/// assert!(decoder.is_clean());
/// # Ok::<(), attache::wire::sse::Error>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
    /// The last line ended in CR: a LF right behind it belongs to it.
    after_cr: bool,
    first_line: bool,
    /// Bytes of the fields since the last blank line, whether kept or not.
    size: usize,
    event: Option<String>,
    data: Option<Vec<u8>>,
    /// What `last_event_id` becomes at the next blank line.
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

    /// The next whole event. An error is the last item there will ever be.
    fn next(&mut self) -> Option<Self::Item> {
        self.ready.pop_front()
    }
}

impl Decoder {
    /// A decoder at the start of a stream. The limit counts the lines of an event without their ends; a comment
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

    /// Takes the next bytes of the stream. After a failure they are ignored.
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

    /// Whether the stream may end here without loss: no line and no event has been begun.
    pub fn is_at_boundary(&self) -> bool {
        !self.failed && self.partial.is_empty() && self.size == 0
    }

    /// The id to resume from: that of the last finished event, even one that had no data.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// How long the server asks a client to wait before it reconnects, in milliseconds.
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

/// An empty `event` or `id` takes back the one before it.
fn non_empty(value: &[u8]) -> Option<&[u8]> {
    Some(value).filter(|value| !value.is_empty())
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Like [`text`], but valid UTF-8, however long, is not copied.
fn owned_text(value: Vec<u8>) -> String {
    String::from_utf8(value).unwrap_or_else(|error| text(error.as_bytes()))
}

/// Digits only: a sign, which `parse` would take, is not a time.
fn milliseconds(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|value| value.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}
