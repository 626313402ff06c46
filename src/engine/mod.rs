//! Who may change a task: the one writer of every log.
//!
//! Whoever wants something of a task passes a wish to the one [`runner::Runner`] that works on it, or becomes that
//! runner. So a log has one writer in this process, and a connection owns nothing.

mod accepted_message;
mod active_tasks;
mod agent_registry;
mod clock;
mod detach_on_drop;
mod error;
mod folded_log;
mod journal;
mod maintenance;
mod reason;
mod runner;
mod settings;
mod shared_entry;
mod snapshots;
mod task_cache;
#[cfg(test)]
pub(crate) mod tests;
mod turn;

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::Failure;
use crate::bus::Bus;
use crate::model::{
    Call, Caller, ContextId, Message, Object, PushConfigId, Scope, Seq, Task, TaskId, Timestamp,
    TraceContext,
};
use crate::store::{
    Head, IdempotencyKey, IdempotencyRecord, PushRegistration, Store, TaskCounts, TaskPage,
    TaskQuery, Webhook, WebhookFilter,
};
use active_tasks::{ActiveTask, ActiveTasks, Dispatch, Inbox, IncomingMessage, RunnerCommand};
use clock::{Clock, SteadyClock};
use detach_on_drop::DetachOnDrop;
use journal::Journal;
use maintenance::SweepTriggers;
use runner::Runner;
use task_cache::TaskCache;

pub(crate) use accepted_message::AcceptedMessage;
pub(crate) use agent_registry::{AgentHandle, AgentRegistration, AgentRegistry, AgentSet};
pub(crate) use clock::SystemClock;
pub(crate) use error::{Error, Result};
pub(crate) use journal::Follow;
pub use settings::{AgentSettings, RestartPolicy, Settings, UnansweredPolicy};
pub(crate) use shared_entry::SharedEntry;
pub(crate) use task_cache::TaskView;

/// Opens logs, runs the agent, and lets others wait for what comes of it. Every task has one of these: they share it.
#[derive(Clone)]
pub(crate) struct Engine(Arc<EngineInner>);

impl Deref for Engine {
    type Target = EngineInner;

    fn deref(&self) -> &EngineInner {
        &self.0
    }
}

/// What an engine is made of.
pub(crate) struct EngineInner {
    journal: Arc<Journal>,
    agents: AgentRegistry,
    clock: Arc<dyn Clock>,
    steady_clock: SteadyClock,
    /// The same for what is forgotten when it is old; it does not believe a clock that is ahead at the start.
    retention_clock: SteadyClock,
    tracker: TaskTracker,
    stop: CancellationToken,
    settings: Settings,
    turn_permits: Arc<Semaphore>,
    waiting_turns: Arc<AtomicUsize>,
    sweep_triggers: SweepTriggers,
}

/// A message that opens a task.
pub(crate) struct InitialMessage {
    /// Shared from the start, since it goes through many hands.
    pub(crate) message: Arc<Message>,
    /// What makes it the same message when it is sent again.
    pub(crate) key: Option<IdempotencyKey>,
    /// The name that a client of the first days gave the task.
    pub(crate) alias: Option<TaskId>,
    /// A webhook, registered before anything happens.
    pub(crate) config: Option<Box<PushRegistration>>,
    /// How the agent failed before the task was there: its first turn ends with that.
    pub(crate) failure: Option<Failure>,
    /// Whether its log is going to be read from the beginning.
    pub(crate) is_followed: bool,
}

impl From<Message> for InitialMessage {
    fn from(message: Message) -> Self {
        let message = Arc::new(message);
        Self {
            message,
            key: None,
            alias: None,
            config: None,
            failure: None,
            is_followed: false,
        }
    }
}

