//! Who comes, and what becomes of it: the one place where a call of any binding is let in, counted and marked.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use super::body;
use super::call_headers::{ExtensionHeaders, read_call_headers, set_call_headers};
use super::connections::ConnectionPeer;
use super::reply::{self, Reply};
use super::routes::Routes;
use crate::auth::{
    Access, CallPermit, DelegationClaim, Identity, RateLimitKey, RateLimitStatus,
    RequestCredentials,
};
use crate::model::{Call, Caller, Error, ErrorKind, Operation, Request, Response, Result, Version};
use crate::service::{AgentEntry, CallResult, ServiceResponse};
use crate::telemetry::metrics;

/// Somebody whom we serve, and what they have sent.
pub(super) struct RequestContext {
    identity: Identity,
    delegation: DelegationClaim,
    peer_ip: IpAddr,
    /// How much of a body has been read.
    body_bytes: usize,
    /// Whether the request has been counted.
    is_counted: bool,
}

impl RequestContext {
    /// Somebody of whom nothing is asked.
    pub(super) fn anonymous(peer: &ConnectionPeer) -> Self {
        Self::new(Identity::anonymous(), DelegationClaim::Direct, peer)
    }

    fn new(identity: Identity, delegation: DelegationClaim, peer: &ConnectionPeer) -> Self {
        Self {
            identity,
            delegation,
            peer_ip: peer.address.ip(),
            body_bytes: 0,
            is_counted: false,
        }
    }

    pub(super) fn caller(&self) -> &Caller {
        self.identity.caller()
    }
}

/// A call that was let in.
pub(super) struct AuthorizedCall<'a> {
    agent: &'a AgentEntry,
    access: Option<&'a Access>,
    identity: &'a Identity,
    call: Call,
    operation: Operation,
    /// How it asks for the extensions that are active.
    extension_headers: ExtensionHeaders,
    rate_limit: Option<RateLimitStatus>,
    _permit: Option<CallPermit>,
}

impl Routes {
    /// Says who sends a request. Nothing of its body has been read.
    ///
    /// # Errors
    /// Unauthenticated; unavailable.
    pub(super) async fn authenticate(
        &self,
        peer: &ConnectionPeer,
        request: &HttpRequest<Incoming>,
    ) -> Result<RequestContext> {
        let Some(access) = &self.access else {
            return Ok(RequestContext::anonymous(peer));
        };
        let (ip, certificate) = (peer.address.ip(), peer.certificate.as_deref());
        let credentials =
            RequestCredentials::new(request.headers(), request.uri().query(), ip, certificate);
        let (identity, delegation) = access
            .authenticate(&credentials, self.is_trusted_proxy(peer))
            .await?;
        Ok(RequestContext::new(identity, delegation, peer))
    }

    /// Reads the body of a guest's request, within the limits; it is part of what they spend.
    ///
    /// # Errors
    /// It is too large, or too late.
    pub(super) async fn read_body(
        &self,
        context: &mut RequestContext,
        body: Incoming,
    ) -> Result<Bytes> {
        let read = body::read(body, &self.settings, &self.body_budget).await;
        context.body_bytes = match &read {
            Ok(body) => body.len(),
            // So much at least.
            Err(error) if error.kind() == ErrorKind::PayloadTooLarge => {
                self.settings.max_body_bytes
            }
            Err(_) => 0,
        };
        read
    }

    /// Counts a request, whatever becomes of it.
    ///
    /// # Errors
    /// Rate limited.
    pub(super) fn check_rate_limit(
        &self,
        agent: &Arc<str>,
        context: &mut RequestContext,
    ) -> Result<(Option<RateLimitStatus>, Option<CallPermit>)> {
        context.is_counted = true;
        match &self.call_limiter {
            Some(limiter) => limiter.check_call(
                &RateLimitKey::new(agent.clone(), &context.identity, context.peer_ip),
                context.body_bytes,
            ),
            None => Ok((None, None)),
        }
    }

