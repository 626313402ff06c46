//! An agent as it is given to a server: its name, its card, what it does, and for whom.

use std::sync::Arc;

use crate::agent::{Agent, DynAgent};
use crate::engine::AgentSettings;
use crate::model::AgentCard;

/// An agent that is served beside others.
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
/// Server::new(AgentCard::new("Count", "Counts letters"), count)
///     // At /agents/shout, with a card of its own.
///     .agent(HostedAgent::new("shout", AgentCard::new("Shout", "Says it louder"), shout))
///     .serve("127.0.0.1:8080")
///     .await
/// # }
/// ```
pub struct HostedAgent {
    pub(super) name: Arc<str>,
    /// Where its tasks are kept.
    pub(super) namespace: Arc<str>,
    pub(super) card: AgentCard,
    pub(super) extended_card: Option<AgentCard>,
    pub(super) agent: Arc<dyn DynAgent>,
    pub(super) tenants: Vec<Arc<str>>,
    pub(super) settings: AgentSettings,
}

impl HostedAgent {
    /// An agent that is reached at `/agents/{name}`, and at the root by `name` as the tenant.
    pub fn new(name: impl AsRef<str>, card: AgentCard, agent: impl Agent) -> Self {
        let name: Arc<str> = name.as_ref().into();
        Self {
            namespace: name.clone(),
            name,
            card,
            extended_card: None,
            agent: Arc::new(agent),
            tenants: Vec::new(),
            settings: AgentSettings::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Keeps its tasks under this name rather than its own: an agent that is called otherwise from now on keeps those it has.
    #[must_use]
    pub fn namespace(mut self, name: impl AsRef<str>) -> Self {
        self.namespace = name.as_ref().into();
        self
    }

    /// Its card, as it was given.
    #[must_use]
    pub fn card(&self) -> &AgentCard {
        &self.card
    }

    /// Sets what this agent may do, where that is not what all may.
    #[must_use]
    pub fn settings(mut self, settings: AgentSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Shows another card to callers who have authenticated; the public card says that there is one. It needs
    /// [`Server::access`](super::Server::access): a server that asks nobody who they are is not built with it.
    #[must_use]
    pub fn extended_card(mut self, card: AgentCard) -> Self {
        self.extended_card = Some(card);
        self.card.capabilities.extended_agent_card = Some(true);
        self
    }

    /// Keeps the tasks of these tenants apart from each other's, and from those of nobody in particular.
    #[must_use]
    pub fn tenants<'a>(mut self, tenants: impl IntoIterator<Item = &'a str>) -> Self {
        self.tenants = tenants.into_iter().map(Arc::from).collect();
        self
    }
}
