//! The configuration layers above the file: environment variables, then flags.
//!
//! [`OVERRIDES`] declares each key that a flag or a variable can set, once. The clap arguments of `serve`, `demo` and
//! `mock` ([`ServerFlags`](crate::args::ServerFlags)) follow from it.

use toml::Value;

use super::ConfigError;
use super::tree::{ConfigTree, ValueOrigin};

/// Looks up an environment variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A configuration key that a flag or an environment variable can set.
#[derive(Debug)]
pub(crate) struct Override {
    /// Full key of the configuration.
    pub(crate) key: &'static str,
    /// The flag; `None` if only variables set the key.
    pub(crate) flag: Option<ServerFlag>,
    /// Variables, highest precedence first.
    variables: &'static [&'static str],
    /// Type of the value.
    pub(crate) kind: OverrideKind,
}

/// Flag of an [`Override`].
#[derive(Debug)]
pub(crate) struct ServerFlag {
    /// Long name, with the dashes.
    pub(crate) option: &'static str,
    /// Placeholder of the value in the help.
    pub(crate) value_name: &'static str,
    /// Description in the help.
    pub(crate) help: &'static str,
    /// Key whose flag must be given too.
    pub(crate) requires: Option<&'static str>,
}

/// Type of the value of an [`Override`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverrideKind {
    Text,
    Bool,
    /// The URL of a database, which implies the kind of store.
    StoreUrl,
    /// A kind of store, or the URL of a database.
    Store,
}

/// Kind of store that a URL implies.
const POSTGRES: &str = "postgres";

/// All overrides, in the order of the help.
pub(crate) static OVERRIDES: &[Override] = &[
    Override {
        flag: Some(ServerFlag::new(
            "--listen",
            "HOST:PORT",
            "Address to listen on; port 0 selects a free port [default: 127.0.0.1:41241]",
        )),
        ..Override::new("server.listen", &["ATTACHE_LISTEN"])
    },
    Override {
        kind: OverrideKind::Bool,
        flag: Some(ServerFlag::new(
            "--allow-anonymous",
            "",
            "Also serve callers without a credential: every client that reaches the server can use the agent",
        )),
        ..Override::new("server.allow_anonymous", &["ATTACHE_ALLOW_ANONYMOUS"])
    },
    Override {
        flag: Some(ServerFlag::new(
            "--public-url",
            "URL",
            "URL of the server for clients, if it is not the listen address; the card contains it",
        )),
        ..Override::new("server.public_url", &["ATTACHE_PUBLIC_URL"])
    },
    Override {
        flag: Some(ServerFlag {
            requires: Some("server.tls_key"),
            ..ServerFlag::new(
                "--tls-cert",
                "FILE",
                "Serve over TLS with this certificate chain: a PEM file, the certificate of the server first",
            )
        }),
        ..Override::new("server.tls_cert", &["ATTACHE_TLS_CERT"])
    },
    Override {
        flag: Some(ServerFlag {
            requires: Some("server.tls_cert"),
            ..ServerFlag::new(
                "--tls-key",
                "FILE",
                "Private key of the certificate: a PEM file",
            )
        }),
        ..Override::new("server.tls_key", &["ATTACHE_TLS_KEY"])
    },
    Override {
        flag: Some(ServerFlag {
            requires: Some("server.tls_cert"),
            ..ServerFlag::new(
                "--tls-client-ca",
                "FILE",
                "Verify client certificates against these authorities: a PEM file. The name in the certificate identifies the caller",
            )
        }),
        ..Override::new("server.tls_client_ca", &["ATTACHE_TLS_CLIENT_CA"])
    },
    Override {
        flag: Some(ServerFlag::new(
            "--admin-listen",
            "HOST:PORT",
            "Address of the admin API, for keys of `attache keys add --admin`. An address that other machines can reach requires TLS",
        )),
        ..Override::new("server.admin_listen", &["ATTACHE_ADMIN_LISTEN"])
    },
    Override {
        kind: OverrideKind::Bool,
        flag: Some(ServerFlag::new("--no-console", "", "Serve no web console")),
        ..Override::new("console.disabled", &["ATTACHE_NO_CONSOLE"])
    },
    Override::new("server.grpc_on_card", &["ATTACHE_GRPC_ON_CARD"]),
    Override {
        kind: OverrideKind::Bool,
        flag: Some(ServerFlag::new(
            "--local-webhooks",
            "",
            "Allow webhooks on loopback addresses, for development. Callers can then make the server post to local services. \
             The demo allows them while other machines cannot reach it",
        )),
        ..Override::new("push.local_webhooks", &["ATTACHE_LOCAL_WEBHOOKS"])
    },
    Override::new("telemetry.otlp_endpoint", &["OTEL_EXPORTER_OTLP_ENDPOINT"]),
    // Before the kind: a URL implies it, and a kind overrides it.
    Override {
        kind: OverrideKind::StoreUrl,
        ..Override::new("store.url", &["ATTACHE_STORE_URL"])
    },
    Override {
        kind: OverrideKind::Store,
        flag: Some(ServerFlag::new(
            "--store",
            "KIND|URL",
            "Task store: sqlite, memory, null (no tasks: every answer is a message), or the URL of a PostgreSQL database [default: sqlite]",
        )),
        ..Override::new("store.kind", &["ATTACHE_STORE", "TASK_STORE_TYPE"])
    },
    Override {
        flag: Some(ServerFlag::new(
            "--data-dir",
            "DIR",
            "Directory of the SQLite file [default: `attache` in your data directory, for demo `attache/demo`]",
        )),
        ..Override::new("store.data_dir", &["ATTACHE_DATA_DIR"])
    },
];

