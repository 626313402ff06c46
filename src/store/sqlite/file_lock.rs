//! Exclusive right to a database file, and the check that the file is still in its place.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::error::OpenError;
use crate::rt::create_private_file;

/// Exclusive right to a database file until it is dropped.
///
/// The lock is on `<name>-lock`, and on Linux also on the database, so that it survives the deletion of the lock file.
/// `flock` on the database does not disturb SQLite or other readers there: SQLite uses `fcntl` locks, which Linux keeps
/// apart. Drop it after the connection: closing any descriptor of the file releases the `fcntl` locks of the process.
#[derive(Debug)]
pub(super) struct FileLock {
    _lock_file: File,
    database: Option<File>,
}

impl FileLock {
    /// Locks a database. The file need not exist.
    pub(super) fn acquire(path: &Path) -> Result<Self, OpenError> {
        let name = with_suffix(path, "-lock");
        let lock_file = match create_private_file(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                File::options().write(true).open(&name)
            }
            created => created,
        };
        let lock_file = lock_file.map_err(|error| OpenError::create_failed(path, &name, error))?;
        lock_exclusively(&lock_file, path, &name)?;
        let mut lock = Self {
            _lock_file: lock_file,
            database: None,
        };
        lock.lock_database(path)?;
        Ok(lock)
    }

    /// Locks the database too, if it exists and is not locked yet.
    pub(super) fn lock_database(&mut self, path: &Path) -> Result<(), OpenError> {
        if cfg!(not(target_os = "linux")) || self.database.is_some() {
            return Ok(());
        }
        // A file that cannot be read is reported when SQLite opens it.
        if let Ok(database) = File::open(path) {
            lock_exclusively(&database, path, path)?;
            self.database = Some(database);
        }
        Ok(())
    }
}

fn lock_exclusively(file: &File, database: &Path, name: &Path) -> Result<(), OpenError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            file: database.to_owned(),
            lock: name.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(OpenError::io(name, error)),
    }
}

/// Appends a suffix to the file name.
pub(super) fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// Device and inode of the open database. Writes to a file that was deleted or replaced are lost at the next start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    #[cfg(unix)]
    device: u64,
    #[cfg(unix)]
    inode: u64,
}

impl FileIdentity {
    /// Reads the identity of the file at a path.
    #[cfg(unix)]
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// Reads the identity of the file at a path. Other systems do not allow the deletion of an open file.
    #[cfg(not(unix))]
    pub(super) fn read(_path: &Path) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Returns whether the path still leads to this file.
    pub(super) fn is_at(self, path: &Path) -> bool {
        Self::read(path).is_ok_and(|found| found == self)
    }
}
