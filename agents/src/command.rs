//! Agent that runs a program for every turn.
//!
//! The program reads the message from stdin, and its stdout becomes the result of the task. [`CommandLine`] builds the
//! arguments, [`Process`] runs the process group, and [`CommandOutput`] turns stdout into artifacts. `tool_call` runs the
//! same program as a tool of a language model.

mod command_line;
mod direct_reply;
mod environment;
mod json_lines;
mod output;
mod pipe_reader;
mod process;
mod process_group;
mod program_run;
mod settings;
mod stderr_log;
mod tool_call;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::sync::Arc;

use attache::model::{Call, CallerKey, Message};
use attache::{Agent, Failure, FairSemaphore, Outcome, Turn};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio_util::sync::CancellationToken;

use crate::backend_context::{backend_message, backend_task};
use crate::supervisor::Supervisor;
use crate::turn_output::remembered;
use command_line::{CommandLine, InvalidArgument};
pub(crate) use environment::environment;
use environment::turn_variables;
use output::CommandOutput;
pub(crate) use pipe_reader::PipeReader;
pub(crate) use process::Process;
use process::ProcessEnd;
pub(crate) use process_group::{ProcessGroup, ProcessPipes};
pub(crate) use program_run::ProgramRun;
pub use settings::{
    CommandInput, CommandSettings, CommandSpec, ExitCode, ExitMeaning, StderrAudience, StdoutFormat,
};
use stderr_log::StderrLog;
pub(crate) use stderr_log::escape_control_chars;

/// Agent that runs a program for every turn.
///
/// The program reads the message text from stdin. No shell is involved unless the command is one. Its stdout streams into
/// an artifact named `output`, or is handled as [`StdoutFormat`] says. An exit status other than 0 fails the task; the end
/// of stderr is logged.
///
/// Environment variables name the task (`ATTACHE_TASK_ID`), the conversation (`ATTACHE_CONTEXT_ID`), the message, the
/// caller and the tenant. The id of the conversation is derived from agent, tenant, caller and context id. When the turn
/// ends, the whole process group ends: with SIGTERM after a cancel, otherwise with SIGKILL. With a [`Supervisor`] the
/// processes also end if the server is killed.
///
/// ```
/// let agent = attache_agents::CommandAgent::parse("wc -w")?.max_output(1024);
/// # Ok::<(), attache_agents::CommandSettingsError>(())
/// ```
#[derive(Debug, Clone)]
pub struct CommandAgent {
    command_line: CommandLine,
    settings: Arc<CommandSettings>,
    environment: Vec<(OsString, OsString)>,
    /// Bounds the number of concurrent processes, fairly among callers.
    permits: FairSemaphore<CallerKey>,
}

/// Error for invalid command settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSettingsError(&'static str);

impl CommandAgent {
    /// Creates an agent from a command line. Splits it into words like a shell, but expands nothing.
    ///
    /// # Errors
    /// The line is empty, or a quote is not closed.
    pub fn parse(command_line: &str) -> Result<Self, CommandSettingsError> {
        Self::from_settings(CommandSettings {
            command: CommandSpec::Line(command_line.to_owned()),
            ..CommandSettings::default()
        })
    }

    /// Creates an agent from a program and its arguments.
    ///
    /// # Errors
    /// The name of the program is empty.
    pub fn new(
        program: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, CommandSettingsError> {
        let words = [program.into()]
            .into_iter()
            .chain(args.into_iter().map(Into::into))
            .collect();
        Self::from_settings(CommandSettings {
            command: CommandSpec::List(words),
            ..CommandSettings::default()
        })
    }

    /// Creates an agent from settings.
    ///
    /// # Errors
    /// The command is empty, a quote is not closed, `{text}` is part of a shell command, or `direct_reply` is set without JSON
    /// lines.
    pub fn from_settings(settings: CommandSettings) -> Result<Self, CommandSettingsError> {
        if settings.direct_reply && settings.output != StdoutFormat::JsonLines {
            return Err(CommandSettingsError(
                "direct_reply needs output = \"json_lines\"",
            ));
        }
        Ok(Self {
            command_line: CommandLine::new(&settings)?,
            environment: environment(&settings.pass_env, &settings.env).collect(),
            permits: process_permits(&settings),
            settings: Arc::new(settings),
        })
    }

    /// Limits stdout of one turn, in bytes: 10 MiB by default. A program that writes more is killed.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.settings).max_output = bytes;
        self
    }

