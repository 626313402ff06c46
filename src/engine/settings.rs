//! What an engine may do, and for how long. Every bound has a default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::units::{ByteSize, HumanDuration, HumanDurationOrNever, OptionalHumanDuration};
use crate::store::Store;

/// What an engine may do, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settings {
    /// Turns that run at the same time.
    pub max_turns: usize,
    /// Tasks that wait for a turn, as submitted; beyond that new ones are refused as unavailable.
    pub max_waiting_turns: usize,
    /// Messages and cancels that wait for one task; beyond that they are refused as unavailable.
    pub max_waiting_messages: usize,
    /// Events that an agent may say before it waits for the log.
    pub max_queued_events: usize,
    /// Entries of a running task that stay in memory for those who follow it, until the last of them has read its end;
    /// older ones are read from the store.
    pub max_tail_entries: usize,
    /// The same in bytes, for each running task.
    pub max_tail_bytes: usize,
    /// How large a task may grow, in bytes: beyond that what its agent says is not recorded any more, and the task fails
    /// with the reason `too-large`; a message that would make it larger is refused.
    pub max_task_bytes: usize,
    /// Memory, in bytes, for tasks that nobody works on: one that was read and is read again does not touch the
    /// store, as long as it did not change.
    #[serde(with = "ByteSize")]
    pub task_cache_bytes: usize,
    /// How long an agent that listens for a cancel may take to end well.
    #[serde(with = "HumanDuration")]
    pub cancel_grace: Duration,
    /// How long those who call wait for a store that hangs before they are told that it is unavailable, as do those
    /// who follow. What had not begun to be recorded by then is not; what had is recorded or not, and only the same
    /// call under an idempotency key finds out which. The limits of a turn hold all the while.
    #[serde(with = "HumanDuration")]
    pub store_timeout: Duration,
    /// How long a turn may take.
    #[serde(with = "HumanDurationOrNever")]
    pub max_turn_time: Option<Duration>,
    /// How long an agent may be silent within a turn.
    #[serde(with = "HumanDurationOrNever")]
    pub max_silence: Option<Duration>,
    /// What becomes of a task whose turn was cut off by a restart.
    pub on_restart: RestartPolicy,
    /// What becomes of a task that waits too long for somebody outside.
    pub on_waiting: UnansweredPolicy,
    /// Ended tasks that are kept; the oldest go first. `None`: 2,000 in memory, any number on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u64>,
    /// How long ended tasks are kept. `None`: for ever in memory, 30 days on disk.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_age: Option<Duration>,
    /// Whether a message that comes again under its own id, from the same caller, is the same message: it is answered
    /// with the task it made or continued, and with another content it is refused. An `Idempotency-Key` goes before.
    pub idempotent_message_ids: bool,
    /// How long a task may wait for somebody outside, whatever `on_waiting` says, before it fails as expired.
    #[serde(with = "HumanDurationOrNever")]
    pub max_parked_age: Option<Duration>,
    /// Tasks of callers whom nobody knows that may wait for somebody outside, for each agent and tenant: beyond that the
    /// oldest fail as expired. Those who are known have an allowance each, and are refused a new task instead.
    pub max_anonymous_waiting_tasks: u64,
    /// How long a task may be silent that has work left and on which nobody here works; then it is seen to as after
    /// a restart. For stores that several processes share, where one may end and leave its tasks to the others.
    #[serde(with = "HumanDurationOrNever")]
    pub orphan_timeout: Option<Duration>,
    /// Whether every status that an agent's turn brings names its place in a trace, as `traceId` and `spanId` in its
    /// metadata: for clients that look for it there.
    pub trace_metadata: bool,
    /// How often what has become too old or too many is looked for.
    #[serde(with = "HumanDuration")]
    pub sweep_every: Duration,
}

/// What one agent may do, where that is not what all may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentSettings {
    /// Turns of this agent that run at the same time, within those of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<usize>,
    /// How long a turn may take.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_turn_time: Option<Duration>,
    /// How long the agent may be silent within a turn.
    #[serde(
        with = "OptionalHumanDuration",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_silence: Option<Duration>,
    /// What becomes of a task whose turn was cut off by a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_restart: Option<RestartPolicy>,
    /// What becomes of a task that waits too long for somebody outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_waiting: Option<UnansweredPolicy>,
}

/// What becomes of a task whose turn was cut off by a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum RestartPolicy {
    /// It fails, and says that it was interrupted.
    Fail,
    /// Its turn runs again, at most so many times in all.
    RunAgain {
        /// Attempts in all, the first one included.
        attempts: u32,
    },
}

/// What becomes of a task that waits too long for somebody outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum UnansweredPolicy {
    /// It goes on waiting.
    Stay,
    /// After this time its next turn begins without the answer; [`Turn::is_unanswered`](crate::Turn::is_unanswered) tells
    /// the agent. A turn that asks again waits again.
    ContinueAfter(#[serde(with = "HumanDuration")] Duration),
    /// It fails after this time.
    FailAfter(#[serde(with = "HumanDuration")] Duration),
}

impl Settings {
    /// Fills in what depends on where tasks are kept.
    pub(super) fn for_store(mut self, store: &dyn Store) -> Self {
        const DAY: Duration = Duration::from_secs(60 * 60 * 24);
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
            max_waiting_turns: 20_000,
            max_waiting_messages: 64,
            max_queued_events: 256,
            max_tail_entries: 1024,
            max_tail_bytes: 1 << 20,
            max_task_bytes: 256 << 20,
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
            max_parked_age: None,
            max_anonymous_waiting_tasks: 10_000,
            orphan_timeout: None,
            trace_metadata: false,
            sweep_every: Duration::from_secs(60),
        }
    }
}
