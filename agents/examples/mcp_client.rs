//! The tools of an MCP server as the skills of an agent.
//!
//! `cargo run -p attache-agents --example mcp_client -- 127.0.0.1:8080 mcp-server-time`, then
//! `attache send -a http://127.0.0.1:8080 'get_current_time {"timezone": "Europe/Rome"}'`.

use attache::{AgentCard, Server};
use attache_agents::{McpAgent, McpServerSettings, McpSettings};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:8080".into());
    let server = McpServerSettings {
        command: arguments.collect(),
        ..McpServerSettings::default()
    };
    let agent = McpAgent::new(McpSettings {
        server,
        ..McpSettings::default()
    })?;
    let mut card = AgentCard::new("Clock", "Knows the time");
    card.skills = agent.skills().await?;
    Server::new(card, agent).serve(address).await?;
    Ok(())
}
