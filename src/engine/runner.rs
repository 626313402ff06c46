//! One turn after the other: agent -> queue -> batch -> append -> announce.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::live::{Incoming, Live, Wish};
use super::log::Log;
use super::turn::{self, Ending};
use super::{Accepted, Engine, Error, Opening, Restart, Result};
use crate::model::{Call, ContextId, Event, Scope, Seq, Task, TaskId, TaskState, TaskStatus, Timestamp};
use crate::store::{self, Batch, Head, Key, NewTask, Opened, Registered};

/// Works on one task. While there is one, nobody else in this process writes to its log.
pub(super) struct Runner {
    pub(super) engine: Engine,
    pub(super) id: TaskId,
    scope: Scope,
    /// The fold of everything written and about to be written.
    pub(super) log: Log,
    /// What is folded and not durable yet, and when the first of it was.
    pending: Vec<Event>,
    since: Timestamp,
    /// The end of what is durable; 0 as long as the task does not exist.
    durable: Seq,
    /// Set once the log is open.
    pub(super) head: Option<Head>,
    birth: Option<Birth>,
    live: Option<Arc<Live>>,
    wished: Option<mpsc::Receiver<Wish>>,
    /// Leave to run the turn that was begun.
    permit: Option<OwnedSemaphorePermit>,
    /// Who sent the messages that wait, as far as we know.
    pub(super) calls: VecDeque<Call>,
}

/// What rides with the opening of a log.
struct Birth {
    context_id: ContextId,
    key: Option<Key>,
    alias: Option<TaskId>,
    config: Option<Registered>,
    answer: oneshot::Sender<Result<Accepted>>,
}

impl Runner {
    /// A runner for a task that does not exist yet.
    pub(super) fn opening(
        engine: Engine,
        call: Call,
        opening: Opening,
        answer: oneshot::Sender<Result<Accepted>>,
    ) -> Self {
        let Opening { message, key, alias, config } = opening;
        let id = TaskId::from(engine.clock.id());
        let context_id = message.context_id.clone().unwrap_or_else(|| engine.context_id());
        let message = Arc::new(message.in_task(id.clone()).in_context(context_id.clone()));
        let created = Event::Created { id: id.clone(), context_id: context_id.clone(), metadata: None };
        let mut runner = Self {
            scope: call.scope.clone(),
            log: Log::empty(),
            pending: Vec::new(),
            since: Timestamp::default(),
            durable: Seq(0),
            head: None,
            birth: Some(Birth { context_id, key, alias, config, answer }),
            live: None,
            wished: None,
            permit: None,
            calls: VecDeque::from([call]),
            engine,
            id,
        };
        runner.plan(vec![created, Event::Message(message)]);
        runner
    }

    /// A runner for a task that nobody works on.
    pub(super) fn resuming(
        engine: Engine,
        head: Head,
        live: Arc<Live>,
        wished: mpsc::Receiver<Wish>,
    ) -> Self {
        Self {
            id: head.id.clone(),
            scope: head.scope.clone(),
            log: Log::empty(),
            pending: Vec::new(),
            since: Timestamp::default(),
            durable: Seq(0),
            head: Some(head),
            birth: None,
            live: Some(live),
            wished: Some(wished),
            permit: None,
            calls: VecDeque::new(),
            engine,
        }
    }

    /// Opens the log and works until nothing is left to do.
    pub(super) async fn run_opening(mut self) {
        self.begin_turn();
        // Where a second run must not happen, and where the turn cannot begin, the record comes first.
        let keyed = self.birth.as_ref().is_some_and(|birth| birth.key.is_some());
        let first = self.permit.is_none() || keyed || self.engine.agent.durable_start();
        let opened = if first { self.commit(None, false).await } else { Ok(()) };
        let ended = match opened {
            Ok(()) if self.birth.is_none() && self.head.is_none() => return,
            Ok(()) => self.work().await,
            Err(error) => Err(error),
        };
        self.leave(ended).await;
    }

