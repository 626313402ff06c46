//! One turn after the other: agent -> queue -> batch -> append -> announce.

mod commit;
mod messages;
mod recovery;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

use super::active_tasks::{ActiveTask, Dispatch, Inbox, IncomingMessage, RunnerCommand};
use super::agent_registry::{AgentHandle, TurnPermit};
use super::folded_log::FoldedLog;
use super::maintenance::MIN_RETRY_DELAY;
use super::turn;
use super::{AcceptedMessage, Engine, Error, InitialMessage, Result, reason};
use crate::agent::Failure;
use crate::model::{Call, Event, Scope, Seq, Task, TaskId, TaskState, Timestamp, Version};
use crate::store::Head;
use crate::telemetry::metrics;
use commit::CreateParams;
use recovery::reject;

pub(super) use commit::{AppendAttempt, status_event};

/// 04 §4: under this name the metadata of a task have what a client of the first days calls it.
const LEGACY_TASK_ID_KEY: &str = "a2a.legacyTaskId";

/// Room for so many events is kept by a task that waits.
const IDLE_CAPACITY: usize = 4;

/// How many events there are of a task that is over as soon as it has begun.
const QUICK_TURN_EVENTS: usize = 6;

/// Works on one task. While there is one, nobody else in this process writes to its log.
pub(super) struct Runner {
    pub(super) engine: Engine,
    pub(super) id: TaskId,
    pub(super) scope: Scope,
    /// The fold of everything written and about to be written.
    pub(super) log: FoldedLog,
    /// How large the task is, in bytes, about.
    pub(super) task_bytes: usize,
    /// What is folded and not durable yet, and when the first of it was.
    staged: Vec<Event>,
    staged_bytes: usize,
    /// Room for what is planned next, from what was written before.
    spare_buffer: Vec<Event>,
    staged_since: Timestamp,
    /// The end of what is durable; 0 as long as the task does not exist.
    durable_position: Seq,
    /// Set once the log is open.
    pub(super) head: Option<Head>,
    create_params: Option<CreateParams>,
    /// How the agent failed before its first turn.
    pub(super) failure: Option<Failure>,
    active: Option<Arc<ActiveTask>>,
    inbox: Option<Inbox>,
    /// What others add to the log, and how far we have looked at that.
    watch: Option<watch::Receiver<Seq>>,
    seen_position: Seq,
    /// Whether somebody elsewhere has asked for the task to be canceled.
    cancel_requested: bool,
    /// Who works on it.
    pub(super) agent_handle: Arc<AgentHandle>,
    /// Leave to run the turn that was begun.
    turn_permit: Option<TurnPermit>,
    /// Held while the task waits for that leave.
    waiting_slot: Option<WaitingTurn>,
    /// Who sent the messages that wait, as far as we know, by the number of their turn.
    callers: VecDeque<(u64, Call)>,
    /// How long to wait before the task is tried again when this one fails.
    retry_delay: Duration,
    /// How long the turn that begins has waited for leave.
    pub(super) queue_time: Duration,
    /// The version of the last call that was heard of.
    pub(super) version: Version,
}

impl Runner {
    /// A runner for a task that does not exist yet; it has leave to run, or a place among those that wait.
    ///
    /// # Errors
    /// Enough wait already, or the message is larger than a task may be.
    pub(super) fn for_new_task(
        engine: Engine,
        call: Call,
        opening: InitialMessage,
        reply: oneshot::Sender<Result<Box<AcceptedMessage>>>,
    ) -> Result<Box<Self>> {
        let InitialMessage {
            mut message,
            key,
            alias,
            config,
            failure,
            is_followed,
        } = opening;
        let id = TaskId::from(engine.clock.new_id());
        let context_id = message
            .context_id
            .clone()
            .unwrap_or_else(|| engine.new_context_id());
        let own = Arc::make_mut(&mut message);
        reason::strip_reason(own);
        (own.task_id, own.context_id) = (Some(id.clone()), Some(context_id.clone()));
        let metadata = alias
            .as_ref()
            .map(|alias| [(LEGACY_TASK_ID_KEY, alias.as_str())].into_iter().collect());
        let created = Event::Created {
            id: id.clone(),
            context_id: context_id.clone(),
            metadata,
        };
        let mut runner = Self::new(engine, id, call.scope.clone());
        (runner.failure, runner.create_params) = (
            failure,
            Some(CreateParams {
                context_id,
                key,
                alias,
                config,
                is_followed,
                reply,
            }),
        );
        runner.version = call.version;
        runner.staged.reserve_exact(QUICK_TURN_EVENTS);
        runner.staged.push(created);
        runner.staged.push(Event::Message(message));
        runner
            .staged
            .extend(call.trace.clone().map(Event::TraceContext));
        runner.callers.push_back((1, call));
        let weight: usize = runner.staged.iter().map(Event::memory_size).sum();
        if weight > runner.engine.settings.max_task_bytes {
            metrics::record_limit_hit("max_task_bytes");
            return Err(Error::TooLarge);
        }
        // Not `try_begin_turn`: all of it is folded at once.
        runner.turn_permit = runner
            .agent_handle
            .try_acquire_turn(&runner.engine.turn_permits);
        if runner.turn_permit.is_some() {
            runner.staged.extend(runner.log.turn_start());
        }
        runner.stage_from(0);
        if runner.turn_permit.is_none() {
            // Taken before the first wait, so that a thousand who come at once count as a thousand.
            let waiting_slot = WaitingTurn::new(&runner.engine);
            if waiting_slot.number > runner.engine.settings.max_waiting_turns {
                metrics::record_limit_hit("max_waiting_turns");
                return Err(Error::Overloaded);
            }
            runner.waiting_slot = Some(waiting_slot);
        }
        Ok(runner)
    }

