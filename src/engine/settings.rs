//! Settings of the engine: limits, timeouts, policies. Every setting has a default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::units::{ByteSize, HumanDuration, HumanDurationOrNever, OptionalHumanDuration};
use crate::store::Store;

const DAY: Duration = Duration::from_secs(60 * 60 * 24);

/// Limits, timeouts and policies of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settings {
    /// Maximum number of concurrent turns.
    pub max_turns: usize,
    /// Maximum number of concurrent turns of one caller. `None`: half of `max_turns`, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns_per_caller: Option<usize>,
    /// Maximum number of tasks that wait for a turn, in the state `submitted`. Further ones are refused as unavailable.
    pub max_waiting_turns: usize,
    /// Maximum number of messages and cancels that wait for one task. Further ones are refused as unavailable.
    pub max_waiting_messages: usize,
    /// Maximum number of events in the queue between an agent and its log. A full queue blocks the agent.
    pub max_queued_events: usize,
    /// Maximum number of log entries of a running task that stay in memory for its subscribers. Older entries are read
    /// from the store.
    pub max_tail_entries: usize,
    /// Maximum size of the log entries of a running task that stay in memory for its subscribers, in bytes.
    pub max_tail_bytes: usize,
    /// Maximum size of a task, in bytes of its JSON. A task that would exceed it fails with the reason `too-large`; a
    /// message that would exceed it is refused.
    pub max_task_bytes: usize,
    /// Size of the LRU cache of tasks that are not running, in bytes. Unchanged tasks are served from it without
    /// reading the store.
    #[serde(with = "ByteSize")]
    pub task_cache_bytes: usize,
    /// How long an agent that awaits cancellation may take to finish after a cancel.
    #[serde(with = "HumanDuration")]
    pub cancel_grace: Duration,
    /// How long callers and subscribers wait for the store before the call fails as unavailable. A write that has not
    /// started by then is dropped. A started write may still be applied: retry with an idempotency key to find out.
    /// The limits of a turn apply while the store hangs.
    #[serde(with = "HumanDuration")]
    pub store_timeout: Duration,
    /// Maximum duration of a turn.
    #[serde(with = "HumanDurationOrNever")]
    pub max_turn_time: Option<Duration>,
    /// Maximum time between two events of an agent within a turn.
    #[serde(with = "HumanDurationOrNever")]
    pub max_silence: Option<Duration>,
    /// Policy for tasks whose turn was interrupted by a restart.
    pub on_restart: RestartPolicy,
    /// Policy for `input-required` and `auth-required` tasks that are not answered.
    pub on_waiting: UnansweredPolicy,
    /// Maximum number of ended tasks; the oldest are deleted first. `None`: 2,000 in memory, unlimited on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u64>,
    /// How long ended tasks are retained. `None`: unlimited in memory, 30 days on disk.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_age: Option<Duration>,
    /// Whether the message id is an idempotency key. A repeated message of the same caller is answered with the task
    /// it created or continued; with different content it is refused. An `Idempotency-Key` header takes precedence.
    pub idempotent_message_ids: bool,
    /// How long an idempotency key is remembered. A later message with the key counts as a new one.
    #[serde(with = "HumanDurationOrNever")]
    pub idempotency_max_age: Option<Duration>,
    /// How long a task may be `input-required` or `auth-required`, whatever `on_waiting` says. Then it fails with the
    /// reason `expired`.
    #[serde(with = "HumanDurationOrNever")]
    pub max_parked_age: Option<Duration>,
    /// Maximum number of `input-required` and `auth-required` tasks of anonymous callers, per agent and tenant. The
    /// oldest beyond it fail with the reason `expired`. Authenticated callers have quotas of their own instead.
    pub max_anonymous_waiting_tasks: u64,
    /// How long an unfinished task without a runner in this process may have no new log entry. Then it is recovered
    /// according to `on_restart`. For stores shared by several processes, one of which may have crashed.
    #[serde(with = "HumanDurationOrNever")]
    pub orphan_timeout: Option<Duration>,
    /// What happens to a running turn while the lease of this replica is expired, because the shared store does not answer.
    pub on_lease_expiry: LeaseExpiryPolicy,
    /// Whether the metadata of each status of a turn contains its trace context, as `traceId` and `spanId`.
    pub trace_metadata: bool,
    /// Interval of the maintenance sweep, which expires and deletes tasks.
    #[serde(with = "HumanDuration")]
    pub sweep_every: Duration,
}

