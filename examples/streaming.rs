//! An agent that streams its answer word by word, with a progress message before.
//!
//! `cargo run --example streaming`, then `attache send -a http://127.0.0.1:8080 --stream "one two three"`.

use std::time::Duration;

use attache::{Agent, AgentCard, Failure, Outcome, Server, Turn};

struct Reader;

impl Agent for Reader {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        turn.say("reading").await;
        let text = turn.text();
        let mut answer = turn.writer("answer");
        for word in text.split_inclusive(' ') {
            answer.write(word).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        answer.finish().await;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1);
    let card = AgentCard::new("Reader", "Reads the message aloud");
    Server::new(card, Reader)
        .serve(address.as_deref().unwrap_or("127.0.0.1:8080"))
        .await
}
