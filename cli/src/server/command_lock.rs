//! Lock of running commands. Supervising processes hold it shared until their command and its descendants have ended.
//!
//! It consists of a lock of the file, and of one of the data directory, which survives the deletion of the file.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

use crate::private_file;

/// Name of the lock file in the data directory.
const FILE_NAME: &str = "commands.lock";
/// Interval of attempts to lock the file.
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// Returns the absolute path of the lock file: supervising processes run in other directories.
pub(super) fn path(folder: &Path) -> PathBuf {
    let path = folder.join(FILE_NAME);
    std::path::absolute(&path).unwrap_or(path)
}

/// Waits until no command of a previous server runs in this data directory.
///
/// # Errors
/// A command still runs after the timeout, or the file cannot be locked.
pub(super) async fn wait_for_commands(folder: &Path, timeout: Duration) -> anyhow::Result<()> {
    let path = path(folder);
    let name = path.display();
    let files = open(&path).with_context(|| format!("cannot open {name}"))?;
    let deadline = Instant::now() + timeout;
    let mut is_announced = false;
    loop {
        match files.iter().try_for_each(File::try_lock) {
            // Released at once: from here on only this server starts commands.
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {name}"));
            }
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => bail!(
                "commands of the previous server still run after {timeout:?} (lock: {name}, limit: \
                 store.command_exit_timeout); end them and start again"
            ),
            Err(TryLockError::WouldBlock) => {}
        }
        if !is_announced {
            is_announced = true;
            eprintln!("Waiting until the commands of the previous server have ended ({name})");
        }
        sleep(RETRY_EVERY).await;
    }
}

/// Opens the file and its directory.
fn open(path: &Path) -> io::Result<Vec<File>> {
    let file = match private_file::create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => File::open(path),
        created => created,
    };
    let mut files = vec![file?];
    if cfg!(unix)
        && let Some(folder) = path.parent()
    {
        files.push(File::open(folder)?);
    }
    Ok(files)
}
