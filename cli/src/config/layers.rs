//! What flags and the environment say in place of the file.

use toml::Value;

use super::ConfigError;
use super::tree::{ConfigTree, ValueOrigin};

/// Looks up a variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What can be said by a flag or in the environment: its key, its flag, and its variables, the first one first.
const OVERRIDES: &[(&str, &str, &[&str])] = &[
    ("server.listen", "--listen", &["ATTACHE_LISTEN"]),
    (
        "server.allow_anonymous",
        "--allow-anonymous",
        &["ATTACHE_ALLOW_ANONYMOUS"],
    ),
    ("server.public_url", "--public-url", &["ATTACHE_PUBLIC_URL"]),
    ("server.tls_cert", "--tls-cert", &["ATTACHE_TLS_CERT"]),
    ("server.tls_key", "--tls-key", &["ATTACHE_TLS_KEY"]),
    (
        "server.tls_client_ca",
        "--tls-client-ca",
        &["ATTACHE_TLS_CLIENT_CA"],
    ),
    (
        "server.admin_listen",
        "--admin-listen",
        &["ATTACHE_ADMIN_LISTEN"],
    ),
    (
        "push.local_webhooks",
        "--local-webhooks",
        &["ATTACHE_LOCAL_WEBHOOKS"],
    ),
    (
        "telemetry.otlp_endpoint",
        "",
        &["OTEL_EXPORTER_OTLP_ENDPOINT"],
    ),
    (
        "store.kind",
        "--store",
        &["ATTACHE_STORE", "TASK_STORE_TYPE"],
    ),
    ("store.data_dir", "--data-dir", &["ATTACHE_DATA_DIR"]),
];

/// Keys that say yes or no.
const BOOLEAN_KEYS: &[&str] = &["server.allow_anonymous", "push.local_webhooks"];

/// What flags say.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlagValues(Vec<(&'static str, Value)>);

impl FlagValues {
    /// Adds the value of a key, if its flag was given.
    pub(crate) fn set(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        self.0.extend(value.map(|value| (key, value.into())));
    }
}

/// Puts what flags and the environment say over what the file says.
pub(super) fn apply(
    tree: &mut ConfigTree,
    environment: Environment<'_>,
    flags: &FlagValues,
) -> Result<(), ConfigError> {
    for &(key, flag, variables) in OVERRIDES {
        let variable = variables
            .iter()
            .find_map(|&name| Some((name, environment(name).filter(|value| !value.is_empty())?)));
        if let Some((name, text)) = variable {
            tree.set(key, read(key, name, text)?, ValueOrigin::Environment(name));
        }
        if let Some((_, value)) = flags.0.iter().find(|(name, _)| *name == key) {
            tree.set(key, value.clone(), ValueOrigin::Flag(flag));
        }
    }
    Ok(())
}

/// A variable is text, but for those that say yes or no.
fn read(key: &str, name: &str, text: String) -> Result<Value, ConfigError> {
    if !BOOLEAN_KEYS.contains(&key) {
        return Ok(Value::String(text));
    }
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(Value::Boolean(true)),
        "0" | "false" | "no" | "off" => Ok(Value::Boolean(false)),
        _ => Err(ConfigError::new(name, "must be true or false")),
    }
}