    /// Limits the number of concurrent processes: 64 by default, at least 1. One caller may have half of them. Further
    /// turns wait.
    #[must_use]
    pub fn max_processes(mut self, number: usize) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.max_processes = number;
        self.permits = process_permits(settings);
        self
    }

    /// Limits the number of concurrent processes of one caller.
    #[must_use]
    pub fn max_processes_per_caller(mut self, number: usize) -> Self {
        let settings = Arc::make_mut(&mut self.settings);
        settings.max_processes_per_caller = Some(number);
        self.permits = process_permits(settings);
        self
    }

    /// Sets the supervisor of the processes. Without one they survive a server that is killed.
    #[must_use]
    pub fn supervisor(mut self, supervisor: Supervisor) -> Self {
        Arc::make_mut(&mut self.settings).supervisor = Some(supervisor);
        self
    }

    /// Returns the name of the program without its directory.
    #[must_use]
    pub fn name(&self) -> &str {
        let program = &self.command_line.program;
        program
            .rsplit('/')
            .find(|name| !name.is_empty())
            .unwrap_or(program)
    }

    /// Whether an argument contains `{text}`.
    pub(crate) fn has_text_placeholder(&self) -> bool {
        self.command_line.has_text_placeholder()
    }

    /// Returns the arguments as configured, for a command without `{text}`.
    pub(crate) fn configured_args(&self) -> &[String] {
        self.command_line.templates()
    }

    /// Starts the program with arguments and further environment variables.
    fn start(
        &self,
        args: &[String],
        variables: impl IntoIterator<Item = (&'static str, String)>,
    ) -> io::Result<(Process, ProcessPipes)> {
        let environment = self.environment.iter();
        let mut program = tokio::process::Command::new(&self.command_line.program);
        program
            .args(args)
            .env_clear()
            .envs(environment.map(|(name, value)| (name, value)))
            .envs(variables);
        let settings = &self.settings;
        Process::start(
            program,
            settings.folder.as_deref(),
            settings.supervisor.as_ref(),
        )
    }

    /// Returns the content of stdin. Without `input` setting there is none if the arguments contain the message text.
    fn input(&self) -> CommandInput {
        let default = if self.has_text_placeholder() {
            CommandInput::None
        } else {
            CommandInput::Text
        };
        self.settings.input.unwrap_or(default)
    }

    /// Returns the text for stdin.
    fn stdin_text(&self, turn: &Turn) -> String {
        match self.input() {
            CommandInput::Text => turn.text(),
            CommandInput::Json => {
                let mut input = json!({"text": turn.text(), "message": backend_message(turn), "task": backend_task(turn)});
                if let Some(memory) = remembered(turn) {
                    input["memory"] = json!(memory);
                }
                format!("{input}\n")
            }
            CommandInput::None => String::new(),
        }
    }

    /// Returns the outcome of the turn. `declared` is the one that the program wrote as JSON lines.
    fn outcome(
        &self,
        end: &ProcessEnd,
        declared: Option<Outcome>,
        stderr: &StderrLog<'_>,
    ) -> Outcome {
        let status = match end {
            ProcessEnd::Exited(status) => *status,
            ProcessEnd::TimedOut => {
                let timeout = self.settings.timeout.unwrap_or_default();
                let reason = format!("the command took longer than {timeout:?}");
                return Outcome::failed(self.failure_message(reason, stderr));
            }
        };
        if status.success() {
            return declared.unwrap_or(Outcome::Completed);
        }
        if let Some(declared @ (Outcome::Failed(_) | Outcome::Rejected(_))) = declared {
            return declared;
        }
        match self.exit_meaning(status.code()) {
            ExitMeaning::Completed => Outcome::Completed,
            ExitMeaning::Rejected => {
                Outcome::rejected(self.failure_message(status.to_string(), stderr))
            }
            ExitMeaning::Failed => {
                let reason = process::describe_status(status);
                Outcome::failed(self.failure_message(reason, stderr))
            }
        }
    }

    fn exit_meaning(&self, code: Option<i32>) -> ExitMeaning {
        let configured = code.and_then(|code| {
            let mut codes = self.settings.exit_codes.iter();
            codes.find(|(configured, _)| configured.matches(code))
        });
        configured.map_or(ExitMeaning::Failed, |(_, meaning)| *meaning)
    }

    /// Returns the message for the caller: the end of stderr if callers may read it, else `reason`.
    fn failure_message(&self, reason: String, stderr: &StderrLog<'_>) -> String {
        match self.settings.stderr {
            StderrAudience::Caller if !stderr.tail_text().is_empty() => stderr.tail_text(),
            StderrAudience::Caller | StderrAudience::Log => reason,
        }
    }
}

