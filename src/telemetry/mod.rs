//! Telemetry: Prometheus metrics for operators and tracing spans of requests.

#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(all(feature = "server", not(feature = "metrics")))]
#[path = "metrics_disabled.rs"]
pub(crate) mod metrics;
pub mod trace;
