//! Who may call: keys in the data directory, certificates, and a way to tell a running server of what has changed.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use attache::auth::{ApiKeys, KeyFile};
use attache::{Server, Tls};

use crate::admin;
use crate::config::Config;
use crate::data_dir;

/// The file of keys in a data directory.
pub(crate) fn key_file(folder: &Path) -> KeyFile {
    KeyFile::new(folder.join("keys.json"))
}

/// The file of operators' keys in a data directory.
pub(crate) fn admin_key_file(folder: &Path) -> KeyFile {
    KeyFile::new(folder.join("admin-keys.json"))
}

/// What a running server reads again when it is told to.
#[derive(Clone, Default)]
pub(crate) struct ReloadableAccess {
    /// Where keys would be, if there were any when it started.
    absent: Option<KeyFile>,
    keys: Option<(KeyFile, ApiKeys)>,
    admin: Option<(KeyFile, ApiKeys)>,
    tls: Option<(PathBuf, PathBuf, Tls)>,
}

impl ReloadableAccess {
    /// Takes in keys and certificates as they are now. What cannot be read leaves what there was.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        if self
            .absent
            .as_ref()
            .is_some_and(|file| file.path().exists())
        {
            bail!("it was started when there were no keys, and asks for none; restart it");
        }
        let mut fresh = Vec::new();
        for (file, keys) in [&self.keys, &self.admin].into_iter().flatten() {
            fresh.push((
                keys,
                file.read()
                    .with_context(|| file.path().display().to_string())?,
            ));
        }
        if let Some((certificate, key, tls)) = &self.tls {
            tls.renew(&read(certificate)?, &read(key)?)
                .context("--tls-cert and --tls-key")?;
        }
        fresh.iter().for_each(|(keys, read)| keys.replace(read));
        Ok(())
    }

    /// The same for another configuration, which may ask for keys where none were asked for before, or the reverse. Where TLS
    /// and operators are concerned a running server stays what it is.
    pub(crate) fn reconfigure(
        &self,
        config: &Config,
        folder: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let (there, absent) = select_key_file(config, folder)?;
        let known = self.keys.as_ref().map(|(_, keys)| keys.clone());
        let keys = there.map(|file| (file, known.unwrap_or_default()));
        let again = Self {
            absent,
            keys,
            admin: self.admin.clone(),
            tls: self.tls.clone(),
        };
        again.reload()?;
        Ok(again)
    }

    /// The keys of operators, where they may come over HTTP.
    pub(crate) fn admin(&self) -> Option<ApiKeys> {
        self.admin.as_ref().map(|(_, keys)| keys.clone())
    }

    /// What callers may show, in words; whether anything would let somebody in.
    pub(crate) fn accepted_credentials(&self, config: &Config) -> (Vec<String>, bool) {
        let keys = self
            .keys
            .as_ref()
            .map(|(file, _)| file.read().unwrap_or_default());
        let mut ways = Vec::new();
        if keys.is_some() {
            ways.push("a key (A2ACLI_BEARER=<KEY>)".to_owned());
        }
        for issuer in &config.auth.issuers {
            ways.push(format!(
                "a token of {} (A2ACLI_BEARER=<TOKEN>)",
                issuer.name()
            ));
        }
        if config.server.tls_client_ca.is_some() {
            ways.push("a certificate (--cert <FILE> --key <FILE>)".to_owned());
        }
        let is_any =
            ways.len() > 1 || keys.is_none_or(|keys| keys.iter().any(|key| !key.is_expired()));
        (ways, is_any)
    }

    /// Whether callers are asked who they are.
    pub(crate) fn has_authentication(&self, config: &Config) -> bool {
        self.keys.is_some()
            || config.server.tls_client_ca.is_some()
            || !config.auth.issuers.is_empty()
    }
}

