//! `attache demo`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(30);

/// A demo that is ended with the test.
struct Demo {
    process: Child,
    lines: Receiver<String>,
    folder: TempDir,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn demo(verb: &str) -> Demo {
    demo_in(verb, TempDir::new().unwrap())
}

fn demo_in(verb: &str, folder: TempDir) -> Demo {
    let mut command = attache(&[verb, "--listen", "127.0.0.1:0", "--data-dir"]);
    let mut process = command.arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(process.stdout.take().unwrap());
    let (send, lines) = sync_channel(64);
    thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    Demo { process, lines, folder }
}

impl Demo {
    fn line(&self, beginning: &str) -> String {
        let line = self.lines.recv_timeout(DEADLINE).expect("a line within the deadline");
        line.trim_start().strip_prefix(beginning).unwrap_or_else(|| panic!("{beginning}: {line}")).to_owned()
    }
}

fn attache(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A request without curl: gives the body of the answer.
fn send(url: &str, method: &str, headers: &[&str], body: &str) -> Value {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let headers = headers.join("\r\n");
    let length = body.len();
    write!(
        stream,
        "{method} /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// What the shell makes of the arguments of the printed command: words apart, single quotes off.
fn arguments(command: &str) -> Vec<String> {
    let pieces = command.split('\'').enumerate();
    let words = pieces.flat_map(|(at, piece)| match at % 2 {
        0 => piece.split_whitespace().map(str::to_owned).collect(),
        _ => vec![piece.to_owned()],
    });
    words.collect()
}

#[test]
fn the_demo_answers_the_command_that_it_prints() {
    let demo = demo("demo");
    let url = demo.line("Listening on ");
    let card = demo.line("Card: ");
    assert_eq!(demo.line("Tasks: "), demo.folder.path().join("tasks.db").display().to_string());
    demo.line("Say hello:");
    let words = arguments(&demo.line("curl "));
    let after = |flag| words.windows(2).filter(move |pair| pair[0] == flag).map(|pair| pair[1].as_str());
    let answer = send(&url, "POST", &after("-H").collect::<Vec<_>>(), after("-d").next().unwrap());
    assert!(words.contains(&url));
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
    assert_eq!(answer["result"]["task"]["artifacts"][0]["parts"], json!([{"text": "hello"}]));
    let card = send(&card, "GET", &["Accept: application/json"], "");
    assert_eq!(card["supportedInterfaces"][0]["url"], json!(url));
}

#[test]
fn the_printed_command_works_in_a_shell() {
    if Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let demo = demo("demo-server");
    demo.line("Listening on ");
    demo.line("Card: ");
    demo.line("Tasks: ");
    demo.line("Say hello:");
    let command = format!("curl --max-time 30 {}", demo.line("curl "));
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{answer}");
}

#[test]
fn a_busy_port_is_named_with_what_to_type() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = attache(&["demo", "--store", "memory", "--listen", &address]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains(&format!("{address} is in use")), "{said}");
    assert!(said.contains("attache demo --listen 127.0.0.1:0"), "{said}");
    assert!(output.stdout.is_empty());
}

#[cfg(unix)]
#[test]
fn the_demo_ends_well_when_it_is_asked_to() {
    let mut demo = demo("demo");
    demo.line("Listening on ");
    let id = demo.process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let end = loop {
        if let Err(end) = demo.lines.recv_timeout(DEADLINE) {
            break end;
        }
    };
    assert_eq!(end, RecvTimeoutError::Disconnected);
    assert_eq!(demo.process.wait().unwrap().code(), Some(0));
}

#[test]
fn what_is_not_understood_ends_with_2_and_help_with_0() {
    assert_eq!(attache(&["nonsense"]).output().unwrap().status.code(), Some(2));
    assert_eq!(attache(&["demo", "--nonsense"]).output().unwrap().status.code(), Some(2));
    let help = attache(&["demo", "--help"]).output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("127.0.0.1:41241"));
}

#[test]
fn r10_tasks_are_there_again_after_the_demo_was_killed() {
    let mut first = demo("demo");
    let url = first.line("Listening on ");
    let headers = ["Content-Type: application/json", "A2A-Version: 1.0"];
    let ask = |url: &str, method: &str, params: Value| {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        send(url, "POST", &headers, &call.to_string())["result"].clone()
    };
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "remember"}]});
    let task = ask(&url, "SendMessage", json!({"message": message}))["task"].clone();
    first.process.kill().unwrap();
    first.process.wait().unwrap();
    let folder = std::mem::replace(&mut first.folder, TempDir::new().unwrap());
    let second = demo_in("demo", folder);
    let url = second.line("Listening on ");
    assert_eq!(ask(&url, "GetTask", json!({"id": task["id"]})), task);
    assert_eq!(ask(&url, "ListTasks", json!({}))["totalSize"], 1);
}

#[test]
fn a_data_directory_that_is_in_use_is_named() {
    let demo = demo("demo");
    demo.line("Listening on ");
    let folder = demo.folder.path().display().to_string();
    let output = attache(&["demo", "--listen", "127.0.0.1:0", "--data-dir", &folder]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains(&folder), "{said}");
}
