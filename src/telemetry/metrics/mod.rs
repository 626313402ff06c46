//! Prometheus metrics of the process.
//!
//! Recording starts with [`enable`]; before, and without the feature `metrics`, every call is a no-op. Label values come
//! from the operator or from this library, never from a caller, so that their number is bounded.

mod registry;

use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use tokio::time::Instant;

use crate::model::{ErrorKind, Event, Operation, TaskState, Version};
use registry::{
    AgentLabels, BusLabels, HookLabels, HookNameLabels, KindLabels, MetricsRegistry, PushLabels,
    TaskLabels, TokenLabels,
};

static REGISTRY: OnceLock<MetricsRegistry> = OnceLock::new();
static OBSERVER: OnceLock<Box<dyn TaskObserver>> = OnceLock::new();

/// Observer of task states and turns, for an additional metrics exporter.
pub trait TaskObserver: Send + Sync + 'static {
    /// A task has entered a state, and the change is durable.
    fn state_entered(&self, agent: &str, version: Version, state: TaskState);

    /// A turn has ended and left its task in this state.
    fn turn_ended(&self, agent: &str, state: TaskState, took: Duration);
}

/// Sets the observer. Only the first call has an effect.
pub fn set_observer(observer: impl TaskObserver) {
    let _ = OBSERVER.set(Box::new(observer));
}

/// Starts recording.
pub fn enable() {
    REGISTRY.get_or_init(MetricsRegistry::new);
}

/// Returns all metrics in the OpenMetrics text format; `None` while recording is disabled.
#[must_use]
pub fn text() -> Option<String> {
    let mut out = String::new();
    encode(&mut out, &REGISTRY.get()?.registry).ok()?;
    Some(out)
}

/// Media type of [`text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Runs `write` on the registry if recording is enabled.
fn record(write: impl FnOnce(&MetricsRegistry)) {
    if let Some(metrics) = REGISTRY.get() {
        write(metrics);
    }
}

/// Counts a completed call.
pub(crate) fn record_call(
    agent: &str,
    operation: Operation,
    version: Version,
    failed: Option<ErrorKind>,
) {
    record(|metrics| metrics.record_call(agent, operation, version, failed));
}

/// States that a task enters with a batch of events, counted once the batch is durable.
pub(crate) struct StateChanges(Vec<TaskState>);

