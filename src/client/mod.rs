//! The other side of the wire: the eleven operations, over every binding and version, and what is made of them.

#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod cards;
mod chat;
mod credentials;
mod discover;
mod events;
mod fold;
mod follow;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "no_grpc.rs"]
mod grpc;
mod headers;
mod http;
mod jsonrpc;
mod operations;
mod receiver;
mod rest;
mod retry;
mod send;
mod settings;
#[cfg(feature = "jws")]
mod signed;
mod way;

use std::fmt;
use std::sync::Arc;

use ::http::{HeaderMap, HeaderValue, Uri};
use tokio_util::task::TaskTracker;

#[cfg(feature = "tls")]
use crate::egress::ClientTls;
use crate::egress::Egress;
pub use crate::egress::{Header, Traffic};
use crate::model::{
    AgentCard, AgentInterface, Binding, Error, ErrorKind, Result, Secret, Trace, Version,
};
pub use builder::ClientBuilder;
pub use cards::{CardStore, KeptCard, MemoryCards};
use credentials::Wallet;
pub use credentials::{
    ApiKey, Basic, Bearer, CodeLogin, Credentials, DeviceLogin, Endpoints, MutualTls, OAuth, Shown,
    Token,
};
pub use events::EventStream;
pub use follow::TaskStream;
#[cfg(feature = "jws")]
pub use receiver::PushSignatures;
pub use receiver::{
    NotVouched, Notification, PushCheck, PushNotifications, PushReceiver, PushReceiverSettings,
    Vouched,
};
pub use settings::{Budgets, Choice, ClientSettings, Polling, Retries};
use way::{Others, Way};

/// Talks to one agent, in one binding and one version. Cheap to clone; clones share their connections.
///
/// An error that the agent sent has the kind it has on the wire. [`ErrorKind::Unavailable`] with a source is a
/// connection that could not be made or was lost, [`ErrorKind::DeadlineExceeded`] with one a peer that took too long
/// ([`Budgets`]), [`ErrorKind::InvalidAgentResponse`] an answer that makes no sense.
#[derive(Clone)]
pub struct Client {
    way: Way,
    /// What else its card offers, to fall back on.
    others: Arc<Others>,
    headers: HeaderMap,
    extensions: Option<HeaderValue>,
    /// Where its calls are in a trace.
    trace: Option<Trace>,
    settings: Arc<ClientSettings>,
    /// Origins that the headers may go to besides home.
    trusted: Arc<[String]>,
    egress: Egress,
    /// Where the card came from.
    home: Option<Uri>,
    card: Option<Arc<AgentCard>>,
    wallet: Wallet,
    /// The peer has no A2A.
    is_chat: bool,
    /// What is still to be done for handles that were dropped.
    errands: TaskTracker,
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
    pub(crate) fn over(
        egress: Egress,
        url: &str,
        binding: Binding,
        version: Version,
    ) -> Result<Self> {
        Ok(Self::builder().along(egress, Way::new(url, binding, version)?))
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
        let connect = self.settings.budgets.connect;
        let egress = match &self.home {
            Some(home) => Egress::led(tls, connect, home, &self.trusted),
            None => Egress::with_tls(tls, connect),
        };
        Self { egress, ..self }
    }

    /// Puts this tenant into every request that names none; 0.3 has no tenants.
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.way.tenant = Some(tenant.into());
        self
    }

    /// Sends a header, or gRPC metadata, with every request, in place of what there was under its name. For one call
    /// alone, on a clone: `client.clone().with_header("X-Trace", "1")?.send_message(..)`.
    ///
    /// Where a card leads to another origin than its own, no such header goes along unless
    /// [`trust`](ClientBuilder::trust) says so.
    ///
    /// # Errors
    /// Invalid parameters: no such header can be sent.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, value) = headers::header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Makes every call part of this trace. Where OpenTelemetry is on, calls are part of what runs when they are made,
    /// and need not be told.
    #[must_use]
    pub fn with_trace(self, trace: Trace) -> Self {
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
            .insert(::http::header::AUTHORIZATION, headers::bearer(token)?);
        Ok(self)
    }

    /// Asks for these extensions, by their URIs, with every request.
    ///
    /// # Errors
    /// Invalid parameters: a URI has characters that a header cannot carry.
    pub fn with_extensions<'a>(self, uris: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Ok(Self {
            extensions: Some(headers::extensions(uris)?),
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
    pub fn watched(self, watcher: impl Fn(&Traffic<'_>) + Send + Sync + 'static) -> Self {
        Self {
            egress: self.egress.watched(Arc::new(watcher)),
            ..self
        }
    }

    /// Where it talks to, and how.
    #[must_use]
    pub fn interface(&self) -> AgentInterface {
        let interface = self.others.taken().unwrap_or(&self.way).interface();
        match self.completes_chats() {
            Some(_) => AgentInterface {
                protocol_binding: chat::BINDING.to_owned(),
                ..interface
            },
            None => interface,
        }
    }

    /// The model to name to a peer that has no A2A; `None` for every other.
    fn completes_chats(&self) -> Option<&str> {
        self.settings
            .chat_completions
            .as_deref()
            .filter(|_| self.is_chat)
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

fn unspoken() -> Error {
    Error::new(ErrorKind::UnsupportedOperation).with_message(
        "This operation is not supported: the interface is in another binding or version",
    )
}

fn unusable(what: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse)
        .with_message(format!("Invalid agent response: {what}"))
}
