//! `attache mock`: serves a scripted agent behind a proxy that injects the faults of the script.

use anyhow::Context;
use attache::{AgentCard, HostedAgent};
use attache_agents::Script;

use crate::args::MockArgs;
use crate::config::Config;
use crate::server::{self, Example, ServeSpec};

pub(crate) async fn run(args: MockArgs) -> anyhow::Result<()> {
    let config = Config::load(None, &server::environment, &args.server.values)?;
    let name = args.file.display();
    let text =
        std::fs::read_to_string(&args.file).with_context(|| format!("cannot read {name}"))?;
    let script = Script::parse(&text).with_context(|| format!("{name} is not a valid script"))?;
    let faults = script.faults().to_vec();
    let card = AgentCard::new("Mock", "Plays a script").version(env!("CARGO_PKG_VERSION"));
    let card = card.input_modes(["*/*"]).output_modes(["*/*"]);
    let card = script.skills().fold(card, AgentCard::skill);
    let spec = ServeSpec {
        agents: vec![HostedAgent::new("mock", card, script)],
        is_configured: false,
        folder: "attache/mock",
        allows_local_webhooks: true,
        examples: [
            Example::send("Say hello", "hello"),
            Example::tasks("Look at its tasks"),
            Example::card("Look at its card"),
        ],
        faults,
        reread: None,
        watched: None,
    };
    server::run(spec, &config).await
}
