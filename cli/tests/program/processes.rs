//! Processes of agents: they end with the server, and a restarted server does not run them a second time at once.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    DEADLINE, ServerProcess, attache, call, run_expecting_error, send_text, serve_command, serve_in,
};

/// FIFO that programs open and write to. The test sees their lines, and when the last process with the open FIFO has ended.
pub(crate) struct Events {
    pub(crate) fifo: PathBuf,
    received: Receiver<Event>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Event {
    Line(String),
    /// No process has the FIFO open.
    End,
}

impl Events {
    pub(crate) fn new(folder: &Path) -> Self {
        let fifo = folder.join("events");
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let (send, received) = sync_channel(64);
        let path = fifo.clone();
        thread::spawn(move || {
            // Opening blocks until a program opens the other end.
            while let Ok(fifo) = File::open(&path) {
                let lines = BufReader::new(fifo).lines().map_while(Result::ok);
                let events = lines.map(Event::Line).chain([Event::End]);
                if events
                    .map(|event| send.send(event))
                    .any(|sent| sent.is_err())
                {
                    return;
                }
            }
        });
        Self { fifo, received }
    }

    pub(crate) fn next(&self) -> Event {
        let event = self.received.recv_timeout(DEADLINE);
        event.expect("an event within the deadline")
    }

    pub(crate) fn expect_line(&self, line: &str) {
        assert_eq!(self.next(), Event::Line(line.to_owned()));
    }
}

/// Writes a configuration, and serves it with a data directory that outlives the server.
fn serve_config(folder: &Path, config: &str) -> ServerProcess {
    let mut command = attache(&["serve"]);
    command.arg(write_config(folder, config));
    command.arg("--data-dir").arg(folder.join("data"));
    serve_command(&mut command, TempDir::new().unwrap())
}

fn write_config(folder: &Path, config: &str) -> PathBuf {
    let file = folder.join("agents.toml");
    std::fs::write(&file, config).unwrap();
    file
}

/// A command agent that runs a script with `sh`.
fn script_agent(script: &str) -> String {
    let command = json!(["sh", "-c", script]);
    format!("[agents.job]\ntype = \"command\"\ncommand = {command}\n")
}

fn send_without_waiting(url: &str) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    call(url, "SendMessage", &params)["result"]["task"].clone()
}

fn kill(server: &mut ServerProcess) {
    server.process.kill().unwrap();
    server.process.wait().unwrap();
}

fn state(task: &Value) -> &str {
    let state = task["status"]["state"].as_str().unwrap();
    state.strip_prefix("TASK_STATE_").unwrap()
}

