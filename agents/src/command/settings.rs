//! How a command is run, as a configuration file has it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration, OptionalHumanDuration};
use serde::{Deserialize, Serialize};

use crate::redact;

/// How a command is run for every turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandSettings {
    /// The program and its arguments: a list of words, or a line that is split into words as a shell would, but
    /// nothing is expanded. `{text}` in an argument is replaced by what was asked; then nothing goes to stdin unless
    /// `input` says so.
    #[cfg_attr(feature = "schema", schemars(required))]
    pub command: CommandSpec,
    /// Gives the line to `sh -c` as it is. What was asked is never part of it.
    pub shell: bool,
    /// What the command reads from stdin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<CommandInput>,
    /// What is made of its stdout.
    pub output: StdoutFormat,
    /// The media type of the file, where `output` is `file`.
    pub media_type: String,
    /// The name of the file, where `output` is `file`.
    pub filename: String,
    /// The folder it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Variables of our environment that it sees, beside those that it needs to find programs and files.
    pub pass_env: Vec<String>,
    /// Variables that it sees besides.
    #[serde(serialize_with = "redact::map")]
    pub env: BTreeMap<String, Secret>,
    /// How long it may take; then it is asked to end, and the task fails.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub timeout: Option<Duration>,
    /// How long it may take to end after that, before it is killed.
    #[serde(with = "HumanDuration")]
    pub kill_after: Duration,
    /// How much it may write to stdout in one turn; beyond that it is killed.
    #[serde(with = "ByteSize")]
    pub max_output: usize,
    /// How many may run at the same time; turns beyond that wait.
    pub max_processes: usize,
    /// What exit codes other than 0 mean; those that are not here fail the task.
    pub exit_codes: BTreeMap<ExitCode, ExitMeaning>,
    /// Who reads what it writes to stderr.
    pub stderr: StderrAudience,
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a command: a line of text, or a list of words")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CommandSpec {
    /// Split as a shell would.
    Line(String),
    /// Word by word.
    List(Vec<String>),
}

/// What a command reads from stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CommandInput {
    /// The text of the message.
    Text,
    /// One line of JSON: `text`, the `message`, and the `task` with its history.
    Json,
    /// Nothing.
    None,
}

/// What is made of what a command writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum StdoutFormat {
    /// Text that streams as it comes.
    #[default]
    Text,
    /// Text that streams in whole lines.
    Lines,
    /// An object of JSON in every line says what happens: text, results, questions, the end.
    JsonLines,
    /// One file.
    File,
}

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExitCode(i32);

/// What an exit code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ExitMeaning {
    /// The work is done.
    Completed,
    /// The command declines.
    Rejected,
    /// The work could not be done.
    Failed,
}

/// Who reads stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum StderrAudience {
    /// Whoever runs the server.
    #[default]
    Log,
    /// The caller too: the end of it is the reason of a failure.
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
            .ok_or("an exit code is a number between 1 and 255")
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
            media_type: "application/octet-stream".to_owned(),
            filename: "output".to_owned(),
            folder: None,
            pass_env: Vec::new(),
            env: BTreeMap::new(),
            timeout: None,
            kill_after: Duration::from_secs(2),
            max_output: 10 << 20,
            max_processes: 64,
            exit_codes: BTreeMap::new(),
            stderr: StderrAudience::Log,
        }
    }
}
