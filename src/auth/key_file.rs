//! API key file, readable only by its owner: the owner of its directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ApiKey;
use crate::rt::create_private_file;

/// A file of API keys. Updates replace it atomically, so a reader always sees one consistent version.
#[derive(Debug, Clone)]
pub struct KeyFile(PathBuf);

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct KeyFileContent {
    keys: Vec<ApiKey>,
}

impl KeyFile {
    /// Refers to the file at this path. It need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the keys; none if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read, is readable by other users, or is malformed.
    pub fn read(&self) -> io::Result<Vec<ApiKey>> {
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        check_owner_only(&file)?;
        let content: KeyFileContent = serde_json::from_reader(io::BufReader::new(file))
            // The parser's message could contain secrets of the file.
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a valid key file"))?;
        Ok(content.keys)
    }

    /// Updates the keys under an exclusive lock file. If root runs this, the files belong to the owner of the directory.
    ///
    /// # Errors
    /// As [`read`](Self::read), or the file cannot be written.
    pub fn update<T>(&self, update: impl FnOnce(&mut Vec<ApiKey>) -> T) -> io::Result<T> {
        let lock = self.open_lock_file()?;
        lock.lock()?;
        let mut keys = self.read()?;
        let result = update(&mut keys);
        self.write(&KeyFileContent { keys })?;
        Ok(result)
    }

    fn open_lock_file(&self) -> io::Result<File> {
        let path = self.sibling_path(".lock");
        match create_private_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                File::options().write(true).open(path)
            }
            opened => opened,
        }
    }

    fn write(&self, content: &KeyFileContent) -> io::Result<()> {
        let temporary = self.sibling_path(".new");
        // A previous update may have been killed.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = create_private_file(&temporary)?;
        serde_json::to_writer_pretty(&mut file, content)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(temporary, &self.0)
    }

    fn sibling_path(&self, ending: &str) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(ending);
        name.into()
    }
}

#[cfg(unix)]
fn check_owner_only(file: &File) -> io::Result<()> {
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata()?.permissions());
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the key file is readable by other users; run chmod 600",
    ))
}

#[cfg(not(unix))]
fn check_owner_only(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_secrets_are_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::new(folder.path().join("keys.json"));
        assert_eq!(file.read().unwrap(), []);
        let (secret, key) = ApiKey::generate("ann");
        file.update(|keys| keys.push(key.clone())).unwrap();
        assert_eq!(file.read().unwrap(), [key]);
        assert!(
            !fs::read_to_string(file.path())
                .unwrap()
                .contains(secret.expose())
        );
    }

    #[cfg(unix)]
    #[test]
    fn s82_a_key_file_readable_by_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::new(folder.path().join("keys.json"));
        file.update(|keys| keys.push(ApiKey::generate("ann").1))
            .unwrap();
        assert_eq!(
            fs::metadata(file.path()).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let error = file.read().unwrap_err();
        assert!(error.to_string().contains("chmod"), "{error}");
    }

    /// Another owner can be tested only as root; as another user the test has one owner.
    #[cfg(unix)]
    #[test]
    fn e03_the_owner_of_the_directory_owns_the_key_file() {
        use std::os::unix::fs::{MetadataExt, chown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let is_root = fs::metadata(folder.path()).unwrap().uid() == 0;
        if is_root {
            chown(folder.path(), Some(12_345), Some(12_346)).unwrap();
        }
        let owner = fs::metadata(folder.path()).unwrap();
        let file = KeyFile::new(folder.path().join("keys.json"));
        // A file that root must not overwrite or give away.
        let precious = tempfile::NamedTempFile::new().unwrap();
        let before = precious.as_file().metadata().unwrap();
        for ending in [".lock", ".new"] {
            symlink(precious.path(), file.sibling_path(ending)).unwrap();
        }
        for name in ["ann", "bob"] {
            file.update(|keys| keys.push(ApiKey::generate(name).1))
                .unwrap();
            let written = fs::metadata(file.path()).unwrap();
            assert_eq!(
                (written.uid(), written.gid()),
                (owner.uid(), owner.gid()),
                "{name}"
            );
        }
        assert_eq!(file.read().unwrap().len(), 2);
        let after = precious.as_file().metadata().unwrap();
        assert_eq!(after.len(), 0);
        assert_eq!((after.uid(), after.mode()), (before.uid(), before.mode()));
        fs::remove_file(file.sibling_path(".lock")).unwrap();
        file.update(|keys| keys.clear()).unwrap();
        let lock = fs::metadata(file.sibling_path(".lock")).unwrap();
        assert_eq!((lock.uid(), lock.mode() & 0o777), (owner.uid(), 0o600));
    }
}
