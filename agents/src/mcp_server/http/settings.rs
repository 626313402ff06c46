//! Settings of the MCP server over HTTP.

use std::time::Duration;

use attache::model::Secret;
use attache::{ConnectionLimits, Error, Result};

/// Maximum number of connections beyond the limits. They are served, but closed for newer ones until they authenticate.
const RESERVED_CONNECTIONS: usize = 32;

/// Access and limits of an [`McpServer`](crate::McpServer) over HTTP. A caller is a key, or the address of a client
/// without one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpHttpSettings {
    /// Keys, of which clients must send one as a bearer token. Empty: clients need none.
    pub keys: Vec<Secret>,
    /// Accepted `Host` names, besides loopback names.
    pub hosts: Vec<String>,
    /// Timeout for the head of a request. An idle connection is closed after it too. The default is 10 seconds.
    pub header_timeout: Duration,
    /// Timeout for the body of a request. The default is 30 seconds.
    pub body_timeout: Duration,
    /// Timeout of a write that makes no progress because the client does not read. The default is 60 seconds.
    pub write_timeout: Duration,
    /// Maximum number of concurrent connections. The default is 256.
    pub max_connections: usize,
    /// Maximum number of concurrent connections from one address that is not a loopback address. `None`: half of
    /// `max_connections`.
    pub max_connections_per_address: Option<usize>,
    /// Maximum number of concurrent connections with one key. `None`: half of `max_connections`.
    pub max_connections_per_caller: Option<usize>,
    /// Maximum memory of all request bodies until their calls end, in bytes. One caller uses at most half of it. The
    /// default is 64 MiB.
    pub max_buffered_body_bytes: usize,
    /// Maximum number of sessions. The default is 1024.
    pub max_sessions: usize,
    /// Maximum number of sessions of one caller. `None`: half of `max_sessions`.
    pub max_sessions_per_caller: Option<usize>,
    /// Time after which a session without messages ends. The default is 5 minutes.
    pub session_timeout: Duration,
}

impl Default for McpHttpSettings {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            hosts: Vec::new(),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            max_connections: 256,
            max_connections_per_address: None,
            max_connections_per_caller: None,
            max_buffered_body_bytes: 64 << 20,
            max_sessions: 1024,
            max_sessions_per_caller: None,
            session_timeout: Duration::from_secs(300),
        }
    }
}

impl McpHttpSettings {
    /// Checks the limits.
    ///
    /// # Errors
    /// Invalid, with the name of the setting.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [
            ("max_connections", self.max_connections),
            ("max_sessions", self.max_sessions),
        ] {
            if value == 0 {
                return Err(Error::invalid(name, "must be at least 1"));
            }
        }
        for (name, share, total_name, total) in [
            (
                "max_connections_per_address",
                self.max_connections_per_address,
                "max_connections",
                self.max_connections,
            ),
            (
                "max_connections_per_caller",
                self.max_connections_per_caller,
                "max_connections",
                self.max_connections,
            ),
            (
                "max_sessions_per_caller",
                self.max_sessions_per_caller,
                "max_sessions",
                self.max_sessions,
            ),
        ] {
            if let Some(share) = share.filter(|share| *share == 0 || *share > total) {
                let reason = format!("is {share}; it must be 1 to {total_name} = {total}");
                return Err(Error::invalid(name, reason));
            }
        }
        if self.max_buffered_body_bytes < 2 * super::MAX_REQUEST_BYTES {
            let reason = "must be at least 16 MiB, for two requests of the maximum size";
            return Err(Error::invalid("max_buffered_body_bytes", reason));
        }
        Ok(())
    }

    pub(super) fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits::new(self.max_connections)
            .per_address(self.max_connections_per_address)
            .reserve(RESERVED_CONNECTIONS)
    }

    pub(super) fn connections_per_caller(&self) -> usize {
        let half = self.max_connections.div_ceil(2);
        self.max_connections_per_caller.unwrap_or(half)
    }

    pub(super) fn sessions_per_caller(&self) -> usize {
        let half = self.max_sessions.div_ceil(2);
        self.max_sessions_per_caller.unwrap_or(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d15_impossible_limits_are_refused() {
        let refuse = |change: fn(&mut McpHttpSettings)| {
            let mut settings = McpHttpSettings::default();
            change(&mut settings);
            settings.validate().unwrap_err().message().to_owned()
        };
        McpHttpSettings::default().validate().unwrap();
        assert!(refuse(|it| it.max_sessions = 0).contains("max_sessions"));
        assert!(refuse(|it| it.max_connections = 0).contains("max_connections"));
        let message = refuse(|it| it.max_sessions_per_caller = Some(2000));
        assert!(
            message.contains("max_sessions_per_caller") && message.contains("1024"),
            "{message}"
        );
        assert!(
            refuse(|it| it.max_connections_per_caller = Some(0)).contains("per_caller")
                && refuse(|it| it.max_connections_per_address = Some(257)).contains("per_address")
        );
        assert!(refuse(|it| it.max_buffered_body_bytes = 1).contains("max_buffered_body_bytes"));
    }
}
