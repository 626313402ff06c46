//! Who may change a task: the one writer of every log.
//!
//! Whoever wants something of a task passes a wish to the one [`runner::Runner`] that works on it, or becomes that
//! runner. So a log has one writer in this process, and a connection owns nothing.

mod accepted;
mod clock;
mod error;
mod journal;
mod keeper;
mod live;
mod log;
mod reason;
mod recorded;
mod resting;
mod runner;
mod settings;
mod staff;
mod sweep;
#[cfg(test)]
pub(crate) mod tests;
mod turn;
mod work;

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
    Trace,
};
use crate::store::{Head, Key, Page, Push, Query, Registered, Seen, Store, Tally, Which};
use clock::{Calendar, Clock};
use journal::Journal;
use live::{Incoming, Live, Passed, Registry, Wish, Wished};
use resting::Resting;
use runner::Runner;
use sweep::Crowd;
use work::Work;

pub(crate) use accepted::Accepted;
pub(crate) use clock::System;
pub(crate) use error::{Error, Result};
pub(crate) use journal::Follow;
pub(crate) use recorded::Recorded;
pub(crate) use resting::Standing;
pub use settings::{AgentSettings, Restart, Settings, Waiting};
pub(crate) use staff::{Hire, Staff, Team, Worker};

/// Opens logs, runs the agent, and lets others wait for what comes of it. Every task has one of these: they share it.
#[derive(Clone)]
pub(crate) struct Engine(Arc<Parts>);

impl Deref for Engine {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// What an engine is made of.
pub(crate) struct Parts {
    journal: Arc<Journal>,
    staff: Staff,
    clock: Arc<dyn Clock>,
    calendar: Calendar,
    /// The same for what is forgotten when it is old; it does not believe a clock that is ahead at the start.
    retention: Calendar,
    tracker: TaskTracker,
    stop: CancellationToken,
    settings: Settings,
    turns: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    crowd: Crowd,
}

/// A message that opens a task.
pub(crate) struct Opening {
    /// Shared from the start, since it goes through many hands.
    pub(crate) message: Arc<Message>,
    /// What makes it the same message when it is sent again.
    pub(crate) key: Option<Key>,
    /// The name that a client of the first days gave the task.
    pub(crate) alias: Option<TaskId>,
    /// A webhook, registered before anything happens.
    pub(crate) config: Option<Box<Registered>>,
    /// How the agent failed before the task was there: its first turn ends with that.
    pub(crate) failure: Option<Failure>,
    /// Whether its log is going to be read from the beginning.
    pub(crate) followed: bool,
}

impl From<Message> for Opening {
    fn from(message: Message) -> Self {
        let message = Arc::new(message);
        Self {
            message,
            key: None,
            alias: None,
            config: None,
            failure: None,
            followed: false,
        }
    }
}

impl Engine {
    /// An engine whose turns run on `tracker` and are dropped when `stop` is cancelled.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        staff: Staff,
        clock: Arc<dyn Clock>,
        settings: Settings,
        (tracker, stop): (TaskTracker, CancellationToken),
    ) -> Self {
        let settings = settings.for_store(&*store);
        let registry = Registry::new(
            settings.max_waiting_messages,
            (settings.max_tail_entries, settings.max_tail_bytes),
        );
        let resting = Resting::new(settings.max_resting_bytes);
        let owned = (tracker.clone(), stop.clone());
        let journal = Journal::new(
            store,
            bus,
            (registry, resting),
            settings.store_timeout,
            owned,
        );
        Self(Arc::new(Parts {
            journal: Arc::new(journal),
            staff,
            clock,
            calendar: Calendar::default(),
            retention: Calendar::default(),
            tracker,
            stop,
            turns: Arc::new(Semaphore::new(
                settings.max_turns.clamp(1, Semaphore::MAX_PERMITS),
            )),
            waiting: Arc::default(),
            crowd: Crowd::default(),
            settings,
        }))
    }

    /// Who works now.
    pub(crate) fn team(&self) -> Team {
        self.staff.team()
    }

    /// Agents who could take the place of those there are.
    pub(crate) fn hire(&self, agents: impl IntoIterator<Item = Hire>) -> Team {
        self.staff.hire(agents)
    }

    /// Lets these agents work from now on. What has begun goes on with those who began it.
    pub(crate) fn employ(&self, team: Team) {
        self.staff.replace(team);
    }

