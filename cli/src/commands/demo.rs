//! `attache demo`: the practice agent, on this machine.

use attache::{AgentCard, Served};
use attache_agents::practice;

use crate::args;
use crate::config::Config;
use crate::serving::{self, Serving, Try};

pub(crate) async fn run(args: args::Serving) -> anyhow::Result<()> {
    let config = Config::load(None, &serving::environment, &args.given())?;
    let agent = practice();
    let card = AgentCard::new("Attache demo", "A practice agent that shows everything an agent can do");
    let card = agent.skills().fold(card.version(env!("CARGO_PKG_VERSION")), AgentCard::skill);
    let name = card.name.clone();
    let serving = Serving {
        agents: vec![Served::new(name, card, agent)],
        folder: "attache/demo",
        tries_webhooks: true,
        tries: [
            Try::say("Say hello", "hello"),
            Try::say("Ask what else it can do", "help"),
            Try::tasks("Look at its tasks"),
        ],
        faults: Vec::new(),
    };
    serving::run(serving, &config).await
}
