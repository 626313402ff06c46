//! Two agents on one server. The first has two tenants, whose tasks are separate.
//!
//! `cargo run --example tenants`. The tenant is part of the path: `/blue/message:send`. The second agent has a path of
//! its own: `attache send -a http://127.0.0.1:8080/agents/shout hello`.

use attache::{AgentCard, AgentSettings, Failure, HostedAgent, Outcome, Server, Turn};

async fn echo(turn: Turn) -> Result<Outcome, Failure> {
    let tenant = &turn.call().scope.tenant;
    turn.write("echo", format!("{tenant}: {}", turn.text()))
        .await;
    Ok(Outcome::Completed)
}

async fn shout(turn: Turn) -> Result<Outcome, Failure> {
    turn.write("shout", turn.text().to_uppercase()).await;
    Ok(Outcome::Completed)
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1);
    let shout = HostedAgent::new("shout", AgentCard::new("Shout", "In capitals"), shout).settings(
        AgentSettings {
            max_turns: Some(8),
            ..AgentSettings::default()
        },
    );
    Server::new(AgentCard::new("Echo", "Echoes the message"), echo)
        .tenants(["blue", "red"])
        .agent(shout)
        .serve(address.as_deref().unwrap_or("127.0.0.1:8080"))
        .await
}
