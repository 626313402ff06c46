//! Which path is what.

use std::sync::Arc;

use http::uri::Authority;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;

use super::admission::RequestContext;
use super::base_url::BaseUrl;
use super::bindings::{grpc, jsonrpc, openai, rest};
use super::body::BodyBudget;
use super::call_headers::is_grpc;
use super::card::{self, CATALOG_PATH, Document, KEY_SET_PATH, PublishedCard};
use super::connections::ConnectionPeer;
use super::cors::{OriginCheck, OriginPolicy, add_cors_headers};
use super::reply::{self, Reply, method_not_allowed, text};
use super::settings::ServerSettings;
use crate::auth::{Access, CallLimiter, CallerLimits};
use crate::model::{Error, Result};
use crate::service::{AgentEntry, Directory};
use crate::wire::card::WELL_KNOWN;

/// What is served.
pub(super) struct Routes {
    pub(super) directory: Directory,
    /// In the order of the directory; those that are to go have none.
    pub(super) cards: Vec<PublishedCard>,
    /// The keys that cards are signed with, if they are.
    pub(super) key_set: Option<Document>,
    /// Where the server knows itself to be.
    pub(super) base_url: BaseUrl,
    /// Whether the operator has said so: then no proxy knows better.
    pub(super) has_public_url: bool,
    pub(super) origin_policy: OriginPolicy,
    /// Who may call; `None`: nobody is asked.
    pub(super) access: Option<Access>,
    /// What callers may do, and what they have done of it.
    pub(super) caller_limits: Option<CallerLimits>,
    pub(super) call_limiter: Option<Arc<CallLimiter>>,
    pub(super) settings: Arc<ServerSettings>,
    pub(super) body_budget: Arc<BodyBudget>,
    /// Cancelled when the server is to stop: others should have the calls.
    pub(super) shutting_down: CancellationToken,
    /// Cancelled when it takes no more of them: streams end, and whoever reads them comes again.
    pub(super) drain: CancellationToken,
}

impl Routes {
    pub(super) async fn handle(
        &self,
        peer: &ConnectionPeer,
        request: Box<Request<Incoming>>,
    ) -> Reply {
        let origin = match self.origin_policy.check(
            request.method(),
            request.uri().authority().map(Authority::as_str),
            request.headers(),
            self.is_trusted_proxy(peer),
        ) {
            OriginCheck::SameOrigin => None,
            OriginCheck::Allowed(origin) => Some(origin),
            OriginCheck::Answered(reply) => return reply,
        };
        let mut reply = self.dispatch(peer, request).await;
        self.add_challenges(&mut reply);
        if let Some(origin) = origin {
            add_cors_headers(reply.headers_mut(), origin);
        }
        reply
    }

    async fn dispatch(&self, peer: &ConnectionPeer, request: Box<Request<Incoming>>) -> Reply {
        if is_grpc(&request) {
            // Apart, so that connections of the other bindings keep no room for it.
            return Box::pin(self.grpc(peer, request)).await;
        }
        // Before anything else of the path is looked index: most requests are this.
        if request.uri().path() == "/" && request.method() == Method::POST {
            return self.json_rpc(self.directory.root(), peer, request).await;
        }
        let path = request.uri().path().to_owned();
        let Some((index, path)) = self.split_agent_path(&path) else {
            return rest::not_found();
        };
        let Some(agent) = self.directory.get(index) else {
            return rest::not_found();
        };
        let route_path = path.strip_suffix('/').unwrap_or(path);
        match route_path {
            _ if jsonrpc::PATHS.contains(&route_path) => self.json_rpc(agent, peer, request).await,
            _ if WELL_KNOWN.contains(&route_path) => match self.cards.get(index) {
                Some(card) => reply_to_get(&request, |headers| {
                    card.reply(
                        headers,
                        self.forwarded_base_url(peer, headers).as_ref(),
                        &self.settings,
                    )
                }),
                None => rest::not_found(),
            },
            CATALOG_PATH => reply_to_get(&request, |headers| {
                let base_url = self
                    .forwarded_base_url(peer, headers)
                    .unwrap_or_else(|| self.base_url.clone());
                card::catalog(&self.cards, headers, &base_url, &self.settings)
            }),
            KEY_SET_PATH if self.key_set.is_some() => {
                reply_to_get(&request, |headers| match &self.key_set {
                    Some(keys) => Ok(keys.reply(headers)),
                    None => Ok(rest::not_found()),
                })
            }
            // Not among the paths of 0.3, which begin so too.
            openai::COMPLETIONS_PATH | openai::MODELS_PATH => {
                self.openai(index, route_path, peer, request).await
            }
            "/healthz" => reply_to_get(&request, |_| Ok(text(StatusCode::OK, "ok\n"))),
            "/readyz" => self.readiness(&request).await,
            _ => match self.authenticate(peer, &request).await {
                Ok(context) => rest::handle(self, agent, context, path, request).await,
                Err(error) => rest::unauthenticated(path, &request, error),
            },
        }
    }