    /// A runner for a task that nobody works on.
    pub(super) fn for_stored_task(
        engine: Engine,
        head: Head,
        active: Arc<ActiveTask>,
        inbox: Inbox,
    ) -> Box<Self> {
        let mut runner = Self::new(engine, head.id.clone(), head.scope.clone());
        (runner.head, runner.active, runner.inbox) = (Some(head), Some(active), Some(inbox));
        runner
    }

    /// A runner that knows nothing yet. In a box from the start: it is large.
    fn new(engine: Engine, id: TaskId, scope: Scope) -> Box<Self> {
        Box::new(Self {
            agent_handle: engine.agents.agent_for(&scope),
            engine,
            id,
            scope,
            log: FoldedLog::empty(),
            task_bytes: 0,
            staged: Vec::new(),
            staged_bytes: 0,
            spare_buffer: Vec::new(),
            staged_since: Timestamp::default(),
            durable_position: Seq(0),
            head: None,
            create_params: None,
            failure: None,
            active: None,
            inbox: None,
            watch: None,
            seen_position: Seq(0),
            cancel_requested: false,
            turn_permit: None,
            waiting_slot: None,
            callers: VecDeque::with_capacity(1),
            retry_delay: MIN_RETRY_DELAY,
            queue_time: Duration::ZERO,
            version: Version::V1,
        })
    }

    /// Opens the log and works until nothing is left to do.
    pub(super) async fn run_new(mut self: Box<Self>) {
        // Where a second run must not happen, and where the turn cannot begin, the record comes first.
        let named = |create_params: &CreateParams| {
            create_params.key.is_some() || create_params.alias.is_some()
        };
        let named = self.create_params.as_ref().is_some_and(named);
        let first =
            self.turn_permit.is_none() || named || self.agent_handle.agent.needs_durable_start();
        let opened = if first {
            self.commit(None, false).await
        } else {
            Ok(())
        };
        let ended = match opened {
            Ok(()) if self.create_params.is_none() && self.head.is_none() => return,
            Ok(()) => self.run_turns().await,
            Err(error) => Err(error),
        };
        if ended.is_err() {
            // Apart: what happens rarely is not carried around by every task.
            Box::pin(self.retry_until_ended(ended)).await;
        }
    }

