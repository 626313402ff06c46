//! Telemetry for operators: Prometheus metrics and tracing spans.
//!
//! Every module may record; nothing in the library reads it back. Both cost almost nothing while disabled.

#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(all(feature = "server", not(feature = "metrics")))]
#[path = "metrics_disabled.rs"]
pub(crate) mod metrics;
pub mod trace;
