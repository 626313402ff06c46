//! Description of an agent to host: name, card, implementation, tenants and settings.

use std::sync::Arc;

use super::card::{CardAccess, CardOptions};
use crate::agent::{Agent, DynAgent};
use crate::engine::AgentSettings;
use crate::model::AgentCard;
use crate::wire::card::CardForm;

/// An agent to host, with its name, card and settings.
///
/// ```no_run
/// # use attache::{AgentCard, Failure, Outcome, HostedAgent, Server, Turn};
/// # async fn example() -> attache::Result<()> {
/// let count = |turn: Turn| async move {
///     turn.write("count", turn.text().len().to_string()).await;
///     Ok(Outcome::Completed)
/// };
/// let shout = |turn: Turn| async move {
///     turn.write("shout", turn.text().to_uppercase()).await;
///     Ok(Outcome::Completed)
/// };
/// // Served at /agents/shout, with its own card.
/// let shout = HostedAgent::new("shout", AgentCard::new("Shout", "Answers in capitals"), shout);
/// Server::new(AgentCard::new("Count", "Counts characters"), count)
///     .agent(shout)
///     .serve("127.0.0.1:8080")
///     .await
/// # }
/// ```
pub struct HostedAgent {
    pub(super) name: Arc<str>,
    /// Namespace of its tasks in the store.
    pub(super) namespace: Arc<str>,
    pub(super) card: AgentCard,
    pub(super) card_options: CardOptions,
    pub(super) requires_text: bool,
    pub(super) extended_card: Option<AgentCard>,
    pub(super) agent: Arc<dyn DynAgent>,
    pub(super) tenants: Vec<Arc<str>>,
    pub(super) settings: AgentSettings,
}

impl HostedAgent {
    /// Creates an agent that is served at `/agents/{name}`, and at the root with `name` as the
    /// tenant.
    pub fn new(name: impl AsRef<str>, card: AgentCard, agent: impl Agent) -> Self {
        let name: Arc<str> = name.as_ref().into();
        Self {
            namespace: name.clone(),
            name,
            card,
            card_options: CardOptions::default(),
            requires_text: false,
            extended_card: None,
            agent: Arc::new(agent),
            tenants: Vec::new(),
            settings: AgentSettings::default(),
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the namespace of its tasks in the store, by default its name. A renamed agent keeps its
    /// tasks with it.
    #[must_use]
    pub fn namespace(mut self, name: impl AsRef<str>) -> Self {
        self.namespace = name.as_ref().into();
        self
    }

    /// Returns the card passed to [`new`](Self::new).
    #[must_use]
    pub fn card(&self) -> &AgentCard {
        &self.card
    }

    /// Overrides the engine settings for this agent.
    #[must_use]
    pub fn settings(mut self, settings: AgentSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the extended card, for authenticated callers. The public card then declares it.
    ///
    /// Requires [`Server::access`](super::Server::access); without it the server is not built.
    #[must_use]
    pub fn extended_card(mut self, card: AgentCard) -> Self {
        self.extended_card = Some(card);
        self.card.capabilities.extended_agent_card = Some(true);
        self
    }

    /// Refuses messages without a text part.
    #[must_use]
    pub fn requires_text(mut self, requires_text: bool) -> Self {
        self.requires_text = requires_text;
        self
    }

    /// Sets who may read the public card. [`CardAccess::Authenticated`] requires
    /// [`Server::access`](super::Server::access); without it the server is not built.
    #[must_use]
    pub fn card_access(mut self, access: CardAccess) -> Self {
        self.card_options.access = access;
        self
    }

    /// Sets the format of the card, at all its paths. Default: that of the server.
    #[must_use]
    pub fn card_form(mut self, form: CardForm) -> Self {
        self.card_options.form = Some(form);
        self
    }

    /// Declares tenants. Their tasks are isolated from each other and from tasks without a tenant.
    #[must_use]
    pub fn tenants<'a>(mut self, tenants: impl IntoIterator<Item = &'a str>) -> Self {
        self.tenants = tenants.into_iter().map(Arc::from).collect();
        self
    }
}
