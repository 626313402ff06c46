//! Errors and health problems of a store.

use std::fmt;

/// Result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a store operation.
#[derive(Debug)]
pub enum Error {
    /// The log does not end where the caller expects, or an id or alias is taken. Read, fold, and try again.
    Conflict,
    /// Another replica holds the task, or the other replicas have evicted this one. Stop the work on the task.
    Fenced,
    /// The idempotency key was used before with the same body: the message is already applied.
    AlreadyApplied,
    /// The idempotency key was used before with another body.
    KeyReused,
    /// Stored data of the task is damaged. Other tasks are not affected. The cause is for the operator's log.
    Damaged(Box<dyn std::error::Error + Send + Sync>),
    /// The store failed. The cause is for the operator's log, not for the caller.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conflict => "the log does not end at the expected position, or the id is taken",
            Self::Fenced => "another replica holds the task",
            Self::AlreadyApplied => "the idempotency key was used before with the same body",
            Self::KeyReused => "the idempotency key was used before with another body",
            Self::Damaged(_) => "the stored data of the task is damaged",
            Self::Failed(_) => "the store failed",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Conflict | Self::Fenced | Self::AlreadyApplied | Self::KeyReused => None,
            Self::Damaged(cause) | Self::Failed(cause) => Some(&**cause),
        }
    }
}

/// Problem found by [`Store::check_health`](super::Store::check_health). Safe to show to any caller; the log has the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthProblem {
    /// Little disk space is left. Writes still succeed.
    AlmostFull,
    /// No disk space is left.
    Full,
    /// The data can be read but not written.
    ReadOnly,
    /// The stored data is corrupt.
    Damaged,
    /// Another program has locked the data.
    Locked,
    /// The database file was deleted or replaced while it was open.
    Replaced,
    /// The database cannot be reached, or this replica is not a member of the cluster.
    Unreachable,
    /// A newer program has migrated the database.
    NewerSchema,
    /// Writes fail for another reason.
    Failing,
}

impl fmt::Display for HealthProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AlmostFull => "the disk is almost full",
            Self::Full => "the disk is full",
            Self::ReadOnly => "the data is read-only",
            Self::Damaged => "the data is damaged",
            Self::Locked => "another program has locked the data",
            Self::Replaced => "the database file was deleted or replaced",
            Self::Unreachable => "the database cannot be reached",
            Self::NewerSchema => "the database has a newer schema",
            Self::Failing => "writes fail",
        })
    }
}
