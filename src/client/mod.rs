//! The other side of the wire: the eleven operations, over every binding and version, and what is made of them.

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
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "grpc_disabled.rs"]
mod grpc;
mod headers;
mod http;
mod jsonrpc;
mod operations;
mod push_receiver;
mod rest;
mod retry;
mod send;
mod settings;
mod task_fold;
mod task_stream;

use std::fmt;
use std::sync::Arc;

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
#[cfg(feature = "jws")]
pub use push_receiver::PushSignatureVerifier;
pub use push_receiver::{
    PushNotification, PushNotifications, PushReceiver, PushReceiverSettings, PushVerifier,
    VerificationError, VerifiedClaims,
};
pub use settings::{ClientSettings, InterfacePreference, PollingPolicy, RetryPolicy, Timeouts};
pub use task_stream::TaskStream;

/// Talks to one agent, in one binding and one version. Cheap to clone; clones share their connections.
///
/// An error that the agent sent has the kind it has on the wire. [`ErrorKind::Unavailable`] with a source is a
/// connection that could not be made or was lost, [`ErrorKind::DeadlineExceeded`] with one a peer that took too long
/// ([`Timeouts`]), [`ErrorKind::InvalidAgentResponse`] an answer that makes no sense.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    /// What else its card offers, to fall back on.
    fallbacks: Arc<Fallbacks>,
    headers: HeaderMap,
    extensions: Option<HeaderValue>,
    /// Where its calls are in a trace.
    trace: Option<TraceContext>,
    settings: Arc<ClientSettings>,
    /// Origins that the headers may go to besides home.
    trusted_origins: Arc<[String]>,
    egress: Egress,
    /// Where the card came from.
    card_url: Option<Uri>,
    card: Option<Arc<AgentCard>>,
    credentials: CredentialSet,
    /// The peer has no A2A.
    is_chat_peer: bool,
    /// What is still to be done for handles that were dropped.
    background_tasks: TaskTracker,
}

impl Client {
    /// Sets up a client otherwise than by default.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// A client of the agent at this url; gRPC also takes `host:port` and `grpc://host:port`.
    ///
    /// # Errors
    /// Invalid parameters: the url is not one of HTTP. Unsupported: gRPC without the feature `grpc`.
    pub fn new(url: &str, binding: Binding, version: Version) -> Result<Self> {
        Self::builder().connect(url, binding, version)
    }

    /// A client that goes out by this door.
    #[cfg(feature = "server")]
    pub(crate) fn with_egress(
        egress: Egress,
        url: &str,
        binding: Binding,
        version: Version,
    ) -> Result<Self> {
        Ok(Self::builder().build(egress, Endpoint::new(url, binding, version)?))
    }

    /// A client of an interface that a card names, with its tenant.
    ///
    /// # Errors
    /// Unsupported: a binding or version that this client does not speak. Invalid parameters: its url.
    pub fn from_interface(interface: &AgentInterface) -> Result<Self> {
        Self::builder().interface(interface)
    }

    /// Trusts whom these settings trust, and shows their certificate to servers that ask for one.
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

    /// Puts this tenant into every request that names none; 0.3 has no tenants.
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.endpoint.tenant = Some(tenant.into());
        self
    }

    /// Sends a header, or gRPC metadata, with every request, in place of what there was under its name. For one call
    /// alone, on a clone: `client.clone().with_header("X-TraceContext", "1")?.send_message(..)`.
    ///
    /// Where a card leads to another origin than its own, no such header goes along unless
    /// [`trust`](ClientBuilder::trust) says so.
    ///
    /// # Errors
    /// Invalid parameters: no such header can be sent.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, value) = headers::parse_header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Makes every call part of this trace. Where OpenTelemetry is on, calls are part of what runs when they are made,
    /// and need not be told.
    #[must_use]
    pub fn with_trace(self, trace: TraceContext) -> Self {
        Self {
            trace: Some(trace),
            ..self
        }
    }

    /// Sends this token as `Authorization: Bearer`, whatever the card says and wherever it leads; rather use
    /// [`with_credentials`](Self::with_credentials).
    ///
    /// # Errors
    /// Invalid parameters: the token has characters that a header cannot carry.
    pub fn with_bearer(mut self, token: &Secret) -> Result<Self> {
        self.headers
            .insert(::http::header::AUTHORIZATION, headers::bearer_value(token)?);
        Ok(self)
    }

    /// Asks for these extensions, by their URIs, with every request.
    ///
    /// # Errors
    /// Invalid parameters: a URI has characters that a header cannot carry.
    pub fn with_extensions<'a>(self, uris: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Ok(Self {
            extensions: Some(headers::extensions_value(uris)?),
            ..self
        })
    }

    /// Reads at most so many bytes of one answer, or of one event of a stream; by default 10 MiB.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        Arc::make_mut(&mut self.settings).max_bytes = max_bytes;
        self
    }

    /// Keeps to these settings from now on; those about choosing an interface come too late.
    #[must_use]
    pub fn with_settings(self, settings: ClientSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            ..self
        }
    }

    /// What it keeps to.
    #[must_use]
    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// Lets somebody see all that passes between this client and its agent, credentials included.
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

    /// Where it talks to, and how.
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

    /// The model to name to a peer that has no A2A; `None` for every other.
    fn chat_model(&self) -> Option<&str> {
        self.settings
            .chat_completions
            .as_deref()
            .filter(|_| self.is_chat_peer)
    }

    /// The card it was made from, if [`discover`](Self::discover) made it.
    #[must_use]
    pub fn card(&self) -> Option<&AgentCard> {
        self.card.as_deref()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("interface", &self.interface())
            .finish_non_exhaustive()
    }
}

fn unsupported_interface() -> Error {
    Error::new(ErrorKind::UnsupportedOperation).with_message(
        "This operation is not supported: the interface is in another binding or version",
    )
}

fn invalid_response(what: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message(format!("Invalid agent response: {what}"))
}
