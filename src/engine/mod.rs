//! Engine: the only module that changes tasks.
//!
//! Each active task has exactly one [`runner::Runner`] in this process. Callers send it a command; if there is none,
//! the caller starts one. Runners are not owned by connections: a task outlives its caller.
//!
//! Entry points: [`Engine::start`] (new task), [`Engine::continue_task`] (message to a task), [`Engine::cancel`],
//! [`Engine::follow`] (stream), [`Engine::recover`] (startup), [`Engine::run_maintenance`] (expiry and retention).

mod accepted_message;
mod active_tasks;
mod agent_registry;
mod clock;
mod detach_on_drop;
mod error;
mod folded_log;
mod follow;
mod follower_cache;
mod inbox;
mod journal;
mod large_encodings;
mod lease;
mod log_polling;
mod maintenance;
mod membership;
mod reason;
mod runner;
mod settings;
mod shared_entry;
mod snapshots;
mod tail;
mod task_cache;
#[cfg(test)]
pub(crate) mod tests;
mod turn;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Failure;
use crate::bus::Bus;
use crate::model::{
    Call, CallMetadata, Caller, CallerKey, ContextId, Message, Object, PushConfigId, Scope, Seq,
    Task, TaskId, Timestamp, TraceContext, Version,
};
use crate::rt::FairSemaphore;
use crate::store::{
    Head, IdempotencyKey, IdempotencyRecord, PushRegistration, ReplicaInfo, Store, TaskCounts,
    TaskPage, TaskQuery, Webhook, WebhookFilter,
};
use active_tasks::Dispatch;
use clock::{AdjustedClock, Clock, SteadyClock};
use detach_on_drop::DetachOnDrop;
use inbox::{Inbox, IncomingMessage, RunnerCommand};
use journal::Journal;
use lease::Lease;
use maintenance::SweepTriggers;
use membership::MembershipSignals;
use runner::Runner;

pub(crate) use accepted_message::AcceptedMessage;
pub(crate) use agent_registry::{AgentHandle, AgentRegistration, AgentRegistry, AgentSet};
pub(crate) use clock::SystemClock;
pub(crate) use error::{Error, Result};
pub(crate) use follow::Follow;
pub use settings::{AgentSettings, LeaseExpiryPolicy, RestartPolicy, Settings, UnansweredPolicy};
pub(crate) use shared_entry::SharedEntry;
pub(crate) use task_cache::TaskView;

/// Semaphore of concurrent turns, fair among callers.
type TurnSemaphore = FairSemaphore<CallerKey>;

/// Timeout of the store check of `/readyz`.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for a reply, for settings that the clock cannot represent.
const MAX_REPLY_WAIT: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Creates tasks, runs agents, and gives access to tasks and their logs. Clones share one state.
#[derive(Clone)]
pub(crate) struct Engine {
    inner: Arc<EngineInner>,
}

/// State shared by all clones of an [`Engine`].
pub(crate) struct EngineInner {
    journal: Arc<Journal>,
    agents: AgentRegistry,
    clock: Arc<dyn Clock>,
    /// Clock for the expiry of tasks.
    steady_clock: SteadyClock,
    /// Clock for the deletion of tasks. In addition it starts no later than the newest entry of the store.
    retention_clock: SteadyClock,
    tracker: TaskTracker,
    /// Cancelled at shutdown.
    stop: CancellationToken,
    settings: Settings,
    /// Permits for concurrent turns (`max_turns`).
    turn_permits: TurnSemaphore,
    /// Number of tasks that wait for a turn permit (`max_waiting_turns`).
    waiting_turns: Arc<AtomicUsize>,
    sweep_triggers: SweepTriggers,
    lease: Lease,
    membership: MembershipSignals,
    /// The clock of [`clock`](Self::clock) on a shared store, to measure its offset.
    adjusted_clock: Option<Arc<AdjustedClock>>,
}

/// Components and settings of an [`Engine`].
pub(crate) struct EngineConfig {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) agents: AgentRegistry,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// Runs detached tasks. Close and await it at shutdown.
    pub(crate) tracker: TaskTracker,
    /// Drops all turns when it is cancelled.
    pub(crate) stop: CancellationToken,
}

