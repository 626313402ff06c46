//! Runs a verb in its own directory and environment.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::sync_channel;
use std::thread;

use attache::wire::card::GrpcOnCard;
use attache::{AgentCard, PushSettings, Server, ServerSettings};
use attache_agents::demo_agent;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{DEADLINE, attache};

/// Output of a verb.
#[derive(Debug)]
pub(super) struct VerbOutput {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl VerbOutput {
    /// The JSON document on stdout.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON Lines on stdout.
    pub(super) fn lines(&self) -> Vec<Value> {
        let read =
            |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        self.out.lines().map(read).collect()
    }

    /// The values of a field.
    pub(super) fn fields(&self, label: &str) -> Vec<&str> {
        self.out
            .lines()
            .filter_map(|line| line.strip_prefix(label)?.strip_prefix(": "))
            .collect()
    }

    pub(super) fn field(&self, label: &str) -> &str {
        self.fields(label)
            .first()
            .copied()
            .unwrap_or_else(|| panic!("no {label}: {self:?}"))
    }
}

/// A verb with its environment.
pub(super) struct VerbRun {
    pub(super) command: Command,
    pub(super) folder: TempDir,
    stdin: String,
}

pub(super) fn verb(args: &[&str]) -> VerbRun {
    let folder = TempDir::new().unwrap();
    let mut command = attache(args);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("A2ACLI_") || name.starts_with("ATTACHE_") || name.starts_with("XDG_") {
            command.env_remove(name);
        }
    }
    command
        .current_dir(folder.path())
        .env("HOME", folder.path());
    VerbRun {
        command,
        folder,
        stdin: String::new(),
    }
}

/// Runs a verb against an agent.
pub(super) fn run_at(url: &str, args: &[&str]) -> VerbOutput {
    verb(&[args, &["-a", url]].concat()).run()
}

impl VerbRun {
    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(super) fn stdin(mut self, text: &str) -> Self {
        text.clone_into(&mut self.stdin);
        self
    }

    /// Adds a file to the working directory.
    pub(super) fn file(self, name: &str, text: &str) -> Self {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    pub(super) fn run(self) -> VerbOutput {
        self.keep().0
    }

    /// Runs the verb, and also returns its working directory.
    pub(super) fn keep(mut self) -> (VerbOutput, TempDir) {
        self.command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        // A verb that does not read stdin may have ended.
        let _ = child.stdin.take().unwrap().write_all(self.stdin.as_bytes());
        (finish(child), self.folder)
    }

    /// Starts the verb, and leaves it running.
    pub(super) fn start(mut self) -> (Child, TempDir) {
        self.command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        (self.command.spawn().unwrap(), self.folder)
    }
}

/// Waits for the end of the process, with a deadline.
pub(super) fn finish(mut child: Child) -> VerbOutput {
    let mut out = child.stdout.take().unwrap();
    let mut err = child.stderr.take().unwrap();
    let id = child.id().to_string();
    let (send, done) = sync_channel(1);
    thread::spawn(move || {
        let errors = thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).map(|_| text)
        });
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        let err = errors.join().unwrap().unwrap();
        let code = child.wait().unwrap().code();
        send.send(VerbOutput {
            code,
            out: text,
            err,
        })
    });
    done.recv_timeout(DEADLINE).unwrap_or_else(|_| {
        let _ = Command::new("kill").args(["-KILL", &id]).status();
        panic!("it did not end");
    })
}

/// URL of the demo agent, with local webhooks allowed. It serves until the test process ends.
pub(super) static DEMO: LazyLock<String> = LazyLock::new(|| {
    // The demo agent panics on request: backtraces are switched off.
    let shown = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic
            .location()
            .is_some_and(|at| at.file().ends_with("script/play.rs"))
        {
            shown(panic);
        }
    }));
    let (send, url) = sync_channel(1);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let card = AgentCard::new("Practice", "Practises").input_modes(["text/plain", "*/*"]);
            let mut push = PushSettings::default();
            push.egress.loopback = true;
            let mut settings = ServerSettings::default();
            settings.grpc_on_card = GrpcOnCard::All;
            let bound = Server::new(card, demo_agent())
                .server_settings(settings)
                .push(push)
                .bind("127.0.0.1:0")
                .await
                .unwrap();
            send.send(bound.url()).unwrap();
            bound.serve().await.unwrap();
        });
    });
    url.recv_timeout(DEADLINE).unwrap()
});
