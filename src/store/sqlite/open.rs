//! Opening a database file: lock, creation, connection settings, migration.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::error::OpenError;
use super::file_lock::{FileIdentity, FileLock};
use super::schema;
use super::webhook_key;
use super::{Options, Synchronous};
use crate::rt::create_private_file;
use crate::store::secret_box::SecretBox;

/// Open database with the exclusive right to write.
#[derive(Debug)]
pub(super) struct OpenDatabase {
    pub(super) path: Arc<Path>,
    pub(super) connection: Connection,
    pub(super) secret_box: Arc<SecretBox>,
    pub(super) identity: FileIdentity,
    /// Keep it until the connection is closed.
    pub(super) lock: FileLock,
}

/// Capacity of a connection's cache of prepared statements; larger than the number of statements.
pub(super) const STATEMENT_CACHE_SIZE: usize = 64;

/// Opens a database, or creates it; migrates an older schema.
pub(super) fn open(path: &Path, options: &Options) -> Result<OpenDatabase, OpenError> {
    let path = resolve_path(path)?;
    let mut lock = FileLock::acquire(&path)?;
    create_file(&path)?;
    lock.lock_database(&path)?;
    let identity = FileIdentity::read(&path).map_err(|error| OpenError::io(&path, error))?;
    let mut connection = connect(&path, options)?;
    let secret_box = Arc::new(webhook_key::open(&path, &mut connection)?);
    Ok(OpenDatabase {
        path: Arc::from(path),
        connection,
        secret_box,
        identity,
        lock,
    })
}

/// Resolves symbolic links, so that one file has one lock under all of its names.
pub(super) fn resolve_path(path: &Path) -> Result<PathBuf, OpenError> {
    let failed = |error| OpenError::io(path, error);
    if path.is_dir() {
        return Err(OpenError::IsDirectory {
            file: path.to_owned(),
        });
    }
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or_else(|| failed(error))?;
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder
                .unwrap_or(Path::new("."))
                .canonicalize()
                .map_err(|error| {
                    let message = format!("its folder cannot be used: {error}");
                    failed(io::Error::new(error.kind(), message))
                })?;
            Ok(folder.join(name))
        }
        resolved => resolved.map_err(failed),
    }
}

/// Creates an empty file with private permissions. SQLite cannot set them, but copies them to the files it creates beside.
fn create_file(path: &Path) -> Result<(), OpenError> {
    match create_private_file(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::create_failed(path, path, error)),
    }
}

/// Returns options that create a file with mode 600.
#[cfg(unix)]
pub(super) fn private_file_options() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.write(true).mode(0o600);
    options
}

/// Returns options that create a file.
#[cfg(not(unix))]
pub(super) fn private_file_options() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    options
}

/// Connects for writing: checks that the file is ours, sets the pragmas and migrates the schema.
pub(super) fn connect(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::sqlite(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection
        .busy_timeout(options.busy_timeout)
        .map_err(failed)?;
    // Check before the first write: the file may belong to another program or a newer version.
    let version = schema::version(&connection, path)?;
    if connection.is_readonly(MAIN_DB).map_err(failed)? {
        return Err(OpenError::ReadOnly {
            file: path.to_owned(),
        });
    }
    configure(&connection, options).map_err(failed)?;
    schema::migrate(&mut connection, path, version, schema::MIGRATIONS)?;
    Ok(connection)
}

fn configure(connection: &Connection, options: &Options) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(
        None,
        "synchronous",
        match options.synchronous {
            Synchronous::Full => "full",
            Synchronous::Normal => "normal",
        },
    )?;
    // macOS: fsync stops at the drive's cache without this. No effect on other systems.
    connection.pragma_update(None, "fullfsync", options.synchronous == Synchronous::Full)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // Every command looks the parent row up, or writes it, in the same transaction. SQLite's own check costs 5 % of a
    // create, and it would prevent migrations from replacing referenced tables.
    connection.pragma_update(None, "foreign_keys", false)?;
    // 16 MiB (negative values are KiB): the last pages of all tables and indexes.
    connection.pragma_update(None, "cache_size", -16_384)?;
    // 64 MiB: after a burst the write-ahead log is truncated to this size.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)
}
