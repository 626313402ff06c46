//! `[telemetry]`: log, metrics and traces.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Log, metrics and traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetrySection {
    /// Format of the log.
    pub(crate) log: LogFormat,
    /// Whether metrics are collected for `/metrics`.
    pub(crate) metrics: bool,
    /// Base URL of an OTLP collector over HTTP, such as `http://127.0.0.1:4318`. Default: no traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Names of spans; `kaos` also exports metrics with those names.
    pub(crate) names: SpanNames,
    /// Whether traces contain the requests and responses of models and tools.
    pub(crate) content: bool,
}

impl Default for TelemetrySection {
    fn default() -> Self {
        Self {
            log: LogFormat::Auto,
            metrics: true,
            otlp_endpoint: None,
            names: SpanNames::A2a,
            content: false,
        }
    }
}

/// Names of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SpanNames {
    /// `a2a.SendMessage`, `a2a.turn` and so on.
    #[default]
    A2a,
    /// `kaos.task.submit`, `kaos.task.execute` and `kaos.task.cancel`, and the metrics `kaos.tasks` and
    /// `kaos.task.duration`.
    Kaos,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// Text if stderr is a terminal, else JSON.
    #[default]
    Auto,
    /// Text.
    Human,
    /// A JSON object per line.
    Json,
}
