//! Manifest of an archive: versions, protection, and the checksum of each file.

use anyhow::bail;
use attache::model::Timestamp;
use serde::{Deserialize, Serialize};

/// Name of the manifest, the first file of an archive.
pub(super) const MANIFEST_NAME: &str = "manifest.json";

/// Format of the archives that this version writes and reads.
const FORMAT: &str = "attache.backup/1";

/// File of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ArchivePart {
    /// The task database.
    #[serde(rename = "tasks.db")]
    Database,
    /// The key that encrypts webhook registrations in the database.
    #[serde(rename = "attache.key")]
    EncryptionKey,
    /// API keys of callers.
    #[serde(rename = "keys.json")]
    CallerKeys,
    /// API keys of operators.
    #[serde(rename = "admin-keys.json")]
    OperatorKeys,
    /// The configuration file.
    #[serde(rename = "agents.toml")]
    Configuration,
}

impl ArchivePart {
    /// Parts that are files of the data directory, except the database.
    pub(crate) const KEY_FILES: [Self; 3] =
        [Self::EncryptionKey, Self::CallerKeys, Self::OperatorKeys];

    /// Name in the archive and in the data directory.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Database => "tasks.db",
            Self::EncryptionKey => "attache.key",
            Self::CallerKeys => "keys.json",
            Self::OperatorKeys => "admin-keys.json",
            Self::Configuration => "agents.toml",
        }
    }
}

/// Content of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    schema: String,
    /// Version of the program that wrote the archive.
    pub(crate) program: String,
    /// Time of the backup.
    pub(crate) created: Timestamp,
    /// Schema version of the database, if the archive has one.
    pub(crate) database_version: Option<u32>,
    /// Whether the server authenticated its callers.
    pub(crate) is_protected: bool,
    pub(crate) files: Vec<FileRecord>,
}

/// Size and checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileRecord {
    pub(crate) name: ArchivePart,
    /// Permissions of the file.
    pub(crate) mode: u32,
    pub(super) bytes: u64,
    /// SHA-256 in hexadecimal.
    pub(super) sha256: String,
}

impl Manifest {
    pub(super) fn new(created: Timestamp, is_protected: bool) -> Self {
        Self {
            schema: FORMAT.to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            created,
            database_version: None,
            is_protected,
            files: Vec::new(),
        }
    }

    /// Whether the archive has this file.
    pub(crate) fn contains(&self, part: ArchivePart) -> bool {
        self.files.iter().any(|file| file.name == part)
    }

    /// Checks that this version can read the archive.
    ///
    /// # Errors
    /// The format is another one, or a file occurs twice.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.schema != FORMAT {
            bail!(
                "its format is {}, and this program reads {FORMAT}; restore it with attache {}",
                self.schema,
                self.program
            );
        }
        for (index, file) in self.files.iter().enumerate() {
            if self.files[..index]
                .iter()
                .any(|other| other.name == file.name)
            {
                bail!("it contains {} twice", file.name.name());
            }
        }
        Ok(())
    }
}
