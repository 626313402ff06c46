//! The server: puts the rooms together, listens, serves, drains.

mod active_streams;
#[cfg(unix)]
mod admin;
mod admission;
mod base_url;
mod bindings;
mod body;
mod call_headers;
mod card;
mod chunked_stream;
mod connection_io;
mod connections;
mod cors;
mod encodings;
mod h2_stall;
mod handle;
mod hosted_agent;
#[cfg(feature = "client")]
mod in_process;
mod listener;
mod reloadable_config;
mod reply;
mod routes;
mod settings;
#[cfg(feature = "jws")]
mod signing;
mod sse_body;
mod timer;
#[cfg(feature = "tls")]
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, ToSocketAddrs};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Agent;
use crate::auth::{Access, CallerLimits};
use crate::bus;
use crate::engine::{AgentRegistry, Engine, EngineConfig, Settings, SystemClock};
use crate::model::{AgentCard, Error, ErrorKind, Limits, Result};
use crate::push::{DeadLetters, NotificationSigner, PushDispatcher, PushSettings};
use crate::store::{self, Store};
#[cfg(unix)]
use admin::AdminRoutes;
use base_url::BaseUrl;
use connections::TlsHandshake;
use handle::CurrentRoutes;
use reloadable_config::{ReloadableConfig, ServerRuntime};

#[cfg(unix)]
pub use admin::Admin;
pub use handle::ServerHandle;
pub use hosted_agent::HostedAgent;
#[cfg(feature = "client")]
pub use in_process::InProcessServer;
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
    root_agent: HostedAgent,
    other_agents: Vec<HostedAgent>,
    store: Arc<dyn Store>,
    settings: Settings,
    server_settings: ServerSettings,
    limits: Limits,
    push: PushSettings,
    access: Option<Access>,
    caller_limits: Option<CallerLimits>,
    #[cfg(unix)]
    admin: Option<Admin>,
    public_url: Option<String>,
    #[cfg(feature = "jws")]
    signers: Vec<crate::jws::Signer>,
    #[cfg(feature = "jws")]
    published_keys: Vec<crate::jws::Signer>,
    #[cfg(feature = "jws")]
    push_signer: Option<crate::jws::Signer>,
    handshake: Option<Arc<dyn TlsHandshake>>,
}

/// A server that has its address and takes connections; they are answered once it serves.
pub struct BoundServer {
    listener: TcpListener,
    #[cfg(unix)]
    admin_listeners: Option<admin::AdminListeners>,
    address: SocketAddr,
    server: AssembledServer,
}

/// A server put together, before anybody can reach it.
struct AssembledServer {
    base_url: BaseUrl,
    handle: ServerHandle,
    handshake: Option<Arc<dyn TlsHandshake>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    /// A server for one agent. It keeps tasks in memory unless given a store.
    pub fn new(card: AgentCard, agent: impl Agent) -> Self {
        let name = card.name.clone();
        Self::from_agent(HostedAgent::new(name, card, agent))
    }

    /// A server with this agent at the root, which is reached by its name too.
    #[must_use]
    pub fn from_agent(root_agent: HostedAgent) -> Self {
        Self {
            root_agent,
            other_agents: Vec::new(),
            store: Arc::new(store::Memory::new()),
            settings: Settings::default(),
            server_settings: ServerSettings::default(),
            limits: Limits::default(),
            push: PushSettings::default(),
            access: None,
            caller_limits: None,
            #[cfg(unix)]
            admin: None,
            public_url: None,
            #[cfg(feature = "jws")]
            signers: Vec::new(),
            #[cfg(feature = "jws")]
            published_keys: Vec::new(),
            #[cfg(feature = "jws")]
            push_signer: None,
            handshake: None,
        }
    }

    /// Serves another agent beside the first.
    #[must_use]
    pub fn agent(mut self, agent: HostedAgent) -> Self {
        self.other_agents.push(agent);
        self
    }

