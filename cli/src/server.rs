//! Serving of agents: store, listener, admin API, banner, reload and shutdown.

mod banner;
mod command_lock;
mod example;
mod fault_proxy;
mod listen;
mod reload;
mod store;
mod watch;

use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
#[cfg(unix)]
use attache::Admin;
use attache::{AgentCard, BoundServer, HostedAgent, InProcessServer, Server};
use attache_agents::Fault;

use crate::access::{self, ReloadableAccess};
use crate::config::{Config, StoreKind};
#[cfg(unix)]
use crate::console::BuiltInConsole;
use crate::data_dir;
use crate::interrupts::Interrupts;
use crate::telemetry;
use banner::Banner;
pub(crate) use example::Example;
use fault_proxy::FaultProxy;
use reload::{Reloader, ReloaderSetup};
use store::ServerStore;
pub(crate) use store::{SUPERVISE_VERB, supervisor};
pub(crate) use watch::WatchedFiles;

/// Address of the console of a server that other machines cannot reach. A free port is used if this one is taken.
#[cfg(unix)]
const CONSOLE_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 41242);

/// Duration of a shutdown that is not announced.
const QUIET_SHUTDOWN: Duration = Duration::from_millis(300);

/// Agents to serve, and how.
pub(crate) struct ServeSpec {
    /// The first is the agent at the root.
    pub(crate) agents: Vec<HostedAgent>,
    /// Whether the agents are those of the configuration. Some start processes to find out their skills, so they are built
    /// again when the store is open.
    pub(crate) is_configured: bool,
    /// Default directory below the user's data directory.
    pub(crate) folder: &'static str,
    /// Whether webhooks on loopback addresses are allowed while other machines cannot reach the server.
    pub(crate) allows_local_webhooks: bool,
    /// Commands for the banner.
    pub(crate) examples: [Example; 3],
    /// Faults that a proxy in front of the server injects.
    pub(crate) faults: Vec<Fault>,
    /// Reads the configuration again for a reload; `None` if there is no file.
    pub(crate) reread: Option<ConfigReader>,
    pub(crate) watched: Option<WatchedFiles>,
}

/// Reads the configuration again, and builds its agents.
pub(crate) type ConfigReader =
    Box<dyn Fn() -> anyhow::Result<(Config, Vec<HostedAgent>)> + Send + Sync>;

/// A variable of the environment, if it is set and UTF-8.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Serves until the first signal, then shuts down gracefully. A second signal ends the server immediately.
pub(crate) async fn run(spec: ServeSpec, config: &Config) -> anyhow::Result<()> {
    let telemetry = telemetry::init_server(&config.telemetry)?;
    let served = serve(spec, config).await;
    telemetry.shutdown().await;
    served
}

async fn serve(spec: ServeSpec, config: &Config) -> anyhow::Result<()> {
    let folder = data_dir::locate(config.store.data_dir.as_deref(), spec.folder);
    let access = access::prepare(config, folder.as_deref())?;
    let addresses =
        listen::resolve(config, access.has_authentication(config), folder.as_deref()).await?;
    let mut banner = Banner::new(&spec, config, &access, folder.as_deref());
    // Before the store is opened: no file is created for a configuration that cannot be served.
    let mut server = configure(spec.agents, config, &access)?;
    let store = ServerStore::open(spec.folder, config, "--data-dir <DIR>").await?;
    if spec.is_configured {
        server = configure(open_agents(config).await?, config, &access)?;
    }
    banner.store_location.clone_from(&store.location);
    let server = store.add_to(server);
    listen::check_admin_connections(&config.server)?;
    let admin_address = listen::resolve_admin(&config.server).await?;
    let reloader = Arc::new(Reloader::new(ReloaderSetup {
        reread: spec.reread,
        config,
        access: access.clone(),
        folder: folder.clone(),
        addresses: addresses.clone(),
    }));
    let is_exposed = listen::exposure(config, &addresses)?.is_some();
    let allows_local_webhooks = spec.allows_local_webhooks && !is_exposed;
    let admin = AdminSetup {
        folder: folder.as_deref(),
        access: &access,
        config,
        address: admin_address,
        is_exposed,
        name: banner.root_title(),
        reloader: &reloader,
    };
    let server = with_admin(server, &admin)?.push(config.push(allows_local_webhooks));
    if !spec.faults.is_empty() {
        let proxy = FaultProxy::bind(&addresses, spec.faults).await?;
        return serve_behind(proxy, server, &reloader, config, banner).await;
    }
    let bound = server
        .bind(&*addresses)
        .await
        .map_err(|error| listen::bind_error(&config.server.listen, error))?;
    banner.set_address(bound.local_url(), bound.url(), bound.local_addr());
    #[cfg(unix)]
    {
        let configured = config.server.admin_listen.as_ref();
        let address = configured.and_then(|_| bound.admin_addr());
        banner.set_admin_address(address, bound.console_link());
    }
    let serving = until_interrupted(bound, &reloader, config, || banner.print());
    match spec.watched {
        None => serving.await,
        Some(file) => tokio::select! {
            served = serving => served,
            never = watch::reload_on_change(&reloader, file) => never,
        },
    }
}

