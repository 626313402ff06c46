//! Reasons why a runner stops.

use std::fmt;

use crate::engine::Error;
use crate::store;

/// Result of a step of a runner.
pub(in crate::engine) type RunnerResult<T = ()> = std::result::Result<T, RunnerStop>;

/// Reason why a runner stops although its task has work left.
#[derive(Debug)]
pub(in crate::engine) enum RunnerStop {
    /// Another process runs the task: it has started a turn after ours, or holds the task. Nothing more may be appended here.
    Superseded,
    /// The store failed, the log is corrupt, or the engine shuts down. The runner retries until the task has an end.
    Failed(Error),
}

impl From<Error> for RunnerStop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<store::Error> for RunnerStop {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Fenced => Self::Superseded,
            error => Self::Failed(error.into()),
        }
    }
}

impl fmt::Display for RunnerStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded => f.write_str("another process runs the task"),
            Self::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for RunnerStop {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Superseded => None,
            Self::Failed(error) => error.source(),
        }
    }
}
