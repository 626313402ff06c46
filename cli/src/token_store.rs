//! Stored OAuth tokens, by card host and security scheme, in a file that only its owner can read.

mod credentials;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use attache::Token;
use attache::model::{Secret, Timestamp};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::{CliError, CliResult};
use crate::settings::Settings;
pub(crate) use credentials::{CLIENT_SECRET, StoredToken, client_secret};

/// A stored login.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Login {
    pub(crate) host: String,
    pub(crate) scheme: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) client_id: String,
    pub(crate) token_url: String,
    pub(crate) access_token: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
}

impl Login {
    /// Replaces the tokens by ones that were just issued.
    pub(crate) fn renew(&mut self, token: &Token) {
        self.access_token = token.access.clone();
        self.refresh_token = token.refresh.clone();
        let lifetime = token.expires_in.map(Duration::from_secs);
        self.expires_at = lifetime.and_then(|lifetime| {
            Timestamp::from_millis(
                clock::now_ms()
                    .saturating_add(i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX)),
            )
        });
    }

    /// The token with its remaining lifetime.
    fn token(&self) -> Token {
        let left = self
            .expires_at
            .map(|then| then.as_millis().saturating_sub(clock::now_ms()).max(0) / 1000);
        Token {
            access: self.access_token.clone(),
            refresh: self.refresh_token.clone(),
            expires_in: left.and_then(|left| u64::try_from(left).ok()),
        }
    }
}

/// The file of stored logins. Changes are serialized by a lock file, and replace the file atomically.
#[derive(Debug, Clone)]
pub(crate) struct TokenStore {
    file: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct TokenFile {
    logins: Vec<Login>,
}

impl TokenStore {
    pub(crate) fn from_settings(settings: &Settings) -> Option<Self> {
        Some(Self {
            file: settings.config_dir.as_ref()?.join("attache-tokens.json"),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Reads all logins; none if the file does not exist.
    pub(crate) fn read(&self) -> CliResult<Vec<Login>> {
        let text = match std::fs::read(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.unusable(&error)),
        };
        serde_json::from_slice(&text)
            .map(|content: TokenFile| content.logins)
            .map_err(|error| self.unusable(&error))
    }

    pub(crate) fn find(&self, host: &str, scheme: &str) -> CliResult<Option<Login>> {
        Ok(self
            .read()?
            .into_iter()
            .find(|one| one.host == host && one.scheme == scheme))
    }

    /// Saves a login, in place of one for the same host and scheme.
    pub(crate) fn save(&self, login: Login) -> CliResult {
        let _lock = self.lock()?;
        self.save_locked(login)
    }

    /// Removes and returns the logins that match.
    pub(crate) fn remove(&self, matches: impl Fn(&Login) -> bool) -> CliResult<Vec<Login>> {
        let _lock = self.lock()?;
        let (removed, logins) = self.read()?.into_iter().partition(|one| matches(one));
        self.write(&TokenFile { logins })?;
        Ok(removed)
    }

    /// Saves a login; the caller holds the lock.
    fn save_locked(&self, login: Login) -> CliResult {
        let mut logins = self.read()?;
        logins.retain(|one| (&one.host, &one.scheme) != (&login.host, &login.scheme));
        logins.push(login);
        self.write(&TokenFile { logins })
    }

    /// Locks the store against other processes, until the result is dropped.
    fn lock(&self) -> CliResult<File> {
        let lock = || {
            std::fs::create_dir_all(self.file.parent().unwrap_or(Path::new(".")))?;
            let file = private()
                .truncate(false)
                .open(self.file.with_extension("lock"))?;
            file.lock().map(|()| file)
        };
        lock().map_err(|error| self.unusable(&error))
    }

    /// Replaces the file atomically: concurrent readers see the old or the new content.
    fn write(&self, content: &TokenFile) -> CliResult {
        let fresh = self.file.with_extension("new");
        let write = || {
            let text = serde_json::to_vec_pretty(content).map_err(io::Error::other)?;
            let _ = std::fs::remove_file(&fresh);
            let mut file = private().create_new(true).open(&fresh)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&fresh, &self.file)
        };
        write().map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &dyn std::fmt::Display) -> CliError {
        CliError::internal(format!("token file {}: {error}", self.file.display()))
    }
}

/// Options to create files with mode 0600.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
