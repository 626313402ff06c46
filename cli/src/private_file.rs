//! Files that only their owner can read, and directories of such files.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Mode of a file that only its owner can access.
pub(crate) const MODE: u32 = 0o600;

/// Creates a file with mode 600 for writing.
///
/// # Errors
/// The file exists or cannot be created. Symbolic links are not followed.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, MODE);
    options.open(path)
}

/// Gives a new file to the owner of a directory: a service that runs as this user must be able to read it. Root can read
/// every file, so a directory of root changes nothing.
#[cfg(unix)]
pub(crate) fn give_to_owner_of(folder: &Path, file: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    const ROOT: u32 = 0;
    let owner = fs::metadata(folder)?;
    if owner.uid() == ROOT || owner.uid() == file.metadata()?.uid() {
        return Ok(());
    }
    fchown(file, Some(owner.uid()), Some(owner.gid()))
}

#[cfg(not(unix))]
pub(crate) fn give_to_owner_of(_: &Path, _: &File) -> io::Result<()> {
    Ok(())
}

/// Appends a suffix to the file name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Directory of a file; `.` for a plain name.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names of the files in a directory durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Sets the permissions of an open file.
#[cfg(unix)]
pub(crate) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(mode & 0o777))
}

#[cfg(not(unix))]
pub(crate) fn set_mode(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

/// Creates a directory with mode 700.
///
/// # Errors
/// It exists, or cannot be created.
pub(crate) fn create_folder(path: &Path) -> anyhow::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(path)
        .with_context(|| format!("cannot create {}", path.display()))
}

/// Private temporary directory, deleted on drop.
pub(crate) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Creates `<purpose>-<process id>` below a directory.
    pub(crate) fn create(parent: &Path, purpose: &str) -> anyhow::Result<Self> {
        let folder = parent.join(format!("{purpose}-{}", std::process::id()));
        create_folder(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
