//! A2A client: the eleven operations over every binding and version, discovery, task streams, credentials and the
//! receiver of push notifications.
//!
//! - [`discovery`] finds an agent card; [`endpoint`] selects an interface of it and keeps the others as fallbacks.
//! - [`operations`] are single calls. [`jsonrpc`], [`rest`] and [`grpc`] encode them, [`http`] sends them.
//! - [`send`] and [`task_stream`] add retries, reconnects and polling ([`retry`]).
//! - [`credentials`] attaches credentials to requests, bound to an origin.
//! - [`push_receiver`] is the other end of webhooks.

#[cfg(feature = "blocking")]
mod blocking;
mod builder;
mod card_cache;
#[cfg(feature = "jws")]
mod card_signatures;
mod chat_completions;
mod credentials;
mod discovery;
mod endpoint;
mod event_stream;
mod extended_card;
mod file_encoding;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "grpc_disabled.rs"]
mod grpc;
mod headers;
mod http;
mod interface_url;
mod jsonrpc;
mod operations;
mod push_receiver;
mod rest;
mod retry;
mod send;
mod settings;
mod task_stream;

use std::fmt;
use std::sync::{Arc, OnceLock};

use ::http::{HeaderMap, HeaderValue, Uri};
use tokio_util::task::TaskTracker;

#[cfg(feature = "tls")]
use crate::egress::ClientTls;
use crate::egress::Egress;
pub use crate::egress::{Traffic, TrafficHeader};
use crate::model::{
    AgentCard, AgentInterface, Binding, Error, ErrorKind, Result, Secret, TraceContext, Version,
};
#[cfg(feature = "blocking")]
pub use blocking::{BlockingClient, BlockingTaskStream};
pub use builder::ClientBuilder;
pub use card_cache::{CachedCard, CardCache, MemoryCardCache};
use credentials::CredentialSet;
pub use credentials::{
    ApiKeyAuth, AuthParam, AuthorizationCodeLogin, AuthorizationServer, BasicAuth, BearerAuth,
    CredentialProvider, DeviceLogin, MutualTlsAuth, OAuth, Token,
};
use endpoint::{Endpoint, Fallbacks};
pub use event_stream::EventStream;
use file_encoding::PeerHeads;
#[cfg(feature = "jws")]
pub use push_receiver::PushSignatureVerifier;
pub use push_receiver::{
    PushNotification, PushNotifications, PushReceiver, PushReceiverSettings, PushVerifier,
    VerificationError, VerifiedClaims,
};
pub use settings::{
    ClientSettings, FileEncoding, InterfacePreference, PollingPolicy, RetryPolicy, Timeouts,
};
pub use task_stream::TaskStream;

/// Client of one agent, over one binding and version. Clones are cheap and share connections.
///
/// Errors that the agent returns have their kind on the wire. Errors of the client itself have a source:
/// [`ErrorKind::Unavailable`] for a failed or lost connection, [`ErrorKind::DeadlineExceeded`] for an expired timeout
/// ([`Timeouts`]). [`ErrorKind::InvalidAgentResponse`] is a response that cannot be decoded.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    /// Other interfaces of the card.
    fallbacks: Arc<Fallbacks>,
    headers: HeaderMap,
    extensions: Option<HeaderValue>,
    /// Trace that the calls belong to.
    trace: Option<TraceContext>,
    settings: Arc<ClientSettings>,
    /// Origins that receive the headers besides the origin of the card.
    trusted_origins: Arc<[String]>,
    egress: Egress,
    /// URL that the card was read from.
    card_url: Option<Uri>,
    card: Option<Arc<AgentCard>>,
    /// Extended card, once it has been read. It replaces the public one.
    extended_card: Arc<OnceLock<AgentCard>>,
    credentials: CredentialSet,
    /// Whether the peer has no A2A and offers chat completions.
    is_chat_peer: bool,
    peer_heads: Arc<PeerHeads>,
    /// Cancellations for task streams that were dropped.
    background_tasks: TaskTracker,
}

impl Client {
    /// Returns a builder with default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Returns a client of the agent at `url`. For gRPC, `host:port` and `grpc://host:port` are accepted too.
    ///
    /// # Errors
    /// Invalid parameters if `url` is not an HTTP URL. Unsupported for gRPC without the feature `grpc`.
    pub fn new(url: &str, binding: Binding, version: Version) -> Result<Self> {
        Self::builder().connect(url, binding, version)
    }

    /// Returns a client that sends its requests through `egress`.
    #[cfg(feature = "server")]
    pub(crate) fn with_egress(
        egress: Egress,
        url: &str,
        binding: Binding,
        version: Version,
    ) -> Result<Self> {
        Ok(Self::builder().build(egress, Endpoint::new(url, binding, version)?))
    }

    /// Returns a client of an interface of a card, with its tenant.
    ///
    /// # Errors
    /// Unsupported if this client does not support the binding or version. Invalid parameters for an invalid URL.
    pub fn from_interface(interface: &AgentInterface) -> Result<Self> {
        Self::builder().interface(interface)
    }

