//! SSE reader on its own connection. Tests decide when it reads, pauses or disconnects.

use attache::wire::sse::{Decoder, SseEvent};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::with_deadline;

/// A response whose body is read event by event.
pub(crate) struct SseReader {
    stream: TcpStream,
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The decoded body received so far.
    pub(crate) text: String,
    /// Received bytes that are still chunk-encoded.
    raw: Vec<u8>,
    chunked: bool,
    decoder: Decoder,
    over: bool,
}

impl SseReader {
    /// Reads the response head.
    pub(crate) async fn open(mut stream: TcpStream) -> Self {
        let mut raw = Vec::new();
        let head = with_deadline(async {
            loop {
                if let Some(end) = find(&raw, b"\r\n\r\n") {
                    let head = String::from_utf8(raw[..end].to_vec())
                        .unwrap()
                        .to_ascii_lowercase();
                    raw.drain(..end + 4);
                    return head;
                }
                assert_ne!(
                    stream.read_buf(&mut raw).await.unwrap(),
                    0,
                    "cut off in the head"
                );
            }
        })
        .await;
        let status = head
            .split(' ')
            .nth(1)
            .expect("a status line")
            .parse()
            .unwrap();
        let chunked = head.contains("transfer-encoding: chunked");
        Self {
            stream,
            status,
            head,
            text: String::new(),
            raw,
            chunked,
            decoder: Decoder::default(),
            over: false,
        }
    }

    /// Returns the next event, `None` after a complete end of the body.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        with_deadline(async {
            loop {
                if let Some(event) = self.decoder.next() {
                    return Some(event.unwrap());
                }
                if self.over {
                    assert!(
                        self.decoder.is_at_boundary(),
                        "an event was torn: {}",
                        self.text
                    );
                    return None;
                }
                self.read_more().await;
            }
        })
        .await
    }

    /// Returns the next event; panics at the end.
    pub(crate) async fn one(&mut self) -> SseEvent {
        self.next()
            .await
            .unwrap_or_else(|| panic!("one more event after {}", self.text))
    }

    /// Returns all remaining events.
    pub(crate) async fn rest(&mut self) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Number of SSE comments received so far.
    pub(crate) async fn until_comments(&mut self, count: usize) {
        with_deadline(async {
            while self.comments() < count {
                assert!(!self.over, "the stream ended");
                self.read_more().await;
            }
        })
        .await;
    }

    pub(crate) fn comments(&self) -> usize {
        self.text.matches(": keep-alive\n\n").count()
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    async fn read_more(&mut self) {
        while !self.unchunk() {
            if self.stream.read_buf(&mut self.raw).await.unwrap() == 0 {
                assert!(
                    !self.chunked,
                    "the connection was cut after {:?}",
                    self.text
                );
                self.over = true;
                return;
            }
        }
    }

    /// Decodes one chunk if it has arrived completely.
    fn unchunk(&mut self) -> bool {
        if !self.chunked {
            let piece = std::mem::take(&mut self.raw);
            self.take(&piece);
            return !piece.is_empty();
        }
        let Some(end) = find(&self.raw, b"\r\n") else {
            return false;
        };
        let size =
            usize::from_str_radix(std::str::from_utf8(&self.raw[..end]).unwrap(), 16).unwrap();
        let start = end + 2;
        let whole = start + size + 2;
        if self.raw.len() < whole {
            return false;
        }
        let piece = self.raw[start..start + size].to_vec();
        self.raw.drain(..whole);
        self.over = size == 0;
        self.take(&piece);
        true
    }

    fn take(&mut self, piece: &[u8]) {
        self.text.push_str(&String::from_utf8_lossy(piece));
        self.decoder.push(piece);
    }
}

/// Returns the value of a header in a lower-case response head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .skip(1)
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
