//! Authentication of a server: API keys in the data directory, TLS certificates, and their reload in a running server.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use attache::auth::{ApiKeys, KeyFile};
use attache::store::Sqlite;
use attache::{Server, Tls};

use crate::admin;
use crate::config::{Config, StoreKind};
use crate::data_dir;

/// The key file of callers in a data directory.
pub(crate) fn key_file(folder: &Path) -> KeyFile {
    KeyFile::new(folder.join("keys.json"))
}

/// The key file of operators in a data directory.
pub(crate) fn admin_key_file(folder: &Path) -> KeyFile {
    KeyFile::new(folder.join("admin-keys.json"))
}

/// Keys and certificates that a running server can reload.
#[derive(Clone, Default)]
pub(crate) struct ReloadableAccess {
    /// The key file, if it did not exist at startup: the server then does not authenticate by key.
    absent: Option<KeyFile>,
    keys: Option<(KeyFile, ApiKeys)>,
    admin: Option<(KeyFile, ApiKeys)>,
    tls: Option<ReloadableTls>,
}

/// TLS configuration with the files it was read from.
#[derive(Clone)]
struct ReloadableTls {
    certificate: PathBuf,
    key: PathBuf,
    tls: Tls,
}

impl ReloadableAccess {
    /// Reads keys and certificates again.
    ///
    /// # Errors
    /// A file cannot be read; the previous keys stay in effect.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        if self
            .absent
            .as_ref()
            .is_some_and(|file| file.path().exists())
        {
            bail!("the server was started without keys and does not require any; restart it");
        }
        let mut fresh = Vec::new();
        for (file, keys) in [&self.keys, &self.admin].into_iter().flatten() {
            fresh.push((
                keys,
                file.read()
                    .with_context(|| file.path().display().to_string())?,
            ));
        }
        if let Some(ReloadableTls {
            certificate,
            key,
            tls,
        }) = &self.tls
        {
            tls.renew(&read(certificate)?, &read(key)?)
                .context("--tls-cert and --tls-key")?;
        }
        fresh.iter().for_each(|(keys, read)| keys.replace(read));
        Ok(())
    }

    /// Reloads for a new configuration, which may start or stop to require keys. TLS and operator keys do not change in a
    /// running server.
    pub(crate) fn reconfigure(
        &self,
        config: &Config,
        folder: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let (file, absent) = select_key_file(config, folder)?;
        let known = self.keys.as_ref().map(|(_, keys)| keys.clone());
        let keys = file.map(|file| (file, known.unwrap_or_default()));
        let access = Self {
            absent,
            keys,
            admin: self.admin.clone(),
            tls: self.tls.clone(),
        };
        access.reload()?;
        Ok(access)
    }

    /// The keys of operators, if there is a data directory.
    pub(crate) fn admin(&self) -> Option<ApiKeys> {
        self.admin.as_ref().map(|(_, keys)| keys.clone())
    }

    /// The accepted credentials, described for the banner, and whether any caller has one.
    pub(crate) fn accepted_credentials(&self, config: &Config) -> (Vec<String>, bool) {
        let keys = self
            .keys
            .as_ref()
            .map(|(file, _)| file.read().unwrap_or_default());
        let mut accepted = Vec::new();
        if keys.is_some() {
            accepted.push("a key (A2ACLI_BEARER=<KEY>)".to_owned());
        }
        for issuer in &config.auth.issuers {
            accepted.push(format!(
                "a token of {} (A2ACLI_BEARER=<TOKEN>)",
                issuer.name()
            ));
        }
        if config.server.tls_client_ca.is_some() {
            accepted.push("a certificate (--cert <FILE> --key <FILE>)".to_owned());
        }
        let is_usable =
            accepted.len() > 1 || keys.is_none_or(|keys| keys.iter().any(|key| !key.is_expired()));
        (accepted, is_usable)
    }

    /// Whether the server authenticates callers.
    pub(crate) fn has_authentication(&self, config: &Config) -> bool {
        self.keys.is_some()
            || config.server.tls_client_ca.is_some()
            || !config.auth.issuers.is_empty()
    }
}

/// Loads keys and certificates. Keys are required if the data directory has a key file, even an empty one, unless
/// `auth.keys` overrides it.
pub(crate) fn prepare(config: &Config, folder: Option<&Path>) -> anyhow::Result<ReloadableAccess> {
    let section = &config.server;
    let (file, absent) = select_key_file(config, folder)?;
    let keys = file.map(|file| (file, ApiKeys::new()));
    let tls = match (&section.tls_cert, &section.tls_key) {
        (Some(certificate), Some(key)) => {
            let mut tls = Tls::from_pem(&read(certificate)?, &read(key)?)
                .context("cannot serve over TLS; check --tls-cert and --tls-key")?;
            if let Some(authorities) = &section.tls_client_ca {
                // A caller without a certificate may have a key or a token.
                let others = keys.is_some() || !config.auth.issuers.is_empty();
                let required = !others && !section.allow_anonymous;
                tls = tls
                    .verify_clients(&read(authorities)?, required)
                    .context("--tls-client-ca")?;
            }
            Some(ReloadableTls {
                certificate: certificate.clone(),
                key: key.clone(),
                tls,
            })
        }
        (None, None) => None,
        (Some(_), None) => bail!("TLS needs a private key: tls_key, or --tls-key"),
        (None, Some(_)) => bail!("TLS needs a certificate: tls_cert, or --tls-cert"),
    };
    let admin = match (folder, &section.admin_listen) {
        (Some(folder), _) => Some((admin_key_file(folder), ApiKeys::new())),
        (None, Some(_)) => {
            bail!("--admin-listen needs a data directory for its keys: --data-dir <DIR>")
        }
        (None, None) => None,
    };
    if section.admin_listen.is_some()
        && admin
            .as_ref()
            .is_some_and(|(file, _)| !file.path().exists())
    {
        bail!(
            "--admin-listen needs an operator key; create one: {}",
            add_key_command(folder, "--admin ")
        );
    }
    let access = ReloadableAccess {
        absent,
        keys,
        admin,
        tls,
    };
    access.reload()?;
    Ok(access)
}