    /// Returns an interface of the card at `card_url` with an absolute URL. A relative URL is resolved against that of
    /// the card; an empty one is the base of the card.
    ///
    /// # Errors
    /// Invalid parameters if `card_url` is not a URL.
    pub fn resolve_interface(card_url: &str, interface: &AgentInterface) -> Result<AgentInterface> {
        let card_url = builder::parse_card_url(card_url)?;
        Ok(AgentInterface {
            url: interface_url::absolute_url(interface, &card_url),
            ..interface.clone()
        })
    }

    /// Uses these certificate authorities, and this client certificate if the server requests one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: &ClientTls) -> Self {
        let connect = self.settings.timeouts.connect;
        let egress = match &self.card_url {
            Some(card_url) => {
                Egress::following_document(tls, connect, card_url, &self.trusted_origins)
            }
            None => Egress::with_tls(tls, connect),
        };
        Self { egress, ..self }
    }

    /// Adds this tenant to every request without one. A2A 0.3 has no tenants.
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.endpoint.tenant = Some(tenant.into());
        self
    }

    /// Sends a header, or gRPC metadata, with every request. Replaces an earlier value of the same name.
    ///
    /// For a single call, use a clone: `client.clone().with_header("X-Trace", "1")?.send_message(..)`.
    ///
    /// If a card leads to another origin than its own, the header is not sent there unless the origin is trusted
    /// ([`ClientBuilder::trust`]).
    ///
    /// # Errors
    /// Invalid parameters if the name or value is not valid in HTTP.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, value) = headers::parse_header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Makes every call part of this trace. Not needed with OpenTelemetry: then calls belong to the current span.
    #[must_use]
    pub fn with_trace(self, trace: TraceContext) -> Self {
        Self {
            trace: Some(trace),
            ..self
        }
    }

    /// Sends this token as `Authorization: Bearer` with every request, whatever security schemes the card declares.
    /// [`with_credentials`](Self::with_credentials) is the safer choice: it follows the card and binds the token to an origin.
    ///
    /// # Errors
    /// Invalid parameters if the token contains characters that are not valid in a header.
    pub fn with_bearer(mut self, token: &Secret) -> Result<Self> {
        self.headers
            .insert(::http::header::AUTHORIZATION, headers::bearer_value(token)?);
        Ok(self)
    }

    /// Requests these extensions, by URI, with every call.
    ///
    /// # Errors
    /// Invalid parameters if a URI contains characters that are not valid in a header.
    pub fn with_extensions<'a>(self, uris: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Ok(Self {
            extensions: Some(headers::extensions_value(uris)?),
            ..self
        })
    }

    /// Limits the size of one response, or of one event of a stream. The default is 10 MiB.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        Arc::make_mut(&mut self.settings).max_bytes = max_bytes;
        self
    }

    /// Replaces the settings. The interface is already selected, so [`InterfacePreference`] has no effect.
    #[must_use]
    pub fn with_settings(self, settings: ClientSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            ..self
        }
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// Passes all traffic between this client and its agent to `observer`, including credentials.
    #[must_use]
    pub fn with_traffic_observer(
        self,
        observer: impl Fn(&Traffic<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            egress: self.egress.with_traffic_observer(Arc::new(observer)),
            ..self
        }
    }

    /// Returns the interface in use: URL, binding, version and tenant.
    #[must_use]
    pub fn interface(&self) -> AgentInterface {
        let interface = self
            .fallbacks
            .active()
            .unwrap_or(&self.endpoint)
            .interface();
        match self.chat_model() {
            Some(_) => AgentInterface {
                protocol_binding: chat_completions::BINDING.to_owned(),
                ..interface
            },
            None => interface,
        }
    }

    /// Returns the reason why the SSRF guard blocked the connection, if that made a call fail with `error`: the card leads
    /// to an origin that [`ClientBuilder::trust`] would have to allow.
    #[must_use]
    pub fn block_reason(error: &Error) -> Option<String> {
        crate::egress::block_reason(error).map(|reason| reason.to_string())
    }

    /// Returns the model name for a chat-completions peer; `None` for an A2A agent.
    fn chat_model(&self) -> Option<&str> {
        self.settings
            .chat_completions
            .as_deref()
            .filter(|_| self.is_chat_peer)
    }

    /// Returns the agent card that [`discover`](Self::discover) read, or the extended one after
    /// [`get_extended_agent_card`](Self::get_extended_agent_card).
    #[must_use]
    pub fn card(&self) -> Option<&AgentCard> {
        self.extended_card.get().or(self.card.as_deref())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("interface", &self.interface())
            .finish_non_exhaustive()
    }
}

/// Returns an `InvalidAgentResponse` error with a description of the problem.
fn invalid_response(what: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message(format!("Invalid agent response: {what}"))
}
