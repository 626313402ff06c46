//! Errors of the SQLite store, with messages for operators.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::store::codec::CodecError;
use crate::store::{self, HealthProblem};
use crate::telemetry::metrics;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Error of opening, copying or vacuuming a store. The file is unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has opened the file.
    InUse {
        /// The database.
        file: PathBuf,
        /// The file whose lock the other process holds.
        lock: PathBuf,
    },
    /// A newer program has written the file.
    NewerSchema {
        /// The database.
        file: PathBuf,
        /// Schema version of the file.
        found: u32,
        /// Highest schema version that this program supports.
        known: u32,
    },
    /// A version of this program from before the first release has written the file.
    PrereleaseSchema {
        /// The database.
        file: PathBuf,
        /// Schema version of the file, in the numbering of that time.
        found: u32,
    },
    /// The file is the database of another program.
    ForeignDatabase {
        /// The database.
        file: PathBuf,
    },
    /// The path is a folder.
    IsDirectory {
        /// The folder.
        file: PathBuf,
    },
    /// The file can be read but not written.
    ReadOnly {
        /// The database.
        file: PathBuf,
    },
    /// The webhooks are encrypted with another key.
    WrongKey {
        /// The database.
        file: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// The webhooks are encrypted and the key file does not exist.
    MissingKey {
        /// The database.
        file: PathBuf,
        /// The missing key file.
        key: PathBuf,
    },
    /// The backup before a migration failed.
    Backup {
        /// Path of the copy.
        file: PathBuf,
        /// Cause.
        source: Cause,
    },
    /// A copy failed.
    Copy {
        /// Path of the copy.
        file: PathBuf,
        /// Cause.
        source: Cause,
    },
    /// Any other failure. The message of the source is for operators too.
    Failed {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: Cause,
    },
}

impl OpenError {
    pub(super) fn io(file: &Path, source: io::Error) -> Self {
        Self::Failed {
            file: file.to_owned(),
            source: Box::new(source),
        }
    }

    /// Converts a failed creation of the database, or of a file beside it.
    pub(super) fn create_failed(database: &Path, file: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly {
                file: database.to_owned(),
            },
            _ => Self::io(file, source),
        }
    }

    pub(super) fn sqlite(file: &Path, source: rusqlite::Error) -> Self {
        Self::Failed {
            file: file.to_owned(),
            source: Box::new(DatabaseError::new(file, source)),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { file, lock } => write!(
                f,
                "{} is in use: another process holds the lock on {}; stop that process, or choose another file",
                file.display(),
                lock.display()
            ),
            Self::NewerSchema { file, found, known } => write!(
                f,
                "{} has schema version {found}, and this program supports versions up to {known}: use a newer program, \
                 or restore the backup made before the migration",
                file.display()
            ),
            Self::PrereleaseSchema { file, found } => write!(
                f,
                "{} was written before the first release (schema version {found} of that time) and cannot be migrated: \
                 move it away or choose another file; only the program that wrote it can read it",
                file.display()
            ),
            Self::ForeignDatabase { file } => {
                write!(
                    f,
                    "{} is the database of another program: choose another file",
                    file.display()
                )
            }
            Self::IsDirectory { file } => {
                write!(f, "{} is a folder: name a file in it", file.display())
            }
            Self::ReadOnly { file } => {
                write!(
                    f,
                    "{} cannot be written: make the file and its folder writable",
                    file.display()
                )
            }
            Self::WrongKey { file, key } => write!(
                f,
                "the webhooks in {} are encrypted with another key than the one in {}: restore the right key",
                file.display(),
                key.display()
            ),
            Self::MissingKey { file, key } => write!(
                f,
                "the webhooks in {} are encrypted and the key is missing: restore it as {}",
                file.display(),
                key.display()
            ),
            Self::Backup { file, source } => {
                write!(
                    f,
                    "cannot write the backup {} before the migration: {source}",
                    file.display()
                )
            }
            Self::Copy { file, source } => {
                write!(f, "cannot write the copy {}: {source}", file.display())
            }
            Self::Failed { file, source } => write!(f, "cannot open {}: {source}", file.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Backup { source, .. }
            | Self::Copy { source, .. }
            | Self::Failed { source, .. } => Some(&**source),
            Self::InUse { .. }
            | Self::NewerSchema { .. }
            | Self::PrereleaseSchema { .. }
            | Self::ForeignDatabase { .. }
            | Self::IsDirectory { .. }
            | Self::WrongKey { .. }
            | Self::MissingKey { .. }
            | Self::ReadOnly { .. } => None,
        }
    }
}

