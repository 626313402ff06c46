//! `attache serve`: serves the agents of a configuration file, an echo agent or a command.

use std::io::{self, Write};

use anyhow::bail;
use attache::model::AgentSkill;
use attache::{Agent, AgentCard, HostedAgent};
use attache_agents::Echo;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::args::ServeArgs;
use crate::config::{self, Config};
use crate::server::{self, ConfigReader, Example, ServeSpec};

/// Directory of the tasks, in the user's data directory.
pub(super) const DATA_DIR_NAME: &str = "attache";

const EXAMPLES: [Example; 3] = [
    Example::send("Say hello", "hello"),
    Example::tasks("Look at its tasks"),
    Example::card("Look at its card"),
];

pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let flags = args.server.values;
    let mut config = Config::load(args.agent.file.as_deref(), &server::environment, &flags)?;
    if args.print_config {
        return Ok(io::stdout().write_all(config::print(&config)?.as_bytes())?);
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
    let Some(file) = args.agent.file else {
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
        let mut config = Config::load(Some(&file), &server::environment, &flags)?;
        config.supervisor.clone_from(&supervisor);
        // Reloads are synchronous, and rare.
        let opened = block_in_place(|| Handle::current().block_on(config.open_agents()));
        let (agents, warnings) = opened?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok((config, agents))
    });
    server::run(served(agents, Some(reread)), &config).await
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
