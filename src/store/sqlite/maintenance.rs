//! Operations on the file for operators: inspect, back up, lock, vacuum.
//!
//! Inspecting and backing up only read, so a server may have the file open.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::error::{DatabaseError, OpenError};
use super::file_lock::FileLock;
use super::open::{self, resolve_path};
use super::{Options, Sqlite, read, schema};
use crate::model::Caller;
use crate::store::HealthProblem;

/// Maximum number of faults in an [`Inspection`].
const MAX_REPORTED_FAULTS: usize = 20;

/// Result of [`Sqlite::inspect`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Schema version of the file.
    pub version: u32,
    /// Schema version that this program writes.
    pub newest: u32,
    /// Number of tasks.
    pub tasks: u64,
    /// Number of tasks that have not ended.
    pub unfinished: u64,
    /// Faults found by SQLite's integrity checks; empty if the file is intact.
    pub faults: Vec<String>,
}

/// Exclusive right to a database file until it is dropped. No process can open the store in the meantime.
#[derive(Debug)]
pub struct DatabaseLock {
    _lock: FileLock,
}

impl Sqlite {
    /// Locks a database file, for a program that replaces it. The file need not exist.
    ///
    /// # Errors
    /// A process has opened the file, or the lock file cannot be written.
    pub fn lock(path: impl AsRef<Path>) -> Result<DatabaseLock, OpenError> {
        let path = resolve_path(path.as_ref())?;
        Ok(DatabaseLock {
            _lock: FileLock::acquire(&path)?,
        })
    }

    /// Returns a caller with a name that has created a task, also if the task has expired; `None` if all callers were
    /// anonymous. Such a file belongs to a server that authenticated its callers.
    ///
    /// # Errors
    /// The file cannot be read, or belongs to another program.
    pub fn find_named_caller(path: impl AsRef<Path>) -> Result<Option<Caller>, OpenError> {
        let path = resolve_path(path.as_ref())?;
        let connection = open_read_only(&path)?;
        if schema::version(&connection, &path)? == 0 {
            return Ok(None);
        }
        let sql = "SELECT owner FROM scope WHERE owner <> ?1 ORDER BY number DESC LIMIT 1";
        let anonymous = Caller::anonymous();
        connection
            .query_row(sql, [anonymous.name()], |row| row.get::<_, String>(0))
            .optional()
            .map(|name| name.map(|name| Caller::new(&name)))
            .map_err(|error| OpenError::sqlite(&path, error))
    }

    /// Reads the whole file, counts its tasks and checks its integrity. Changes nothing.
    ///
    /// # Errors
    /// The file cannot be read, or belongs to another program.
    pub fn inspect(path: impl AsRef<Path>) -> Result<Inspection, OpenError> {
        let path = resolve_path(path.as_ref())?;
        let failed = |error| OpenError::sqlite(&path, error);
        let connection = open_read_only(&path)?;
        let version = schema::version(&connection, &path)?;
        let count = |sql| {
            connection
                .query_row(sql, (), |row| row.get::<_, i64>(0))
                .map_err(failed)
        };
        let count = |sql| count(sql).map(|count| u64::try_from(count).unwrap_or_default());
        let is_empty = version == 0;
        Ok(Inspection {
            version,
            newest: u32::try_from(schema::MIGRATIONS.len()).unwrap_or(u32::MAX),
            tasks: if is_empty {
                0
            } else {
                count("SELECT count(*) FROM task")?
            },
            unfinished: if is_empty {
                0
            } else {
                count("SELECT count(*) FROM task WHERE has_ended = 0")?
            },
            faults: faults(&connection).map_err(failed)?,
        })
    }

    /// Writes a consistent copy, which is a complete store. The file may be in use.
    ///
    /// # Errors
    /// The file cannot be read, or the copy cannot be written. An existing file is not overwritten.
    pub fn back_up(path: impl AsRef<Path>, copy: impl AsRef<Path>) -> Result<(), OpenError> {
        let path = resolve_path(path.as_ref())?;
        let copy = copy.as_ref();
        let connection = open_read_only(&path)?;
        schema::version(&connection, &path)?;
        let copied = match copy.try_exists() {
            Ok(false) => schema::back_up(&connection, &path, copy),
            Ok(true) => Err("the file exists already: choose another name".into()),
            Err(error) => Err(error.into()),
        };
        copied.map_err(|source| OpenError::Copy {
            file: copy.to_owned(),
            source,
        })
    }

    /// Rebuilds the file to return the space of removed tasks to the file system. Needs free space of twice the file size.
    ///
    /// # Errors
    /// A process has opened the file, or it cannot be written.
    pub fn vacuum(path: impl AsRef<Path>) -> Result<(), OpenError> {
        let path = resolve_path(path.as_ref())?;
        let lock = FileLock::acquire(&path)?;
        let connection = open::connect(&path, &Options::default())?;
        let batch = "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)";
        connection
            .execute_batch(batch)
            .map_err(|error| OpenError::sqlite(&path, error))?;
        drop(connection);
        drop(lock);
        Ok(())
    }
}

fn open_read_only(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.busy_timeout(Options::default().busy_timeout)?;
        Ok(connection)
    });
    opened.map_err(|error| OpenError::Failed {
        file: path.to_owned(),
        source: Box::new(DatabaseError::new(path, error)),
    })
}

fn faults(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut statement =
        connection.prepare(&format!("PRAGMA integrity_check({MAX_REPORTED_FAULTS})"))?;
    for line in statement.query_map((), |row| row.get::<_, String>(0))? {
        let line = line?;
        if line != "ok" {
            faults.push(line);
        }
    }
    let remaining = MAX_REPORTED_FAULTS.saturating_sub(faults.len());
    for id in read::damaged_tasks(connection, remaining)? {
        faults.push(format!("the log of task {id} is damaged"));
    }
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()?.filter(|_| faults.len() < MAX_REPORTED_FAULTS) {
        faults.push(format!(
            "a row of {} refers to a missing row",
            row.get::<_, String>(0)?
        ));
    }
    Ok(faults)
}

/// Free space below which a commit is likely to fail, whatever the operator has configured.
const NO_SPACE_BYTES: u64 = 64 << 10;

/// Checks the free space of the file system, if it is known.
pub(super) fn check_free_space(free: Option<u64>, min_free: u64) -> Result<(), HealthProblem> {
    match free {
        Some(free) if free < NO_SPACE_BYTES => Err(HealthProblem::Full),
        Some(free) if free < min_free => Err(HealthProblem::AlmostFull),
        Some(_) | None => Ok(()),
    }
}

/// Returns the bytes available to unprivileged users on the file system of the file.
#[cfg(unix)]
pub(super) fn free_disk_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Not supported on this system.
#[cfg(not(unix))]
pub(super) fn free_disk_bytes(_: &Path) -> Option<u64> {
    None
}
