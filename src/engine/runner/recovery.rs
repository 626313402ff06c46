//! Recovery of interrupted, unanswered and orphaned tasks, and retries after store failures.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::pipeline::LogState;
use super::{CommitPoint, Runner, RunnerResult, RunnerStop, recv_or_pending, status_event, turn};
use crate::engine::inbox::RunnerCommand;
use crate::engine::maintenance::MAX_RETRY_DELAY;
use crate::engine::{Error, RestartPolicy, Result, UnansweredPolicy, reason};
use crate::model::{Event, Seq, TaskState, TaskStatus};
use crate::rt::cancel;
use crate::store::{Batch, Head, ReadLimit, WriterRole};
use crate::telemetry::metrics;

/// Decision about a task whose runner was lost.
enum RecoveryAction {
    /// The task has ended or is parked.
    Nothing,
    /// The turn runs again, as another attempt.
    RunTurn,
    /// The task ends as canceled: a client has requested it.
    Cancel,
    /// The task fails with the reason `interrupted`.
    Fail,
}

/// Outcome of the attempt to resolve a lost turn.
enum LostTurn {
    /// The task has ended, is parked, or its turn is to run again.
    Resolved,
    /// The task does not exist, or has another runner.
    NotOurs,
}

impl Runner {
    fn recovery_action(&self) -> RecoveryAction {
        if self.log.next_message().is_none() && !self.log.is_turn_running() {
            return RecoveryAction::Nothing;
        }
        if self.log.cancel_requested {
            return RecoveryAction::Cancel;
        }
        if !self.log.is_turn_running() {
            // It has waited for a permit.
            return RecoveryAction::RunTurn;
        }
        match self.agent.on_restart(&self.engine.inner.settings) {
            RestartPolicy::RunAgain { attempts } if self.log.attempts < attempts => {
                RecoveryAction::RunTurn
            }
            RestartPolicy::Fail | RestartPolicy::RunAgain { .. } => RecoveryAction::Fail,
        }
    }

    /// Applies `on_restart` to a task that was found without a runner.
    pub(super) async fn recover(&mut self) -> RunnerResult {
        match self.recovery_action() {
            RecoveryAction::Nothing => Ok(()),
            // `run_turns`, which follows every command, starts the turn.
            RecoveryAction::RunTurn => Ok(()),
            RecoveryAction::Cancel => self.cancel_lost_turn().await,
            RecoveryAction::Fail => self.fail_task(reason::INTERRUPTED).await,
        }
    }

    /// Ends a task as canceled whose runner was lost after the cancel request.
    async fn cancel_lost_turn(&mut self) -> RunnerResult {
        let turn_ended = self.log.is_turn_running().then_some(Event::TurnEnded);
        let canceled = status_event(TaskState::Canceled);
        let events = [canceled].into_iter().chain(turn_ended).collect();
        self.stage_own(events).await;
        self.commit(None, CommitPoint::Final).await
    }

    /// Applies the policies to a task that is orphaned or unanswered for too long.
    ///
    /// # Errors
    /// `Superseded` if another process may still run the task.
    pub(super) async fn expire(&mut self) -> RunnerResult {
        if self.log.next_message().is_some() || self.log.is_turn_running() {
            return if self.is_orphaned().await? {
                self.recover().await
            } else {
                Err(RunnerStop::Superseded)
            };
        }
        let TaskStatus {
            state,
            timestamp: Some(since),
            ..
        } = self.log.task.status
        else {
            return Ok(());
        };
        if !state.is_interrupted() {
            return Ok(());
        }
        let settings = &self.engine.inner.settings;
        let is_past = |age| since < self.engine.time_before(age);
        if let Some(age) = settings.max_parked_age.filter(|age| is_past(*age)) {
            return self.fail_unanswered(age).await;
        }
        match self.agent.on_waiting(settings) {
            UnansweredPolicy::FailAfter(age) if is_past(age) => self.fail_unanswered(age).await,
            UnansweredPolicy::ContinueAfter(age) if is_past(age) => {
                self.continue_unanswered().await
            }
            UnansweredPolicy::Stay
            | UnansweredPolicy::FailAfter(_)
            | UnansweredPolicy::ContinueAfter(_) => Ok(()),
        }
    }

