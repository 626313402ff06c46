//! Admin interface: HTTP endpoints for operators of a running server.
//!
//! It listens on a Unix socket that only its owner can open. It can also listen on a TCP address,
//! where operators authenticate with an API key. Credentials of callers are not valid here, and
//! operator keys are not valid for agents.

mod activity;
mod api;
mod audit;
mod connection;
mod connection_deadline;
mod console_files;
mod host_policy;
mod listeners;
mod operator;
mod operator_access;
mod routes;
mod secret_token;
mod session;
mod state;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;

use crate::auth::ApiKeys;
use crate::model::{Error, Result};
use crate::server::builder::Server;
use state::ConsoleSettings;

pub use console_files::{ConsoleFile, ConsoleFiles};
pub(super) use listeners::AdminListeners;
pub(super) use routes::AdminRoutes;
pub use state::ContentVisibility;

/// Function that a reload endpoint calls. Returns a remark for the operator, or why the reload
/// failed.
type ReloadCallback = Arc<dyn Fn() -> std::result::Result<String, ReloadError> + Send + Sync>;

/// Why a reload failed.
type ReloadError = Box<dyn std::error::Error + Send + Sync>;

/// Configuration of the admin interface.
#[derive(Clone)]
pub struct Admin {
    directory: PathBuf,
    listen: Option<AdminAddress>,
    max_connections: usize,
    max_failed_logins_per_minute: Option<u32>,
    reload: ReloadCallbacks,
    console: ConsoleSettings,
}

/// TCP address of the admin interface.
#[derive(Clone)]
struct AdminAddress {
    address: SocketAddr,
    keys: ApiKeys,
    /// Whether a free port is used if the port is taken.
    may_use_free_port: bool,
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

impl ReloadCallbacks {
    /// Reloads the whole configuration, on this thread.
    fn reload_all(&self) -> std::result::Result<String, ReloadError> {
        (self.all)()
    }
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
            console: ConsoleSettings::default(),
        }
    }

    /// Also listens on a TCP address, for operators with one of these keys. `GET /healthz` needs no
    /// key. The address uses TLS if the server does.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr, keys: ApiKeys) -> Self {
        self.listen = Some(AdminAddress {
            address,
            keys,
            may_use_free_port: false,
        });
        self
    }

    /// Listens on a free port if the port of [`listen`](Self::listen) is taken.
    #[must_use]
    pub fn or_free_port(mut self) -> Self {
        if let Some(listen) = &mut self.listen {
            listen.may_use_free_port = true;
        }
        self
    }

    /// Serves a web console at `/console/` of the TCP address.
    #[must_use]
    pub fn console(mut self, files: impl ConsoleFiles) -> Self {
        self.console.files = Some(Arc::new(files));
        self
    }

    /// Sets whether operators see the content of messages. Default: [`ContentVisibility::Show`] on loopback,
    /// [`ContentVisibility::OnRequest`] otherwise.
    #[must_use]
    pub fn content(mut self, content: ContentVisibility) -> Self {
        self.console.content = Some(content);
        self
    }

    /// Refuses changes by operators of every role. Default: `false`.
    #[must_use]
    pub fn read_only(mut self, is_read_only: bool) -> Self {
        self.console.is_read_only = is_read_only;
        self
    }

    /// Sets the URL that browsers use behind a proxy: the folder that contains `console/`.
    ///
    /// # Errors
    /// Invalid: it is not an HTTP URL.
    pub fn console_url(mut self, url: &str) -> Result<Self> {
        let invalid = || Error::invalid("console.url", "must be an http or https URL");
        let url: Uri = url.parse().map_err(|_| invalid())?;
        let is_http = matches!(url.scheme_str(), Some("http" | "https"));
        if !is_http || url.host().is_none() {
            return Err(invalid());
        }
        self.console.url = Some(url);
        Ok(self)
    }

    /// Sets the name of the server that the console shows.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.console.name = name.into();
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
        F: Fn() -> std::result::Result<String, E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.reload.all = Arc::new(move || reload().map_err(Into::into));
        self
    }

    /// Sets the callback of `POST /reload/keys`, which reloads keys only.
    #[must_use]
    pub fn on_reload_keys<F, E>(mut self, reload: F) -> Self
    where
        F: Fn() -> std::result::Result<(), E> + Send + Sync + 'static,
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
