//! What becomes of a task that was cut off, that waits too long, or whose store has failed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Dispatch, Error, Result, Runner, RunnerCommand, recv_or_pending, turn};
use crate::engine::maintenance::MAX_RETRY_DELAY;
use crate::engine::{RestartPolicy, UnansweredPolicy, reason};
use crate::model::{Seq, TaskStatus};
use crate::rt::cancel;

impl Runner {
    /// Nobody worked on this task when we came: does as the policy says.
    pub(super) async fn recover(&mut self) -> Result<()> {
        if self.log.next_message().is_none() && !self.log.is_turn_running() {
            return Ok(());
        }
        match self.agent_handle.on_restart(&self.engine.settings) {
            // Its turn begins again, which counts as another attempt.
            RestartPolicy::RunAgain { attempts } if self.log.attempts < attempts => Ok(()),
            RestartPolicy::Fail | RestartPolicy::RunAgain { .. } => {
                self.fail_task("interrupted").await
            }
        }
    }

    /// Does as the policy says with a task that waits for somebody outside, or on which nobody works, for too long.
    pub(super) async fn expire(&mut self) -> Result<()> {
        if self.log.next_message().is_some() || self.log.is_turn_running() {
            return if self.is_orphaned().await? {
                self.recover().await
            } else {
                Err(Error::Superseded)
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
        let is_past = |time| since < self.engine.time_before(time);
        match self.agent_handle.on_waiting(&self.engine.settings) {
            _ if self.engine.settings.max_parked_age.is_some_and(is_past) => {
                self.fail_task("expired").await
            }
            UnansweredPolicy::FailAfter(time) if is_past(time) => self.fail_task("expired").await,
            UnansweredPolicy::ContinueAfter(time) if is_past(time) => {
                self.continue_unanswered().await
            }
            UnansweredPolicy::Stay
            | UnansweredPolicy::FailAfter(_)
            | UnansweredPolicy::ContinueAfter(_) => Ok(()),
        }
    }

    /// Whether nothing was recorded for too long. Nobody here works on the task, somebody elsewhere may.
    async fn is_orphaned(&self) -> Result<bool> {
        let (Some(head), Some(time)) = (&self.head, self.engine.settings.orphan_timeout) else {
            return Ok(false);
        };
        let last = Seq(self.durable_position.0.saturating_sub(1));
        let last = self.engine.journal.store.read(head, last, 1).await?;
        Ok(last
            .first()
            .is_some_and(|entry| entry.time < self.engine.time_before(time)))
    }

    /// Begins a turn without the answer that the last one asked for.
    async fn continue_unanswered(&mut self) -> Result<()> {
        let silence =
            self.with_task_ids(reason::timeout_message(self.engine.clock.new_id().into()));
        self.stage_message(Arc::new(silence), None);
        self.commit(None, false).await
    }

    /// Ends the task as failed, and says why in a word.
    pub(super) async fn fail_task(&mut self, reason: &'static str) -> Result<()> {
        if self.log.task.is_ended() {
            return Ok(());
        }
        let ending = turn::interruption_events(self, reason);
        self.stage(ending);
        self.commit(None, true).await
    }

    /// Gives the task up; where the store has failed, not before the task has an end.
    pub(super) async fn retry_until_ended(&mut self, mut ended: Result<()>) {
        while let Err(error) = ended {
            if matches!(error, Error::Superseded) {
                tracing::warn!(task = %self.id, "somebody else works on the task");
                return self.reject_commands(|| Error::StoreUnavailable);
            }
            tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "turn lost");
            self.turn_permit = None;
            let mut retry_delay = self.retry_delay;
            let there = loop {
                self.mark_unwritable();
                self.wait_for_store(&mut retry_delay).await;
                match self.resolve_lost_turn().await {
                    Ok(there) => break there,
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(task = %self.id, error, "task still without an end");
                    }
                }
            };
            ended = if there {
                self.run_turns().await
            } else {
                return self.reject_commands(|| Error::Deleted);
            };
        }
    }

    /// Leaves the task to one who begins anew from what the store has. For a fault of our own, or of the store's:
    /// what was cut off must not stay in the hands of nobody. One that fails for ever is tried ever more rarely.
    pub(super) fn respawn(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (engine, id, scope) = (self.engine.clone(), self.id.clone(), self.scope.clone());
        let place = (self.head.take(), self.active.take(), self.inbox.take());
        let retry_delay = (self.retry_delay * 2).min(MAX_RETRY_DELAY);
        // A runner only once it runs: a runtime that is itself going down drops this as it is.
        let work = async move {
            let mut next = Self::new(engine, id, scope);
            (next.head, next.active, next.inbox) = place;
            next.retry_delay = retry_delay;
            next.retry_until_ended(Err(Error::StoreUnavailable)).await;
        };
        let work = cancel::run_until(self.engine.stop.clone(), Box::pin(work));
        self.engine.tracker.spawn_on(work, &runtime);
    }

    /// Tells those who follow that nothing can be recorded for now.
    pub(in crate::engine) fn mark_unwritable(&self) {
        if let Some(active) = &self.active {
            active.mark_unwritable();
            self.engine
                .journal
                .announce(&self.id, self.durable_position);
        }
    }

    /// Waits a while, and longer each time. Who comes meanwhile is told to come back later.
    pub(super) async fn wait_for_store(&mut self, retry_delay: &mut Duration) {
        let mut timer = pin!(tokio::time::sleep(*retry_delay));
        *retry_delay = (*retry_delay * 2).min(MAX_RETRY_DELAY);
        loop {
            tokio::select! {
                biased;
                () = &mut timer => return,
                command = recv_or_pending(&mut self.inbox) => reject(command, Error::StoreUnavailable),
            }
        }
    }

    /// Does as the policy says with a task whose turn was lost. False when there is no such task, or it is in other hands.
    async fn resolve_lost_turn(&mut self) -> Result<bool> {
        if self.head.is_none() {
            self.head = self.engine.journal.find(&self.scope, &self.id).await?;
        }
        if self.head.is_none() || !self.claim_task() {
            return Ok(false);
        }
        match self.reload().await {
            Err(Error::Deleted) => return Ok(false),
            result => result?,
        }
        // The end of a turn may be there although its commit seemed to fail. If not, it was cut off like any other.
        self.recover().await?;
        Ok(true)
    }

    /// Whether nobody else works on the task: a quick turn does so without saying.
    fn claim_task(&mut self) -> bool {
        if self.inbox.is_none() {
            match self
                .engine
                .journal
                .active_tasks
                .dispatch(&self.id, RunnerCommand::Recover(None))
            {
                Dispatch::Delivered | Dispatch::QueueFull => return false,
                Dispatch::NoRunner(_, active, inbox) => {
                    (self.active, self.inbox) = (Some(active), Some(inbox))
                }
            }
        }
        true
    }

    /// Stops being the one who works on a task that is not there, or not ours.
    pub(super) fn reject_commands(&mut self, why: fn() -> Error) {
        while let Some(command) = self.next_command() {
            reject(command, why());
        }
    }
}

pub(super) fn reject(command: RunnerCommand, error: Error) {
    match command {
        RunnerCommand::Message(incoming) => drop(incoming.reply.send(Err(error))),
        RunnerCommand::Cancel { reply, .. } => drop(reply.send(Err(error))),
        RunnerCommand::RecordLate
        | RunnerCommand::Recover(_)
        | RunnerCommand::Expire
        | RunnerCommand::ExpireOverQuota => {}
    }
}
