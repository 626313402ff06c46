//! How agents are served: where they keep their tasks, where they listen, what is said at the start, how it ends.

mod banner;
mod example;
mod fault_proxy;
mod listen;
mod reload;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use attache::store::sqlite::Options;
use attache::store::{Memory, Sqlite};
use attache::{BoundServer, HostedAgent, InProcessServer, Server};
use attache_agents::Fault;

use crate::access::{self, ReloadableAccess};
use crate::config::{Config, StoreKind};
use crate::data_dir;
use crate::interrupts::Interrupts;
use crate::telemetry;
use banner::Banner;
pub(crate) use example::Example;
use fault_proxy::FaultProxy;
use reload::Reloader;

/// What ends within this time ends at once, for whoever waits for it.
const QUIET_STOP: Duration = Duration::from_millis(300);

/// What is served, and what is said about it.
pub(crate) struct ServeSpec {
    /// The first is the one at the root.
    pub(crate) agents: Vec<HostedAgent>,
    /// Its place in the user's data directory, unless another folder is named.
    pub(crate) folder: &'static str,
    /// Whether webhooks on this machine are called while nobody else reaches it.
    pub(crate) allows_local_webhooks: bool,
    /// Commands to paste.
    pub(crate) examples: [Example; 3],
    /// What goes wrong with its answers.
    pub(crate) faults: Vec<Fault>,
    /// Reads what is served again, if that can be.
    pub(crate) reread: Option<ConfigReader>,
}

/// Reads a configuration again, and makes its agents.
pub(crate) type ConfigReader =
    Box<dyn Fn() -> anyhow::Result<(Config, Vec<HostedAgent>)> + Send + Sync>;

/// A variable of our environment.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Serves until it is interrupted; then ends what has begun, or at once when interrupted again.
pub(crate) async fn run(serving: ServeSpec, config: &Config) -> anyhow::Result<()> {
    let telemetry = telemetry::init_server(&config.telemetry)?;
    let served = serve(serving, config).await;
    telemetry.shutdown().await;
    served
}

async fn serve(serving: ServeSpec, config: &Config) -> anyhow::Result<()> {
    let folder = data_dir::locate(config.store.data_dir.as_deref(), serving.folder);
    let access = access::prepare(config, folder.as_deref())?;
    let asks = access.has_authentication(config);
    let addresses = listen::resolve(config, asks, folder.as_deref()).await?;
    let mut banner = Banner::new(&serving, config, &access, folder.as_deref());
    let (server, store_location) = with_store(
        configure(serving.agents, config, &access)?,
        serving.folder,
        config,
    )?;
    // The library warns of webhooks on this machine.
    let local = serving.allows_local_webhooks && listen::are_loopback(&addresses);
    let operators = listen::resolve_admin(&config.server).await?;
    let reload = Arc::new(Reloader::new(
        serving.reread,
        config,
        access.clone(),
        (folder.clone(), addresses.clone()),
    ));
    let server = with_admin(server, folder.as_deref(), (&access, operators), &reload)
        .push(config.push(local));
    let cannot = |error| listen::bind_error(&config.server.listen, error);
    banner.store_location = store_location;
    if serving.faults.is_empty() {
        let bound = server.bind(&*addresses).await.map_err(cannot)?;
        banner.set_address(bound.local_url(), bound.url(), bound.local_addr());
        #[cfg(unix)]
        banner.set_admin_address(bound.admin_addr());
        return until_interrupted(bound, &reload, config, || banner.print()).await;
    }
    let proxy = FaultProxy::bind(&addresses, serving.faults).await?;
    let (url, address) = (proxy.url()?, proxy.address()?);
    let bound = server.public_url(&url).bind("127.0.0.1:0").await?;
    let mock = bound.local_addr();
    banner.set_address(url.clone(), url, address);
    tokio::select! {
        served = until_interrupted(bound, &reload, config, || banner.print()) => served,
        () = proxy.run(mock) => Ok(()),
    }
}

/// Looks at everything that is looked at before somebody is listened for. Nothing is made, and nobody asked.
///
/// # Errors
/// Why it would not be served.
pub(crate) async fn dry_run(
    agents: Vec<HostedAgent>,
    folder: &str,
    config: &Config,
) -> anyhow::Result<()> {
    let folder = data_dir::locate(config.store.data_dir.as_deref(), folder);
    let access = access::prepare(config, folder.as_deref())?;
    if let Some(address) = listen::parse_address(&config.server.listen)? {
        listen::check(
            config,
            &[address],
            access.has_authentication(config),
            folder.as_deref(),
        )?;
    }
    if let Some(address) = config
        .server
        .admin_listen
        .as_deref()
        .map(listen::parse_address)
        .transpose()?
        .flatten()
    {
        listen::check_admin(&config.server, address)?;
    }
    // All but the socket, with tasks in memory that nobody will have.
    configure(agents, config, &access)?
        .push(config.push(false))
        .serve_in_process()
        .await?;
    Ok(())
}

