//! The server process that is killed, and its handle in the test.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use attache::model::Part;
use attache::store::Sqlite;
use attache::store::sqlite::Options;
use attache::{
    AgentCard, AgentSettings, Failure, HostedAgent, Outcome, RestartPolicy, Server, Settings, Turn,
};
use tokio::sync::oneshot;

use super::number;
use crate::harness::with_deadline;

/// Environment variable with the folder of the database. Its presence makes the test a server.
pub(super) const CHILD: &str = "ATTACHE_CRASH_CHILD";
/// Environment variable with the maximum number of attempts of a turn; 1 if unset.
pub(super) const ATTEMPTS: &str = "ATTACHE_CRASH_ATTEMPTS";
pub(super) const FILE: &str = "tasks.db";
const ADDRESS: &str = "listening on ";
/// Name of the agent whose turns are repeated without limit.
pub(super) const COUNTER: &str = "counter";

/// Agent that executes the first word of the message.
async fn run_command(turn: Turn) -> Result<Outcome, Failure> {
    let text = turn.text();
    let mut words = text.split(' ');
    match words.next().unwrap_or_default() {
        "ask" => return Ok(Outcome::ask("which harbour?")),
        "wait" => {
            turn.say("waiting").await;
            return std::future::pending().await;
        }
        "stream" => {
            let mut writer = turn.writer("stream");
            for number in 0..words.next().unwrap_or_default().parse::<u32>()? {
                writer.write(format!("{number} ")).await;
                tokio::task::yield_now().await;
            }
            writer.finish().await;
        }
        _ => turn.write("echo", text).await,
    }
    Ok(Outcome::Completed)
}

/// Agent that writes the numbers up to the one in the message, 1,000 per second. Continues after the numbers in the log.
async fn count(turn: Turn) -> Result<Outcome, Failure> {
    let end = turn.text().parse::<usize>()?;
    let parts = turn
        .task()
        .artifacts
        .iter()
        .flat_map(|artifact| &artifact.parts);
    let done = parts
        .filter_map(Part::as_text)
        .flat_map(str::split_whitespace)
        .count();
    let mut writer = turn.writer("numbers");
    let mut beat = tokio::time::interval(Duration::from_millis(1));
    for number in done..end {
        beat.tick().await;
        writer.write(format!("{number} ")).await;
    }
    writer.finish().await;
    Ok(Outcome::Completed)
}

/// Main function of the server process. Without the environment variable it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve() {
    let Some(folder) = std::env::var_os(CHILD) else {
        return;
    };
    // Exit when the parent ends: its end of the pipe is closed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let store = Sqlite::open(Path::new(&folder).join(FILE), Options::default()).unwrap();
    let attempts = number(ATTEMPTS).map(|attempts| u32::try_from(attempts).unwrap());
    let on_restart = attempts.map_or(RestartPolicy::Fail, |attempts| RestartPolicy::RunAgain {
        attempts,
    });
    let settings = Settings {
        on_restart,
        ..Settings::default()
    };
    let server = Server::new(
        AgentCard::new("Commands", "Executes a command"),
        run_command,
    );
    let run_again = AgentSettings {
        on_restart: Some(RestartPolicy::RunAgain { attempts: u32::MAX }),
        ..AgentSettings::default()
    };
    let server = server.agent(
        HostedAgent::new(COUNTER, AgentCard::new("Counter", "Counts"), count).settings(run_again),
    );
    let bound = server
        .settings(settings)
        .store(store)
        .bind("127.0.0.1:0")
        .await
        .unwrap();
    println!("\n{ADDRESS}{}", bound.local_addr());
    bound.serve().await.unwrap();
}

/// Handle of the server process.
pub(super) struct Process {
    child: Child,
    pub(super) address: Option<oneshot::Receiver<SocketAddr>>,
}

impl Process {
    pub(super) fn start(folder: &Path) -> Self {
        Self::start_with(folder, None)
    }

    pub(super) fn start_with(folder: &Path, attempts: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "store::crash::child::serve",
                "--nocapture",
                "--test-threads",
                "1",
            ])
            .env(CHILD, folder);
        command.envs(attempts.map(|attempts| (ATTEMPTS, attempts.to_string())));
        command
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, address) = oneshot::channel();
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            let address = lines.find_map(|line| line.strip_prefix(ADDRESS)?.parse().ok());
            let _ = address.map(|address| sender.send(address));
            lines.for_each(drop);
        });
        Self {
            child,
            address: Some(address),
        }
    }

    pub(super) async fn address(&mut self) -> SocketAddr {
        with_deadline(self.address.take().expect("the address is taken once"))
            .await
            .expect("the server starts")
    }

    /// Kills the process with SIGKILL, so that it cannot clean up.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(
            status.code(),
            None,
            "the server exited before it was killed"
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
