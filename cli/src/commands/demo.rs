//! `attache demo`: the practice agent, on this machine.

use attache::{AgentCard, Served};
use attache_agents::practice;

use crate::args;
use crate::config::Config;
use crate::serving::{self, Serving, Try};

pub(crate) async fn run(args: args::Serving) -> anyhow::Result<()> {
    let config = Config::load(None, &serving::environment, &args.given())?;
    let agent = practice();
    let card = AgentCard::new(
        "Attache demo",
        "A practice agent that shows everything an agent can do",
    );
    // It tells of every file that comes in, and gives text, data and a table.
    let card = card
        .input_modes(["text/plain", "application/json", "*/*"])
        .output_modes(["text/plain", "application/json", "text/csv"]);
    let card = agent
        .skills()
        .fold(card.version(env!("CARGO_PKG_VERSION")), AgentCard::skill);
    let name = card.name.clone();
    let serving = Serving {
        agents: vec![Served::new(name, card, agent)],
        folder: "attache/demo",
        tries_webhooks: true,
        tries: [
            Try::say("Say hello", "hello"),
            Try::stream("Watch it write", "stream 5"),
            Try::say("Ask what else it can do", "help"),
        ],
        faults: Vec::new(),
        again: None,
    };
    serving::run(serving, &config).await
}