impl Engine {
    /// An engine whose turns run on `tracker` and are dropped when `stop` is cancelled.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        agents: AgentRegistry,
        clock: Arc<dyn Clock>,
        settings: Settings,
        (tracker, stop): (TaskTracker, CancellationToken),
    ) -> Self {
        let settings = settings.for_store(&*store);
        let active_tasks = ActiveTasks::new(
            settings.max_waiting_messages,
            (settings.max_tail_entries, settings.max_tail_bytes),
        );
        let task_cache = TaskCache::new(settings.task_cache_bytes);
        let owned = (tracker.clone(), stop.clone());
        let journal = Journal::new(
            store,
            bus,
            (active_tasks, task_cache),
            settings.store_timeout,
            owned,
        );
        Self(Arc::new(EngineInner {
            journal: Arc::new(journal),
            agents,
            clock,
            steady_clock: SteadyClock::default(),
            retention_clock: SteadyClock::default(),
            tracker,
            stop,
            turn_permits: Arc::new(Semaphore::new(
                settings.max_turns.clamp(1, Semaphore::MAX_PERMITS),
            )),
            waiting_turns: Arc::default(),
            sweep_triggers: SweepTriggers::default(),
            settings,
        }))
    }

    /// Who works now.
    pub(crate) fn agents(&self) -> AgentSet {
        self.agents.agents()
    }

    /// Agents who could take the place of those there are.
    pub(crate) fn prepare_agents(
        &self,
        agents: impl IntoIterator<Item = AgentRegistration>,
    ) -> AgentSet {
        self.agents.prepare_agents(agents)
    }

    /// Lets these agents work from now on. What has begun goes on with those who began it.
    pub(crate) fn replace_agents(&self, agents: AgentSet) {
        self.agents.replace(agents);
    }

    /// The task, if this scope has it.
    pub(crate) async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        self.with_store_timeout(async { Ok(self.journal.find(scope, task).await?) })
            .await
    }

    /// A page of the scope's tasks.
    pub(crate) async fn list(&self, scope: &Scope, query: &TaskQuery) -> Result<TaskPage> {
        self.with_store_timeout(async { Ok(self.journal.list(scope, query).await?) })
            .await
    }

    /// How many tasks the tenant of this scope has of its agent, whoever its callers are.
    pub(crate) async fn count_tasks(&self, scope: &Scope) -> Result<Option<TaskCounts>> {
        self.with_store_timeout(async {
            Ok(self
                .journal
                .store
                .count_tasks(&scope.agent, &scope.tenant)
                .await?)
        })
        .await
    }

    /// The task as it stands, and the position it stands for. It is as new as `head` at least: to see what came
    /// since, find that again, or follow from the position.
    pub(crate) async fn task(&self, head: &Head) -> Result<(Arc<Task>, Seq)> {
        let log = self.with_store_timeout(self.journal.log(head)).await?;
        Ok((log.task, log.position))
    }

    /// The task as it stands, of this scope, where all of that is at hand; `None` says nothing: find it.
    pub(crate) fn cached_task(&self, scope: &Scope, task: &TaskId) -> Option<TaskView> {
        let position = self.journal.store.position(scope, task)?;
        self.journal.cached_task(task, position)
    }

    /// The task as it stands, as new as `head` at least, for one who reads all of it.
    pub(crate) async fn task_view(&self, head: &Head) -> Result<TaskView> {
        self.with_store_timeout(self.journal.task_view(head)).await
    }

    /// Every entry after a position, as it comes.
    pub(crate) fn follow(&self, head: &Head, position: Seq) -> Follow {
        self.journal.follow(head, position)
    }

    /// Refuses while nothing of the task can be recorded: there is nothing to follow then.
    pub(crate) fn check_writable(&self, head: &Head) -> Result<()> {
        let lost = self
            .journal
            .active_tasks
            .get(&head.id)
            .is_some_and(|active| active.is_unwritable());
        if lost {
            Err(Error::StoreUnavailable)
        } else {
            Ok(())
        }
    }

    /// A fresh id for a conversation that has none yet.
    pub(crate) fn new_context_id(&self) -> ContextId {
        self.clock.new_id().into()
    }

    /// An id that nobody has.
    pub(crate) fn new_id(&self) -> Arc<str> {
        self.clock.new_id()
    }

    /// Whether tasks are there when their turn is over.
    pub(crate) fn keeps_tasks(&self) -> bool {
        self.journal.store.keeps_tasks()
    }

    /// Whether the store answers, and takes writes.
    pub(crate) async fn check(&self) -> Result<()> {
        let nobody = Scope {
            agent: "".into(),
            tenant: "".into(),
            owner: Caller::anonymous(),
        };
        let none = TaskId::from("none");
        let check = async {
            self.journal.find(&nobody, &none).await?;
            self.journal
                .store
                .check_health()
                .await
                .map_err(Error::Unwritable)
        };
        timeout(CHECK_TIMEOUT, check)
            .await
            .unwrap_or(Err(Error::StoreUnavailable))
    }

    /// Registers a webhook.
    pub(crate) async fn put_config(&self, head: &Head, config: &PushRegistration) -> Result<()> {
        self.with_store_timeout(async { Ok(self.journal.store.put_config(head, config).await?) })
            .await
    }

    /// The webhooks of a task, oldest first.
    pub(crate) async fn list_configs(&self, head: &Head) -> Result<Vec<PushRegistration>> {
        self.with_store_timeout(async { Ok(self.journal.store.list_configs(head).await?) })
            .await
    }

    /// Removes a webhook.
    pub(crate) async fn delete_config(&self, head: &Head, id: &PushConfigId) -> Result<()> {
        self.with_store_timeout(async { Ok(self.journal.store.delete_config(head, id).await?) })
            .await
    }

    /// Webhooks of every scope, for those who deliver.
    pub(crate) async fn list_webhooks(
        &self,
        which: WebhookFilter,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Webhook>> {
        self.with_store_timeout(async {
            Ok(self
                .journal
                .store
                .list_webhooks(which, after, limit)
                .await?)
        })
        .await
    }

    /// A webhook, and how far the deliveries to it are.
    pub(crate) async fn find_webhook(
        &self,
        head: &Head,
        id: &PushConfigId,
    ) -> Result<Option<Webhook>> {
        self.with_store_timeout(async { Ok(self.journal.store.find_webhook(head, id).await?) })
            .await
    }

    /// Records how far the deliveries to a webhook are; `false` when it is not there any more.
    pub(crate) async fn record_delivery(&self, push: &Webhook) -> Result<bool> {
        self.with_store_timeout(async { Ok(self.journal.store.record_delivery(push).await?) })
            .await
    }

    /// The task as it was at a position.
    pub(crate) async fn task_at_position(&self, head: &Head, position: Seq) -> Result<Arc<Task>> {
        self.with_store_timeout(self.journal.task_at_position(head, position))
            .await
    }

    /// The trace of the newest message of a task, if it had one.
    pub(crate) async fn newest_trace(&self, head: &Head) -> Result<Option<TraceContext>> {
        let log = self.with_store_timeout(self.journal.log(head)).await?;
        Ok(log.newest_trace().cloned())
    }

    /// Now.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Opens a task with this message and begins to work on it, whether or not somebody waits for that. What it is given is put
    /// where it belongs at once.
    pub(crate) fn start(
        &self,
        call: Call,
        opening: InitialMessage,
    ) -> impl Future<Output = Result<Box<AcceptedMessage>>> + Send + use<> {
        let (reply, accepted) = oneshot::channel();
        let runner = Runner::for_new_task(self.clone(), call, opening, reply);
        let work = runner.map(|runner| DetachOnDrop::new(self, runner.run_new()));
        async { work?.run_until_reply(accepted).await }
    }

    /// The message that was sent under this key before, if there was one.
    pub(crate) async fn find_replay(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
    ) -> Result<Option<Box<AcceptedMessage>>> {
        self.with_store_timeout(async {
            match self.journal.store.find_by_key(scope, key).await? {
                Some(seen) => Ok(Some(self.accepted_replay(seen).await?)),
                None => Ok(None),
            }
        })
        .await
    }

    /// The task as it is, and the turn that took the message of a key.
    async fn accepted_replay(
        &self,
        IdempotencyRecord { head, turn }: IdempotencyRecord,
    ) -> Result<Box<AcceptedMessage>> {
        let log = self.journal.log(&head).await?;
        // A key of before turns were recorded with them stands for the newest.
        let turn = if turn == 0 {
            log.newest_turn().max(1)
        } else {
            turn
        };
        Ok(Box::new(AcceptedMessage {
            turn,
            head,
            log,
            opening: None,
            tail: None,
        }))
    }

    /// Whether a message that comes again under its own id is the same message.
    pub(crate) fn has_idempotent_message_ids(&self) -> bool {
        self.settings.idempotent_message_ids
    }

    /// Adds a message to a task; works on it at once, or after the messages before it.
    pub(crate) async fn resume(
        &self,
        call: Call,
        head: &Head,
        message: Message,
        key: Option<IdempotencyKey>,
    ) -> Result<Box<AcceptedMessage>> {
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

    /// Asks for a task to be canceled; gives it as it then is.
    pub(crate) async fn cancel(&self, head: &Head, metadata: Option<Object>) -> Result<Task> {
        let (reply, canceled) = oneshot::channel();
        // The agent has its grace, and the store its time.
        let deadline = self.reply_deadline(self.settings.cancel_grace);
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

    /// When those who call now have waited long enough for the store.
    fn reply_deadline(&self, grace: Duration) -> Instant {
        let now = Instant::now();
        now.checked_add(grace.saturating_add(self.settings.store_timeout))
            .unwrap_or(now + MAX_REPLY_WAIT)
    }

    /// What the one who works on the task answers; the work goes on, whether somebody waits or not.
    async fn await_reply<T>(
        &self,
        mut reply: oneshot::Receiver<Result<T>>,
        deadline: Instant,
    ) -> Result<T> {
        // Without a timer, where the work was done while we came here.
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

    /// What the store answers, if it does in time.
    async fn with_store_timeout<T>(&self, reply: impl Future<Output = Result<T>>) -> Result<T> {
        let mut reply = pin!(reply);
        // Most often it has the answer at hand, and needs no timer.
        let immediate = poll_fn(|context| Poll::Ready(reply.as_mut().poll(context)));
        if let Poll::Ready(reply) = immediate.await {
            return reply;
        }
        timeout(self.settings.store_timeout, reply)
            .await
            .unwrap_or(Err(Error::StoreUnavailable))
    }

    /// Passes a wish to whoever works on the task, or works on it.
    async fn send_command(&self, head: &Head, command: RunnerCommand) -> Result<()> {
        match self.journal.active_tasks.dispatch(&head.id, command) {
            Dispatch::Delivered => Ok(()),
            Dispatch::QueueFull => Err(Error::Overloaded),
            Dispatch::NoRunner(command, active, inbox) => {
                self.start_runner(head, command, (active, inbox)).await;
                Ok(())
            }
        }
    }

    /// Works on a task that nobody works on, beginning with a wish.
    async fn start_runner(
        &self,
        head: &Head,
        command: RunnerCommand,
        (active, inbox): (Arc<ActiveTask>, Inbox),
    ) {
        let runner = Runner::for_stored_task(self.clone(), head.clone(), active, inbox);
        DetachOnDrop::new(self, runner.run_stored(command))
            .poll_once()
            .await;
    }
}

/// How long a store may take to say that it is there.
const CHECK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// Longer than anybody waits, and no time that a clock cannot tell.
const MAX_REPLY_WAIT: Duration = Duration::from_secs(60 * 60 * 24 * 365);
