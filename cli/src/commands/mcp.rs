//! `attache mcp`: agents as the tools of an MCP server. Over stdin and stdout, nothing else is written to stdout.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use attache::InProcessServer;
use attache::model::{Binding, Secret, Version};
use attache_agents::{ExposedAgent, McpServer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::parse;
use crate::args::{CommonFlags, McpArgs};
use crate::config::{Config, FlagValues};
use crate::error::{CliError, CliResult};
use crate::interrupts::Interrupts;
use crate::output::Output;
use crate::server;
use crate::session::Session;
use crate::settings::{OutputFormat, duration};

/// Where those keep their tasks that run here, in the user's data directory.
const DATA_DIR_NAME: &str = "attache/mcp";

/// How long is waited for what has begun, at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Blocks. A read of stdin cannot be called off on every system, and would keep the program until somebody types: so it
/// has a runtime of its own, which is left when all else has ended.
pub(crate) fn run(args: McpArgs) -> ExitCode {
    let runtime =
        tokio::runtime::Runtime::new().map_err(|error| CliError::internal(error.to_string()));
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(serve_until_interrupted(args));
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        ended
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // To stderr, however results are wanted.
            Output::with_format(OutputFormat::Text, false).print_error(&failure);
            ExitCode::from(failure.exit)
        }
    }
}

async fn serve_until_interrupted(args: McpArgs) -> CliResult {
    let mut interrupts =
        Interrupts::new().map_err(|error| CliError::internal(error.to_string()))?;
    let wait = duration::parse(&args.wait);
    let wait = wait
        .ok_or_else(|| CliError::usage("--wait must be a duration such as 500ms, 2s or 1m30s"))?;
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

async fn serve(args: McpArgs, wait: Duration, stop: CancellationToken) -> CliResult {
    // Before anybody is asked: where it cannot listen, nothing needs to be begun.
    let door = match &args.listen {
        Some(listen) => Some(bind(listen, &args).await?),
        None => None,
    };
    let mut agents = Vec::new();
    for reference in &args.agents {
        agents.push(remote_agent(reference).await?);
    }
    // Runs as long as it is held.
    let _here = match &args.file {
        Some(file) => Some(local_agents(file, &mut agents).await?),
        None => None,
    };
    let face = McpServer::new(agents, wait);
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
            .map_err(|error| CliError::internal(error.to_string())),
    }
}

/// An agent elsewhere, with what goes along to it as for every other verb.
async fn remote_agent(reference: &str) -> CliResult<ExposedAgent> {
    let common = CommonFlags {
        agent_card: Some(reference.to_owned()),
        ..CommonFlags::default()
    };
    let settings = parse::load_settings(&common)?;
    let mut out = Output::new(&settings);
    let session = Session::open(&settings, &mut out).await?;
    Ok(ExposedAgent {
        name: session.card.name.clone(),
        card: session.card,
        client: session.client,
    })
}

/// The agents of a file, in this process.
async fn local_agents(
    file: &std::path::Path,
    agents: &mut Vec<ExposedAgent>,
) -> CliResult<InProcessServer> {
    let wrong =
        |error: &dyn std::fmt::Display| CliError::usage(format!("{}: {error:#}", file.display()));
    let config = Config::load(Some(file), &server::environment, &FlagValues::default());
    let config = config.map_err(|complaint| wrong(&complaint))?;
    let (served, odd) = config
        .open_agents()
        .await
        .map_err(|complaint| wrong(&complaint))?;
    odd.iter().for_each(|odd| eprintln!("warning: {odd}"));
    let cards: Vec<_> = served
        .iter()
        .map(|one| (one.name().to_owned(), one.card().clone()))
        .collect();
    let local = server::serve_local(served, DATA_DIR_NAME, &config)
        .await
        .map_err(|error| wrong(&error))?;
    for (name, card) in cards {
        let client = local.client_for(&name, Binding::JsonRpc, Version::V1);
        let client = client.map_err(|error| CliError::internal(error.message().to_owned()))?;
        agents.push(ExposedAgent { name, card, client });
    }
    Ok(local)
}

/// Listens; for others than this machine only with a key.
async fn bind(listen: &str, args: &McpArgs) -> CliResult<(TcpListener, Option<Secret>)> {
    let unusable = |error| CliError::usage(format!("--listen {listen}: {error}"));
    let key = match &args.key_file {
        Some(file) => {
            let key = std::fs::read_to_string(file);
            let unread =
                |error| CliError::usage(format!("cannot read {}: {error}", file.display()));
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
        return Err(CliError::usage(format!(
            "--listen {listen}: others can reach it, and there is no key"
        ))
        .hint("write one to a file and name that: --key-file <FILE>"));
    }
    Ok((TcpListener::bind(&*addresses).await.map_err(unusable)?, key))
}
