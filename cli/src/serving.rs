//! How agents are served: where they keep their tasks, where they listen, what is said at the start, how it ends.

mod greeting;
mod listen;
mod relay;
mod reload;
mod tries;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use attache::store::sqlite::Options;
use attache::store::{Memory, Sqlite};
use attache::{Bound, Local, Served, Server};
use attache_agents::Fault;

use crate::access::{self, Reloading};
use crate::config::{Config, StoreKind};
use crate::data_dir;
use crate::interrupts::Interrupts;
use crate::telemetry;
use greeting::Greeting;
use relay::Relay;
use reload::Reload;
pub(crate) use tries::Try;

/// What ends within this time ends at once, for whoever waits for it.
const AT_ONCE: Duration = Duration::from_millis(300);

/// What is served, and what is said about it.
pub(crate) struct Serving {
    /// The first is the one at the root.
    pub(crate) agents: Vec<Served>,
    /// Its place in the user's data directory, unless another folder is named.
    pub(crate) folder: &'static str,
    /// Whether webhooks on this machine are called while nobody else reaches it.
    pub(crate) tries_webhooks: bool,
    /// Commands to paste.
    pub(crate) tries: [Try; 3],
    /// What goes wrong with its answers.
    pub(crate) faults: Vec<Fault>,
    /// Reads what is served again, if that can be.
    pub(crate) again: Option<Again>,
}

/// Reads a configuration again, and makes its agents.
pub(crate) type Again = Box<dyn Fn() -> anyhow::Result<(Config, Vec<Served>)> + Send + Sync>;

/// A variable of our environment.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Serves until it is interrupted; then ends what has begun, or at once when interrupted again.
pub(crate) async fn run(serving: Serving, config: &Config) -> anyhow::Result<()> {
    let telemetry = telemetry::serving(&config.telemetry)?;
    let served = served(serving, config).await;
    telemetry.end().await;
    served
}

async fn served(serving: Serving, config: &Config) -> anyhow::Result<()> {
    let folder = data_dir::find(config.store.data_dir.as_deref(), serving.folder);
    let access = access::prepare(config, folder.as_deref())?;
    let asks = access.asks(config);
    let addresses = listen::allowed(config, asks, folder.as_deref()).await?;
    let mut greeting = Greeting::new(&serving, config, &access, folder.as_deref());
    let (server, place) = with_store(
        described(serving.agents, config, &access)?,
        serving.folder,
        config,
    )?;
    // The library warns of webhooks on this machine.
    let local = serving.tries_webhooks && listen::are_private(&addresses);
    let operators = listen::for_operators(&config.server).await?;
    let reload = Arc::new(Reload::new(
        serving.again,
        config,
        access.clone(),
        (folder.clone(), addresses.clone()),
    ));
    let server = reachable(server, folder.as_deref(), (&access, operators), &reload)
        .push(config.push(local));
    let cannot = |error| listen::cannot_listen(&config.server.listen, error);
    greeting.place = place;
    if serving.faults.is_empty() {
        let bound = server.bind(&*addresses).await.map_err(cannot)?;
        greeting.at(bound.local_url(), bound.url(), bound.local_addr());
        #[cfg(unix)]
        greeting.operators(bound.admin_addr());
        return until_interrupted(bound, &reload, config, || greeting.say()).await;
    }
    let relay = Relay::bind(&addresses, serving.faults).await?;
    let (url, address) = (relay.url()?, relay.address()?);
    let bound = server.public_url(&url).bind("127.0.0.1:0").await?;
    let mock = bound.local_addr();
    greeting.at(url.clone(), url, address);
    tokio::select! {
        served = until_interrupted(bound, &reload, config, || greeting.say()) => served,
        () = relay.run(mock) => Ok(()),
    }
}

/// Looks at everything that is looked at before somebody is listened for. Nothing is made, and nobody asked.
///
/// # Errors
/// Why it would not be served.
pub(crate) async fn check(
    agents: Vec<Served>,
    folder: &str,
    config: &Config,
) -> anyhow::Result<()> {
    let folder = data_dir::find(config.store.data_dir.as_deref(), folder);
    let access = access::prepare(config, folder.as_deref())?;
    if let Some(address) = listen::written(&config.server.listen)? {
        listen::check(config, &[address], access.asks(config), folder.as_deref())?;
    }
    if let Some(address) = config
        .server
        .admin_listen
        .as_deref()
        .map(listen::written)
        .transpose()?
        .flatten()
    {
        listen::check_operators(&config.server, address)?;
    }
    // All but the socket, with tasks in memory that nobody will have.
    described(agents, config, &access)?
        .push(config.push(false))
        .local()
        .await?;
    Ok(())
}

