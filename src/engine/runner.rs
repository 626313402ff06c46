//! One turn after the other: agent -> queue -> batch -> append -> announce.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::live::{Incoming, Live, Passed, Wish};
use super::log::Log;
use super::sweep::{FIRST_PAUSE, LONGEST_PAUSE};
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
    /// Held while the task waits for that leave.
    place: Option<Waiting>,
    /// Who sent the messages that wait, as far as we know, by the number of their turn.
    calls: VecDeque<(u64, Call)>,
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
    /// A runner for a task that does not exist yet; it has leave to run, or a place among those that wait.
    ///
    /// # Errors
    /// Enough wait already.
    pub(super) fn opening(
        engine: Engine,
        call: Call,
        opening: Opening,
        answer: oneshot::Sender<Result<Accepted>>,
    ) -> Result<Self> {
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
            place: None,
            calls: VecDeque::from([(1, call)]),
            engine,
            id,
        };
        runner.plan(vec![created, Event::Message(message)]);
        runner.begin_turn();
        if runner.permit.is_none() {
            // Taken before the first wait, so that a thousand who come at once count as a thousand.
            let place = Waiting::new(&runner.engine);
            if place.number > runner.engine.settings.max_waiting_turns {
                return Err(Error::Overloaded);
            }
            runner.place = Some(place);
        }
        Ok(runner)
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
            place: None,
            calls: VecDeque::new(),
            engine,
        }
    }

    /// Opens the log and works until nothing is left to do.
    pub(super) async fn run_opening(mut self) {
        // Where a second run must not happen, and where the turn cannot begin, the record comes first.
        let keyed = self.birth.as_ref().is_some_and(|birth| birth.key.is_some());
        let first = self.permit.is_none() || keyed || self.engine.staff.agent(&self.scope).durable_start();
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
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.reload().await {
            tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "log unreadable");
            if !matches!((&wish, &error), (Wish::Recover, Error::Store(_))) {
                refuse(wish, error);
                return self.refuse_all();
            }
            // Nobody else will come for it: a task that was cut off must not stay so.
            self.wait_for_store(&mut pause).await;
        }
        let ended = match self.grant(wish).await {
            Ok(()) => self.work().await,
            Err(error) => Err(error),
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
                // A turn that runs again is counted before it does, or it could kill the process for ever.
                if self.engine.staff.agent(&self.scope).durable_start() || self.log.attempts > 1 {
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
        let _place = self.place.take().unwrap_or_else(|| Waiting::new(&self.engine));
        let turns = self.engine.turns.clone();
        let mut free = pin!(turns.acquire_owned());
        while self.log.waiting().is_some() {
            tokio::select! {
                biased;
                permit = &mut free => {
                    if self.engine.stop.is_cancelled() {
                        // Leave that others gave back because they were stopped: so are we.
                        std::future::pending::<()>().await;
                    }
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
            Wish::Expire { before } => self.expire(before).await,
        }
    }

    /// Records a message; its turn comes when those before it are over.
    pub(super) async fn take_message(&mut self, incoming: Incoming) -> Result<()> {
        let Incoming { call, message, key, answer } = incoming;
        if self.log.task.is_ended() {
            let _ = answer.send(self.too_late(key).await);
            return Ok(());
        }
        if self.log.backlog() > self.engine.settings.max_waiting_messages {
            let _ = answer.send(Err(Error::Overloaded));
            return Ok(());
        }
        let message = message.in_task(self.id.clone()).in_context(self.log.task.context_id.clone());
        let idle = self.log.waiting().is_none();
        self.plan(vec![Event::Message(Arc::new(message))]);
        if idle {
            // The turn begins with its message, so that nobody sees a task that was answered and still asks.
            self.begin_turn();
        }
        let (answered, result) = match self.commit(key, false).await {
            Ok(()) if self.log.task.is_ended() => (Err(Error::Ended(self.log.task.status.state)), Ok(())),
            Ok(()) => {
                self.calls.push_back((self.log.last_turn(), call));
                (Ok(self.accepted()), Ok(()))
            }
            // Seen before: nothing was added, and the task is the answer.
            Err(Error::Store(store::Error::Repeated)) => match self.undo(idle).await {
                Ok(()) => (Ok(self.accepted()), Ok(())),
                Err(error) => (Err(Error::Lost), Err(error)),
            },
            Err(error @ Error::Store(store::Error::KeyReused)) => (Err(error), self.undo(idle).await),
            Err(error) => (Err(Error::Lost), Err(error)),
        };
        // The caller may have left; the message is in the log all the same.
        let _ = answer.send(answered);
        result
    }

    /// What a message to an ended task gets: the task if it was taken before, as its key says, else a refusal.
    async fn too_late(&self, key: Option<Key>) -> Result<Accepted> {
        let refused = Error::Ended(self.log.task.status.state);
        let (Some(head), Some(key)) = (&self.head, key) else { return Err(refused) };
        let (status, time) = (&self.log.task.status, self.engine.clock.now());
        let status_time = status.timestamp.unwrap_or(time);
        let probe = Batch { time, events: Vec::new(), state: status.state, status_time, key: Some(key) };
        // No log ends at 0, so this adds nothing; but the key is looked at first.
        match self.engine.journal.append(head, Seq(0), &probe).await {
            Err(store::Error::Repeated) => Ok(self.accepted()),
            Err(error @ (store::Error::KeyReused | store::Error::Failed(_))) => Err(error.into()),
            Ok(()) | Err(store::Error::Conflict) => Err(refused),
        }
    }

    /// Forgets what was planned and not written.
    async fn undo(&mut self, begun: bool) -> Result<()> {
        if begun {
            self.permit = None;
        }
        self.reload().await
    }

    /// Who sent the message of the turn that begins.
    pub(super) fn call(&mut self) -> Call {
        let turn = self.log.turn();
        while self.calls.front().is_some_and(|(number, _)| *number < turn) {
            self.calls.pop_front();
        }
        let call = self.calls.pop_front_if(|(number, _)| *number == turn);
        call.map_or_else(|| Call::new(self.scope.clone()), |(_, call)| call)
    }

    pub(super) fn answer_cancel(
        &self,
        answer: oneshot::Sender<Result<Task>>,
        committed: Result<()>,
    ) -> Result<()> {
        let canceled = match (&committed, self.log.task.status.state) {
            (Err(_), _) => Err(Error::Lost),
            (Ok(()), TaskState::Canceled) => Ok(Task::clone(&self.log.task)),
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

    /// Fails a task that still waits for somebody outside, and has done so since before a time.
    async fn expire(&mut self, before: Timestamp) -> Result<()> {
        let status = &self.log.task.status;
        let waits = status.state.is_interrupted() && self.log.waiting().is_none();
        if waits && status.timestamp.is_some_and(|since| since < before) {
            return self.give_up("expired").await;
        }
        Ok(())
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
        match (&self.live, &self.head) {
            (Some(live), Some(head)) => self.engine.journal.publish(head, live, at, batch),
            _ => self.engine.journal.announce(&self.id, self.durable),
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
            // Refused, and nothing was written: there is no task.
            Err(error @ (store::Error::Conflict | store::Error::Repeated | store::Error::KeyReused)) => {
                self.next_wish();
                let _ = birth.answer.send(Err(error.into()));
                Ok(())
            }
            Err(error @ store::Error::Failed(_)) => {
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
    async fn leave(mut self, mut ended: Result<()>) {
        while let Err(error) = ended {
            tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "turn lost");
            self.permit = None;
            let mut pause = FIRST_PAUSE;
            let there = loop {
                self.lose();
                self.wait_for_store(&mut pause).await;
                match self.settle().await {
                    Ok(there) => break there,
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(task = %self.id, error, "task still without an end");
                    }
                }
            };
            ended = if there { self.work().await } else { return self.refuse_all() };
        }
    }

    /// Tells those who follow that nothing can be recorded for now.
    fn lose(&self) {
        if let Some(live) = &self.live {
            live.lose();
            self.engine.journal.announce(&self.id, self.durable);
        }
    }

    /// Waits a while, and longer each time. Who comes meanwhile is told to come back later.
    async fn wait_for_store(&mut self, pause: &mut Duration) {
        let mut over = pin!(tokio::time::sleep(*pause));
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        loop {
            tokio::select! {
                biased;
                () = &mut over => return,
                wish = next(&mut self.wished) => refuse(wish, Error::Lost),
            }
        }
    }

    /// Fails the task whose turn was lost. False when there is no such task, or it is in other hands.
    async fn settle(&mut self) -> Result<bool> {
        if self.head.is_none() {
            self.head = self.engine.journal.find(&self.scope, &self.id).await?;
        }
        if self.head.is_none() || !self.is_ours() {
            return Ok(false);
        }
        match self.reload().await {
            Err(Error::Gone) => return Ok(false),
            result => result?,
        }
        // The end of a turn may be there although its commit seemed to fail.
        if self.log.waiting().is_some() || self.log.turn_runs() {
            self.give_up("interrupted").await?;
        }
        Ok(true)
    }

    /// Whether nobody else works on the task: a quick turn does so without saying.
    fn is_ours(&mut self) -> bool {
        if self.wished.is_none() {
            match self.engine.journal.registry.pass(&self.id, Wish::Recover) {
                Passed::On | Passed::Refused => return false,
                Passed::Back(_, live, wished) => (self.live, self.wished) = (Some(live), Some(wished)),
            }
        }
        true
    }

    /// Stops being the one who works on a task that is not there.
    fn refuse_all(&mut self) {
        while let Some(wish) = self.next_wish() {
            refuse(wish, Error::Gone);
        }
    }

    /// What a turn's end becomes in the log.
    pub(super) fn end(&mut self, ending: Ending) {
        let events = turn::ending(self, ending);
        self.plan(events);
    }
}

impl Drop for Runner {
    /// Only one that was cut off still is the task's: those who follow must not wait for it.
    fn drop(&mut self) {
        if self.wished.is_some() {
            self.lose();
        }
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
struct Waiting {
    count: Arc<AtomicUsize>,
    /// How many waited when it came, itself included.
    number: usize,
}

impl Waiting {
    fn new(engine: &Engine) -> Self {
        let number = engine.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        Self { count: engine.waiting.clone(), number }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
