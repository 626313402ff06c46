//! An agent that asks the caller a question, with a form for programs, and continues with the answer.
//!
//! `cargo run --example ask`, then `attache chat -a http://127.0.0.1:8080`: order tea, then answer 2.

use attache::model::{Json, Role};
use attache::{Agent, AgentCard, Failure, Outcome, Question, Server, Turn};

struct Desk;

impl Agent for Desk {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let history = &turn.task().history;
        let messages: Vec<_> = history.iter().filter(|m| m.role == Role::User).collect();
        // The first message has the order. Each further message is an answer.
        let order = messages.first().map(|m| m.text()).unwrap_or_default();
        if messages.len() > 1
            && let Ok(count) = turn.text().trim().parse::<u32>()
        {
            turn.write("receipt", format!("{count} x {order}")).await;
            return Ok(Outcome::Completed);
        }
        let form = r#"{"type": "object", "properties": {"count": {"type": "integer"}}}"#;
        let question = Question::from(format!("how many of {order}?"));
        Ok(Outcome::ask(question.with_request(Json::parse(form)?)))
    }
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1);
    let card = AgentCard::new("Desk", "Takes orders");
    Server::new(card, Desk)
        .serve(address.as_deref().unwrap_or("127.0.0.1:8080"))
        .await
}
