//! What a running server reads again: its keys and certificates, and its configuration file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, bail};
use attache::ServerHandle;

use super::{ConfigReader, configure, listen};
use crate::access::ReloadableAccess;
use crate::config::{Config, RestartOnly};

/// Reads things again while a server runs. What cannot be taken in leaves everything as it was.
pub(super) struct Reloader {
    reread: Option<ConfigReader>,
    /// What a process has as long as it runs.
    restart_only: RestartOnly,
    folder: Option<PathBuf>,
    addresses: Vec<SocketAddr>,
    access: Mutex<ReloadableAccess>,
    running: OnceLock<ServerHandle>,
}

impl Reloader {
    pub(super) fn new(
        reread: Option<ConfigReader>,
        config: &Config,
        access: ReloadableAccess,
        (folder, addresses): (Option<PathBuf>, Vec<SocketAddr>),
    ) -> Self {
        let running = OnceLock::new();
        Self {
            reread,
            restart_only: config.restart_only(),
            folder,
            addresses,
            access: Mutex::new(access),
            running,
        }
    }

    /// From now on there is somebody to tell.
    pub(super) fn begin(&self, running: ServerHandle) {
        let _ = self.running.set(running);
    }

    /// Keys and certificates.
    pub(super) fn reload_keys(&self) -> anyhow::Result<()> {
        self.access
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reload()
    }

    /// Keys and certificates, and the configuration file if there is one. Says in the log what came of it, and gives what is to
    /// be done about it, if anything.
    pub(super) fn reload_all(&self) -> anyhow::Result<String> {
        let taken = match &self.reread {
            Some(reread) => self.configuration(reread),
            None => self.reload_keys().map(|()| Vec::new()),
        };
        match taken {
            Ok(later) if later.is_empty() => {
                tracing::info!("reloaded");
                Ok(String::new())
            }
            Ok(later) => {
                let later = later.join(", ");
                tracing::warn!(
                    restart_for = later,
                    "reloaded, but for what needs a restart"
                );
                Ok(format!("these need a restart: {later}"))
            }
            Err(error) => {
                tracing::error!(
                    why = format!("{error:#}"),
                    "not reloaded: everything is as it was"
                );
                Err(error)
            }
        }
    }

    /// Takes a configuration in whole, or nothing of it; gives the keys of what waits for a restart.
    fn configuration(&self, reread: &ConfigReader) -> anyhow::Result<Vec<String>> {
        let running = self
            .running
            .get()
            .context("the server has not begun to serve")?;
        let mut access = self.access.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, agents) = reread()?;
        if agents.is_empty() {
            bail!("there is no agent left to serve");
        }
        let fresh = access.reconfigure(&config, self.folder.as_deref())?;
        listen::check(
            &config,
            &self.addresses,
            fresh.has_authentication(&config),
            self.folder.as_deref(),
        )?;
        running.replace(configure(agents, &config, &fresh)?)?;
        *access = fresh;
        Ok(self.restart_only.changed_keys(&config.restart_only()))
    }
}
