//! Runner: the single writer of one task's log in this process.
//!
//! A runner executes the turns of a task one after the other and handles commands in between. Events flow from the
//! agent through the queue into staged events, a batch, the store, and then to readers.

mod commit;
mod create;
mod foreign_writes;
mod hooked_events;
mod messages;
mod pipeline;
mod recovery;
mod remote_command;
mod stop;
mod turn_queue;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, timeout};
use tracing::Span;

use super::agent_registry::AgentHandle;
use super::folded_log::FoldedLog;
use super::inbox::{Inbox, RunnerCommand};
use super::maintenance::MIN_RETRY_DELAY;
use super::turn;
use super::{AcceptedMessage, Engine, Error, InitialMessage, Result, reason};
use crate::model::{Call, Event, Object, Scope, Task, TaskId, TaskState, Timestamp};
use crate::store::{self, Head};
use crate::telemetry::metrics;
use create::{CreateOutcome, CreateParams};
use foreign_writes::ForeignWrites;
use pipeline::{CommitPipeline, LogState};
use turn_queue::{TurnQueue, WaitingSlot};

pub(super) use commit::{AppendAttempt, CommitPoint, FailedAppend, status_event};
pub(super) use foreign_writes::RunnerEvent;
pub(super) use pipeline::shrink_if_empty;
pub(super) use stop::{RunnerResult, RunnerStop};

/// Metadata key of a task for the id that a client has chosen (04 §4).
const LEGACY_TASK_ID_KEY: &str = "a2a.legacyTaskId";

/// Number of events of a task whose only turn completes immediately.
const QUICK_TURN_EVENTS: usize = 6;

/// Runs one task. While it exists, nothing else in this process appends to the task's log.
pub(super) struct Runner {
    pub(super) engine: Engine,
    pub(super) id: TaskId,
    pub(super) scope: Scope,
    /// The agent of the current turn.
    pub(super) agent: Arc<AgentHandle>,
    /// Fold of all durable and staged events.
    pub(super) log: FoldedLog,
    pub(super) pipeline: CommitPipeline,
    /// Receives commands. `None` for a task that is not active, such as one whose only turn completes immediately.
    inbox: Option<Inbox>,
    foreign: ForeignWrites,
    turns: TurnQueue,
    /// Span of the running turn, if traces are recorded. Boxed: size of an idle runner.
    turn_span: Option<Box<Span>>,
    /// Delay before the task is retried if this runner panics.
    retry_delay: Duration,
}

impl Runner {
    /// Creates a runner for a new task, with a turn permit or a slot in the queue of waiting turns.
    ///
    /// # Errors
    /// `Overloaded` if the queue is full, `TooLarge` if the message exceeds the size of a task.
    pub(super) fn for_new_task(
        engine: Engine,
        call: Call,
        initial: InitialMessage,
        reply: oneshot::Sender<Result<Box<AcceptedMessage>>>,
    ) -> Result<Box<Self>> {
        let clock = &engine.inner.clock;
        let now = clock.now();
        let id = TaskId::from(clock.new_id(now));
        let mut message = initial.message;
        let context_id = message
            .context_id
            .clone()
            .unwrap_or_else(|| clock.new_id(now).into());
        let own_message = Arc::make_mut(&mut message);
        reason::strip_reason(own_message);
        own_message.task_id = Some(id.clone());
        own_message.context_id = Some(context_id.clone());
        let created = Event::Created {
            id: id.clone(),
            context_id: context_id.clone(),
            metadata: initial.alias.as_ref().map(alias_metadata),
        };
        let log_state = LogState::New(CreateParams {
            context_id,
            key: initial.key,
            alias: initial.alias,
            config: initial.config,
            is_followed: initial.is_followed,
            reply,
        });
        let mut runner = Self::new(engine, id, call.scope.clone(), log_state);
        runner.turns.early_failure = initial.failure;
        runner.turns.version = call.version;
        runner.turns.client = call.client;
        runner.begin_holding(false);
        let staged = &mut runner.pipeline.staged;
        staged.reserve_exact(QUICK_TURN_EVENTS);
        staged.push(created);
        staged.push(Event::Message(message));
        staged.extend(call.trace.clone().map(Event::TraceContext));
        staged.extend(runner.engine.call_metadata(&call).map(Event::CallMetadata));
        runner.turns.calls.push_back((1, call));
        runner.schedule_first_turn(now)?;
        Ok(runner)
    }

