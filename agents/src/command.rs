//! A command as an agent: what was asked goes to its stdin, what it writes to stdout comes back.

mod command_line;
mod json_lines;
mod output;
mod pipe_reader;
mod process;
mod process_group;
mod settings;
mod stderr_log;
mod tool_call;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::sync::Arc;

use attache::model::Secret;
use attache::{Agent, Failure, Outcome, Turn};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use command_line::{CommandLine, InvalidArgument};
use output::CommandOutput;
use process::{Process, ProcessEnd};
pub(crate) use process_group::{ProcessGroup, ProcessPipes};
pub use settings::{
    CommandInput, CommandSettings, CommandSpec, ExitCode, ExitMeaning, StderrAudience, StdoutFormat,
};
use stderr_log::{StderrLog, escape_control_chars};

/// What a command sees of our environment: enough to find programs and files, and nothing that is secret.
const DEFAULT_ENV_VARS: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
];

/// Runs a command for every turn.
///
/// The text of the message is its stdin, and there is no shell unless the command is one. What it writes to stdout
/// streams into an artifact named `output`, or is what [`StdoutFormat`] says. An exit status other than 0 fails the
/// task; the end of stderr is for the log. Its environment names the task (`ATTACHE_TASK_ID`), the conversation
/// (`ATTACHE_CONTEXT_ID`), the message, the caller and the tenant. When the turn ends, for whatever reason, so does
/// every process of the command's group: asked by SIGTERM after a cancel, otherwise by SIGKILL.
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
    processes: Arc<Semaphore>,
}

/// What is no command. Says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSettingsError(&'static str);

impl CommandAgent {
    /// Takes a line apart as a shell would, quotes and all, and expands nothing.
    ///
    /// # Errors
    /// The line is empty, or a quote is not closed.
    pub fn parse(command_line: &str) -> Result<Self, CommandSettingsError> {
        Self::from_settings(CommandSettings {
            command: CommandSpec::Line(command_line.to_owned()),
            ..CommandSettings::default()
        })
    }

    /// A program and its arguments.
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

    /// A command as its settings have it.
    ///
    /// # Errors
    /// There is no program to run, a quote is not closed, or what was asked would be part of a shell's line.
    pub fn from_settings(settings: CommandSettings) -> Result<Self, CommandSettingsError> {
        Ok(Self {
            command_line: CommandLine::new(&settings)?,
            environment: environment(&settings.pass_env, &settings.env).collect(),
            processes: new_semaphore(settings.max_processes),
            settings: Arc::new(settings),
        })
    }

    /// How many bytes it may write to stdout in one turn: 10 MiB by default. Beyond that it is killed.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        Arc::make_mut(&mut self.settings).max_output = bytes;
        self
    }

    /// How many may run at the same time: 64 by default, and at least one. Turns beyond that wait.
    #[must_use]
    pub fn max_processes(mut self, number: usize) -> Self {
        self.processes = new_semaphore(number);
        self
    }

    /// The name of the program, without its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        let program = &self.command_line.program;
        program
            .rsplit('/')
            .find(|name| !name.is_empty())
            .unwrap_or(program)
    }

    /// What a turn is told of itself.
    fn turn_env(turn: &Turn) -> impl Iterator<Item = (&'static str, String)> {
        let (call, trace) = (turn.call(), turn.trace());
        let place = trace.as_ref().map(|trace| trace.parent().to_owned());
        let state = trace
            .as_ref()
            .and_then(|trace| trace.state().map(str::to_owned));
        let told = [
            ("ATTACHE_TASK_ID", turn.task_id().to_string()),
            ("ATTACHE_CONTEXT_ID", turn.context_id().to_string()),
            ("ATTACHE_MESSAGE_ID", turn.message().message_id.to_string()),
            ("ATTACHE_CALLER", turn.caller().name().to_owned()),
            ("ATTACHE_TENANT", call.scope.tenant.to_string()),
            ("TRACEPARENT", place.unwrap_or_default()),
            ("TRACESTATE", state.unwrap_or_default()),
        ];
        // Ids of callers are free text, and no variable can hold a NUL.
        told.into_iter()
            .filter(|(_, value)| !value.is_empty() && !value.contains('\0'))
    }

    /// What goes to stdin.
    fn stdin_text(&self, turn: &Turn) -> String {
        let otherwise = if self.command_line.has_text_placeholder() {
            CommandInput::None
        } else {
            CommandInput::Text
        };
        match self.settings.input.unwrap_or(otherwise) {
            CommandInput::Text => turn.text(),
            CommandInput::Json => {
                let all =
                    json!({"text": turn.text(), "message": turn.message(), "task": turn.task()});
                format!("{all}\n")
            }
            CommandInput::None => String::new(),
        }
    }

    /// How the turn ended, by the way the command did.
    fn outcome(
        &self,
        ended: &ProcessEnd,
        said: Option<Outcome>,
        stderr_log: &StderrLog<'_>,
    ) -> Outcome {
        let how = match ended {
            ProcessEnd::TimedOut => {
                format!(
                    "the command took longer than {:?}",
                    self.settings.timeout.unwrap_or_default()
                )
            }
            ProcessEnd::Status(status) if status.success() => {
                return said.unwrap_or(Outcome::Completed);
            }
            ProcessEnd::Status(status) => {
                let declared = matches!(said, Some(Outcome::Failed(_) | Outcome::Rejected(_)));
                if let (true, Some(said)) = (declared, said) {
                    return said;
                }
                let known = self.settings.exit_codes.iter();
                let known = status
                    .code()
                    .and_then(|code| known.into_iter().find(|(known, _)| known.matches(code)));
                match known {
                    Some((_, ExitMeaning::Completed)) => return Outcome::Completed,
                    Some((_, ExitMeaning::Rejected)) => {
                        return Outcome::rejected(
                            self.failure_message(status.to_string(), stderr_log),
                        );
                    }
                    Some((_, ExitMeaning::Failed)) | None => process::describe_status(*status),
                }
            }
        };
        Outcome::failed(self.failure_message(how, stderr_log))
    }

    /// What the caller reads: how it ended or, if that is for callers, what the command had to say.
    fn failure_message(&self, how: String, stderr_log: &StderrLog<'_>) -> String {
        match self.settings.stderr {
            StderrAudience::Caller if !stderr_log.tail_text().is_empty() => stderr_log.tail_text(),
            StderrAudience::Caller | StderrAudience::Log => how,
        }
    }
}

