//! Registry of all metrics with their names and labels. `docs/reference/metrics.md` is generated from it.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::model::{ErrorKind, Operation, Version};

/// Label of metrics by agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AgentLabels {
    pub(super) agent: String,
}

/// Labels of task state changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TaskLabels {
    pub(super) agent: String,
    pub(super) version: &'static str,
    pub(super) state: &'static str,
}

/// Labels of completed calls.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CallLabels {
    agent: String,
    method: String,
    version: &'static str,
    outcome: String,
}

/// Label of webhook attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PushLabels {
    pub(super) outcome: &'static str,
}

/// Label of rejected callers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Label of exceeded limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

/// Labels of model tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TokenLabels {
    pub(super) agent: String,
    pub(super) kind: &'static str,
}

/// Labels of hook runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HookLabels {
    pub(super) hook: String,
    pub(super) phase: &'static str,
    pub(super) outcome: &'static str,
}

/// Label of metrics by hook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HookNameLabels {
    pub(super) hook: String,
}

/// Label of commands to tasks of other replicas.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct KindLabels {
    pub(super) kind: &'static str,
}

/// Labels of messages between replicas.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BusLabels {
    pub(super) direction: &'static str,
    pub(super) kind: &'static str,
}

/// Gauge of a time in seconds.
type SecondsGauge = Gauge<f64, AtomicU64>;

/// Duration histograms by agent.
type DurationFamily = Family<AgentLabels, Histogram, fn() -> Histogram>;

/// Prometheus registry and its metrics.
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
    pub(super) damaged_rows: Counter,
    pub(super) refusals: Counter,
    auth_failures: Family<ReasonLabels, Counter>,
    limits: Family<LimitLabels, Counter>,
    pub(super) tokens: Family<TokenLabels, Counter>,
    pub(super) hook_runs: Family<HookLabels, Counter>,
    pub(super) hook_seconds: Family<HookNameLabels, Histogram, fn() -> Histogram>,
    pub(super) cluster: ClusterMetrics,
}

/// Metrics of a replica of a shared store.
pub(super) struct ClusterMetrics {
    pub(super) replicas: Gauge,
    pub(super) lease_seconds: SecondsGauge,
    pub(super) tasks_held: Gauge,
    pub(super) takeovers: Counter,
    pub(super) superseded_turns: Counter,
    pub(super) remote_commands: Family<KindLabels, Counter>,
    pub(super) bus_up: Gauge,
    pub(super) bus_messages: Family<BusLabels, Counter>,
    pub(super) bus_seconds: Histogram,
    pub(super) group_commands: Histogram,
    pub(super) unknown_outcomes: Counter,
    pub(super) clock_skew_seconds: SecondsGauge,
}