/// Properties of the store, for operators.
pub(crate) struct StoreInfo {
    pub(crate) kind: &'static str,
    pub(crate) is_durable: bool,
}

/// A message that creates a task.
pub(crate) struct InitialMessage {
    pub(crate) message: Arc<Message>,
    pub(crate) key: Option<IdempotencyKey>,
    /// Task id that a client of version 0.1 or 0.2 has chosen.
    pub(crate) alias: Option<TaskId>,
    /// Webhook, registered together with the creation.
    pub(crate) config: Option<Box<PushRegistration>>,
    /// Failure of the agent before the task was created. The first turn ends with it.
    pub(crate) failure: Option<Failure>,
    /// Whether the sender is going to read the log from its first entry (streaming send).
    pub(crate) is_followed: bool,
}

impl From<Message> for InitialMessage {
    fn from(message: Message) -> Self {
        Self {
            message: Arc::new(message),
            key: None,
            alias: None,
            config: None,
            failure: None,
            is_followed: false,
        }
    }
}

impl Engine {
    pub(crate) fn new(config: EngineConfig) -> Self {
        let EngineConfig {
            store,
            bus,
            agents,
            clock,
            settings,
            tracker,
            stop,
        } = config;
        let settings = settings.for_store(&*store);
        let lease = Lease::new(store.lease());
        let machine_clock = clock.clone();
        let adjusted_clock = lease
            .is_shared()
            .then(|| Arc::new(AdjustedClock::new(machine_clock)));
        let clock = match &adjusted_clock {
            Some(adjusted) => adjusted.clone() as Arc<dyn Clock>,
            None => clock,
        };
        let journal = Journal::new(store, bus, &settings, tracker.clone(), stop.clone());
        let turn_permits = FairSemaphore::new(settings.max_turns, settings.max_turns_per_caller);
        Self {
            inner: Arc::new(EngineInner {
                journal: Arc::new(journal),
                agents,
                clock,
                steady_clock: SteadyClock::default(),
                retention_clock: SteadyClock::default(),
                tracker,
                stop,
                settings,
                turn_permits,
                waiting_turns: Arc::default(),
                sweep_triggers: SweepTriggers::default(),
                lease,
                membership: MembershipSignals::default(),
                adjusted_clock,
            }),
        }
    }

    /// Returns the current agents.
    pub(crate) fn agents(&self) -> AgentSet {
        self.inner.agents.agents()
    }

    /// Prepares agents that are to replace the current ones; see [`replace_agents`](Self::replace_agents).
    pub(crate) fn prepare_agents(
        &self,
        agents: impl IntoIterator<Item = AgentRegistration>,
    ) -> AgentSet {
        self.inner.agents.prepare_agents(agents)
    }

    /// Replaces the agents. Running turns finish with the agent that started them.
    pub(crate) fn replace_agents(&self, agents: AgentSet) {
        self.inner.agents.replace(agents);
    }