    async fn json_rpc(
        &self,
        agent: &AgentEntry,
        peer: &ConnectionPeer,
        request: Box<Request<Incoming>>,
    ) -> Reply {
        if *request.method() != Method::POST {
            return method_not_allowed("POST");
        }
        // Not in the match, which would have room for it until its end.
        let authenticated = self.authenticate(peer, &request).await;
        let mut context = match authenticated {
            Ok(context) => context,
            Err(error) => return jsonrpc::unauthenticated(&request, error),
        };
        jsonrpc::handle(self, agent, &mut context, request).await
    }

    async fn openai(
        &self,
        index: usize,
        path: &str,
        peer: &ConnectionPeer,
        request: Box<Request<Incoming>>,
    ) -> Reply {
        let expected = if path == openai::MODELS_PATH {
            Method::GET
        } else {
            Method::POST
        };
        if *request.method() != expected {
            return method_not_allowed(if path == openai::MODELS_PATH {
                "GET"
            } else {
                "POST"
            });
        }
        match self.authenticate(peer, &request).await {
            Ok(context) if path == openai::MODELS_PATH => openai::list_models(self, index, context),
            Ok(context) => Box::pin(openai::handle(self, index, context, request)).await,
            Err(error) => openai::error_reply(error),
        }
    }

    async fn grpc(&self, peer: &ConnectionPeer, request: Box<Request<Incoming>>) -> Reply {
        if grpc::is_public(request.uri().path()) {
            return grpc::handle(
                self,
                self.directory.root(),
                RequestContext::anonymous(peer),
                request,
            )
            .await;
        }
        match self.authenticate(peer, &request).await {
            Ok(context) => grpc::handle(self, self.directory.root(), context, request).await,
            Err(error) => grpc::unauthenticated(&request, error),
        }
    }

    /// The agent that a path leads to, and the path below it.
    fn split_agent_path<'a>(&self, path: &'a str) -> Option<(usize, &'a str)> {
        let Some(rest) = path.strip_prefix("/agents/") else {
            return Some((0, path));
        };
        let (name, rest) = rest.find('/').map_or((rest, ""), |end| rest.split_at(end));
        let name = percent_decode_str(name).decode_utf8().ok()?;
        Some((self.directory.position(&name)?, rest))
    }

    /// Where a proxy that we believe says that the client is.
    fn forwarded_base_url(&self, peer: &ConnectionPeer, headers: &HeaderMap) -> Option<BaseUrl> {
        let is_trusted = !self.has_public_url && self.is_trusted_proxy(peer);
        is_trusted
            .then(|| BaseUrl::from_forwarded(headers))
            .flatten()
    }

    pub(super) fn is_trusted_proxy(&self, peer: &ConnectionPeer) -> bool {
        self.settings
            .trusted_proxies
            .contains(&peer.address.ip().to_canonical())
    }

    /// Whether new calls should come here.
    async fn readiness(&self, request: &Request<Incoming>) -> Reply {
        match self.unready_reason().await {
            None => reply_to_get(request, |_| Ok(text(StatusCode::OK, "ok\n"))),
            Some(reason) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("not ready: {reason}\n"),
            ),
        }
    }

    /// Why they should not, if so.
    pub(super) async fn unready_reason(&self) -> Option<String> {
        if self.shutting_down.is_cancelled() {
            return Some("the server is about to stop".to_owned());
        }
        let error = self.directory.root().service.check_store().await.err()?;
        Some(reply::log_failure(error).message().to_owned())
    }
}

/// Answers what can only be read.
fn reply_to_get(
    request: &Request<Incoming>,
    reply: impl FnOnce(&HeaderMap) -> Result<Reply>,
) -> Reply {
    match *request.method() {
        Method::GET | Method::HEAD => reply(request.headers()).unwrap_or_else(|error: Error| {
            reply::log_failure(error);
            text(StatusCode::INTERNAL_SERVER_ERROR, "internal error\n")
        }),
        _ => method_not_allowed("GET, HEAD"),
    }
}
