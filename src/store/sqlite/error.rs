//! What goes wrong with a file, in words for people.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::store::codec::CodecError;
use crate::store::{self, HealthProblem};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not be opened. The file is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    InUse {
        /// The database.
        file: PathBuf,
        /// The file whose lock the other process holds.
        lock: PathBuf,
    },
    /// A newer program has written it.
    NewerSchema {
        /// The database.
        file: PathBuf,
        /// The version of its schema.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// It is the database of another program.
    ForeignDatabase {
        /// The database.
        file: PathBuf,
    },
    /// A folder stands in its place.
    IsDirectory {
        /// The folder.
        file: PathBuf,
    },
    /// It can be read but not written.
    ReadOnly {
        /// The database.
        file: PathBuf,
    },
    /// Its webhooks are encrypted under another key.
    WrongKey {
        /// The database.
        file: PathBuf,
        /// The file with the key.
        key: PathBuf,
    },
    /// Its webhooks are encrypted, and the key is not there.
    MissingKey {
        /// The database.
        file: PathBuf,
        /// The file that had the key.
        key: PathBuf,
    },
    /// The copy that is made before an older file is brought up to date could not be made.
    Backup {
        /// Where the copy was to be.
        file: PathBuf,
        /// What went wrong.
        source: Cause,
    },
    /// A copy could not be made.
    Copy {
        /// Where the copy was to be.
        file: PathBuf,
        /// What went wrong.
        source: Cause,
    },
    /// Anything else; the message of the source is for people too.
    Failed {
        /// The file.
        file: PathBuf,
        /// What went wrong.
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

    /// A file beside the database, or the database itself, could not be made.
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
                "{} has schema version {found}, and this program knows versions up to {known}: use a newer program, \
                 or the copy that was made before the file was brought up to date",
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
                "the webhooks in {} are encrypted under another key than the one in {}: put the right key there",
                file.display(),
                key.display()
            ),
            Self::MissingKey { file, key } => write!(
                f,
                "the webhooks in {} are encrypted, and their key is not there: put it back as {}",
                file.display(),
                key.display()
            ),
            Self::Backup { file, source } => {
                write!(
                    f,
                    "cannot make the copy {} before the update: {source}",
                    file.display()
                )
            }
            Self::Copy { file, source } => {
                write!(f, "cannot make the copy {}: {source}", file.display())
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
            | Self::ForeignDatabase { .. }
            | Self::IsDirectory { .. }
            | Self::WrongKey { .. }
            | Self::MissingKey { .. }
            | Self::ReadOnly { .. } => None,
        }
    }
}

/// What SQLite could not do, and what an operator can.
#[derive(Debug)]
pub(super) struct DatabaseError {
    message: String,
    source: Option<rusqlite::Error>,
}

impl DatabaseError {
    pub(super) fn new(file: &Path, source: rusqlite::Error) -> Self {
        let file = file.display();
        let message = match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => {
                format!(
                    "no room left for {file}: free some space; nothing was changed, and work goes on then"
                )
            }
            Some(ErrorCode::ReadOnly) => {
                format!("{file} cannot be written: make the file and its folder writable")
            }
            Some(ErrorCode::DatabaseCorrupt) => damaged_message(&file),
            Some(ErrorCode::NotADatabase) => {
                format!("{file} is no SQLite database, or its beginning is damaged")
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                format!("another program has locked {file}: let it finish")
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                format!(
                    "{file} cannot be read or written: look at the disk, the file's folder and its permissions"
                )
            }
            _ if is_damage(&source) => damaged_message(&file),
            _ => format!("SQLite failed on {file}"),
        };
        Self {
            message,
            source: Some(source),
        }
    }

    /// What this says about the file; `None` where it is about one command alone.
    pub(super) fn health_problem(&self) -> Option<HealthProblem> {
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

    /// Whether it is no use to try again what was tried together, one by one: each would wait as long.
    pub(super) fn affects_all_commands(&self) -> bool {
        self.health_problem() == Some(HealthProblem::Locked)
    }

    fn from_message(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    pub(super) fn too_large(bytes: usize) -> store::Error {
        store::Error::Failed(Box::new(Self::from_message(format!(
            "{bytes} bytes are too many for one row"
        ))))
    }

    /// A fault of our own, in the middle of a command.
    pub(super) fn panicked() -> Self {
        Self::from_message("the writer panicked; what was asked for is not there")
    }

    pub(super) fn closed() -> store::Error {
        store::Error::Failed(Box::new(Self::from_message("the store is closed")))
    }
}

fn damaged_message(file: &impl fmt::Display) -> String {
    format!("{file} is damaged: stop, keep a copy of it for repair, and put a backup in its place")
}

/// Bytes in a row that we did not write.
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