/// Error of a SQLite operation, with advice for the operator.
#[derive(Debug)]
pub(super) struct DatabaseError {
    message: String,
    source: Option<rusqlite::Error>,
    /// Whether the path leads to another file than the open one.
    is_replaced: bool,
}

impl DatabaseError {
    pub(super) fn new(file: &Path, source: rusqlite::Error) -> Self {
        let file = file.display();
        let message = match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => {
                format!(
                    "the disk is full, cannot write {file}: free some space; no restart is needed"
                )
            }
            Some(ErrorCode::ReadOnly) => {
                format!("{file} cannot be written: make the file and its folder writable")
            }
            Some(ErrorCode::DatabaseCorrupt) => damaged_message(&file),
            Some(ErrorCode::NotADatabase) => {
                format!("{file} is not a SQLite database, or its header is damaged")
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                format!("another program has locked {file}: wait for it, or stop it")
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                format!(
                    "{file} cannot be read or written: check the disk, the folder and its permissions"
                )
            }
            _ if is_damage(&source) => damaged_message(&file),
            _ => format!("SQLite failed on {file}"),
        };
        Self {
            message,
            source: Some(source),
            is_replaced: false,
        }
    }

    /// Converts the error of a read. A row that cannot be decoded is damage to its task alone.
    pub(super) fn into_store_error(self) -> store::Error {
        if self.source.as_ref().is_some_and(is_damage) {
            metrics::record_damaged_row();
            store::Error::Damaged(Box::new(self))
        } else {
            store::Error::Failed(Box::new(self))
        }
    }

    /// Returns the problem of the file; `None` if the error concerns a single command.
    pub(super) fn health_problem(&self) -> Option<HealthProblem> {
        if self.is_replaced {
            return Some(HealthProblem::Replaced);
        }
        let source = self.source.as_ref()?;
        Some(match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => HealthProblem::Full,
            Some(ErrorCode::ReadOnly) => HealthProblem::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => HealthProblem::Damaged,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => HealthProblem::Locked,
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => HealthProblem::Failing,
            _ => return None,
        })
    }

    /// Returns whether a retry of every command on its own is pointless: each would wait for the same lock, or is in the
    /// file that was replaced.
    pub(super) fn affects_all_commands(&self) -> bool {
        matches!(
            self.health_problem(),
            Some(HealthProblem::Locked | HealthProblem::Replaced)
        )
    }

    fn from_message(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
            is_replaced: false,
        }
    }

    /// The open file was deleted or replaced, so that its writes are lost at the next start.
    pub(super) fn replaced(file: &Path) -> Self {
        let message = format!(
            "{} was deleted or replaced while it was open: move it back, or restore a backup and restart",
            file.display()
        );
        Self {
            is_replaced: true,
            ..Self::from_message(message)
        }
    }

    /// The writer thread panicked inside a command.
    pub(super) fn panicked() -> Self {
        Self::from_message("the writer panicked and the write was rolled back")
    }

    pub(super) fn closed() -> store::Error {
        store::Error::Failed(Box::new(Self::from_message("the store is closed")))
    }
}

fn damaged_message(file: &impl fmt::Display) -> String {
    format!("{file} is damaged: stop the server, keep a copy for repair, and restore a backup")
}

/// Converts a decode error, so that it is reported as damage to the file.
pub(super) fn corrupt_row(corrupt: CodecError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(corrupt))
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    matches!(
        error,
        E::FromSqlConversionFailure(..) | E::InvalidColumnType(..) | E::IntegralValueOutOfRange(..)
    )
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DatabaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