/// Settings of one agent that override those of the engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentSettings {
    /// Maximum number of concurrent turns of this agent, within the engine's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<usize>,
    /// Maximum number of concurrent turns of one caller with this agent. `None`: half of the agent's `max_turns`,
    /// rounded up. Without `max_turns` it has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns_per_caller: Option<usize>,
    /// Maximum duration of a turn.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_turn_time: Option<Duration>,
    /// Maximum time between two events of the agent within a turn.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_silence: Option<Duration>,
    /// Policy for tasks whose turn was interrupted by a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_restart: Option<RestartPolicy>,
    /// Policy for `input-required` and `auth-required` tasks that are not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_waiting: Option<UnansweredPolicy>,
    /// What happens to a running turn while the lease of this replica is expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_lease_expiry: Option<LeaseExpiryPolicy>,
}

/// Policy for running turns of a replica whose lease has expired: other replicas may take over its tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LeaseExpiryPolicy {
    /// The agent is not polled. The turn continues if the replica still holds the task when the store answers again.
    #[default]
    Pause,
    /// The agent is dropped, and the task is recovered according to `on_restart`. For agents that must never act twice at
    /// the same time.
    Stop,
}

/// Policy for tasks whose turn was interrupted by a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RestartPolicy {
    /// The task fails with the reason `interrupted`.
    Fail,
    /// The turn runs again.
    RunAgain {
        /// Maximum number of attempts, including the first.
        attempts: u32,
    },
}

/// Policy for `input-required` and `auth-required` tasks that are not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum UnansweredPolicy {
    /// The task waits without limit.
    Stay,
    /// After this time the next turn starts without an answer; [`Turn::is_unanswered`](crate::Turn::is_unanswered) is
    /// true in it. If that turn asks again, the time starts again.
    ContinueAfter(#[serde(with = "HumanDuration")] Duration),
    /// The task fails after this time, with the reason `expired`.
    FailAfter(#[serde(with = "HumanDuration")] Duration),
}

impl Settings {
    /// Sets the defaults that depend on whether the store is durable.
    pub(super) fn for_store(mut self, store: &dyn Store) -> Self {
        let durable = store.is_durable();
        self.max_tasks = self.max_tasks.or((!durable).then_some(2000));
        self.max_age = self.max_age.or(durable.then_some(30 * DAY));
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_turns: 20_000,
            max_turns_per_caller: None,
            max_waiting_turns: 20_000,
            max_waiting_messages: 64,
            max_queued_events: 256,
            max_tail_entries: 1024,
            max_tail_bytes: 1 << 20,
            max_task_bytes: 64 << 20,
            task_cache_bytes: 16 << 20,
            cancel_grace: Duration::from_secs(5),
            store_timeout: Duration::from_secs(30),
            max_turn_time: None,
            max_silence: None,
            on_restart: RestartPolicy::Fail,
            on_waiting: UnansweredPolicy::Stay,
            max_tasks: None,
            max_age: None,
            idempotent_message_ids: false,
            idempotency_max_age: Some(7 * DAY),
            max_parked_age: None,
            max_anonymous_waiting_tasks: 10_000,
            orphan_timeout: None,
            on_lease_expiry: LeaseExpiryPolicy::Pause,
            trace_metadata: false,
            sweep_every: Duration::from_secs(60),
        }
    }
}
