//! The server: puts the rooms together, listens, serves, drains.

mod body;
mod card;
mod connections;
mod events;
mod forms;
mod incoming;
mod io;
mod jsonrpc;
mod place;
mod reply;
mod rest;
mod routes;
mod settings;
mod taken;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, ToSocketAddrs};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Agent, AnyAgent};
use crate::bus;
use crate::engine::{Engine, Settings, System};
use crate::model::{AgentCard, Error, ErrorKind, Limits, Result};
use crate::service::{Directory, Offer, Places, Resident, Service};
use crate::store::{self, Store};
use card::{Card, complete};
use place::Place;
use routes::Routes;

pub use settings::ServerSettings;

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
    serving: ServerSettings,
    limits: Limits,
    public_url: Option<String>,
    extended_card: Option<AgentCard>,
    tenants: Vec<Arc<str>>,
}

/// A server that has its address and takes connections; they are answered once it serves.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    place: Place,
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
            serving: ServerSettings::default(),
            limits: Limits::default(),
            public_url: None,
            extended_card: None,
            tenants: Vec::new(),
        }
    }

    /// Sets how requests are served.
    #[must_use]
    pub fn serving(mut self, settings: ServerSettings) -> Self {
        self.serving = settings;
        self
    }

    /// Sets what a request may not exceed.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Says where clients reach the server, if that is not where it listens.
    #[must_use]
    pub fn public_url(mut self, url: impl Into<String>) -> Self {
        self.public_url = Some(url.into());
        self
    }

    /// Shows another card to callers who have authenticated; the public card says that there is one.
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
        let place = match &self.public_url {
            Some(url) => Place::public(url)?,
            None => Place::listening(address, false),
        };
        let engine = Engine::new(
            self.store,
            Arc::new(bus::Local::default()),
            self.agent.clone(),
            Arc::new(System),
            self.settings,
            (tasks.clone(), stop.clone()),
        );
        engine.recover().await?;
        let card = complete(self.card, &place);
        let service = Service::new(
            engine.clone(),
            self.agent,
            Offer::new(&card, self.extended_card),
            self.limits,
            Places::new(self.serving.most()),
            (self.serving.parked_stream_timeout, self.serving.max_blocking),
        );
        let resident = Resident { name: card.name.as_str().into(), service, tenants: self.tenants };
        let routes = Routes {
            directory: Directory::new(resident, []),
            card: Card::new(&card, &self.serving)?,
            settings: self.serving,
            drain: CancellationToken::new(),
        };
        Ok(Bound { listener, address, place, routes, engine, tasks, stop })
    }
}

impl Bound {
    /// The address it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where clients reach the agent.
    #[must_use]
    pub fn url(&self) -> String {
        self.place.url()
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

fn cannot_listen(cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable).with_message("cannot listen on the address").with_source(cause)
}
