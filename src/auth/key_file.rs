//! API key file, readable only by its owner.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ApiKey;

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

    /// Updates the keys under an exclusive lock file.
    ///
    /// # Errors
    /// As [`read`](Self::read), or the file cannot be written.
    pub fn update<T>(&self, update: impl FnOnce(&mut Vec<ApiKey>) -> T) -> io::Result<T> {
        let lock = owner_only_options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.sibling_path(".lock"))?;
        lock.lock()?;
        let mut keys = self.read()?;
        let result = update(&mut keys);
        self.write(&KeyFileContent { keys })?;
        Ok(result)
    }

    fn write(&self, content: &KeyFileContent) -> io::Result<()> {
        let temporary = self.sibling_path(".new");
        let mut file = owner_only_options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&temporary)?;
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

/// Options that create a file with mode 0600.
fn owner_only_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
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
}