/// Returns the states that a task enters with these events; empty while nothing records them.
pub(crate) fn state_changes(events: &[Event]) -> StateChanges {
    let entered = |event: &Event| match event {
        Event::Created { .. } => Some(TaskState::Submitted),
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    };
    let is_recorded = REGISTRY.get().is_some() || OBSERVER.get().is_some();
    StateChanges(if is_recorded {
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

/// Metrics of a running turn. Dropping it decrements the gauge of running turns.
pub(crate) struct TurnMetrics(Option<AgentLabels>);

/// Records the start of a turn and the time it waited in the queue.
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
    /// Records the time from the start of the turn to its first event.
    pub(crate) fn record_first_event(&self, started: Instant) {
        self.record(|metrics, labels| {
            metrics
                .first_event_seconds
                .get_or_create(labels)
                .observe(started.elapsed().as_secs_f64());
        });
    }

    /// Records the duration of the turn and the resulting state.
    pub(crate) fn record_end(&self, agent: &str, state: TaskState, started: Instant) {
        self.record(|metrics, labels| {
            metrics
                .turn_seconds
                .get_or_create(labels)
                .observe(started.elapsed().as_secs_f64())
        });
        if let Some(observer) = OBSERVER.get() {
            observer.turn_ended(agent, state, started.elapsed());
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

/// Start time of a measured operation.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

/// Records a durable batch.
pub(crate) fn record_commit(events: usize, started: &Stopwatch) {
    record(|metrics| {
        metrics
            .commit_seconds
            .observe(started.0.elapsed().as_secs_f64());
        metrics.batch_events.observe(events as f64);
    });
}

/// Increments the gauge of open streams.
pub(crate) fn record_stream_opened() {
    record(|metrics| {
        metrics.streams.inc();
    });
}

/// Decrements the gauge of open streams.
pub(crate) fn record_stream_closed() {
    record(|metrics| {
        metrics.streams.dec();
    });
}

/// Counts events and bytes sent in streams.
pub(crate) fn record_stream_events(events: usize, bytes: usize) {
    record(|metrics| {
        metrics.events.inc_by(events as u64);
        metrics.bytes.inc_by(bytes as u64);
    });
}

/// Counts an attempt to call a webhook by its outcome; see `docs/operate.md` for the values.
pub(crate) fn record_push_attempt(outcome: &'static str) {
    record(|metrics| {
        metrics.pushes.get_or_create(&PushLabels { outcome }).inc();
    });
}

/// Counts a read of a damaged row.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn record_damaged_row() {
    record(|metrics| {
        metrics.damaged_rows.inc();
    });
}

/// Counts a target that the SSRF guard blocked.
pub(crate) fn record_egress_block() {
    record(|metrics| {
        metrics.refusals.inc();
    });
}

/// Counts a rejected caller by reason: `missing`, `invalid` or `forbidden` credentials, `locked_out`, or `delegation` for an
/// untrusted delegation claim.
pub(crate) fn record_auth_failure(reason: &'static str) {
    record(|metrics| metrics.record_auth_failure(reason));
}

/// Counts the tokens that a model has read and written for an agent.
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

/// Records the number of live replicas.
pub(crate) fn record_replicas(replicas: usize) {
    record(|metrics| {
        metrics.cluster.replicas.set(gauge_value(replicas));
    });
}

/// Records the remaining lease, the number of held tasks and the clock skew after a heartbeat.
pub(crate) fn record_membership(lease: Duration, held: usize, skew: Duration) {
    record(|metrics| {
        metrics.cluster.lease_seconds.set(lease.as_secs_f64());
        metrics.cluster.tasks_held.set(gauge_value(held));
        metrics.cluster.clock_skew_seconds.set(skew.as_secs_f64());
    });
}

fn gauge_value(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Counts tasks that were taken over.
pub(crate) fn record_takeovers(tasks: usize) {
    record(|metrics| {
        metrics.cluster.takeovers.inc_by(tasks as u64);
    });
}

/// Counts a runner that stopped because another replica runs its task.
pub(crate) fn record_superseded_turn() {
    record(|metrics| {
        metrics.cluster.superseded_turns.inc();
    });
}

/// Counts a command to a task of another replica: `message` or `cancel`.
pub(crate) fn record_remote_command(kind: &'static str) {
    record(|metrics| {
        let commands = &metrics.cluster.remote_commands;
        commands.get_or_create(&KindLabels { kind }).inc();
    });
}

/// Records whether messages reach the other replicas.
pub(crate) fn record_bus_state(is_up: bool) {
    record(|metrics| {
        metrics.cluster.bus_up.set(i64::from(is_up));
    });
}

/// Counts a message between replicas; the direction is `sent` or `received`.
pub(crate) fn record_bus_message(direction: &'static str, kind: &'static str) {
    record(|metrics| {
        let messages = &metrics.cluster.bus_messages;
        messages.get_or_create(&BusLabels { direction, kind }).inc();
    });
}

/// Records the time from sending a message to its receipt.
pub(crate) fn record_bus_latency(latency: Duration) {
    record(|metrics| metrics.cluster.bus_seconds.observe(latency.as_secs_f64()));
}

/// Records the number of commands of a group commit.
#[cfg(feature = "postgres")]
pub(crate) fn record_group(commands: usize) {
    // A group has at most 256 commands.
    record(|metrics| metrics.cluster.group_commands.observe(commands as f64));
}

/// Counts commands whose outcome is unknown.
#[cfg(feature = "postgres")]
pub(crate) fn record_unknown_outcomes(commands: usize) {
    record(|metrics| {
        metrics.cluster.unknown_outcomes.inc_by(commands as u64);
    });
}

/// Counts a call that exceeded a limit, by the name of its setting.
pub(crate) fn record_limit_hit(name: &'static str) {
    record(|metrics| metrics.record_limit_hit(name));
}

/// Counts a run of a hook by its outcome, and records its duration.
pub(crate) fn record_hook(
    hook: &str,
    phase: &'static str,
    outcome: &'static str,
    started: Instant,
) {
    record(|metrics| {
        let labels = HookLabels {
            hook: hook.to_owned(),
            phase,
            outcome,
        };
        metrics.hook_runs.get_or_create(&labels).inc();
        let name = HookNameLabels {
            hook: hook.to_owned(),
        };
        let seconds = started.elapsed().as_secs_f64();
        metrics.hook_seconds.get_or_create(&name).observe(seconds);
    });
}
