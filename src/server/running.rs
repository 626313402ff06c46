//! A server that runs: what it serves now, and the way to change that.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::Server;
use super::plan::Ground;
use super::routes::Routes;
use crate::engine::Engine;
use crate::model::Result;
use crate::push::Pushes;

/// What is served now: every request takes it anew, and keeps what it took to its end.
pub(super) struct Current(RwLock<Arc<Routes>>);

impl Current {
    pub(super) fn new(routes: Routes) -> Self {
        Self(RwLock::new(Arc::new(routes)))
    }

    pub(super) fn get(&self) -> Arc<Routes> {
        // Only ever replaced whole, so a panic elsewhere spoils nothing.
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, routes: Routes) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::new(routes));
        // Agents may go with it: that is no reason for others to wait.
        drop(current);
        drop(before);
    }
}

/// A server that runs, for those who change what it serves.
///
/// ```no_run
/// # use attache::{AgentCard, Outcome, Served, Server, Turn};
/// # async fn example() -> attache::Result<()> {
/// # let (echo, shout) = (|_: Turn| async { Ok(Outcome::Completed) }, |_: Turn| async { Ok(Outcome::Completed) });
/// let bound = Server::new(AgentCard::new("Echo", "Says it back"), echo).bind("127.0.0.1:8080").await?;
/// let running = bound.running();
/// // Later, while it serves: another agent beside the first.
/// let again = Server::new(AgentCard::new("Echo", "Says it back"), echo);
/// running.replace(again.agent(Served::new("shout", AgentCard::new("Shout", "Says it louder"), shout)))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Running {
    ground: Arc<Ground>,
    current: Arc<Current>,
    /// One change at a time.
    changing: Arc<Mutex<()>>,
}

impl Running {
    pub(super) fn new(ground: Ground, current: Arc<Current>) -> Self {
        Self {
            ground: Arc::new(ground),
            current,
            changing: Arc::default(),
        }
    }

    pub(super) fn current(&self) -> Arc<Current> {
        self.current.clone()
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.ground.engine
    }

    pub(super) fn pushes(&self) -> &Pushes {
        &self.ground.pushes
    }

    /// Serves from now on what another server would: its agents with their cards and settings, who may call and how often, its
    /// limits, and how requests are served. What has begun ends as it began, and no request is lost.
    ///
    /// An agent that is no longer among them drains: its card and its address are gone for whoever brings something new, while
    /// its tasks can be read, followed and canceled until the last that was running has rested.
    ///
    /// What belongs to the process stays as it is: the address, TLS, the store, what the engine and webhooks may do, the
    /// number of connections and streams, and the door of operators.
    ///
    /// # Errors
    /// Invalid: what could not be served, with its name; nothing has changed then.
    pub fn replace(&self, server: Server) -> Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (plan, _) = server.parts()?;
        let team = self.ground.engine.hire(plan.hires());
        let routes = plan.routes(&self.ground, &team, Some(&self.current.get()))?;
        // Before anybody asks for them. Those who go are there as long as somebody asks for what was served before.
        self.ground.engine.employ(team);
        self.current.set(routes);
        Ok(())
    }
}
