//! Names `kaos.*` for traces and metrics, with `telemetry.names = "kaos"`.

use std::time::Duration;

use attache::model::{TaskState, Version};
use attache::telemetry::metrics::TaskObserver;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, MeterProvider};
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

/// Span exporter that renames spans.
#[derive(Debug)]
pub(super) struct RenamingExporter<E>(pub(super) E);

impl<E: SpanExporter> SpanExporter for RenamingExporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut batch {
            if let Some(name) = name(&span.name, &span.span_kind) {
                span.name = name.into();
            }
        }
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn name(ours: &str, kind: &SpanKind) -> Option<&'static str> {
    match (ours, kind) {
        ("a2a.SendMessage" | "a2a.SendStreamingMessage", SpanKind::Server) => {
            Some("kaos.task.submit")
        }
        ("a2a.turn", _) => Some("kaos.task.execute"),
        ("a2a.CancelTask", SpanKind::Server) => Some("kaos.task.cancel"),
        _ => None,
    }
}

/// Metrics with `kaos.*` names.
pub(super) struct Meters {
    tasks: Counter<u64>,
    duration: Histogram<f64>,
}

impl Meters {
    pub(super) fn new(provider: &SdkMeterProvider) -> Self {
        let meter = provider.meter("attache");
        Self {
            tasks: meter
                .u64_counter("kaos.tasks")
                .with_description("States that tasks have entered")
                .build(),
            duration: meter
                .f64_histogram("kaos.task.duration")
                .with_description("How long turns took")
                .with_unit("s")
                .build(),
        }
    }
}

impl TaskObserver for Meters {
    fn state_entered(&self, agent: &str, _: Version, state: TaskState) {
        self.tasks.add(
            1,
            &[
                KeyValue::new("state", word(state)),
                KeyValue::new("agent", agent.to_owned()),
            ],
        );
    }

    fn turn_ended(&self, agent: &str, state: TaskState, took: Duration) {
        let labels = [
            KeyValue::new("state", word(state)),
            KeyValue::new("agent", agent.to_owned()),
        ];
        self.duration.record(took.as_secs_f64(), &labels);
    }
}

/// The state as in versions before 1.0, such as `input-required`.
fn word(state: TaskState) -> String {
    state
        .as_str()
        .trim_start_matches("TASK_STATE_")
        .to_ascii_lowercase()
        .replace('_', "-")
}
