//! (b) Many subscribers of one task against one; (e) memory per idle subscriber.
//!
//! The subscribers run in another process, so that the figures cover the server only.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use attache::store::Memory;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Effort;
use crate::machine::{Cost, cost, median, memory};
use crate::server::{Caller, Running, request};

const EVENTS: usize = 1_000;
const BYTES: usize = 50;

pub(crate) fn measure(effort: Effort) {
    let server = Running::start(Memory::new());
    if !streams(&server) {
        println!("| (b), (e) followers | | the server has no streams | | |");
        return server.stop();
    }
    let mut one = Vec::new();
    let mut many = Vec::new();
    for _ in 0..effort.rounds {
        // One hundred single runs in sequence: CPU time has a resolution of 10 ms.
        let mut sum = Cost::default();
        (0..100).for_each(|_| sum.add(run(&server, 1)));
        one.push(sum.per(100 * EVENTS));
        many.push(run(&server, effort.followers).per(effort.followers * EVENTS));
    }
    let middle = |costs: Vec<(f64, f64)>| {
        let (times, cpus) = costs.into_iter().unzip();
        (median(times), median(cpus))
    };
    let (one, one_cpu) = middle(one);
    let (many, many_cpu) = middle(many);
    println!(
        "| (b) one delivery of {EVENTS} events, {} followers against one | {one:.2} µs, CPU {one_cpu:.2} | {many:.2} µs, CPU {many_cpu:.2} | {:.2} | {:.2} |",
        effort.followers,
        many / one,
        many_cpu / one_cpu,
    );
    println!(
        "| (e) memory of each of {} idle followers | | {} bytes | | |",
        effort.idle,
        idle(&server, effort.idle)
    );
    server.stop();
}

/// Measures from the release of the agent until every subscriber has received the end.
fn run(server: &Running, followers: usize) -> Cost {
    let task = Caller::new(server.address).open(EVENTS, BYTES);
    let mut readers = Readers::start(server, &task, followers);
    let (cost, seen) = cost(|| {
        server.release(1);
        readers.line()
    });
    let seen: usize = seen.parse().expect("a count");
    assert!(
        seen >= followers * EVENTS,
        "{seen} events for {followers} followers"
    );
    cost
}

fn idle(server: &Running, followers: usize) -> i64 {
    let task = Caller::new(server.address).open(1, BYTES);
    let before = memory();
    let mut readers = Readers::start(server, &task, followers);
    let used = memory() - before;
    server.release(1);
    readers.line();
    used / followers as i64
}

/// Whether the server supports subscriptions.
fn streams(server: &Running) -> bool {
    let task = Caller::new(server.address).open(1, 1);
    let mut readers = Readers::spawn(server, &task, 1);
    let is_ready = readers.line() == "ready";
    server.release(1);
    if is_ready {
        readers.line();
    }
    is_ready
}

/// Process with the subscribers.
struct Readers {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Readers {
    /// Starts the process and waits until each subscriber has received the task.
    fn start(server: &Running, task: &str, count: usize) -> Self {
        let mut readers = Self::spawn(server, task, count);
        assert_eq!(readers.line(), "ready");
        readers
    }

    fn spawn(server: &Running, task: &str, count: usize) -> Self {
        let program = std::env::current_exe().expect("our own path");
        let mut command = Command::new(program);
        command.args([
            "reader",
            &server.address.to_string(),
            task,
            &count.to_string(),
        ]);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("ourselves");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        Self { process, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("text")
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.process.wait().expect("our own child");
    }
}

/// Subscribes to a task `count` times. Prints `ready` when every subscriber has the task, then the total of updates.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn reader(address: &str, task: &str, count: usize) {
    let mut connected = JoinSet::new();
    for _ in 0..count {
        let address = address.to_owned();
        let request = request("SubscribeToTask", &json!({"id": task}));
        connected.spawn(async move {
            let mut stream = TcpStream::connect(address)
                .await
                .expect("the server listens");
            stream.write_all(&request).await.expect("the server reads");
            let mut seen = Vec::new();
            // Reads the response head and the snapshot of the task.
            while !contains(&seen, b"data:") || !seen.ends_with(b"\n\n\r\n") {
                if stream.read_buf(&mut seen).await.expect("an answer") == 0
                    || contains(&seen, b"application/json")
                {
                    return None;
                }
            }
            Some(stream)
        });
    }
    let streams: Option<Vec<_>> = connected.join_all().await.into_iter().collect();
    let Some(streams) = streams else {
        return println!("refused");
    };
    println!("ready");
    let reads = streams.into_iter().map(read).collect::<JoinSet<_>>();
    println!("{}", reads.join_all().await.into_iter().sum::<usize>());
}

/// Returns the number of updates until the last chunk.
async fn read(mut stream: TcpStream) -> usize {
    let mut buffer = vec![0; 65_536];
    let mut updates = 0;
    let mut line = Vec::new();
    loop {
        let count = stream.read(&mut buffer).await.expect("the server goes on");
        for byte in &buffer[..count] {
            line.push(*byte);
            if *byte == b'\n' {
                updates += usize::from(line.starts_with(b"data:"));
                if line == b"0\r\n" {
                    return updates;
                }
                line.clear();
            }
        }
        if count == 0 {
            return updates;
        }
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}
