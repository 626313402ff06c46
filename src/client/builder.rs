//! A client that is set up otherwise than by default.

use std::sync::Arc;

use ::http::{HeaderMap, HeaderValue, Uri};
use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use super::card_cache::{CardCache, MemoryCardCache};
use super::credentials::CredentialSet;
use super::endpoint::{Endpoint, origin, supported_protocol};
use super::settings::ClientSettings;
use super::{Client, headers, unsupported_interface};
use crate::egress::{ClientTls, Egress, Traffic, TrafficObserver};
use crate::model::{AgentCard, AgentInterface, Binding, Error, Result, Secret, Version};

/// Sets up clients; [`Client::builder`] begins one. Clones share the cards that were read, so that asking for an agent
/// again costs nothing while its card may be kept.
#[derive(Clone)]
pub struct ClientBuilder {
    pub(super) settings: Arc<ClientSettings>,
    pub(super) headers: HeaderMap,
    pub(super) extensions: Option<HeaderValue>,
    pub(super) trusted_origins: Arc<[String]>,
    pub(super) card_cache: Arc<dyn CardCache>,
    pub(super) check: Option<Arc<dyn CardCheck>>,
    tls: ClientTls,
    observer: Option<TrafficObserver>,
}

/// Whether a card may be used at all.
#[async_trait]
pub(super) trait CardCheck: Send + Sync {
    /// `received` is the document that it was read from.
    async fn check(&self, card: &AgentCard, received: &[u8]) -> Result<()>;
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            settings: Arc::default(),
            headers: HeaderMap::new(),
            extensions: None,
            trusted_origins: Arc::default(),
            card_cache: Arc::new(MemoryCardCache::default()),
            check: None,
            tls: ClientTls::new(),
            observer: None,
        }
    }
}

impl ClientBuilder {
    /// Sets everything at once.
    #[must_use]
    pub fn settings(self, settings: ClientSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            ..self
        }
    }

    /// Prefers these bindings, the best first, where a card offers them.
    #[must_use]
    pub fn bindings(mut self, bindings: impl IntoIterator<Item = Binding>) -> Self {
        Arc::make_mut(&mut self.settings).interface.bindings = bindings.into_iter().collect();
        self
    }

    /// Speaks this version and no other.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        Arc::make_mut(&mut self.settings).interface.version = Some(version);
        self
    }

    /// Sends a header with every request, also for the card; see [`Client::with_header`].
    ///
    /// # Errors
    /// Invalid parameters: no such header can be sent.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, value) = headers::parse_header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sends this token as `Authorization: Bearer`, also for the card.
    ///
    /// # Errors
    /// Invalid parameters: the token has characters that a header cannot carry.
    pub fn bearer(mut self, token: &Secret) -> Result<Self> {
        self.headers
            .insert(::http::header::AUTHORIZATION, headers::bearer_value(token)?);
        Ok(self)
    }

    /// Asks for these extensions, by their URIs, with every request.
    ///
    /// # Errors
    /// Invalid parameters: a URI has characters that a header cannot carry.
    pub fn extensions<'a>(self, uris: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Ok(Self {
            extensions: Some(headers::extensions_value(uris)?),
            ..self
        })
    }

    /// Sends the headers also to this origin (`https://host:port`), where a card leads there from another one, and connects
    /// to it wherever it is.
    ///
    /// # Errors
    /// Invalid parameters: it is no url.
    pub fn trust(mut self, url: &str) -> Result<Self> {
        let url = url.parse().map_err(|_| {
            Error::invalid("url", "must begin with http:// or https:// and name a host")
        })?;
        self.trusted_origins = self
            .trusted_origins
            .iter()
            .cloned()
            .chain([origin(&url)])
            .collect();
        Ok(self)
    }

    /// Trusts whom these settings trust, and shows their certificate to servers that ask for one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, tls: ClientTls) -> Self {
        Self { tls, ..self }
    }

    /// Keeps cards here, in place of memory.
    #[must_use]
    pub fn card_cache(self, card_cache: Arc<dyn CardCache>) -> Self {
        Self { card_cache, ..self }
    }

    /// Lets somebody see all that passes, credentials included; see [`Client::with_traffic_observer`].
    #[must_use]
    pub fn with_traffic_observer(
        self,
        observer: impl Fn(&Traffic<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            observer: Some(Arc::new(observer)),
            ..self
        }
    }

    /// A client of the agent at this url, without a look at its card; see [`Client::new`].
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn connect(&self, url: &str, binding: Binding, version: Version) -> Result<Client> {
        Ok(self.build(self.egress(), Endpoint::new(url, binding, version)?))
    }

    /// A client of an interface that a card names, with its tenant.
    ///
    /// # Errors
    /// As [`Client::from_interface`].
    pub fn interface(&self, interface: &AgentInterface) -> Result<Client> {
        let (binding, version) = supported_protocol(interface).ok_or_else(unsupported_interface)?;
        let endpoint = Endpoint::new(&interface.url, binding, version)?;
        Ok(self.build(
            self.egress(),
            Endpoint {
                tenant: interface.tenant.clone(),
                ..endpoint
            },
        ))
    }

    /// A client of an interface that the card at `card_url` names. It leads no further inside than it came from itself; see
    /// [`Client::discover`].
    ///
    /// # Errors
    /// As [`Client::from_interface`].
    pub fn interface_from_card(
        &self,
        card_url: &str,
        interface: &AgentInterface,
    ) -> Result<Client> {
        let card_url = card_url
            .parse()
            .map_err(|_| Error::invalid("home", "must be the url of a card"))?;
        let (binding, version) = supported_protocol(interface).ok_or_else(unsupported_interface)?;
        let endpoint = Endpoint::new(&interface.url, binding, version)?;
        Ok(self.build(
            self.following_document(&card_url),
            Endpoint {
                tenant: interface.tenant.clone(),
                ..endpoint
            },
        ))
    }

    pub(super) fn egress(&self) -> Egress {
        self.with_observer(Egress::with_tls(&self.tls, self.settings.timeouts.connect))
    }

    fn with_observer(&self, egress: Egress) -> Egress {
        match &self.observer {
            Some(observer) => egress.with_traffic_observer(observer.clone()),
            None => egress,
        }
    }

    /// For whoever reads a card at this url and follows it.
    pub(super) fn following_document(&self, card_url: &Uri) -> Egress {
        self.with_observer(Egress::following_document(
            &self.tls,
            self.settings.timeouts.connect,
            card_url,
            &self.trusted_origins,
        ))
    }

    pub(super) fn build(&self, egress: Egress, endpoint: Endpoint) -> Client {
        Client {
            endpoint,
            fallbacks: Arc::default(),
            headers: self.headers.clone(),
            extensions: self.extensions.clone(),
            trace: None,
            settings: self.settings.clone(),
            trusted_origins: self.trusted_origins.clone(),
            egress,
            card_url: None,
            credentials: CredentialSet::default(),
            is_chat_peer: false,
            background_tasks: TaskTracker::new(),
            card: None,
        }
    }
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
