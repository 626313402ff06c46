//! From a path to a connection that may write.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::error::OpenError;
use super::id_index::IdIndex;
use super::schema;
use super::secret_box::SecretBox;
use super::{Options, Synchronous};

/// A database that is ours alone to write.
#[derive(Debug)]
pub(super) struct OpenDatabase {
    pub(super) path: Arc<Path>,
    pub(super) connection: Connection,
    pub(super) id_index: Arc<IdIndex>,
    pub(super) secret_box: Arc<SecretBox>,
    /// Kept until the connection is closed: no other process writes meanwhile.
    pub(super) lock: File,
}

/// How many prepared statements a connection keeps: more than we have.
pub(super) const STATEMENT_CACHE_SIZE: usize = 64;

pub(super) fn open(path: &Path, options: &Options) -> Result<OpenDatabase, OpenError> {
    let path = resolve_path(path)?;
    let lock = acquire_lock(&path)?;
    create_file(&path)?;
    let mut connection = connect(&path, options)?;
    let id_index =
        IdIndex::load(&mut connection).map_err(|error| OpenError::sqlite(&path, error))?;
    let secret_box = Arc::new(SecretBox::open(&path, &mut connection)?);
    Ok(OpenDatabase {
        path: Arc::from(path),
        connection,
        id_index: Arc::new(id_index),
        secret_box,
        lock,
    })
}

/// The path without links, so that one file has one lock whatever it is called.
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
                    let words = format!("its folder cannot be used: {error}");
                    failed(io::Error::new(error.kind(), words))
                })?;
            Ok(folder.join(name))
        }
        resolved => resolved.map_err(failed),
    }
}

/// The database's name with something behind it.
pub(super) fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// A lock on a file of its own: SQLite locks the database itself for moments only, and other tools may read it.
pub(super) fn acquire_lock(path: &Path) -> Result<File, OpenError> {
    let name = with_suffix(path, "-lock");
    let file = private_file_options()
        .create(true)
        .truncate(false)
        .open(&name);
    let file = file.map_err(|error| OpenError::create_failed(path, &name, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            file: path.to_owned(),
            lock: name,
        }),
        Err(TryLockError::Error(error)) => Err(OpenError::io(&name, error)),
    }
}

/// Makes an empty file, for which SQLite has no way to say who may read it. The files it puts beside take after it.
fn create_file(path: &Path) -> Result<(), OpenError> {
    match private_file_options().create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::create_failed(path, path, error)),
    }
}

#[cfg(unix)]
pub(super) fn private_file_options() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.write(true).mode(0o600);
    options
}

#[cfg(not(unix))]
pub(super) fn private_file_options() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    options
}

pub(super) fn connect(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::sqlite(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection
        .busy_timeout(options.busy_timeout)
        .map_err(failed)?;
    // Before anything changes the file: it may be somebody else's, or newer than we are.
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
    // Where a flush stops at the drive's own cache (macOS), go on to the disk. Nothing elsewhere.
    connection.pragma_update(None, "fullfsync", options.synchronous == Synchronous::Full)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // What a row belongs to was looked up, or written, in the same transaction: to have it looked up once more for each row
    // costs a twentieth of a create. And updates of the schema move tables that others point to.
    connection.pragma_update(None, "foreign_keys", false)?;
    // In KiB. Enough for the ends of all tables and the upper levels of the names.
    connection.pragma_update(None, "cache_size", -16_384)?;
    // The write-ahead log shrinks back to this after a burst.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)
}