    /// Returns whether the newest entry is older than `orphan_timeout`. The task has no runner here, but may have one
    /// in another process.
    async fn is_orphaned(&self) -> Result<bool> {
        let engine = &self.engine.inner;
        let (Some(head), Some(age)) = (self.pipeline.head(), engine.settings.orphan_timeout) else {
            return Ok(false);
        };
        let before_last = Seq(self.pipeline.durable_position.0.saturating_sub(1));
        let store = &engine.journal.store;
        let last = store.read(head, before_last, ReadLimit::entries(1)).await?;
        Ok(last
            .first()
            .is_some_and(|entry| entry.time < self.engine.time_before(age)))
    }

    /// Starts a turn without the answer that the last one asked for.
    async fn continue_unanswered(&mut self) -> RunnerResult {
        let id = self.engine.new_id().into();
        let message = self.with_task_ids(reason::timeout_message(id));
        self.stage_message(vec![Event::Message(Arc::new(message))]);
        self.commit(None, CommitPoint::Interim).await
    }

    /// Ends the task as failed with a reason, unless it has ended.
    pub(super) async fn fail_task(&mut self, reason: &'static str) -> RunnerResult {
        self.fail_task_with(reason, failure_text(reason)).await
    }

    /// Fails a task that has waited for input or credentials for this long.
    async fn fail_unanswered(&mut self, age: Duration) -> RunnerResult {
        let missing = match self.log.task.status.state {
            TaskState::AuthRequired => "authorization",
            _ => "input",
        };
        let text = format!("{missing} timeout after {} s", age.as_secs_f64());
        self.fail_task_with(reason::EXPIRED, text).await
    }

    async fn fail_task_with(&mut self, reason: &'static str, text: String) -> RunnerResult {
        if self.log.task.is_ended() {
            return Ok(());
        }
        let events = turn::interruption_events(self, reason, text);
        self.stage_own(events).await;
        self.commit(None, CommitPoint::Final).await
    }

