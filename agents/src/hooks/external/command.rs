//! Hook that runs a program for every document.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use attache::model::units::ByteSize;
use attache::model::{CallerKey, Secret};
use attache::{HookContext, HookError};
use serde::{Deserialize, Serialize};

use crate::command::{CommandAgent, CommandSettings, CommandSpec, ProgramRun};
use crate::redact;
use crate::supervisor::Supervisor;

/// Settings of a hook that runs a program for every document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandHookSettings {
    /// Program and arguments: a list of words, or a line that is split into words like in a shell, without expansion.
    pub command: CommandSpec,
    /// Whether the line is run by `sh -c`.
    pub shell: bool,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Variables of the server's environment that the program receives, in addition to `PATH`, `HOME` and similar ones.
    pub pass_env: Vec<String>,
    /// Additional environment variables.
    #[serde(serialize_with = "redact::map")]
    pub env: BTreeMap<String, Secret>,
    /// Maximum size of a reply. A program that writes more is killed, which is a failure.
    #[serde(with = "ByteSize")]
    pub max_reply: usize,
    /// Maximum number of concurrent processes. One caller may have half of them; further ones wait.
    pub max_processes: usize,
    /// Supervisor of the processes. `None`: they survive a server that is killed.
    #[serde(skip)]
    pub supervisor: Option<Supervisor>,
}

impl Default for CommandHookSettings {
    fn default() -> Self {
        Self {
            command: CommandSpec::List(Vec::new()),
            shell: false,
            folder: None,
            pass_env: Vec::new(),
            env: BTreeMap::new(),
            max_reply: 10 << 20,
            max_processes: 16,
            supervisor: None,
        }
    }
}

/// Error for invalid [`CommandHookSettings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandHookSettingsError {
    /// Invalid key.
    pub key: &'static str,
    reason: String,
}

/// Program of a hook.
#[derive(Debug)]
pub(super) struct CommandTransport(CommandAgent);

impl CommandTransport {
    pub(super) fn new(settings: CommandHookSettings) -> Result<Self, CommandHookSettingsError> {
        let invalid = |key, reason: String| CommandHookSettingsError { key, reason };
        for (key, value) in [
            ("max_reply", settings.max_reply),
            ("max_processes", settings.max_processes),
        ] {
            if value == 0 {
                return Err(invalid(key, "must be at least 1".to_owned()));
            }
        }
        let command = CommandAgent::from_settings(CommandSettings {
            command: settings.command,
            shell: settings.shell,
            folder: settings.folder,
            pass_env: settings.pass_env,
            env: settings.env,
            max_output: settings.max_reply,
            max_processes: settings.max_processes,
            supervisor: settings.supervisor,
            ..CommandSettings::default()
        });
        let command = command.map_err(|error| invalid("command", error.to_string()))?;
        if command.has_text_placeholder() {
            let reason = "must not contain {text}: the document is on stdin".to_owned();
            return Err(invalid("command", reason));
        }
        Ok(Self(command))
    }

    /// Runs the program with a document on stdin, and returns its stdout. Dropping the future kills the program.
    ///
    /// # Errors
    /// The program cannot be started, fails, or writes too much.
    pub(super) async fn exchange(
        &self,
        context: &HookContext<'_>,
        caller: CallerKey,
        document: Vec<u8>,
    ) -> Result<Vec<u8>, HookError> {
        let run = ProgramRun {
            caller,
            task: context.task_id(),
            args: self.0.configured_args(),
            variables: Vec::new(),
            input: document,
        };
        // The cause has no output of the program, which may quote the document.
        Ok(self.0.run_program(run).await?)
    }
}

impl fmt::Display for CommandHookSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for CommandHookSettingsError {}
