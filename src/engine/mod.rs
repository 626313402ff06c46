//! Who may change a task: the one writer of every log.

mod clock;
mod journal;
mod log;
mod runner;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::AnyAgent;
use crate::bus::Bus;
use crate::model::{self, Broken, ContextId, ErrorKind, Event, Message, Scope, Task, TaskId, TaskState};
use crate::store::{self, Head, NewTask, Store};
use clock::Clock;
use journal::Journal;
use log::Log;
use runner::Runner;

pub(crate) use clock::System;

type Result<T, E = Error> = std::result::Result<T, E>;

/// Opens logs, runs the agent, and lets others wait for what comes of it.
#[derive(Clone)]
pub(crate) struct Engine {
    journal: Journal,
    agent: Arc<dyn AnyAgent>,
    clock: Arc<dyn Clock>,
    turns: TaskTracker,
    stop: CancellationToken,
}

/// A message that is in the log, and the log as it was then.
pub(crate) struct Accepted {
    head: Head,
    log: Log,
    turn: u64,
}

impl Engine {
    /// An engine whose turns run on `turns` and are dropped when `stop` is cancelled.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
        agent: Arc<dyn AnyAgent>,
        clock: Arc<dyn Clock>,
        turns: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self { journal: Journal::new(store, bus), agent, clock, turns, stop }
    }

    /// The task, if this scope has it.
    pub(crate) async fn find(&self, scope: &Scope, task: &TaskId) -> Result<Option<Head>> {
        Ok(self.journal.find(scope, task).await?)
    }

    /// The task as it stands.
    pub(crate) async fn task(&self, head: &Head) -> Result<Task> {
        Ok(self.journal.log(head).await?.task)
    }

    /// A fresh id for a conversation that has none yet.
    pub(crate) fn context_id(&self) -> ContextId {
        self.clock.id().into()
    }

    /// Opens a task with this message and begins to work on it.
    pub(crate) async fn start(&self, scope: Scope, message: Message) -> Result<Accepted> {
        let engine = self.clone();
        self.own(|accepted| async move { engine.take(engine.open(scope, message).await, accepted).await })
            .await
    }

    /// Adds a message to a task; works on it at once, or after the messages before it.
    pub(crate) async fn resume(&self, head: Head, message: Message) -> Result<Accepted> {
        let engine = self.clone();
        self.own(|accepted| async move { engine.take(engine.add(head, message).await, accepted).await }).await
    }

    /// Waits until the task has ended or the turn that took the message has stopped to ask; gives the task then.
    pub(crate) async fn settled(&self, accepted: Accepted) -> Result<Task> {
        let Accepted { head, mut log, turn } = accepted;
        let mut follow = self.journal.follow(&head, log.at);
        loop {
            for entry in follow.next().await? {
                log.apply(&entry)?;
                if log.settles(turn, &entry) {
                    return Ok(log.task);
                }
            }
        }
    }

    /// Runs what a caller began where their leaving cannot stop it.
    async fn own<F>(&self, work: impl FnOnce(oneshot::Sender<Result<Accepted>>) -> F) -> Result<Accepted>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (accepted, answer) = oneshot::channel();
        self.turns.spawn(self.stop.clone().run_until_cancelled_owned(work(accepted)));
        answer.await.unwrap_or(Err(Error::Stopped))
    }

    /// Tells the caller what became of their message, then works on it if nobody else does.
    async fn take(&self, added: Result<Added>, accepted: oneshot::Sender<Result<Accepted>>) {
        // The caller may have left; the message is in the log all the same.
        match added {
            Err(error) => drop(accepted.send(Err(error))),
            Ok(Added { head, log, idle }) => {
                let turn = log.last_turn();
                drop(accepted.send(Ok(Accepted { head: head.clone(), log: log.clone(), turn })));
                if idle {
                    Runner { engine: self.clone(), head, log }.run().await;
                }
            }
        }
    }

    async fn open(&self, scope: Scope, message: Message) -> Result<Added> {
        let id = TaskId::from(self.clock.id());
        let context_id = message.context_id.clone().unwrap_or_else(|| self.context_id());
        let message = Arc::new(message.in_task(id.clone()).in_context(context_id.clone()));
        let created = Event::Created { id: id.clone(), context_id: context_id.clone(), metadata: None };
        let mut log = Log::empty();
        let events = vec![created, Event::Message(message), Event::TurnStarted];
        let batch = log.extend(self.clock.now(), events);
        let head =
            self.journal.open(NewTask { id, scope, context_id, alias: None, config: None, batch }).await?;
        Ok(Added { head, log, idle: true })
    }

    async fn add(&self, head: Head, message: Message) -> Result<Added> {
        let message = Arc::new(message.in_task(head.id.clone()).in_context(head.context_id.clone()));
        loop {
            let mut log = self.journal.log(&head).await?;
            if log.task.is_ended() {
                return Err(Error::Ended(log.task.status.state));
            }
            let (at, idle) = (log.at, log.waiting().is_none());
            let mut events = vec![Event::Message(message.clone())];
            events.extend(idle.then(|| log.turn_start()).into_iter().flatten());
            let batch = log.extend(self.clock.now(), events);
            match self.journal.append(&head, at, &batch).await {
                Err(store::Error::Conflict) => {}
                result => return Ok(result.map(|()| Added { head, log, idle })?),
            }
        }
    }
}

impl Accepted {
    /// The task as it was when it took the message.
    pub(crate) fn into_task(self) -> Task {
        self.log.task
    }
}

/// A message just recorded; `idle` if nobody was working on the task.
struct Added {
    head: Head,
    log: Log,
    idle: bool,
}

/// What went wrong in the engine.
#[derive(Debug)]
pub(crate) enum Error {
    /// The task has ended and takes no more messages.
    Ended(TaskState),
    /// The engine is being stopped.
    Stopped,
    /// The store failed.
    Store(store::Error),
    /// A log does not fold: it was not written by us.
    Broken(Broken),
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<Error> for model::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Ended(state) => Self::new(ErrorKind::UnsupportedOperation).with("state", state.as_str()),
            Error::Stopped => ErrorKind::Unavailable.into(),
            Error::Store(_) | Error::Broken(_) => Self::internal(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(state) => write!(f, "the task has ended as {state}"),
            Self::Stopped => f.write_str("the engine is being stopped"),
            Self::Store(_) => f.write_str("the log cannot be written or read"),
            Self::Broken(_) => f.write_str("the log does not fold"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Ended(_) | Self::Stopped => None,
            Self::Store(error) => Some(error),
            Self::Broken(broken) => Some(broken),
        }
    }
}