    /// Ends a task whose log is damaged as failed. The head is intact and gets the final state; the log cannot be folded,
    /// so the status entry only records the reason. Retries while the store fails.
    pub(super) async fn fail_damaged(&mut self) {
        let Some(mut head) = self.pipeline.head().cloned() else {
            return self.reject_commands(|| Error::StoreUnavailable);
        };
        let mut retry_delay = self.retry_delay;
        while !head.state.is_terminal() {
            match self.append_damage(&head).await {
                Ok(()) => break,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(task = %self.id, error, "damaged task not ended");
                }
            }
            self.wait_for_store(&mut retry_delay).await;
            // Another process may have appended.
            match self.engine.inner.journal.find(&self.scope, &self.id).await {
                Ok(Some(current)) => head = current,
                Ok(None) => break,
                Err(_) => {}
            }
        }
        self.reject_commands(|| Error::StoreUnavailable);
    }

    async fn append_damage(&self, head: &Head) -> Result<()> {
        let journal = &self.engine.inner.journal;
        let time = self.engine.inner.clock.now();
        let text = failure_text(reason::DAMAGED);
        let events = turn::interruption_events(self, reason::DAMAGED, text);
        let end = Seq(head.position.0 + events.len() as u64);
        let batch = Batch {
            time,
            events,
            state: TaskState::Failed,
            status_time: time,
            parked: false,
            key: None,
            turn: 0,
            writer: WriterRole::Holder,
        };
        journal.append(head, head.position, &batch).await?;
        tracing::error!(task = %self.id, "task failed: its log is damaged; see `attache db check`");
        journal.announce(&self.id, end);
        self.engine.count_ended();
        Ok(())
    }

    /// Continues after a stop. After a store failure it retries, with backoff, until the task is idle.
    pub(super) async fn retry_until_ended(&mut self, stop: RunnerStop) {
        let mut stop = stop;
        loop {
            match stop {
                RunnerStop::Superseded => {
                    tracing::warn!(task = %self.id, "another process runs the task");
                    metrics::record_superseded_turn();
                    match self.stop_holding().await {
                        Some(command) => {
                            match self.run_claimed(command).await {
                                Ok(()) => return,
                                Err(next) => stop = next,
                            }
                            continue;
                        }
                        None => return,
                    }
                }
                RunnerStop::Failed(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(task = %self.id, error, "turn lost");
                }
            }
            self.turns.permit = None;
            match self.retry_lost_turn().await {
                Ok(LostTurn::Resolved) => {}
                Ok(LostTurn::NotOurs) => return self.reject_commands(|| Error::Deleted),
                Err(superseded) => {
                    stop = superseded;
                    continue;
                }
            }
            match self.run_turns().await {
                Ok(()) => return,
                Err(next) => stop = next,
            }
        }
    }

    /// Resolves a lost turn. Retries with exponential backoff while the store fails.
    ///
    /// # Errors
    /// `Superseded` if another replica holds the task.
    async fn retry_lost_turn(&mut self) -> RunnerResult<LostTurn> {
        let mut retry_delay = self.retry_delay;
        loop {
            self.mark_unwritable();
            self.wait_for_store(&mut retry_delay).await;
            match self.resolve_lost_turn().await {
                Ok(lost_turn) => return Ok(lost_turn),
                Err(RunnerStop::Superseded) => return Err(RunnerStop::Superseded),
                Err(stop) => {
                    let error = &stop as &dyn std::error::Error;
                    tracing::warn!(task = %self.id, error, "lost turn not resolved");
                }
            }
        }
    }

    /// Starts another runner from the state of the store, after a panic of this one. The delay doubles each time, so a
    /// task that always panics is retried ever more rarely.
    pub(super) fn respawn(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let engine = self.engine.clone();
        let id = self.id.clone();
        let scope = self.scope.clone();
        let log_state = std::mem::replace(&mut self.pipeline.log_state, LogState::Missing);
        let inbox = self.inbox.take();
        let retry_delay = (self.retry_delay * 2).min(MAX_RETRY_DELAY);
        // The runner is created inside the future. A runtime that shuts down drops the future unpolled, so that no
        // destructor of a runner starts another one.
        let run = async move {
            let mut next = Self::new(engine, id, scope, log_state);
            next.inbox = inbox;
            next.retry_delay = retry_delay;
            let stop = RunnerStop::Failed(Error::StoreUnavailable);
            next.retry_until_ended(stop).await;
        };
        let run = cancel::run_until(self.engine.inner.stop.clone(), Box::pin(run));
        self.engine.inner.tracker.spawn_on(run, &runtime);
    }

    /// Marks the log as not writable, and notifies its subscribers.
    pub(in crate::engine) fn mark_unwritable(&self) {
        if let Some(inbox) = &self.inbox {
            inbox.task().mark_unwritable();
            let position = self.pipeline.durable_position;
            self.engine.inner.journal.announce(&self.id, position);
        }
    }

    /// Waits for `retry_delay` and doubles it. Rejects commands during the wait.
    pub(super) async fn wait_for_store(&mut self, retry_delay: &mut Duration) {
        let mut timer = pin!(tokio::time::sleep(*retry_delay));
        *retry_delay = (*retry_delay * 2).min(MAX_RETRY_DELAY);
        loop {
            tokio::select! {
                biased;
                () = &mut timer => return,
                command = recv_or_pending(&mut self.inbox) => {
                    command.reject(Error::StoreUnavailable);
                }
            }
        }
    }

    /// Reads the task again and applies `on_restart` if its turn has not ended.
    async fn resolve_lost_turn(&mut self) -> RunnerResult<LostTurn> {
        if self.pipeline.head().is_none() {
            let journal = &self.engine.inner.journal;
            self.pipeline.log_state = match journal.find(&self.scope, &self.id).await? {
                Some(head) => LogState::Open(head),
                None => return Ok(LostTurn::NotOurs),
            };
        }
        if !self.claim_task() {
            return Ok(LostTurn::NotOurs);
        }
        match self.check_holder().await {
            Err(RunnerStop::Failed(Error::Deleted)) => return Ok(LostTurn::NotOurs),
            result => result?,
        }
        match self.reload().await {
            Err(Error::Deleted) => return Ok(LostTurn::NotOurs),
            result => result?,
        }
        // The end of the turn may be durable although its commit seemed to fail.
        self.recover().await?;
        Ok(LostTurn::Resolved)
    }

    /// Claims the task if this runner has no inbox. Returns `false` if the task has another runner.
    fn claim_task(&mut self) -> bool {
        if self.inbox.is_none() {
            let active_tasks = &self.engine.inner.journal.active_tasks;
            self.inbox = active_tasks.try_claim(&self.id, &self.scope);
        }
        self.inbox.is_some()
    }

    /// Rejects a command because of an error, and all others that follow it.
    pub(super) fn reject_all(&mut self, command: RunnerCommand, error: Error) {
        let is_deleted = matches!(error, Error::Deleted);
        command.reject(error);
        self.reject_commands(if is_deleted {
            || Error::Deleted
        } else {
            || Error::StoreUnavailable
        });
    }

    /// Rejects all commands, and retires.
    pub(super) fn reject_commands(&mut self, error: fn() -> Error) {
        while let Some(command) = self.next_command() {
            command.reject(error());
        }
    }
}

fn failure_text(reason: &str) -> String {
    format!("Agent execution failed ({reason})")
}
