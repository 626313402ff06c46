//! Settings of the command agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration, OptionalHumanDuration};
use serde::{Deserialize, Serialize};

use crate::redact;
use crate::supervisor::Supervisor;

/// Settings of the command agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandSettings {
    /// Program and arguments: a list of words, or a line that is split into words like in a shell, without expansion.
    /// `{text}` in an argument is replaced by the message text; stdin is then empty unless `input` is set.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub command: CommandSpec,
    /// Whether the line is run by `sh -c`. It must not contain `{text}`.
    pub shell: bool,
    /// Content of stdin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<CommandInput>,
    /// Use of stdout.
    pub output: StdoutFormat,
    /// Whether the command may answer with a plain message instead of a task, as the JSON line `reply`. A message that
    /// names no task then runs the command without a task first. Needs `output = "json_lines"`.
    pub direct_reply: bool,
    /// Media type of the file if `output` is `file`.
    pub media_type: String,
    /// Name of the file if `output` is `file`.
    pub filename: String,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Variables of the server's environment that the program receives, in addition to `PATH`, `HOME` and similar ones.
    pub pass_env: Vec<String>,
    /// Additional environment variables.
    #[serde(serialize_with = "redact::map")]
    pub env: BTreeMap<String, Secret>,
    /// Maximum run time. Then the program receives SIGTERM and the task fails.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL.
    #[serde(with = "HumanDuration")]
    pub kill_after: Duration,
    /// Maximum size of stdout in one turn. A program that writes more is killed.
    #[serde(with = "ByteSize")]
    pub max_output: usize,
    /// Maximum number of concurrent processes. Further turns wait.
    pub max_processes: usize,
    /// Maximum number of concurrent processes of one caller. `None`: half of `max_processes`, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_processes_per_caller: Option<usize>,
    /// Meaning of exit codes other than 0. Codes that are not listed fail the task.
    pub exit_codes: BTreeMap<ExitCode, ExitMeaning>,
    /// Readers of stderr.
    pub stderr: StderrAudience,
    /// Supervisor of the processes. `None`: they survive a server that is killed.
    #[serde(skip)]
    pub supervisor: Option<Supervisor>,
}

/// Program and arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a command: a line of text, or a list of words")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CommandSpec {
    /// One line, split into words like in a shell.
    Line(String),
    /// List of words.
    List(Vec<String>),
}

/// Content of a program's stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CommandInput {
    /// Text of the message.
    Text,
    /// One line of JSON with `text`, `message`, and `task` including its history.
    Json,
    /// Nothing.
    None,
}

/// Use of a program's stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum StdoutFormat {
    /// Text that streams immediately.
    #[default]
    Text,
    /// Text that streams in complete lines.
    Lines,
    /// One JSON object per line with text, artifacts, questions or the final state.
    JsonLines,
    /// One file.
    File,
}

/// Exit code of a program: 1 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExitCode(i32);

/// Meaning of an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ExitMeaning {
    /// The task is completed.
    Completed,
    /// The task is rejected.
    Rejected,
    /// The task fails.
    Failed,
}

/// Readers of a program's stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum StderrAudience {
    /// The server's log only.
    #[default]
    Log,
    /// The log and the caller: the end of stderr is the message of a failed task.
    Caller,
}

impl ExitCode {
    pub(super) fn matches(self, code: i32) -> bool {
        self.0 == code
    }
}

impl From<i32> for ExitCode {
    fn from(code: i32) -> Self {
        Self(code)
    }
}

impl TryFrom<String> for ExitCode {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let code = text.parse().ok().filter(|code| (1..=255).contains(code));
        code.map(Self)
            .ok_or("an exit code must be a number from 1 to 255")
    }
}

impl From<ExitCode> for String {
    fn from(code: ExitCode) -> Self {
        code.0.to_string()
    }
}

impl Default for CommandSettings {
    fn default() -> Self {
        Self {
            command: CommandSpec::List(Vec::new()),
            shell: false,
            input: None,
            output: StdoutFormat::Text,
            direct_reply: false,
            media_type: "application/octet-stream".to_owned(),
            filename: "output".to_owned(),
            folder: None,
            pass_env: Vec::new(),
            env: BTreeMap::new(),
            timeout: None,
            kill_after: Duration::from_secs(2),
            max_output: 10 << 20,
            max_processes: 64,
            max_processes_per_caller: None,
            exit_codes: BTreeMap::new(),
            stderr: StderrAudience::Log,
            supervisor: None,
        }
    }
}
