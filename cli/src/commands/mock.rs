//! `attache mock`: an agent that plays a script, and whatever goes wrong on the way to it.

use anyhow::Context;
use attache::{AgentCard, Served};
use attache_agents::Script;

use crate::args::Mock;
use crate::config::Config;
use crate::serving::{self, Serving, Try};

pub(crate) async fn run(args: Mock) -> anyhow::Result<()> {
    let config = Config::load(None, &serving::environment, &args.serving.given())?;
    let name = args.file.display();
    let text =
        std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {name}"))?;
    let script = Script::parse(&text).with_context(|| format!("{name} is no script"))?;
    let faults = script.faults().to_vec();
    let card = AgentCard::new("Mock", "Plays a script").version(env!("CARGO_PKG_VERSION"));
    let card = card.input_modes(["*/*"]).output_modes(["*/*"]);
    let card = script.skills().fold(card, AgentCard::skill);
    let serving = Serving {
        agents: vec![Served::new("mock", card, script)],
        folder: "attache/mock",
        tries_webhooks: true,
        tries: [
            Try::say("Say hello", "hello"),
            Try::tasks("Look at its tasks"),
            Try::card("Look at its card"),
        ],
        faults,
        again: None,
    };
    serving::run(serving, &config).await
}
