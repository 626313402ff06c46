//! Values that a reload cannot change: they need a restart.

use std::collections::BTreeMap;

use serde::Serialize;
use toml::Value;

use super::{Config, section_of};

/// Keys of `[server]` that need a restart.
const SERVER_KEYS: &[&str] = &[
    "listen",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "admin_listen",
    "admin_plain",
    "admin_max_connections",
    "max_connections",
    "max_connections_per_address",
    "max_connections_per_caller",
    "reserved_connections",
    "max_streams",
    "max_streams_per_task",
    "max_streams_per_caller",
    "header_timeout",
    "max_header_bytes",
];

/// Restart-only values, by key.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RestartOnly(BTreeMap<String, Value>);

impl Config {
    /// Returns the values that need a restart.
    pub(crate) fn restart_only(&self) -> RestartOnly {
        let mut restart_only = RestartOnly::default();
        let server_section = |key: &str| SERVER_KEYS.contains(&key).then_some("server");
        restart_only.add(&self.server, server_section);
        restart_only.add(&self.server_settings, server_section);
        restart_only.add(&self.store, |_| Some("store"));
        restart_only.add(&self.cluster, |_| Some("cluster"));
        restart_only.add(&self.engine, |key| Some(section_of(key)));
        restart_only.add(&self.push, |_| Some("push"));
        restart_only.add(&self.push_settings, |_| Some("push"));
        restart_only.add(&self.egress, |_| Some("egress"));
        restart_only.add(&self.telemetry, |_| Some("telemetry"));
        restart_only.add(&self.console, |_| Some("console"));
        restart_only
    }
}

impl RestartOnly {
    /// Adds the values of a section whose key has a section name.
    fn add(&mut self, values: &impl Serialize, section: impl Fn(&str) -> Option<&'static str>) {
        // Every section serializes to a table.
        let Ok(Value::Table(values)) = Value::try_from(values) else {
            return;
        };
        let values = values
            .into_iter()
            .filter_map(|(key, value)| Some((format!("{}.{key}", section(&key)?), value)));
        self.0.extend(values);
    }

    /// Returns the keys whose values differ.
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