fn new_semaphore(number: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(number.clamp(1, Semaphore::MAX_PERMITS)))
}

impl Agent for CommandAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let args = match self.command_line.args(&turn.text()) {
            Ok(args) => args,
            Err(InvalidArgument(why)) => return Ok(Outcome::rejected(why)),
        };
        let _place = self.processes.acquire().await?;
        let (mut process, pipes) =
            Process::start(self, &args, &turn).map_err(CommandError::Spawn)?;
        let ProcessPipes {
            stdin,
            stdout,
            stderr,
        } = pipes;
        let (ended, kill) = (CancellationToken::new(), CancellationToken::new());
        let mut output = CommandOutput::new(&turn, &self.settings);
        let mut stderr_log = StderrLog::new(turn.task_id());
        let end = async {
            let how = process
                .end(&self.settings, turn.cancelled(), kill.cancelled())
                .await;
            ended.cancel();
            how
        };
        let read = async {
            if !output.read_all(stdout, &ended).await {
                kill.cancel();
            }
        };
        let write_stdin = write_stdin(stdin, self.stdin_text(&turn), &ended);
        let (how, (), (), ()) =
            tokio::join!(end, read, write_stdin, stderr_log.read_all(stderr, &ended));
        let said = match output.finish().await {
            Ok(said) => said,
            Err(wrong) => return Ok(Outcome::failed(wrong)),
        };
        let how = how.map_err(CommandError::Wait)?;
        let outcome = self.outcome(&how, said, &stderr_log);
        if let Outcome::Failed(_) | Outcome::Rejected(_) = outcome {
            let agent = &turn.call().scope.agent;
            tracing::warn!(task = %turn.task_id(), %agent, ended = %how, stderr = escape_control_chars(&stderr_log.tail_text()), "command failed");
        }
        Ok(outcome)
    }

    /// What a command does to the world cannot be done twice.
    fn needs_durable_start(&self) -> bool {
        true
    }
}

/// What a program sees of our environment, and what it is given besides.
pub(crate) fn environment<'a>(
    passed: &'a [String],
    given: &'a BTreeMap<String, Secret>,
) -> impl Iterator<Item = (OsString, OsString)> + 'a {
    let passed = DEFAULT_ENV_VARS
        .iter()
        .copied()
        .chain(passed.iter().map(String::as_str));
    let passed = passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    passed.chain(
        given
            .iter()
            .map(|(name, value)| (name.into(), value.expose().into())),
    )
}

/// Gives the command what was asked, and closes its stdin. One that does not read it is not at fault.
async fn write_stdin(mut stdin: ChildStdin, text: String, ended: &CancellationToken) {
    let write = async {
        (
            stdin.write_all(text.as_bytes()).await,
            stdin.shutdown().await,
        )
    };
    tokio::select! {
        _ = write => {}
        () = ended.cancelled() => {}
    }
}

/// Why a command did not do its work: for the log.
#[derive(Debug)]
enum CommandError {
    Spawn(io::Error),
    Wait(io::Error),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn(error) => write!(f, "the command cannot be started: {error}"),
            Self::Wait(error) => write!(f, "the command cannot be waited for: {error}"),
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
