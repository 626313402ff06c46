//! Which path is what.

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::card::{self, Card};
use super::incoming::is_grpc;
use super::reply::{Reply, not_allowed, plain};
use super::settings::ServerSettings;
use super::{grpc, jsonrpc, rest};
use crate::model::Caller;
use crate::service::Directory;

/// What is served.
pub(super) struct Routes {
    pub(super) directory: Directory,
    pub(super) card: Card,
    pub(super) settings: ServerSettings,
    /// Cancelled when the server is to stop: streams end, and whoever reads them comes again.
    pub(super) drain: CancellationToken,
}

impl Routes {
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Reply {
        let caller = Caller::anonymous();
        let resident = self.directory.first();
        if is_grpc(&request) {
            // Apart, so that connections of the other bindings keep no room for it.
            return Box::pin(grpc::answer(self, resident, caller, request)).await;
        }
        let path = request.uri().path();
        let short = path.strip_suffix('/').unwrap_or(path);
        if jsonrpc::PATHS.contains(&short) {
            return match *request.method() {
                Method::POST => jsonrpc::answer(self, resident, caller, request).await,
                _ => not_allowed("POST"),
            };
        }
        if card::PATHS.contains(&short) {
            return match *request.method() {
                Method::GET | Method::HEAD => self.card.answer(request.headers()),
                _ => not_allowed("GET, HEAD"),
            };
        }
        if matches!(short, "/healthz" | "/readyz") {
            return plain(StatusCode::OK, "ok\n");
        }
        let path = path.to_owned();
        rest::answer(self, resident, caller, &path, request).await
    }
}
