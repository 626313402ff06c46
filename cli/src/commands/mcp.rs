//! `attache mcp`: offers agents as the tools of an MCP server, over stdio or HTTP. With stdio, stdout carries only MCP
//! messages.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use attache::InProcessServer;
use attache::model::{Binding, Secret, Version, units};
use attache_agents::{ExposedAgent, McpHttpSettings, McpServer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::{CommonFlags, McpArgs, McpLimitArgs};
use crate::config::{Config, FlagValues};
use crate::docs::mcp_documents::DocsPages;
use crate::error::{CliError, CliResult};
use crate::interrupts::Interrupts;
use crate::output::Output;
use crate::server;
use crate::session::Session;
use crate::settings::{OutputFormat, Settings, duration, flags};

/// Directory of the tasks of local agents, in the user's data directory.
const DATA_DIR_NAME: &str = "attache/mcp";

/// Time for running work to end at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the server, and blocks. A read of stdin cannot be cancelled on every platform and would delay the exit until the
/// next input. The server therefore has its own runtime, whose shutdown has a timeout.
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
        Err(error) => {
            // Errors go to stderr: stdout belongs to MCP.
            Output::with_format(OutputFormat::Text, false).print_error(&error);
            ExitCode::from(error.exit)
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
    // Bind first: without an address nothing else needs to start.
    let listener = match &args.listen {
        Some(listen) => {
            let settings = http_settings(&args, wait)?;
            Some((bind(listen, &args, &settings).await?, settings))
        }
        None => None,
    };
    let mut agents = Vec::new();
    for reference in &args.agents {
        agents.push(remote_agent(reference).await?);
    }
    // The agents run until this is dropped.
    let _local = match &args.file {
        Some(file) => Some(local_agents(file, &mut agents).await?),
        None => None,
    };
    let mcp = if args.docs {
        McpServer::with_documents(agents, Box::new(DocsPages::new()), wait)
    } else {
        McpServer::new(agents, wait)
    };
    match listener {
        Some((listener, settings)) => {
            if let Ok(address) = listener.local_addr() {
                writeln!(std::io::stdout(), "Listening on http://{address}/mcp")?;
            }
            mcp.serve_http(listener, settings, stop).await;
            Ok(())
        }
        None => mcp
            .serve_stdio(stop)
            .await
            .map_err(|error| CliError::internal(error.to_string())),
    }
}

/// Connects to a remote agent, with the settings of a client verb.
async fn remote_agent(reference: &str) -> CliResult<ExposedAgent> {
    let common = CommonFlags::default().with(&flags::AGENT_CARD, reference);
    let settings = Settings::load(&common)?;
    let mut out = Output::new(&settings);
    let session = Session::open(&settings, &mut out).await?;
    Ok(ExposedAgent {
        name: session.card.name.clone(),
        card: session.card,
        client: session.client,
    })
}

/// Starts the agents of a configuration file in this process, and adds them to `agents`.
async fn local_agents(
    file: &std::path::Path,
    agents: &mut Vec<ExposedAgent>,
) -> CliResult<InProcessServer> {
    let invalid =
        |error: &dyn std::fmt::Display| CliError::usage(format!("{}: {error:#}", file.display()));
    let config = Config::load(Some(file), &server::environment, &FlagValues::default());
    let config = config.map_err(|error| invalid(&error))?;
    let local = server::serve_local(DATA_DIR_NAME, config)
        .await
        .map_err(|error| invalid(&error))?;
    for (name, card) in local.cards {
        let client = local
            .server
            .client_for(&name, Binding::JsonRpc, Version::V1);
        let client = client.map_err(|error| CliError::internal(error.message().to_owned()))?;
        agents.push(ExposedAgent { name, card, client });
    }
    Ok(local.server)
}

/// Binds the listener. A server that other machines can reach needs a key.
async fn bind(listen: &str, args: &McpArgs, settings: &McpHttpSettings) -> CliResult<TcpListener> {
    let unusable = |error| CliError::usage(format!("--listen {listen}: {error}"));
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(listen)
        .await
        .map_err(unusable)?
        .collect();
    if settings.keys.is_empty() && !args.allow_anonymous {
        check_exposure(listen, &addresses, &args.host)?;
    }
    TcpListener::bind(&*addresses).await.map_err(unusable)
}

/// Returns keys, hosts and limits. A session outlives the longest call.
fn http_settings(args: &McpArgs, wait: Duration) -> CliResult<McpHttpSettings> {
    let mut settings = McpHttpSettings::default();
    settings.keys = read_keys(args)?;
    settings.hosts = args.host.clone();
    set_limits(&mut settings, &args.limits)?;
    if settings.session_timeout <= wait {
        return Err(CliError::usage(
            "--session-timeout must be longer than --wait",
        ));
    }
    let invalid = |error: attache::Error| CliError::usage(error.message().to_owned());
    settings.validate().map_err(invalid)?;
    Ok(settings)
}

fn set_limits(settings: &mut McpHttpSettings, args: &McpLimitArgs) -> CliResult {
    if let Some(total) = args.max_connections {
        settings.max_connections = total;
    }
    if let Some(total) = args.max_sessions {
        settings.max_sessions = total;
    }
    settings.max_connections_per_address = args.max_connections_per_address;
    settings.max_connections_per_caller = args.max_connections_per_caller;
    settings.max_sessions_per_caller = args.max_sessions_per_caller;
    for (flag, text, setting) in [
        (
            "--session-timeout",
            &args.session_timeout,
            &mut settings.session_timeout,
        ),
        (
            "--header-timeout",
            &args.header_timeout,
            &mut settings.header_timeout,
        ),
        (
            "--body-timeout",
            &args.body_timeout,
            &mut settings.body_timeout,
        ),
        (
            "--write-timeout",
            &args.write_timeout,
            &mut settings.write_timeout,
        ),
    ] {
        if let Some(text) = text {
            let time = duration::parse(text).filter(|time| !time.is_zero());
            *setting = time.ok_or_else(|| {
                CliError::usage(format!(
                    "{flag} must be a duration such as 500ms, 2s or 1m30s"
                ))
            })?;
        }
    }
    if let Some(text) = &args.max_buffered_body_bytes {
        let size = units::parse_size(text);
        settings.max_buffered_body_bytes = size.ok_or_else(|| {
            CliError::usage("--max-buffered-body-bytes must be a size such as 64MiB")
        })?;
    }
    Ok(())
}

/// Reads the keys of clients from `--key-file`, one per line, or from the environment.
fn read_keys(args: &McpArgs) -> CliResult<Vec<Secret>> {
    let keys = match &args.key_file {
        Some(file) => {
            let unread =
                |error| CliError::usage(format!("cannot read {}: {error}", file.display()));
            std::fs::read_to_string(file).map_err(unread)?
        }
        None => std::env::var("ATTACHE_MCP_KEY").unwrap_or_default(),
    };
    let keys = keys.lines().map(str::trim).filter(|key| !key.is_empty());
    let keys: Vec<Secret> = keys.map(Secret::from).collect();
    match &args.key_file {
        Some(file) if keys.is_empty() => {
            let message = format!("{} has no key", file.display());
            Err(CliError::usage(message))
        }
        Some(_) | None => Ok(keys),
    }
}

/// Checks that only this machine can reach the server: by a loopback address and without other host names, which a proxy
/// would forward.
fn check_exposure(listen: &str, addresses: &[SocketAddr], hosts: &[String]) -> CliResult {
    let is_public = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
    let reason = if addresses.iter().any(is_public) {
        format!("--listen {listen}: other machines can reach it")
    } else if let Some(host) = hosts.first() {
        format!("--host {host}: other machines can reach it")
    } else {
        return Ok(());
    };
    Err(CliError::usage(format!("{reason}, and there is no key"))
        .hint("write a key to a file: --key-file <FILE>, or serve without one: --allow-anonymous"))
}
