//! Builder of a server: agents, store, access control and settings.

use std::sync::Arc;

use tokio::net::{TcpListener, ToSocketAddrs};

#[cfg(unix)]
use super::admin::Admin;
use super::assembly::{Endpoint, StaticConfig};
use super::bound_server::BoundServer;
use super::hosted_agent::HostedAgent;
use super::reloadable_config::ReloadableConfig;
use super::settings::ServerSettings;
use super::transport::TlsHandshake;
use crate::agent::Agent;
use crate::auth::{Access, CallerLimits};
use crate::engine::Settings;
use crate::hooks::Hook;
#[cfg(feature = "jws")]
use crate::jws::Signer;
use crate::model::{AgentCard, Error, ErrorKind, Limits, Result};
use crate::push::PushSettings;
use crate::store::{self, Store};

/// Server of one or more agents over HTTP. Configured with builder methods, then served.
///
/// ```no_run
/// # use attache::{Agent, AgentCard, Failure, Outcome, Server, Turn};
/// # struct Echo;
/// # impl Agent for Echo {
/// #     async fn run(&self, turn: Turn) -> Result<Outcome, Failure> { Ok(Outcome::Completed) }
/// # }
/// # async fn example() -> attache::Result<()> {
/// Server::new(AgentCard::new("Echo", "Echoes the message"), Echo).serve("127.0.0.1:8080").await
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
    allow_anonymous: bool,
    caller_limits: Option<CallerLimits>,
    hooks: Vec<Hook>,
    #[cfg(unix)]
    pub(super) admin: Option<Admin>,
    public_url: Option<String>,
    #[cfg(feature = "jws")]
    pub(super) signers: Vec<Signer>,
    #[cfg(feature = "jws")]
    pub(super) published_keys: Vec<Signer>,
    #[cfg(feature = "jws")]
    pub(super) push_signer: Option<Signer>,
    pub(super) handshake: Option<Arc<dyn TlsHandshake>>,
}

impl Server {
    /// Creates a server for one agent. Tasks are stored in memory unless [`store`](Self::store) is
    /// set.
    pub fn new(card: AgentCard, agent: impl Agent) -> Self {
        let name = card.name.clone();
        Self::from_agent(HostedAgent::new(name, card, agent))
    }

    /// Creates a server with this agent at the root. The agent is also served below its name.
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
            allow_anonymous: false,
            caller_limits: None,
            hooks: Vec::new(),
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

    /// Adds an agent.
    #[must_use]
    pub fn agent(mut self, agent: HostedAgent) -> Self {
        self.other_agents.push(agent);
        self
    }

    /// Sets the settings of the HTTP server.
    #[must_use]
    pub fn server_settings(mut self, settings: ServerSettings) -> Self {
        self.server_settings = settings;
        self
    }

    /// Sets the limits on requests.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the settings of webhook delivery, including the allowed targets.
    #[must_use]
    pub fn push(mut self, settings: PushSettings) -> Self {
        self.push = settings;
        self
    }

    /// Enables authentication and access rules. Without it, callers are not authenticated and share
    /// one identity. A server that other machines can reach then needs
    /// [`allow_anonymous`](Self::allow_anonymous).
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Serves without authentication even if other machines can reach the server: through its
    /// listening address, its public URL or a trusted proxy.
    #[must_use]
    pub fn allow_anonymous(mut self) -> Self {
        self.allow_anonymous = true;
        self
    }

    /// Sets the rate limits and quotas of each caller. Unauthenticated callers are distinguished by
    /// address.
    ///
    /// Overrides [`Access::limits`]. The default is [`CallerLimits::default`], which exempts
    /// anonymous callers on loopback addresses.
    #[must_use]
    pub fn caller_limits(mut self, caller_limits: CallerLimits) -> Self {
        self.caller_limits = Some(caller_limits);
        self
    }

    /// Adds a hook on calls, responses and events. Hooks run in the order of these calls, and in reverse order after an
    /// operation.
    #[must_use]
    pub fn hook(mut self, hook: Hook) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Sets the URL that clients use, if it differs from the listening address.
    #[must_use]
    pub fn public_url(mut self, url: impl Into<String>) -> Self {
        self.public_url = Some(url.into());
        self
    }

    /// Sets the extended card of the root agent, for authenticated callers. The public card then
    /// declares it.
    ///
    /// Callers do not see the skills that the access rules deny them. Requires
    /// [`access`](Self::access); without it the server is not built.
    #[must_use]
    pub fn extended_card(mut self, card: AgentCard) -> Self {
        self.root_agent = self.root_agent.extended_card(card);
        self
    }

    /// Declares tenants of the root agent. Their tasks are isolated from each other and from tasks
    /// without a tenant.
    #[must_use]
    pub fn tenants<'a>(mut self, tenants: impl IntoIterator<Item = &'a str>) -> Self {
        self.root_agent = self.root_agent.tenants(tenants);
        self
    }

    /// Sets the settings of the engine.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the store of tasks.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Binds an address and serves until the process ends.
    ///
    /// # Errors
    /// Those of [`bind`](Self::bind).
    pub async fn serve(self, address: impl ToSocketAddrs) -> Result<()> {
        self.bind(address).await?.serve().await
    }

    /// Binds an address, builds the server, and recovers the tasks in the store. Port 0 selects a
    /// free port.
    ///
    /// # Errors
    /// Invalid: a setting, or other machines can reach the server and callers are not
    /// authenticated, with an [`ExposureError`](super::ExposureError) as its source. Unavailable: the address cannot be bound, with the cause as its source,
    /// or the store failed.
    pub async fn bind(self, address: impl ToSocketAddrs) -> Result<BoundServer> {
        #[cfg(unix)]
        let admin = self.admin.clone();
        let (config, static_config) = self.into_configs()?;
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        let endpoint = Endpoint::Tcp(address);
        config.check_exposure(endpoint)?;
        #[cfg(unix)]
        let admin = match admin {
            Some(admin) => {
                let handshake = static_config.handshake.clone();
                Some(admin.bind(handshake).await.map_err(cannot_listen)?)
            }
            None => None,
        };
        Ok(BoundServer {
            listener,
            #[cfg(unix)]
            admin,
            address,
            server: static_config.assemble(config, endpoint).await?,
        })
    }

    /// Splits the configuration into the reloadable and the fixed part, and validates it.
    ///
    /// # Errors
    /// Those of [`ReloadableConfig::validate`].
    pub(super) fn into_configs(self) -> Result<(ReloadableConfig, StaticConfig)> {
        let mut agents = vec![self.root_agent];
        agents.extend(self.other_agents);
        let config = ReloadableConfig {
            agents,
            settings: Arc::new(self.server_settings),
            limits: self.limits,
            access: self.access,
            allow_anonymous: self.allow_anonymous,
            caller_limits: self.caller_limits,
            hooks: self.hooks,
            public_url: self.public_url,
            #[cfg(feature = "jws")]
            signers: self.signers,
            #[cfg(feature = "jws")]
            published_keys: self.published_keys,
        };
        config.validate()?;
        let static_config = StaticConfig {
            store: self.store,
            settings: self.settings,
            push: self.push,
            #[cfg(feature = "jws")]
            push_signer: self.push_signer,
            handshake: self.handshake,
        };
        Ok((config, static_config))
    }
}

fn cannot_listen(cause: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message("cannot listen on the address")
        .with_source(cause)
}