/// Describes a server that authenticated its callers before and does not any more, as after a restore without `keys.json`.
/// `None` if there is no sign of it, or the configuration decides it explicitly.
pub(crate) fn find_lost_keys(
    config: &Config,
    has_authentication: bool,
    folder: Option<&Path>,
) -> Option<String> {
    let is_explicit = config.auth.keys == Some(false) || config.server.allow_anonymous;
    if has_authentication || is_explicit || config.store.kind != StoreKind::Sqlite {
        return None;
    }
    let file = folder?.join("tasks.db");
    if !file.is_file() {
        return None;
    }
    // A file that cannot be read is reported when the store opens it.
    let caller = Sqlite::find_named_caller(&file).ok().flatten()?;
    Some(format!(
        "callers are not authenticated, although callers of {} had credentials, such as {}",
        file.display(),
        caller.name()
    ))
}

/// The command that creates a key for a server; `flags` end with a space.
pub(crate) fn add_key_command(folder: Option<&Path>, flags: &str) -> String {
    let default = data_dir::locate(None, "attache");
    let named = folder
        .filter(|folder| default.as_deref() != Some(*folder))
        .map(Path::to_string_lossy);
    let named = named.map_or_else(String::new, |folder| {
        format!("--data-dir {} ", shell_words::quote(&folder))
    });
    format!("attache keys add {named}{flags}<NAME>")
}

/// Returns the key file of callers, or as the second value the file that does not exist yet.
fn select_key_file(
    config: &Config,
    folder: Option<&Path>,
) -> anyhow::Result<(Option<KeyFile>, Option<KeyFile>)> {
    Ok(match (folder.map(key_file), config.auth.keys) {
        (Some(file), keys) if keys.unwrap_or_else(|| file.path().exists()) => (Some(file), None),
        (None, Some(true)) => {
            bail!("auth.keys: there is no data directory for keys: --data-dir <DIR>")
        }
        (_, Some(_)) => (None, None),
        (absent, None) => (None, absent),
    })
}

/// Adds TLS, signing keys, authentication and limits to a server.
///
/// # Errors
/// The configuration is invalid, or a key cannot be read.
pub(crate) fn apply(
    mut server: Server,
    config: &Config,
    access: &ReloadableAccess,
) -> anyhow::Result<Server> {
    if let Some(ReloadableTls { tls, .. }) = &access.tls {
        server = server.tls(tls.clone());
    }
    let keys = access.keys.as_ref().map(|(_, keys)| keys.clone());
    for file in [
        &config.server.card_signing_key,
        &config.server.previous_signing_key,
    ]
    .into_iter()
    .flatten()
    {
        server = server.sign_cards(signer(file)?);
    }
    if let Some(file) = &config.server.delegation_signing_key {
        server = server.publish_key(signer(file)?);
    }
    if let Some(file) = &config.push.signing_key {
        server = server.sign_notifications(signer(file)?);
    }
    if let Some(access) = config.access(keys)? {
        server = server.access(access);
    }
    if config.server.allow_anonymous {
        server = server.allow_anonymous();
    }
    Ok(server.caller_limits(config.caller_limits.clone()))
}

/// Makes the running server of a data directory, if there is one, reload its keys.
pub(crate) fn notify_server(folder: &Path) -> anyhow::Result<()> {
    let reloaded = admin::request(folder, "POST", "/reload/keys")
        .context("the running server has not reloaded its keys")?;
    if cfg!(not(unix)) && reloaded.is_none() {
        eprintln!("Restart the server to apply the change.");
    }
    Ok(())
}

/// Reads a private key that signs cards, notifications or delegation claims. Other users must not be able to read it.
pub(crate) fn signer(file: &Path) -> anyhow::Result<attache::jws::Signer> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode =
            std::fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
        if mode.permissions().mode() & 0o077 != 0 {
            bail!(
                "other users can read the key {}; restrict it: chmod 600",
                file.display()
            );
        }
    }
    let pem = String::from_utf8(read(file)?)
        .with_context(|| format!("{} is not a PEM file", file.display()))?;
    attache::jws::Signer::from_pem_with_thumbprint(&pem).with_context(|| file.display().to_string())
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
