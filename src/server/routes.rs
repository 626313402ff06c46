//! Which path is what.

use std::sync::Arc;

use http::uri::Authority;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;

use super::body::Reading;
use super::browser::{Browsers, Visit, allow};
use super::card::{self, CATALOG, Card, Document, KEY_SET};
use super::connections::Peer;
use super::guest::Guest;
use super::incoming::is_grpc;
use super::place::Place;
use super::reply::{self, Reply, not_allowed, plain};
use super::settings::ServerSettings;
use super::{chat, grpc, jsonrpc, rest};
use crate::auth::{Access, Allowance, Meter};
use crate::model::{Error, Result};
use crate::service::{Directory, Resident};
use crate::wire::card::WELL_KNOWN;

/// What is served.
pub(super) struct Routes {
    pub(super) directory: Directory,
    /// In the order of the directory; those that are to go have none.
    pub(super) cards: Vec<Card>,
    /// The keys that cards are signed with, if they are.
    pub(super) key_set: Option<Document>,
    /// Where the server knows itself to be.
    pub(super) root: Place,
    /// Whether the operator has said so: then no proxy knows better.
    pub(super) is_public: bool,
    pub(super) browsers: Browsers,
    /// Who may call; `None`: nobody is asked.
    pub(super) access: Option<Access>,
    /// What callers may do, and what they have done of it.
    pub(super) allowed: Option<Allowance>,
    pub(super) meter: Option<Arc<Meter>>,
    pub(super) settings: Arc<ServerSettings>,
    pub(super) reading: Arc<Reading>,
    /// Cancelled when the server is to stop: others should have the calls.
    pub(super) leaving: CancellationToken,
    /// Cancelled when it takes no more of them: streams end, and whoever reads them comes again.
    pub(super) drain: CancellationToken,
}

impl Routes {
    pub(super) async fn answer(&self, peer: &Peer, request: Box<Request<Incoming>>) -> Reply {
        let origin = match self.browsers.visit(
            request.method(),
            request.uri().authority().map(Authority::as_str),
            request.headers(),
            self.trusts(peer),
        ) {
            Visit::Own => None,
            Visit::From(origin) => Some(origin),
            Visit::Answered(reply) => return reply,
        };
        let mut reply = self.route(peer, request).await;
        self.challenge(&mut reply);
        if let Some(origin) = origin {
            allow(reply.headers_mut(), origin);
        }
        reply
    }

    async fn route(&self, peer: &Peer, request: Box<Request<Incoming>>) -> Reply {
        if is_grpc(&request) {
            // Apart, so that connections of the other bindings keep no room for it.
            return Box::pin(self.grpc(peer, request)).await;
        }
        // Before anything else of the path is looked at: most requests are this.
        if request.uri().path() == "/" && request.method() == Method::POST {
            return self.json_rpc(self.directory.first(), peer, request).await;
        }
        let path = request.uri().path().to_owned();
        let Some((at, path)) = self.agent(&path) else {
            return rest::unknown();
        };
        let Some(resident) = self.directory.at(at) else {
            return rest::unknown();
        };
        let short = path.strip_suffix('/').unwrap_or(path);
        match short {
            _ if jsonrpc::PATHS.contains(&short) => self.json_rpc(resident, peer, request).await,
            _ if WELL_KNOWN.contains(&short) => match self.cards.get(at) {
                Some(card) => read(&request, |headers| {
                    card.answer(
                        headers,
                        self.forwarded(peer, headers).as_ref(),
                        &self.settings,
                    )
                }),
                None => rest::unknown(),
            },
            CATALOG => read(&request, |headers| {
                let root = self
                    .forwarded(peer, headers)
                    .unwrap_or_else(|| self.root.clone());
                card::catalog(&self.cards, headers, &root, &self.settings)
            }),
            KEY_SET if self.key_set.is_some() => read(&request, |headers| match &self.key_set {
                Some(keys) => Ok(keys.answer(headers)),
                None => Ok(rest::unknown()),
            }),
            // Not among the paths of 0.3, which begin so too.
            chat::COMPLETIONS | chat::MODELS => self.chat(at, short, peer, request).await,
            "/healthz" => read(&request, |_| Ok(plain(StatusCode::OK, "ok\n"))),
            "/readyz" => self.ready(&request).await,
            _ => match self.admit(peer, &request).await {
                Ok(guest) => rest::answer(self, resident, guest, path, request).await,
                Err(error) => rest::turned_away(path, &request, error),
            },
        }
    }

