//! Agents served by other projects: the programs in `tests/peers/servers`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;

use crate::clients::{folder, repository};
use crate::harness::DEADLINE;

/// A server process that ends when its stdin closes.
pub(crate) struct PeerServer {
    pub(crate) url: String,
    child: Child,
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl PeerServer {
    /// Starts a Python program with the packages of an environment.
    pub(crate) fn python(environment: &str, script: &str) -> Self {
        let program = folder().join(environment).join("bin/python");
        Self::start(Command::new(program).arg(source(script)))
    }

    /// Starts a JavaScript program with the packages of both SDKs.
    pub(crate) fn node(script: &str) -> Self {
        Self::start(
            Command::new("node")
                .arg(source(script))
                .arg(folder().join("js")),
        )
    }

    fn start(command: &mut Command) -> Self {
        let spawned = command
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The servers log every request.
            .stderr(Stdio::null())
            .spawn();
        let mut child =
            spawned.unwrap_or_else(|fault| panic!("{command:?}: {fault}; run tests/peers/setup"));
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, first_line) = sync_channel(1);
        thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            let _ = send.send(lines.next().unwrap_or_default());
            // The pipe is drained: a process that writes to a closed pipe ends.
            lines.for_each(drop);
        });
        let line = first_line.recv_timeout(DEADLINE);
        let url = line
            .as_deref()
            .ok()
            .and_then(|line| line.trim().strip_prefix("Listening on "))
            .unwrap_or_else(|| panic!("{line:?}; run {command:?} by hand to see the reason"))
            .to_owned();
        Self { url, child }
    }
}

fn source(script: &str) -> std::path::PathBuf {
    repository().join("tests/peers/servers").join(script)
}
