//! Test harness: runs the program as a process, and sends raw HTTP requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A server process that is killed with the test.
pub(crate) struct ServerProcess {
    pub(crate) process: Child,
    pub(crate) lines: Receiver<String>,
    pub(crate) folder: TempDir,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a server with its own data directory.
pub(crate) fn serve(args: &[&str]) -> ServerProcess {
    serve_in(args, TempDir::new().unwrap())
}

pub(crate) fn serve_in(args: &[&str], folder: TempDir) -> ServerProcess {
    serve_command(&mut attache(args), folder)
}

/// Starts a server with a prepared command.
pub(crate) fn serve_command(command: &mut Command, folder: TempDir) -> ServerProcess {
    if !command.get_args().any(|arg| arg == "--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    if !command.get_args().any(|arg| arg == "--data-dir") {
        command.arg("--data-dir").arg(folder.path());
    }
    // Only errors are logged, unless the test sets `RUST_LOG`.
    if !command
        .get_envs()
        .any(|(name, value)| name == "RUST_LOG" && value.is_some())
    {
        command.env("RUST_LOG", "error");
    }
    // By default only 0.3 clients find gRPC on the card. `clients.rs` tests that.
    if !command
        .get_envs()
        .any(|(name, _)| name == "ATTACHE_GRPC_ON_CARD")
    {
        command.env("ATTACHE_GRPC_ON_CARD", "all");
    }
    ServerProcess::of_command(command, folder)
}

impl ServerProcess {
    /// Starts a command whose output names its address.
    pub(crate) fn of_command(command: &mut Command, folder: TempDir) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (send, lines) = sync_channel(64);
        thread::spawn(move || {
            stdout
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Self {
            process,
            lines,
            folder,
        }
    }

    /// The next line of stdout, without its prefix.
    pub(crate) fn line(&self, beginning: &str) -> String {
        let line = self
            .lines
            .recv_timeout(DEADLINE)
            .expect("a line within the deadline");
        line.trim_start()
            .strip_prefix(beginning)
            .unwrap_or_else(|| panic!("{beginning}: {line}"))
            .to_owned()
    }

    /// The example commands of the banner.
    pub(crate) fn commands(&self) -> [String; 3] {
        let greeting = ["Listening on ", "Card: ", "Tasks: "].map(|beginning| self.line(beginning));
        assert!(greeting[1].starts_with(&greeting[0]), "{greeting:?}");
        let commands = [(); 3].map(|()| {
            assert!(self.line("").ends_with(':'));
            self.line("")
        });
        self.line("Stop with Ctrl-C.");
        commands
    }
}

/// Calls a JSON-RPC method, and returns the response.
pub(crate) fn call(url: &str, method: &str, params: &Value) -> Value {
    let headers = ["Content-Type: application/json", "A2A-Version: 1.0"];
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    send(url, "POST", &headers, &body.to_string())
}

/// Sends a text, and returns the task.
pub(crate) fn send_text(url: &str, text: &str) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]});
    call(url, "SendMessage", &json!({"message": message}))["result"]["task"].clone()
}

/// Runs the program, which must not write to stdout; returns its exit code and stderr.
pub(crate) fn run_expecting_error(args: &[&str]) -> (Option<i32>, String) {
    let output = attache(args).output().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

pub(crate) fn attache(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    // The demo agent panics on request: backtraces are switched off.
    for name in [
        "RUST_LOG",
        "TASK_STORE_TYPE",
        "ATTACHE_STORE",
        "ATTACHE_STORE_URL",
        "ATTACHE_WEBHOOK_KEY",
        "ATTACHE_LISTEN",
        "TRACEPARENT",
        "TRACESTATE",
    ] {
        command.env_remove(name);
    }
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OTEL_"))
    {
        command.env_remove(name);
    }
    command
        .args(args)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null());
    command
}

/// Sends an HTTP request, and returns the JSON body of the response.
pub(crate) fn send(url: &str, method: &str, headers: &[&str], body: &str) -> Value {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let length = body.len();
    let head =
        format!("{method} /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}");
    let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}
