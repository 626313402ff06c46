//! `attache serve`: an agent of one's own.

use attache::model::AgentSkill;
use attache::{Agent, AgentCard, Server};
use attache_agents::Echo;

use crate::args::{Serve, Serving};
use crate::serving::{self, Served, Try};

pub(crate) async fn run(args: Serve) -> anyhow::Result<()> {
    #[cfg(unix)]
    if let Some(command) = args.agent.exec {
        let name = command.name().to_owned();
        return run_agent(&name, "Runs a command on the text of a message", command, args.serving).await;
    }
    run_agent("Echo", "Says back what it is told", Echo, args.serving).await
}

async fn run_agent(name: &str, does: &str, agent: impl Agent, serving: Serving) -> anyhow::Result<()> {
    let skill = AgentSkill::new(name.to_lowercase(), name, does).tag("text").example("hello");
    let card = AgentCard::new(name, does).version(env!("CARGO_PKG_VERSION")).skill(skill);
    let served = Served {
        server: Server::new(card, agent),
        folder: "attache",
        tries_webhooks: false,
        tries: [
            Try::say("Say hello", "hello"),
            Try::tasks("Look at its tasks"),
            Try::card("Look at its card"),
        ],
    };
    serving::run(served, serving).await
}
