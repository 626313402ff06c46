//! Handle of a running server: replaces its configuration without a restart.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};

use super::assembly::ServerRuntime;
use super::builder::Server;
use super::routes::Routes;
use crate::engine::Engine;
use crate::model::Result;
use crate::push::PushDispatcher;
use crate::rt::{lock, read_lock, write_lock};

/// Routes that new requests use. A request keeps the routes it started with.
pub(super) struct CurrentRoutes(RwLock<Arc<Routes>>);

impl CurrentRoutes {
    pub(super) fn new(routes: Routes) -> Self {
        Self(RwLock::new(Arc::new(routes)))
    }

    pub(super) fn get(&self) -> Arc<Routes> {
        read_lock(&self.0).clone()
    }

    fn set(&self, routes: Routes) {
        let mut current = write_lock(&self.0);
        let previous = std::mem::replace(&mut *current, Arc::new(routes));
        // Unlocked first: dropping the old routes can drop agents, which takes time.
        drop(current);
        drop(previous);
    }
}

/// Handle of a running server. Replaces its configuration; clones refer to the same server.
///
/// ```no_run
/// # use attache::{AgentCard, HostedAgent, Outcome, Server, Turn};
/// # async fn example() -> attache::Result<()> {
/// # let echo = |_: Turn| async { Ok(Outcome::Completed) };
/// # let shout = |_: Turn| async { Ok(Outcome::Completed) };
/// let card = || AgentCard::new("Echo", "Echoes the message");
/// let bound = Server::new(card(), echo).bind("127.0.0.1:8080").await?;
/// let handle = bound.handle();
/// // Later, while it serves: add another agent.
/// let shout = HostedAgent::new("shout", AgentCard::new("Shout", "Answers in capitals"), shout);
/// handle.replace(Server::new(card(), echo).agent(shout))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerHandle {
    runtime: Arc<ServerRuntime>,
    current: Arc<CurrentRoutes>,
    /// Serializes replacements.
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

    /// Returns the address of the listener for callers.
    pub(super) fn address(&self) -> SocketAddr {
        self.runtime.endpoint.address()
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.runtime.uses_tls
    }

    pub(super) fn push_dispatcher(&self) -> &PushDispatcher {
        &self.runtime.push_dispatcher
    }

    /// Replaces the configuration by that of `server`: agents, cards, access, limits and server
    /// settings.
    ///
    /// Running calls and turns end under the old configuration. No request is lost.
    ///
    /// A removed agent drains: it has no card and accepts no messages. Its tasks can be read,
    /// subscribed to and canceled until its last running task stops running.
    ///
    /// Fixed until a restart: address, TLS, store, engine and push settings, limits on connections
    /// and streams, and the admin interface.
    ///
    /// # Errors
    /// Invalid, with the name of the setting; also if other machines can reach the server and the
    /// new configuration does not authenticate callers. The old configuration then stays in place.
    pub fn replace(&self, server: Server) -> Result<()> {
        let _guard = lock(&self.replace_lock);
        let (config, _) = server.into_configs()?;
        config.check_exposure(self.runtime.endpoint)?;
        let agents = self.runtime.engine.prepare_agents(config.registrations());
        let routes = config.build_routes(&self.runtime, &agents, Some(&self.current.get()))?;
        // Before the routes, so that every agent of the routes exists. Removed agents live as long
        // as the old routes.
        self.runtime.engine.replace_agents(agents);
        self.current.set(routes);
        Ok(())
    }
}
