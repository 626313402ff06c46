//! `attache demo`: serves the demo agent.

use attache::{AgentCard, HostedAgent};
use attache_agents::demo_agent;

use crate::args;
use crate::config::Config;
use crate::server::{self, Example, ServeSpec};

/// Directory of the tasks, in the user's data directory.
pub(super) const DATA_DIR_NAME: &str = "attache/demo";

pub(crate) async fn run(args: args::ServerFlags) -> anyhow::Result<()> {
    let config = Config::load(None, &server::environment, &args.values)?;
    let agent = demo_agent();
    let card = AgentCard::new(
        "Attache demo",
        "A demo agent that shows everything an agent can do",
    );
    // It describes each file it receives, and produces text, data and a table.
    let card = card
        .input_modes(["text/plain", "application/json", "*/*"])
        .output_modes(["text/plain", "application/json", "text/csv"]);
    let card = agent
        .skills()
        .fold(card.version(env!("CARGO_PKG_VERSION")), AgentCard::skill);
    let name = card.name.clone();
    let spec = ServeSpec {
        agents: vec![HostedAgent::new(name, card, agent)],
        is_configured: false,
        folder: DATA_DIR_NAME,
        allows_local_webhooks: true,
        examples: [
            Example::send("Say hello", "hello"),
            Example::stream("Watch it write", "stream 5"),
            Example::send("Ask what else it can do", "help"),
        ],
        faults: Vec::new(),
        reread: None,
        watched: None,
    };
    server::run(spec, &config).await
}
