//! State that the endpoints of the admin interface share.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use serde::Serialize;

use super::ReloadCallbacks;
use super::audit::{AuditEntry, AuditLog, AuditOutcome};
use super::console_files::ConsoleFiles;
use super::operator::Operator;
use super::operator_access::OperatorAccess;
use super::session::{LinkError, Sessions};
use crate::auth::Identity;
use crate::model::{Result, Timestamp};
use crate::server::handle::ServerHandle;

/// Whether the console shows the content of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ContentVisibility {
    /// Always.
    Show,
    /// If the operator requests it, which is recorded.
    OnRequest,
    /// Not at all.
    Never,
}

/// Settings of the web console.
#[derive(Clone, Default)]
pub(super) struct ConsoleSettings {
    pub(super) files: Option<Arc<dyn ConsoleFiles>>,
    /// `None`: shown on loopback, on request elsewhere.
    pub(super) content: Option<ContentVisibility>,
    pub(super) is_read_only: bool,
    /// URL behind a proxy, of the folder that contains `console/`.
    pub(super) url: Option<Uri>,
    pub(super) name: String,
}

/// TCP listener of the interface.
#[derive(Clone)]
pub(super) struct TcpEndpoint {
    pub(super) address: SocketAddr,
    pub(super) uses_tls: bool,
    pub(super) access: Arc<OperatorAccess>,
}

/// Parts of the state that exist before the server serves.
#[derive(Clone)]
pub(in crate::server) struct AdminContext {
    pub(super) sessions: Arc<Sessions>,
    pub(super) console: ConsoleSettings,
    pub(super) tcp: Option<TcpEndpoint>,
}

impl AdminContext {
    /// Creates a one-time link to the console. `None`: there is no console, or no address.
    pub(super) fn create_link(&self) -> Result<Option<String>, LinkError> {
        let Some(base) = self.base_url().filter(|_| self.console.files.is_some()) else {
            return Ok(None);
        };
        let token = self.sessions.create_link()?;
        Ok(Some(format!("{base}console/#/login/{token}")))
    }

    /// Returns the URL of the folder that contains `console/`, with a slash at its end.
    fn base_url(&self) -> Option<String> {
        if let Some(url) = &self.console.url {
            return Some(format!("{}/", url.to_string().trim_end_matches('/')));
        }
        let tcp = self.tcp.as_ref()?;
        let mut address = tcp.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let scheme = if tcp.uses_tls { "https" } else { "http" };
        Some(format!("{scheme}://{address}/"))
    }

    /// Returns the name of the session cookie. Browsers send cookies to every port of a host, so the name has the port.
    fn cookie_name(&self) -> String {
        let port = self.tcp.as_ref().map_or(0, |tcp| tcp.address.port());
        format!("attache_{port}")
    }

    /// Returns the value of `Set-Cookie`. Without `Path` the cookie belongs to the folder of the API, below any prefix.
    pub(super) fn session_cookie(&self, value: &str) -> String {
        let uses_tls = self.tcp.as_ref().is_some_and(|tcp| tcp.uses_tls);
        let is_behind_tls = |url: &Uri| url.scheme_str() == Some("https");
        let is_secure = uses_tls || self.console.url.as_ref().is_some_and(is_behind_tls);
        let secure = if is_secure { "; Secure" } else { "" };
        format!(
            "{}={value}; HttpOnly; SameSite=Strict{secure}",
            self.cookie_name()
        )
    }

    /// Returns the value of the session cookie. Two of them count as none (S84).
    pub(super) fn read_cookie<'a>(&self, lines: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        let name = self.cookie_name();
        let pairs = lines
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs
            .filter(|(own, _)| *own == name)
            .map(|(_, value)| value);
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }
}

/// State of the admin interface of a running server.
pub(in crate::server) struct AdminState {
    context: AdminContext,
    pub(super) reload: ReloadCallbacks,
    pub(super) handle: ServerHandle,
    audit_log: AuditLog,
    pub(super) started: Timestamp,
}

impl std::ops::Deref for AdminState {
    type Target = AdminContext;

    fn deref(&self) -> &AdminContext {
        &self.context
    }
}

impl AdminState {
    pub(super) fn new(
        context: AdminContext,
        reload: ReloadCallbacks,
        handle: ServerHandle,
    ) -> Self {
        let started = handle.engine().now();
        Self {
            context,
            reload,
            handle,
            audit_log: AuditLog::default(),
            started,
        }
    }

    /// Returns the wall-clock time.
    pub(super) fn now(&self) -> Timestamp {
        self.handle.engine().now()
    }

    /// Returns the time after a duration.
    pub(super) fn after(&self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let end = self.now().as_millis().saturating_add(millis);
        Timestamp::from_millis(end).unwrap_or(Timestamp::MAX)
    }

    /// Returns whether message content is shown.
    pub(super) fn content(&self) -> ContentVisibility {
        self.console.content.unwrap_or_else(|| {
            let is_local = |tcp: &TcpEndpoint| tcp.address.ip().is_loopback();
            if self.tcp.as_ref().is_none_or(is_local) && self.console.url.is_none() {
                ContentVisibility::Show
            } else {
                ContentVisibility::OnRequest
            }
        })
    }

    /// Returns the identity of an operator key.
    pub(super) fn identify(&self, key: &str) -> Option<Identity> {
        self.tcp.as_ref()?.access.identify(key)
    }

    /// Counts a failed sign-in.
    ///
    /// # Errors
    /// Rate limited: the address is locked out.
    pub(super) fn record_failure(&self, client: IpAddr) -> Result<()> {
        match &self.tcp {
            Some(tcp) => tcp.access.record_sign_in_failure(client),
            None => Ok(()),
        }
    }

    /// Returns the audit log.
    pub(super) fn audit_log(&self) -> &AuditLog {
        &self.audit_log
    }

    /// Records an action.
    pub(super) fn audit(
        &self,
        operator: Option<&Operator>,
        action: &'static str,
        target: &str,
        outcome: AuditOutcome,
        detail: &str,
    ) {
        self.audit_log.record(&AuditEntry {
            time: self.now(),
            operator,
            action,
            target,
            outcome,
            detail,
        });
    }
}