    /// Returns the head of a task, or `None` if the scope does not contain it.
    pub(crate) async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        self.with_store_timeout(async { Ok(self.inner.journal.find(scope, task).await?) })
            .await
    }

    /// Returns a page of the scope's tasks.
    pub(crate) async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage> {
        self.with_store_timeout(async { Ok(self.inner.journal.list(scope, query).await?) })
            .await
    }

    /// Lists at most `limit` tasks of all scopes that have not ended, by id.
    pub(crate) async fn list_unfinished(&self, limit: usize) -> Result<Vec<Head>> {
        let store = &self.inner.journal.store;
        self.with_store_timeout(async { Ok(store.list_unfinished(None, limit).await?) })
            .await
    }

    /// Counts the tasks of this scope's agent and tenant, of all callers. `None` if the store does not count them.
    pub(crate) async fn count_tasks(&self, scope: &Scope) -> Result<Option<TaskCounts>> {
        self.with_store_timeout(async {
            Ok(self
                .inner
                .journal
                .store
                .count_tasks(&scope.agent, &scope.tenant)
                .await?)
        })
        .await
    }

    /// Returns the task, at least as new as `head`, and its position. To read on, follow from that position.
    pub(crate) async fn task(&self, head: &Head) -> Result<(Arc<Task>, Seq)> {
        let log = self
            .with_store_timeout(self.inner.journal.log(head))
            .await?;
        Ok((log.task, log.position))
    }

    /// Returns the task from the cache, if it is cached and current. `None` does not mean that it does not exist.
    pub(crate) fn cached_task(&self, scope: &Scope, task: &TaskId) -> Option<TaskView> {
        self.inner.journal.cached_task(scope, task)
    }

    /// Returns the task, at least as new as `head`, for encoding.
    pub(crate) async fn task_view(&self, head: &Head) -> Result<TaskView> {
        self.with_store_timeout(self.inner.journal.task_view(head))
            .await
    }

    /// Returns a reader of the entries after a position, present and future.
    pub(crate) fn follow(&self, head: &Head, position: Seq) -> Follow {
        self.inner.journal.follow(head, position)
    }

    /// Returns an error while the task's log cannot be written: a subscriber would wait for nothing.
    pub(crate) fn check_writable(&self, head: &Head) -> Result<()> {
        match self.inner.journal.active_tasks.get(&head.id) {
            Some(active) if active.is_unwritable() => Err(Error::StoreUnavailable),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns a new context id.
    pub(crate) fn new_context_id(&self) -> ContextId {
        self.new_id().into()
    }

    /// Returns a new unique id.
    pub(crate) fn new_id(&self) -> Arc<str> {
        let clock = &self.inner.clock;
        clock.new_id(clock.now())
    }

    /// Returns whether the store keeps tasks after their turn.
    pub(crate) fn keeps_tasks(&self) -> bool {
        self.inner.journal.store.keeps_tasks()
    }

    /// Returns the kind of the store, and whether it is durable.
    pub(crate) fn store_info(&self) -> StoreInfo {
        let store = &self.inner.journal.store;
        StoreInfo {
            kind: store.kind(),
            is_durable: store.is_durable(),
        }
    }

    /// Checks that the store responds and accepts writes.
    pub(crate) async fn check(&self) -> Result<()> {
        let no_scope = Scope {
            agent: "".into(),
            tenant: "".into(),
            owner: Caller::anonymous(),
        };
        let none = TaskId::from("none");
        let check = async {
            if self.inner.lease.is_valid() {
                self.inner.journal.find(&no_scope, &none).await?;
            }
            let health = self.inner.journal.store.check_health().await;
            health.map_err(Error::Unwritable)?;
            self.check_lease()
        };
        timeout(CHECK_TIMEOUT, check)
            .await
            .unwrap_or(Err(Error::StoreUnavailable))
    }

    /// Registers a webhook of a task.
    pub(crate) async fn put_config(&self, head: &Head, config: &PushRegistration) -> Result<()> {
        self.check_lease()?;
        self.with_store_timeout(async {
            Ok(self.inner.journal.store.put_config(head, config).await?)
        })
        .await
    }

    /// Returns the webhooks of a task, oldest first.
    pub(crate) async fn list_configs(&self, head: &Head) -> Result<Vec<PushRegistration>> {
        self.with_store_timeout(async { Ok(self.inner.journal.store.list_configs(head).await?) })
            .await
    }

    /// Removes a webhook of a task.
    pub(crate) async fn delete_config(&self, head: &Head, id: &PushConfigId) -> Result<()> {
        self.with_store_timeout(async {
            Ok(self.inner.journal.store.delete_config(head, id).await?)
        })
        .await
    }

    /// Returns webhooks of all scopes, for the push dispatcher.
    pub(crate) async fn list_webhooks(
        &self,
        which: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        self.with_store_timeout(async {
            Ok(self
                .inner
                .journal
                .store
                .list_webhooks(which, after, limit)
                .await?)
        })
        .await
    }

    /// Returns a webhook with its delivery state.
    pub(crate) async fn find_webhook(
        &self,
        head: &Head,
        id: &PushConfigId,
    ) -> Result<Option<Webhook>> {
        self.with_store_timeout(async {
            Ok(self.inner.journal.store.find_webhook(head, id).await?)
        })
        .await
    }

    /// Lists the replicas of a shared store.
    pub(crate) async fn list_replicas(&self) -> Result<Vec<ReplicaInfo>> {
        self.with_store_timeout(async { Ok(self.inner.journal.store.list_replicas().await?) })
            .await
    }

    /// Makes this replica the holder of active webhooks without a live holder.
    pub(crate) async fn take_over_webhooks(&self, limit: usize) -> Result<Vec<Webhook>> {
        self.with_store_timeout(async {
            Ok(self.inner.journal.store.take_over_webhooks(limit).await?)
        })
        .await
    }

    /// Counts the active webhooks of a caller on all replicas. `None`: the store does not count them.
    pub(crate) async fn count_open_webhooks(&self, caller: &Caller) -> Result<Option<u64>> {
        self.with_store_timeout(async {
            Ok(self.inner.journal.store.count_open_webhooks(caller).await?)
        })
        .await
    }

    /// Saves the delivery state of a webhook. Returns `false` if the webhook was removed, or another replica holds it.
    pub(crate) async fn record_delivery(&self, push: &Webhook) -> Result<bool> {
        self.with_store_timeout(async { Ok(self.inner.journal.store.record_delivery(push).await?) })
            .await
    }

    /// Returns the state of the task at a position.
    pub(crate) async fn task_at_position(&self, head: &Head, position: Seq) -> Result<Arc<Task>> {
        self.with_store_timeout(self.inner.journal.task_at_position(head, position))
            .await
    }

    /// Returns the trace context of the newest message of a task that had one.
    pub(crate) async fn newest_trace(&self, head: &Head) -> Result<Option<TraceContext>> {
        let log = self
            .with_store_timeout(self.inner.journal.log(head))
            .await?;
        Ok(log.newest_trace().cloned())
    }

    /// Returns the wall-clock time.
    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Creates a task with this message and runs it. The task continues if the returned future is dropped.
    ///
    /// Not an `async fn`: the arguments are moved into the runner before the first poll.
    pub(crate) fn start(
        &self,
        call: Call,
        initial: InitialMessage,
    ) -> impl Future<Output = Result<Box<AcceptedMessage>>> + Send + use<> {
        let (reply, accepted) = oneshot::channel();
        let runner = self
            .check_lease()
            .and_then(|()| Runner::for_new_task(self.clone(), call, initial, reply));
        let work = runner.map(|runner| DetachOnDrop::new(self, Box::pin(runner.run_new())));
        async { work?.run_until_reply(accepted).await }
    }

    /// Returns the earlier message with this idempotency key, if there is one.
    pub(crate) async fn find_replay(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<Box<AcceptedMessage>>> {
        self.with_store_timeout(async {
            match self.inner.journal.store.find_by_key(scope, key).await? {
                Some(record) => Ok(Some(self.accepted_replay(record).await?)),
                None => Ok(None),
            }
        })
        .await
    }

    /// Returns the current task and the turn of the message with an idempotency key.
    async fn accepted_replay(&self, record: IdempotencyRecord) -> Result<Box<AcceptedMessage>> {
        let IdempotencyRecord { head, turn } = record;
        let log = self.inner.journal.log(&head).await?;
        Ok(Box::new(AcceptedMessage {
            turn,
            head,
            log,
            batch: None,
            tail: None,
        }))
    }

    /// Returns the metadata of a call that are recorded on a shared store, where another replica may run its turn.
    fn call_metadata(&self, call: &Call) -> Option<CallMetadata> {
        let is_plain = call.version == Version::V1 && call.extensions.is_empty();
        (self.inner.lease.is_shared() && !is_plain).then(|| CallMetadata {
            version: call.version,
            extensions: call.extensions.clone(),
        })
    }

    /// Returns whether message ids are idempotency keys.
    pub(crate) fn has_idempotent_message_ids(&self) -> bool {
        self.inner.settings.idempotent_message_ids
    }

    /// Adds a message to a task. Its turn runs after those of earlier messages.
    pub(crate) async fn continue_task(
        &self,
        call: Call,
        head: &Head,
        message: Message,
        key: Option<IdempotencyKey>,
    ) -> Result<Box<AcceptedMessage>> {
        self.check_lease()?;
        let (reply, accepted) = oneshot::channel();
        let deadline = self.reply_deadline(Duration::ZERO);
        self.send_command(
            head,
            RunnerCommand::Message(Box::new(IncomingMessage {
                call,
                message,
                key,
                deadline,
                reply,
            })),
        )
        .await?;
        self.await_reply(accepted, deadline).await
    }

    /// Cancels a task, and returns it as canceled.
    pub(crate) async fn cancel(&self, head: &Head, metadata: Option<Object>) -> Result<Task> {
        self.check_lease()?;
        let (reply, canceled) = oneshot::channel();
        // The agent has its grace period, and the store its timeout.
        let deadline = self.reply_deadline(self.inner.settings.cancel_grace);
        self.send_command(
            head,
            RunnerCommand::Cancel {
                metadata,
                deadline,
                reply,
            },
        )
        .await?;
        self.await_reply(canceled, deadline).await
    }

    /// Returns an error while the lease of this replica is expired: another one may take over what it starts.
    fn check_lease(&self) -> Result<()> {
        if self.inner.lease.is_valid() {
            Ok(())
        } else {
            Err(Error::StoreUnavailable)
        }
    }

    /// Returns when a caller of now stops waiting: after the grace period and `store_timeout`.
    fn reply_deadline(&self, grace: Duration) -> Instant {
        let now = Instant::now();
        now.checked_add(grace.saturating_add(self.inner.settings.store_timeout))
            .unwrap_or(now + MAX_REPLY_WAIT)
    }

    /// Waits for the reply of a runner. The runner continues if this is dropped.
    async fn await_reply<T>(
        &self,
        mut reply: oneshot::Receiver<Result<T>>,
        deadline: Instant,
    ) -> Result<T> {
        // If the runner was polled by this task, the reply is there: no timer needed.
        match reply.try_recv() {
            Ok(result) => return result,
            Err(TryRecvError::Closed) => return Err(Error::ShuttingDown),
            Err(TryRecvError::Empty) => {}
        }
        timeout_at(deadline, reply)
            .await
            .map_or(Err(Error::StoreUnavailable), |reply| {
                reply.unwrap_or(Err(Error::ShuttingDown))
            })
    }

    /// Limits a store operation to `store_timeout`.
    async fn with_store_timeout<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let mut operation = pin!(operation);
        // Most operations complete on the first poll, which needs no timer.
        let first_poll = poll_fn(|context| Poll::Ready(operation.as_mut().poll(context)));
        if let Poll::Ready(result) = first_poll.await {
            return result;
        }
        timeout(self.inner.settings.store_timeout, operation)
            .await
            .unwrap_or(Err(Error::StoreUnavailable))
    }

    /// Sends a command to the runner of a task, or starts one.
    async fn send_command(&self, head: &Head, command: RunnerCommand) -> Result<()> {
        let active_tasks = &self.inner.journal.active_tasks;
        match active_tasks.dispatch(head, command) {
            Dispatch::Delivered => Ok(()),
            Dispatch::QueueFull => Err(Error::Overloaded),
            Dispatch::NoRunner(command, inbox) => {
                self.start_runner(head, command, inbox, None).await;
                Ok(())
            }
        }
    }

    /// Starts a runner for a task that has none, with its first command. `recovery_permit` is released when the command
    /// was handled.
    async fn start_runner(
        &self,
        head: &Head,
        command: RunnerCommand,
        inbox: Inbox,
        recovery_permit: Option<OwnedSemaphorePermit>,
    ) {
        let runner = Runner::for_stored_task(self.clone(), head.clone(), inbox);
        let run = Box::pin(runner.run_stored(command, recovery_permit));
        DetachOnDrop::new(self, run).poll_once().await;
    }
}

/// Returns the size of the future that runs the turns of a new task.
#[cfg(test)]
pub(crate) fn turn_future_size() -> usize {
    crate::rt::future_size(|runner: Box<Runner>| runner.run_new())
}