fn process_permits(settings: &CommandSettings) -> FairSemaphore<CallerKey> {
    FairSemaphore::new(settings.max_processes, settings.max_processes_per_caller)
}

impl Agent for CommandAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let args = match self.command_line.args(&turn.text()) {
            Ok(args) => args,
            Err(InvalidArgument(reason)) => return Ok(Outcome::rejected(reason)),
        };
        let _permit = self.permits.acquire(turn.call().caller_key()).await;
        let started = self
            .start(&args, turn_variables(&turn))
            .map_err(CommandError::Spawn)?;
        let (mut process, pipes) = started;
        let exited = CancellationToken::new();
        let kill = CancellationToken::new();
        let mut output = CommandOutput::new(&turn, &self.settings);
        let mut stderr = StderrLog::new(Some(turn.task_id()));
        let wait = async {
            let end = process
                .wait(&self.settings, turn.cancelled(), kill.cancelled())
                .await;
            exited.cancel();
            end
        };
        let read_stdout = async {
            if !output.read_all(pipes.stdout, &exited).await {
                kill.cancel();
            }
        };
        let input = self.stdin_text(&turn);
        let write_stdin = write_stdin(pipes.stdin, input.as_bytes(), &exited);
        let read_stderr = stderr.read_all(pipes.stderr, &exited);
        let (end, (), (), ()) = tokio::join!(wait, read_stdout, write_stdin, read_stderr);
        let declared = match output.finish().await {
            Ok(declared) => declared,
            Err(reason) => return Ok(Outcome::failed(reason)),
        };
        let end = end.map_err(CommandError::Wait)?;
        let outcome = self.outcome(&end, declared, &stderr);
        if let Outcome::Failed(_) | Outcome::Rejected(_) = outcome {
            let agent = &turn.call().scope.agent;
            let stderr = escape_control_chars(&stderr.tail_text());
            tracing::warn!(task = %turn.task_id(), %agent, ended = %end, stderr, "command failed");
        }
        Ok(outcome)
    }

    async fn reply(&self, message: &Message, call: &Call) -> Option<Message> {
        if !self.settings.direct_reply {
            return None;
        }
        // Boxed: few commands reply, and all calls have room for this future.
        Box::pin(direct_reply::direct_reply(self, message, call)).await
    }

    /// Returns `true`: a command has side effects and must not run twice for one turn.
    fn needs_durable_start(&self) -> bool {
        true
    }
}

/// Writes the input and closes stdin. A program that exits without reading it is not an error.
async fn write_stdin(mut stdin: ChildStdin, input: &[u8], exited: &CancellationToken) {
    let write = async {
        let _ = stdin.write_all(input).await;
        let _ = stdin.shutdown().await;
    };
    tokio::select! {
        () = write => {}
        () = exited.cancelled() => {}
    }
}

/// Failure to run a process, for the log.
#[derive(Debug)]
enum CommandError {
    Spawn(io::Error),
    Wait(io::Error),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn(error) => write!(f, "the command cannot be started: {error}"),
            Self::Wait(error) => write!(f, "the exit status of the command is unknown: {error}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl fmt::Display for CommandSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for CommandSettingsError {}