    /// Checks the size of the staged message, acquires a turn permit or a waiting slot, and folds the staged events.
    fn schedule_first_turn(&mut self, now: Timestamp) -> Result<()> {
        let engine = &self.engine.inner;
        let mut bytes: usize = self.pipeline.staged.iter().map(Event::memory_size).sum();
        if bytes > engine.settings.max_task_bytes {
            metrics::record_limit_hit("max_task_bytes");
            return Err(Error::TooLarge);
        }
        // Not `try_begin_turn`: all events are folded in one go.
        self.turns.permit = self.try_acquire_turn();
        if self.turns.permit.is_some() {
            // Not `turn_start`: a new task was not interrupted, and needs no status.
            bytes += Event::TurnStarted.memory_size();
            self.pipeline.staged.push(Event::TurnStarted);
        }
        self.fold_staged(0, bytes, now);
        if self.turns.permit.is_none() {
            // Counted before the first await, so that concurrent calls are all counted.
            let slot = WaitingSlot::new(&self.engine);
            if slot.number > self.engine.inner.settings.max_waiting_turns {
                metrics::record_limit_hit("max_waiting_turns");
                return Err(Error::Overloaded);
            }
            self.turns.waiting_slot = Some(slot);
        }
        Ok(())
    }

    /// Creates a runner for a stored task that has none.
    pub(super) fn for_stored_task(engine: Engine, head: Head, inbox: Inbox) -> Box<Self> {
        let id = head.id.clone();
        let scope = head.scope.clone();
        let mut runner = Self::new(engine, id, scope, LogState::Open(head));
        runner.inbox = Some(inbox);
        runner
    }

    /// Creates a runner with an empty fold.
    fn new(engine: Engine, id: TaskId, scope: Scope, log_state: LogState) -> Box<Self> {
        Box::new(Self {
            agent: engine.inner.agents.agent_for(&scope),
            engine,
            id,
            scope,
            log: FoldedLog::empty(),
            pipeline: CommitPipeline::new(log_state),
            inbox: None,
            foreign: ForeignWrites::default(),
            turns: TurnQueue::new(),
            turn_span: None,
            retry_delay: MIN_RETRY_DELAY,
        })
    }

    /// Creates the task and runs it until it is idle.
    pub(super) async fn run_new(mut self: Box<Self>) {
        let created = if self.must_create_first() {
            self.create(CommitPoint::Interim).await
        } else {
            // The turn runs first, and its first commit creates the task.
            Ok(CreateOutcome::Created)
        };
        let result = match created {
            Ok(CreateOutcome::Created) => self.run_turns().await,
            Ok(CreateOutcome::Answered) => return,
            Err(stop) => Err(stop),
        };
        if let Err(stop) = result {
            // Boxed: future size.
            Box::pin(self.retry_until_ended(stop)).await;
        }
    }

    /// Returns whether the task must be durable before its first turn.
    ///
    /// That is so if the turn has no permit yet, must not run twice for one idempotency key or alias, or if the agent
    /// needs a durable start. Also if hooks see the events of the turn: a slow hook must not delay the reply to a sender
    /// that does not wait for the turn.
    fn must_create_first(&self) -> bool {
        let is_unique = match &self.pipeline.log_state {
            LogState::New(params) => params.key.is_some() || params.alias.is_some(),
            LogState::Open(_) | LogState::Missing => false,
        };
        self.turns.permit.is_none()
            || is_unique
            || self.agent.agent.needs_durable_start()
            || self.agent.hooks.intercepts_events()
    }