/// Serves within this process alone, for those who speak for its agents in another way. Where its folder cannot be used,
/// as when another such process does, tasks are kept in memory, and that is said.
pub(crate) async fn serve_local(
    agents: Vec<HostedAgent>,
    folder: &str,
    config: &Config,
) -> anyhow::Result<InProcessServer> {
    let server = with_settings(with_agents(agents)?, config).push(config.push(false));
    let server = match config.store.kind {
        StoreKind::Memory => server,
        StoreKind::Null => server.store(Memory::ephemeral()),
        StoreKind::Sqlite => match sqlite(folder, config, "store.data_dir in the file") {
            Ok((store, _)) => server.store(store),
            Err(error) => {
                eprintln!("warning: tasks are kept in memory until the program ends: {error:#}");
                server
            }
        },
    };
    Ok(server.serve_in_process().await?)
}

async fn until_interrupted(
    bound: BoundServer,
    reload: &Reloader,
    config: &Config,
    announce: impl FnOnce() -> io::Result<()>,
) -> anyhow::Result<()> {
    let (mut first, mut again, mut heard) =
        (Interrupts::new()?, Interrupts::new()?, Interrupts::new()?);
    reload.begin(bound.handle());
    announce().context("cannot write to stdout")?;
    let twice = async {
        again.next().await;
        again.next().await;
    };
    let patience = config.server_settings.shutdown_delay + config.server_settings.shutdown_grace;
    let slow = async {
        heard.next().await;
        tokio::time::sleep(QUIET_STOP).await;
        eprintln!(
            "Stopping: calls and turns have up to {patience:?} to end; Ctrl-C again to stop at once."
        );
        std::future::pending().await
    };
    tokio::select! {
        served = bound.serve_until(first.next()) => Ok(served?),
        () = twice => Ok(()),
        never = slow => never,
        stopped = reload_on_sighup(reload) => stopped,
    }
}

/// What is served, but for where its tasks are kept.
fn configure(
    agents: Vec<HostedAgent>,
    config: &Config,
    access: &ReloadableAccess,
) -> anyhow::Result<Server> {
    access::apply(with_settings(with_agents(agents)?, config), config, access)
}

fn with_agents(agents: Vec<HostedAgent>) -> anyhow::Result<Server> {
    let mut agents = agents.into_iter();
    let first = agents.next().context("there is no agent to serve")?;
    Ok(agents.fold(Server::from_agent(first), Server::agent))
}

fn with_settings(server: Server, config: &Config) -> Server {
    let server = server
        .server_settings(config.server_settings.clone())
        .settings(config.engine.clone())
        .limits(config.limits.clone());
    match &config.server.public_url {
        Some(url) => server.public_url(url),
        None => server,
    }
}

/// The server, which the operator reaches while it runs if it has a folder.
#[cfg(unix)]
fn with_admin(
    server: Server,
    folder: Option<&Path>,
    (access, operators): (&ReloadableAccess, Option<SocketAddr>),
    reload: &Arc<Reloader>,
) -> Server {
    let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
        return server;
    };
    let mut admin = attache::Admin::new(folder);
    if let (Some(address), Some(keys)) = (operators, access.admin()) {
        admin = admin.listen(address, keys);
    }
    let (all, keys) = (reload.clone(), reload.clone());
    server.admin(
        admin
            .on_reload(move || all.reload_all())
            .on_reload_keys(move || keys.reload_keys()),
    )
}

#[cfg(not(unix))]
fn with_admin(
    server: Server,
    _: Option<&Path>,
    _: (&ReloadableAccess, Option<SocketAddr>),
    _: &Arc<Reloader>,
) -> Server {
    server
}

/// Takes in everything anew whenever the system says so. What comes of it is in the log.
#[cfg(unix)]
async fn reload_on_sighup(reload: &Reloader) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup())?;
    while hangups.recv().await.is_some() {
        let _ = reload.reload_all();
    }
    std::future::pending().await
}

#[cfg(not(unix))]
async fn reload_on_sighup(_: &Reloader) -> anyhow::Result<()> {
    std::future::pending().await
}

/// The server with its store, and where that is, in words.
fn with_store(server: Server, folder: &str, config: &Config) -> anyhow::Result<(Server, String)> {
    match config.store.kind {
        StoreKind::Memory => Ok((server, "in memory, until the program ends".to_owned())),
        StoreKind::Null => Ok((
            server.store(Memory::ephemeral()),
            "nowhere: every answer is a message".to_owned(),
        )),
        StoreKind::Sqlite => {
            let (store, file) = sqlite(folder, config, "--data-dir <DIR>")?;
            Ok((server.store(store), file.display().to_string()))
        }
    }
}

/// The store in its folder; `other` is how to name another.
fn sqlite(folder: &str, config: &Config, other: &str) -> anyhow::Result<(Sqlite, PathBuf)> {
    let folder = data_dir::create(config.store.data_dir.as_deref(), folder)?;
    let file = folder.join("tasks.db");
    let options = Options {
        min_free_bytes: config.store.min_free as u64,
        max_known_tasks: config.store.max_known_tasks,
        ..Options::default()
    };
    let store = Sqlite::open(&file, options).with_context(|| {
        format!(
            "cannot keep tasks in {}; name another folder: {other}",
            folder.display()
        )
    })?;
    Ok((store, file))
}
