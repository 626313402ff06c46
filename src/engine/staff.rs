//! The agents that an engine runs, by their name, and what each of them may do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::{AgentSettings, Restart, Settings, Waiting};
use crate::agent::{Agent, AnyAgent, Failure, Outcome, Turn};
use crate::model::Scope;

/// The agents that an engine runs.
#[derive(Clone)]
pub(crate) struct Staff {
    named: Arc<HashMap<Arc<str>, Worker>>,
    /// Whoever does the work of one that is not there.
    stand_in: Worker,
}

/// One agent.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) agent: Arc<dyn AnyAgent>,
    settings: AgentSettings,
    /// Its own turns, where it has not as many as all of them together.
    turns: Option<Arc<Semaphore>>,
}

/// Leave to run a turn, for as long as it is held.
pub(super) struct Leave {
    _own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl Staff {
    /// Agents by their name.
    pub(crate) fn new(
        agents: impl IntoIterator<Item = (Arc<str>, Arc<dyn AnyAgent>, AgentSettings)>,
    ) -> Self {
        let named = agents.into_iter().map(|(name, agent, settings)| (name, Worker::new(agent, settings)));
        let stand_in = Worker::new(Arc::new(Gone), AgentSettings::default());
        Self { named: Arc::new(named.collect()), stand_in }
    }

    /// One agent for everything.
    #[cfg(test)]
    pub(super) fn one(agent: impl Agent) -> Self {
        let stand_in = Worker::new(Arc::new(agent), AgentSettings::default());
        Self { named: Arc::default(), stand_in }
    }

    /// The agent whose tasks these are.
    pub(super) fn of(&self, scope: &Scope) -> &Worker {
        self.named.get(&scope.agent).unwrap_or(&self.stand_in)
    }

    /// Whether a task of any agent may wait too long for somebody outside.
    pub(super) fn any_waits_only_so_long(&self, settings: &Settings) -> bool {
        let workers = self.named.values().chain([&self.stand_in]);
        workers.into_iter().any(|worker| worker.on_waiting(settings) != Waiting::Stay)
    }
}

impl Worker {
    fn new(agent: Arc<dyn AnyAgent>, settings: AgentSettings) -> Self {
        let most = settings.max_turns.map(|most| most.clamp(1, Semaphore::MAX_PERMITS));
        Self { agent, turns: most.map(|most| Arc::new(Semaphore::new(most))), settings }
    }

    pub(super) fn on_restart(&self, all: &Settings) -> Restart {
        self.settings.on_restart.unwrap_or(all.on_restart)
    }

    pub(super) fn on_waiting(&self, all: &Settings) -> Waiting {
        self.settings.on_waiting.unwrap_or(all.on_waiting)
    }

    pub(super) fn max_turn_time(&self, all: &Settings) -> Option<Duration> {
        self.settings.max_turn_time.or(all.max_turn_time)
    }

    pub(super) fn max_silence(&self, all: &Settings) -> Option<Duration> {
        self.settings.max_silence.or(all.max_silence)
    }

    /// Leave to run a turn, if it can be had at once.
    pub(super) fn try_leave(&self, all: &Arc<Semaphore>) -> Option<Leave> {
        let own = match &self.turns {
            Some(turns) => Some(turns.clone().try_acquire_owned().ok()?),
            None => None,
        };
        Some(Leave { _own: own, _all: all.clone().try_acquire_owned().ok()? })
    }

    /// Leave to run a turn. Whoever waits for its own agent takes nothing from the others.
    pub(super) async fn leave(self, all: Arc<Semaphore>) -> Option<Leave> {
        let own = match self.turns {
            Some(turns) => Some(turns.acquire_owned().await.ok()?),
            None => None,
        };
        Some(Leave { _own: own, _all: all.acquire_owned().await.ok()? })
    }
}

/// Fails the tasks of an agent that was served before and is no longer.
struct Gone;

impl Agent for Gone {
    async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
        Err(Failure::new("gone", "no agent of this name is served any more"))
    }
}
