//! URL of a PostgreSQL database.

use std::fmt;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::error::OpenError;

/// Parameters of libpq that settings of the store replace.
const REPLACED_PARAMETERS: &[(&str, &str)] = &[
    ("sslrootcert", "ca"),
    ("sslcert", "client_cert"),
    ("sslkey", "client_key"),
    ("options", "schema"),
];

/// URL of a PostgreSQL database: `postgres://user:password@host:port,host2/database?parameters`.
///
/// Connections use TLS and verify the certificate of the server. Only `sslmode=disable` switches TLS off; every other mode
/// acts like `verify-full`. Connections are always to a primary (`target_session_attrs=read-write`).
///
/// `Display` and `Debug` contain no password.
#[derive(Clone, PartialEq)]
pub struct DatabaseUrl {
    config: Config,
    uses_tls: bool,
}

impl DatabaseUrl {
    /// Returns whether connections use TLS.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.uses_tls
    }

    /// Returns the configuration of the driver for each host, in order.
    ///
    /// One for each: the driver limits the time of the TCP connect only, and a host that accepts and does not answer would
    /// take the time of the others.
    pub(super) fn configs(&self) -> Vec<Config> {
        let ports = self.config.get_ports();
        let addresses = self.config.get_hostaddrs();
        let hosts = self.config.get_hosts();
        let count = hosts.len().max(addresses.len());
        (0..count)
            .map(|index| {
                let mut config = self.base_config();
                match hosts.get(index) {
                    Some(Host::Tcp(host)) => {
                        config.host(host);
                    }
                    #[cfg(unix)]
                    Some(Host::Unix(path)) => {
                        config.host_path(path);
                    }
                    None => {}
                }
                if let Some(address) = addresses.get(index) {
                    config.hostaddr(*address);
                }
                config.port(*ports.get(index).or(ports.first()).unwrap_or(&5432));
                config
            })
            .collect()
    }

    /// Returns the configuration without hosts.
    fn base_config(&self) -> Config {
        let mut config = Config::new();
        if let Some(user) = self.config.get_user() {
            config.user(user);
        }
        if let Some(password) = self.config.get_password() {
            config.password(password);
        }
        config
            .dbname(self.database())
            .ssl_mode(self.config.get_ssl_mode())
            .ssl_negotiation(self.config.get_ssl_negotiation())
            .channel_binding(self.config.get_channel_binding())
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        config
    }

    /// Returns the name of the user, or an empty text for the user of the process.
    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// Returns the name of the database: the name of the user by default.
    pub(super) fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or(self.user())
    }
}

impl FromStr for DatabaseUrl {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let invalid = |reason: String| OpenError::InvalidUrl { reason };
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(invalid("it must begin with postgres://".to_owned()));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut uses_tls = true;
        let mut rest = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let replaced = REPLACED_PARAMETERS.iter().find(|(old, _)| *old == name);
            if let Some((name, setting)) = replaced {
                return Err(invalid(format!(
                    "use the setting store.{setting} instead of {name}"
                )));
            }
            match (&*name, &*value) {
                ("sslmode", "disable") => uses_tls = false,
                ("sslmode", "allow" | "prefer" | "require" | "verify-ca" | "verify-full") => {
                    uses_tls = true;
                }
                ("sslmode", _) => {
                    return Err(invalid("sslmode must be verify-full or disable".to_owned()));
                }
                ("target_session_attrs", "any" | "read-write" | "primary") => {}
                ("target_session_attrs", _) => {
                    return Err(invalid(
                        "target_session_attrs must be read-write: the store writes".to_owned(),
                    ));
                }
                _ => {
                    rest.append_pair(&name, &value);
                }
            }
        }
        // The driver decodes %20 but not the plus sign.
        let query = rest.finish().replace('+', "%20");
        let parsed = format!("{base}?{query}").parse::<Config>();
        let mut config = parsed.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            invalid(cause.unwrap_or_else(|| error.to_string()))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("it names no host".to_owned()));
        }
        config.ssl_mode(if uses_tls {
            SslMode::Require
        } else {
            SslMode::Disable
        });
        Ok(Self { config, uses_tls })
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if !self.user().is_empty() {
            write!(f, "{}@", self.user())?;
        }
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match host {
                Host::Tcp(host) if host.contains(':') => write!(f, "[{host}]")?,
                Host::Tcp(host) => f.write_str(host)?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{}", path.display())?,
            }
            if let Some(port) = ports.get(index).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", self.database())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_printed_without_password() {
        let table = [
            (
                "postgres://ann:secret@db/tasks",
                true,
                "postgres://ann@db:5432/tasks",
            ),
            (
                "postgresql://ann:se%40cret@a:1,b:2/tasks?target_session_attrs=read-write&sslmode=require",
                true,
                "postgres://ann@a:1,b:2/tasks",
            ),
            (
                "postgres://ann@[::1]:7/tasks?sslmode=disable&password=secret&connect_timeout=3",
                false,
                "postgres://ann@[::1]:7/tasks",
            ),
            ("postgres://ann@db", true, "postgres://ann@db:5432/ann"),
        ];
        for (text, uses_tls, shown) in table {
            let url: DatabaseUrl = text.parse().unwrap();
            assert_eq!(url.uses_tls(), uses_tls, "{text}");
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("secret"), "{text}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_with_a_reason() {
        let table = [
            ("mysql://db/tasks", "it must begin with postgres://"),
            (
                "postgres://ann:secret@:x/y",
                "invalid value for option `port`",
            ),
            (
                "postgres://db/tasks?sslrootcert=ca.pem",
                "use the setting store.ca instead of sslrootcert",
            ),
            (
                "postgres://db/tasks?sslmode=off",
                "sslmode must be verify-full or disable",
            ),
            (
                "postgres://db/tasks?target_session_attrs=read-only",
                "target_session_attrs must be read-write: the store writes",
            ),
            ("postgres:///tasks", "it names no host"),
            ("postgres://db/tasks?colour=red", "unknown option `colour`"),
        ];
        for (text, reason) in table {
            let error = text.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "the URL of the database is invalid: {reason}; expected postgres://user:password@host:port/database"
                ),
                "{text}"
            );
            assert!(!error.contains("secret"));
        }
    }
}