    /// Reads the log, handles the command, and runs the task until it is idle.
    ///
    /// `recovery_permit` bounds the number of concurrent recoveries. It is released when the command was handled.
    pub(super) async fn run_stored(
        mut self: Box<Self>,
        command: RunnerCommand,
        recovery_permit: Option<OwnedSemaphorePermit>,
    ) {
        let mut command = command;
        if self.engine.inner.lease.is_shared() {
            // Boxed: future size.
            match Box::pin(self.run_remote_commands(command)).await {
                Some(claimed) => command = claimed,
                None => return,
            }
        }
        let mut retry_delay = MIN_RETRY_DELAY;
        while let Err(error) = self.reload().await {
            tracing::error!(
                task = %self.id,
                error = &error as &dyn std::error::Error,
                "log unreadable"
            );
            let is_recovery = matches!(command, RunnerCommand::Recover);
            if is_recovery && error.is_damage() {
                // Ends the task in its head: nothing else would, and lists would show it as running.
                return self.fail_damaged().await;
            }
            if !is_recovery || !matches!(error, Error::Store(store::Error::Failed(_))) {
                return self.reject_all(command, error);
            }
            // Startup recovery looks at each task once, so an interrupted task is retried here.
            self.wait_for_store(&mut retry_delay).await;
        }
        let handled = self.handle_first_command(command).await;
        drop(recovery_permit);
        let result = match handled {
            Ok(()) => self.run_turns().await,
            Err(stop) => Err(stop),
        };
        if let Err(stop) = result {
            // Boxed: future size.
            Box::pin(self.retry_until_ended(stop)).await;
        }
    }

    /// Runs turns, and handles commands in between, until there is neither a message nor a command.
    async fn run_turns(&mut self) -> RunnerResult {
        loop {
            while let Some(message) = self.log.next_message().cloned() {
                if self.turns.permit.is_none() {
                    match self.wait_for_turn_permit().await? {
                        PermitWait::Acquired => {}
                        PermitWait::TaskEnded => break,
                    }
                }
                // A repeated attempt is durable before it runs: otherwise a turn that crashes the process would be
                // repeated without limit.
                if self.agent.agent.needs_durable_start() || self.log.attempts > 1 {
                    self.commit(None, CommitPoint::Interim).await?;
                }
                turn::run(self, message).await?;
                self.turns.permit = None;
                if self.log.next_message().is_some() {
                    self.refresh_agent();
                }
            }
            let Some(command) = self.next_command() else {
                return Ok(());
            };
            self.refresh_agent();
            Box::pin(self.handle_command(command)).await?;
        }
    }

    /// Looks up the agent again, which may have been replaced.
    fn refresh_agent(&mut self) {
        self.agent = self.engine.inner.agents.agent_for(&self.scope);
    }

    /// Waits for a turn permit, and handles commands and foreign appends during the wait.
    async fn wait_for_turn_permit(&mut self) -> RunnerResult<PermitWait> {
        let slot = self.turns.waiting_slot.take();
        let _slot = slot.unwrap_or_else(|| WaitingSlot::new(&self.engine));
        let since = Instant::now();
        let turn_permits = self.engine.inner.turn_permits.clone();
        let agent = self.agent.clone();
        let mut acquire = pin!(agent.acquire_turn(turn_permits, self.caller_key()));
        while self.log.next_message().is_some() {
            tokio::select! {
                biased;
                permit = &mut acquire => {
                    if self.engine.inner.stop.is_cancelled() {
                        // A permit released by a turn that was stopped. This runner is stopped, too.
                        std::future::pending::<()>().await;
                    }
                    self.turns.permit = Some(permit);
                    self.turns.queue_time = since.elapsed();
                    self.stage(self.log.turn_start());
                    return Ok(PermitWait::Acquired);
                }
                event = self.next_event() => match event {
                    // Not applicable: the task has a runner.
                    RunnerEvent::Command(
                        RunnerCommand::Recover
                        | RunnerCommand::Expire
                        | RunnerCommand::ExpireOverQuota,
                    ) => {}
                    RunnerEvent::Command(command) => Box::pin(self.handle_command(command)).await?,
                    RunnerEvent::LogGrew => Box::pin(self.catch_up()).await?,
                    RunnerEvent::LeaseLost => return Err(RunnerStop::Superseded),
                }
            }
        }
        Ok(PermitWait::TaskEnded)
    }

    /// Returns the next command. If there is none, the runner retires: it no longer owns the task.
    fn next_command(&mut self) -> Option<RunnerCommand> {
        let active_tasks = &self.engine.inner.journal.active_tasks;
        let command = active_tasks.next_or_retire(&self.id, self.inbox.as_mut()?);
        if command.is_none() {
            self.inbox = None;
        }
        command
    }

