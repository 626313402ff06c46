//! What went wrong in the engine, and what callers are told of it.

use std::fmt;
use std::time::Duration;

use crate::model::{self, ErrorKind, FoldError, TaskId, TaskState};
use crate::store::{self, HealthProblem};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in the engine.
#[derive(Debug)]
pub(crate) enum Error {
    /// The task has ended and takes no more.
    Ended(TaskState),
    /// The task was removed meanwhile.
    Deleted,
    /// Too much waits already.
    Overloaded,
    /// The task has no room for more.
    TooLarge,
    /// The engine is being stopped.
    ShuttingDown,
    /// Nothing can be recorded for now.
    StoreUnavailable,
    /// The store takes no writes.
    Unwritable(HealthProblem),
    /// Somebody else works on the task: they have begun a turn after ours.
    Superseded,
    /// The store failed.
    Store(store::Error),
    /// The agent broke a rule of the protocol, and the task has failed.
    InvalidAgentResponse(TaskId),
    /// A log does not fold: it was not written by us.
    CorruptLog(FoldError),
}

impl Error {
    /// Whether what was asked for was surely not done; after any other error it may have been.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Ended(_)
            | Self::Deleted
            | Self::Overloaded
            | Self::TooLarge
            | Self::Store(store::Error::KeyReused) => true,
            Self::ShuttingDown
            | Self::StoreUnavailable
            | Self::Unwritable(_)
            | Self::Superseded
            | Self::Store(_)
            | Self::InvalidAgentResponse(_)
            | Self::CorruptLog(_) => false,
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<FoldError> for Error {
    fn from(broken: FoldError) -> Self {
        Self::CorruptLog(broken)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(state) => write!(f, "the task has ended as {state}"),
            Self::Deleted => f.write_str("the task was removed"),
            Self::Overloaded => f.write_str("too much waits already"),
            Self::TooLarge => f.write_str(
                "the task would be larger than max_task_bytes allows; begin another one",
            ),
            Self::ShuttingDown => f.write_str("the engine is being stopped"),
            Self::StoreUnavailable => f.write_str("nothing can be recorded for now"),
            Self::Unwritable(why) => write!(f, "the store cannot be written: {why}"),
            Self::Superseded => f.write_str("somebody else works on the task"),
            Self::InvalidAgentResponse(_) => f.write_str("the agent broke a rule of the protocol"),
            Self::Store(error) => fmt::Display::fmt(error, f),
            Self::CorruptLog(broken) => fmt::Display::fmt(broken, f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => std::error::Error::source(error),
            Self::Ended(_)
            | Self::Deleted
            | Self::Overloaded
            | Self::TooLarge
            | Self::ShuttingDown
            | Self::StoreUnavailable
            | Self::Unwritable(_)
            | Self::Superseded
            | Self::InvalidAgentResponse(_)
            | Self::CorruptLog(_) => None,
        }
    }
}

/// How long a caller is told to wait before trying again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl From<Error> for model::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Ended(state) => {
                Self::new(ErrorKind::UnsupportedOperation).with_detail("state", state.as_str())
            }
            Error::Deleted => ErrorKind::TaskNotFound.into(),
            Error::InvalidAgentResponse(task) => {
                Self::new(ErrorKind::InvalidAgentResponse).with_detail("taskId", task.as_str())
            }
            Error::Overloaded
            | Error::ShuttingDown
            | Error::StoreUnavailable
            | Error::Superseded => Self::new(ErrorKind::Unavailable).with_retry_after(RETRY_AFTER),
            Error::TooLarge => {
                Self::new(ErrorKind::PayloadTooLarge).with_message(error.to_string())
            }
            Error::Unwritable(_) => {
                Self::new(ErrorKind::Unavailable).with_message(error.to_string())
            }
            Error::Store(store::Error::KeyReused) => {
                Self::invalid("Idempotency-Key", "was used before with another body")
            }
            // Somebody has just taken the name that was to be given: it is there when they come again.
            Error::Store(error @ (store::Error::Failed(_) | store::Error::Conflict)) => {
                Self::new(ErrorKind::Unavailable)
                    .with_retry_after(RETRY_AFTER)
                    .with_source(error)
            }
            Error::Store(error) => Self::internal(error),
            Error::CorruptLog(broken) => Self::internal(broken),
        }
    }
}