    /// What is said to a request that is refused. One that never became a call costs as much as a call: whoever sends nothing
    /// but those is told to wait like anybody else.
    pub(super) fn charge_rejection(
        &self,
        agent: &AgentEntry,
        context: &mut RequestContext,
        error: Error,
    ) -> Error {
        match context.is_counted {
            true => error,
            false => self
                .check_rate_limit(&agent.namespace, context)
                .err()
                .unwrap_or(error),
        }
    }

    /// Lets a call in, whatever carries it: which agent and tenant it is for, whether the guest may do that, and whether they
    /// have not done enough of it.
    ///
    /// # Errors
    /// Not found, permission denied, unauthenticated or rate limited; invalid: what the headers say.
    pub(super) fn authorize<'a>(
        &'a self,
        agent: &'a AgentEntry,
        context: &'a mut RequestContext,
        headers: &HeaderMap,
        version: Version,
        request: &mut Request,
    ) -> Result<AuthorizedCall<'a>> {
        context.delegation.apply_to(request)?;
        let metadata = read_call_headers(context.caller().clone(), headers, version)?;
        let (agent, call) = self.directory.resolve_call(agent, metadata, request)?;
        let operation = request.operation();
        let extension_headers = if call.extensions.is_empty() {
            ExtensionHeaders::default()
        } else {
            ExtensionHeaders::from_headers(headers)
        };
        if let Some(access) = &self.access {
            access.authorize(&context.identity, &agent.name, &call.scope.tenant, request)?;
        }
        let (rate_limit, _permit) = self.check_rate_limit(&call.scope.agent, context)?;
        let (access, identity) = (self.access.as_ref(), &context.identity);
        Ok(AuthorizedCall {
            agent,
            access,
            identity,
            call,
            operation,
            extension_headers,
            rate_limit,
            _permit,
        })
    }

    /// A refusal says what to bring.
    pub(super) fn add_challenges(&self, reply: &mut Reply) {
        let (Some(access), StatusCode::UNAUTHORIZED) = (&self.access, reply.status()) else {
            return;
        };
        for challenge in access
            .challenges()
            .filter_map(|text| HeaderValue::try_from(text).ok())
        {
            reply.headers_mut().append(WWW_AUTHENTICATE, challenge);
        }
    }
}

impl AuthorizedCall<'_> {
    /// Does what is asked. Whoever waits for it keeps no room for the request.
    pub(super) fn call(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<ServiceResponse>> + Send {
        let result = self.agent.service.call(&self.call, request);
        async {
            let response = match result {
                Ok(CallResult::Ready(response)) => Ok(response),
                Ok(CallResult::Pending(answering)) => answering.await,
                Err(error) => Err(error),
            };
            let failed = response.as_ref().err().map(Error::kind);
            metrics::record_call(&self.agent.name, self.operation, self.call.version, failed);
            Ok(match (response?, self.access) {
                (ServiceResponse::Single(Response::AgentCard(card)), Some(access)) => {
                    let card = access.filter_skills(self.identity, &self.agent.name, *card);
                    ServiceResponse::Single(Response::AgentCard(Box::new(card)))
                }
                (response, _) => response,
            })
        }
    }

    /// Says in the answer what goes with every one: its version, what is left to the caller, and that a card which is not for
    /// everybody is not kept for everybody.
    pub(super) fn add_response_headers(&self, headers: &mut HeaderMap) {
        set_call_headers(headers, self.extension_headers, &self.call);
        if let Some(RateLimitStatus {
            limit,
            remaining,
            reset,
        }) = self.rate_limit
        {
            reply::set_rate_limit(
                headers,
                limit,
                remaining,
                reset.as_secs() + u64::from(reset.subsec_nanos() > 0),
            );
        }
        if self.operation == Operation::GetExtendedAgentCard {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        }
    }
}
