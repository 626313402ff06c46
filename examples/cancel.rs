//! An agent that cleans up when its task is canceled.
//!
//! `cargo run --example cancel`, then `attache send -a http://127.0.0.1:8080 --async count` and `attache task cancel`.

use std::time::Duration;

use attache::{Agent, AgentCard, Failure, Outcome, Server, Turn};

struct Counter;

impl Agent for Counter {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        for second in 1..=600 {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => turn.say(format!("{second} s")).await,
                // The agent has `Settings::cancel_grace` to finish. The task then ends as canceled.
                () = turn.cancelled() => {
                    turn.write("log", format!("stopped after {} s", second - 1)).await;
                    return Ok(Outcome::Completed);
                }
            }
        }
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1);
    let card = AgentCard::new("Counter", "Counts the seconds");
    Server::new(card, Counter)
        .serve(address.as_deref().unwrap_or("127.0.0.1:8080"))
        .await
}
