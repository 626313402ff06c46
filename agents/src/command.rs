//! A command as an agent: what was asked goes to its stdin, what it writes to stdout comes back.

mod output;
mod process;
mod stderr;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use attache::{Agent, Failure, Outcome, Turn};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use output::Output;
use process::{Pipes, Process};
use stderr::Stderr;

/// What a command may write in one turn, unless told otherwise.
const MAX_OUTPUT: usize = 10 * 1024 * 1024;

/// How many commands run at the same time, unless told otherwise.
const MAX_PROCESSES: usize = 64;

/// What a command sees of our environment: enough to find programs and files, and nothing that is secret.
const ENVIRONMENT: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// Runs a command for every turn.
///
/// The text of the message is its stdin, never an argument, and there is no shell unless the command is one. What it
/// writes to stdout streams into an artifact named `output`. An exit status other than 0 fails the task; the reason,
/// with the end of stderr, is for the log. When the turn ends, for whatever reason, so does every process of the
/// command's group: asked by SIGTERM after a cancel, otherwise by SIGKILL.
///
/// ```
/// let agent = attache_agents::Command::parse("wc -w")?.max_output(1024);
/// # Ok::<(), attache_agents::BadCommand>(())
/// ```
#[derive(Debug, Clone)]
pub struct Command {
    program: String,
    args: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    max_output: usize,
    processes: Arc<Semaphore>,
}

/// A line that is no command. Says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCommand(&'static str);

impl Command {
    /// Takes a line apart as a shell would, quotes and all, and expands nothing.
    ///
    /// # Errors
    /// The line is empty, or a quote is not closed.
    pub fn parse(line: &str) -> Result<Self, BadCommand> {
        let words = shell_words::split(line).map_err(|_| BadCommand("a quote is not closed"))?;
        let (program, args) = words.split_first().ok_or(BadCommand("the command is empty"))?;
        if program.is_empty() {
            return Err(BadCommand("the name of the program is empty"));
        }
        Ok(Self::new(program, args))
    }

    /// A program and its arguments.
    pub fn new(program: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let ours = ENVIRONMENT.iter().filter_map(|&name| Some((name.into(), std::env::var_os(name)?)));
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            environment: ours.collect(),
            max_output: MAX_OUTPUT,
            processes: Arc::new(Semaphore::new(MAX_PROCESSES)),
        }
    }

    /// How many bytes it may write to stdout in one turn: 10 MiB by default. Beyond that it is killed.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = bytes;
        self
    }

    /// How many may run at the same time: 64 by default, and at least one. Turns beyond that wait.
    #[must_use]
    pub fn max_processes(mut self, number: usize) -> Self {
        self.processes = Arc::new(Semaphore::new(number.clamp(1, Semaphore::MAX_PERMITS)));
        self
    }

    /// The name of the program, without its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        self.program.rsplit('/').find(|name| !name.is_empty()).unwrap_or(&self.program)
    }
}

impl Agent for Command {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let _place = self.processes.acquire().await?;
        let (mut process, pipes) = Process::start(self).map_err(CommandFailed::NotStarted)?;
        let Pipes { stdin, stdout, stderr } = pipes;
        let (ended, too_much) = (CancellationToken::new(), CancellationToken::new());
        let mut output = Output::new(&turn, self.max_output);
        let mut complaints = Stderr::new(turn.task_id());
        let end = async {
            let status = process.end(turn.cancelled(), too_much.cancelled()).await;
            ended.cancel();
            status
        };
        let read = async {
            if !output.take(stdout, &ended).await {
                too_much.cancel();
            }
        };
        let (status, (), (), ()) =
            tokio::join!(end, read, feed(stdin, turn.text(), &ended), complaints.take(stderr, &ended));
        if output.finish().await {
            return Ok(Outcome::failed(format!("the output is larger than {} bytes", self.max_output)));
        }
        let status = status.map_err(CommandFailed::Lost)?;
        if status.success() { Ok(Outcome::Completed) } else { Err(complaints.failure(status).into()) }
    }

    /// What a command does to the world cannot be done twice.
    fn durable_start(&self) -> bool {
        true
    }
}

/// Gives the command what was asked, and closes its stdin. One that does not read it is not at fault.
async fn feed(mut stdin: ChildStdin, text: String, ended: &CancellationToken) {
    let write = async { (stdin.write_all(text.as_bytes()).await, stdin.shutdown().await) };
    tokio::select! {
        _ = write => {}
        () = ended.cancelled() => {}
    }
}

/// Why a command did not do its work: for the log.
#[derive(Debug)]
enum CommandFailed {
    NotStarted(io::Error),
    Lost(io::Error),
    Ended { status: ExitStatus, stderr: String },
}

impl fmt::Display for CommandFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(error) => write!(f, "the command cannot be started: {error}"),
            Self::Lost(error) => write!(f, "the command cannot be waited for: {error}"),
            Self::Ended { status, stderr } if stderr.is_empty() => write!(f, "{status}"),
            Self::Ended { status, stderr } => write!(f, "{status}; the end of stderr: {stderr:?}"),
        }
    }
}

impl std::error::Error for CommandFailed {}

impl fmt::Display for BadCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadCommand {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s57_a_line_is_taken_apart_without_a_shell() {
        let command = Command::parse(r#"/usr/bin/printf '%s\n' "a b" $HOME `id` ; x > y"#).unwrap();
        assert_eq!(command.name(), "printf");
        assert_eq!(command.args, [r"%s\n", "a b", "$HOME", "`id`", ";", "x", ">", "y"]);
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for (line, why) in
            [("", "empty"), ("  ", "empty"), ("'' x", "name of the program"), ("echo 'a", "quote")]
        {
            assert!(Command::parse(line).unwrap_err().to_string().contains(why), "{line}");
        }
    }
}
