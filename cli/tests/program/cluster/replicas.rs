//! Three replicas on one database, with a proxy each.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::proxy::Proxy;
use crate::database::TestDatabase;

/// Limit of every wait: the machine may be busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
[store]
schema = "SCHEMA"
[cluster]
lease = "1s"
[push]
local_webhooks = true
[limits]
on_restart = { run_again = { attempts = 1000 } }
[agents.demo]
type = "demo"
"#;

/// Waits until a condition holds.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        // Leaves the processor to the servers.
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// Replicas of one test. They end with it.
pub(crate) struct Cluster {
    pub(crate) database: TestDatabase,
    pub(crate) replicas: Vec<Replica>,
    config: String,
    folder: TempDir,
}

/// A replica: its process and the proxy to its database.
pub(crate) struct Replica {
    pub(crate) process: Child,
    pub(crate) address: String,
    pub(crate) proxy: Proxy,
}

impl Cluster {
    /// Starts three replicas, and waits until they are ready.
    pub(crate) fn start(database: TestDatabase) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("agents.toml");
        std::fs::write(&file, CONFIG.replace("SCHEMA", &database.schema)).unwrap();
        let mut cluster = Self {
            replicas: Vec::new(),
            config: file.display().to_string(),
            folder,
            database,
        };
        for index in 0..3 {
            let proxy = Proxy::start(cluster.database.address());
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = free.local_addr().unwrap().to_string();
            drop(free);
            let process = cluster.spawn(index, &address, &proxy);
            cluster.replicas.push(Replica {
                process,
                address,
                proxy,
            });
        }
        for index in 0..3 {
            cluster.wait_until_ready(index);
        }
        cluster
    }

    fn spawn(&self, index: usize, address: &str, proxy: &Proxy) -> Child {
        let url = self
            .database
            .url
            .replace(self.database.address(), &proxy.address.to_string());
        let args = ["serve", &self.config, "--listen", address, "--data-dir"];
        let log = self.folder.path().join(format!("{index}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        self.database
            .command(&args, &url)
            .arg(self.folder.path().join(index.to_string()))
            .env("RUST_LOG", "warn")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        let addresses = self.replicas.iter().map(|replica| &replica.address);
        addresses
            .map(|address| format!("http://{address}/"))
            .collect()
    }

    pub(crate) fn wait_until_ready(&self, index: usize) {
        let address = &self.replicas[index].address;
        wait_for(&format!("replica {index} is ready"), || is_ready(address));
    }

    /// Starts a replica that has ended, on its address.
    pub(crate) fn restart(&mut self, index: usize) {
        let replica = &self.replicas[index];
        let process = self.spawn(index, &replica.address, &replica.proxy);
        self.replicas[index].process = process;
        self.wait_until_ready(index);
    }

    /// Sends a signal to a replica.
    pub(crate) fn signal(&self, index: usize, signal: Signal) {
        let pid = Pid::from_child(&self.replicas[index].process);
        kill_process(pid, signal).unwrap();
    }

    /// Ids of the live replicas with the process of this one: empty after its eviction.
    fn is_member(&self, index: usize) -> bool {
        let sql = format!(
            "SELECT id FROM {}.replica WHERE removed IS NULL AND name LIKE '%/{}'",
            self.database.schema,
            self.replicas[index].process.id()
        );
        !self.database.query(&sql).is_empty()
    }

    /// Waits until the other replicas have evicted one.
    pub(crate) fn wait_until_evicted(&self, index: usize) {
        wait_for("eviction", || !self.is_member(index));
    }

    /// The logs of the replicas, for a failed test.
    pub(crate) fn logs(&self) -> String {
        (0..3)
            .map(|index| {
                let log = self.folder.path().join(format!("{index}.log"));
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = lines[lines.len().saturating_sub(40)..].join("\n");
                format!("== replica {index}\n{last}\n")
            })
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            let _ = replica.process.kill();
            let _ = replica.process.wait();
        }
    }
}

fn is_ready(address: &str) -> bool {
    exchange(
        address,
        &format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"),
    )
    .is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Sends a request, and returns the whole answer; `None` if the connection fails.
pub(crate) fn exchange(address: &str, request: &str) -> Option<String> {
    let address = address.parse().unwrap();
    let mut connection = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
    // A frozen replica accepts connections and does not answer.
    connection
        .set_read_timeout(Some(Duration::from_secs(8)))
        .ok()?;
    connection.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    Some(answer)
}