    /// The task, if this scope has it.
    pub(crate) async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        self.in_time(async { Ok(self.journal.find(scope, task).await?) })
            .await
    }

    /// A page of the scope's tasks.
    pub(crate) async fn list(&self, scope: &Scope, query: &Query) -> Result<Page> {
        self.in_time(async { Ok(self.journal.list(scope, query).await?) })
            .await
    }

    /// How many tasks the tenant of this scope has of its agent, whoever its callers are.
    pub(crate) async fn tally(&self, scope: &Scope) -> Result<Option<Tally>> {
        self.in_time(async {
            Ok(self
                .journal
                .store
                .tally(&scope.agent, &scope.tenant)
                .await?)
        })
        .await
    }

    /// The task as it stands, and the position it stands for. It is as new as `head` at least: to see what came
    /// since, find that again, or follow from the position.
    pub(crate) async fn task(&self, head: &Head) -> Result<(Arc<Task>, Seq)> {
        let log = self.in_time(self.journal.log(head)).await?;
        Ok((log.task, log.at))
    }

    /// The task as it stands, of this scope, where all of that is at hand; `None` says nothing: find it.
    pub(crate) fn known(&self, scope: &Scope, task: &TaskId) -> Option<Standing> {
        let position = self.journal.store.position(scope, task)?;
        self.journal.resting(task, position)
    }

    /// The task as it stands, as new as `head` at least, for one who reads all of it.
    pub(crate) async fn standing(&self, head: &Head) -> Result<Standing> {
        self.in_time(self.journal.standing(head)).await
    }

    /// Every entry after a position, as it comes.
    pub(crate) fn follow(&self, head: &Head, at: Seq) -> Follow {
        self.journal.follow(head, at)
    }

    /// Refuses while nothing of the task can be recorded: there is nothing to follow then.
    pub(crate) fn check_recording(&self, head: &Head) -> Result<()> {
        let lost = self
            .journal
            .registry
            .get(&head.id)
            .is_some_and(|live| live.is_lost());
        if lost { Err(Error::Lost) } else { Ok(()) }
    }

    /// A fresh id for a conversation that has none yet.
    pub(crate) fn context_id(&self) -> ContextId {
        self.clock.id().into()
    }

    /// An id that nobody has.
    pub(crate) fn fresh_id(&self) -> Arc<str> {
        self.clock.id()
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
            self.journal.store.check().await.map_err(Error::Unwritable)
        };
        timeout(CHECK_TIME, check).await.unwrap_or(Err(Error::Lost))
    }

    /// Registers a webhook.
    pub(crate) async fn put_config(&self, head: &Head, config: &Registered) -> Result<()> {
        self.in_time(async { Ok(self.journal.store.put_config(head, config).await?) })
            .await
    }

    /// The webhooks of a task, oldest first.
    pub(crate) async fn configs(&self, head: &Head) -> Result<Vec<Registered>> {
        self.in_time(async { Ok(self.journal.store.configs(head).await?) })
            .await
    }

    /// Removes a webhook.
    pub(crate) async fn delete_config(&self, head: &Head, id: &PushConfigId) -> Result<()> {
        self.in_time(async { Ok(self.journal.store.delete_config(head, id).await?) })
            .await
    }

    /// Webhooks of every scope, for those who deliver.
    pub(crate) async fn pushes(
        &self,
        which: Which,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Push>> {
        self.in_time(async { Ok(self.journal.store.pushes(which, after, limit).await?) })
            .await
    }

    /// A webhook, and how far the deliveries to it are.
    pub(crate) async fn push(&self, head: &Head, id: &PushConfigId) -> Result<Option<Push>> {
        self.in_time(async { Ok(self.journal.store.push(head, id).await?) })
            .await
    }

    /// Records how far the deliveries to a webhook are; `false` when it is not there any more.
    pub(crate) async fn record_delivery(&self, push: &Push) -> Result<bool> {
        self.in_time(async { Ok(self.journal.store.record_delivery(push).await?) })
            .await
    }

    /// The task as it was at a position.
    pub(crate) async fn task_at(&self, head: &Head, at: Seq) -> Result<Arc<Task>> {
        self.in_time(self.journal.task_at(head, at)).await
    }

    /// The trace of the newest message of a task, if it had one.
    pub(crate) async fn trace(&self, head: &Head) -> Result<Option<Trace>> {
        let log = self.in_time(self.journal.log(head)).await?;
        Ok(log.last_trace().cloned())
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
        opening: Opening,
    ) -> impl Future<Output = Result<Box<Accepted>>> + Send + use<> {
        let (answer, accepted) = oneshot::channel();
        let runner = Runner::opening(self.clone(), call, opening, answer);
        let work = runner.map(|runner| Work::new(self, runner.run_opening()));
        async { work?.answer(accepted).await }
    }

    /// The message that was sent under this key before, if there was one.
    pub(crate) async fn again(&self, scope: &Scope, key: &Key) -> Result<Option<Box<Accepted>>> {
        self.in_time(async {
            match self.journal.store.seen(scope, key).await? {
                Some(seen) => Ok(Some(self.taken(seen).await?)),
                None => Ok(None),
            }
        })
        .await
    }

    /// The task as it is, and the turn that took the message of a key.
    async fn taken(&self, Seen { head, turn }: Seen) -> Result<Box<Accepted>> {
        let log = self.journal.log(&head).await?;
        // A key of before turns were recorded with them stands for the newest.
        let turn = if turn == 0 {
            log.last_turn().max(1)
        } else {
            turn
        };
        Ok(Box::new(Accepted {
            turn,
            head,
            log,
            opening: None,
            tail: None,
        }))
    }

    /// Whether a message that comes again under its own id is the same message.
    pub(crate) fn knows_messages(&self) -> bool {
        self.settings.idempotent_message_ids
    }

    /// Adds a message to a task; works on it at once, or after the messages before it.
    pub(crate) async fn resume(
        &self,
        call: Call,
        head: &Head,
        message: Message,
        key: Option<Key>,
    ) -> Result<Box<Accepted>> {
        let (answer, accepted) = oneshot::channel();
        let until = self.until(Duration::ZERO);
        self.wish(
            head,
            Wish::Message(Box::new(Incoming {
                call,
                message,
                key,
                until,
                answer,
            })),
        )
        .await?;
        self.answered(accepted, until).await
    }

    /// Asks for a task to be canceled; gives it as it then is.
    pub(crate) async fn cancel(&self, head: &Head, metadata: Option<Object>) -> Result<Task> {
        let (answer, canceled) = oneshot::channel();
        // The agent has its grace, and the store its time.
        let until = self.until(self.settings.cancel_grace);
        self.wish(
            head,
            Wish::Cancel {
                metadata,
                until,
                answer,
            },
        )
        .await?;
        self.answered(canceled, until).await
    }

    /// When those who call now have waited long enough for the store.
    fn until(&self, grace: Duration) -> Instant {
        let now = Instant::now();
        now.checked_add(grace.saturating_add(self.settings.store_timeout))
            .unwrap_or(now + FAR)
    }

    /// What the one who works on the task answers; the work goes on, whether somebody waits or not.
    async fn answered<T>(
        &self,
        mut answer: oneshot::Receiver<Result<T>>,
        until: Instant,
    ) -> Result<T> {
        // Without a timer, where the work was done while we came here.
        match answer.try_recv() {
            Ok(answered) => return answered,
            Err(TryRecvError::Closed) => return Err(Error::Stopped),
            Err(TryRecvError::Empty) => {}
        }
        timeout_at(until, answer)
            .await
            .map_or(Err(Error::Lost), |answer| {
                answer.unwrap_or(Err(Error::Stopped))
            })
    }

    /// What the store answers, if it does in time.
    async fn in_time<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let mut answer = pin!(answer);
        // Most often it has the answer at hand, and needs no timer.
        let at_once = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context)));
        if let Poll::Ready(answer) = at_once.await {
            return answer;
        }
        timeout(self.settings.store_timeout, answer)
            .await
            .unwrap_or(Err(Error::Lost))
    }

    /// Passes a wish to whoever works on the task, or works on it.
    async fn wish(&self, head: &Head, wish: Wish) -> Result<()> {
        match self.journal.registry.pass(&head.id, wish) {
            Passed::On => Ok(()),
            Passed::Refused => Err(Error::Overloaded),
            Passed::Back(wish, live, wished) => {
                self.work_on(head, wish, (live, wished)).await;
                Ok(())
            }
        }
    }

    /// Works on a task that nobody works on, beginning with a wish.
    async fn work_on(&self, head: &Head, wish: Wish, (live, wished): (Arc<Live>, Wished)) {
        let runner = Runner::resuming(self.clone(), head.clone(), live, wished);
        Work::new(self, runner.run_from(wish)).begin().await;
    }
}

/// How long a store may take to say that it is there.
const CHECK_TIME: std::time::Duration = std::time::Duration::from_secs(2);

/// Longer than anybody waits, and no time that a clock cannot tell.
const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365);
