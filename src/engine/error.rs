//! What went wrong in the engine, and what callers are told of it.

use std::fmt;
use std::time::Duration;

use crate::model::{self, Broken, ErrorKind, TaskId, TaskState};
use crate::store::{self, Unwritable};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in the engine.
#[derive(Debug)]
pub(crate) enum Error {
    /// The task has ended and takes no more.
    Ended(TaskState),
    /// The task was removed meanwhile.
    Gone,
    /// Too much waits already.
    Overloaded,
    /// The task has no room for more.
    TooLarge,
    /// The engine is being stopped.
    Stopped,
    /// Nothing can be recorded for now.
    Lost,
    /// The store takes no writes.
    Unwritable(Unwritable),
    /// Somebody else works on the task: they have begun a turn after ours.
    Overtaken,
    /// The store failed.
    Store(store::Error),
    /// The agent broke a rule of the protocol, and the task has failed.
    Invalid(TaskId),
    /// A log does not fold: it was not written by us.
    Broken(Broken),
}

impl Error {
    /// Whether what was asked for was surely not done; after any other error it may have been.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Ended(_)
            | Self::Gone
            | Self::Overloaded
            | Self::TooLarge
            | Self::Store(store::Error::KeyReused) => true,
            Self::Stopped
            | Self::Lost
            | Self::Unwritable(_)
            | Self::Overtaken
            | Self::Store(_)
            | Self::Invalid(_)
            | Self::Broken(_) => false,
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(state) => write!(f, "the task has ended as {state}"),
            Self::Gone => f.write_str("the task was removed"),
            Self::Overloaded => f.write_str("too much waits already"),
            Self::TooLarge => f.write_str(
                "the task would be larger than max_task_bytes allows; begin another one",
            ),
            Self::Stopped => f.write_str("the engine is being stopped"),
            Self::Lost => f.write_str("nothing can be recorded for now"),
            Self::Unwritable(why) => write!(f, "the store cannot be written: {why}"),
            Self::Overtaken => f.write_str("somebody else works on the task"),
            Self::Invalid(_) => f.write_str("the agent broke a rule of the protocol"),
            Self::Store(error) => fmt::Display::fmt(error, f),
            Self::Broken(broken) => fmt::Display::fmt(broken, f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => std::error::Error::source(error),
            Self::Ended(_)
            | Self::Gone
            | Self::Overloaded
            | Self::TooLarge
            | Self::Stopped
            | Self::Lost
            | Self::Unwritable(_)
            | Self::Overtaken
            | Self::Invalid(_)
            | Self::Broken(_) => None,
        }
    }
}

/// How long a caller is told to wait before trying again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl From<Error> for model::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Ended(state) => {
                Self::new(ErrorKind::UnsupportedOperation).with("state", state.as_str())
            }
            Error::Gone => ErrorKind::TaskNotFound.into(),
            Error::Invalid(task) => {
                Self::new(ErrorKind::InvalidAgentResponse).with("taskId", task.as_str())
            }
            Error::Overloaded | Error::Stopped | Error::Lost | Error::Overtaken => {
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
            // Somebody has just taken the name that was to be given: it is there when they come again.
            Error::Store(error @ (store::Error::Failed(_) | store::Error::Conflict)) => {
                Self::new(ErrorKind::Unavailable)
                    .with_retry_after(RETRY_AFTER)
                    .with_source(error)
            }
            Error::Store(error) => Self::internal(error),
            Error::Broken(broken) => Self::internal(broken),
        }
    }
}
