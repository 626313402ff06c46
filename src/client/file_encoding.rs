//! Files over the protobuf forms of 0.3: the peer decides whether they are base64 text (see `wire::file_encoding`).

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use ::http::HeaderMap;
use ::http::header::SERVER;

use super::Client;
use super::settings::FileEncoding;
use crate::model::{Binding, GetExtendedAgentCardRequest, Request, Response, Version};
use crate::wire::file_encoding::{FileConversion, has_files};

/// Names of Python servers in the header `Server`.
const PYTHON_SERVERS: [&str; 5] = ["uvicorn", "hypercorn", "gunicorn", "daphne", "python"];
/// Value of `grpc-accept-encoding` that only the gRPC library of Python and other C bindings sends, in this spelling.
const PYTHON_GRPC: &str = "identity, deflate, gzip";
/// The whole header `Server` of agentstack, which serves the Python SDK.
const AGENTSTACK: &str = "a2a";

/// What the heads of responses have shown of the peer.
#[derive(Debug, Default)]
pub(super) struct PeerHeads {
    is_known: AtomicBool,
    is_python: AtomicBool,
}

impl Client {
    /// Records whether the head of a response shows that the peer is written in Python.
    pub(super) fn record_peer(&self, headers: &HeaderMap) {
        if is_python(headers) {
            self.peer_heads.is_python.store(true, Ordering::Relaxed);
        }
        self.peer_heads.is_known.store(true, Ordering::Relaxed);
    }

    /// Whether files are base64 text within the bytes of this peer.
    pub(super) fn uses_base64_files(&self) -> bool {
        self.sends_protobuf_files()
            && match self.settings.v03_files {
                FileEncoding::Auto => self.peer_heads.is_python.load(Ordering::Relaxed),
                FileEncoding::Raw => false,
                FileEncoding::Base64 => true,
            }
    }

    fn sends_protobuf_files(&self) -> bool {
        self.endpoint.version == Version::V03
            && matches!(self.endpoint.binding, Binding::HttpJson | Binding::Grpc)
    }

    /// Returns a request with its files as the peer expects them. A peer that has not answered yet, because its card
    /// was cached or given, is first asked for its card over this binding.
    pub(super) async fn encode_files<'a>(&self, request: &'a Request) -> Cow<'a, Request> {
        if !has_files(request) || !self.sends_protobuf_files() {
            return Cow::Borrowed(request);
        }
        if self.settings.v03_files == FileEncoding::Auto
            && !self.peer_heads.is_known.load(Ordering::Relaxed)
        {
            let card = Request::GetExtendedAgentCard(GetExtendedAgentCardRequest::default());
            // Only the head of the response matters. Boxed: the call is recursive.
            let _ = Box::pin(self.call_once(&card)).await;
        }
        if !self.uses_base64_files() {
            return Cow::Borrowed(request);
        }
        let mut request = request.clone();
        FileConversion::Encode.apply_to_request(&mut request);
        Cow::Owned(request)
    }

    /// Returns a response with the content of its files.
    pub(super) fn decode_files(&self, mut response: Response) -> Response {
        if self.uses_base64_files() {
            FileConversion::Decode.apply_to_response(&mut response);
        }
        response
    }
}

fn is_python(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let server = text(SERVER.as_str())
        .unwrap_or_default()
        .to_ascii_lowercase();
    PYTHON_SERVERS.iter().any(|name| server.contains(name))
        || server == AGENTSTACK
        || text("grpc-accept-encoding") == Some(PYTHON_GRPC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderValue;

    #[test]
    fn python_peers_are_recognized_by_their_head() {
        let head = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            is_python(&headers)
        };
        assert!(head("server", "a2a") && !head("server", "a2a-gateway"));
        assert!(head("server", "uvicorn") && head("server", "Python/3.11 aiohttp/3.9"));
        assert!(head("grpc-accept-encoding", PYTHON_GRPC));
        assert!(!head("grpc-accept-encoding", "identity,deflate,gzip"));
        assert!(!head("server", "envoy") && !is_python(&HeaderMap::new()));
    }
}