    async fn json_rpc(
        &self,
        resident: &Resident,
        peer: &Peer,
        request: Box<Request<Incoming>>,
    ) -> Reply {
        if *request.method() != Method::POST {
            return not_allowed("POST");
        }
        // Not in the match, which would have room for it until its end.
        let admitted = self.admit(peer, &request).await;
        let mut guest = match admitted {
            Ok(guest) => guest,
            Err(error) => return jsonrpc::turned_away(&request, error),
        };
        jsonrpc::answer(self, resident, &mut guest, request).await
    }

    async fn chat(
        &self,
        at: usize,
        path: &str,
        peer: &Peer,
        request: Box<Request<Incoming>>,
    ) -> Reply {
        let wanted = if path == chat::MODELS {
            Method::GET
        } else {
            Method::POST
        };
        if *request.method() != wanted {
            return not_allowed(if path == chat::MODELS { "GET" } else { "POST" });
        }
        match self.admit(peer, &request).await {
            Ok(guest) if path == chat::MODELS => chat::models(self, at, guest),
            Ok(guest) => Box::pin(chat::answer(self, at, guest, request)).await,
            Err(error) => chat::refused(error),
        }
    }

    async fn grpc(&self, peer: &Peer, request: Box<Request<Incoming>>) -> Reply {
        if grpc::is_public(request.uri().path()) {
            return grpc::answer(self, self.directory.first(), Guest::unasked(peer), request).await;
        }
        match self.admit(peer, &request).await {
            Ok(guest) => grpc::answer(self, self.directory.first(), guest, request).await,
            Err(error) => grpc::turned_away(&request, error),
        }
    }

    /// The agent that a path leads to, and the path below it.
    fn agent<'a>(&self, path: &'a str) -> Option<(usize, &'a str)> {
        let Some(rest) = path.strip_prefix("/agents/") else {
            return Some((0, path));
        };
        let (name, rest) = rest.find('/').map_or((rest, ""), |end| rest.split_at(end));
        let name = percent_decode_str(name).decode_utf8().ok()?;
        Some((self.directory.position(&name)?, rest))
    }

    /// Where a proxy that we believe says that the client is.
    fn forwarded(&self, peer: &Peer, headers: &HeaderMap) -> Option<Place> {
        let believed = !self.is_public && self.trusts(peer);
        believed.then(|| Place::forwarded(headers)).flatten()
    }

    pub(super) fn trusts(&self, peer: &Peer) -> bool {
        self.settings
            .trusted_proxies
            .contains(&peer.address.ip().to_canonical())
    }

    /// Whether new calls should come here.
    async fn ready(&self, request: &Request<Incoming>) -> Reply {
        match self.unready().await {
            None => read(request, |_| Ok(plain(StatusCode::OK, "ok\n"))),
            Some(why) => plain(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("not ready: {why}\n"),
            ),
        }
    }

    /// Why they should not, if so.
    pub(super) async fn unready(&self) -> Option<String> {
        if self.leaving.is_cancelled() {
            return Some("the server is about to stop".to_owned());
        }
        let error = self.directory.first().service.check().await.err()?;
        Some(reply::logged(error).message().to_owned())
    }
}

/// Answers what can only be read.
fn read(request: &Request<Incoming>, answer: impl FnOnce(&HeaderMap) -> Result<Reply>) -> Reply {
    match *request.method() {
        Method::GET | Method::HEAD => answer(request.headers()).unwrap_or_else(|error: Error| {
            reply::logged(error);
            plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error\n")
        }),
        _ => not_allowed("GET, HEAD"),
    }
}