impl ClusterMetrics {
    fn new() -> Self {
        Self {
            replicas: Gauge::default(),
            lease_seconds: SecondsGauge::default(),
            tasks_held: Gauge::default(),
            takeovers: Counter::default(),
            superseded_turns: Counter::default(),
            remote_commands: Family::default(),
            bus_up: Gauge::default(),
            bus_messages: Family::default(),
            bus_seconds: seconds(),
            group_commands: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
            unknown_outcomes: Counter::default(),
            clock_skew_seconds: SecondsGauge::default(),
        }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "replicas",
            "Live replicas of the shared store, as of the last heartbeat",
            self.replicas.clone(),
        );
        registry.register(
            "lease_seconds",
            "Remaining lease of this replica after its last heartbeat; 0 while the store does not answer",
            self.lease_seconds.clone(),
        );
        registry.register(
            "tasks_held",
            "Tasks with a runner on this replica, as of the last heartbeat",
            self.tasks_held.clone(),
        );
        registry.register(
            "takeovers",
            "Tasks taken over from other replicas",
            self.takeovers.clone(),
        );
        registry.register(
            "superseded_turns",
            "Runners stopped because another replica runs the task",
            self.superseded_turns.clone(),
        );
        registry.register(
            "remote_commands",
            "Commands to tasks of other replicas; kind is message or cancel",
            self.remote_commands.clone(),
        );
        registry.register(
            "bus_up",
            "1 if messages reach the other replicas, 0 while logs are polled",
            self.bus_up.clone(),
        );
        registry.register(
            "bus_messages",
            "Messages between replicas; kind is announce, broadcast, interest or departure",
            self.bus_messages.clone(),
        );
        registry.register(
            "bus_seconds",
            "Time from sending a message on another replica to its receipt",
            self.bus_seconds.clone(),
        );
        registry.register(
            "store_group_commands",
            "Commands per group commit of the PostgreSQL store",
            self.group_commands.clone(),
        );
        registry.register(
            "store_unknown_outcomes",
            "Commands whose connection to PostgreSQL broke before the answer",
            self.unknown_outcomes.clone(),
        );
        registry.register(
            "clock_skew_seconds",
            "Difference between the clock of this machine and that of the shared store",
            self.clock_skew_seconds.clone(),
        );
    }
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
            damaged_rows: Counter::default(),
            refusals: Counter::default(),
            auth_failures: Family::default(),
            limits: Family::default(),
            tokens: Family::default(),
            hook_runs: Family::default(),
            hook_seconds: Family::new_with_constructor(seconds),
            cluster: ClusterMetrics::new(),
        };
        metrics.register();
        metrics
    }

    /// Registers every metric. The texts are the descriptions in `docs/reference/metrics.md`.
    fn register(&mut self) {
        let Self { registry, .. } = self;
        registry.register(
            "calls",
            "Admitted calls; outcome is ok or the error kind",
            self.calls.clone(),
        );
        registry.register(
            "tasks",
            "Task state changes, counted when they are durable",
            self.tasks.clone(),
        );
        registry.register("turns_running", "Running turns", self.turns.clone());
        registry.register(
            "turn_seconds",
            "Duration of turns",
            self.turn_seconds.clone(),
        );
        registry.register(
            "queue_seconds",
            "Time that turns waited for a permit",
            self.queue_seconds.clone(),
        );
        let first = self.first_event_seconds.clone();
        registry.register(
            "first_event_seconds",
            "Time from the start of a turn to the first event of its agent",
            first,
        );
        registry.register("streams_open", "Open streams", self.streams.clone());
        registry.register(
            "stream_events",
            "Events sent in streams",
            self.events.clone(),
        );
        registry.register("stream_bytes", "Bytes sent in streams", self.bytes.clone());
        registry.register(
            "store_commit_seconds",
            "Time until a batch of events was durable",
            self.commit_seconds.clone(),
        );
        registry.register(
            "store_batch_events",
            "Events per batch",
            self.batch_events.clone(),
        );
        registry.register(
            "push_attempts",
            "Webhook delivery attempts; outcome is delivered, retry, failed, postponed by an exhausted byte budget, or superseded by another replica",
            self.pushes.clone(),
        );
        registry.register(
            "store_damaged_rows",
            "Reads of a row whose checksum is wrong; attache db check names the tasks",
            self.damaged_rows.clone(),
        );
        registry.register(
            "egress_refusals",
            "Targets that the SSRF guard blocked",
            self.refusals.clone(),
        );
        registry.register(
            "auth_failures",
            "Rejected callers; reason is missing, invalid or forbidden (credential), locked_out or delegation",
            self.auth_failures.clone(),
        );
        registry.register(
            "model_tokens",
            "Tokens that models read (input) and wrote (output), if the model reports them",
            self.tokens.clone(),
        );
        registry.register(
            "hook_runs",
            "Runs of server hooks; outcome is allowed, denied, failed or timed_out",
            self.hook_runs.clone(),
        );
        registry.register(
            "hook_seconds",
            "Duration of server hooks",
            self.hook_seconds.clone(),
        );
        registry.register(
            "limits_hit",
            "Calls that exceeded a limit, by the name of its setting",
            self.limits.clone(),
        );
        self.cluster.register(&mut self.registry);
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

/// Returns a histogram with buckets from 0.5 ms (a commit) to 10 min (a turn that calls a model).
fn seconds() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0,
    ])
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    /// Adds a sample to each family: families without samples have no labels in the encoded text.
    fn registry_with_samples() -> Registry {
        let metrics = MetricsRegistry::new();
        metrics.record_call("a", Operation::GetTask, Version::V1, None);
        metrics.record_auth_failure("missing");
        metrics.record_limit_hit("burst");
        let agent = AgentLabels {
            agent: String::new(),
        };
        drop(metrics.turns.get_or_create(&agent));
        drop(metrics.turn_seconds.get_or_create(&agent));
        drop(metrics.queue_seconds.get_or_create(&agent));
        drop(metrics.first_event_seconds.get_or_create(&agent));
        drop(metrics.tasks.get_or_create(&TaskLabels {
            agent: String::new(),
            version: "",
            state: "",
        }));
        drop(metrics.pushes.get_or_create(&PushLabels { outcome: "" }));
        drop(metrics.tokens.get_or_create(&TokenLabels {
            agent: String::new(),
            kind: "",
        }));
        drop(metrics.hook_runs.get_or_create(&HookLabels {
            hook: String::new(),
            phase: "",
            outcome: "",
        }));
        let kind = "";
        let cluster = &metrics.cluster;
        drop(cluster.remote_commands.get_or_create(&KindLabels { kind }));
        let direction = "";
        drop(
            cluster
                .bus_messages
                .get_or_create(&BusLabels { direction, kind }),
        );
        drop(metrics.hook_seconds.get_or_create(&HookNameLabels {
            hook: String::new(),
        }));
        metrics.registry
    }

    /// Returns the label names of a sample line, without the bucket bound of histograms.
    fn label_names(sample: &str) -> Vec<&str> {
        let Some((_, labels)) = sample.split_once('{') else {
            return Vec::new();
        };
        let names = labels
            .split("\",")
            .filter_map(|label| Some(label.split_once('=')?.0));
        names.filter(|name| *name != "le").collect()
    }

    fn metrics_page() -> String {
        let mut text = String::new();
        encode(&mut text, &registry_with_samples()).unwrap();
        let mut page = "# Metrics\n\nAll metrics of `GET /metrics`, an OpenMetrics 1.0 text. [Operating a server](../operate.md#metrics) describes the endpoint.\n\
            This page is generated from the registry of the program.\n\n\
            | name | kind | labels | description |\n| --- | --- | --- | --- |\n"
            .to_owned();
        for family in text.split("# HELP ").skip(1) {
            let mut lines = family.lines();
            let (name, description) = lines.next().unwrap().split_once(' ').unwrap();
            let kind = lines.next().unwrap().rsplit(' ').next().unwrap();
            let sample = lines.next().filter(|line| line.starts_with(name));
            let sample = sample.unwrap_or_else(|| panic!("no sample of {name} in this test"));
            let labels = label_names(sample).into_iter();
            let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
            let ending = if kind == "counter" { "_total" } else { "" };
            page += &format!(
                "| `{name}{ending}` | {kind} | {} | {} |\n",
                labels.join(", "),
                description.trim_end_matches('.')
            );
        }
        page + "\nLabel values are configured agent names, protocol versions and constants of the program. They never contain caller input.\n"
    }

    /// `UPDATE_DOCS=1 cargo test -p attache --features metrics --lib page_is_current` writes the page.
    #[test]
    fn the_metrics_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/metrics.md");
        let expected = metrics_page();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, expected).unwrap();
            return;
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
    }
}
