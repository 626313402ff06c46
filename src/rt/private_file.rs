//! Files that only their owner can read. Their owner is that of their directory, also if root creates them.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a file with mode 600 for writing. Root creates it for the owner of the directory: a service that runs as this
/// user must be able to read it.
///
/// Symbolic links are not followed: the owner of the directory could lead root to any file.
///
/// # Errors
/// The file exists or cannot be created, or it cannot be given to the owner of the directory.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    if let Err(error) = give_to_owner(&file, path) {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(file)
}

/// Gives a new file to the owner of its directory. Root can read every file, so a directory of root changes nothing.
#[cfg(unix)]
fn give_to_owner(file: &File, path: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    const ROOT: u32 = 0;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let owner = std::fs::metadata(folder)?;
    if owner.uid() == ROOT || owner.uid() == file.metadata()?.uid() {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, Some(owner.uid()), Some(owner.gid())).map_err(|error| {
        let message = format!(
            "cannot give {} to the owner of its directory (user {}): {error}; run the command as this user",
            path.display(),
            owner.uid()
        );
        io::Error::new(error.kind(), message)
    })
}
