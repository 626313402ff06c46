//! Replacement of the metrics if the feature `metrics` is disabled: every call is a no-op.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::{ErrorKind, Event, Operation, TaskState, Version};

pub(crate) const MEDIA_TYPE: &str = "text/plain";

pub(crate) fn text() -> Option<String> {
    None
}

pub(crate) struct TurnMetrics;

impl TurnMetrics {
    pub(crate) fn record_first_event(&self, _: Instant) {}

    pub(crate) fn record_end(&self, _: &str, _: TaskState, _: Instant) {}
}

pub(crate) fn record_call(_: &str, _: Operation, _: Version, _: Option<ErrorKind>) {}

pub(crate) struct StateChanges;

pub(crate) fn state_changes(_: &[Event]) -> StateChanges {
    StateChanges
}

impl StateChanges {
    pub(crate) fn record(&self, _: &str, _: Version) {}
}

pub(crate) fn start_turn(_: &str, _: Duration) -> TurnMetrics {
    TurnMetrics
}

/// Empty: without metrics the clock is not read.
pub(crate) struct Stopwatch;

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self
    }
}

pub(crate) fn record_commit(_: usize, _: &Stopwatch) {}

pub(crate) fn record_stream_opened() {}

pub(crate) fn record_stream_closed() {}

pub(crate) fn record_stream_events(_: usize, _: usize) {}

pub(crate) fn record_replicas(_: usize) {}

pub(crate) fn record_membership(_: Duration, _: usize, _: Duration) {}

pub(crate) fn record_takeovers(_: usize) {}

pub(crate) fn record_superseded_turn() {}

pub(crate) fn record_remote_command(_: &'static str) {}

pub(crate) fn record_bus_state(_: bool) {}

pub(crate) fn record_bus_message(_: &'static str, _: &'static str) {}

pub(crate) fn record_bus_latency(_: Duration) {}

#[cfg(feature = "postgres")]
pub(crate) fn record_group(_: usize) {}

#[cfg(feature = "postgres")]
pub(crate) fn record_unknown_outcomes(_: usize) {}

pub(crate) fn record_push_attempt(_: &'static str) {}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn record_damaged_row() {}

pub(crate) fn record_egress_block() {}

pub(crate) fn record_auth_failure(_: &'static str) {}

pub(crate) fn record_limit_hit(_: &'static str) {}

pub(crate) fn record_tokens(_: &str, _: u64, _: u64) {}

pub(crate) fn record_hook(_: &str, _: &'static str, _: &'static str, _: Instant) {}
