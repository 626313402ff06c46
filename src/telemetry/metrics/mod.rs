//! What is counted, for whoever watches a server. Any room may say that something happened; nobody reads it but
//! the operator.
//!
//! Nothing is counted until [`enable`] is called: before that, and without the feature `metrics`, what happens costs
//! nothing. The counts are those of the process. Labels are names that the operator or this library has given, never
//! what a caller says, so that there is an end to them.

mod registry;

use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use tokio::time::Instant;

use crate::model::{ErrorKind, Event, Operation, TaskState, Version};
use registry::{AgentLabels, MetricsRegistry, PushLabels, TaskLabels, TokenLabels};

static REGISTRY: OnceLock<MetricsRegistry> = OnceLock::new();
static OBSERVER: OnceLock<Box<dyn TaskObserver>> = OnceLock::new();

/// Somebody else who counts tasks.
pub trait TaskObserver: Send + Sync + 'static {
    /// A task has entered a state, and that is durable.
    fn state_entered(&self, agent: &str, version: Version, state: TaskState);

    /// A turn is over, and its task in this state.
    fn turn_ended(&self, agent: &str, state: TaskState, took: Duration);
}

/// Tells somebody else too, from now on. The first one who asks is told, and nobody after that.
pub fn set_observer(observer: impl TaskObserver) {
    let _ = OBSERVER.set(Box::new(observer));
}

/// Begins to count.
pub fn enable() {
    REGISTRY.get_or_init(MetricsRegistry::new);
}

/// All counts in the text form of Prometheus; `None` as long as nothing is counted.
#[must_use]
pub fn text() -> Option<String> {
    let mut out = String::new();
    encode(&mut out, &REGISTRY.get()?.registry).ok()?;
    Some(out)
}

/// The media type of [`text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn record(write: impl FnOnce(&MetricsRegistry)) {
    if let Some(metrics) = REGISTRY.get() {
        write(metrics);
    }
}

/// A call was answered.
pub(crate) fn record_call(
    agent: &str,
    operation: Operation,
    version: Version,
    failed: Option<ErrorKind>,
) {
    record(|metrics| metrics.record_call(agent, operation, version, failed));
}

/// The states that a task enters with a batch; counted when that is durable.
pub(crate) struct StateChanges(Vec<TaskState>);

/// The states that a task enters with these events.
pub(crate) fn state_changes(events: &[Event]) -> StateChanges {
    let entered = |event: &Event| match event {
        Event::Created { .. } => Some(TaskState::Submitted),
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    };
    let counts = REGISTRY.get().is_some() || OBSERVER.get().is_some();
    StateChanges(if counts {
        events.iter().filter_map(entered).collect()
    } else {
        Vec::new()
    })
}

impl StateChanges {
    pub(crate) fn record(&self, agent: &str, version: Version) {
        if let Some(observer) = OBSERVER.get() {
            self.0
                .iter()
                .for_each(|state| observer.state_entered(agent, version, *state));
        }
        record(|metrics| {
            for state in &self.0 {
                let labels = TaskLabels {
                    agent: agent.to_owned(),
                    version: version.as_str(),
                    state: state.as_str(),
                };
                metrics.tasks.get_or_create(&labels).inc();
            }
        });
    }
}

/// A turn of an agent, as long as it lasts.
pub(crate) struct TurnMetrics(Option<AgentLabels>);

/// A turn begins that waited for so long.
pub(crate) fn start_turn(agent: &str, waited: Duration) -> TurnMetrics {
    let labels = REGISTRY.get().map(|metrics| {
        let labels = AgentLabels {
            agent: agent.to_owned(),
        };
        metrics
            .queue_seconds
            .get_or_create(&labels)
            .observe(waited.as_secs_f64());
        metrics.turns.get_or_create(&labels).inc();
        labels
    });
    TurnMetrics(labels)
}

impl TurnMetrics {
    /// The agent, which began then, said the first thing.
    pub(crate) fn record_first_event(&self, begun: Instant) {
        self.record(|metrics, labels| {
            metrics
                .first_event_seconds
                .get_or_create(labels)
                .observe(begun.elapsed().as_secs_f64());
        });
    }

    /// The turn that began then is over, and the task in this state.
    pub(crate) fn record_end(&self, agent: &str, state: TaskState, begun: Instant) {
        self.record(|metrics, labels| {
            metrics
                .turn_seconds
                .get_or_create(labels)
                .observe(begun.elapsed().as_secs_f64())
        });
        if let Some(observer) = OBSERVER.get() {
            observer.turn_ended(agent, state, begun.elapsed());
        }
    }

    fn record(&self, write: impl FnOnce(&MetricsRegistry, &AgentLabels)) {
        if let (Some(metrics), Some(labels)) = (REGISTRY.get(), &self.0) {
            write(metrics, labels);
        }
    }
}

impl Drop for TurnMetrics {
    fn drop(&mut self) {
        self.record(|metrics, labels| {
            metrics.turns.get_or_create(labels).dec();
        });
    }
}

/// When something began that is counted by how long it takes.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

/// A batch of so many events is durable.
pub(crate) fn record_commit(events: usize, begun: &Stopwatch) {
    record(|metrics| {
        metrics
            .commit_seconds
            .observe(begun.0.elapsed().as_secs_f64());
        metrics.batch_events.observe(events as f64);
    });
}

/// A stream is read.
pub(crate) fn record_stream_opened() {
    record(|metrics| {
        metrics.streams.inc();
    });
}

/// A stream is read no more.
pub(crate) fn record_stream_closed() {
    record(|metrics| {
        metrics.streams.dec();
    });
}

/// So many events went out, in so many bytes.
pub(crate) fn record_stream_events(events: usize, bytes: usize) {
    record(|metrics| {
        metrics.events.inc_by(events as u64);
        metrics.bytes.inc_by(bytes as u64);
    });
}

/// What became of one attempt to call a webhook: `delivered`, `retry` or `failed`.
pub(crate) fn record_push_attempt(outcome: &'static str) {
    record(|metrics| {
        metrics.pushes.get_or_create(&PushLabels { outcome }).inc();
    });
}

/// Somebody named a place that we do not connect to.
pub(crate) fn record_egress_block() {
    record(|metrics| {
        metrics.refusals.inc();
    });
}

/// Somebody was not let in: `missing`, `invalid` or `forbidden` credentials, `locked_out`, or a `delegation` whose word is not good.
pub(crate) fn record_auth_failure(reason: &'static str) {
    record(|metrics| metrics.record_auth_failure(reason));
}

/// A model has read and written so many tokens for an agent.
pub(crate) fn record_tokens(agent: &str, input: u64, output: u64) {
    record(|metrics| {
        for (kind, count) in [("input", input), ("output", output)] {
            metrics
                .tokens
                .get_or_create(&TokenLabels {
                    agent: agent.to_owned(),
                    kind,
                })
                .inc_by(count);
        }
    });
}

/// Somebody met a limit.
pub(crate) fn record_limit_hit(name: &'static str) {
    record(|metrics| metrics.record_limit_hit(name));
}
