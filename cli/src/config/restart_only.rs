//! What a process has as long as it runs: a changed value of these waits for a restart.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Value;

use super::{Config, section_of};

/// Keys of `[server]` that a running server does not take up.
const SERVER_KEYS: &[&str] = &[
    "listen",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "admin_listen",
    "admin_plain",
    "max_connections",
    "max_streams",
    "max_streams_per_task",
    "max_streams_per_caller",
    "header_timeout",
    "max_header_bytes",
];

/// Values that stay, by their keys.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RestartOnly(BTreeMap<String, Value>);

impl Config {
    /// What of it a process has as long as it runs.
    pub(crate) fn restart_only(&self) -> RestartOnly {
        let mut fixed = RestartOnly::default();
        let of_server = |key: &str| SERVER_KEYS.contains(&key).then_some("server");
        fixed.add(&self.server, of_server);
        fixed.add(&self.server_settings, of_server);
        fixed.add(&self.store, |_| Some("store"));
        fixed.add(&self.engine, |key| Some(section_of(key)));
        fixed.add(&self.push, |_| Some("push"));
        fixed.add(&self.push_settings, |_| Some("push"));
        fixed.add(&self.egress, |_| Some("egress"));
        fixed.add(&self.telemetry, |_| Some("telemetry"));
        fixed
    }
}

impl RestartOnly {
    /// Adds those of some values that have a home.
    fn add(&mut self, values: &impl Serialize, home: impl Fn(&str) -> Option<&'static str>) {
        // Every section is a table: it is printed as one.
        let Ok(Value::Table(values)) = Value::try_from(values) else {
            return;
        };
        let homed = values
            .into_iter()
            .filter_map(|(key, value)| Some((format!("{}.{key}", home(&key)?), value)));
        self.0.extend(homed);
    }

    /// The keys of what another has otherwise.
    pub(crate) fn changed_keys(&self, other: &Self) -> Vec<String> {
        let keys = self
            .0
            .keys()
            .chain(other.0.keys().filter(|key| !self.0.contains_key(*key)));
        keys.filter(|key| self.0.get(*key) != other.0.get(*key))
            .cloned()
            .collect()
    }
}
