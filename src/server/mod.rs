//! The server: puts the rooms together, listens, serves, drains.

#[cfg(unix)]
mod admin;
mod body;
mod browser;
mod card;
mod chat;
mod connections;
#[cfg(unix)]
mod desk;
mod door;
mod events;
mod forms;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "no_grpc.rs"]
mod grpc;
mod guest;
mod idle;
mod incoming;
mod io;
mod jsonrpc;
#[cfg(feature = "client")]
mod local;
mod outgoing;
mod place;
mod reply;
mod rest;
mod routes;
#[cfg(feature = "jws")]
mod seal;
mod served;
mod settings;
mod taken;
#[cfg(feature = "tls")]
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, ToSocketAddrs};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Agent;
use crate::auth::{Access, Allowance, Meter};
use crate::bus;
use crate::engine::{Engine, Settings, Staff, System};
use crate::model::{AgentCard, Error, ErrorKind, Limits, Result};
use crate::push::{Deliveries, PushSettings, Pushes, Signature};
use crate::service::{Budget, Directory, Offer, Places, Resident, Service};
use crate::store::{self, Store};
use crate::wire::path::is_tenant;
use body::Reading;
use browser::Browsers;
use card::{Card, Document};
use connections::Handshake;
#[cfg(unix)]
use desk::Desk;
use place::Place;
use routes::Routes;

#[cfg(unix)]
pub use admin::Admin;
#[cfg(feature = "client")]
pub use local::Local;
pub use served::Served;
pub use settings::ServerSettings;
#[cfg(feature = "tls")]
pub use tls::Tls;

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
    first: Served,
    others: Vec<Served>,
    store: Arc<dyn Store>,
    settings: Settings,
    serving: ServerSettings,
    limits: Limits,
    push: PushSettings,
    access: Option<Access>,
    allowance: Option<Allowance>,
    #[cfg(unix)]
    admin: Option<Admin>,
    public_url: Option<String>,
    #[cfg(feature = "jws")]
    signers: Vec<crate::jws::Signer>,
    #[cfg(feature = "jws")]
    push_signer: Option<crate::jws::Signer>,
    handshake: Option<Arc<dyn Handshake>>,
}

/// A server that has its address and takes connections; they are answered once it serves.
pub struct Bound {
    listener: TcpListener,
    #[cfg(unix)]
    doors: Option<admin::Doors>,
    address: SocketAddr,
    built: Built,
}

/// A server put together, before anybody can reach it.
struct Built {
    root: Place,
    routes: Routes,
    handshake: Option<Arc<dyn Handshake>>,
    engine: Engine,
    pushes: Pushes,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    /// A server for one agent. It keeps tasks in memory unless given a store.
    pub fn new(card: AgentCard, agent: impl Agent) -> Self {
        let name = card.name.clone();
        Self::of(Served::new(name, card, agent))
    }

    /// A server with this agent at the root, which is reached by its name too.
    #[must_use]
    pub fn of(first: Served) -> Self {
        Self {
            first,
            others: Vec::new(),
            store: Arc::new(store::Memory::new()),
            settings: Settings::default(),
            serving: ServerSettings::default(),
            limits: Limits::default(),
            push: PushSettings::default(),
            access: None,
            allowance: None,
            #[cfg(unix)]
            admin: None,
            public_url: None,
            #[cfg(feature = "jws")]
            signers: Vec::new(),
            #[cfg(feature = "jws")]
            push_signer: None,
            handshake: None,
        }
    }