fn status_text(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

fn output(task: &Value) -> &str {
    task["artifacts"][0]["parts"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

#[test]
fn d14_a_killed_server_leaves_no_process() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let fifo = events.fifo.display();
    // A child in the group, one in another session, and one whose parent has ended. The command ignores signals, and opens
    // the read end of its stderr, so that the pipe does not break.
    let script = format!(
        "exec 9> {fifo} 8<> /dev/stderr; trap '' HUP INT TERM; sleep 600 & setsid sleep 600 & \
         (setsid sh -c 'sleep 600 & exit'); echo started >&9; wait"
    );
    let mut server = serve_config(folder.path(), &script_agent(&script));
    let url = server.line("Listening on ");
    send_without_waiting(&url);
    events.expect_line("started");
    kill(&mut server);
    assert_eq!(events.next(), Event::End);
}

#[test]
fn d14_a_restarted_server_never_runs_a_command_twice_at_once() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let fifo = events.fifo.display();
    let last = folder.path().join("last");
    let last = last.display();
    // The command checks that the process before it has ended.
    let script = format!(
        "exec 9> {fifo}; if [ -s {last} ] && kill -0 $(cat {last}); then echo twice >&9; fi; \
         echo $$ > {last}; echo started >&9; exec sleep 600"
    );
    let limits = "limits = { on_restart = { run_again = { attempts = 9 } } }\n";
    let config = script_agent(&script) + limits;
    let mut server = serve_config(folder.path(), &config);
    send_without_waiting(&server.line("Listening on "));
    events.expect_line("started");
    for _ in 0..3 {
        kill(&mut server);
        server = serve_config(folder.path(), &config);
        assert_eq!(events.next(), Event::End);
        events.expect_line("started");
    }
}

#[test]
fn d14_a_start_waits_for_the_commands_of_the_previous_server() {
    // The second one has lost its file.
    for is_deleted in [false, true] {
        let folder = TempDir::new().unwrap();
        let lock = if is_deleted {
            File::open(folder.path()).unwrap()
        } else {
            File::create(folder.path().join("commands.lock")).unwrap()
        };
        lock.lock_shared().unwrap();
        let mut command = attache(&["serve", "--echo"]);
        let mut server = serve_in_folder(command.stderr(Stdio::piped()), folder.path());
        let mut stderr = BufReader::new(server.process.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(
            line.contains("commands of the previous server") && line.contains("commands.lock"),
            "{line}"
        );
        assert_eq!(server.lines.try_recv(), Err(TryRecvError::Empty));
        lock.unlock().unwrap();
        server.line("Listening on ");
    }
}

#[test]
fn d14_a_running_command_locks_the_data_directory() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let fifo = events.fifo.display();
    let script = format!("exec 9> {fifo}; echo started >&9; exec sleep 600");
    let mut server = serve_config(folder.path(), &script_agent(&script));
    send_without_waiting(&server.line("Listening on "));
    events.expect_line("started");
    let data = folder.path().join("data");
    std::fs::remove_file(data.join("commands.lock")).unwrap();
    let lock = File::open(data).unwrap();
    let locked = lock.try_lock();
    assert!(
        matches!(locked, Err(std::fs::TryLockError::WouldBlock)),
        "{locked:?}"
    );
    kill(&mut server);
    assert_eq!(events.next(), Event::End);
}

#[test]
fn d14_a_start_fails_if_commands_of_the_previous_server_do_not_end() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let lock = File::create(data.join("commands.lock")).unwrap();
    lock.lock_shared().unwrap();
    let config = script_agent("true") + "[store]\ncommand_exit_timeout = \"0s\"\n";
    let file = write_config(folder.path(), &config);
    let args = [
        "serve",
        file.to_str().unwrap(),
        "--data-dir",
        data.to_str().unwrap(),
    ];
    let (code, output) = run_expecting_error(&args);
    assert_eq!(code, Some(1));
    assert!(
        output.contains("commands.lock") && output.contains("store.command_exit_timeout"),
        "{output}"
    );
}

fn serve_in_folder(command: &mut Command, folder: &Path) -> ServerProcess {
    command.arg("--data-dir").arg(folder);
    serve_command(command, TempDir::new().unwrap())
}

#[test]
fn d14_exit_codes_and_signals_of_a_command_are_reported() {
    let folder = TempDir::new().unwrap();
    let server = serve_in(&["serve", "--exec", "sh"], folder);
    let url = server.line("Listening on ");
    for (script, how) in [
        ("exit 3", "ended with exit code 3"),
        ("exit 137", "ended with exit code 137"),
        ("kill -TERM $$", "was killed by signal 15"),
        ("kill -KILL $$", "was killed by signal 9"),
        ("kill -SEGV $$", "was killed by signal 11"),
        ("kill -PIPE $$", "was killed by signal 13"),
        ("kill -HUP 0; sleep 600", "was killed by signal 1"),
    ] {
        let task = send_text(&url, script);
        assert_eq!(
            (state(&task), status_text(&task)),
            ("FAILED", &*format!("the command {how}")),
            "{script}"
        );
    }
    let task = send_text(&url, "trap 'echo caught; exit 0' TERM; kill 0; sleep 600");
    assert_eq!((state(&task), output(&task)), ("COMPLETED", "caught\n"));
}

