//! `attache demo`: an agent to practise on.

use attache::{AgentCard, Server};
use attache_agents::practice;

use crate::args::Serving;
use crate::serving::{self, Served, Try};

pub(crate) async fn run(serving: Serving) -> anyhow::Result<()> {
    let agent = practice();
    let card = AgentCard::new("Attache demo", "A practice agent that shows everything an agent can do");
    // It tells of every file that comes in, and gives text, data and a table.
    let card = card.input_modes(["text/plain", "application/json", "*/*"]).output_modes([
        "text/plain",
        "application/json",
        "text/csv",
    ]);
    let card = agent.skills().fold(card.version(env!("CARGO_PKG_VERSION")), AgentCard::skill);
    let served = Served {
        server: Server::new(card, agent),
        folder: "attache/demo",
        tries_webhooks: true,
        tries: [
            Try::say("Say hello", "hello"),
            Try::stream("Watch it write", "stream 5"),
            Try::say("Ask what else it can do", "help"),
        ],
    };
    serving::run(served, serving).await
}
