//! `attache mcp`: agents as the tools of an MCP server. Over stdin and stdout, nothing else is written to stdout.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use attache::Local;
use attache::model::{Binding, Secret, Version};
use attache_agents::{Faced, McpFace};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::{Common, Mcp};
use crate::config::{Config, Given};
use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use crate::output::Output;
use crate::serving;
use crate::session::Session;
use crate::settings::{Format, duration};
use crate::typed;

/// Where those keep their tasks that run here, in the user's data directory.
const FOLDER: &str = "attache/mcp";

/// How long is waited for what has begun, at the end.
const END: Duration = Duration::from_secs(2);

/// Blocks. A read of stdin cannot be called off on every system, and would keep the program until somebody types: so it
/// has a runtime of its own, which is left when all else has ended.
pub(crate) fn run(args: Mcp) -> ExitCode {
    let runtime =
        tokio::runtime::Runtime::new().map_err(|error| Failure::internal(error.to_string()));
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(served(args));
        runtime.shutdown_timeout(END);
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // To stderr, however results are wanted.
            Output::plain(Format::Text, false).failure(&failure);
            ExitCode::from(failure.exit)
        }
    }
}

async fn served(args: Mcp) -> Outcome {
    let mut interrupts = Interrupts::new().map_err(|error| Failure::internal(error.to_string()))?;
    let wait = duration::parse(&args.wait);
    let wait =
        wait.ok_or_else(|| Failure::usage("--wait must be a duration such as 500ms, 2s or 1m30s"))?;
    let stop = CancellationToken::new();
    let serve = serve(args, wait, stop.clone());
    tokio::select! {
        served = serve => served,
        () = interrupts.next() => {
            stop.cancel();
            Ok(())
        }
    }
}

async fn serve(args: Mcp, wait: Duration, stop: CancellationToken) -> Outcome {
    // Before anybody is asked: where it cannot listen, nothing needs to be begun.
    let door = match &args.listen {
        Some(listen) => Some(open(listen, &args).await?),
        None => None,
    };
    let mut agents = Vec::new();
    for reference in &args.agents {
        agents.push(distant(reference).await?);
    }
    // Runs as long as it is held.
    let _here = match &args.file {
        Some(file) => Some(here(file, &mut agents).await?),
        None => None,
    };
    let face = McpFace::new(agents, wait);
    match door {
        Some((listener, key)) => {
            if let Ok(address) = listener.local_addr() {
                writeln!(std::io::stdout(), "Listening on http://{address}/mcp")?;
            }
            face.serve_http(listener, key, args.host, stop).await;
            Ok(())
        }
        None => face
            .serve_stdio(stop)
            .await
            .map_err(|error| Failure::internal(error.to_string())),
    }
}

/// An agent elsewhere, with what goes along to it as for every other verb.
async fn distant(reference: &str) -> Outcome<Faced> {
    let common = Common {
        agent_card: Some(reference.to_owned()),
        ..Common::default()
    };
    let settings = typed::settings(&common)?;
    let mut out = Output::new(&settings);
    let session = Session::open(&settings, &mut out).await?;
    Ok(Faced {
        name: session.card.name.clone(),
        card: session.card,
        client: session.client,
    })
}

/// The agents of a file, in this process.
async fn here(file: &std::path::Path, agents: &mut Vec<Faced>) -> Outcome<Local> {
    let wrong =
        |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error:#}", file.display()));
    let config = Config::load(Some(file), &serving::environment, &Given::default());
    let config = config.map_err(|complaint| wrong(&complaint))?;
    let (served, odd) = config.open().await.map_err(|complaint| wrong(&complaint))?;
    odd.iter().for_each(|odd| eprintln!("warning: {odd}"));
    let cards: Vec<_> = served
        .iter()
        .map(|one| (one.name().to_owned(), one.card().clone()))
        .collect();
    let local = serving::within(served, FOLDER, &config)
        .await
        .map_err(|error| wrong(&error))?;
    for (name, card) in cards {
        let client = local.client_of(&name, Binding::JsonRpc, Version::V1);
        let client = client.map_err(|error| Failure::internal(error.message().to_owned()))?;
        agents.push(Faced { name, card, client });
    }
    Ok(local)
}

/// Listens; for others than this machine only with a key.
async fn open(listen: &str, args: &Mcp) -> Outcome<(TcpListener, Option<Secret>)> {
    let unusable = |error| Failure::usage(format!("--listen {listen}: {error}"));
    let key = match &args.key_file {
        Some(file) => {
            let key = std::fs::read_to_string(file);
            let unread = |error| Failure::usage(format!("cannot read {}: {error}", file.display()));
            Some(key.map_err(unread)?.trim().to_owned())
        }
        None => std::env::var("ATTACHE_MCP_KEY").ok(),
    };
    let key = key.filter(|key| !key.is_empty()).map(Secret::from);
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(listen)
        .await
        .map_err(unusable)?
        .collect();
    if key.is_none() && !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(Failure::usage(format!(
            "--listen {listen}: others can reach it, and there is no key"
        ))
        .hint("write one to a file and name that: --key-file <FILE>"));
    }
    Ok((TcpListener::bind(&*addresses).await.map_err(unusable)?, key))
}
