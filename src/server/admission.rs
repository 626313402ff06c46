//! Admission, shared by all bindings: authenticate, resolve agent and tenant, authorize,
//! rate-limit, add response headers.
//!
//! A binding takes a call through these steps, in this order. Each step returns the value that the
//! next one needs:
//!
//! | step | function | result |
//! | --- | --- | --- |
//! | authenticate | [`Admission::authenticate`] | [`RequestContext`]; the body is still unread |
//! | decode | [`Admission::read_body`], then the codec of the binding in [`Admission::decode`] | `Request` |
//! | resolve agent | [`Admission::resolve_agent`] | [`ResolvedCall`] |
//! | authorize | [`ResolvedCall::authorize`] | [`AuthorizedCall`] |
//! | rate-limit | [`AuthorizedCall::rate_limit`] | [`AdmittedCall`] |
//! | call | [`AdmittedCall::call`] | `ServiceResponse` |
//! | encode | codec of the binding in [`AdmittedCall::encode`], [`AdmittedCall::with_response_headers`] | `Reply` |
//!
//! A request that fails before the rate limit still counts against it:
//! [`Admission::charge_rejection`].

use std::net::IpAddr;
use std::sync::Arc;
#[cfg(feature = "grpc")]
use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use hyper::body::Incoming;

use super::admitted_call::AdmittedCall;
#[cfg(feature = "grpc")]
use super::body::CountedBody;
use super::body::{self, BodyBudget, SizeLimit};
use super::body_decoder::{BodyDecoder, MAX_INLINE_BYTES};
use super::call_headers::{ExtensionHeaders, read_call_headers};
use super::client_address::client_ip;
use super::peer::ConnectionPeer;
use super::reply::Reply;
use super::settings::ServerSettings;
use crate::auth::{
    Access, CallLimiter, CallPermit, CallerLimits, DelegationClaim, Identity, RateLimitKey,
    RateLimitStatus, RequestCredentials, ip_key,
};
use crate::model::{
    Call, Caller, CallerKey, Error, ErrorKind, Limits, Operation, Request, Result, Version,
};
use crate::rt::ByteBudget;
use crate::service::{AgentEntry, Directory};
#[cfg(feature = "grpc")]
use crate::service::{StreamLimiter, StreamPermit};

/// Access control of the server: the agents, and who may call them how often.
pub(super) struct Admission {
    pub(super) directory: Directory,
    /// Authenticators and access rules. `None`: callers are not authenticated.
    pub(super) access: Option<Access>,
    /// Limits that `call_limiter` enforces. A reload with equal limits keeps the limiter and its
    /// counts.
    pub(super) caller_limits: CallerLimits,
    pub(super) call_limiter: Arc<CallLimiter>,
    /// Whether `call_limiter` applies to anonymous callers on loopback addresses.
    pub(super) limits_loopback: bool,
    pub(super) settings: Arc<ServerSettings>,
    pub(super) body_budget: Arc<BodyBudget>,
    pub(super) outgoing: Arc<ByteBudget>,
    /// Limits the watchers of the gRPC health service.
    #[cfg(feature = "grpc")]
    pub(super) stream_limiter: Arc<StreamLimiter>,
    pub(super) body_decoder: Arc<BodyDecoder>,
    /// Limits that decoded requests are checked against.
    pub(super) limits: Limits,
}

/// Authenticated request, before it is decoded.
pub(super) struct RequestContext {
    pub(super) identity: Identity,
    delegation: DelegationClaim,
    client_ip: IpAddr,
    /// Bytes of the body that have been read. They count against the byte limit of the caller.
    body_bytes: usize,
    /// Whether the rate limit has counted the request.
    is_counted: bool,
}

impl RequestContext {
    /// Returns the context of an unauthenticated request.
    fn anonymous(client_ip: IpAddr) -> Self {
        Self::new(Identity::anonymous(), DelegationClaim::Direct, client_ip)
    }

    fn new(identity: Identity, delegation: DelegationClaim, client_ip: IpAddr) -> Self {
        Self {
            identity,
            delegation,
            client_ip,
            body_bytes: 0,
            is_counted: false,
        }
    }

    pub(super) fn caller(&self) -> &Caller {
        self.identity.caller()
    }

    /// Returns the key of the caller in limits.
    pub(super) fn key(&self) -> CallerKey {
        self.identity.key(self.client_ip)
    }

    /// Whether the caller has no credential.
    pub(super) fn is_anonymous(&self) -> bool {
        self.identity.is_anonymous()
    }

    /// Whether the request comes from an anonymous caller on a loopback address.
    fn is_local(&self) -> bool {
        self.client_ip.is_loopback() && self.identity.is_anonymous()
    }
}

