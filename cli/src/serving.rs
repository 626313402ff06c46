//! How agents are served: where they keep their tasks, where they listen, what is said at the start, how it ends.

mod listen;
mod relay;
mod tries;

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use attache::store::sqlite::Options;
use attache::store::{Memory, Sqlite};
use attache::{Bound, PushSettings, Served, Server, Tls};
use attache_agents::Fault;

use crate::config::{Config, StoreKind};
use crate::data_dir;
use crate::interrupts::Interrupts;
use relay::Relay;
pub(crate) use tries::Try;

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
}

/// A variable of our environment.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Serves until it is interrupted; then ends what has begun, or at once when interrupted again.
pub(crate) async fn run(serving: Serving, config: &Config) -> anyhow::Result<()> {
    let addresses = listen::allowed(&config.server).await?;
    let (server, place) = with_store(server(serving.agents)?, serving.folder, config)?;
    let mut server = set_up(server, config)?;
    if config.push.local_webhooks || (serving.tries_webhooks && listen::are_private(&addresses)) {
        server = server.push(with_local_webhooks());
    }
    let cannot = |error| listen::cannot_listen(&config.server.listen, error);
    if serving.faults.is_empty() {
        let bound = server.bind(&*addresses).await.map_err(cannot)?;
        let (url, public) = (bound.local_url(), bound.url());
        return until_interrupted(bound, || greet(&url, &public, &place, &serving.tries)).await;
    }
    let relay = Relay::bind(&addresses, serving.faults).await?;
    let url = relay.url()?;
    let bound = server.public_url(&url).bind("127.0.0.1:0").await?;
    let mock = bound.local_addr();
    tokio::select! {
        served = until_interrupted(bound, || greet(&url, &url, &place, &serving.tries)) => served,
        () = relay.run(mock) => Ok(()),
    }
}

async fn until_interrupted(bound: Bound, greet: impl FnOnce() -> io::Result<()>) -> anyhow::Result<()> {
    let (mut first, mut again) = (Interrupts::new()?, Interrupts::new()?);
    greet().context("cannot write to stdout")?;
    let twice = async {
        again.next().await;
        again.next().await;
    };
    tokio::select! {
        served = bound.serve_until(first.next()) => Ok(served?),
        () = twice => Ok(()),
    }
}

fn server(agents: Vec<Served>) -> anyhow::Result<Server> {
    let mut agents = agents.into_iter();
    let first = agents.next().context("there is no agent to serve")?;
    Ok(agents.fold(Server::of(first), Server::agent))
}

fn set_up(server: Server, config: &Config) -> anyhow::Result<Server> {
    let mut server = server
        .serving(config.serving.clone())
        .settings(config.settings.clone())
        .limits(config.limits.clone());
    if let Some(url) = &config.server.public_url {
        server = server.public_url(url);
    }
    match (&config.server.tls_cert, &config.server.tls_key) {
        (Some(certificate), Some(key)) => {
            let tls = Tls::from_pem(&read(certificate)?, &read(key)?);
            Ok(server.tls(tls.context("cannot serve over TLS; check tls_cert and tls_key")?))
        }
        (None, None) => Ok(server),
        (Some(_), None) => bail!("TLS needs a key beside its certificate: tls_key, or --tls-key"),
        (None, Some(_)) => bail!("TLS needs a certificate beside its key: tls_cert, or --tls-cert"),
    }
}

/// The library warns of it.
fn with_local_webhooks() -> PushSettings {
    let mut settings = PushSettings::default();
    settings.reach.loopback = true;
    settings
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The server with its store, and where that is, in words.
fn with_store(server: Server, folder: &str, config: &Config) -> anyhow::Result<(Server, String)> {
    match config.store.kind {
        StoreKind::Memory => Ok((server, "in memory, until the program ends".to_owned())),
        StoreKind::Null => {
            Ok((server.store(Memory::null()), "nowhere: every answer is a message".to_owned()))
        }
        StoreKind::Sqlite => {
            let folder = data_dir::make(config.store.data_dir.as_deref(), folder)?;
            let file = folder.join("tasks.db");
            let store = Sqlite::open(&file, Options::default()).with_context(|| {
                format!("cannot keep tasks in {}; name another folder: --data-dir <DIR>", folder.display())
            })?;
            Ok((server.store(store), file.display().to_string()))
        }
    }
}

/// The first line is for scripts, which wait for it.
fn greet(url: &str, public: &str, place: &str, tries: &[Try]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "Listening on {url}")?;
    if public != url {
        writeln!(out, "Public: {public}")?;
    }
    writeln!(out, "Card: {}", tries::card(url))?;
    writeln!(out, "Tasks: {place}")?;
    for attempt in tries {
        writeln!(out, "{}:", attempt.about())?;
        writeln!(out, "  {}", attempt.command(url))?;
    }
    writeln!(out, "Stop with Ctrl-C.")?;
    out.flush()
}