/// Serves on a loopback port behind a proxy that injects faults.
async fn serve_behind(
    proxy: FaultProxy,
    server: Server,
    reloader: &Reloader,
    config: &Config,
    mut banner: Banner,
) -> anyhow::Result<()> {
    let url = proxy.url()?;
    let bound = server.public_url(&url).bind("127.0.0.1:0").await?;
    let upstream = bound.local_addr();
    banner.set_address(url.clone(), url, proxy.address()?);
    tokio::select! {
        served = until_interrupted(bound, reloader, config, || banner.print()) => served,
        () = proxy.run(upstream) => Ok(()),
    }
}

/// Performs all checks of a server start, without listening, connecting or creating files.
///
/// # Errors
/// The configuration cannot be served.
pub(crate) async fn dry_run(
    agents: Vec<HostedAgent>,
    folder: &str,
    config: &Config,
) -> anyhow::Result<()> {
    let folder = data_dir::locate(config.store.data_dir.as_deref(), folder);
    let access = access::prepare(config, folder.as_deref())?;
    // A host name is not resolved: its addresses are checked when the server starts.
    let addresses: Vec<_> = listen::parse_address(&config.server.listen)?
        .into_iter()
        .collect();
    listen::check(
        config,
        &addresses,
        access.has_authentication(config),
        folder.as_deref(),
    )?;
    listen::check_admin_connections(&config.server)?;
    if let Some(listen) = &config.server.admin_listen
        && let Some(address) = listen::parse_address(listen)?
    {
        listen::check_admin(&config.server, address)?;
    }
    // Builds the server with a memory store and without a socket.
    configure(agents, config, &access)?
        .push(config.push(false))
        .serve_in_process()
        .await?;
    Ok(())
}

/// A server within this process, with the names and cards of its agents.
pub(crate) struct LocalServer {
    pub(crate) server: InProcessServer,
    pub(crate) cards: Vec<(String, AgentCard)>,
}

/// Serves the agents of a configuration within this process only, for front ends such as MCP. If the database cannot be
/// opened, for example because another process uses it, tasks are kept in memory and a warning is printed.
pub(crate) async fn serve_local(
    folder_name: &str,
    mut config: Config,
) -> anyhow::Result<LocalServer> {
    let opened = ServerStore::open(folder_name, &config, "store.data_dir in the file").await;
    let store = opened.unwrap_or_else(|error| {
        eprintln!("warning: tasks are kept in memory until the process ends: {error:#}");
        config.store.kind = StoreKind::Memory;
        ServerStore::memory()
    });
    config.supervisor = supervisor(folder_name, &config);
    let agents = open_agents(&config).await?;
    let found = agents.iter();
    let cards = found
        .map(|one| (one.name().to_owned(), one.card().clone()))
        .collect();
    let server = with_settings(with_agents(agents)?, &config)?.push(config.push(false));
    let server = store.add_to(server).serve_in_process().await?;
    Ok(LocalServer { server, cards })
}

/// Builds the agents of the configuration, and prints warnings.
async fn open_agents(config: &Config) -> anyhow::Result<Vec<HostedAgent>> {
    let (agents, warnings) = config.open_agents().await?;
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    Ok(agents)
}

