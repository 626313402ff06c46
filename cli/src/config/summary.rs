//! Facts of a configuration file that backups need. References are not expanded: their variables may be set for the service
//! only.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::ConfigError;
use super::expand::expand;
use super::layers::Environment;

/// Keys of files that a configuration refers to, with their sections.
const FILE_KEYS: &[(&str, &str)] = &[
    ("server", "tls_cert"),
    ("server", "tls_key"),
    ("server", "tls_client_ca"),
    ("server", "card_signing_key"),
    ("server", "previous_signing_key"),
    ("server", "delegation_signing_key"),
    ("push", "signing_key"),
];

/// Facts of a configuration file.
pub(crate) struct ConfigSummary {
    table: Table,
}

impl ConfigSummary {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// It is not TOML.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let table = toml::from_str(text)
            .map_err(|error: toml::de::Error| ConfigError::new(file.display(), error.message()))?;
        Ok(Self { table })
    }

    fn get(&self, section: &str, key: &str) -> Option<&Value> {
        self.table.get(section)?.get(key)
    }

    /// Whether callers need a credential, whatever other files exist.
    pub(crate) fn has_authentication(&self) -> bool {
        let has_issuers =
            matches!(self.get("auth", "issuers"), Some(Value::Array(all)) if !all.is_empty());
        has_issuers
            || self.get("auth", "keys") == Some(&Value::Boolean(true))
            || self.get("server", "tls_client_ca").is_some()
    }

    /// The data directory, relative to the directory `folder` of the file.
    ///
    /// # Errors
    /// It refers to a variable that is not set.
    pub(crate) fn data_dir(
        &self,
        folder: &Path,
        environment: Environment<'_>,
    ) -> Result<Option<PathBuf>, String> {
        let Some(Value::String(text)) = self.get("store", "data_dir") else {
            return Ok(None);
        };
        let expanded = expand(text, folder, environment)?;
        Ok(Some(folder.join(expanded.as_ref().unwrap_or(text))))
    }

    /// Keys whose values are files of their own, such as certificates.
    pub(crate) fn file_keys(&self) -> Vec<String> {
        FILE_KEYS
            .iter()
            .filter(|(section, key)| self.get(section, key).is_some())
            .map(|(section, key)| format!("{section}.{key}"))
            .collect()
    }
}
