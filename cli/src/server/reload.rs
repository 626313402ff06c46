//! Reload of a running server: keys, certificates and the configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, bail};
use attache::ServerHandle;

use super::{ConfigReader, configure, listen};
use crate::access::ReloadableAccess;
use crate::config::{Config, RestartOnly};
use crate::sync;

/// Reloads keys, certificates and configuration. A failed reload changes nothing.
pub(super) struct Reloader {
    reread: Option<ConfigReader>,
    /// Values of the start that a reload cannot change.
    restart_only: RestartOnly,
    folder: Option<PathBuf>,
    addresses: Vec<SocketAddr>,
    access: Mutex<ReloadableAccess>,
    server: OnceLock<ServerHandle>,
}

/// Parts of a [`Reloader`].
pub(super) struct ReloaderSetup<'a> {
    pub(super) reread: Option<ConfigReader>,
    pub(super) config: &'a Config,
    pub(super) access: ReloadableAccess,
    pub(super) folder: Option<PathBuf>,
    pub(super) addresses: Vec<SocketAddr>,
}

impl Reloader {
    pub(super) fn new(setup: ReloaderSetup<'_>) -> Self {
        Self {
            reread: setup.reread,
            restart_only: setup.config.restart_only(),
            folder: setup.folder,
            addresses: setup.addresses,
            access: Mutex::new(setup.access),
            server: OnceLock::new(),
        }
    }

    /// Connects the running server. Before this a configuration cannot be reloaded.
    pub(super) fn start(&self, server: ServerHandle) {
        let _ = self.server.set(server);
    }

    /// Reloads keys and certificates.
    pub(super) fn reload_keys(&self) -> anyhow::Result<()> {
        sync::lock(&self.access).reload()
    }

    /// Reloads keys, certificates and the configuration file, if there is one. Logs the result. Returns a note about keys
    /// that need a restart, or an empty text.
    pub(super) fn reload_all(&self) -> anyhow::Result<String> {
        let reloaded = match &self.reread {
            Some(reread) => self.reload_configuration(reread),
            None => self.reload_keys().map(|()| Vec::new()),
        };
        match reloaded {
            Ok(pending) if pending.is_empty() => {
                tracing::info!("reloaded");
                Ok(String::new())
            }
            Ok(pending) => {
                let pending = pending.join(", ");
                tracing::warn!(
                    restart_for = pending,
                    "reloaded; some changes need a restart"
                );
                Ok(format!("these need a restart: {pending}"))
            }
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "reload failed: the previous configuration stays in effect"
                );
                Err(error)
            }
        }
    }

    /// Applies the configuration as a whole, or nothing of it. Returns the changed keys that need a restart.
    fn reload_configuration(&self, reread: &ConfigReader) -> anyhow::Result<Vec<String>> {
        let server = self.server.get().context("the server is not running yet")?;
        let mut access = sync::lock(&self.access);
        let (config, agents) = reread()?;
        if agents.is_empty() {
            bail!("the configuration has no agent");
        }
        let fresh = access.reconfigure(&config, self.folder.as_deref())?;
        listen::check(
            &config,
            &self.addresses,
            fresh.has_authentication(&config),
            self.folder.as_deref(),
        )?;
        server.replace(configure(agents, &config, &fresh)?)?;
        *access = fresh;
        Ok(self.restart_only.changed_keys(&config.restart_only()))
    }
}
