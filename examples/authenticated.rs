//! A server with API keys: `ann` may deploy, `bob` may only ask for the status.
//!
//! `cargo run --example authenticated` prints both keys. Then call it with
//! `A2ACLI_BEARER=<KEY> attache send -a http://127.0.0.1:8080 status`.

use attache::auth::{Access, AccessRule, ApiKeys};
use attache::model::AgentSkill;
use attache::{Agent, AgentCard, Failure, Outcome, Server, Turn};

struct Deployer;

impl Agent for Deployer {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let caller = turn.caller().name();
        turn.write("log", format!("{caller}: {}", turn.text()))
            .await;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1);
    let keys = ApiKeys::new();
    let ann = keys.issue("ann", |caller| caller.scopes(["deploy"]));
    let bob = keys.issue("bob", |caller| caller);
    println!("ann {}\nbob {}", ann.expose(), bob.expose());

    // A message names its skill in `metadata.skillId`. The rule refuses it without the scope.
    let access = Access::new(keys).rule(AccessRule::require(["deploy"]).skill("deploy"));
    let skill = AgentSkill::new("deploy", "Deploy", "Deploys a service");
    let card = AgentCard::new("Deployer", "Deploys").skill(skill);
    Server::new(card, Deployer)
        .access(access)
        .serve(address.as_deref().unwrap_or("127.0.0.1:8080"))
        .await
}