/// Result of the rate limit. The permit counts as a running call until it is dropped.
pub(super) struct RateLimitGrant {
    pub(super) status: Option<RateLimitStatus>,
    _permit: Option<CallPermit>,
}

impl Admission {
    /// Authenticates a request by its headers, query and client certificate. Its body is not read.
    ///
    /// # Errors
    /// Unauthenticated; unavailable: an authenticator failed, or the caller has too many
    /// connections; rate limited: too many failed logins.
    pub(super) async fn authenticate(
        &self,
        peer: &ConnectionPeer,
        request: &HttpRequest<Incoming>,
    ) -> Result<RequestContext> {
        let client_ip = client_ip(&self.settings, peer.address.ip(), request.headers());
        let Some(access) = &self.access else {
            return Ok(RequestContext::anonymous(client_ip));
        };
        let credentials = RequestCredentials::new(
            request.headers(),
            request.uri().query(),
            peer.address.ip(),
            peer.certificate.as_deref(),
        )
        .with_client(client_ip);
        let (identity, delegation) = access.authenticate(&credentials).await?;
        if !identity.is_anonymous() {
            peer.count_caller(identity.caller())?;
        }
        Ok(RequestContext::new(identity, delegation, client_ip))
    }

    /// Returns the context of a request that needs no authentication.
    #[cfg(feature = "grpc")]
    pub(super) fn skip_authentication(
        &self,
        peer: &ConnectionPeer,
        request: &HttpRequest<Incoming>,
    ) -> RequestContext {
        let client_ip = client_ip(&self.settings, peer.address.ip(), request.headers());
        RequestContext::anonymous(client_ip)
    }

    /// Reads the body of a request within the limits, and records its size for the rate limit.
    ///
    /// # Errors
    /// Those of [`body::read`].
    pub(super) async fn read_body(
        &self,
        context: &mut RequestContext,
        body: Incoming,
    ) -> Result<Bytes> {
        let limit = SizeLimit::from_settings(&self.settings);
        let read = self.read_within(context, body, limit).await;
        context.body_bytes = match &read {
            Ok(body) => body.len(),
            // A lower bound: the rest was not read.
            Err(error) if error.kind() == ErrorKind::PayloadTooLarge => {
                self.settings.max_body_bytes
            }
            Err(_) => 0,
        };
        read
    }

    /// Reads the body of a request within a limit of its own.
    ///
    /// # Errors
    /// Those of [`body::read`].
    pub(super) fn read_within(
        &self,
        context: &RequestContext,
        body: Incoming,
        limit: SizeLimit,
    ) -> impl Future<Output = Result<Bytes>> {
        body::read(body, limit, &self.settings, &self.body_budget, || {
            context.key()
        })
    }

    /// Counts the body of a request that is read message by message, as a stream and against the budget for bodies.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    #[cfg(feature = "grpc")]
    pub(super) fn count_body(
        &self,
        context: &RequestContext,
        body: Incoming,
        max_held: usize,
    ) -> Result<CountedBody> {
        let stream = self.acquire_stream(context)?;
        let limits = self.settings.body_limits();
        CountedBody::new(
            body,
            max_held,
            limits,
            &self.body_budget,
            context.key(),
            stream,
        )
    }

