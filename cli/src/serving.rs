//! How an agent is served: where it keeps its tasks, where it listens, what is said at the start, how it ends.

mod listen;
mod tries;

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use attache::store::sqlite::Options;
use attache::store::{Memory, Sqlite};
use attache::{Bound, PushSettings, Server};

use crate::access::{self, Reloading};
use crate::args::{Serving, StoreKind};
use crate::data_dir;
use crate::interrupts::Interrupts;
pub(crate) use tries::Try;

/// What is served, and what is said about it.
pub(crate) struct Served {
    pub(crate) server: Server,
    /// Its place in the user's data directory, unless another folder is named.
    pub(crate) folder: &'static str,
    /// Whether webhooks on this machine are called while nobody else reaches it.
    pub(crate) tries_webhooks: bool,
    /// Commands to paste.
    pub(crate) tries: [Try; 3],
}

/// Serves until it is interrupted; then ends what has begun, or at once when interrupted again.
pub(crate) async fn run(served: Served, args: Serving) -> anyhow::Result<()> {
    let folder = data_dir::find(args.data_dir.as_deref(), served.folder);
    let access = access::prepare(&args, folder.as_deref())?;
    let addresses = listen::allowed(&args, access.asks(&args)).await?;
    let (server, place) = with_store(served.server, served.folder, &args)?;
    let mut server = reachable(access::guard(server, &args, &access), folder.as_deref(), &access);
    if let Some(url) = &args.public_url {
        server = server.public_url(url);
    }
    if args.local_webhooks || (served.tries_webhooks && listen::are_private(&addresses)) {
        server = server.push(with_local_webhooks());
    }
    let bound = server.bind(&*addresses).await.map_err(|error| listen::cannot_listen(&args.listen, error))?;
    let (mut first, mut again) = (Interrupts::new()?, Interrupts::new()?);
    greet(&bound, &place, &served.tries, access.asks(&args)).context("cannot write to stdout")?;
    let twice = async {
        again.next().await;
        again.next().await;
    };
    tokio::select! {
        served = bound.serve_until(first.next()) => Ok(served?),
        () = twice => Ok(()),
        told = hangups(&access) => told,
    }
}

/// The library warns of it.
fn with_local_webhooks() -> PushSettings {
    let mut settings = PushSettings::default();
    settings.reach.loopback = true;
    settings
}

/// The server, which the operator reaches while it runs if it has a folder.
#[cfg(unix)]
fn reachable(server: Server, folder: Option<&Path>, access: &Reloading) -> Server {
    let Some(folder) = folder.filter(|folder| folder.is_dir()) else { return server };
    let access = access.clone();
    server.admin(attache::Admin::below(folder).on_reload(move || access.reload()))
}

#[cfg(not(unix))]
fn reachable(server: Server, _: Option<&Path>, _: &Reloading) -> Server {
    server
}

/// Takes in keys and certificates anew whenever the system says so.
#[cfg(unix)]
async fn hangups(access: &Reloading) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup())?;
    while hangups.recv().await.is_some() {
        match access.reload() {
            Ok(()) => eprintln!("Keys and certificates are as they are now."),
            Err(error) => eprintln!("error: keys and certificates are as they were: {error:#}"),
        }
    }
    std::future::pending().await
}

#[cfg(not(unix))]
async fn hangups(_: &Reloading) -> anyhow::Result<()> {
    std::future::pending().await
}

/// The server with its store, and where that is, in words.
fn with_store(server: Server, folder: &str, args: &Serving) -> anyhow::Result<(Server, String)> {
    match args.store {
        StoreKind::Memory => Ok((server, "in memory, until the program ends".to_owned())),
        StoreKind::Null => {
            Ok((server.store(Memory::null()), "nowhere: every answer is a message".to_owned()))
        }
        StoreKind::Sqlite => {
            let folder = data_dir::make(args.data_dir.as_deref(), folder)?;
            let file = folder.join("tasks.db");
            let store = Sqlite::open(&file, Options::default()).with_context(|| {
                format!("cannot keep tasks in {}; name another folder: --data-dir <DIR>", folder.display())
            })?;
            Ok((server.store(store), file.display().to_string()))
        }
    }
}

/// The first line is for scripts, which wait for it.
fn greet(bound: &Bound, place: &str, tries: &[Try], asks: bool) -> io::Result<()> {
    let (url, public) = (bound.local_url(), bound.url());
    let mut out = io::stdout().lock();
    writeln!(out, "Listening on {url}")?;
    if public != url {
        writeln!(out, "Public: {public}")?;
    }
    writeln!(out, "Card: {}", tries::card(&url))?;
    writeln!(out, "Tasks: {place}")?;
    if asks {
        writeln!(out, "Callers are asked who they are; with a key add: -H 'Authorization: Bearer <KEY>'")?;
    }
    for attempt in tries {
        writeln!(out, "{}:", attempt.about())?;
        writeln!(out, "  {}", attempt.command(&url))?;
    }
    writeln!(out, "Stop with Ctrl-C.")?;
    out.flush()
}
