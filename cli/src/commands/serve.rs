//! `attache serve`: the agents of a configuration file, or one of one's own in a line.

use std::io::{self, Write};

use anyhow::bail;
use attache::model::AgentSkill;
use attache::{Agent, AgentCard, Served};
use attache_agents::Echo;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::args::Serve;
use crate::config::{self, Config};
use crate::serving::{self, Again, Serving, Try};

/// Where tasks are kept, in the user's data directory.
pub(super) const FOLDER: &str = "attache";

const TRIES: [Try; 3] = [
    Try::say("Say hello", "hello"),
    Try::tasks("Look at its tasks"),
    Try::card("Look at its card"),
];

pub(crate) async fn run(args: Serve) -> anyhow::Result<()> {
    let given = args.serving.given();
    let config = Config::load(args.agent.file.as_deref(), &serving::environment, &given)?;
    if args.print_config {
        return Ok(io::stdout().write_all(config::print(&config)?.as_bytes())?);
    }
    #[cfg(unix)]
    if let Some(command) = args.agent.exec {
        let name = command.name().to_owned();
        let card = card(&name, "Runs a command on the text of a message");
        return run_agent(card, command, &config).await;
    }
    let Some(file) = args.agent.file else {
        let card = card("Echo", "Says back what it is told")
            .input_modes(["*/*"])
            .output_modes(["*/*"]);
        return run_agent(card, Echo, &config).await;
    };
    let (agents, odd) = config.open().await?;
    odd.iter().for_each(|odd| eprintln!("warning: {odd}"));
    if agents.is_empty() {
        bail!("{} has no agents; add one: [agents.<name>]", file.display());
    }
    let again: Again = Box::new(move || {
        let config = Config::load(Some(&file), &serving::environment, &given)?;
        // Whoever reloads waits for it.
        let opened = block_in_place(|| Handle::current().block_on(config.open()));
        let (agents, odd) = opened?;
        odd.iter().for_each(|odd| tracing::warn!("{odd}"));
        Ok((config, agents))
    });
    serving::run(served(agents, Some(again)), &config).await
}

fn served(agents: Vec<Served>, again: Option<Again>) -> Serving {
    Serving {
        agents,
        folder: FOLDER,
        tries_webhooks: false,
        tries: TRIES,
        faults: Vec::new(),
        again,
    }
}

fn card(name: &str, does: &str) -> AgentCard {
    let skill = AgentSkill::new(name.to_lowercase(), name, does)
        .tag("text")
        .example("hello");
    AgentCard::new(name, does)
        .version(env!("CARGO_PKG_VERSION"))
        .skill(skill)
}

async fn run_agent(card: AgentCard, agent: impl Agent, config: &Config) -> anyhow::Result<()> {
    serving::run(
        served(vec![Served::new(card.name.clone(), card, agent)], None),
        config,
    )
    .await
}