    /// Serves another agent beside the first.
    #[must_use]
    pub fn agent(mut self, agent: Served) -> Self {
        self.others.push(agent);
        self
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

    /// Sets how webhooks are called, and where they may be.
    #[must_use]
    pub fn push(mut self, settings: PushSettings) -> Self {
        self.push = settings;
        self
    }

    /// Asks callers who they are. Until it is called nobody is asked, and all are one caller.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Sets how much each caller may do, also where nobody is asked who they are: then callers are told apart by their address.
    /// It goes before what [`Access::allowance`] says.
    #[must_use]
    pub fn allowance(mut self, allowance: Allowance) -> Self {
        self.allowance = Some(allowance);
        self
    }

    /// Says where clients reach the server, if that is not where it listens.
    #[must_use]
    pub fn public_url(mut self, url: impl Into<String>) -> Self {
        self.public_url = Some(url.into());
        self
    }

    /// Shows another card to callers who have authenticated, without the skills that rules keep from them; the public card
    /// says that there is one. As long as nobody is asked who they are, that is everybody.
    #[must_use]
    pub fn extended_card(mut self, card: AgentCard) -> Self {
        self.first = self.first.extended_card(card);
        self
    }

    /// Keeps the tasks of these tenants apart from each other's, and from those of nobody in particular.
    #[must_use]
    pub fn tenants<'a>(mut self, tenants: impl IntoIterator<Item = &'a str>) -> Self {
        self.first = self.first.tenants(tenants);
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
        #[cfg(unix)]
        let doors = match self.admin.clone() {
            Some(admin) => Some(admin.bind(self.handshake.clone()).await.map_err(cannot_listen)?),
            None => None,
        };
        Ok(Bound {
            listener,
            #[cfg(unix)]
            doors,
            address,
            built: self.build(address).await?,
        })
    }

    /// Puts everything together for callers who come to this address.
    async fn build(self, address: SocketAddr) -> Result<Built> {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let root = match &self.public_url {
            Some(url) => Place::public(url)?,
            None => Place::listening(address, self.handshake.is_some()),
        };
        let browsers = Browsers::new(&self.serving.cors_origins, address, self.public_url.as_deref());
        let agents: Vec<Served> = [self.first].into_iter().chain(self.others).collect();
        check_names(&agents)?;
        let engine = Engine::new(
            self.store,
            Arc::new(bus::Local::default()),
            Staff::new(
                agents
                    .iter()
                    .map(|served| (served.name.clone(), served.agent.clone(), served.settings.clone())),
            ),
            Arc::new(System),
            self.settings,
            (tasks.clone(), stop.clone()),
        );
        engine.recover().await?;
        #[cfg(feature = "jws")]
        let seal = seal::Seal::new(self.signers, self.push_signer, &root, self.public_url.is_some())?;
        #[cfg(feature = "jws")]
        let (key_set, signature) = (seal.key_set(), seal.signature(&root));
        #[cfg(not(feature = "jws"))]
        let (key_set, signature): (Option<String>, _) = (None, None);
        let pushes = pushes(&engine, self.push, signature, &stop);
        let places = Places::new(self.serving.most());
        let allowed = self.allowance.as_ref().or(self.access.as_ref().map(|access| access.allowed()));
        let budget = allowed.map_or_else(Budget::default, |allowed| Budget {
            open: allowed.open_tasks,
            parked: allowed.parked_tasks,
        });
        let meter = allowed.map(Meter::new);
        let key_set = key_set.map(|keys| Document::new(keys.into_bytes(), &self.serving)).transpose()?;
        let (mut residents, mut cards) = (Vec::new(), Vec::new());
        for (at, served) in agents.into_iter().enumerate() {
            let tenant = (at > 0).then(|| served.name.to_string());
            let mut card = served.card;
            offer(&mut card, engine.keeps_tasks());
            let describe = |card: &mut AgentCard| {
                if let Some(access) = &self.access {
                    access.describe(&served.name, card);
                }
            };
            describe(&mut card);
            let extended_card = served.extended_card.map(|mut extended| {
                offer(&mut extended, engine.keeps_tasks());
                describe(&mut extended);
                card::complete(extended, &root, tenant.as_deref()).published()
            });
            let service = Service::new(
                engine.clone(),
                served.agent,
                Offer::new(&card, extended_card, self.serving.modes()),
                self.limits.clone(),
                (places.clone(), pushes.clone()),
                (self.serving.parked_stream_timeout, self.serving.max_blocking),
            )
            .with_budget(budget);
            residents.push(Resident { name: served.name, service, tenants: served.tenants });
            cards.push(Card::new(card, &root, tenant, &self.serving, |card| {
                #[cfg(feature = "jws")]
                seal.sign(card)?;
                let _ = card;
                Ok(())
            })?);
        }
        let routes = Routes {
            directory: Directory::new(residents),
            cards,
            key_set,
            root: root.clone(),
            is_public: self.public_url.is_some(),
            browsers,
            meter,
            access: self.access,
            settings: self.serving,
            reading: Reading::default(),
            drain: CancellationToken::new(),
        };
        Ok(Built { root, routes, handshake: self.handshake, engine, pushes, tasks, stop })
    }
}

