//! Builder of clients: settings, headers, trusted origins, TLS and the card cache.

use std::sync::Arc;

use ::http::{HeaderMap, HeaderValue, Uri};
use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use super::card_cache::{CardCache, MemoryCardCache};
use super::credentials::CredentialSet;
use super::endpoint::{Endpoint, Fallbacks, origin};
use super::settings::ClientSettings;
use super::{Client, headers};
use crate::egress::{ClientTls, Egress, Traffic, TrafficObserver};
use crate::model::{AgentCard, AgentInterface, Binding, Error, Result, Secret, Version};

/// Builder of clients, returned by [`Client::builder`]. Clones share the card cache, so that a second
/// [`discover`](Self::discover) of the same agent does not read a fresh card again.
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

/// Check that a discovered card must pass before it is used.
#[async_trait]
pub(super) trait CardCheck: Send + Sync {
    /// Checks a card; `received` is the document that it was parsed from.
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
    /// Replaces all settings.
    #[must_use]
    pub fn settings(self, settings: ClientSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            ..self
        }
    }

    /// Prefers these bindings, best first, among the interfaces of a card.
    #[must_use]
    pub fn bindings(mut self, bindings: impl IntoIterator<Item = Binding>) -> Self {
        Arc::make_mut(&mut self.settings).interface.bindings = bindings.into_iter().collect();
        self
    }

    /// Uses this version only.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        Arc::make_mut(&mut self.settings).interface.version = Some(version);
        self
    }

    /// Sends a header with every request, including requests for the card; see [`Client::with_header`].
    ///
    /// # Errors
    /// Invalid parameters if the name or value is not valid in HTTP.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, value) = headers::parse_header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sends this token as `Authorization: Bearer` with every request, including requests for the card.
    ///
    /// # Errors
    /// Invalid parameters if the token contains characters that are not valid in a header.
    pub fn bearer(mut self, token: &Secret) -> Result<Self> {
        self.headers
            .insert(::http::header::AUTHORIZATION, headers::bearer_value(token)?);
        Ok(self)
    }

    /// Requests these extensions, by URI, with every call.
    ///
    /// # Errors
    /// Invalid parameters if a URI contains characters that are not valid in a header.
    pub fn extensions<'a>(self, uris: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Ok(Self {
            extensions: Some(headers::extensions_value(uris)?),
            ..self
        })
    }

    /// Trusts an origin (`https://host:port`) that cards of other origins may name. Requests to it carry the headers
    /// and bypass the SSRF guard.
    ///
    /// # Errors
    /// Invalid parameters if it is not an HTTP URL.
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

    /// Uses these certificate authorities, and this client certificate if the server requests one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, tls: ClientTls) -> Self {
        Self { tls, ..self }
    }

    /// Caches cards here instead of in memory.
    #[must_use]
    pub fn card_cache(self, card_cache: Arc<dyn CardCache>) -> Self {
        Self { card_cache, ..self }
    }

    /// Passes all traffic to `observer`, including credentials; see [`Client::with_traffic_observer`].
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

    /// Returns a client of the agent at `url` without reading its card; see [`Client::new`].
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn connect(&self, url: &str, binding: Binding, version: Version) -> Result<Client> {
        Ok(self.build(self.egress(), Endpoint::new(url, binding, version)?))
    }

    /// Returns a client of an interface of a card, with its tenant.
    ///
    /// # Errors
    /// As [`Client::from_interface`].
    pub fn interface(&self, interface: &AgentInterface) -> Result<Client> {
        Ok(self.build(self.egress(), Endpoint::from_interface(interface)?))
    }

    /// Returns a client of an interface of the card at `card_url`, which its URL may be relative to. Like
    /// [`Client::discover`], it connects to no network zone that is more private than the card's own. If there is no
    /// JSON-RPC endpoint at the URL, the client also tries the base of the card and `/a2a` below it.
    ///
    /// # Errors
    /// As [`Client::from_interface`].
    pub fn interface_from_card(
        &self,
        card_url: &str,
        interface: &AgentInterface,
    ) -> Result<Client> {
        let interface = Client::resolve_interface(card_url, interface)?;
        let card_url = parse_card_url(card_url)?;
        let endpoint = Endpoint::from_interface(&interface)?;
        let fallbacks = Fallbacks::new(&endpoint, Vec::new(), &card_url);
        Ok(Client {
            fallbacks: Arc::new(fallbacks),
            ..self.build(self.following_document(&card_url), endpoint)
        })
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

    /// Returns the egress for a card that is read at `card_url` and for the interfaces it names.
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
            peer_heads: Arc::default(),
            background_tasks: TaskTracker::new(),
            card: None,
            extended_card: Arc::default(),
        }
    }
}

pub(super) fn parse_card_url(url: &str) -> Result<Uri> {
    url.parse()
        .map_err(|_| Error::invalid("card_url", "must be the URL of a card"))
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
