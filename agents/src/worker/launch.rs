//! Command line and environment of a worker process.

use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::path::Path;

use tokio::process::Command;

use super::settings::{WorkerSettings, WorkerSettingsError};
use crate::command::{Process, ProcessPipes, environment};

/// Helper library for Python, and the program that makes it importable and runs the file.
const PYTHON_SDK: &str = include_str!("../../sdk/python/attache/agent.py");
const PYTHON_START: &str = "import os;exec(compile(os.environ.pop('ATTACHE_WORKER_SDK'),'attache/agent.py','exec'),{'__name__':'attache.bootstrap'})";

/// Helper library for Node, and the module that makes it importable.
const NODE_SDK: &str = include_str!("../../sdk/node/index.mjs");
const NODE_START: &str = include_str!("../../sdk/node/register.mjs");

/// Variable with the source of the helper library. A worker removes it before it runs code of the agent.
const SDK_VARIABLE: &str = "ATTACHE_WORKER_SDK";

/// Everything that starts a worker process.
#[derive(Debug)]
pub(super) struct Launch {
    program: OsString,
    args: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// Language of a file, by its extension.
#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
}

impl Launch {
    /// Determines the command line.
    ///
    /// # Errors
    /// Neither or both of `file` and `command` are set, or the language of the file is unknown.
    pub(super) fn new(settings: &WorkerSettings) -> Result<Self, WorkerSettingsError> {
        let mut environment: Vec<_> = environment(&settings.pass_env, &settings.env).collect();
        let mut words: Vec<OsString> = Vec::new();
        match (&settings.file, settings.command.is_empty()) {
            (None, false) if !settings.interpreter.is_empty() => {
                return Err(WorkerSettingsError::new(
                    "interpreter",
                    "belongs to `file`; `command` begins with its program",
                ));
            }
            (None, false) => words.extend(settings.command.iter().map(OsString::from)),
            (Some(file), true) => {
                let language = Language::from_path(file)?;
                words.extend(language.interpreter(settings, file));
                let sdk = match language {
                    Language::Python => {
                        words.extend(["-c", PYTHON_START].map(OsString::from));
                        PYTHON_SDK
                    }
                    Language::Node => {
                        let start = format!("data:text/javascript,{}", url_encode(NODE_START));
                        words.extend(["--import", &start].map(OsString::from));
                        NODE_SDK
                    }
                };
                words.push(absolute(file));
                environment.push((SDK_VARIABLE.into(), sdk.into()));
            }
            (None, true) => {
                return Err(WorkerSettingsError::new(
                    "file",
                    "is missing; name a Python or JavaScript file, or set `command`",
                ));
            }
            (Some(_), false) => {
                return Err(WorkerSettingsError::new(
                    "command",
                    "is set beside `file`; remove one of them",
                ));
            }
        }
        let mut words = words.into_iter();
        let program = words
            .next()
            .filter(|program| !program.is_empty())
            .ok_or_else(|| WorkerSettingsError::new("command", "must not be empty"))?;
        Ok(Self {
            program,
            args: words.collect(),
            environment,
        })
    }

    /// Starts a process.
    pub(super) fn start(&self, settings: &WorkerSettings) -> io::Result<(Process, ProcessPipes)> {
        let mut program = Command::new(&self.program);
        program
            .args(&self.args)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Process::start(
            program,
            settings.folder.as_deref(),
            settings.supervisor.as_ref(),
        )
    }

    /// The program, for messages.
    pub(super) fn program(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

impl Language {
    fn from_path(file: &Path) -> Result<Self, WorkerSettingsError> {
        let extension = file.extension().and_then(|extension| extension.to_str());
        match extension {
            Some("py") => Ok(Self::Python),
            Some("mjs" | "js" | "cjs" | "ts" | "mts") => Ok(Self::Node),
            _ => Err(WorkerSettingsError::new(
                "file",
                "must end with .py, .mjs, .js, .cjs, .ts or .mts; set `command` for another language",
            )),
        }
    }

    fn interpreter(self, settings: &WorkerSettings, file: &Path) -> Vec<OsString> {
        if !settings.interpreter.is_empty() {
            return settings.interpreter.iter().map(OsString::from).collect();
        }
        match self {
            Self::Python => vec![virtual_environment(file).unwrap_or_else(|| "python3".into())],
            Self::Node => vec!["node".into()],
        }
    }
}

/// Finds the Python of a virtual environment beside the file.
fn virtual_environment(file: &Path) -> Option<OsString> {
    let folder = file.parent()?;
    let mut candidates = [".venv", "venv"]
        .into_iter()
        .map(|name| folder.join(name).join("bin/python3"));
    let found = candidates.find(|python| python.is_file())?;
    Some(absolute(&found))
}

/// Path that does not depend on the working directory of the worker.
fn absolute(path: &Path) -> OsString {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .into_os_string()
}

/// Percent-encodes all but letters and digits: Node cuts a data URL at `?` and `#`.
fn url_encode(source: &str) -> String {
    let mut encoded = String::with_capacity(source.len() * 2);
    for byte in source.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