/// Who calls webhooks, beside what the server waits for when it is to stop.
fn pushes(
    engine: &Engine,
    settings: PushSettings,
    signature: Option<Signature>,
    stop: &CancellationToken,
) -> Pushes {
    if settings.reach.loopback {
        tracing::warn!("webhooks on this machine are called: for development only");
    }
    Pushes::new(engine.clone(), settings, signature, (TaskTracker::new(), stop.child_token()))
}

/// Where no task is kept there is nothing to follow.
fn offer(card: &mut AgentCard, keeps_tasks: bool) {
    card.capabilities.streaming.get_or_insert(true);
    card.capabilities.push_notifications.get_or_insert(true);
    if !keeps_tasks {
        card.capabilities.streaming = Some(false);
        card.capabilities.push_notifications = Some(false);
    }
}

/// Two agents of one name would be one and the same, and a tenant of the first hides an agent of its name.
fn check_names(agents: &[Served]) -> Result<()> {
    let first = agents.first().map_or(&[][..], |served| &served.tenants);
    for (at, served) in agents.iter().enumerate() {
        let taken = agents[..at].iter().any(|other| other.name == served.name);
        if taken || (at > 0 && (!is_tenant(&served.name) || first.contains(&served.name))) {
            let why = format!("`{}` is taken, or cannot be the name of an agent", served.name);
            return Err(Error::invalid("name", why));
        }
        if let Some(wrong) = served.tenants.iter().find(|tenant| !is_tenant(tenant)) {
            return Err(Error::invalid("tenants", format!("`{wrong}` cannot be the name of a tenant")));
        }
    }
    Ok(())
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
        self.built.root.url()
    }

    /// Where programs of this machine reach it.
    #[must_use]
    pub fn local_url(&self) -> String {
        Place::listening(self.address, self.built.handshake.is_some()).url()
    }

    /// Where operators reach it who have a key, if it listens for them.
    #[cfg(unix)]
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.doors.as_ref().and_then(admin::Doors::address)
    }

    /// What became of deliveries to webhooks, for operators.
    #[must_use]
    pub fn deliveries(&self) -> Deliveries {
        self.built.pushes.deliveries()
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// None today: what goes wrong with one connection ends that connection.
    pub async fn serve(self) -> Result<()> {
        self.serve_until(std::future::pending()).await
    }

    /// Serves until `shutdown` is ready; then takes no more connections and gives calls and turns
    /// `shutdown_grace` to end. Dropping this future ends them at once.
    ///
    /// # Errors
    /// None today: what goes wrong with one connection ends that connection.
    pub async fn serve_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        tracing::info!(address = %self.address, "server started");
        let Built { routes, handshake, engine, pushes, tasks, stop, .. } = self.built;
        let stopped = stop.clone();
        #[cfg(unix)]
        let reload = self.doors.as_ref().map(|doors| doors.reload.clone());
        #[cfg(unix)]
        let desk = Arc::new(Desk::new(reload.unwrap_or_else(|| Arc::new(|| Ok(()))), &pushes.deliveries()));
        #[cfg(unix)]
        let operator = async {
            match &self.doors {
                Some(doors) => doors.serve(desk).await,
                None => std::future::pending::<std::convert::Infallible>().await,
            }
        };
        #[cfg(not(unix))]
        let operator = std::future::pending::<std::convert::Infallible>();
        tokio::select! {
            () = connections::serve(self.listener, routes, handshake, (tasks, stop), shutdown) => {}
            never = engine.keep_house() => match never {},
            never = pushes.keep_delivering() => match never {},
            never = operator => match never {},
        }
        stopped.cancel();
        #[cfg(unix)]
        if let Some(doors) = &self.doors {
            doors.ended().await;
        }
        pushes.ended().await;
        tracing::info!(address = %self.address, "server stopped");
        Ok(())
    }
}

fn cannot_listen(cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable).with_message("cannot listen on the address").with_source(cause)
}
