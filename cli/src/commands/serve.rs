//! `attache serve`: the agents of a configuration file, or one of one's own in a line.

use anyhow::bail;
use attache::model::AgentSkill;
use attache::{Agent, AgentCard, Served};
use attache_agents::Echo;

use crate::args::Serve;
use crate::config::{self, Config};
use crate::serving::{self, Serving, Try};

const TRIES: [Try; 3] =
    [Try::say("Say hello", "hello"), Try::tasks("Look at its tasks"), Try::card("Look at its card")];

pub(crate) async fn run(args: Serve) -> anyhow::Result<()> {
    let config = Config::load(args.agent.file.as_deref(), &serving::environment, &args.serving.given())?;
    if args.print_config {
        print!("{}", config::print(&config)?);
        return Ok(());
    }
    #[cfg(unix)]
    if let Some(command) = args.agent.exec {
        let name = command.name().to_owned();
        let card = card(&name, "Runs a command on the text of a message");
        return run_agent(card, command, &config).await;
    }
    let Some(file) = &args.agent.file else {
        let card = card("Echo", "Says back what it is told").input_modes(["*/*"]).output_modes(["*/*"]);
        return run_agent(card, Echo, &config).await;
    };
    let (agents, odd) = config.open().await?;
    odd.iter().for_each(|odd| eprintln!("warning: {odd}"));
    if agents.is_empty() {
        bail!("{} has no agents; add one: [agents.<name>]", file.display());
    }
    serving::run(
        Serving { agents, folder: "attache", tries_webhooks: false, tries: TRIES, faults: Vec::new() },
        &config,
    )
    .await
}

fn card(name: &str, does: &str) -> AgentCard {
    let skill = AgentSkill::new(name.to_lowercase(), name, does).tag("text").example("hello");
    AgentCard::new(name, does).version(env!("CARGO_PKG_VERSION")).skill(skill)
}

async fn run_agent(card: AgentCard, agent: impl Agent, config: &Config) -> anyhow::Result<()> {
    let agents = vec![Served::new(card.name.clone(), card, agent)];
    serving::run(
        Serving { agents, folder: "attache", tries_webhooks: false, tries: TRIES, faults: Vec::new() },
        config,
    )
    .await
}
