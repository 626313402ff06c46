//! Files over the protobuf forms of 0.3, gRPC and HTTP+JSON.
//!
//! The field for the content of a file is bytes. The Python SDKs (`a2a-sdk` 0.2, 0.3, and 1.x in its 0.3 mode) put base64
//! text there and expect it there. 0.3 has no size to check against, so the peer decides, and the content must be valid
//! base64. All other content stays as it is.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::http::HeaderMap;
use ::http::header::SERVER;

use super::Client;
use super::settings::FileEncoding;
use crate::model::{
    Base64, Binding, Content, Message, Part, Request, Response, SendMessageResponse,
    StreamResponse, Task, TaskStatus, Version,
};

/// Names of Python servers in the header `Server`.
const PYTHON_SERVERS: [&str; 5] = ["uvicorn", "hypercorn", "gunicorn", "daphne", "python"];
/// Value of `grpc-accept-encoding` that only the gRPC library of Python and other C bindings sends, in this spelling.
const PYTHON_GRPC: &str = "identity, deflate, gzip";

impl Client {
    /// Records whether the head of a response shows that the peer is written in Python.
    pub(super) fn record_peer(&self, headers: &HeaderMap) {
        if is_python(headers) {
            self.is_python_peer.store(true, Ordering::Relaxed);
        }
    }

    /// Whether files are base64 text within the bytes of this peer.
    pub(super) fn uses_base64_files(&self) -> bool {
        let is_protobuf = self.endpoint.version == Version::V03
            && matches!(self.endpoint.binding, Binding::HttpJson | Binding::Grpc);
        is_protobuf
            && match self.settings.v03_files {
                FileEncoding::Auto => self.is_python_peer.load(Ordering::Relaxed),
                FileEncoding::Raw => false,
                FileEncoding::Base64 => true,
            }
    }

    /// Returns a request with its files as the peer expects them.
    pub(super) fn encode_files<'a>(&self, request: &'a Request) -> Cow<'a, Request> {
        let (Request::SendMessage(send) | Request::SendStreamingMessage(send)) = request else {
            return Cow::Borrowed(request);
        };
        let has_files = send
            .message
            .parts
            .iter()
            .any(|part| content(part).is_some());
        if !has_files || !self.uses_base64_files() {
            return Cow::Borrowed(request);
        }
        let mut request = request.clone();
        if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = &mut request {
            let parts = send.message.parts.iter_mut();
            parts.for_each(|part| replace(part, |bytes| Some(Base64::encode(bytes.as_str()))));
        }
        Cow::Owned(request)
    }

    /// Returns a response with the content of its files.
    pub(super) fn decode_files(&self, mut response: Response) -> Response {
        if !self.uses_base64_files() {
            return response;
        }
        match &mut response {
            Response::SendMessage(SendMessageResponse::Task(task)) | Response::Task(task) => {
                decode_task(task)
            }
            Response::SendMessage(SendMessageResponse::Message(message)) => decode_message(message),
            Response::ListTasks(page) => page.tasks.iter_mut().for_each(decode_task),
            Response::PushConfig(_)
            | Response::ListPushConfigs(_)
            | Response::Empty
            | Response::AgentCard(_) => {}
        }
        response
    }
}

/// Decodes the files of an event.
pub(super) fn decode_event(event: &mut StreamResponse) {
    match event {
        StreamResponse::Task(task) => decode_task(task),
        StreamResponse::Message(message) => decode_message(message),
        StreamResponse::StatusUpdate(event) => decode_status(&mut event.status),
        StreamResponse::ArtifactUpdate(event) => decode_parts(&mut event.artifact.parts),
    }
}

fn decode_task(task: &mut Task) {
    decode_status(&mut task.status);
    for artifact in &mut task.artifacts {
        decode_parts(&mut artifact.parts);
    }
    task.history.iter_mut().for_each(decode_shared);
}

fn decode_status(status: &mut TaskStatus) {
    status.message.iter_mut().for_each(decode_shared);
}

/// Decodes the files of a shared message, which is copied only if it has any.
fn decode_shared(message: &mut Arc<Message>) {
    if message.parts.iter().any(|part| content(part).is_some()) {
        decode_message(Arc::make_mut(message));
    }
}

fn decode_message(message: &mut Message) {
    decode_parts(&mut message.parts);
}

fn decode_parts(parts: &mut [Part]) {
    parts.iter_mut().for_each(|part| replace(part, decoded));
}

/// Returns the base64 text that the bytes of a file are; `None` for other bytes.
fn decoded(bytes: &Base64) -> Option<Base64> {
    let text = String::from_utf8(bytes.decode()).ok()?;
    let inner = Base64::parse(&text).ok()?;
    (!text.is_empty() && inner.as_str() == text).then_some(inner)
}

fn content(part: &Part) -> Option<&Base64> {
    match &part.content {
        Content::Raw(bytes) => Some(bytes),
        Content::Text(_) | Content::Url(_) | Content::Data(_) => None,
    }
}

fn replace(part: &mut Part, with: impl Fn(&Base64) -> Option<Base64>) {
    if let Some(bytes) = content(part).and_then(with) {
        part.content = Content::Raw(bytes);
    }
}

fn is_python(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let server = text(SERVER.as_str())
        .unwrap_or_default()
        .to_ascii_lowercase();
    PYTHON_SERVERS.iter().any(|name| server.contains(name))
        || text("grpc-accept-encoding") == Some(PYTHON_GRPC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderValue;

    #[test]
    fn only_valid_base64_is_decoded() {
        let inner = |bytes: &[u8]| decoded(&Base64::encode(bytes)).map(|inner| inner.decode());
        assert_eq!(inner(b"aGVsbG8="), Some(b"hello".to_vec()));
        for other in [
            &b""[..],
            b"hello",
            b"aGVsbG8",
            b"aGVs bG8=",
            b"aGVsbG9=",
            b"\xff\xfe",
        ] {
            assert_eq!(inner(other), None, "{other:?}");
        }
    }

    #[test]
    fn python_peers_are_recognized_by_their_head() {
        let head = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            is_python(&headers)
        };
        assert!(head("server", "uvicorn") && head("server", "Python/3.11 aiohttp/3.9"));
        assert!(head("grpc-accept-encoding", PYTHON_GRPC));
        assert!(!head("grpc-accept-encoding", "identity,deflate,gzip"));
        assert!(!head("server", "envoy") && !is_python(&HeaderMap::new()));
    }
}
