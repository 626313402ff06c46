//! Observation of HTTP traffic, for wire logs.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};

/// One event of HTTP traffic between the client and a peer. It contains credentials: redact them before logging.
#[derive(Debug)]
pub enum Traffic<'a> {
    /// Request about to be sent.
    Request {
        /// HTTP method.
        method: &'a str,
        /// Complete URL.
        url: String,
        /// Headers; `sensitive` ones may contain credentials.
        headers: Vec<TrafficHeader<'a>>,
        /// Body.
        body: &'a [u8],
    },
    /// Response head.
    Response {
        /// HTTP status.
        status: u16,
        /// Headers.
        headers: Vec<TrafficHeader<'a>>,
    },
    /// Chunk of the response body. Text is delivered in complete lines, except at the end.
    BodyChunk(&'a [u8]),
    /// The connection failed or was lost.
    ConnectionError(String),
}

/// Header of a request or response.
#[derive(Debug)]
pub struct TrafficHeader<'a> {
    /// Name in lower case.
    pub name: &'a str,
    /// Value.
    pub value: &'a [u8],
    /// Whether the value was marked as sensitive.
    pub sensitive: bool,
}

/// Callback for traffic. It runs on the request path and must not block.
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

/// Observer of a response body. Text is buffered into complete lines, so that a credential is never split between chunks.
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
        let ready = if self.by_line {
            let line_end = self.buffer.iter().rposition(|byte| *byte == b'\n');
            line_end.map_or(0, |at| at + 1)
        } else {
            self.buffer.len()
        };
        if ready > 0 {
            (self.observer)(&Traffic::BodyChunk(&self.buffer[..ready]));
            self.buffer.drain(..ready);
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
