//! Agent that echoes messages.

use attache::{Agent, Failure, Outcome, Turn};

/// Writes the text of every message into an artifact named `echo`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Agent for Echo {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        turn.write("echo", turn.text()).await;
        Ok(Outcome::Completed)
    }
}
