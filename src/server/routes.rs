//! Routes a request path to an agent and a handler.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;

use super::admission::Admission;
use super::base_url::BaseUrl;
use super::bindings::{grpc, jsonrpc, openai, rest};
use super::card::{self, CATALOG_PATH, KEY_SET_PATH, PublishedCard};
use super::cors::{OriginCheck, OriginPolicy, add_cors_headers};
use super::document::Document;
use super::event_encoder::EventEncoder;
use super::peer::ConnectionPeer;
use super::reply::{self, Reply, ReplyBody, method_not_allowed, text};
use super::settings::{ServedBinding, ServerSettings};
use super::sse_body::SseBody;
use crate::model::{ErrorKind, Result};
use crate::service::TaskEventStream;
use crate::wire::card::WELL_KNOWN;

/// Everything that a request needs: agents, documents, access control and settings.
///
/// Immutable. A reload builds new routes; running requests keep the old ones.
pub(super) struct Routes {
    pub(super) admission: Admission,
    /// Cards in the order of the directory. Draining agents, which come last, have none.
    pub(super) cards: Vec<PublishedCard>,
    /// Public keys of cards and notifications, if any.
    pub(super) key_set: Option<Document>,
    pub(super) base_url: BaseUrl,
    /// Whether `base_url` is the operator's `public_url`. Forwarded headers are ignored then.
    pub(super) has_public_url: bool,
    pub(super) origin_policy: OriginPolicy,
    pub(super) settings: Arc<ServerSettings>,
    /// Cancelled when shutdown begins. `/readyz` then reports that the server is not ready.
    pub(super) shutting_down: CancellationToken,
    /// Cancelled when the server drains. Streams then end, and their subscribers reconnect
    /// elsewhere.
    pub(super) drain: CancellationToken,
}

impl Routes {
    /// Handles a request: checks host and origin, dispatches it, and adds the headers common to all
    /// replies.
    pub(super) async fn handle(
        &self,
        peer: &ConnectionPeer,
        request: Box<Request<Incoming>>,
    ) -> Reply {
        let origin = match self.origin_policy.check(
            request.method(),
            request.uri().authority().map(Authority::as_str),
            request.headers(),
            self.settings.is_trusted_proxy(peer.address.ip()),
        ) {
            OriginCheck::SameOrigin => None,
            OriginCheck::Allowed(origin) => Some(origin),
            OriginCheck::Answered(reply) => return *reply,
        };
        let mut reply = self.dispatch(peer, request).await;
        self.admission.add_challenges(&mut reply);
        if let Some(origin) = origin {
            add_cors_headers(reply.headers_mut(), origin);
        }
        reply
    }

    async fn dispatch(&self, peer: &ConnectionPeer, request: Box<Request<Incoming>>) -> Reply {
        if is_grpc(&request) {
            if !self.settings.serves(ServedBinding::Grpc) {
                return grpc::not_served();
            }
            // Boxed: future size.
            return Box::pin(grpc::handle(self, peer, request)).await;
        }
        let directory = &self.admission.directory;
        let serves_jsonrpc = self.settings.serves(ServedBinding::Jsonrpc);
        // The most common request, checked before the path is parsed.
        if serves_jsonrpc && request.uri().path() == "/" && request.method() == Method::POST {
            return jsonrpc::handle(self, directory.root(), peer, request).await;
        }
        let path = request.uri().path().to_owned();
        let Some((index, path)) = self.split_agent_path(&path) else {
            return rest::not_found();
        };
        let Some(agent) = directory.get(index) else {
            return rest::not_found();
        };
        let endpoint = path.strip_suffix('/').unwrap_or(path);
        match endpoint {
            _ if serves_jsonrpc && jsonrpc::PATHS.contains(&endpoint) => {
                jsonrpc::handle(self, agent, peer, request).await
            }
            // Before REST: paths of version 0.3 begin with `/v1/` too. Boxed: future size.
            openai::COMPLETIONS_PATH => Box::pin(openai::handle(self, index, peer, request)).await,
            openai::MODELS_PATH => openai::list_models(self, index, peer, &request).await,
            "/readyz" => self.readiness(&request).await,
            _ if WELL_KNOWN.contains(&endpoint) => self.card(peer, index, endpoint, &request).await,
            _ => match self.document(peer, endpoint, &request) {
                Some(reply) => reply,
                None if self.settings.serves(ServedBinding::Rest) => {
                    rest::handle(self, agent, peer, path, request).await
                }
                None => rest::not_found(),
            },
        }
    }

