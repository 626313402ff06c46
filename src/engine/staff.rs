//! The agents that an engine runs, by their name, and what each of them may do.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::{AgentSettings, Restart, Settings, Waiting};
use crate::agent::{Agent, AnyAgent, Failure, Outcome, Turn};
use crate::model::Scope;

/// The agents that an engine runs. They may come and go while it does.
#[derive(Clone)]
pub(crate) struct Staff(Arc<RwLock<Hired>>);

struct Hired {
    named: Team,
    /// Those who were sent away: theirs is what somebody still has in hand for them, and nothing new.
    leaving: HashMap<Arc<str>, Weak<Worker>>,
    /// Whoever does the work of one that is not there.
    stand_in: Arc<Worker>,
}

/// One agent.
pub(crate) struct Worker {
    pub(crate) agent: Arc<dyn AnyAgent>,
    settings: AgentSettings,
    /// Its own turns, where it has not as many as all of them together.
    turns: Option<Arc<Semaphore>>,
}

/// Leave to run a turn, for as long as it is held.
pub(super) struct Leave {
    _own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

/// An agent as it is hired: its name, what it does, what it may do.
pub(crate) type Hire = (Arc<str>, Arc<dyn AnyAgent>, AgentSettings);

/// Agents by their name. Each is there as long as somebody holds it, whoever is employed by then.
#[derive(Clone, Default)]
pub(crate) struct Team(HashMap<Arc<str>, Arc<Worker>>);

impl Team {
    /// Each shares its turns with what the one of its name before it has left to do.
    fn new(agents: impl IntoIterator<Item = Hire>, before: &Self) -> Self {
        let workers = agents.into_iter().map(|(name, agent, settings)| {
            let worker = Worker::new(agent, settings, before.0.get(&name).map(|worker| &**worker));
            (name, Arc::new(worker))
        });
        Self(workers.collect())
    }

    /// The agent of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Worker>> {
        self.0.get(name)
    }
}

impl Staff {
    /// Agents by their name.
    pub(crate) fn new(agents: impl IntoIterator<Item = Hire>) -> Self {
        let staff = Self::of_stand_in(Gone);
        staff.replace(Team::new(agents, &Team::default()));
        staff
    }

    /// One agent for everything.
    #[cfg(test)]
    pub(super) fn one(agent: impl Agent) -> Self {
        Self::of_stand_in(agent)
    }

    fn of_stand_in(agent: impl Agent) -> Self {
        let stand_in = Arc::new(Worker::new(Arc::new(agent), AgentSettings::default(), None));
        Self(Arc::new(RwLock::new(Hired {
            named: Team::default(),
            leaving: HashMap::new(),
            stand_in,
        })))
    }

    /// Agents who could take the place of those there are.
    pub(super) fn hire(&self, agents: impl IntoIterator<Item = Hire>) -> Team {
        Team::new(agents, &self.hired().named)
    }

    /// These from now on. What has begun goes on as it began; one that is not among them ends what it has, as long as
    /// somebody holds it, and gets nothing new.
    pub(super) fn replace(&self, team: Team) {
        let mut hired = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut hired.named, team);
        let Hired { named, leaving, .. } = &mut *hired;
        leaving.extend(
            before
                .0
                .iter()
                .map(|(name, worker)| (name.clone(), Arc::downgrade(worker))),
        );
        leaving.retain(|name, worker| worker.strong_count() > 0 && named.get(name).is_none());
        // What an agent does when it is dropped is no reason for others to wait.
        drop(hired);
        drop(before);
    }

    /// The agent whose tasks these are.
    pub(super) fn of(&self, scope: &Scope) -> Arc<Worker> {
        let hired = self.hired();
        let leaving = || hired.leaving.get(&scope.agent).and_then(Weak::upgrade);
        hired
            .named
            .get(&scope.agent)
            .cloned()
            .or_else(leaving)
            .unwrap_or_else(|| hired.stand_in.clone())
    }

    /// Those who are not to go.
    pub(super) fn team(&self) -> Team {
        self.hired().named.clone()
    }

    /// Whether a task of any agent may wait too long for somebody outside.
    pub(super) fn any_waits_only_so_long(&self, settings: &Settings) -> bool {
        let hired = self.hired();
        let mut workers = hired.named.0.values().chain([&hired.stand_in]);
        workers.any(|worker| worker.on_waiting(settings) != Waiting::Stay)
    }

    fn hired(&self) -> RwLockReadGuard<'_, Hired> {
        // Every change leaves it whole, so a panic elsewhere spoils nothing.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// One who takes the place of `before` shares its turns with what that one has left to do.
    fn new(agent: Arc<dyn AnyAgent>, settings: AgentSettings, before: Option<&Self>) -> Self {
        let most = settings
            .max_turns
            .map(|most| most.clamp(1, Semaphore::MAX_PERMITS));
        let shared = before.filter(|before| before.settings.max_turns == settings.max_turns);
        let turns = match shared {
            Some(before) => before.turns.clone(),
            None => most.map(|most| Arc::new(Semaphore::new(most))),
        };
        Self {
            agent,
            turns,
            settings,
        }
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
        Some(Leave {
            _own: own,
            _all: all.clone().try_acquire_owned().ok()?,
        })
    }

    /// Leave to run a turn. Whoever waits for its own agent takes nothing from the others.
    pub(super) async fn leave(self: Arc<Self>, all: Arc<Semaphore>) -> Option<Leave> {
        let own = match &self.turns {
            Some(turns) => Some(turns.clone().acquire_owned().await.ok()?),
            None => None,
        };
        Some(Leave {
            _own: own,
            _all: all.acquire_owned().await.ok()?,
        })
    }
}

/// Fails the tasks of an agent that was served before and is no longer.
struct Gone;

impl Agent for Gone {
    async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
        Err(Failure::new(
            "gone",
            "no agent of this name is served any more",
        ))
    }
}