    /// Reads the log, grants the wish, and works until nothing is left to do.
    pub(super) async fn run_stored(mut self: Box<Self>, command: RunnerCommand) {
        let mut retry_delay = MIN_RETRY_DELAY;
        while let Err(error) = self.reload().await {
            tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "log unreadable");
            if !matches!(
                (&command, &error),
                (RunnerCommand::Recover(_), Error::Store(_))
            ) {
                let gone = matches!(error, Error::Deleted);
                reject(command, error);
                return self.reject_commands(if gone {
                    || Error::Deleted
                } else {
                    || Error::StoreUnavailable
                });
            }
            // Nobody else will come for it: a task that was cut off must not stay so.
            self.wait_for_store(&mut retry_delay).await;
        }
        let ended = match self.handle_command(command).await {
            Ok(()) => self.run_turns().await,
            Err(error) => Err(error),
        };
        if ended.is_err() {
            // Apart: what happens rarely is not carried around by every task.
            Box::pin(self.retry_until_ended(ended)).await;
        }
    }

    /// Works turn by turn, and grants wishes in between, until there are none.
    async fn run_turns(&mut self) -> Result<()> {
        loop {
            while let Some(message) = self.log.next_message().cloned() {
                if self.turn_permit.is_none() && !self.wait_for_turn_permit().await? {
                    break;
                }
                // A turn that runs again is counted before it does, or it could kill the process for ever.
                if self.agent_handle.agent.needs_durable_start() || self.log.attempts > 1 {
                    self.commit(None, false).await?;
                }
                turn::run(self, message).await?;
                self.turn_permit = None;
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

    /// Somebody else may have the place of the one who has worked.
    fn refresh_agent(&mut self) {
        self.agent_handle = self.engine.agents.agent_for(&self.scope);
    }

    /// Whether one more task may wait for its turn, or need not wait.
    pub(super) fn can_queue_turn(&self) -> bool {
        let waiting_slot = WaitingTurn::new(&self.engine);
        waiting_slot.number <= self.engine.settings.max_waiting_turns
            || self
                .agent_handle
                .try_acquire_turn(&self.engine.turn_permits)
                .is_some()
    }

    /// Plans the beginning of the next turn, if there is leave to run it.
    fn try_begin_turn(&mut self) {
        self.turn_permit = self
            .agent_handle
            .try_acquire_turn(&self.engine.turn_permits);
        if self.turn_permit.is_some() {
            self.stage(self.log.turn_start());
        }
    }

    /// Waits until a turn may begin, granting wishes meanwhile; false when the task has ended before.
    async fn wait_for_turn_permit(&mut self) -> Result<bool> {
        let _place = self
            .waiting_slot
            .take()
            .unwrap_or_else(|| WaitingTurn::new(&self.engine));
        let agent_handle = self.agent_handle.clone();
        let since = Instant::now();
        let mut free = pin!(agent_handle.acquire_turn(self.engine.turn_permits.clone()));
        while self.log.next_message().is_some() {
            tokio::select! {
                biased;
                permit = &mut free => {
                    if self.engine.stop.is_cancelled() {
                        // Leave that others gave back because they were stopped: so are we.
                        std::future::pending::<()>().await;
                    }
                    self.turn_permit = Some(permit.ok_or(Error::ShuttingDown)?);
                    self.queue_time = since.elapsed();
                    self.stage(self.log.turn_start());
                    return Ok(true);
                }
                event = self.next_event() => match event {
                    // Somebody does work on it.
                    RunnerEvent::Command(RunnerCommand::Recover(_) | RunnerCommand::Expire | RunnerCommand::ExpireOverQuota) => {}
                    RunnerEvent::Command(command) => Box::pin(self.handle_command(command)).await?,
                    RunnerEvent::LogGrew => Box::pin(self.catch_up()).await?,
                }
            }
        }
        Ok(false)
    }

    /// The next wish that waits; without one this runner is no longer the task's.
    fn next_command(&mut self) -> Option<RunnerCommand> {
        let command = self
            .engine
            .journal
            .active_tasks
            .retire(&self.id, self.inbox.as_mut()?);
        if command.is_none() {
            self.inbox = None;
        }
        command
    }

    /// Does what somebody wants of a task while no turn runs.
    pub(super) async fn handle_command(&mut self, command: RunnerCommand) -> Result<()> {
        match command {
            RunnerCommand::Message(incoming) => self.accept_message(*incoming).await,
            RunnerCommand::Cancel {
                metadata,
                deadline,
                reply,
            } => {
                if deadline <= Instant::now() {
                    let _ = reply.send(Err(Error::StoreUnavailable));
                    return Ok(());
                }
                if self.log.task.is_ended() {
                    let _ = reply.send(Err(Error::Ended(self.log.task.status.state)));
                    return Ok(());
                }
                self.stage([
                    Event::CancelRequested { metadata },
                    status_event(TaskState::Canceled),
                ]);
                let committed = self.commit(None, true).await;
                if committed.is_ok() {
                    self.notify_canceled().await;
                }
                self.reply_to_cancel(reply, committed)
            }
            RunnerCommand::RecordLate => {
                self.stage(vec![reason::late_event()]);
                self.commit(None, true).await
            }
            RunnerCommand::Recover(_place) => self.recover().await,
            RunnerCommand::Expire => self.expire().await,
            RunnerCommand::ExpireOverQuota if self.log.is_parked() => {
                self.fail_task("expired").await
            }
            RunnerCommand::ExpireOverQuota => Ok(()),
        }
    }

    /// Who sent the message of the turn that begins.
    pub(super) fn take_call(&mut self) -> Call {
        let turn = self.log.current_turn();
        while self
            .callers
            .front()
            .is_some_and(|(number, _)| *number < turn)
        {
            self.callers.pop_front();
        }
        let call = self.callers.pop_front_if(|(number, _)| *number == turn);
        call.map(|(_, call)| call).unwrap_or_else(|| {
            // Before us, or elsewhere: of all that surrounded it the log has this.
            let trace = self.log.trace_for_turn(turn).cloned();
            Call {
                trace,
                ..Call::new(self.scope.clone())
            }
        })
    }

    /// Tells the agent that a task of its was canceled while it did nothing for it. The task has ended whatever it does.
    async fn notify_canceled(&self) {
        let notified = timeout(
            self.engine.settings.cancel_grace,
            self.agent_handle.agent.on_canceled(&self.log.task),
        )
        .await;
        if let Ok(Err(failure)) = notified {
            let cause = failure.cause() as &dyn std::error::Error;
            let agent = &self.scope.agent;
            tracing::warn!(task = %self.id, %agent, cause, "agent failed while it was told of a cancel");
        }
    }

    pub(super) fn reply_to_cancel(
        &self,
        reply: oneshot::Sender<Result<Task>>,
        committed: Result<()>,
    ) -> Result<()> {
        let canceled = match (&committed, self.log.task.status.state) {
            (Err(_), _) => Err(Error::StoreUnavailable),
            (Ok(()), TaskState::Canceled) => Ok(Task::clone(&self.log.task)),
            (Ok(()), state) => Err(Error::Ended(state)),
        };
        let _ = reply.send(canceled);
        committed
    }

    /// Whose task it is.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether somebody wants something of the task.
    pub(super) fn has_commands(&self) -> bool {
        self.inbox.as_ref().is_some_and(Inbox::has_commands)
    }

    /// Gives back room that one who waits does not need.
    pub(super) fn shrink_buffers(&mut self) {
        shrink_if_empty(&mut self.spare_buffer);
        shrink_if_empty(&mut self.staged);
    }

    /// Whether the fold should go to the store when nothing is on its way there.
    pub(super) fn is_snapshot_due(&self) -> bool {
        self.active.as_ref().is_some_and(|active| {
            active.is_snapshot_due(self.engine.journal.snapshot_min_entries, false, false)
        })
    }

    /// What happens next, apart from the agent.
    pub(super) async fn next_event(&mut self) -> RunnerEvent {
        if !self.engine.journal.store.has_external_writers() {
            return RunnerEvent::Command(recv_or_pending(&mut self.inbox).await);
        }
        let watch = self
            .watch
            .get_or_insert_with(|| self.engine.journal.watch(&self.id));
        let known = self.durable_position.max(self.seen_position);
        tokio::select! {
            biased;
            command = recv_or_pending(&mut self.inbox) => RunnerEvent::Command(command),
            at = wait_for_growth(watch, known) => {
                // Once for every announcement: what is not there yet is announced again.
                self.seen_position = at;
                RunnerEvent::LogGrew
            }
        }
    }

    /// Takes in what others wrote while we wait for leave to run: a cancel needs none.
    async fn catch_up(&mut self) -> Result<()> {
        self.refresh().await?;
        if self.cancel_requested && !self.log.task.is_ended() {
            self.stage([status_event(TaskState::Canceled)]);
            self.commit(None, true).await?;
        }
        Ok(())
    }

    /// Whether somebody elsewhere has ended the task, or asked for that.
    pub(super) fn is_stopping(&self) -> bool {
        self.cancel_requested || self.log.task.is_ended()
    }

    /// Whether somebody elsewhere has asked for the task to be canceled since this was last looked at.
    pub(super) fn take_cancel_request(&mut self) -> bool {
        std::mem::take(&mut self.cancel_requested)
    }
}

impl Drop for Runner {
    /// Only one that was cut off still is the task's: those who follow must not wait for it.
    fn drop(&mut self) {
        if self.inbox.is_some() {
            self.mark_unwritable();
            if std::thread::panicking() {
                self.respawn();
            }
        }
    }
}

/// What reaches a runner from outside.
pub(super) enum RunnerEvent {
    /// Somebody wants something.
    Command(RunnerCommand),
    /// Somebody else has added to the log.
    LogGrew,
}

/// Ready when the log reaches further than we know.
async fn wait_for_growth(watch: &mut watch::Receiver<Seq>, known: Seq) -> Seq {
    loop {
        let at = *watch.borrow_and_update();
        if at > known {
            return at;
        }
        if watch.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Gives back the room of much more than comes at once, where there is nothing in it.
pub(super) fn shrink_if_empty(events: &mut Vec<Event>) {
    if events.is_empty() && events.capacity() > IDLE_CAPACITY {
        *events = Vec::new();
    }
}

async fn recv_or_pending(inbox: &mut Option<Inbox>) -> RunnerCommand {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}

/// Counts a task among those that wait for a turn, for as long as it lives.
struct WaitingTurn {
    count: Arc<AtomicUsize>,
    /// How many waited when it came, itself included.
    number: usize,
}

impl WaitingTurn {
    fn new(engine: &Engine) -> Self {
        let number = engine.waiting_turns.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            count: engine.waiting_turns.clone(),
            number,
        }
    }
}

impl Drop for WaitingTurn {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
