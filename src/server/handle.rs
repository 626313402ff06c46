//! A server that runs: what it serves now, and the way to change that.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::Server;
use super::reloadable_config::ServerRuntime;
use super::routes::Routes;
use crate::engine::Engine;
use crate::model::Result;
use crate::push::PushDispatcher;

/// What is served now: every request takes it anew, and keeps what it took to its end.
pub(super) struct CurrentRoutes(RwLock<Arc<Routes>>);

impl CurrentRoutes {
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
        let previous = std::mem::replace(&mut *current, Arc::new(routes));
        // Agents may go with it: that is no reason for others to wait.
        drop(current);
        drop(previous);
    }
}

/// A server that runs, for those who change what it serves.
///
/// ```no_run
/// # use attache::{AgentCard, Outcome, HostedAgent, Server, Turn};
/// # async fn example() -> attache::Result<()> {
/// # let (echo, shout) = (|_: Turn| async { Ok(Outcome::Completed) }, |_: Turn| async { Ok(Outcome::Completed) });
/// let bound = Server::new(AgentCard::new("Echo", "Says it back"), echo).bind("127.0.0.1:8080").await?;
/// let handle = bound.handle();
/// // Later, while it serves: another agent beside the first.
/// let next = Server::new(AgentCard::new("Echo", "Says it back"), echo);
/// handle.replace(next.agent(HostedAgent::new("shout", AgentCard::new("Shout", "Says it louder"), shout)))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerHandle {
    runtime: Arc<ServerRuntime>,
    current: Arc<CurrentRoutes>,
    /// One change at a time.
    replace_lock: Arc<Mutex<()>>,
}

impl ServerHandle {
    pub(super) fn new(runtime: ServerRuntime, current: Arc<CurrentRoutes>) -> Self {
        Self {
            runtime: Arc::new(runtime),
            current,
            replace_lock: Arc::default(),
        }
    }

    pub(super) fn current(&self) -> Arc<CurrentRoutes> {
        self.current.clone()
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.runtime.engine
    }

    pub(super) fn push_dispatcher(&self) -> &PushDispatcher {
        &self.runtime.push_dispatcher
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
        let _guard = self
            .replace_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (config, _) = server.into_configs()?;
        let agents = self.runtime.engine.prepare_agents(config.agent_configs());
        let routes = config.build_routes(&self.runtime, &agents, Some(&self.current.get()))?;
        // Before anybody asks for them. Those who go are there as long as somebody asks for what was served before.
        self.runtime.engine.replace_agents(agents);
        self.current.set(routes);
        Ok(())
    }
}
