//! Registry of the agents that an engine runs, by name, with their settings and turn limits.

use std::collections::HashMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use super::TurnSemaphore;
use super::settings::{
    AgentSettings, LeaseExpiryPolicy, RestartPolicy, Settings, UnansweredPolicy,
};
use crate::agent::{Agent, DynAgent, Failure, Outcome, Turn};
use crate::hooks::HookChain;
use crate::model::{CallerKey, Scope};
use crate::rt::{FairPermit, FairSemaphore, read_lock, write_lock};

/// The agents of an engine. The set can be replaced while the engine runs.
#[derive(Clone)]
pub(crate) struct AgentRegistry(Arc<RwLock<RegistryState>>);

struct RegistryState {
    current: AgentSet,
    /// Removed agents that still have running tasks; they accept no new ones.
    removed: HashMap<Arc<str>, Weak<AgentHandle>>,
    /// Runs the tasks of agents that are neither registered nor still running.
    fallback: Arc<AgentHandle>,
}

/// An agent with its settings.
pub(crate) struct AgentHandle {
    pub(crate) agent: Arc<dyn DynAgent>,
    /// Hooks on the events of its turns.
    pub(super) hooks: HookChain,
    settings: AgentSettings,
    /// Limit of this agent's concurrent turns (`max_turns` of the agent).
    own_permits: Option<TurnSemaphore>,
}

/// Permit to run a turn: one of the engine's, and one of the agent's if it has a limit.
pub(super) struct TurnPermit {
    _own: Option<FairPermit<CallerKey>>,
    _all: FairPermit<CallerKey>,
}

/// Parameters with which an agent is registered.
pub(crate) struct AgentRegistration {
    pub(crate) name: Arc<str>,
    pub(crate) agent: Arc<dyn DynAgent>,
    pub(crate) settings: AgentSettings,
    pub(crate) hooks: HookChain,
}

/// Agents by name.
#[derive(Clone, Default)]
pub(crate) struct AgentSet(HashMap<Arc<str>, Arc<AgentHandle>>);

impl AgentSet {
    /// Creates the handles. An agent shares its turn permits with its predecessor of the same name.
    fn new(agents: impl IntoIterator<Item = AgentRegistration>, previous: &Self) -> Self {
        let handles = agents.into_iter().map(|registration| {
            let name = registration.name.clone();
            let handle = AgentHandle::new(registration, previous.get(&name).map(|old| &**old));
            (name, Arc::new(handle))
        });
        Self(handles.collect())
    }

    /// Returns the agent with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<AgentHandle>> {
        self.0.get(name)
    }
}

impl AgentRegistry {
    /// Creates a registry of these agents. Tasks of any other agent fail.
    pub(crate) fn new(agents: impl IntoIterator<Item = AgentRegistration>) -> Self {
        let registry = Self::with_fallback(RemovedAgent);
        registry.replace(AgentSet::new(agents, &AgentSet::default()));
        registry
    }

    /// Creates a registry in which one agent runs the tasks of every name.
    #[cfg(test)]
    pub(super) fn single(agent: impl Agent) -> Self {
        Self::with_fallback(agent)
    }

    fn with_fallback(agent: impl Agent) -> Self {
        let fallback = AgentRegistration {
            name: "".into(),
            agent: Arc::new(agent),
            settings: AgentSettings::default(),
            hooks: HookChain::default(),
        };
        Self(Arc::new(RwLock::new(RegistryState {
            current: AgentSet::default(),
            removed: HashMap::new(),
            fallback: Arc::new(AgentHandle::new(fallback, None)),
        })))
    }

    /// Creates handles for agents that are to replace the current ones.
    pub(super) fn prepare_agents(
        &self,
        agents: impl IntoIterator<Item = AgentRegistration>,
    ) -> AgentSet {
        AgentSet::new(agents, &self.state().current)
    }

    /// Replaces the set. Running turns finish with the agent that started them. A removed agent serves the tasks it
    /// still runs, and accepts no new ones.
    pub(super) fn replace(&self, agents: AgentSet) {
        let mut state = write_lock(&self.0);
        let previous = std::mem::replace(&mut state.current, agents);
        let RegistryState {
            current, removed, ..
        } = &mut *state;
        removed.extend(
            previous
                .0
                .iter()
                .map(|(name, handle)| (name.clone(), Arc::downgrade(handle))),
        );
        removed.retain(|name, handle| handle.strong_count() > 0 && current.get(name).is_none());
        // The destructors of agents run after the lock is released.
        drop(state);
        drop(previous);
    }

