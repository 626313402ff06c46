//! Server in a process of its own, whose memory and open files are its alone.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use attache::{Agent, AgentCard, Failure, Outcome, Server, ServerSettings, Turn};
use tokio::sync::oneshot;

use super::{local_webhooks, with_deadline};

/// Environment variable that makes the test [`serve`] a server.
const IS_SERVER: &str = "ATTACHE_SERVER_PROCESS";
/// Environment variable with `outgoing_timeout` in milliseconds.
const OUTGOING_TIMEOUT: &str = "ATTACHE_OUTGOING_TIMEOUT";
/// Start of the line with the address of the server.
const ADDRESS: &str = "listening on ";

/// Agent of the server process. Writes as many artifacts of 1 MiB as the message says, then ends the turn as it says:
/// `complete 3`, `ask 3`, `hold 3`. `control 3` writes control characters. Repeats other messages.
pub(crate) struct BulkAgent;

impl Agent for BulkAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let text = turn.text();
        let Some((ending, count)) = text
            .split_once(' ')
            .and_then(|(ending, count)| Some((ending, count.parse::<usize>().ok()?)))
        else {
            turn.write("echo", text).await;
            return Ok(Outcome::Completed);
        };
        for number in 0..count {
            let text = match ending {
                "control" => "\u{1}".to_owned(),
                _ => char::from(b'a' + (number % 26) as u8).to_string(),
            };
            turn.write(number.to_string(), text.repeat(1 << 20)).await;
        }
        match ending {
            "ask" => Ok(Outcome::InputRequired("more?".into())),
            "hold" => {
                turn.say("holding").await;
                std::future::pending().await
            }
            _ => Ok(Outcome::Completed),
        }
    }
}

/// Main function of the server process. Without the environment variable it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve() {
    if std::env::var_os(IS_SERVER).is_none() {
        return;
    }
    // Exits when the parent ends: its end of the pipe is closed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let card = AgentCard::new("Bulk", "Writes large artifacts, or says it back");
    let mut settings = ServerSettings::default();
    if let Ok(millis) = std::env::var(OUTGOING_TIMEOUT) {
        settings.outgoing_timeout = Duration::from_millis(millis.parse().unwrap());
    }
    let server = Server::new(card, BulkAgent).push(local_webhooks());
    let server = server.server_settings(settings);
    let bound = server.bind("127.0.0.1:0").await.unwrap();
    println!("\n{ADDRESS}{}", bound.local_addr());
    bound.serve().await.unwrap();
}

/// Process of a [`BulkAgent`] with default settings. Webhooks may be on loopback. Killed on drop.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    /// Starts a server that may have this number of open files.
    pub(crate) async fn start(max_open_files: usize) -> Self {
        Self::start_with(max_open_files, ServerSettings::default().outgoing_timeout).await
    }

    /// Starts a server like [`start`](Self::start) with this `outgoing_timeout`.
    pub(crate) async fn start_with(max_open_files: usize, outgoing_timeout: Duration) -> Self {
        let limited = format!("ulimit -n {max_open_files} && exec \"$0\" \"$@\"");
        let test = "harness::server_process::serve";
        let mut command = Command::new("sh");
        command
            .args(["-c", &limited])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(IS_SERVER, "1")
            .env(OUTGOING_TIMEOUT, outgoing_timeout.as_millis().to_string())
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, address) = oneshot::channel();
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            let address = lines.find_map(|line| line.strip_prefix(ADDRESS)?.parse().ok());
            let _ = address.map(|address: SocketAddr| sender.send(address));
            lines.for_each(drop);
        });
        let address = with_deadline(address).await.expect("the server starts");
        Self { child, address }
    }

    /// Returns the peak of its resident memory, in MB.
    pub(crate) fn peak_memory_mb(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
        kilobytes.parse::<u64>().unwrap() / 1024
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