impl Override {
    /// A text that only variables set.
    const fn new(key: &'static str, variables: &'static [&'static str]) -> Self {
        Self {
            key,
            flag: None,
            variables,
            kind: OverrideKind::Text,
        }
    }

    /// The first variable that is set and not empty, with its value.
    fn variable(&self, environment: Environment<'_>) -> Option<(&'static str, String)> {
        self.variables.iter().find_map(|&name| {
            let value = environment(name).filter(|value| !value.is_empty())?;
            Some((name, value))
        })
    }
}

impl ServerFlag {
    const fn new(option: &'static str, value_name: &'static str, help: &'static str) -> Self {
        Self {
            option,
            value_name,
            help,
            requires: None,
        }
    }
}

/// Values of flags, by configuration key.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlagValues(Vec<(&'static str, Value)>);

impl FlagValues {
    /// Adds the value of a key.
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.push((key, value.into()));
    }

    fn get(&self, key: &str) -> Option<&Value> {
        let (_, value) = self.0.iter().find(|(name, _)| *name == key)?;
        Some(value)
    }
}

/// Overrides the values of the file by those of the environment, and both by those of flags.
///
/// # Errors
/// A variable of a boolean key is neither true nor false.
pub(super) fn apply(
    tree: &mut ConfigTree,
    environment: Environment<'_>,
    flags: &FlagValues,
) -> Result<(), ConfigError> {
    // A URL in the file implies the kind too.
    if let (Some(ValueOrigin::Line { line, .. }), None) =
        (tree.origin("store.url"), tree.origin("store.kind"))
    {
        let origin = ValueOrigin::Line {
            line: *line,
            written: None,
        };
        tree.set("store.kind", POSTGRES.into(), origin);
    }
    for entry in OVERRIDES {
        if let Some((name, text)) = entry.variable(environment) {
            let value = parse(entry.kind, name, text)?;
            set(tree, entry, value, &ValueOrigin::Environment(name));
        }
        if let (Some(flag), Some(value)) = (&entry.flag, flags.get(entry.key)) {
            set(tree, entry, value.clone(), &ValueOrigin::Flag(flag.option));
        }
    }
    Ok(())
}

/// Sets the value of an override. The URL of a database sets the kind of store with it.
fn set(tree: &mut ConfigTree, entry: &Override, value: Value, origin: &ValueOrigin) {
    let is_url = match entry.kind {
        OverrideKind::StoreUrl => true,
        OverrideKind::Store => value.as_str().is_some_and(|text| text.contains("://")),
        OverrideKind::Text | OverrideKind::Bool => false,
    };
    if is_url {
        tree.set("store.kind", POSTGRES.into(), origin.clone());
        tree.set("store.url", value, origin.clone());
    } else {
        tree.set(entry.key, value, origin.clone());
    }
}

/// Parses the value of a variable. Other types than `Bool` are checked with the section.
fn parse(kind: OverrideKind, name: &str, text: String) -> Result<Value, ConfigError> {
    if kind != OverrideKind::Bool {
        return Ok(Value::String(text));
    }
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(Value::Boolean(true)),
        "0" | "false" | "no" | "off" => Ok(Value::Boolean(false)),
        _ => Err(ConfigError::new(name, "must be true or false")),
    }
}
