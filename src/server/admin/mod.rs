//! Admin interface: HTTP endpoints for operators of a running server.
//!
//! It listens on a Unix socket that only its owner can open. It can also listen on a TCP address,
//! where operators authenticate with an API key. Credentials of callers are not valid here, and
//! operator keys are not valid for agents.

mod connection;
mod listeners;
mod operator_access;
mod routes;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::auth::ApiKeys;
use crate::server::builder::Server;

pub(super) use listeners::AdminListeners;
pub(super) use routes::AdminRoutes;

/// Function that a reload endpoint calls. Returns a remark for the operator, or why the reload
/// failed.
type ReloadCallback =
    Arc<dyn Fn() -> Result<String, Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

/// Configuration of the admin interface.
#[derive(Clone)]
pub struct Admin {
    directory: PathBuf,
    listen: Option<(SocketAddr, ApiKeys)>,
    max_connections: usize,
    max_failed_logins_per_minute: Option<u32>,
    reload: ReloadCallbacks,
}

/// Default of [`Admin::max_connections`].
const DEFAULT_MAX_CONNECTIONS: usize = 32;
/// Default of [`Admin::max_failed_logins_per_minute`].
const DEFAULT_MAX_FAILED_LOGINS: u32 = 300;

/// Callbacks of the reload endpoints.
#[derive(Clone)]
pub(super) struct ReloadCallbacks {
    /// `POST /reload`: the whole configuration.
    all: ReloadCallback,
    /// `POST /reload/keys`: keys only.
    keys: ReloadCallback,
}

impl Default for ReloadCallbacks {
    fn default() -> Self {
        Self {
            all: Arc::new(|| Ok(String::new())),
            keys: Arc::new(|| Ok(String::new())),
        }
    }
}

impl Admin {
    /// Creates an interface on the Unix socket `admin/socket` below `directory`. Only its owner can
    /// access `admin` and the socket.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        Self {
            directory: directory.as_ref().join("admin"),
            listen: None,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_failed_logins_per_minute: Some(DEFAULT_MAX_FAILED_LOGINS),
            reload: ReloadCallbacks::default(),
        }
    }

    /// Also listens on a TCP address, for operators with one of these keys. `GET /healthz` needs no
    /// key. The address uses TLS if the server does.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr, keys: ApiKeys) -> Self {
        self.listen = Some((address, keys));
        self
    }

    /// Sets the maximum number of concurrent connections of the socket, and of the address. Default:
    /// 32. One address has half of them, a loopback address all.
    ///
    /// 16 further connections are accepted. If there are more, the oldest that has not authenticated
    /// is closed.
    #[must_use]
    pub fn max_connections(mut self, max_connections: usize) -> Self {
        self.max_connections = max_connections;
        self
    }

    /// Sets the number of requests with an invalid key per minute after which further ones from the
    /// same address are refused for the rest of that minute, with `Retry-After`. Valid keys are
    /// accepted in any case. Default: 300. `None` disables the lockout.
    #[must_use]
    pub fn max_failed_logins_per_minute(mut self, limit: Option<u32>) -> Self {
        self.max_failed_logins_per_minute = limit;
        self
    }

    /// Sets the callback of `POST /reload`. It returns a remark for the operator, or an error. Only
    /// the operator sees either.
    #[must_use]
    pub fn on_reload<F, E>(mut self, reload: F) -> Self
    where
        F: Fn() -> Result<String, E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.reload.all = Arc::new(move || reload().map_err(Into::into));
        self
    }

    /// Sets the callback of `POST /reload/keys`, which reloads keys only.
    #[must_use]
    pub fn on_reload_keys<F, E>(mut self, reload: F) -> Self
    where
        F: Fn() -> Result<(), E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.reload.keys = Arc::new(move || reload().map(|()| String::new()).map_err(Into::into));
        self
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }
}

impl Server {
    /// Enables the admin interface.
    #[must_use]
    pub fn admin(mut self, admin: Admin) -> Self {
        self.admin = Some(admin);
        self
    }
}
