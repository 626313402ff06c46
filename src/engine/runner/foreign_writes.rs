//! Appends of other processes to the log of a running task, for stores with external writers.

use tokio::sync::watch;

use super::{CommitPoint, Runner, RunnerResult, RunnerStop, recv_or_pending, status_event};
use crate::engine::Error;
use crate::engine::inbox::RunnerCommand;
use crate::engine::journal::FOLD_PAGE;
use crate::model::{Event, Seq, TaskState};

/// Observed appends of other processes.
#[derive(Default)]
pub(super) struct ForeignWrites {
    /// Announcements of the log's position. Subscribed on first use.
    announcements: Option<watch::Receiver<Seq>>,
    /// Last announced position that was handled.
    seen_position: Seq,
    /// Whether another process has requested a cancel that the turn has not handled.
    cancel_requested: bool,
}

/// Event from outside that a runner handles.
pub(in crate::engine) enum RunnerEvent {
    Command(RunnerCommand),
    /// Another process has appended to the log.
    LogGrew,
}

impl Runner {
    /// Waits for the next command or foreign append.
    pub(in crate::engine) async fn next_event(&mut self) -> RunnerEvent {
        if !self.engine.inner.journal.store.has_external_writers() {
            return RunnerEvent::Command(recv_or_pending(&mut self.inbox).await);
        }
        let announcements = self
            .foreign
            .announcements
            .get_or_insert_with(|| self.engine.inner.journal.watch(&self.id));
        let known = self
            .pipeline
            .durable_position
            .max(self.foreign.seen_position);
        tokio::select! {
            biased;
            command = recv_or_pending(&mut self.inbox) => RunnerEvent::Command(command),
            position = wait_for_growth(announcements, known) => {
                // Handled once per announcement: entries that are not readable yet are announced again.
                self.foreign.seen_position = position;
                RunnerEvent::LogGrew
            }
        }
    }

    /// Reads the log again after a foreign append, and records a foreign cancel request.
    ///
    /// # Errors
    /// `Superseded` if another process has started a turn.
    pub(in crate::engine) async fn refresh(&mut self) -> RunnerResult {
        let mut position = self.pipeline.durable_position;
        self.reload().await?;
        let Some(head) = self.pipeline.head() else {
            return Ok(());
        };
        let durable = self.pipeline.durable_position;
        let store = &self.engine.inner.journal.store;
        while position < durable {
            let entries = store.read(head, position, FOLD_PAGE).await?;
            for entry in entries.iter().filter(|entry| entry.seq <= durable) {
                match entry.event {
                    Event::TurnStarted => return Err(RunnerStop::Superseded),
                    Event::CancelRequested { .. } => self.foreign.cancel_requested = true,
                    _ => {}
                }
            }
            position = entries.last().ok_or(Error::Deleted)?.seq;
        }
        Ok(())
    }

    /// Handles a foreign append while the task waits for a turn permit. A cancel needs no permit.
    pub(super) async fn catch_up(&mut self) -> RunnerResult {
        self.refresh().await?;
        if self.foreign.cancel_requested && !self.log.task.is_ended() {
            let canceled = status_event(TaskState::Canceled);
            self.stage_own(vec![canceled]).await;
            self.commit(None, CommitPoint::Final).await?;
        }
        Ok(())
    }

    /// Returns whether another process has ended the task or requested a cancel.
    pub(in crate::engine) fn is_stopping(&self) -> bool {
        self.foreign.cancel_requested || self.log.task.is_ended()
    }

    /// Returns whether another process has requested a cancel since the last call.
    pub(in crate::engine) fn take_cancel_request(&mut self) -> bool {
        std::mem::take(&mut self.foreign.cancel_requested)
    }
}

/// Waits until the announced position is beyond `known`, and returns it.
async fn wait_for_growth(announcements: &mut watch::Receiver<Seq>, known: Seq) -> Seq {
    loop {
        let position = *announcements.borrow_and_update();
        if position > known {
            return position;
        }
        if announcements.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
