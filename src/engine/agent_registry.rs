//! The agents that an engine runs, by their name, and what each of them may do.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::{AgentSettings, RestartPolicy, Settings, UnansweredPolicy};
use crate::agent::{Agent, DynAgent, Failure, Outcome, Turn};
use crate::model::Scope;

/// The agents that an engine runs. They may come and go while it does.
#[derive(Clone)]
pub(crate) struct AgentRegistry(Arc<RwLock<RegistryState>>);

struct RegistryState {
    current: AgentSet,
    /// Those who were sent away: theirs is what somebody still has in hand for them, and nothing new.
    removed: HashMap<Arc<str>, Weak<AgentHandle>>,
    /// Whoever does the work of one that is not there.
    fallback: Arc<AgentHandle>,
}

/// One agent.
pub(crate) struct AgentHandle {
    pub(crate) agent: Arc<dyn DynAgent>,
    settings: AgentSettings,
    /// Its own turns, where it has not as many as all of them together.
    own_permits: Option<Arc<Semaphore>>,
}

/// Leave to run a turn, for as long as it is held.
pub(super) struct TurnPermit {
    _own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

/// An agent as it is hired: its name, what it does, what it may do.
pub(crate) type AgentRegistration = (Arc<str>, Arc<dyn DynAgent>, AgentSettings);

/// Agents by their name. Each is there as long as somebody holds it, whoever is employed by then.
#[derive(Clone, Default)]
pub(crate) struct AgentSet(HashMap<Arc<str>, Arc<AgentHandle>>);

impl AgentSet {
    /// Each shares its turns with what the one of its name before it has left to do.
    fn new(agents: impl IntoIterator<Item = AgentRegistration>, previous: &Self) -> Self {
        let handles = agents.into_iter().map(|(name, agent, settings)| {
            let handle = AgentHandle::new(
                agent,
                settings,
                previous.0.get(&name).map(|handle| &**handle),
            );
            (name, Arc::new(handle))
        });
        Self(handles.collect())
    }

    /// The agent of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<AgentHandle>> {
        self.0.get(name)
    }
}

impl AgentRegistry {
    /// Agents by their name.
    pub(crate) fn new(agents: impl IntoIterator<Item = AgentRegistration>) -> Self {
        let registry = Self::with_fallback(RemovedAgent);
        registry.replace(AgentSet::new(agents, &AgentSet::default()));
        registry
    }

    /// One agent for everything.
    #[cfg(test)]
    pub(super) fn single(agent: impl Agent) -> Self {
        Self::with_fallback(agent)
    }

    fn with_fallback(agent: impl Agent) -> Self {
        let fallback = Arc::new(AgentHandle::new(
            Arc::new(agent),
            AgentSettings::default(),
            None,
        ));
        Self(Arc::new(RwLock::new(RegistryState {
            current: AgentSet::default(),
            removed: HashMap::new(),
            fallback,
        })))
    }

    /// Agents who could take the place of those there are.
    pub(super) fn prepare_agents(
        &self,
        agents: impl IntoIterator<Item = AgentRegistration>,
    ) -> AgentSet {
        AgentSet::new(agents, &self.state().current)
    }

    /// These from now on. What has begun goes on as it began; one that is not among them ends what it has, as long as
    /// somebody holds it, and gets nothing new.
    pub(super) fn replace(&self, agents: AgentSet) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
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
        // What an agent does when it is dropped is no reason for others to wait.
        drop(state);
        drop(previous);
    }

    /// The agent whose tasks these are.
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

    /// Those who are not to go.
    pub(super) fn agents(&self) -> AgentSet {
        self.state().current.clone()
    }

    /// Whether a task of any agent may wait too long for somebody outside.
    pub(super) fn has_unanswered_timeout(&self, settings: &Settings) -> bool {
        let state = self.state();
        let mut handles = state.current.0.values().chain([&state.fallback]);
        handles.any(|handle| handle.on_waiting(settings) != UnansweredPolicy::Stay)
    }

    fn state(&self) -> RwLockReadGuard<'_, RegistryState> {
        // Every change leaves it whole, so a panic elsewhere spoils nothing.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgentHandle {
    /// One who takes the place of `previous` shares its turns with what that one has left to do.
    fn new(agent: Arc<dyn DynAgent>, settings: AgentSettings, previous: Option<&Self>) -> Self {
        let most = settings
            .max_turns
            .map(|most| most.clamp(1, Semaphore::MAX_PERMITS));
        let shared = previous.filter(|previous| previous.settings.max_turns == settings.max_turns);
        let own_permits = match shared {
            Some(previous) => previous.own_permits.clone(),
            None => most.map(|most| Arc::new(Semaphore::new(most))),
        };
        Self {
            agent,
            own_permits,
            settings,
        }
    }

    pub(super) fn on_restart(&self, all: &Settings) -> RestartPolicy {
        self.settings.on_restart.unwrap_or(all.on_restart)
    }

    pub(super) fn on_waiting(&self, all: &Settings) -> UnansweredPolicy {
        self.settings.on_waiting.unwrap_or(all.on_waiting)
    }

    pub(super) fn max_turn_time(&self, all: &Settings) -> Option<Duration> {
        self.settings.max_turn_time.or(all.max_turn_time)
    }

    pub(super) fn max_silence(&self, all: &Settings) -> Option<Duration> {
        self.settings.max_silence.or(all.max_silence)
    }

    /// Leave to run a turn, if it can be had at once.
    pub(super) fn try_acquire_turn(&self, all: &Arc<Semaphore>) -> Option<TurnPermit> {
        let own = match &self.own_permits {
            Some(own_permits) => Some(own_permits.clone().try_acquire_owned().ok()?),
            None => None,
        };
        Some(TurnPermit {
            _own: own,
            _all: all.clone().try_acquire_owned().ok()?,
        })
    }

    /// Leave to run a turn. Whoever waits for its own agent takes nothing from the others.
    pub(super) async fn acquire_turn(self: Arc<Self>, all: Arc<Semaphore>) -> Option<TurnPermit> {
        let own = match &self.own_permits {
            Some(own_permits) => Some(own_permits.clone().acquire_owned().await.ok()?),
            None => None,
        };
        Some(TurnPermit {
            _own: own,
            _all: all.acquire_owned().await.ok()?,
        })
    }
}

/// Fails the tasks of an agent that was served before and is no longer.
struct RemovedAgent;

impl Agent for RemovedAgent {
    async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
        Err(Failure::new(
            "gone",
            "no agent of this name is served any more",
        ))
    }
}
