//! Errors of the engine, and their conversion to protocol errors.

use std::fmt;
use std::time::Duration;

use crate::model::{self, ErrorKind, FoldError, TaskId, TaskState};
use crate::store::{self, HealthProblem};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of an engine operation.
#[derive(Debug)]
pub(crate) enum Error {
    /// The task is in a terminal state and accepts no message or cancel.
    Ended(TaskState),
    /// The task was deleted.
    Deleted,
    /// A queue is full: turns, or messages of one task.
    Overloaded,
    /// The task would exceed `max_task_bytes`.
    TooLarge,
    /// The engine is shutting down.
    ShuttingDown,
    /// The store does not respond, or has failed.
    StoreUnavailable,
    /// The store accepts no writes.
    Unwritable(HealthProblem),
    /// The store failed.
    Store(store::Error),
    /// The agent violated the protocol, and the task has failed.
    InvalidAgentResponse(TaskId),
    /// A log cannot be folded.
    CorruptLog(FoldError),
}

impl Error {
    /// Returns whether the operation certainly had no effect. After any other error it may have been applied.
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
            | Self::Store(_)
            | Self::InvalidAgentResponse(_)
            | Self::CorruptLog(_) => false,
        }
    }
}

impl Error {
    /// Returns whether the stored log of the task is damaged. A retry does not help.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Store(store::Error::Damaged(_)) | Self::CorruptLog(_)
        )
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<FoldError> for Error {
    fn from(error: FoldError) -> Self {
        Self::CorruptLog(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(state) => write!(f, "the task has ended as {state}"),
            Self::Deleted => f.write_str("the task was deleted"),
            Self::Overloaded => f.write_str("too many turns or messages are waiting"),
            Self::TooLarge => {
                f.write_str("the task would exceed max_task_bytes; send the message to a new task")
            }
            Self::ShuttingDown => f.write_str("the engine is shutting down"),
            Self::StoreUnavailable => f.write_str("the store is unavailable"),
            Self::Unwritable(HealthProblem::Unreachable) => {
                f.write_str("the store cannot be reached")
            }
            Self::Unwritable(problem) => write!(f, "the store cannot be written: {problem}"),
            Self::InvalidAgentResponse(_) => f.write_str("the agent violated the protocol"),
            Self::Store(error) => fmt::Display::fmt(error, f),
            Self::CorruptLog(error) => fmt::Display::fmt(error, f),
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
            | Self::InvalidAgentResponse(_)
            | Self::CorruptLog(_) => None,
        }
    }
}

/// Delay before a retry that `Unavailable` responses suggest.
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
            Error::Overloaded | Error::ShuttingDown | Error::StoreUnavailable => {
                Self::new(ErrorKind::Unavailable).with_retry_after(RETRY_AFTER)
            }
            Error::TooLarge => {
                Self::new(ErrorKind::PayloadTooLarge).with_message(error.to_string())
            }
            Error::Unwritable(_) => {
                Self::new(ErrorKind::Unavailable).with_message(error.to_string())
            }
            Error::Store(store::Error::KeyReused) => {
                Self::invalid("Idempotency-Key", "was used before with another body")
            }
            // A conflict on create means that a concurrent call has taken the id or alias: a retry finds that task.
            Error::Store(
                error @ (store::Error::Failed(_) | store::Error::Conflict | store::Error::Fenced),
            ) => Self::new(ErrorKind::Unavailable)
                .with_retry_after(RETRY_AFTER)
                .with_source(error),
            Error::Store(error @ store::Error::Damaged(_)) => {
                let message = error.to_string();
                Self::internal(error).with_message(message)
            }
            Error::Store(error) => Self::internal(error),
            Error::CorruptLog(error) => Self::internal(error),
        }
    }
}
