//! `attache demo`: an agent to practise on.

use std::error::Error as _;
use std::io::{self, Write};

use anyhow::Context;
use attache::model::AgentSkill;
use attache::store::Sqlite;
use attache::store::sqlite::Options;
use attache::{AgentCard, Bound, Server};
use attache_agents::Echo;

use crate::args::{Demo, StoreKind};
use crate::data_dir;

/// A request that works as it is: no quote in it ends the quotes around it.
const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}"#;

/// Serves until it is interrupted; then ends what has begun, or at once when interrupted again.
pub(crate) async fn run(args: Demo) -> anyhow::Result<()> {
    let (server, place) = server(&args)?;
    let bound = server.bind(&args.listen).await.map_err(|error| cannot_listen(&args.listen, error))?;
    let (mut first, mut again) = (Interrupts::new()?, Interrupts::new()?);
    greet(&bound, &place).context("cannot write to stdout")?;
    let twice = async {
        again.next().await;
        again.next().await;
    };
    tokio::select! {
        served = bound.serve_until(first.next()) => Ok(served?),
        () = twice => Ok(()),
    }
}

/// The server with its store, and where that is, in words.
fn server(args: &Demo) -> anyhow::Result<(Server, String)> {
    let server = Server::new(card(), Echo);
    match args.store {
        StoreKind::Memory => Ok((server, "in memory, until the program ends".to_owned())),
        StoreKind::Sqlite => {
            let file = data_dir::make(args.data_dir.as_deref(), "demo")?.join("tasks.db");
            let store = Sqlite::open(&file, Options::default())?;
            Ok((server.store(store), file.display().to_string()))
        }
    }
}

fn card() -> AgentCard {
    let echo = AgentSkill::new("echo", "Echo", "Writes the text of a message into an artifact");
    let card = AgentCard::new("Attache demo", "A practice agent that says back what it is told");
    card.version(env!("CARGO_PKG_VERSION")).skill(echo.tag("demo").example("hello"))
}

fn greet(bound: &Bound, place: &str) -> io::Result<()> {
    let url = bound.url();
    let mut out = io::stdout().lock();
    writeln!(out, "Listening on {url}")?;
    writeln!(out, "Card: {url}.well-known/agent-card.json")?;
    writeln!(out, "Tasks: {place}")?;
    writeln!(out, "Say hello:")?;
    let headers = "-H 'Content-Type: application/json' -H 'A2A-Version: 1.0'";
    writeln!(out, "  curl -sS '{url}' {headers} -d '{REQUEST}'")?;
    writeln!(out, "Stop with Ctrl-C.")?;
    out.flush()
}

fn cannot_listen(address: &str, error: attache::Error) -> anyhow::Error {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse) {
        let host = address.rsplit_once(':').map_or("127.0.0.1", |(host, _)| host);
        return anyhow::anyhow!(
            "{address} is in use, perhaps by another demo; for a free port type: attache demo --listen {host}:0"
        );
    }
    anyhow::Error::new(error).context(format!("--listen {address}"))
}

/// Ctrl-C, and the system asking the program to end. Heard from the moment this is made.
#[cfg(unix)]
struct Interrupts([tokio::signal::unix::Signal; 2]);

#[cfg(unix)]
impl Interrupts {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct Interrupts;

#[cfg(not(unix))]
impl Interrupts {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