/// What is asked of callers: a key if the folder has a file of keys, be it an empty one, or a certificate. The configuration
/// may say of keys that there will be some, or that they are not wanted.
pub(crate) fn prepare(config: &Config, folder: Option<&Path>) -> anyhow::Result<ReloadableAccess> {
    let section = &config.server;
    let (there, absent) = select_key_file(config, folder)?;
    let keys = there.map(|file| (file, ApiKeys::new()));
    let tls = match (&section.tls_cert, &section.tls_key) {
        (Some(certificate), Some(key)) => {
            let mut tls = Tls::from_pem(&read(certificate)?, &read(key)?)
                .context("cannot serve over TLS; check --tls-cert and --tls-key")?;
            if let Some(authorities) = &section.tls_client_ca {
                // Whoever shows none may have a key or a token.
                let others = keys.is_some() || !config.auth.issuers.is_empty();
                let required = !others && !section.allow_anonymous;
                tls = tls
                    .verify_clients(&read(authorities)?, required)
                    .context("--tls-client-ca")?;
            }
            Some((certificate.clone(), key.clone(), tls))
        }
        (None, None) => None,
        (Some(_), None) => bail!("TLS needs a key beside its certificate: tls_key, or --tls-key"),
        (None, Some(_)) => bail!("TLS needs a certificate beside its key: tls_cert, or --tls-cert"),
    };
    let admin = match (folder, &section.admin_listen) {
        (Some(folder), Some(_)) => Some((admin_key_file(folder), ApiKeys::new())),
        (None, Some(_)) => {
            bail!("--admin-listen needs a folder for its keys; name one: --data-dir <DIR>")
        }
        (_, None) => None,
    };
    if admin
        .as_ref()
        .is_some_and(|(file, _)| !file.path().exists())
    {
        bail!(
            "--admin-listen is for those who have a key of an operator; make one: {}",
            add_key_command(folder, "--admin ")
        );
    }
    let reloading = ReloadableAccess {
        absent,
        keys,
        admin,
        tls,
    };
    reloading.reload()?;
    Ok(reloading)
}

/// What makes a key in the folder of a server; `flags` end in a space.
pub(crate) fn add_key_command(folder: Option<&Path>, flags: &str) -> String {
    // Where keys go if nobody says otherwise.
    let usual = data_dir::locate(None, "attache");
    let named = folder
        .filter(|folder| usual.as_deref() != Some(*folder))
        .map(Path::to_string_lossy);
    let named = named.map_or_else(String::new, |folder| {
        format!("--data-dir {} ", shell_words::quote(&folder))
    });
    format!("attache keys add {named}{flags}<NAME>")
}

/// The file of keys that callers may show, or where it would be if there were one.
fn select_key_file(
    config: &Config,
    folder: Option<&Path>,
) -> anyhow::Result<(Option<KeyFile>, Option<KeyFile>)> {
    Ok(match (folder.map(key_file), config.auth.keys) {
        (Some(file), said) if said.unwrap_or_else(|| file.path().exists()) => (Some(file), None),
        (None, Some(true)) => {
            bail!("auth.keys: there is no folder for keys; name one: --data-dir <DIR>")
        }
        (_, Some(_)) => (None, None),
        (absent, None) => (None, absent),
    })
}

/// The server that asks them.
///
/// # Errors
/// What is wrong with the configuration.
pub(crate) fn apply(
    mut server: Server,
    config: &Config,
    reloading: &ReloadableAccess,
) -> anyhow::Result<Server> {
    if let Some((_, _, tls)) = &reloading.tls {
        server = server.tls(tls.clone());
    }
    let keys = reloading.keys.as_ref().map(|(_, keys)| keys.clone());
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
    Ok(match config.caller_limits() {
        Some(limits) => server.caller_limits(limits.clone()),
        None => server,
    })
}

/// Tells the server of this folder, if one runs, that something has changed.
pub(crate) fn notify_server(folder: &Path) -> anyhow::Result<()> {
    let told = admin::request(folder, "POST", "/reload/keys")
        .context("the running server has not taken it in")?;
    if cfg!(not(unix)) && told.is_none() {
        eprintln!("Restart the server to take it in.");
    }
    Ok(())
}

/// A key that signs cards, notifications, or for whom agents call.
pub(crate) fn signer(file: &Path) -> anyhow::Result<attache::jws::Signer> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode =
            std::fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
        if mode.permissions().mode() & 0o077 != 0 {
            bail!(
                "others can read the key {}; keep it to yourself: chmod 600",
                file.display()
            );
        }
    }
    let pem = String::from_utf8(read(file)?)
        .with_context(|| format!("{} is no PEM file", file.display()))?;
    attache::jws::Signer::from_pem_with_thumbprint(&pem).with_context(|| file.display().to_string())
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
