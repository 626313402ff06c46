//! Settings of the worker agent.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use attache::model::Secret;
use attache::model::units::{ByteSize, HumanDuration, OptionalHumanDuration};
use serde::{Deserialize, Serialize};

use crate::redact;
use crate::supervisor::Supervisor;

/// Settings of the worker agent. Either `file` or `command` is set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerSettings {
    /// Python, JavaScript or TypeScript file whose function is the agent: `.py`, `.mjs`, `.js`, `.cjs`, `.ts`, `.mts`. The
    /// interpreter receives the helper library `attache.agent` or `@attache/agent` from the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Interpreter of `file`, with its options. Default for Python: the one of a virtual environment `.venv` or `venv` beside
    /// the file, else `python3`; for JavaScript and TypeScript: `node`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interpreter: Vec<String>,
    /// Program and arguments of another worker that speaks the worker protocol.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Working directory. Default: that of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Variables of the server's environment that the workers receive, in addition to `PATH`, `HOME` and similar ones.
    pub pass_env: Vec<String>,
    /// Additional environment variables.
    #[serde(serialize_with = "redact::map")]
    pub env: BTreeMap<String, Secret>,
    /// Number of processes.
    pub workers: usize,
    /// Maximum number of concurrent turns of one process. Further turns wait.
    pub turns_per_worker: usize,
    /// Maximum number of concurrent turns of one caller. `None`: half of all, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns_per_caller: Option<usize>,
    /// Maximum run time of a turn. Then the turn is canceled in the worker and the task fails.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub timeout: Option<Duration>,
    /// Maximum time from the start of a process to its first line. A process that takes longer is killed.
    #[serde(with = "HumanDuration")]
    pub start_timeout: Duration,
    /// Maximum time without an answer to a ping. A process that takes longer is killed.
    #[serde(with = "HumanDuration")]
    pub health_timeout: Duration,
    /// Time in which a process must end a canceled turn. Afterwards it receives no more turns, and is replaced once its other
    /// turns have ended.
    #[serde(with = "HumanDuration")]
    pub cancel_timeout: Duration,
    /// Time in which a process must end after its stdin was closed. Then it is killed.
    #[serde(with = "HumanDuration")]
    pub kill_after: Duration,
    /// Maximum length of a line, in both directions. A process that writes a longer one is killed.
    #[serde(with = "ByteSize")]
    pub max_line: usize,
    /// Maximum output of one turn. A turn that writes more fails.
    #[serde(with = "ByteSize")]
    pub max_output: usize,
    /// Supervisor of the processes. `None`: they survive a server that is killed.
    #[serde(skip)]
    pub supervisor: Option<Supervisor>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            file: None,
            interpreter: Vec::new(),
            command: Vec::new(),
            folder: None,
            pass_env: Vec::new(),
            env: BTreeMap::new(),
            workers: 2,
            turns_per_worker: 16,
            max_turns_per_caller: None,
            timeout: None,
            start_timeout: Duration::from_secs(30),
            health_timeout: Duration::from_secs(60),
            cancel_timeout: Duration::from_secs(10),
            kill_after: Duration::from_secs(2),
            max_line: 4 << 20,
            max_output: 10 << 20,
            supervisor: None,
        }
    }
}

/// Smallest `max_line`: a message of a few words with its task fits.
const MIN_LINE: usize = 1024;

/// Error for invalid worker settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettingsError {
    /// The invalid setting.
    pub key: &'static str,
    message: String,
}

impl WorkerSettingsError {
    pub(super) fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self {
            key,
            message: message.into(),
        }
    }
}

impl fmt::Display for WorkerSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WorkerSettingsError {}

impl WorkerSettings {
    /// Checks the limits.
    pub(super) fn check(&self) -> Result<(), WorkerSettingsError> {
        for (key, number) in [
            ("workers", self.workers),
            ("turns_per_worker", self.turns_per_worker),
        ] {
            if !(1..=1024).contains(&number) {
                return Err(WorkerSettingsError::new(key, "must be 1 to 1024"));
            }
        }
        if self.max_line < MIN_LINE {
            return Err(WorkerSettingsError::new(
                "max_line",
                "must be at least 1 KiB",
            ));
        }
        for (key, time) in [
            ("start_timeout", self.start_timeout),
            ("health_timeout", self.health_timeout),
        ] {
            if time.is_zero() {
                return Err(WorkerSettingsError::new(key, "must be more than 0"));
            }
        }
        Ok(())
    }
}
