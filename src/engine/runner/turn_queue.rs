//! Scheduling of a task's turns: permits, the queue of waiting tasks, and the calls of unanswered messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Runner;
use crate::agent::Failure;
use crate::engine::Engine;
use crate::engine::agent_registry::TurnPermit;
use crate::model::{Call, CallerKey, ClientAddress, Version};

/// Scheduling state of one task.
pub(super) struct TurnQueue {
    /// Permit of the current turn. Acquired before the turn's first event is staged.
    pub(super) permit: Option<TurnPermit>,
    /// Slot in the engine-wide count of waiting turns, held while the task waits for a permit.
    pub(super) waiting_slot: Option<WaitingSlot>,
    /// Calls of unanswered messages that this process has received, by turn number.
    pub(super) calls: VecDeque<(u64, Call)>,
    /// How long the current turn has waited for its permit.
    pub(super) queue_time: Duration,
    /// Failure of the agent before its first turn. That turn ends with it.
    pub(super) early_failure: Option<Failure>,
    /// Protocol version of the newest call, for metrics.
    pub(super) version: Version,
    /// Address of the client of the newest call, if this process has received it.
    pub(super) client: Option<ClientAddress>,
}

impl TurnQueue {
    pub(super) fn new() -> Self {
        Self {
            permit: None,
            waiting_slot: None,
            calls: VecDeque::with_capacity(1),
            queue_time: Duration::ZERO,
            early_failure: None,
            version: Version::V1,
            client: None,
        }
    }

    /// Takes the call of a turn's message, and drops those of earlier turns.
    fn take_call(&mut self, turn: u64) -> Option<Call> {
        while self.calls.front().is_some_and(|(number, _)| *number < turn) {
            self.calls.pop_front();
        }
        let call = self.calls.pop_front_if(|(number, _)| *number == turn);
        call.map(|(_, call)| call)
    }
}

impl Runner {
    /// Returns the call of the current turn's message.
    ///
    /// If an earlier process or another one has received it, only what the log contains is known.
    pub(in crate::engine) fn take_call(&mut self) -> Call {
        let turn = self.log.current_turn();
        let call = self
            .turns
            .take_call(turn)
            .unwrap_or_else(|| self.recorded_call(turn));
        self.turns.version = call.version;
        call
    }

    /// Returns the call of a turn's message as the log records it.
    fn recorded_call(&self, turn: u64) -> Call {
        let mut call = Call::new(self.scope.clone());
        call.trace = self.log.trace_for_turn(turn).cloned();
        if let Some(metadata) = self.log.call_metadata(turn) {
            call.version = metadata.version;
            call.extensions.clone_from(&metadata.extensions);
        }
        call
    }

    /// Takes the failure of the agent before its first turn.
    pub(in crate::engine) fn take_early_failure(&mut self) -> Option<Failure> {
        self.turns.early_failure.take()
    }

    /// Takes the time that the current turn has waited for its permit.
    pub(in crate::engine) fn take_queue_time(&mut self) -> Duration {
        std::mem::take(&mut self.turns.queue_time)
    }

    /// Returns whether one more task may wait for a turn, or a permit is available.
    pub(super) fn can_queue_turn(&self) -> bool {
        let engine = &self.engine.inner;
        let slot = WaitingSlot::new(&self.engine);
        slot.number <= engine.settings.max_waiting_turns || self.try_acquire_turn().is_some()
    }

    /// Acquires a turn permit if one is available immediately.
    pub(super) fn try_acquire_turn(&self) -> Option<TurnPermit> {
        let turn_permits = &self.engine.inner.turn_permits;
        self.agent.try_acquire_turn(turn_permits, self.caller_key())
    }

    /// Returns the key of the owner for fair queueing.
    pub(super) fn caller_key(&self) -> CallerKey {
        CallerKey::new(&self.scope.owner, self.turns.client)
    }

    /// Stages the start of the next turn, if a permit is available.
    pub(super) fn try_begin_turn(&mut self) {
        self.turns.permit = self.try_acquire_turn();
        if self.turns.permit.is_some() {
            self.stage(self.log.turn_start());
        }
    }
}

/// Guard that counts a task as waiting for a turn.
pub(super) struct WaitingSlot {
    count: Arc<AtomicUsize>,
    /// Number of waiting tasks when it was created, itself included.
    pub(super) number: usize,
}

impl WaitingSlot {
    pub(super) fn new(engine: &Engine) -> Self {
        let count = engine.inner.waiting_turns.clone();
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        Self { count, number }
    }
}

impl Drop for WaitingSlot {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
