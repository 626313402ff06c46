//! Minimal agent that echoes the message. Try it with the request in the README.

use attache::{Agent, AgentCard, Failure, Outcome, Server, Turn};

struct Echo;

impl Agent for Echo {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        turn.write("echo", turn.text()).await;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    Server::new(AgentCard::new("Echo", "Echoes the message"), Echo)
        .serve("127.0.0.1:8080")
        .await
}