    /// Sets how requests are served.
    #[must_use]
    pub fn server_settings(mut self, settings: ServerSettings) -> Self {
        self.server_settings = settings;
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
    /// It goes before what [`Access::limits`] says.
    #[must_use]
    pub fn caller_limits(mut self, caller_limits: CallerLimits) -> Self {
        self.caller_limits = Some(caller_limits);
        self
    }

    /// Says where clients reach the server, if that is not where it listens.
    #[must_use]
    pub fn public_url(mut self, url: impl Into<String>) -> Self {
        self.public_url = Some(url.into());
        self
    }

    /// Shows another card to callers who have authenticated, without the skills that rules keep from them; the public card
    /// says that there is one. It needs [`access`](Self::access): a server that asks nobody who they are is not server with it.
    #[must_use]
    pub fn extended_card(mut self, card: AgentCard) -> Self {
        self.root_agent = self.root_agent.extended_card(card);
        self
    }

    /// Keeps the tasks of these tenants apart from each other's, and from those of nobody in particular.
    #[must_use]
    pub fn tenants<'a>(mut self, tenants: impl IntoIterator<Item = &'a str>) -> Self {
        self.root_agent = self.root_agent.tenants(tenants);
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
    pub async fn bind(self, address: impl ToSocketAddrs) -> Result<BoundServer> {
        #[cfg(unix)]
        let admin = self.admin.clone();
        let (config, static_config) = self.into_configs()?;
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        #[cfg(unix)]
        let admin_listeners = match admin {
            Some(admin) => Some(
                admin
                    .bind(static_config.handshake.clone())
                    .await
                    .map_err(cannot_listen)?,
            ),
            None => None,
        };
        Ok(BoundServer {
            listener,
            #[cfg(unix)]
            admin_listeners,
            address,
            server: static_config.assemble(config, address).await?,
        })
    }

    /// What may change while it runs, and what may not.
    ///
    /// # Errors
    /// Invalid: agents whose names cannot be, or a public url that is none.
    fn into_configs(self) -> Result<(ReloadableConfig, StaticConfig)> {
        let config = ReloadableConfig {
            agents: [self.root_agent]
                .into_iter()
                .chain(self.other_agents)
                .collect(),
            settings: Arc::new(self.server_settings),
            limits: self.limits,
            access: self.access,
            caller_limits: self.caller_limits,
            public_url: self.public_url,
            #[cfg(feature = "jws")]
            signers: self.signers,
            #[cfg(feature = "jws")]
            published_keys: self.published_keys,
        };
        let static_config = StaticConfig {
            store: self.store,
            settings: self.settings,
            push: self.push,
            #[cfg(feature = "jws")]
            push_signer: self.push_signer,
            handshake: self.handshake,
        };
        config.validate()?;
        Ok((config, static_config))
    }
}

/// What a server has as long as it runs.
struct StaticConfig {
    store: Arc<dyn Store>,
    settings: Settings,
    push: PushSettings,
    #[cfg(feature = "jws")]
    push_signer: Option<crate::jws::Signer>,
    handshake: Option<Arc<dyn TlsHandshake>>,
}

impl StaticConfig {
    /// Puts everything together for callers who come to this address.
    async fn assemble(
        self,
        config: ReloadableConfig,
        address: SocketAddr,
    ) -> Result<AssembledServer> {
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
        let base_url = config.base_url(address, handshake.is_some())?;
        let engine = Engine::new(EngineConfig {
            store,
            bus: Arc::new(bus::LocalBus::default()),
            agents: AgentRegistry::new(config.agent_configs()),
            clock: Arc::new(SystemClock),
            settings,
            tracker: tasks.clone(),
            stop: stop.clone(),
        });
        engine.recover().await?;
        #[cfg(feature = "jws")]
        let signer = push_signer
            .clone()
            .map(|signer| signing::notification_signer(signer, &base_url));
        #[cfg(not(feature = "jws"))]
        let signer = None;
        let push_dispatcher = start_push_dispatcher(&engine, push, signer, &stop);
        let runtime = ServerRuntime {
            address,
            uses_tls: handshake.is_some(),
            stream_limiter: config.stream_limiter(),
            body_budget: Arc::default(),
            #[cfg(feature = "jws")]
            push_signer,
            shutting_down: CancellationToken::new(),
            drain: CancellationToken::new(),
            engine,
            push_dispatcher,
        };
        let agents = runtime.engine.agents();
        let routes = config.build_routes(&runtime, &agents, None)?;
        let current = Arc::new(CurrentRoutes::new(routes));
        Ok(AssembledServer {
            base_url,
            handle: ServerHandle::new(runtime, current),
            handshake,
            tasks,
            stop,
        })
    }
}

/// Who calls webhooks, beside what the server waits for when it is to stop.
fn start_push_dispatcher(
    engine: &Engine,
    settings: PushSettings,
    signer: Option<NotificationSigner>,
    stop: &CancellationToken,
) -> PushDispatcher {
    if settings.egress.loopback {
        tracing::warn!("webhooks on this machine are called: for development only");
    }
    PushDispatcher::new(
        engine.clone(),
        settings,
        signer,
        TaskTracker::new(),
        stop.child_token(),
    )
}

impl BoundServer {
    /// The address it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where clients reach the agent.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.base_url.url()
    }

    /// Where programs of this machine reach it.
    #[must_use]
    pub fn local_url(&self) -> String {
        BaseUrl::from_address(self.address, self.server.handshake.is_some()).url()
    }

    /// Where operators reach it who have a key, if it listens for them.
    #[cfg(unix)]
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_listeners
            .as_ref()
            .and_then(admin::AdminListeners::address)
    }

    /// The way to change what it serves while it runs.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        self.server.handle.clone()
    }

    /// What became of deliveries to webhooks, for operators.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters {
        self.server.handle.push_dispatcher().dead_letters()
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
        let AssembledServer {
            handle,
            handshake,
            tasks,
            stop,
            ..
        } = self.server;
        let (engine, push_dispatcher) = (handle.engine().clone(), handle.push_dispatcher().clone());
        let stop_token = stop.clone();
        #[cfg(unix)]
        let reload = self
            .admin_listeners
            .as_ref()
            .map(|listeners| listeners.reload.clone());
        #[cfg(unix)]
        let admin_routes = Arc::new(AdminRoutes::new(
            reload.unwrap_or_default(),
            &push_dispatcher.dead_letters(),
        ));
        #[cfg(unix)]
        let admin = async {
            match &self.admin_listeners {
                Some(listeners) => listeners.serve(admin_routes).await,
                None => std::future::pending::<std::convert::Infallible>().await,
            }
        };
        #[cfg(not(unix))]
        let admin = std::future::pending::<std::convert::Infallible>();
        tokio::select! {
            () = connections::serve(self.listener, handle.current(), handshake, (tasks, stop), shutdown) => {}
            never = engine.run_maintenance() => match never {},
            never = push_dispatcher.run() => match never {},
            never = admin => match never {},
        }
        stop_token.cancel();
        #[cfg(unix)]
        if let Some(listeners) = &self.admin_listeners {
            listeners.wait_closed().await;
        }
        push_dispatcher.wait_stopped().await;
        tracing::info!(address = %self.address, "server stopped");
        Ok(())
    }
}

fn cannot_listen(cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message("cannot listen on the address")
        .with_source(cause)
}
