//! Somebody who sees what passes the door.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};

/// What passes between us and a peer, as it passes. Credentials are in it: whoever prints it masks them.
#[derive(Debug)]
pub enum Traffic<'a> {
    /// A request is sent.
    Request {
        /// The HTTP method.
        method: &'a str,
        /// The whole url.
        url: String,
        /// Names and values; those of `sensitive` ones may be credentials.
        headers: Vec<Header<'a>>,
        /// The body.
        body: &'a [u8],
    },
    /// The head of the answer has come.
    Response {
        /// The HTTP status.
        status: u16,
        /// Names and values.
        headers: Vec<Header<'a>>,
    },
    /// A piece of the body has come: of text whole lines, and what is left at its end.
    Received(&'a [u8]),
    /// The connection could not be made, or was lost.
    Lost(String),
}

/// A header that passes.
#[derive(Debug)]
pub struct Header<'a> {
    /// Its name, in lower case.
    pub name: &'a str,
    /// Its value.
    pub value: &'a [u8],
    /// Whether whoever set it said that it must not be seen.
    pub sensitive: bool,
}

/// Sees what passes, and must not keep it waiting.
pub(crate) type Watcher = Arc<dyn Fn(&Traffic<'_>) + Send + Sync>;

pub(super) fn request(watcher: &Watcher, request: &Request<Bytes>) {
    watcher(&Traffic::Request {
        method: request.method().as_str(),
        url: request.uri().to_string(),
        headers: headers(request.headers()),
        body: request.body(),
    });
}

pub(super) fn response<B>(watcher: &Watcher, response: &Response<B>) {
    watcher(&Traffic::Response {
        status: response.status().as_u16(),
        headers: headers(response.headers()),
    });
}

fn headers(map: &HeaderMap) -> Vec<Header<'_>> {
    let all = map.iter();
    all.map(|(name, value)| Header {
        name: name.as_str(),
        value: value.as_bytes(),
        sensitive: value.is_sensitive(),
    })
    .collect()
}

/// Shows a body as it comes. Text is shown line by line, so that nothing to be masked is torn apart.
pub(super) struct Shown {
    watcher: Watcher,
    by_line: bool,
    held: Vec<u8>,
}

impl Shown {
    pub(super) fn new(watcher: Watcher, headers: &HeaderMap) -> Self {
        let media_type = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        Self {
            watcher,
            by_line: !media_type.starts_with("application/grpc"),
            held: Vec::new(),
        }
    }

    pub(super) fn piece(&mut self, data: &[u8]) {
        self.held.extend_from_slice(data);
        let whole = match self.by_line {
            true => self
                .held
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1),
            false => self.held.len(),
        };
        if whole > 0 {
            (self.watcher)(&Traffic::Received(&self.held[..whole]));
            self.held.drain(..whole);
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            (self.watcher)(&Traffic::Received(&self.held));
        }
    }
}
