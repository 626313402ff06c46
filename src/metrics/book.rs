//! The counts, their names and their labels.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::model::{ErrorKind, Operation, Version};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct By {
    pub(super) agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Told {
    pub(super) agent: String,
    pub(super) version: &'static str,
    pub(super) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Called {
    agent: String,
    method: String,
    version: &'static str,
    outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Pushed {
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Limit {
    limit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Tokens {
    pub(super) agent: String,
    pub(super) kind: &'static str,
}

type Times = Family<By, Histogram, fn() -> Histogram>;

pub(super) struct Book {
    pub(super) registry: Registry,
    calls: Family<Called, Counter>,
    pub(super) tasks: Family<Told, Counter>,
    pub(super) turns: Family<By, Gauge>,
    pub(super) turn_seconds: Times,
    pub(super) queue_seconds: Times,
    pub(super) first_event_seconds: Times,
    pub(super) streams: Gauge,
    pub(super) events: Counter,
    pub(super) bytes: Counter,
    pub(super) commit_seconds: Histogram,
    pub(super) batch_events: Histogram,
    pub(super) pushes: Family<Pushed, Counter>,
    pub(super) refusals: Counter,
    auth_failures: Family<Why, Counter>,
    limits: Family<Limit, Counter>,
    pub(super) tokens: Family<Tokens, Counter>,
}

impl Book {
    pub(super) fn new() -> Self {
        let times = || Times::new_with_constructor(seconds);
        let mut book = Self {
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
        book.register();
        book
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

    pub(super) fn call(
        &self,
        agent: &str,
        operation: Operation,
        version: Version,
        failed: Option<ErrorKind>,
    ) {
        let called = Called {
            agent: agent.to_owned(),
            method: format!("{operation:?}"),
            version: version.as_str(),
            outcome: failed.map_or_else(|| "ok".to_owned(), |kind| format!("{kind:?}")),
        };
        self.calls.get_or_create(&called).inc();
    }

    pub(super) fn auth_failed(&self, why: &'static str) {
        self.auth_failures.get_or_create(&Why { why }).inc();
    }

    pub(super) fn limit(&self, limit: &'static str) {
        self.limits.get_or_create(&Limit { limit }).inc();
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
        let page = include_str!("../../docs/operate.md");
        let source = include_str!("book.rs")
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
