//! What an operator does with the file: look at it, copy it, make it smaller. Looking and copying go on beside a server that
//! has the file open: both only read.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::error::{DatabaseError, OpenError};
use super::open::{self, acquire_lock, resolve_path};
use super::{Options, Sqlite, schema};

/// How many faults of a file are told.
const MAX_REPORTED_FAULTS: usize = 20;

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The version of its schema.
    pub version: u32,
    /// The version that this program writes.
    pub newest: u32,
    /// How many tasks there are.
    pub tasks: u64,
    /// How many of them have not ended.
    pub unfinished: u64,
    /// What is wrong with it, in SQLite's words; nothing, if it is sound.
    pub faults: Vec<String>,
}

impl Sqlite {
    /// Reads the whole file and says what is in it, and what is wrong with it. Nothing is changed.
    ///
    /// # Errors
    /// It cannot be read, or it is none of ours.
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
                count("SELECT count(*) FROM task WHERE ended = 0")?
            },
            faults: faults(&connection).map_err(failed)?,
        })
    }

    /// Makes a whole copy, of one moment, and a store of its own. The file may be in use.
    ///
    /// # Errors
    /// The file cannot be read, or the copy not be written; one that is there already is left as it is.
    pub fn back_up(path: impl AsRef<Path>, copy: impl AsRef<Path>) -> Result<(), OpenError> {
        let (path, copy) = (resolve_path(path.as_ref())?, copy.as_ref());
        let connection = open_read_only(&path)?;
        schema::version(&connection, &path)?;
        let made = match copy.try_exists() {
            Ok(false) => schema::back_up(&connection, &path, copy),
            Ok(true) => Err("it is there already: name another".into()),
            Err(error) => Err(error.into()),
        };
        made.map_err(|source| OpenError::Copy {
            file: copy.to_owned(),
            source,
        })
    }

    /// Gives back the room of what was removed. There must be room for the file twice, and nobody may have it open.
    ///
    /// # Errors
    /// Somebody has it open; it cannot be written.
    pub fn vacuum(path: impl AsRef<Path>) -> Result<(), OpenError> {
        let path = resolve_path(path.as_ref())?;
        let lock = acquire_lock(&path)?;
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
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()?.filter(|_| faults.len() < MAX_REPORTED_FAULTS) {
        faults.push(format!(
            "a row of {} belongs to nothing",
            row.get::<_, String>(0)?
        ));
    }
    Ok(faults)
}

/// How many bytes are left where the file is, for those who may write there.
#[cfg(unix)]
pub(super) fn free_disk_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Nobody says.
#[cfg(not(unix))]
pub(super) fn free_disk_bytes(_: &Path) -> Option<u64> {
    None
}
