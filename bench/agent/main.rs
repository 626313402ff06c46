//! Agent for the load generator: the library with default settings and the allocator of `attache`.
//!
//! `agent PORT [memory | sqlite FOLDER] [agents N]`: additional agents are at `/agents/echo-1` and so on. The first word of a message selects the
//! action: `stream N SIZE` writes N chunks, `gate PORT N SIZE` writes them after a byte from that port, `turn` asks a
//! question, `hang` never ends. Any other message is echoed.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;

use attache::model::{AgentSkill, Artifact};
use attache::store::sqlite::Options;
use attache::store::{Memory, Sqlite};
use attache::{
    Agent, AgentCard, Failure, HostedAgent, Outcome, Server, ServerSettings, Settings, Turn,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Task limit of the memory store, raised for the scenarios with 200,000 tasks.
const MAX_TASKS: u64 = 1_000_000;
/// Body limit, raised for the scenarios with large parts. All other settings are defaults.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Allocator of the program `attache` on Linux, x86-64.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

struct Echo;

impl Agent for Echo {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let text = turn.text();
        let mut words = text.split(' ');
        match words.next().unwrap_or_default() {
            "hang" => std::future::pending().await,
            "turn" => return Ok(Outcome::ask("go on")),
            "stream" => stream(&turn, words).await?,
            // Boxed: keeps the future of a hanging turn small.
            "gate" => Box::pin(gate(&turn, words)).await?,
            _ => {
                turn.add_artifact(Artifact::text("out", &*text).with_id("out"))
                    .await
            }
        }
        Ok(Outcome::Completed)
    }
}

/// Writes chunks after a byte from the port in the first word.
async fn gate(turn: &Turn, mut words: impl Iterator<Item = &str>) -> Result<(), Failure> {
    let port = words.next().unwrap_or_default().parse::<u16>()?;
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await?
        .read_u8()
        .await?;
    stream(turn, words).await
}

/// Writes chunks: the first word is their number, the second their size.
async fn stream(turn: &Turn, mut words: impl Iterator<Item = &str>) -> Result<(), Failure> {
    let count: usize = words.next().unwrap_or("100").parse()?;
    let size: usize = words.next().unwrap_or("50").parse()?;
    let fill = "x".repeat(size.saturating_sub(11));
    let mut writer = turn.writer("out").with_id("out");
    for number in 0..count {
        let mut chunk = String::with_capacity(size);
        write!(chunk, "chunk-{number:04} {fill}")?;
        writer.write(chunk).await;
    }
    writer.finish().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (port, rest) = words
        .split_first()
        .ok_or("usage: agent PORT [memory | sqlite FOLDER] [agents N]")?;
    let (rest, agents) = match rest {
        [rest @ .., "agents", number] => (rest, number.parse()?),
        rest => (rest, 1),
    };
    let mut settings = Settings::default();
    let mut serving = ServerSettings::default();
    serving.max_body_bytes = MAX_BODY_BYTES;
    let mut card = AgentCard::new("echo", "Echoes");
    card.skills
        .push(AgentSkill::new("echo", "Echo", "Echoes text"));
    card.default_input_modes = vec!["*/*".to_owned()];
    let server = Server::new(card.clone(), Echo).server_settings(serving);
    let served = |number: u32| HostedAgent::new(format!("echo-{number}"), card.clone(), Echo);
    let server = (1..agents).map(served).fold(server, Server::agent);
    let server = match rest {
        ["sqlite", folder] => server.store(Sqlite::open(
            Path::new(folder).join("tasks.db"),
            Options::default(),
        )?),
        _ => {
            settings.max_tasks = Some(MAX_TASKS);
            server.store(Memory::new())
        }
    };
    server
        .settings(settings)
        .serve((Ipv4Addr::LOCALHOST, port.parse()?))
        .await?;
    Ok(())
}
