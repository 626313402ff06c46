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
    /// Where traces go: the base of an OTLP endpoint over HTTP, such as `http://127.0.0.1:4318`; nowhere if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otlp_endpoint: Option<String>,
    /// What spans are called; `kaos` adds the metrics of that name.
    pub(crate) names: SpanNames,
    /// Whether traces also say what models and tools were asked and answered.
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

/// What spans are called.
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
