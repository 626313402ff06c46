//! Tests of the SSE encoder and decoder, including property tests with random chunking.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Result of decoding a stream, for comparison.
#[derive(Debug, PartialEq)]
struct Reading {
    items: Vec<Result<SseEvent, Error>>,
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
    Reading {
        items,
        clean: decoder.is_at_boundary(),
        last_event_id,
        retry: decoder.retry(),
    }
}

fn read_whole(bytes: &[u8]) -> Reading {
    read(MAX_EVENT_BYTES, [bytes])
}

/// Splits `bytes` into pieces with the given lengths, repeated.
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

fn event(data: &str) -> SseEvent {
    SseEvent {
        event: None,
        id: None,
        data: data.into(),
        retry: None,
    }
}

fn typed(name: &str, data: &str) -> SseEvent {
    SseEvent {
        event: Some(name.into()),
        ..event(data)
    }
}

fn numbered(id: &str, data: &str) -> SseEvent {
    SseEvent {
        id: Some(id.into()),
        ..event(data)
    }
}

fn timed(retry: u64, data: &str) -> SseEvent {
    SseEvent {
        retry: Some(retry),
        ..event(data)
    }
}

#[test]
fn frames_have_the_exact_format() {
    let mut out = Vec::new();
    write_event(&mut out, Some(0), b"{}");
    write_event(&mut out, Some(u64::MAX), b"{}");
    write_event(&mut out, None, b"[]");
    write_error(&mut out, b"{\"error\":{}}");
    out.extend_from_slice(KEEP_ALIVE);
    begin_event(&mut out, Some(1200));
    out.extend_from_slice(b"{\"id\":1,");
    out.extend_from_slice(b"\"result\":{}}");
    end_event(&mut out);
    let expected = "id: 0\ndata: {}\n\nid: 18446744073709551615\ndata: {}\n\ndata: []\n\n\
         event: error\ndata: {\"error\":{}}\n\n: keep-alive\n\n\
         id: 1200\ndata: {\"id\":1,\"result\":{}}\n\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn edge_cases_follow_the_standard() {
    let table: &[(&str, &[u8], Vec<SseEvent>)] = &[
        (
            "LF",
            b"data: a\n\ndata: b\n\n",
            vec![event("a"), event("b")],
        ),
        (
            "CRLF",
            b"data: a\r\n\r\ndata: b\r\n\r\n",
            vec![event("a"), event("b")],
        ),
        (
            "CR",
            b"data: a\r\rdata: b\r\r",
            vec![event("a"), event("b")],
        ),
        (
            "mixed ends",
            b"data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\r",
            vec![event("a\nb\nc"), event("d")],
        ),
        (
            "LF CR is two ends",
            b"data: a\n\rdata: b\r\n\n",
            vec![event("a"), event("b")],
        ),
        ("BOM", b"\xEF\xBB\xBFdata: a\n\n", vec![event("a")]),
        (
            "BOM later",
            b"data: a\n\n\xEF\xBB\xBFdata: b\n\n",
            vec![event("a")],
        ),
        ("two BOMs", b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", vec![]),
        (
            "BOM on a blank line",
            b"\xEF\xBB\xBF\ndata: a\n\n",
            vec![event("a")],
        ),
        (
            "comments",
            b": x\n:\n\ndata: a\n: y\ndata: b\n\n",
            vec![event("a\nb")],
        ),
        (
            "one space",
            b"data:a\ndata: b\ndata:  c\ndata:\td\n\n",
            vec![event("a\nb\n c\n\td")],
        ),
        (
            "colons in a value",
            b"data: {\"a\":1}\n\n",
            vec![event("{\"a\":1}")],
        ),
        (
            "type",
            b"event: error\ndata: a\n\ndata: b\n\n",
            vec![typed("error", "a"), event("b")],
        ),
        (
            "type without data",
            b"event: x\n\ndata: a\n\n",
            vec![event("a")],
        ),
        (
            "type taken back",
            b"event: x\nevent\ndata: a\n\n",
            vec![event("a")],
        ),
        ("no colon", b"data\ndata\n\n", vec![event("\n")]),
        ("empty data", b"data:\n\ndata: \n\ndata\n\n", vec![]),
        (
            "id stays",
            b"id: 1\ndata: a\n\ndata: b\n\n",
            vec![numbered("1", "a"), numbered("1", "b")],
        ),
        (
            "id without data",
            b"id: 1\n\ndata: a\n\n",
            vec![numbered("1", "a")],
        ),
        (
            "id taken back",
            b"id: 1\ndata: a\n\nid\ndata: b\n\n",
            vec![numbered("1", "a"), event("b")],
        ),
        (
            "id with NUL",
            b"id: 1\nid: 2\0\ndata: a\n\n",
            vec![numbered("1", "a")],
        ),
        (
            "retry",
            b"retry: 15\ndata: a\n\ndata: b\n\n",
            vec![timed(15, "a"), timed(15, "b")],
        ),
        (
            "bad retry",
            b"retry: 1\nretry: +2\nretry: 3s\nretry\ndata: a\n\n",
            vec![timed(1, "a")],
        ),
        (
            "huge retry",
            b"retry: 99999999999999999999\ndata: a\n\n",
            vec![event("a")],
        ),
        (
            "unknown fields",
            b"Data: a\n data: b\nfoo\ndata: c\n\n",
            vec![event("c")],
        ),
        ("unfinished", b"data: a\n\ndata: b\n", vec![event("a")]),
        (
            "not UTF-8",
            b"data: \xE2\x82\ndata: \xFFb\n\n",
            vec![event("\u{FFFD}\n\u{FFFD}b")],
        ),
        (
            "blank lines",
            b"\n\r\n\r\rdata: a\n\n\n\n",
            vec![event("a")],
        ),
        ("nothing", b"", vec![]),
    ];
    for (name, bytes, expected) in table {
        let whole = read_whole(bytes);
        assert_eq!(
            whole.items,
            expected.iter().cloned().map(Ok).collect::<Vec<_>>(),
            "{name}"
        );
        assert_eq!(
            read(MAX_EVENT_BYTES, cut(bytes, &[1])),
            whole,
            "{name}, byte by byte"
        );
    }
}

#[test]
fn boundary_is_only_between_events() {
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
        assert_eq!(
            read_whole(bytes).clean,
            *clean,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn incomplete_event_does_not_change_the_last_id() {
    assert_eq!(
        read_whole(b"id: 1\n\nid: 2\ndata: a\n")
            .last_event_id
            .as_deref(),
        Some("1")
    );
    assert_eq!(
        read_whole(b"id: 1\n\nid: 2\n\n").last_event_id.as_deref(),
        Some("2")
    );
}

#[test]
fn size_limit_error_is_final() {
    let limit = 10;
    let table: &[(&str, &[u8], &[&str], bool)] = &[
        ("at the limit", b"data: 4567\n\n", &["4567"], false),
        ("one more", b"data: 45678\n\n", &[], true),
        ("no line end", b"data: 45678", &[], true),
        ("a comment without end", b":1234567890", &[], true),
        ("several lines", b"data: 1\ndata\n\n", &[], true),
        (
            "after an event",
            b"data: a\n\nxxxxxxxxxxx\n\ndata: b\n\n",
            &["a"],
            true,
        ),
        (
            "comments do not add up",
            b"data: a\n:1\n:2\n:3\n:4\n\n",
            &["a"],
            false,
        ),
    ];
    for (name, bytes, data, fails) in table {
        let events = data.iter().map(|data| Ok(event(data)));
        let expected: Vec<_> = events
            .chain(fails.then_some(Err(Error::TooLarge { limit })))
            .collect();
        assert_eq!(read(limit, [*bytes]).items, expected, "{name}");
        assert_eq!(
            read(limit, cut(bytes, &[1])).items,
            expected,
            "{name}, byte by byte"
        );
    }
}

#[test]
fn decoder_frees_its_buffer_after_an_error() {
    let mut decoder = Decoder::new(4);
    decoder.push(b"12345");
    decoder.push(b"\n\ndata\n\n");
    assert_eq!(decoder.by_ref().count(), 1);
    assert!(!decoder.is_at_boundary());
    assert_eq!(decoder.partial.capacity(), 0);
}

#[test]
fn large_event_is_decoded_byte_by_byte() {
    let data = vec![b'x'; 1 << 20];
    let mut bytes = Vec::new();
    write_event(&mut bytes, None, &data);
    let reading = read(MAX_EVENT_BYTES, cut(&bytes, &[1]));
    assert_eq!(
        reading.items,
        [Ok(event(&String::from_utf8(data).unwrap()))]
    );
}

/// Frame that the encoder can write.
#[derive(Clone, Debug)]
enum Frame {
    SseEvent(Option<u64>, String),
    Error(String),
    Comment,
}

fn frame() -> impl Strategy<Value = Frame> {
    let line = "[^\r\n]{1,40}";
    prop_oneof![
        (any::<Option<u64>>(), line).prop_map(|(id, data)| Frame::SseEvent(id, data)),
        line.prop_map(Frame::Error),
        Just(Frame::Comment),
    ]
}

fn write(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    for frame in frames {
        match frame {
            Frame::SseEvent(id, data) => write_event(&mut out, *id, data.as_bytes()),
            Frame::Error(data) => write_error(&mut out, data.as_bytes()),
            Frame::Comment => out.extend_from_slice(KEEP_ALIVE),
        }
    }
    out
}

fn expected(frames: &[Frame]) -> Vec<Result<SseEvent, Error>> {
    let mut in_force: Option<Arc<str>> = None;
    let mut events = Vec::new();
    for frame in frames {
        match frame {
            Frame::SseEvent(id, data) => {
                in_force = id.map(|id| id.to_string().into()).or(in_force);
                events.push(Ok(SseEvent {
                    id: in_force.clone(),
                    ..event(data)
                }));
            }
            Frame::Error(data) => {
                events.push(Ok(SseEvent {
                    id: in_force.clone(),
                    ..typed("error", data)
                }));
            }
            Frame::Comment => {}
        }
    }
    events
}

/// Random bytes, biased towards SSE syntax to reach every branch.
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
    fn written_frames_are_decoded(frames in vec(frame(), 0..12), lengths in vec(1..30_usize, 1..20)) {
        let bytes = write(&frames);
        let reading = read(MAX_EVENT_BYTES, cut(&bytes, &lengths));
        prop_assert_eq!(reading.items, expected(&frames));
        prop_assert!(reading.clean);
    }

    #[test]
    fn chunking_does_not_change_the_result(bytes in bytes(), lengths in vec(1..9_usize, 1..20), limit in 0..60_usize) {
        prop_assert_eq!(read(limit, cut(&bytes, &lengths)), read(limit, [&bytes[..]]));
    }
}
