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
mod plan;
mod reply;
mod rest;
mod routes;
mod running;
#[cfg(feature = "jws")]
mod seal;
mod served;
mod settings;
mod taken;
mod timer;
#[cfg(feature = "tls")]
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, ToSocketAddrs};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Agent;
use crate::auth::{Access, Allowance};
use crate::bus;
use crate::engine::{Engine, Settings, Staff, System};
use crate::model::{AgentCard, Error, ErrorKind, Limits, Result};
use crate::push::{Deliveries, PushSettings, Pushes, Signature};
use crate::store::{self, Store};
use connections::Handshake;
#[cfg(unix)]
use desk::Desk;
use place::Place;
use plan::{Ground, Plan};
use running::Current;

#[cfg(unix)]
pub use admin::Admin;
#[cfg(feature = "client")]
pub use local::Local;
pub use running::Running;
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
    shown: Vec<crate::jws::Signer>,
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
    running: Running,
    handshake: Option<Arc<dyn Handshake>>,
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
            shown: Vec::new(),
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
    /// says that there is one. It needs [`access`](Self::access): a server that asks nobody who they are is not built with it.
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
    /// Something that cannot be so; or the address cannot be listened on, and the source says why.
    pub async fn bind(self, address: impl ToSocketAddrs) -> Result<Bound> {
        #[cfg(unix)]
        let admin = self.admin.clone();
        let (plan, rest) = self.parts()?;
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        #[cfg(unix)]
        let doors = match admin {
            Some(admin) => Some(
                admin
                    .bind(rest.handshake.clone())
                    .await
                    .map_err(cannot_listen)?,
            ),
            None => None,
        };
        Ok(Bound {
            listener,
            #[cfg(unix)]
            doors,
            address,
            built: rest.build(plan, address).await?,
        })
    }

    /// What may change while it runs, and what may not.
    ///
    /// # Errors
    /// Invalid: agents whose names cannot be, or a public url that is none.
    fn parts(self) -> Result<(Plan, Rest)> {
        let plan = Plan {
            agents: [self.first].into_iter().chain(self.others).collect(),
            serving: Arc::new(self.serving),
            limits: self.limits,
            access: self.access,
            allowance: self.allowance,
            public_url: self.public_url,
            #[cfg(feature = "jws")]
            signers: self.signers,
            #[cfg(feature = "jws")]
            shown: self.shown,
        };
        let rest = Rest {
            store: self.store,
            settings: self.settings,
            push: self.push,
            #[cfg(feature = "jws")]
            push_signer: self.push_signer,
            handshake: self.handshake,
        };
        plan.check()?;
        Ok((plan, rest))
    }
}

/// What a server has as long as it runs.
struct Rest {
    store: Arc<dyn Store>,
    settings: Settings,
    push: PushSettings,
    #[cfg(feature = "jws")]
    push_signer: Option<crate::jws::Signer>,
    handshake: Option<Arc<dyn Handshake>>,
}

impl Rest {
    /// Puts everything together for callers who come to this address.
    async fn build(self, plan: Plan, address: SocketAddr) -> Result<Built> {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let Self {
            store,
            settings,
            push,
            handshake,
            ..
        } = self;
        #[cfg(feature = "jws")]
        let push_signer = self.push_signer;
        let root = plan.root(address, handshake.is_some())?;
        let engine = Engine::new(
            store,
            Arc::new(bus::Local::default()),
            Staff::new(plan.hires()),
            Arc::new(System),
            settings,
            (tasks.clone(), stop.clone()),
        );
        engine.recover().await?;
        #[cfg(feature = "jws")]
        let signature = push_signer
            .clone()
            .map(|signer| seal::signature(signer, &root));
        #[cfg(not(feature = "jws"))]
        let signature = None;
        let pushes = pushes(&engine, push, signature, &stop);
        let ground = Ground {
            address,
            is_secure: handshake.is_some(),
            places: plan.places(),
            reading: Arc::default(),
            #[cfg(feature = "jws")]
            push_signer,
            leaving: CancellationToken::new(),
            drain: CancellationToken::new(),
            engine,
            pushes,
        };
        let team = ground.engine.team();
        let routes = plan.routes(&ground, &team, None)?;
        let current = Arc::new(Current::new(routes));
        Ok(Built {
            root,
            running: Running::new(ground, current),
            handshake,
            tasks,
            stop,
        })
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
    Pushes::new(
        engine.clone(),
        settings,
        signature,
        (TaskTracker::new(), stop.child_token()),
    )
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

    /// The way to change what it serves while it runs.
    #[must_use]
    pub fn running(&self) -> Running {
        self.built.running.clone()
    }

    /// What became of deliveries to webhooks, for operators.
    #[must_use]
    pub fn deliveries(&self) -> Deliveries {
        self.built.running.pushes().deliveries()
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// None today: what goes wrong with one connection ends that connection.
    pub async fn serve(self) -> Result<()> {
        self.serve_until(std::future::pending()).await
    }

    /// Serves until `shutdown` is ready and `shutdown_delay` is over; then takes no more connections and gives calls and turns
    /// `shutdown_grace` to end. Dropping this future ends them at once.
    ///
    /// # Errors
    /// None today: what goes wrong with one connection ends that connection.
    pub async fn serve_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        tracing::info!(address = %self.address, "server started");
        let Built {
            running,
            handshake,
            tasks,
            stop,
            ..
        } = self.built;
        let (engine, pushes) = (running.engine().clone(), running.pushes().clone());
        let stopped = stop.clone();
        #[cfg(unix)]
        let reload = self.doors.as_ref().map(|doors| doors.reload.clone());
        #[cfg(unix)]
        let desk = Arc::new(Desk::new(reload.unwrap_or_default(), &pushes.deliveries()));
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
            () = connections::serve(self.listener, running.current(), handshake, (tasks, stop), shutdown) => {}
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
    Error::new(ErrorKind::Unavailable)
        .with_message("cannot listen on the address")
        .with_source(cause)
}