/// Serves until the first signal, and announces a shutdown that takes time. Ends immediately on the second signal.
async fn until_interrupted(
    bound: BoundServer,
    reloader: &Reloader,
    config: &Config,
    print_banner: impl FnOnce() -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut shutdown = Interrupts::new()?;
    let mut abort = Interrupts::new()?;
    let mut announcement = Interrupts::new()?;
    reloader.start(bound.handle());
    print_banner().context("cannot write to stdout")?;
    let second_signal = async {
        abort.next().await;
        abort.next().await;
    };
    let grace = config.server_settings.shutdown_delay + config.server_settings.shutdown_grace;
    let announce = async {
        announcement.next().await;
        tokio::time::sleep(QUIET_SHUTDOWN).await;
        eprintln!(
            "Stopping: calls and turns have up to {grace:?} to end; press Ctrl-C again to stop immediately."
        );
        std::future::pending().await
    };
    tokio::select! {
        served = bound.serve_until(shutdown.next()) => Ok(served?),
        () = second_signal => Ok(()),
        never = announce => never,
        failed = reload_on_sighup(reloader) => failed,
    }
}

/// Builds the server without its store.
fn configure(
    agents: Vec<HostedAgent>,
    config: &Config,
    access: &ReloadableAccess,
) -> anyhow::Result<Server> {
    access::apply(with_settings(with_agents(agents)?, config)?, config, access)
}

fn with_agents(agents: Vec<HostedAgent>) -> anyhow::Result<Server> {
    let mut agents = agents.into_iter();
    let first = agents.next().context("there is no agent to serve")?;
    Ok(agents.fold(Server::from_agent(first), Server::agent))
}

fn with_settings(server: Server, config: &Config) -> anyhow::Result<Server> {
    let server = server
        .server_settings(config.server_settings.clone())
        .settings(config.engine.clone())
        .limits(config.limits);
    let server = config.build_hooks()?.into_iter().fold(server, Server::hook);
    Ok(match &config.server.public_url {
        Some(url) => server.public_url(url),
        None => server,
    })
}

/// Parts of the admin API.
#[cfg_attr(not(unix), allow(dead_code))]
struct AdminSetup<'a> {
    folder: Option<&'a Path>,
    access: &'a ReloadableAccess,
    config: &'a Config,
    address: Option<SocketAddr>,
    /// Whether other machines can reach the agents.
    is_exposed: bool,
    /// Name of the server, unless the configuration has one.
    name: String,
    reloader: &'a Arc<Reloader>,
}

/// Adds the admin API: a socket in the data directory, if that exists, and the address for operators.
#[cfg(unix)]
fn with_admin(server: Server, setup: &AdminSetup<'_>) -> anyhow::Result<Server> {
    let Some(folder) = setup.folder.filter(|folder| folder.is_dir()) else {
        return Ok(server);
    };
    let mut admin = Admin::new(folder).max_connections(setup.config.server.admin_max_connections);
    if let Some(limit) = setup.config.auth.max_failed_logins_per_minute {
        admin = admin.max_failed_logins_per_minute(Some(limit));
    }
    let keys = setup.access.admin().unwrap_or_default();
    admin = match setup.address {
        Some(address) => admin.listen(address, keys),
        // On the machine of its user the console needs no setting.
        None if !setup.is_exposed && !setup.config.console.disabled => {
            admin.listen(CONSOLE_ADDRESS, keys).or_free_port()
        }
        None => admin,
    };
    admin = with_console(admin, setup)?;
    let all = setup.reloader.clone();
    let keys = setup.reloader.clone();
    Ok(server.admin(
        admin
            .on_reload(move || all.reload_all())
            .on_reload_keys(move || keys.reload_keys()),
    ))
}

/// Adds the web console.
#[cfg(unix)]
fn with_console(admin: Admin, setup: &AdminSetup<'_>) -> anyhow::Result<Admin> {
    let console = &setup.config.console;
    let name = console.name.as_ref().unwrap_or(&setup.name);
    let mut admin = admin.read_only(console.read_only).server_name(name);
    if let Some(content) = console.content {
        admin = admin.content(content.into());
    }
    if let Some(url) = &console.url {
        admin = admin.console_url(url)?;
    }
    if console.disabled {
        return Ok(admin);
    }
    Ok(admin.console(BuiltInConsole))
}

#[cfg(not(unix))]
fn with_admin(server: Server, _: &AdminSetup<'_>) -> anyhow::Result<Server> {
    Ok(server)
}

/// Reloads keys, certificates and configuration on each SIGHUP. The result is in the log.
#[cfg(unix)]
async fn reload_on_sighup(reloader: &Reloader) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup())?;
    while hangups.recv().await.is_some() {
        let _ = reloader.reload_all();
    }
    std::future::pending().await
}

#[cfg(not(unix))]
async fn reload_on_sighup(_: &Reloader) -> anyhow::Result<()> {
    std::future::pending().await
}
