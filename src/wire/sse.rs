//! Server-sent events, written and read; bytes only, no I/O.
//!
//! Written exactly: one `data:` line per event, LF line ends. Read as the HTML standard says, in any chunking.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;

/// Keeps an idle connection open; readers skip it.
pub const COMMENT: &[u8] = b": keep-alive\n\n";

/// Asks a reader to come again soon, as the stream is about to end before its time.
pub const RECONNECT: &[u8] = b"retry: 1000\n\n";

/// How large one event may be unless said otherwise; the protocol asks readers for at least 10 MiB.
pub const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Appends one event. `data` is one line, as JSON without layout is.
pub fn write_event(out: &mut Vec<u8>, id: Option<u64>, data: &[u8]) {
    debug_assert!(!data.iter().any(is_line_end), "data is one line");
    begin(out, id);
    out.extend_from_slice(data);
    end(out);
}

/// Appends the event that tells of a failure after the stream began. 1.0 only: 0.3 uses a plain event.
pub fn write_error(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"event: error\n");
    write_event(out, None, data);
}

/// Opens an event whose data the caller appends in place, in one line; [`end`] closes it.
pub fn begin(out: &mut Vec<u8>, id: Option<u64>) {
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        push_decimal(out, id);
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
}

/// Closes the event that [`begin`] opened.
pub fn end(out: &mut Vec<u8>) {
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
pub struct Event {
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
    ready: VecDeque<Result<Event, Error>>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl Iterator for Decoder {
    type Item = Result<Event, Error>;

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
            if self.size.saturating_add(self.partial.len()).saturating_add(piece.len()) > self.limit {
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
    pub fn is_clean(&self) -> bool {
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
        self.ready.push_back(Err(Error::TooLarge { limit: self.limit }));
    }

    fn end_line(&mut self, piece: &[u8], line_end: u8) {
        let second_half = self.after_cr && line_end == b'\n' && self.partial.is_empty() && piece.is_empty();
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
            self.ready.push_back(Ok(Event { event, id, data: owned_text(data), retry: self.retry }));
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
    let digits = std::str::from_utf8(value).ok().filter(|value| value.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What a stream came to, told so that two readings can be compared.
    #[derive(Debug, PartialEq)]
    struct Reading {
        items: Vec<Result<Event, Error>>,
        clean: bool,
        last_event_id: Option<String>,
        retry: Option<u64>,
    }

    fn read<'a>(limit: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Reading {
        let mut decoder = Decoder::new(limit);
        let mut items = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            items.extend(&mut decoder);
        }
        let last_event_id = decoder.last_event_id().map(str::to_owned);
        Reading { items, clean: decoder.is_clean(), last_event_id, retry: decoder.retry() }
    }

    fn read_whole(bytes: &[u8]) -> Reading {
        read(MAX_EVENT_BYTES, [bytes])
    }

    /// Cuts `bytes` into pieces whose lengths follow `lengths`, over and over.
    fn cut<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        for length in lengths.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }

    fn event(data: &str) -> Event {
        Event { event: None, id: None, data: data.into(), retry: None }
    }

    fn typed(name: &str, data: &str) -> Event {
        Event { event: Some(name.into()), ..event(data) }
    }

    fn numbered(id: &str, data: &str) -> Event {
        Event { id: Some(id.into()), ..event(data) }
    }

    fn timed(retry: u64, data: &str) -> Event {
        Event { retry: Some(retry), ..event(data) }
    }

    #[test]
    fn frames_are_written_exactly() {
        let mut out = Vec::new();
        write_event(&mut out, Some(0), b"{}");
        write_event(&mut out, Some(u64::MAX), b"{}");
        write_event(&mut out, None, b"[]");
        write_error(&mut out, b"{\"error\":{}}");
        out.extend_from_slice(COMMENT);
        begin(&mut out, Some(1200));
        out.extend_from_slice(b"{\"id\":1,");
        out.extend_from_slice(b"\"result\":{}}");
        end(&mut out);
        let expected = "id: 0\ndata: {}\n\nid: 18446744073709551615\ndata: {}\n\ndata: []\n\n\
             event: error\ndata: {\"error\":{}}\n\n: keep-alive\n\n\
             id: 1200\ndata: {\"id\":1,\"result\":{}}\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn tricky_streams_are_read_as_the_standard_says() {
        let table: &[(&str, &[u8], Vec<Event>)] = &[
            ("LF", b"data: a\n\ndata: b\n\n", vec![event("a"), event("b")]),
            ("CRLF", b"data: a\r\n\r\ndata: b\r\n\r\n", vec![event("a"), event("b")]),
            ("CR", b"data: a\r\rdata: b\r\r", vec![event("a"), event("b")]),
            (
                "mixed ends",
                b"data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\r",
                vec![event("a\nb\nc"), event("d")],
            ),
            ("LF CR is two ends", b"data: a\n\rdata: b\r\n\n", vec![event("a"), event("b")]),
            ("BOM", b"\xEF\xBB\xBFdata: a\n\n", vec![event("a")]),
            ("BOM later", b"data: a\n\n\xEF\xBB\xBFdata: b\n\n", vec![event("a")]),
            ("two BOMs", b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", vec![]),
            ("BOM on a blank line", b"\xEF\xBB\xBF\ndata: a\n\n", vec![event("a")]),
            ("comments", b": x\n:\n\ndata: a\n: y\ndata: b\n\n", vec![event("a\nb")]),
            ("one space", b"data:a\ndata: b\ndata:  c\ndata:\td\n\n", vec![event("a\nb\n c\n\td")]),
            ("colons in a value", b"data: {\"a\":1}\n\n", vec![event("{\"a\":1}")]),
            ("type", b"event: error\ndata: a\n\ndata: b\n\n", vec![typed("error", "a"), event("b")]),
            ("type without data", b"event: x\n\ndata: a\n\n", vec![event("a")]),
            ("type taken back", b"event: x\nevent\ndata: a\n\n", vec![event("a")]),
            ("no colon", b"data\ndata\n\n", vec![event("\n")]),
            ("empty data", b"data:\n\ndata: \n\ndata\n\n", vec![]),
            ("id stays", b"id: 1\ndata: a\n\ndata: b\n\n", vec![numbered("1", "a"), numbered("1", "b")]),
            ("id without data", b"id: 1\n\ndata: a\n\n", vec![numbered("1", "a")]),
            ("id taken back", b"id: 1\ndata: a\n\nid\ndata: b\n\n", vec![numbered("1", "a"), event("b")]),
            ("id with NUL", b"id: 1\nid: 2\0\ndata: a\n\n", vec![numbered("1", "a")]),
            ("retry", b"retry: 15\ndata: a\n\ndata: b\n\n", vec![timed(15, "a"), timed(15, "b")]),
            ("bad retry", b"retry: 1\nretry: +2\nretry: 3s\nretry\ndata: a\n\n", vec![timed(1, "a")]),
            ("huge retry", b"retry: 99999999999999999999\ndata: a\n\n", vec![event("a")]),
            ("unknown fields", b"Data: a\n data: b\nfoo\ndata: c\n\n", vec![event("c")]),
            ("unfinished", b"data: a\n\ndata: b\n", vec![event("a")]),
            ("not UTF-8", b"data: \xE2\x82\ndata: \xFFb\n\n", vec![event("\u{FFFD}\n\u{FFFD}b")]),
            ("blank lines", b"\n\r\n\r\rdata: a\n\n\n\n", vec![event("a")]),
            ("nothing", b"", vec![]),
        ];
        for (name, bytes, expected) in table {
            let whole = read_whole(bytes);
            assert_eq!(whole.items, expected.iter().cloned().map(Ok).collect::<Vec<_>>(), "{name}");
            assert_eq!(read(MAX_EVENT_BYTES, cut(bytes, &[1])), whole, "{name}, byte by byte");
        }
    }

    #[test]
    fn the_end_is_clean_between_events_only() {
        let table: &[(&[u8], bool)] = &[
            (b"", true),
            (b"data: a\n\n", true),
            (b"data: a\r\n\r", true),
            (b"data: a\n\n: x\n", true),
            (b"data: a\n", false),
            (b"id: 1\n", false),
            (b"data: a\n\n: x", false),
            (b"data: a\n\nd", false),
        ];
        for (bytes, clean) in table {
            assert_eq!(read_whole(bytes).clean, *clean, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn an_unfinished_event_leaves_the_last_id_alone() {
        assert_eq!(read_whole(b"id: 1\n\nid: 2\ndata: a\n").last_event_id.as_deref(), Some("1"));
        assert_eq!(read_whole(b"id: 1\n\nid: 2\n\n").last_event_id.as_deref(), Some("2"));
    }

    #[test]
    fn too_large_is_said_once_and_for_ever() {
        let limit = 10;
        let table: &[(&str, &[u8], &[&str], bool)] = &[
            ("at the limit", b"data: 4567\n\n", &["4567"], false),
            ("one more", b"data: 45678\n\n", &[], true),
            ("no line end", b"data: 45678", &[], true),
            ("a comment without end", b":1234567890", &[], true),
            ("several lines", b"data: 1\ndata\n\n", &[], true),
            ("after an event", b"data: a\n\nxxxxxxxxxxx\n\ndata: b\n\n", &["a"], true),
            ("comments do not add up", b"data: a\n:1\n:2\n:3\n:4\n\n", &["a"], false),
        ];
        for (name, bytes, data, fails) in table {
            let events = data.iter().map(|data| Ok(event(data)));
            let expected: Vec<_> = events.chain(fails.then_some(Err(Error::TooLarge { limit }))).collect();
            assert_eq!(read(limit, [*bytes]).items, expected, "{name}");
            assert_eq!(read(limit, cut(bytes, &[1])).items, expected, "{name}, byte by byte");
        }
    }

    #[test]
    fn after_a_failure_nothing_is_kept_or_clean() {
        let mut decoder = Decoder::new(4);
        decoder.push(b"12345");
        decoder.push(b"\n\ndata\n\n");
        assert_eq!(decoder.by_ref().count(), 1);
        assert!(!decoder.is_clean());
        assert_eq!(decoder.partial.capacity(), 0);
    }

    #[test]
    fn a_large_event_arrives_byte_by_byte() {
        let data = vec![b'x'; 1 << 20];
        let mut bytes = Vec::new();
        write_event(&mut bytes, None, &data);
        let reading = read(MAX_EVENT_BYTES, cut(&bytes, &[1]));
        assert_eq!(reading.items, [Ok(event(&String::from_utf8(data).unwrap()))]);
    }

    /// What may be written: an event, an error or a comment.
    #[derive(Clone, Debug)]
    enum Frame {
        Event(Option<u64>, String),
        Error(String),
        Comment,
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let line = "[^\r\n]{1,40}";
        prop_oneof![
            (any::<Option<u64>>(), line).prop_map(|(id, data)| Frame::Event(id, data)),
            line.prop_map(Frame::Error),
            Just(Frame::Comment),
        ]
    }

    fn write(frames: &[Frame]) -> Vec<u8> {
        let mut out = Vec::new();
        for frame in frames {
            match frame {
                Frame::Event(id, data) => write_event(&mut out, *id, data.as_bytes()),
                Frame::Error(data) => write_error(&mut out, data.as_bytes()),
                Frame::Comment => out.extend_from_slice(COMMENT),
            }
        }
        out
    }

    fn expected(frames: &[Frame]) -> Vec<Result<Event, Error>> {
        let mut in_force: Option<Arc<str>> = None;
        let mut events = Vec::new();
        for frame in frames {
            match frame {
                Frame::Event(id, data) => {
                    in_force = id.map(|id| id.to_string().into()).or(in_force);
                    events.push(Ok(Event { id: in_force.clone(), ..event(data) }));
                }
                Frame::Error(data) => {
                    events.push(Ok(Event { id: in_force.clone(), ..typed("error", data) }));
                }
                Frame::Comment => {}
            }
        }
        events
    }

    /// Bytes that look enough like a stream to reach every branch, and bytes that do not.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            4 => prop::sample::select(vec!["data", "event", "id", "retry", ":", ": ", " ", "7", "\0", "\u{FEFF}", "é"])
                .prop_map(|word| word.as_bytes().to_vec()),
            4 => prop::sample::select(vec!["\n", "\r", "\r\n", "\n\n"]).prop_map(|end| end.as_bytes().to_vec()),
            1 => vec(any::<u8>(), 0..8),
        ];
        vec(word, 0..60).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(frames in vec(frame(), 0..12), lengths in vec(1..30_usize, 1..20)) {
            let bytes = write(&frames);
            let reading = read(MAX_EVENT_BYTES, cut(&bytes, &lengths));
            prop_assert_eq!(reading.items, expected(&frames));
            prop_assert!(reading.clean);
        }

        #[test]
        fn cuts_change_nothing(bytes in bytes(), lengths in vec(1..9_usize, 1..20), limit in 0..60_usize) {
            prop_assert_eq!(read(limit, cut(&bytes, &lengths)), read(limit, [&bytes[..]]));
        }
    }
}
