//! The agents that an engine runs, by their name.

use std::collections::HashMap;
use std::sync::Arc;

use crate::agent::{Agent, AnyAgent, Failure, Outcome, Turn};
use crate::model::Scope;

/// The agents that an engine runs.
#[derive(Clone)]
pub(crate) struct Staff {
    named: Arc<HashMap<Arc<str>, Arc<dyn AnyAgent>>>,
    /// Whoever does the work of one that is not there.
    else_: Arc<dyn AnyAgent>,
}

impl Staff {
    /// Agents by their name.
    pub(crate) fn new(agents: impl IntoIterator<Item = (Arc<str>, Arc<dyn AnyAgent>)>) -> Self {
        Self { named: Arc::new(agents.into_iter().collect()), else_: Arc::new(Gone) }
    }

    /// One agent for everything.
    #[cfg(test)]
    pub(super) fn one(agent: impl Agent) -> Self {
        Self { named: Arc::default(), else_: Arc::new(agent) }
    }

    /// The agent whose tasks these are.
    pub(super) fn agent(&self, scope: &Scope) -> &Arc<dyn AnyAgent> {
        self.named.get(&scope.agent).unwrap_or(&self.else_)
    }
}

/// Fails the tasks of an agent that was served before and is no longer.
struct Gone;

impl Agent for Gone {
    async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
        Err(Failure::new("gone", "no agent of this name is served any more"))
    }
}
