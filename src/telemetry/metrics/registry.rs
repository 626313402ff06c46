//! The counts, their names and their labels.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::model::{ErrorKind, Operation, Version};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AgentLabels {
    pub(super) agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TaskLabels {
    pub(super) agent: String,
    pub(super) version: &'static str,
    pub(super) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabels {
    agent: String,
    method: String,
    version: &'static str,
    outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PushLabels {
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TokenLabels {
    pub(super) agent: String,
    pub(super) kind: &'static str,
}

type DurationFamily = Family<AgentLabels, Histogram, fn() -> Histogram>;

pub(super) struct MetricsRegistry {
    pub(super) registry: Registry,
    calls: Family<CallLabels, Counter>,
    pub(super) tasks: Family<TaskLabels, Counter>,
    pub(super) turns: Family<AgentLabels, Gauge>,
    pub(super) turn_seconds: DurationFamily,
    pub(super) queue_seconds: DurationFamily,
    pub(super) first_event_seconds: DurationFamily,
    pub(super) streams: Gauge,
    pub(super) events: Counter,
    pub(super) bytes: Counter,
    pub(super) commit_seconds: Histogram,
    pub(super) batch_events: Histogram,
    pub(super) pushes: Family<PushLabels, Counter>,
    pub(super) refusals: Counter,
    auth_failures: Family<ReasonLabels, Counter>,
    limits: Family<LimitLabels, Counter>,
    pub(super) tokens: Family<TokenLabels, Counter>,
}

impl MetricsRegistry {
    pub(super) fn new() -> Self {
        let times = || DurationFamily::new_with_constructor(seconds);
        let mut metrics = Self {
            registry: Registry::with_prefix("attache"),
            calls: Family::default(),
            tasks: Family::default(),
            turns: Family::default(),
            turn_seconds: times(),
            queue_seconds: times(),
            first_event_seconds: times(),
            streams: Gauge::default(),
            events: Counter::default(),
            bytes: Counter::default(),
            commit_seconds: seconds(),
            batch_events: Histogram::new([
                1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0,
            ]),
            pushes: Family::default(),
            refusals: Counter::default(),
            auth_failures: Family::default(),
            limits: Family::default(),
            tokens: Family::default(),
        };
        metrics.register();
        metrics
    }

    /// Every one of these is in `docs/operate.md`.
    fn register(&mut self) {
        let Self { registry, .. } = self;
        registry.register("calls", "Calls answered", self.calls.clone());
        registry.register(
            "tasks",
            "States that tasks have entered",
            self.tasks.clone(),
        );
        registry.register("turns_running", "Turns that run now", self.turns.clone());
        registry.register(
            "turn_seconds",
            "How long turns took",
            self.turn_seconds.clone(),
        );
        registry.register(
            "queue_seconds",
            "How long turns waited for leave",
            self.queue_seconds.clone(),
        );
        let first = self.first_event_seconds.clone();
        registry.register(
            "first_event_seconds",
            "From the start of a turn to its first event",
            first,
        );
        registry.register(
            "streams_open",
            "Streams that are read now",
            self.streams.clone(),
        );
        registry.register(
            "stream_events",
            "Events sent in streams",
            self.events.clone(),
        );
        registry.register("stream_bytes", "Bytes sent in streams", self.bytes.clone());
        registry.register(
            "store_commit_seconds",
            "How long commits took",
            self.commit_seconds.clone(),
        );
        registry.register(
            "store_batch_events",
            "Events in one batch",
            self.batch_events.clone(),
        );
        registry.register(
            "push_attempts",
            "Attempts to call webhooks",
            self.pushes.clone(),
        );
        registry.register(
            "egress_refusals",
            "Places that were not connected to",
            self.refusals.clone(),
        );
        registry.register(
            "auth_failures",
            "Callers who were not let in",
            self.auth_failures.clone(),
        );
        registry.register(
            "model_tokens",
            "Tokens that models read and wrote",
            self.tokens.clone(),
        );
        registry.register("limits_hit", "Calls that met a limit", self.limits.clone());
    }

    pub(super) fn record_call(
        &self,
        agent: &str,
        operation: Operation,
        version: Version,
        failed: Option<ErrorKind>,
    ) {
        let labels = CallLabels {
            agent: agent.to_owned(),
            method: format!("{operation:?}"),
            version: version.as_str(),
            outcome: failed.map_or_else(|| "ok".to_owned(), |kind| format!("{kind:?}")),
        };
        self.calls.get_or_create(&labels).inc();
    }

    pub(super) fn record_auth_failure(&self, reason: &'static str) {
        self.auth_failures
            .get_or_create(&ReasonLabels { reason })
            .inc();
    }

    pub(super) fn record_limit_hit(&self, limit: &'static str) {
        self.limits.get_or_create(&LimitLabels { limit }).inc();
    }
}

/// From half a millisecond to ten minutes: a commit, and a turn that talks to a model.
fn seconds() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0,
    ])
}

#[cfg(test)]
mod tests {
    /// Every count is in the book for operators, and nothing else is.
    #[test]
    fn every_count_is_documented() {
        let page = include_str!("../../../docs/operate.md");
        let source = include_str!("registry.rs")
            .split("#[cfg(test)]")
            .next()
            .unwrap();
        let names: Vec<&str> = source
            .split("registry.register(\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
            .collect();
        for name in &names {
            let is_there = ["", "_total"]
                .iter()
                .any(|end| page.contains(&format!("| `attache_{name}{end}` |")));
            assert!(is_there, "attache_{name} is not in docs/operate.md");
        }
        let documented = page
            .lines()
            .filter(|line| line.starts_with("| `attache_"))
            .count();
        assert_eq!(documented, names.len());
    }
}
