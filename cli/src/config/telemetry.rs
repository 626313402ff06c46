//! What the operator is told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is logged and counted, and who is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetrySection {
    /// How log lines look.
    pub(crate) log: LogFormat,
    /// Whether anything is counted for `/metrics`.
    pub(crate) metrics: bool,
}

impl Default for TelemetrySection {
    fn default() -> Self {
        Self { log: LogFormat::Auto, metrics: true }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people where stderr is a terminal, else in JSON.
    #[default]
    Auto,
    /// For people.
    Human,
    /// One JSON object each.
    Json,
}