    /// Handles the first command of a task that was read from the store.
    ///
    /// On a shared store a task that has work left and no runner is recovered first: its holder is gone.
    pub(super) async fn handle_first_command(&mut self, command: RunnerCommand) -> RunnerResult {
        if self.engine.inner.lease.is_shared() {
            self.begin_holding(true);
            if !matches!(command, RunnerCommand::Recover) {
                Box::pin(self.recover()).await?;
            }
        }
        self.handle_command(command).await
    }

    /// Handles a command while no turn runs.
    async fn handle_command(&mut self, command: RunnerCommand) -> RunnerResult {
        match command {
            RunnerCommand::Message(incoming) => self.accept_message(*incoming).await,
            RunnerCommand::Cancel {
                metadata,
                deadline,
                reply,
            } => self.cancel(metadata, deadline, reply).await,
            RunnerCommand::RecordLate => {
                self.stage([reason::late_event()]);
                self.commit(None, CommitPoint::Final).await
            }
            RunnerCommand::Recover => self.recover().await,
            RunnerCommand::Expire => self.expire().await,
            RunnerCommand::ExpireOverQuota if self.log.is_parked() => {
                self.fail_task(reason::EXPIRED).await
            }
            RunnerCommand::ExpireOverQuota => Ok(()),
        }
    }

    /// Cancels the task while no turn runs.
    async fn cancel(
        &mut self,
        metadata: Option<Object>,
        deadline: Instant,
        reply: oneshot::Sender<Result<Task>>,
    ) -> RunnerResult {
        if deadline <= Instant::now() {
            let _ = reply.send(Err(Error::StoreUnavailable));
            return Ok(());
        }
        if self.log.task.is_ended() {
            let _ = reply.send(Err(Error::Ended(self.log.task.status.state)));
            return Ok(());
        }
        let canceled = [
            Event::CancelRequested {
                metadata: metadata.clone(),
            },
            status_event(TaskState::Canceled),
        ];
        self.stage_own(canceled.into()).await;
        let committed = self.commit(None, CommitPoint::Final).await;
        if let Err(RunnerStop::Superseded) = committed {
            self.hand_over(RunnerCommand::Cancel {
                metadata,
                deadline,
                reply,
            });
            return committed;
        }
        if committed.is_ok() {
            self.notify_canceled().await;
        }
        self.reply_to_cancel(reply, committed.is_ok());
        committed
    }

    /// Calls the agent's `on_canceled`, for at most `cancel_grace`. Its failure is logged: the task has ended.
    async fn notify_canceled(&self) {
        let notified = timeout(
            self.engine.inner.settings.cancel_grace,
            self.agent.agent.on_canceled(&self.log.task),
        );
        if let Ok(Err(failure)) = notified.await {
            let cause = failure.cause() as &dyn std::error::Error;
            let agent = &self.scope.agent;
            tracing::warn!(task = %self.id, %agent, cause, "agent failed in on_canceled");
        }
    }

    /// Replies to a cancel whose commit succeeded or failed.
    pub(super) fn reply_to_cancel(&self, reply: oneshot::Sender<Result<Task>>, is_committed: bool) {
        let result = match self.log.task.status.state {
            _ if !is_committed => Err(Error::StoreUnavailable),
            TaskState::Canceled => Ok(Task::clone(&self.log.task)),
            state => Err(Error::Ended(state)),
        };
        let _ = reply.send(result);
    }

    /// Returns whether a command is waiting.
    pub(super) fn has_commands(&self) -> bool {
        self.inbox.as_ref().is_some_and(Inbox::has_commands)
    }

    /// Frees the memory of large empty buffers, before a wait.
    pub(super) fn shrink_buffers(&mut self) {
        self.pipeline.shrink();
    }
}

impl Drop for Runner {
    /// A runner that still has its inbox was interrupted: by shutdown, or by a panic, after which another one starts.
    fn drop(&mut self) {
        if self.inbox.is_some() {
            self.mark_unwritable();
            if std::thread::panicking() {
                self.respawn();
            }
        }
    }
}

/// Outcome of waiting for a turn permit.
enum PermitWait {
    Acquired,
    /// The task ended before, or its message was answered by another process.
    TaskEnded,
}

fn alias_metadata(alias: &TaskId) -> Object {
    [(LEGACY_TASK_ID_KEY, alias.as_str())].into_iter().collect()
}

/// Waits for the next command. Without an inbox, waits without end.
async fn recv_or_pending(inbox: &mut Option<Inbox>) -> RunnerCommand {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}
