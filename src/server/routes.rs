//! Which path is what.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use super::card::{self, Card};
use super::jsonrpc;
use crate::model::Call;
use crate::service::Service;

pub(super) type Reply = Response<Full<Bytes>>;

/// What is served, and to whom: everybody is the same caller.
pub(super) struct Routes {
    pub(super) service: Service,
    pub(super) call: Call,
    pub(super) card: Card,
}

impl Routes {
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Reply {
        let path = request.uri().path();
        let path = path.strip_suffix('/').unwrap_or(path);
        if jsonrpc::PATHS.contains(&path) {
            return match *request.method() {
                Method::POST => jsonrpc::answer(&self.service, &self.call, request).await,
                _ => not_allowed("POST"),
            };
        }
        if card::PATHS.contains(&path) {
            return match *request.method() {
                Method::GET | Method::HEAD => json(self.card.bytes()),
                _ => not_allowed("GET, HEAD"),
            };
        }
        plain(StatusCode::NOT_FOUND, "not found\n")
    }
}

pub(super) fn json(body: impl Into<Bytes>) -> Reply {
    reply(StatusCode::OK, "application/json", body.into())
}

fn not_allowed(methods: &'static str) -> Reply {
    let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    reply
}

fn plain(status: StatusCode, text: &'static str) -> Reply {
    reply(status, "text/plain", Bytes::from_static(text.as_bytes()))
}

fn reply(status: StatusCode, media_type: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    reply
}
