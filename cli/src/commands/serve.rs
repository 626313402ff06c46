//! `attache serve`: serves the agents of a configuration file, an echo agent or a command.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use attache::model::AgentSkill;
use attache::{Agent, AgentCard, HostedAgent};
use attache_agents::Echo;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::args::ServeArgs;
#[cfg(unix)]
use crate::config::AgentConfig;
use crate::config::{Config, ConfigError, FlagValues, PrintedConfig};
use crate::error::CliError;
use crate::output::Output;
use crate::server::{self, ConfigReader, Example, ServeSpec, WatchedFiles};

/// Directory of the tasks, in the user's data directory.
pub(super) const DATA_DIR_NAME: &str = "attache";

const EXAMPLES: [Example; 3] = [
    Example::send("Say hello", "hello"),
    Example::tasks("Look at its tasks"),
    Example::card("Look at its card"),
];

const HINT_NO_FILE: &str =
    "write one with `attache init`, name a file, or serve one agent: --echo or --exec <COMMAND>";

/// Configuration file in the working directory, unless another one is given.
const DEFAULT_FILE: &str = "agents.toml";

/// The given configuration file, else the one in the working directory. `hint` is for the user who has none.
///
/// # Errors
/// There is none.
pub(super) fn config_file(named: Option<&Path>, hint: &str) -> Result<PathBuf, CliError> {
    if let Some(file) = named {
        return Ok(file.to_owned());
    }
    let file = PathBuf::from(DEFAULT_FILE);
    if file.is_file() {
        return Ok(file);
    }
    Err(CliError::usage(format!("there is no {DEFAULT_FILE} in this directory")).hint(hint))
}

pub(crate) async fn run(args: ServeArgs, words: &[OsString]) -> anyhow::Result<()> {
    let flags = args.server.values;
    let has_own_agent = args.agent.has_own_agent();
    let file = match &args.agent.file {
        _ if has_own_agent => None,
        named => Some(config_file(named.as_deref(), HINT_NO_FILE)?),
    };
    let mut config = load(file.as_deref(), &flags)?;
    let watched = file.as_deref().filter(|_| args.watch);
    let watched = watched.map(|file| WatchedFiles::new(file, config.worker_files()));
    if args.print_config {
        let printed = PrintedConfig::new(&config)?;
        let mut out = Output::for_command_line(words);
        if out.is_json() {
            out.print_json(&printed.to_json())?;
            return Ok(());
        }
        return Ok(io::stdout().write_all(printed.to_toml().as_bytes())?);
    }
    config.supervisor = server::supervisor(DATA_DIR_NAME, &config);
    #[cfg(unix)]
    if let Some(mut command) = args.agent.exec {
        if let Some(supervisor) = &config.supervisor {
            command = command.supervisor(supervisor.clone());
        }
        let card = card(command.name(), "Runs a command on the text of a message");
        return run_agent(card, command, &config).await;
    }
    let Some(file) = file else {
        let card = card("Echo", "Says back what it is told")
            .input_modes(["*/*"])
            .output_modes(["*/*"]);
        return run_agent(card, Echo, &config).await;
    };
    let agents = config.build_agents()?;
    if agents.is_empty() {
        bail!("{} has no agents; add one: [agents.<name>]", file.display());
    }
    let supervisor = config.supervisor.clone();
    let reread: ConfigReader = Box::new(move || {
        let mut config = load(Some(&file), &flags)?;
        config.supervisor.clone_from(&supervisor);
        // A reload that breaks an agent is not applied.
        config.requires_workers = true;
        // Reloads are synchronous, and rare.
        let opened = block_in_place(|| Handle::current().block_on(config.open_agents()));
        let (agents, warnings) = opened?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok((config, agents))
    });
    let spec = ServeSpec {
        watched,
        ..served(agents, Some(reread))
    };
    server::run(spec, &config).await
}

/// Loads a configuration file, or the defaults for an agent in a file of its own.
fn load(file: Option<&Path>, flags: &FlagValues) -> Result<Config, ConfigError> {
    #[cfg(unix)]
    if let Some(file) = file.filter(|file| is_agent_file(file)) {
        let mut config = Config::load(None, &server::environment, flags)?;
        config.agents.push(AgentConfig::worker(file));
        config.requires_workers = true;
        return Ok(config);
    }
    Config::load(file, &server::environment, flags)
}

/// Whether a file is an agent in Python, JavaScript or TypeScript.
#[cfg(unix)]
fn is_agent_file(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("py" | "mjs" | "js" | "cjs" | "ts" | "mts"))
}

fn served(agents: Vec<HostedAgent>, reread: Option<ConfigReader>) -> ServeSpec {
    ServeSpec {
        agents,
        is_configured: reread.is_some(),
        folder: DATA_DIR_NAME,
        allows_local_webhooks: false,
        examples: EXAMPLES,
        faults: Vec::new(),
        reread,
        watched: None,
    }
}

fn card(name: &str, description: &str) -> AgentCard {
    let skill = AgentSkill::new(name.to_lowercase(), name, description)
        .tag("text")
        .example("hello");
    AgentCard::new(name, description)
        .version(env!("CARGO_PKG_VERSION"))
        .skill(skill)
}

async fn run_agent(card: AgentCard, agent: impl Agent, config: &Config) -> anyhow::Result<()> {
    server::run(
        served(vec![HostedAgent::new(card.name.clone(), card, agent)], None),
        config,
    )
    .await
}