/// Serves within this process alone, for those who speak for its agents in another way. Where its folder cannot be used,
/// as when another such process does, tasks are kept in memory, and that is said.
pub(crate) async fn within(
    agents: Vec<Served>,
    folder: &str,
    config: &Config,
) -> anyhow::Result<Local> {
    let server = set_up(server(agents)?, config).push(config.push(false));
    let server = match config.store.kind {
        StoreKind::Memory => server,
        StoreKind::Null => server.store(Memory::null()),
        StoreKind::Sqlite => match sqlite(folder, config, "store.data_dir in the file") {
            Ok((store, _)) => server.store(store),
            Err(error) => {
                eprintln!("warning: tasks are kept in memory until the program ends: {error:#}");
                server
            }
        },
    };
    Ok(server.local().await?)
}

async fn until_interrupted(
    bound: Bound,
    reload: &Reload,
    config: &Config,
    greet: impl FnOnce() -> io::Result<()>,
) -> anyhow::Result<()> {
    let (mut first, mut again, mut heard) =
        (Interrupts::new()?, Interrupts::new()?, Interrupts::new()?);
    reload.begin(bound.running());
    greet().context("cannot write to stdout")?;
    let twice = async {
        again.next().await;
        again.next().await;
    };
    let patience = config.serving.shutdown_delay + config.serving.shutdown_grace;
    let slow = async {
        heard.next().await;
        tokio::time::sleep(AT_ONCE).await;
        eprintln!(
            "Stopping: calls and turns have up to {patience:?} to end; Ctrl-C again to stop at once."
        );
        std::future::pending().await
    };
    tokio::select! {
        served = bound.serve_until(first.next()) => Ok(served?),
        () = twice => Ok(()),
        never = slow => never,
        stopped = hangups(reload) => stopped,
    }
}

/// What is served, but for where its tasks are kept.
fn described(agents: Vec<Served>, config: &Config, access: &Reloading) -> anyhow::Result<Server> {
    access::guard(set_up(server(agents)?, config), config, access)
}

fn server(agents: Vec<Served>) -> anyhow::Result<Server> {
    let mut agents = agents.into_iter();
    let first = agents.next().context("there is no agent to serve")?;
    Ok(agents.fold(Server::of(first), Server::agent))
}

fn set_up(server: Server, config: &Config) -> Server {
    let server = server
        .serving(config.serving.clone())
        .settings(config.settings.clone())
        .limits(config.limits.clone());
    match &config.server.public_url {
        Some(url) => server.public_url(url),
        None => server,
    }
}

/// The server, which the operator reaches while it runs if it has a folder.
#[cfg(unix)]
fn reachable(
    server: Server,
    folder: Option<&Path>,
    (access, operators): (&Reloading, Option<SocketAddr>),
    reload: &Arc<Reload>,
) -> Server {
    let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
        return server;
    };
    let mut admin = attache::Admin::below(folder);
    if let (Some(address), Some(keys)) = (operators, access.admin()) {
        admin = admin.listen(address, keys);
    }
    let (all, keys) = (reload.clone(), reload.clone());
    server.admin(
        admin
            .on_reload(move || all.all())
            .on_new_keys(move || keys.keys()),
    )
}

#[cfg(not(unix))]
fn reachable(
    server: Server,
    _: Option<&Path>,
    _: (&Reloading, Option<SocketAddr>),
    _: &Arc<Reload>,
) -> Server {
    server
}

/// Takes in everything anew whenever the system says so. What comes of it is in the log.
#[cfg(unix)]
async fn hangups(reload: &Reload) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup())?;
    while hangups.recv().await.is_some() {
        let _ = reload.all();
    }
    std::future::pending().await
}

#[cfg(not(unix))]
async fn hangups(_: &Reload) -> anyhow::Result<()> {
    std::future::pending().await
}

/// The server with its store, and where that is, in words.
fn with_store(server: Server, folder: &str, config: &Config) -> anyhow::Result<(Server, String)> {
    match config.store.kind {
        StoreKind::Memory => Ok((server, "in memory, until the program ends".to_owned())),
        StoreKind::Null => Ok((
            server.store(Memory::null()),
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
    let folder = data_dir::make(config.store.data_dir.as_deref(), folder)?;
    let file = folder.join("tasks.db");
    let options = Options {
        min_free: config.store.min_free as u64,
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