#[test]
fn d14_a_missing_program_is_not_an_exit_code() {
    let config = "[agents.job]\ntype = \"command\"\ncommand = [\"/nonexistent/program\"]\n";
    let folder = TempDir::new().unwrap();
    let server = serve_config(folder.path(), config);
    let task = send_text(&server.line("Listening on "), "go");
    assert_eq!(
        (state(&task), status_text(&task)),
        ("FAILED", "Agent execution failed (CommandError)")
    );
}

#[test]
fn d14_streams_of_a_command_pass_unchanged() {
    let server = serve_in(&["serve", "--exec", "cat"], TempDir::new().unwrap());
    let url = server.line("Listening on ");
    let text = "0123456789é\n".repeat(50_000);
    assert_eq!(output(&send_text(&url, &text)), text);
}

#[test]
fn d14_a_cancel_ends_the_group_of_a_supervised_command() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let fifo = events.fifo.display();
    let script = format!(
        "exec 9> {fifo}; trap 'echo cleaned; exit 0' TERM; sleep 600 & echo started >&9; wait"
    );
    let server = serve_config(folder.path(), &script_agent(&script));
    let url = server.line("Listening on ");
    let task = send_without_waiting(&url);
    events.expect_line("started");
    let canceled = call(&url, "CancelTask", &json!({"id": task["id"]}));
    let task = &canceled["result"];
    assert_eq!((state(task), output(task)), ("CANCELED", "cleaned\n"));
    assert_eq!(events.next(), Event::End);
}

#[test]
fn d14_a_command_ends_with_its_descendants() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let fifo = events.fifo.display();
    let script = format!("exec 9> {fifo}; setsid sleep 600 & echo started >&9; echo done");
    let server = serve_config(folder.path(), &script_agent(&script));
    let task = send_text(&server.line("Listening on "), "go");
    assert_eq!((state(&task), output(&task)), ("COMPLETED", "done\n"));
    events.expect_line("started");
    assert_eq!(events.next(), Event::End);
}

/// A script whose child in another session outlives SIGKILL of the process group.
fn script_with_session(events: &Events) -> String {
    let fifo = events.fifo.display();
    format!(
        "exec 9> {fifo}; trap '' TERM; setsid sh -c 'trap \"\" TERM; echo started >&9; sleep 600' & wait"
    )
}

#[test]
fn d14_a_timeout_ends_descendants_that_left_the_group() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let limits = "timeout = \"1s\"\nkill_after = \"0s\"\n";
    let config = script_agent(&script_with_session(&events)) + limits;
    let server = serve_config(folder.path(), &config);
    let task = send_text(&server.line("Listening on "), "go");
    assert_eq!(state(&task), "FAILED");
    events.expect_line("started");
    assert_eq!(events.next(), Event::End);
}

#[test]
fn d14_an_orderly_stop_ends_descendants_that_left_the_group() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let config =
        script_agent(&script_with_session(&events)) + "[server]\nshutdown_grace = \"0s\"\n";
    let mut server = serve_config(folder.path(), &config);
    send_without_waiting(&server.line("Listening on "));
    events.expect_line("started");
    let id = server.process.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &id]).status().unwrap();
    assert!(sent.success());
    assert_eq!(events.next(), Event::End);
    server.process.wait().unwrap();
}

#[test]
fn d14_a_deleted_lock_file_is_created_again() {
    let folder = TempDir::new().unwrap();
    let server = serve_config(folder.path(), &script_agent("echo done"));
    let url = server.line("Listening on ");
    let lock = folder.path().join("data/commands.lock");
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(output(&send_text(&url, "go")), "done\n");
    assert!(lock.exists());
}

#[test]
fn d14_an_mcp_server_ends_with_the_server() {
    let folder = TempDir::new().unwrap();
    let events = Events::new(folder.path());
    let fifo = events.fifo.display();
    let script = format!("exec 9> {fifo}; echo started >&9; sleep 600");
    let command = json!(["sh", "-c", script]);
    let config = format!("[agents.tools]\ntype = \"mcp\"\nserver = {{ command = {command} }}\n");
    let mut server = serve_config(folder.path(), &config);
    // The server connects before it listens.
    events.expect_line("started");
    kill(&mut server);
    assert_eq!(events.next(), Event::End);
}
