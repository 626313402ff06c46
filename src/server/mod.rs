//! The server: puts the rooms together, listens, serves, drains.

mod body;
mod card;
mod connections;
mod jsonrpc;
mod routes;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, ToSocketAddrs};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Agent, AnyAgent};
use crate::bus;
use crate::engine::{Engine, Settings, System};
use crate::model::{AgentCard, Call, Caller, Error, ErrorKind, Result, Scope};
use crate::service::Service;
use crate::store::{self, Store};
use card::Card;
use routes::Routes;

/// An agent that can be reached over HTTP.
///
/// ```no_run
/// # use attache::{Agent, AgentCard, Failure, Outcome, Server, Turn};
/// # struct Echo;
/// # impl Agent for Echo {
/// #     async fn run(&self, turn: Turn) -> Result<Outcome, Failure> { Ok(Outcome::Completed) }
/// # }
/// # async fn example() -> attache::Result<()> {
/// Server::new(AgentCard::new("Echo", "Says it back"), Echo).serve("127.0.0.1:8080").await
/// # }
/// ```
pub struct Server {
    card: AgentCard,
    agent: Arc<dyn AnyAgent>,
    store: Arc<dyn Store>,
    settings: Settings,
}

/// A server that has its address and takes connections; they are answered once it serves.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    routes: Routes,
    engine: Engine,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    /// A server for one agent. It keeps tasks in memory unless given a store.
    pub fn new(card: AgentCard, agent: impl Agent) -> Self {
        Self {
            card,
            agent: Arc::new(agent),
            store: Arc::new(store::Memory::new()),
            settings: Settings::default(),
        }
    }

    /// Sets what the engine may do, and for how long.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Keeps tasks in this store.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Listens on an address and serves until the process ends.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn serve(self, address: impl ToSocketAddrs) -> Result<()> {
        self.bind(address).await?.serve().await
    }

    /// Takes an address; port 0 takes any that is free.
    ///
    /// # Errors
    /// The address cannot be listened on; the source says why.
    pub async fn bind(self, address: impl ToSocketAddrs) -> Result<Bound> {
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let call = Call::new(Scope {
            agent: self.card.name.as_str().into(),
            tenant: "".into(),
            owner: Caller::anonymous(),
        });
        let engine = Engine::new(
            self.store,
            Arc::new(bus::Local::default()),
            self.agent.clone(),
            Arc::new(System),
            self.settings,
            (tasks.clone(), stop.clone()),
        );
        engine.recover().await?;
        let service = Service::new(engine.clone(), self.agent);
        let routes = Routes { service, call, card: Card::new(self.card, &url(address))? };
        Ok(Bound { listener, address, routes, engine, tasks, stop })
    }
}

impl Bound {
    /// The address it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where a client on this machine reaches the agent.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.address)
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// None today: what goes wrong with one connection ends that connection.
    pub async fn serve(self) -> Result<()> {
        self.serve_until(std::future::pending()).await
    }

    /// Serves until `shutdown` is ready; then takes no more connections and gives calls and turns ten seconds to
    /// end. Dropping this future ends them at once.
    ///
    /// # Errors
    /// None today: what goes wrong with one connection ends that connection.
    pub async fn serve_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        tracing::info!(address = %self.address, "server started");
        tokio::select! {
            () = connections::serve(self.listener, self.routes, self.tasks, self.stop, shutdown) => {}
            never = self.engine.keep_house() => match never {},
        }
        tracing::info!(address = %self.address, "server stopped");
        Ok(())
    }
}

/// An address that a client can use: "every address of this machine" is none.
fn url(address: SocketAddr) -> String {
    let host = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    format!("http://{}/", SocketAddr::new(host, address.port()))
}

fn cannot_listen(cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable).with_message("cannot listen on the address").with_source(cause)
}