    /// Returns the index of the agent that a path addresses, and the path below it. `None`: unknown
    /// agent.
    ///
    /// The path below the agent may begin with a doubled slash: clients append paths to a base URL
    /// that ends with one. It is removed here, before access rules are checked (S83).
    fn split_agent_path<'a>(&self, path: &'a str) -> Option<(usize, &'a str)> {
        let Some(rest) = path.strip_prefix("/agents/") else {
            return Some((0, single_slash(path)));
        };
        let (name, rest) = rest.find('/').map_or((rest, ""), |end| rest.split_at(end));
        let name = percent_decode_str(name).decode_utf8().ok()?;
        Some((
            self.admission.directory.position(&name)?,
            single_slash(rest),
        ))
    }

    /// Returns the card of an agent.
    async fn card(
        &self,
        peer: &ConnectionPeer,
        index: usize,
        path: &str,
        request: &Request<Incoming>,
    ) -> Reply {
        let Some(card) = self.cards.get(index) else {
            return rest::not_found();
        };
        if card.needs_authentication() {
            // Boxed: few cards need it.
            let authenticated = Box::pin(self.admission.authenticate(peer, request)).await;
            let refused = match authenticated {
                Ok(context) if context.is_anonymous() => Some(ErrorKind::Unauthenticated.into()),
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if let Some(error) = refused {
                return rest::unauthenticated(path, request, error);
            }
        }
        reply_to_get(request, |headers| {
            let forwarded = self.forwarded_base_url(peer, headers);
            card.reply(path, headers, forwarded.as_ref(), &self.settings)
        })
    }

    /// Returns the reply for an unauthenticated document: catalog, key set or liveness. `None`:
    /// another path.
    fn document(
        &self,
        peer: &ConnectionPeer,
        endpoint: &str,
        request: &Request<Incoming>,
    ) -> Option<Reply> {
        match endpoint {
            CATALOG_PATH => Some(reply_to_get(request, |headers| {
                let forwarded = self.forwarded_base_url(peer, headers);
                let base_url = forwarded.as_ref().unwrap_or(&self.base_url);
                card::catalog(&self.cards, headers, base_url, &self.settings)
            })),
            KEY_SET_PATH => {
                let keys = self.key_set.as_ref()?;
                Some(reply_to_get(request, |headers| Ok(keys.reply(headers))))
            }
            "/healthz" => Some(reply_to_get(request, |_| Ok(text(StatusCode::OK, "ok\n")))),
            _ => None,
        }
    }

    /// Returns the base URL that a trusted proxy reports.
    fn forwarded_base_url(&self, peer: &ConnectionPeer, headers: &HeaderMap) -> Option<BaseUrl> {
        let is_trusted = !self.has_public_url && self.settings.is_trusted_proxy(peer.address.ip());
        is_trusted
            .then(|| BaseUrl::from_forwarded(headers))
            .flatten()
    }

    /// Replies to `/readyz`.
    async fn readiness(&self, request: &Request<Incoming>) -> Reply {
        match self.unready_reason().await {
            None => reply_to_get(request, |_| Ok(text(StatusCode::OK, "ok\n"))),
            Some(reason) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("not ready: {reason}\n"),
            ),
        }
    }

    /// Returns why the server should get no new calls. `None`: it is ready.
    pub(super) async fn unready_reason(&self) -> Option<String> {
        if self.shutting_down.is_cancelled() {
            return Some("the server is about to stop".to_owned());
        }
        let root = self.admission.directory.root();
        let error = root.service.check_store().await.err()?;
        Some(reply::log_failure(error).message().to_owned())
    }

    /// Whether one address may hold all connections: that of a trusted proxy, which has many clients,
    /// or a loopback address.
    pub(super) fn may_hold_all_connections(&self, peer: IpAddr) -> bool {
        let limits_loopback = self.admission.caller_limits.limit_loopback;
        let is_local = !limits_loopback && peer.to_canonical().is_loopback();
        is_local || self.settings.is_trusted_proxy(peer)
    }

    /// Returns a server-sent event stream of a task.
    pub(super) fn event_stream(
        &self,
        stream: TaskEventStream,
        encoder: impl EventEncoder + 'static,
    ) -> Reply {
        let heartbeat = self.settings.heartbeat;
        let body = SseBody::new(stream, encoder, heartbeat, self.drain.clone());
        reply::event_stream(ReplyBody::Stream(Box::new(body)))
    }
}

/// Removes the first of two leading slashes, if a path follows them.
fn single_slash(path: &str) -> &str {
    match path.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') && rest.len() > 1 => rest,
        Some(_) | None => path,
    }
}

/// Whether a request is a health probe. Connections in the reserve may send no other requests.
pub(super) fn is_health_probe(request: &Request<Incoming>) -> bool {
    let path = request.uri().path();
    if is_grpc(request) {
        return grpc::is_health_check(path);
    }
    matches!(path, "/healthz" | "/readyz")
}

/// Whether a request is a gRPC call: HTTP/2, POST and a gRPC content type. gRPC-Web is another
/// protocol.
fn is_grpc(request: &Request<Incoming>) -> bool {
    if request.version() != http::Version::HTTP_2 || *request.method() != Method::POST {
        return false;
    }
    let media_type = request
        .headers()
        .get(CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    let essence = media_type
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    essence.eq_ignore_ascii_case(b"application/grpc")
        || essence.eq_ignore_ascii_case(b"application/grpc+proto")
}

/// Replies to GET and HEAD. Other methods get status 405.
fn reply_to_get(
    request: &Request<Incoming>,
    reply: impl FnOnce(&HeaderMap) -> Result<Reply>,
) -> Reply {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return method_not_allowed("GET, HEAD");
    }
    reply(request.headers()).unwrap_or_else(|error| {
        reply::log_failure(error);
        text(StatusCode::INTERNAL_SERVER_ERROR, "internal error\n")
    })
}