    /// Decodes a body: at once if it is small, else on a thread for large bodies.
    ///
    /// # Errors
    /// Those of [`BodyDecoder::run`].
    pub(super) async fn decode<T: Send + 'static>(
        &self,
        context: &RequestContext,
        body: Bytes,
        decode: impl FnOnce(Bytes, &Limits) -> T + Send + 'static,
    ) -> Result<T> {
        if body.len() <= MAX_INLINE_BYTES {
            return Ok(decode(body, &self.limits));
        }
        let owner = context.key();
        let limits = self.limits;
        // Boxed: large bodies are rare, and small ones need no room for this future.
        Box::pin(self.body_decoder.run(&owner, move || decode(body, &limits))).await
    }

    /// Resolves agent and tenant of a decoded request, and reads the headers of the call.
    ///
    /// `agent` is the agent of the request path. The tenant of the request can name another one.
    ///
    /// # Errors
    /// Task not found: unknown tenant. Permission denied: the delegation does not cover the
    /// request. Invalid: a header.
    pub(super) fn resolve_agent<'a>(
        &'a self,
        agent: &'a AgentEntry,
        context: &'a mut RequestContext,
        headers: &HeaderMap,
        version: Version,
        request: &mut Request,
    ) -> Result<ResolvedCall<'a>> {
        context.delegation.apply_to(request)?;
        let caller = context.caller().clone();
        let metadata = read_call_headers(caller, ip_key(context.client_ip), headers, version)?;
        let (agent, call) = self.directory.resolve_call(agent, metadata, request)?;
        let extension_headers = if call.extensions.is_empty() {
            ExtensionHeaders::default()
        } else {
            ExtensionHeaders::from_headers(headers)
        };
        Ok(ResolvedCall {
            admission: self,
            context,
            agent,
            call,
            operation: request.operation(),
            extension_headers,
        })
    }

    /// Applies the rate limit of the caller to a request that is not a call, such as gRPC
    /// reflection.
    ///
    /// # Errors
    /// Rate limited.
    pub(super) fn rate_limit(
        &self,
        agent: &AgentEntry,
        context: &mut RequestContext,
    ) -> Result<RateLimitGrant> {
        self.count(&agent.namespace, context)
    }

    /// Returns the error of a rejected request, after counting the request against the rate limit.
    ///
    /// Rejected requests cost as much as calls, so a client cannot send them without limit. If the
    /// limit is exceeded, that error is returned instead.
    pub(super) fn charge_rejection(
        &self,
        agent: &AgentEntry,
        context: &mut RequestContext,
        error: Error,
    ) -> Error {
        if context.is_counted {
            return error;
        }
        self.rate_limit(agent, context).err().unwrap_or(error)
    }

    /// Adds the authentication challenges to a reply with status 401.
    pub(super) fn add_challenges(&self, reply: &mut Reply) {
        let Some(access) = &self.access else {
            return;
        };
        if reply.status() != StatusCode::UNAUTHORIZED {
            return;
        }
        for challenge in access.challenges() {
            if let Ok(challenge) = HeaderValue::try_from(challenge) {
                reply.headers_mut().append(WWW_AUTHENTICATE, challenge);
            }
        }
    }

    /// Applies the rate limit to a health check. Health checks have an allowance of their own, so
    /// that calls from the same address do not make them fail.
    ///
    /// # Errors
    /// Rate limited.
    #[cfg(feature = "grpc")]
    pub(super) fn rate_limit_health(&self, context: &mut RequestContext) -> Result<RateLimitGrant> {
        static NAMESPACE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("grpc.health"));
        self.count(&NAMESPACE, context)
    }

    /// Acquires a stream slot for a request that is not a call, such as a health watch.
    ///
    /// # Errors
    /// Unavailable: a stream limit is reached.
    #[cfg(feature = "grpc")]
    pub(super) fn acquire_stream(&self, context: &RequestContext) -> Result<StreamPermit> {
        self.stream_limiter.acquire(context.key())
    }

    /// Whether all credentials of a caller were revoked.
    pub(super) fn is_revoked(&self, caller: &Caller) -> bool {
        let access = self.access.as_ref();
        access.is_some_and(|access| access.is_revoked(caller))
    }

    fn count(&self, namespace: &Arc<str>, context: &mut RequestContext) -> Result<RateLimitGrant> {
        context.is_counted = true;
        if !self.limits_loopback && context.is_local() {
            return Ok(RateLimitGrant {
                status: None,
                _permit: None,
            });
        }
        let key = RateLimitKey::new(namespace.clone(), context.key());
        let (status, permit) = self.call_limiter.check_call(&key, context.body_bytes)?;
        Ok(RateLimitGrant {
            status,
            _permit: permit,
        })
    }
}

/// Call with its agent and scope, before authorization.
pub(super) struct ResolvedCall<'a> {
    pub(super) admission: &'a Admission,
    pub(super) context: &'a mut RequestContext,
    pub(super) agent: &'a AgentEntry,
    pub(super) call: Call,
    pub(super) operation: Operation,
    pub(super) extension_headers: ExtensionHeaders,
}

impl<'a> ResolvedCall<'a> {
    /// Checks the access rules.
    ///
    /// # Errors
    /// Task not found: the tenant is not open to the caller. Permission denied. Unauthenticated: an
    /// anonymous caller.
    pub(super) fn authorize(self, request: &Request) -> Result<AuthorizedCall<'a>> {
        if let Some(access) = &self.admission.access {
            let identity = &self.context.identity;
            access.authorize(identity, &self.agent.name, &self.call.scope.tenant, request)?;
        }
        Ok(AuthorizedCall(self))
    }
}

/// Call that the access rules allow, before the rate limit.
pub(super) struct AuthorizedCall<'a>(ResolvedCall<'a>);

impl<'a> AuthorizedCall<'a> {
    /// Applies the rate limit of the caller. Boxed: the call has 312 bytes, which the futures of bindings would hold.
    ///
    /// # Errors
    /// Rate limited.
    pub(super) fn rate_limit(self) -> Result<Box<AdmittedCall<'a>>> {
        let Self(resolved) = self;
        let rate_limit = resolved
            .admission
            .count(&resolved.call.scope.agent, resolved.context)?;
        Ok(Box::new(AdmittedCall::new(resolved, rate_limit)))
    }
}
