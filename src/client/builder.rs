//! A client that is set up otherwise than by default.

use std::sync::Arc;

use ::http::{HeaderMap, HeaderValue, Uri};
use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use super::cards::{CardStore, MemoryCards};
use super::credentials::Wallet;
use super::settings::ClientSettings;
use super::way::{Way, origin, spoken};
use super::{Client, headers, unspoken};
use crate::egress::{ClientTls, Egress, Traffic, Watcher};
use crate::model::{AgentCard, AgentInterface, Binding, Error, Result, Secret, Version};

/// Sets up clients; [`Client::builder`] begins one. Clones share the cards that were read, so that asking for an agent
/// again costs nothing while its card may be kept.
#[derive(Clone)]
pub struct ClientBuilder {
    pub(super) settings: Arc<ClientSettings>,
    pub(super) headers: HeaderMap,
    pub(super) extensions: Option<HeaderValue>,
    pub(super) trusted: Arc<[String]>,
    pub(super) cards: Arc<dyn CardStore>,
    pub(super) check: Option<Arc<dyn CardCheck>>,
    tls: ClientTls,
    watcher: Option<Watcher>,
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
            trusted: Arc::default(),
            cards: Arc::new(MemoryCards::default()),
            check: None,
            tls: ClientTls::new(),
            watcher: None,
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
        Arc::make_mut(&mut self.settings).choice.bindings = bindings.into_iter().collect();
        self
    }

    /// Speaks this version and no other.
    #[must_use]
    pub fn version(mut self, version: Version) -> Self {
        Arc::make_mut(&mut self.settings).choice.version = Some(version);
        self
    }

    /// Sends a header with every request, also for the card; see [`Client::with_header`].
    ///
    /// # Errors
    /// Invalid parameters: no such header can be sent.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let (name, value) = headers::header(name, value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sends this token as `Authorization: Bearer`, also for the card.
    ///
    /// # Errors
    /// Invalid parameters: the token has characters that a header cannot carry.
    pub fn bearer(mut self, token: &Secret) -> Result<Self> {
        self.headers
            .insert(::http::header::AUTHORIZATION, headers::bearer(token)?);
        Ok(self)
    }

    /// Asks for these extensions, by their URIs, with every request.
    ///
    /// # Errors
    /// Invalid parameters: a URI has characters that a header cannot carry.
    pub fn extensions<'a>(self, uris: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Ok(Self {
            extensions: Some(headers::extensions(uris)?),
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
        self.trusted = self.trusted.iter().cloned().chain([origin(&url)]).collect();
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
    pub fn cards(self, cards: Arc<dyn CardStore>) -> Self {
        Self { cards, ..self }
    }

    /// Lets somebody see all that passes, credentials included; see [`Client::watched`].
    #[must_use]
    pub fn watched(self, watcher: impl Fn(&Traffic<'_>) + Send + Sync + 'static) -> Self {
        Self {
            watcher: Some(Arc::new(watcher)),
            ..self
        }
    }

    /// A client of the agent at this url, without a look at its card; see [`Client::new`].
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn connect(&self, url: &str, binding: Binding, version: Version) -> Result<Client> {
        Ok(self.along(self.egress(), Way::new(url, binding, version)?))
    }

    /// A client of an interface that a card names, with its tenant.
    ///
    /// # Errors
    /// As [`Client::from_interface`].
    pub fn interface(&self, interface: &AgentInterface) -> Result<Client> {
        let (binding, version) = spoken(interface).ok_or_else(unspoken)?;
        let way = Way::new(&interface.url, binding, version)?;
        Ok(self.along(
            self.egress(),
            Way {
                tenant: interface.tenant.clone(),
                ..way
            },
        ))
    }

    /// A client of an interface that the card at `home` names. It leads no further inside than it came from itself; see
    /// [`Client::discover`].
    ///
    /// # Errors
    /// As [`Client::from_interface`].
    pub fn interface_of(&self, home: &str, interface: &AgentInterface) -> Result<Client> {
        let home = home
            .parse()
            .map_err(|_| Error::invalid("home", "must be the url of a card"))?;
        let (binding, version) = spoken(interface).ok_or_else(unspoken)?;
        let way = Way::new(&interface.url, binding, version)?;
        Ok(self.along(
            self.led(&home),
            Way {
                tenant: interface.tenant.clone(),
                ..way
            },
        ))
    }

    pub(super) fn egress(&self) -> Egress {
        self.watch(Egress::with_tls(&self.tls, self.settings.budgets.connect))
    }

    fn watch(&self, egress: Egress) -> Egress {
        match &self.watcher {
            Some(watcher) => egress.watched(watcher.clone()),
            None => egress,
        }
    }

    /// For whoever reads a card at this url and follows it.
    pub(super) fn led(&self, home: &Uri) -> Egress {
        self.watch(Egress::led(
            &self.tls,
            self.settings.budgets.connect,
            home,
            &self.trusted,
        ))
    }

    pub(super) fn along(&self, egress: Egress, way: Way) -> Client {
        Client {
            way,
            others: Arc::default(),
            headers: self.headers.clone(),
            extensions: self.extensions.clone(),
            trace: None,
            settings: self.settings.clone(),
            trusted: self.trusted.clone(),
            egress,
            home: None,
            wallet: Wallet::default(),
            is_chat: false,
            errands: TaskTracker::new(),
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
