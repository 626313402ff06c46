//! `attache demo`: the practice agent, on this machine.

use attache::{AgentCard, HostedAgent};
use attache_agents::demo_agent;

use crate::args;
use crate::config::Config;
use crate::server::{self, Example, ServeSpec};

pub(crate) async fn run(args: args::ServerFlags) -> anyhow::Result<()> {
    let config = Config::load(None, &server::environment, &args.flag_values())?;
    let agent = demo_agent();
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
    let serving = ServeSpec {
        agents: vec![HostedAgent::new(name, card, agent)],
        folder: "attache/demo",
        allows_local_webhooks: true,
        examples: [
            Example::say("Say hello", "hello"),
            Example::stream("Watch it write", "stream 5"),
            Example::say("Ask what else it can do", "help"),
        ],
        faults: Vec::new(),
        reread: None,
    };
    server::run(serving, &config).await
}
