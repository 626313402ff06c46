//! Appends of other processes to the log of a running task, for stores with external writers.

use std::collections::VecDeque;

use tokio::sync::watch;

use super::pipeline::LogState;
use super::{CommitPoint, Runner, RunnerResult, RunnerStop, recv_or_pending, status_event};
use crate::engine::Error;
use crate::engine::inbox::RunnerCommand;
use crate::engine::journal::FOLD_PAGE;
use crate::engine::lease::LeaseGuard;
use crate::model::{Event, Seq, TaskState};
use crate::store::{Head, Holder};

/// Observed appends of other processes.
#[derive(Default)]
pub(super) struct ForeignWrites {
    /// Announcements of the log's position. Subscribed on first use.
    announcements: Option<watch::Receiver<Seq>>,
    /// Last announced position that was handled.
    seen_position: Seq,
    /// Whether another process has requested a cancel that the turn has not handled.
    cancel_requested: bool,
    /// Commands that the runner could not complete before it was superseded.
    handed_over: VecDeque<RunnerCommand>,
    /// State on a shared store. Boxed: size of an idle runner.
    holding: Option<Box<Holding>>,
}

/// State of a runner that holds its task on a shared store.
struct Holding {
    /// Lease of the membership in which the runner has started.
    lease: LeaseGuard,
    /// Whether the next commit is announced to every replica: this one has taken over the task.
    announces_to_all: bool,
}

/// Event from outside that a runner handles.
pub(in crate::engine) enum RunnerEvent {
    Command(RunnerCommand),
    /// Another process has appended to the log.
    LogGrew,
    /// The replica was evicted, or its lease has expired and the turn must stop.
    LeaseLost,
}

impl Runner {
    /// Waits for the next command or foreign append.
    pub(in crate::engine) async fn next_event(&mut self) -> RunnerEvent {
        if !self.engine.inner.journal.store.has_external_writers() {
            return RunnerEvent::Command(recv_or_pending(&mut self.inbox).await);
        }
        // Boxed: future size.
        Box::pin(self.next_external_event()).await
    }

    async fn next_external_event(&mut self) -> RunnerEvent {
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
            () = wait_for_lease_loss(self.foreign.holding.as_deref_mut()) => RunnerEvent::LeaseLost,
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
        self.check_holder().await?;
        self.reload().await?;
        if self.pipeline.durable_position < position {
            tracing::error!(
                task = %self.id,
                acknowledged = position.0,
                stored = self.pipeline.durable_position.0,
                "acknowledged entries are lost: the database has failed over to a standby that lagged"
            );
            return Err(Error::StoreUnavailable.into());
        }
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

    /// Reads the head on a shared store.
    ///
    /// # Errors
    /// `Superseded` if another replica holds the task.
    pub(super) async fn check_holder(&mut self) -> RunnerResult {
        if !self.engine.inner.lease.is_shared() || self.pipeline.head().is_none() {
            return Ok(());
        }
        let head = self.current_head().await?;
        if head.holder == Holder::Remote {
            return Err(RunnerStop::Superseded);
        }
        self.open_log(head);
        Ok(())
    }

    /// Sets the head of the log.
    pub(super) fn open_log(&mut self, head: Head) {
        self.pipeline.log_state = LogState::Open(head);
    }

    /// Watches the lease and the log, from the moment in which this replica may hold the task. Nothing on a store of one
    /// process.
    pub(super) fn begin_holding(&mut self, announces_to_all: bool) {
        let engine = &self.engine.inner;
        let policy = self.agent.on_lease_expiry(&engine.settings);
        if let Some(lease) = engine.lease.guard(policy) {
            let journal = &engine.journal;
            self.foreign
                .announcements
                .get_or_insert_with(|| journal.watch(&self.id));
            self.foreign.holding = Some(Box::new(Holding {
                lease,
                announces_to_all,
            }));
        }
    }

    /// Announces the first commit after a takeover to every replica: their followers may not have requested it from this one.
    pub(super) fn announce_takeover(&mut self) {
        if let Some(holding) = &mut self.foreign.holding
            && std::mem::take(&mut holding.announces_to_all)
        {
            let bus = &self.engine.inner.journal.bus;
            bus.announce_to_all(&self.id, self.pipeline.durable_position);
        }
    }

    /// Returns the guard of the lease for a turn. `None` on stores of one process.
    pub(in crate::engine) fn lease_guard(&self) -> Option<LeaseGuard> {
        let holding = self.foreign.holding.as_ref();
        holding.map(|holding| holding.lease.clone())
    }

    /// Keeps a command for the time after this runner is superseded.
    pub(in crate::engine) fn hand_over(&mut self, command: RunnerCommand) {
        self.foreign.handed_over.push_back(command);
    }

    /// Returns the next command of a task that another replica holds. If there is none, the runner retires.
    pub(super) fn next_remote_command(&mut self) -> Option<RunnerCommand> {
        let handed_over = self.foreign.handed_over.pop_front();
        handed_over.or_else(|| self.next_command())
    }

    /// Ends the work of a superseded runner: drops the permit and the staged events, and executes commands as those of
    /// another replica's task. Its followers read the store from now on.
    ///
    /// Returns a command that this replica must handle as the runner of the task, or `None` after it has retired.
    pub(super) async fn stop_holding(&mut self) -> Option<RunnerCommand> {
        self.turns.permit = None;
        self.turns.calls.clear();
        self.foreign.cancel_requested = false;
        self.foreign.holding = None;
        if !self.engine.inner.lease.is_shared() {
            for command in std::mem::take(&mut self.foreign.handed_over) {
                command.reject(Error::StoreUnavailable);
            }
            self.reject_commands(|| Error::StoreUnavailable);
            return None;
        }
        let claimed = match self.next_remote_command() {
            Some(command) => Box::pin(self.run_remote_commands(command)).await,
            None => None,
        };
        let position = self.pipeline.durable_position;
        self.engine
            .inner
            .journal
            .bus
            .announce_locally(&self.id, position);
        claimed
    }

    /// Runs the task again after a command that found no other holder.
    pub(super) async fn run_claimed(&mut self, command: RunnerCommand) -> RunnerResult {
        if let Err(error) = self.reload().await {
            self.reject_all(command, error);
            return Ok(());
        }
        Box::pin(self.handle_first_command(command)).await?;
        Box::pin(self.run_turns()).await
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

/// Waits until the runner must stop. Without a lease, waits without end.
async fn wait_for_lease_loss(holding: Option<&mut Holding>) {
    match holding {
        Some(holding) => holding.lease.wait_for_loss().await,
        None => std::future::pending().await,
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
