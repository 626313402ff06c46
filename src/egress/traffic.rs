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
        headers: Vec<TrafficHeader<'a>>,
        /// The body.
        body: &'a [u8],
    },
    /// The head of the answer has come.
    Response {
        /// The HTTP status.
        status: u16,
        /// Names and values.
        headers: Vec<TrafficHeader<'a>>,
    },
    /// A piece of the body has come: of text whole lines, and what is left at its end.
    BodyChunk(&'a [u8]),
    /// The connection could not be made, or was lost.
    ConnectionError(String),
}

/// A header that passes.
#[derive(Debug)]
pub struct TrafficHeader<'a> {
    /// Its name, in lower case.
    pub name: &'a str,
    /// Its value.
    pub value: &'a [u8],
    /// Whether whoever set it said that it must not be seen.
    pub sensitive: bool,
}

/// Sees what passes, and must not keep it waiting.
pub(crate) type TrafficObserver = Arc<dyn Fn(&Traffic<'_>) + Send + Sync>;

pub(super) fn observe_request(observer: &TrafficObserver, request: &Request<Bytes>) {
    observer(&Traffic::Request {
        method: request.method().as_str(),
        url: request.uri().to_string(),
        headers: headers(request.headers()),
        body: request.body(),
    });
}

pub(super) fn observe_response<B>(observer: &TrafficObserver, response: &Response<B>) {
    observer(&Traffic::Response {
        status: response.status().as_u16(),
        headers: headers(response.headers()),
    });
}

fn headers(map: &HeaderMap) -> Vec<TrafficHeader<'_>> {
    let all = map.iter();
    all.map(|(name, value)| TrafficHeader {
        name: name.as_str(),
        value: value.as_bytes(),
        sensitive: value.is_sensitive(),
    })
    .collect()
}

/// Shows a body as it comes. Text is shown line by line, so that nothing to be masked is torn apart.
pub(super) struct BodyObserver {
    observer: TrafficObserver,
    by_line: bool,
    buffer: Vec<u8>,
}

impl BodyObserver {
    pub(super) fn new(observer: TrafficObserver, headers: &HeaderMap) -> Self {
        let media_type = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        Self {
            observer,
            by_line: !media_type.starts_with("application/grpc"),
            buffer: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
        let whole = match self.by_line {
            true => self
                .buffer
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1),
            false => self.buffer.len(),
        };
        if whole > 0 {
            (self.observer)(&Traffic::BodyChunk(&self.buffer[..whole]));
            self.buffer.drain(..whole);
        }
    }
}

impl Drop for BodyObserver {
    fn drop(&mut self) {
        if !self.buffer.is_empty() {
            (self.observer)(&Traffic::BodyChunk(&self.buffer));
        }
    }
}
