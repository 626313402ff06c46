//! The agent of docs/tutorials/first-agent.md: streams, asks back, and runs again after a crash.

use std::time::Duration;

use attache::store::Sqlite;
use attache::store::sqlite::Options;
use attache::{Agent, AgentCard, Failure, Outcome, RestartPolicy, Server, Settings, Turn};

struct Tides;

impl Agent for Tides {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let harbour = turn.text();
        if harbour.trim() == "tides" {
            return Ok(Outcome::ask("Which harbour?"));
        }
        // A fixed id: a second attempt replaces the artifact of the first.
        let mut table = turn.writer("tides").with_id("tides");
        let heading = format!("{harbour}, attempt {}\n", turn.attempt());
        table.write(heading).await;
        for time in ["03:12", "09:24", "15:40", "21:51"] {
            tokio::time::sleep(Duration::from_secs(2)).await;
            table.write(format!("{time}\n")).await;
        }
        table.finish().await;
        Ok(Outcome::Completed)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let settings = Settings {
        on_restart: RestartPolicy::RunAgain { attempts: 3 },
        ..Settings::default()
    };
    let server = Server::new(AgentCard::new("Tides", "Knows the tides"), Tides)
        .store(Sqlite::open("tasks.db", Options::default())?)
        .settings(settings)
        .bind(address.as_deref().unwrap_or("127.0.0.1:41241"))
        .await?;
    println!("Listening on {}", server.url());
    server.serve().await?;
    Ok(())
}
