//! A router in front of two agents: messages that begin with "tea" go to a script, all others to an echo agent.
//!
//! `cargo run -p attache-agents --example router`, then `attache send -a http://127.0.0.1:8080 "tea for two"`.

use attache::{AgentCard, Server};
use attache_agents::{AnyAgent, Echo, RouteTarget, Router, RouterSettings, RoutingRule, Script};

const TEA: &str = r#"
[[rule]]
word = "tea"
steps = [{ write = { name = "tea", text = "tea {args}" } }]
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let target = |name: &str, agent: AnyAgent| RouteTarget {
        name: name.to_owned(),
        agent,
        skills: Vec::new(),
    };
    let agents = [
        target("tea", AnyAgent::new(Script::parse(TEA)?)),
        target("echo", AnyAgent::new(Echo)),
    ];
    let settings = RouterSettings {
        agents: agents.iter().map(|agent| agent.name.clone()).collect(),
        rules: vec![RoutingRule {
            begins: Some("tea".to_owned()),
            to: "tea".to_owned(),
            ..RoutingRule::default()
        }],
        otherwise: Some("echo".to_owned()),
        ..RouterSettings::default()
    };
    let router = Router::new(settings, agents)?;
    Server::new(AgentCard::new("Desk", "Knows whom to ask"), router)
        .serve(address.as_deref().unwrap_or("127.0.0.1:8080"))
        .await?;
    Ok(())
}