    /// Returns the agent that runs the tasks of this scope.
    pub(super) fn agent_for(&self, scope: &Scope) -> Arc<AgentHandle> {
        let state = self.state();
        let removed = || state.removed.get(&scope.agent).and_then(Weak::upgrade);
        state
            .current
            .get(&scope.agent)
            .cloned()
            .or_else(removed)
            .unwrap_or_else(|| state.fallback.clone())
    }

    /// Returns the current set.
    pub(super) fn agents(&self) -> AgentSet {
        self.state().current.clone()
    }

    /// Returns the names of the current agents, in order.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.state().current.0.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// Returns whether any agent has a timeout for unanswered questions.
    pub(super) fn has_unanswered_timeout(&self, settings: &Settings) -> bool {
        let state = self.state();
        let mut handles = state.current.0.values().chain([&state.fallback]);
        handles.any(|handle| handle.on_waiting(settings) != UnansweredPolicy::Stay)
    }

    fn state(&self) -> RwLockReadGuard<'_, RegistryState> {
        read_lock(&self.0)
    }
}

impl AgentHandle {
    /// Creates a handle. With unchanged turn limits it shares the permits of `previous`, so that turns of both
    /// count towards one limit.
    fn new(registration: AgentRegistration, previous: Option<&Self>) -> Self {
        let AgentRegistration {
            agent,
            settings,
            hooks,
            ..
        } = registration;
        let predecessor = previous.filter(|old| {
            old.settings.max_turns == settings.max_turns
                && old.settings.max_turns_per_caller == settings.max_turns_per_caller
        });
        let own_permits = match predecessor {
            Some(old) => old.own_permits.clone(),
            None => settings
                .max_turns
                .map(|max_turns| FairSemaphore::new(max_turns, settings.max_turns_per_caller)),
        };
        Self {
            agent,
            hooks,
            settings,
            own_permits,
        }
    }

    pub(super) fn on_restart(&self, all: &Settings) -> RestartPolicy {
        self.settings.on_restart.unwrap_or(all.on_restart)
    }

    pub(super) fn on_waiting(&self, all: &Settings) -> UnansweredPolicy {
        self.settings.on_waiting.unwrap_or(all.on_waiting)
    }

    pub(super) fn on_lease_expiry(&self, all: &Settings) -> LeaseExpiryPolicy {
        self.settings.on_lease_expiry.unwrap_or(all.on_lease_expiry)
    }

    pub(super) fn max_turn_time(&self, all: &Settings) -> Option<Duration> {
        self.settings.max_turn_time.or(all.max_turn_time)
    }

    pub(super) fn max_silence(&self, all: &Settings) -> Option<Duration> {
        self.settings.max_silence.or(all.max_silence)
    }

    /// Acquires a turn permit if one is available immediately.
    pub(super) fn try_acquire_turn(
        &self,
        all: &TurnSemaphore,
        caller: CallerKey,
    ) -> Option<TurnPermit> {
        let own = match &self.own_permits {
            Some(own_permits) => Some(own_permits.try_acquire(caller.clone())?),
            None => None,
        };
        Some(TurnPermit {
            _own: own,
            _all: all.try_acquire(caller)?,
        })
    }

    /// Waits for a turn permit. The agent's own permit comes first, so that an agent at its limit does not occupy
    /// permits of the engine.
    pub(super) async fn acquire_turn(
        self: Arc<Self>,
        all: TurnSemaphore,
        caller: CallerKey,
    ) -> TurnPermit {
        let own = match &self.own_permits {
            Some(own_permits) => Some(own_permits.acquire(caller.clone()).await),
            None => None,
        };
        TurnPermit {
            _own: own,
            _all: all.acquire(caller).await,
        }
    }
}

/// Agent that fails the tasks of an agent which is no longer registered.
struct RemovedAgent;

impl Agent for RemovedAgent {
    async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
        Err(Failure::new("gone", "no agent of this name is registered"))
    }
}