    /// Reads the log, grants the wish, and works until nothing is left to do.
    pub(super) async fn run_from(mut self, wish: Wish) {
        let ended = match self.reload().await {
            Ok(()) => match self.grant(wish).await {
                Ok(()) => self.work().await,
                Err(error) => Err(error),
            },
            Err(error) => {
                tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "log unreadable");
                refuse(wish, error);
                while let Some(wish) = self.next_wish() {
                    refuse(wish, Error::Lost);
                }
                Ok(())
            }
        };
        self.leave(ended).await;
    }

    /// Works turn by turn, and grants wishes in between, until there are none.
    async fn work(&mut self) -> Result<()> {
        loop {
            while let Some(message) = self.log.waiting().cloned() {
                if self.permit.is_none() && !self.wait_for_turn().await? {
                    break;
                }
                if self.engine.agent.durable_start() {
                    self.commit(None, false).await?;
                }
                turn::run(self, message).await?;
                self.permit = None;
            }
            match self.next_wish() {
                Some(wish) => self.grant(wish).await?,
                None => return Ok(()),
            }
        }
    }

    /// Plans the beginning of the next turn, if there is leave to run it.
    fn begin_turn(&mut self) {
        self.permit = self.engine.turns.clone().try_acquire_owned().ok();
        if self.permit.is_some() {
            self.plan(self.log.turn_start());
        }
    }

    /// Waits until a turn may begin, granting wishes meanwhile; false when the task has ended before.
    async fn wait_for_turn(&mut self) -> Result<bool> {
        let _waiting = Waiting::new(&self.engine);
        let turns = self.engine.turns.clone();
        let mut free = pin!(turns.acquire_owned());
        while self.log.waiting().is_some() {
            tokio::select! {
                biased;
                permit = &mut free => {
                    self.permit = Some(permit.map_err(|_| Error::Stopped)?);
                    self.plan(self.log.turn_start());
                    return Ok(true);
                }
                wish = next(&mut self.wished) => self.grant(wish).await?,
            }
        }
        Ok(false)
    }

    /// The next wish that waits; without one this runner is no longer the task's.
    fn next_wish(&mut self) -> Option<Wish> {
        let wish = self.engine.journal.registry.retire(&self.id, self.wished.as_mut()?);
        if wish.is_none() {
            self.wished = None;
        }
        wish
    }

    /// Does what somebody wants of a task while no turn runs.
    pub(super) async fn grant(&mut self, wish: Wish) -> Result<()> {
        match wish {
            Wish::Message(incoming) => self.take_message(*incoming).await,
            Wish::Cancel { metadata, answer } => {
                if self.log.task.is_ended() {
                    let _ = answer.send(Err(Error::Ended(self.log.task.status.state)));
                    return Ok(());
                }
                self.plan(vec![Event::CancelRequested { metadata }, status(TaskState::Canceled)]);
                let committed = self.commit(None, true).await;
                self.answer_cancel(answer, committed)
            }
            Wish::Recover => self.recover().await,
            Wish::Expire { reason } => self.give_up(reason).await,
        }
    }

    /// Records a message; its turn comes when those before it are over.
    pub(super) async fn take_message(&mut self, incoming: Incoming) -> Result<()> {
        let Incoming { call, message, key, answer } = incoming;
        let state = self.log.task.status.state;
        let context_id = self.log.task.context_id.clone();
        if state.is_terminal() {
            let _ = answer.send(Err(Error::Ended(state)));
            return Ok(());
        }
        let message = message.in_task(self.id.clone()).in_context(context_id);
        let idle = self.log.waiting().is_none();
        self.plan(vec![Event::Message(Arc::new(message))]);
        if idle {
            // The turn begins with its message, so that nobody sees a task that was answered and still asks.
            self.begin_turn();
        }
        let (answered, result) = match self.commit(key, false).await {
            Ok(()) => {
                self.calls.push_back(call);
                (Ok(self.accepted()), Ok(()))
            }
            // Seen before: nothing was added, and the task is the answer.
            Err(Error::Store(store::Error::Repeated)) => {
                let undone = self.undo(idle).await;
                (undone.map(|()| self.accepted()), Ok(()))
            }
            Err(error @ Error::Store(store::Error::KeyReused)) => (Err(error), self.undo(idle).await),
            Err(error) => (Err(Error::Lost), Err(error)),
        };
        // The caller may have left; the message is in the log all the same.
        let _ = answer.send(answered);
        result
    }

    /// Forgets what was planned and not written.
    async fn undo(&mut self, begun: bool) -> Result<()> {
        if begun {
            self.permit = None;
        }
        self.reload().await
    }

    pub(super) fn answer_cancel(
        &self,
        answer: oneshot::Sender<Result<Task>>,
        committed: Result<()>,
    ) -> Result<()> {
        let canceled = match (&committed, self.log.task.status.state) {
            (Err(_), _) => Err(Error::Lost),
            (Ok(()), TaskState::Canceled) => Ok(self.log.task.clone()),
            (Ok(()), state) => Err(Error::Ended(state)),
        };
        let _ = answer.send(canceled);
        committed
    }

    /// Nobody worked on this task when we came: does as the policy says.
    async fn recover(&mut self) -> Result<()> {
        if self.log.waiting().is_none() && !self.log.turn_runs() {
            return Ok(());
        }
        match self.engine.settings.on_restart {
            // Its turn begins again, which counts as another attempt.
            Restart::RunAgain { attempts } if self.log.attempts < attempts => Ok(()),
            Restart::Fail | Restart::RunAgain { .. } => self.give_up("interrupted").await,
        }
    }

    /// Ends the task as failed, and says why in a word.
    async fn give_up(&mut self, reason: &'static str) -> Result<()> {
        if self.log.task.is_ended() {
            return Ok(());
        }
        let ending = turn::interrupted(self, reason);
        self.plan(ending);
        self.commit(None, true).await
    }

    fn accepted(&self) -> Accepted {
        let head = self.head.clone().unwrap_or_else(|| self.fresh_head());
        Accepted { head, turn: self.log.last_turn(), log: self.log.clone() }
    }

    fn fresh_head(&self) -> Head {
        let status = &self.log.task.status;
        Head {
            id: self.id.clone(),
            scope: self.scope.clone(),
            context_id: self.log.task.context_id.clone(),
            position: self.durable,
            state: status.state,
            status_time: status.timestamp.unwrap_or_default(),
        }
    }

    /// Folds events that will be written with the next commit.
    pub(super) fn plan(&mut self, events: Vec<Event>) {
        let now = self.engine.clock.now();
        if self.pending.is_empty() {
            self.since = now;
        }
        self.pending.extend(self.log.extend(now, events));
    }

    pub(super) fn has_plans(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes what was planned in one commit, then lets readers see it. `last` if no work follows.
    pub(super) async fn commit(&mut self, key: Option<Key>, last: bool) -> Result<()> {
        if self.head.is_none() {
            return self.open(last).await;
        }
        while self.has_plans() {
            let batch = self.batch(key.clone());
            let Some(head) = self.head.clone() else { return Ok(()) };
            match self.engine.journal.append(&head, self.durable, &batch).await {
                Ok(()) => {
                    self.written(&batch);
                    return Ok(());
                }
                Err(store::Error::Conflict) => {
                    let planned = std::mem::take(&mut self.pending);
                    self.reload().await?;
                    self.plan(planned);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn batch(&self, key: Option<Key>) -> Batch {
        let status = &self.log.task.status;
        let status_time = status.timestamp.unwrap_or(self.since);
        Batch { time: self.since, events: self.pending.clone(), state: status.state, status_time, key }
    }

    fn written(&mut self, batch: &Batch) {
        let at = self.durable;
        self.durable = Seq(at.0 + batch.events.len() as u64);
        self.pending.clear();
        match &self.live {
            Some(live) => self.engine.journal.publish(&self.id, live, at, batch),
            None => self.engine.journal.announce(&self.id, self.durable),
        }
    }

    /// Opens the log with all that was planned. Where a key finds an earlier task, that one is the answer.
    async fn open(&mut self, last: bool) -> Result<()> {
        let Some(birth) = self.birth.take() else { return Ok(()) };
        let batch = self.batch(birth.key);
        if !last {
            // Before anybody can find the task, so that nobody else begins to work on it.
            let (live, wished) = self.engine.journal.registry.claim(&self.id);
            (self.live, self.wished) = (Some(live), Some(wished));
        }
        let task = NewTask {
            id: self.id.clone(),
            scope: self.scope.clone(),
            context_id: birth.context_id,
            alias: birth.alias,
            config: birth.config,
            batch: batch.clone(),
        };
        match self.engine.journal.open(task).await {
            Ok(Opened::New(head)) => {
                self.head = Some(head);
                self.written(&batch);
                let _ = birth.answer.send(Ok(self.accepted()));
                Ok(())
            }
            Ok(Opened::Again(head)) => {
                self.next_wish();
                let _ = birth.answer.send(self.again(head).await);
                Ok(())
            }
            Err(error) => {
                let _ = birth.answer.send(Err(error.into()));
                Err(Error::Lost)
            }
        }
    }

    /// The task that the key made before.
    async fn again(&self, head: Head) -> Result<Accepted> {
        let log = self.engine.journal.log(&head).await?;
        Ok(Accepted { turn: log.last_turn().max(1), head, log })
    }

    async fn reload(&mut self) -> Result<()> {
        let Some(head) = &self.head else { return Ok(()) };
        self.log = self.engine.journal.stored(head).await?;
        (self.durable, self.pending) = (self.log.at, Vec::new());
        if let Some(live) = &self.live {
            live.reset(&self.log);
            self.engine.journal.announce(&self.id, self.durable);
        }
        Ok(())
    }

    /// Whose task it is.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The next wish while a turn runs.
    pub(super) async fn wish(&mut self) -> Wish {
        next(&mut self.wished).await
    }

    /// Gives the task up; where the store has failed, not before the task has an end.
    async fn leave(mut self, ended: Result<()>) {
        let Err(error) = ended else { return };
        tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "turn lost");
        if let Some(live) = &self.live {
            live.lose();
            self.engine.journal.announce(&self.id, self.durable);
        }
        let mut pause = super::sweep::FIRST_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(super::sweep::LONGEST_PAUSE);
            if self.settle().await.is_ok() {
                break;
            }
        }
        while let Some(wish) = self.next_wish() {
            if let Err(error) = self.grant(wish).await {
                tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "wish lost");
            }
        }
    }

    /// Fails the task whose turn was lost, if it exists and has no end yet.
    async fn settle(&mut self) -> Result<()> {
        if self.head.is_none() {
            self.head = self.engine.journal.find(&self.scope, &self.id).await?;
        }
        if self.head.is_none() {
            return Ok(());
        }
        match self.reload().await {
            Err(Error::Gone) => return Ok(()),
            result => result?,
        }
        self.give_up("interrupted").await
    }

    /// What a turn's end becomes in the log.
    pub(super) fn end(&mut self, ending: Ending) {
        let events = turn::ending(self, ending);
        self.plan(events);
    }
}

async fn next(wished: &mut Option<mpsc::Receiver<Wish>>) -> Wish {
    match wished {
        Some(wished) => match wished.recv().await {
            Some(wish) => wish,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

fn refuse(wish: Wish, error: Error) {
    match wish {
        Wish::Message(incoming) => drop(incoming.answer.send(Err(error))),
        Wish::Cancel { answer, .. } => drop(answer.send(Err(error))),
        Wish::Recover | Wish::Expire { .. } => {}
    }
}

pub(super) fn status(state: TaskState) -> Event {
    Event::Status { status: TaskStatus::new(state), metadata: None }
}

/// Counts a task among those that wait for a turn, for as long as it lives.
struct Waiting(Arc<std::sync::atomic::AtomicUsize>);

impl Waiting {
    fn new(engine: &Engine) -> Self {
        engine.waiting.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self(engine.waiting.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}
