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

use super::live::{Incoming, Live, Passed, Wish, Wished};
use super::log::Log;
use super::staff::{Leave, Worker};
use super::sweep::FIRST_PAUSE;
use super::turn;
use super::{Accepted, Engine, Error, Opening, Result, reason};
use crate::agent::Failure;
use crate::metrics;
use crate::model::{Call, Event, Scope, Seq, Task, TaskId, TaskState, Timestamp, Version};
use crate::store::Head;
use commit::Birth;
use recovery::refuse;

pub(super) use commit::{Sent, status};

/// 04 §4: under this name the metadata of a task have what a client of the first days calls it.
const LEGACY_ID: &str = "a2a.legacyTaskId";

/// Room for so many events is kept by a task that waits.
const FEW: usize = 4;

/// How many events there are of a task that is over as soon as it has begun.
const QUICK: usize = 6;

/// Works on one task. While there is one, nobody else in this process writes to its log.
pub(super) struct Runner {
    pub(super) engine: Engine,
    pub(super) id: TaskId,
    pub(super) scope: Scope,
    /// The fold of everything written and about to be written.
    pub(super) log: Log,
    /// How large the task is, in bytes, about.
    pub(super) weight: usize,
    /// What is folded and not durable yet, and when the first of it was.
    pending: Vec<Event>,
    pending_weight: usize,
    /// Room for what is planned next, from what was written before.
    spare: Vec<Event>,
    since: Timestamp,
    /// The end of what is durable; 0 as long as the task does not exist.
    durable: Seq,
    /// Set once the log is open.
    pub(super) head: Option<Head>,
    birth: Option<Birth>,
    /// How the agent failed before its first turn.
    pub(super) failure: Option<Failure>,
    live: Option<Arc<Live>>,
    wished: Option<Wished>,
    /// What others add to the log, and how far we have looked at that.
    watch: Option<watch::Receiver<Seq>>,
    looked: Seq,
    /// Whether somebody elsewhere has asked for the task to be canceled.
    canceled: bool,
    /// Who works on it.
    pub(super) worker: Arc<Worker>,
    /// Leave to run the turn that was begun.
    permit: Option<Leave>,
    /// Held while the task waits for that leave.
    place: Option<Waiting>,
    /// Who sent the messages that wait, as far as we know, by the number of their turn.
    calls: VecDeque<(u64, Call)>,
    /// How long to wait before the task is tried again when this one fails.
    pause: Duration,
    /// How long the turn that begins has waited for leave.
    pub(super) waited: Duration,
    /// The version of the last call that was heard of.
    pub(super) version: Version,
}

impl Runner {
    /// A runner for a task that does not exist yet; it has leave to run, or a place among those that wait.
    ///
    /// # Errors
    /// Enough wait already, or the message is larger than a task may be.
    pub(super) fn opening(
        engine: Engine,
        call: Call,
        opening: Opening,
        answer: oneshot::Sender<Result<Box<Accepted>>>,
    ) -> Result<Box<Self>> {
        let Opening {
            mut message,
            key,
            alias,
            config,
            failure,
            followed,
        } = opening;
        let id = TaskId::from(engine.clock.id());
        let context_id = message
            .context_id
            .clone()
            .unwrap_or_else(|| engine.context_id());
        let own = Arc::make_mut(&mut message);
        reason::strip(own);
        (own.task_id, own.context_id) = (Some(id.clone()), Some(context_id.clone()));
        let metadata = alias
            .as_ref()
            .map(|alias| [(LEGACY_ID, alias.as_str())].into_iter().collect());
        let created = Event::Created {
            id: id.clone(),
            context_id: context_id.clone(),
            metadata,
        };
        let mut runner = Self::new(engine, id, call.scope.clone());
        (runner.failure, runner.birth) = (
            failure,
            Some(Birth {
                context_id,
                key,
                alias,
                config,
                followed,
                answer,
            }),
        );
        runner.version = call.version;
        runner.pending.reserve_exact(QUICK);
        runner.pending.push(created);
        runner.pending.push(Event::Message(message));
        runner.pending.extend(call.trace.clone().map(Event::Traced));
        runner.calls.push_back((1, call));
        let weight: usize = runner.pending.iter().map(Event::weight).sum();
        if weight > runner.engine.settings.max_task_bytes {
            metrics::limit("max_task_bytes");
            return Err(Error::TooLarge);
        }
        // Not `begin_turn`: all of it is folded at once.
        runner.permit = runner.worker.try_leave(&runner.engine.turns);
        if runner.permit.is_some() {
            runner.pending.extend(runner.log.turn_start());
        }
        runner.plan_from(0);
        if runner.permit.is_none() {
            // Taken before the first wait, so that a thousand who come at once count as a thousand.
            let place = Waiting::new(&runner.engine);
            if place.number > runner.engine.settings.max_waiting_turns {
                metrics::limit("max_waiting_turns");
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
        wished: Wished,
    ) -> Box<Self> {
        let mut runner = Self::new(engine, head.id.clone(), head.scope.clone());
        (runner.head, runner.live, runner.wished) = (Some(head), Some(live), Some(wished));
        runner
    }

    /// A runner that knows nothing yet. In a box from the start: it is large.
    fn new(engine: Engine, id: TaskId, scope: Scope) -> Box<Self> {
        Box::new(Self {
            worker: engine.staff.of(&scope),
            engine,
            id,
            scope,
            log: Log::empty(),
            weight: 0,
            pending: Vec::new(),
            pending_weight: 0,
            spare: Vec::new(),
            since: Timestamp::default(),
            durable: Seq(0),
            head: None,
            birth: None,
            failure: None,
            live: None,
            wished: None,
            watch: None,
            looked: Seq(0),
            canceled: false,
            permit: None,
            place: None,
            calls: VecDeque::with_capacity(1),
            pause: FIRST_PAUSE,
            waited: Duration::ZERO,
            version: Version::V1,
        })
    }

    /// Opens the log and works until nothing is left to do.
    pub(super) async fn run_opening(mut self: Box<Self>) {
        // Where a second run must not happen, and where the turn cannot begin, the record comes first.
        let named = |birth: &Birth| birth.key.is_some() || birth.alias.is_some();
        let named = self.birth.as_ref().is_some_and(named);
        let first = self.permit.is_none() || named || self.worker.agent.durable_start();
        let opened = if first {
            self.commit(None, false).await
        } else {
            Ok(())
        };
        let ended = match opened {
            Ok(()) if self.birth.is_none() && self.head.is_none() => return,
            Ok(()) => self.work().await,
            Err(error) => Err(error),
        };
        if ended.is_err() {
            // Apart: what happens rarely is not carried around by every task.
            Box::pin(self.leave(ended)).await;
        }
    }

    /// Reads the log, grants the wish, and works until nothing is left to do.
    pub(super) async fn run_from(mut self: Box<Self>, wish: Wish) {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.reload().await {
            tracing::error!(task = %self.id, error = &error as &dyn std::error::Error, "log unreadable");
            if !matches!((&wish, &error), (Wish::Recover(_), Error::Store(_))) {
                let gone = matches!(error, Error::Gone);
                refuse(wish, error);
                return self.refuse_all(if gone { || Error::Gone } else { || Error::Lost });
            }
            // Nobody else will come for it: a task that was cut off must not stay so.
            self.wait_for_store(&mut pause).await;
        }
        let ended = match self.grant(wish).await {
            Ok(()) => self.work().await,
            Err(error) => Err(error),
        };
        if ended.is_err() {
            // Apart: what happens rarely is not carried around by every task.
            Box::pin(self.leave(ended)).await;
        }
    }

    /// Works turn by turn, and grants wishes in between, until there are none.
    async fn work(&mut self) -> Result<()> {
        loop {
            while let Some(message) = self.log.waiting().cloned() {
                if self.permit.is_none() && !self.wait_for_turn().await? {
                    break;
                }
                // A turn that runs again is counted before it does, or it could kill the process for ever.
                if self.worker.agent.durable_start() || self.log.attempts > 1 {
                    self.commit(None, false).await?;
                }
                turn::run(self, message).await?;
                self.permit = None;
                if self.log.waiting().is_some() {
                    self.look_who_works();
                }
            }
            let Some(wish) = self.next_wish() else {
                return Ok(());
            };
            self.look_who_works();
            Box::pin(self.grant(wish)).await?;
        }
    }

    /// Somebody else may have the place of the one who has worked.
    fn look_who_works(&mut self) {
        self.worker = self.engine.staff.of(&self.scope);
    }

    /// Whether one more task may wait for its turn, or need not wait.
    pub(super) fn has_room(&self) -> bool {
        let place = Waiting::new(&self.engine);
        place.number <= self.engine.settings.max_waiting_turns
            || self.worker.try_leave(&self.engine.turns).is_some()
    }

    /// Plans the beginning of the next turn, if there is leave to run it.
    fn begin_turn(&mut self) {
        self.permit = self.worker.try_leave(&self.engine.turns);
        if self.permit.is_some() {
            self.plan(self.log.turn_start());
        }
    }

    /// Waits until a turn may begin, granting wishes meanwhile; false when the task has ended before.
    async fn wait_for_turn(&mut self) -> Result<bool> {
        let _place = self
            .place
            .take()
            .unwrap_or_else(|| Waiting::new(&self.engine));
        let worker = self.worker.clone();
        let since = Instant::now();
        let mut free = pin!(worker.leave(self.engine.turns.clone()));
        while self.log.waiting().is_some() {
            tokio::select! {
                biased;
                permit = &mut free => {
                    if self.engine.stop.is_cancelled() {
                        // Leave that others gave back because they were stopped: so are we.
                        std::future::pending::<()>().await;
                    }
                    self.permit = Some(permit.ok_or(Error::Stopped)?);
                    self.waited = since.elapsed();
                    self.plan(self.log.turn_start());
                    return Ok(true);
                }
                news = self.news() => match news {
                    // Somebody does work on it.
                    News::Wish(Wish::Recover(_) | Wish::Expire | Wish::GiveWay) => {}
                    News::Wish(wish) => Box::pin(self.grant(wish)).await?,
                    News::Elsewhere => Box::pin(self.catch_up()).await?,
                }
            }
        }
        Ok(false)
    }

    /// The next wish that waits; without one this runner is no longer the task's.
    fn next_wish(&mut self) -> Option<Wish> {
        let wish = self
            .engine
            .journal
            .registry
            .retire(&self.id, self.wished.as_mut()?);
        if wish.is_none() {
            self.wished = None;
        }
        wish
    }

    /// Does what somebody wants of a task while no turn runs.
    pub(super) async fn grant(&mut self, wish: Wish) -> Result<()> {
        match wish {
            Wish::Message(incoming) => self.take_message(*incoming).await,
            Wish::Cancel {
                metadata,
                until,
                answer,
            } => {
                if until <= Instant::now() {
                    let _ = answer.send(Err(Error::Lost));
                    return Ok(());
                }
                if self.log.task.is_ended() {
                    let _ = answer.send(Err(Error::Ended(self.log.task.status.state)));
                    return Ok(());
                }
                self.plan([
                    Event::CancelRequested { metadata },
                    status(TaskState::Canceled),
                ]);
                let committed = self.commit(None, true).await;
                if committed.is_ok() {
                    self.tell_canceled().await;
                }
                self.answer_cancel(answer, committed)
            }
            Wish::Late => {
                self.plan(vec![reason::late()]);
                self.commit(None, true).await
            }
            Wish::Recover(_place) => self.recover().await,
            Wish::Expire => self.expire().await,
            Wish::GiveWay if self.log.is_parked() => self.give_up("expired").await,
            Wish::GiveWay => Ok(()),
        }
    }

    /// Who sent the message of the turn that begins.
    pub(super) fn call(&mut self) -> Call {
        let turn = self.log.turn();
        while self.calls.front().is_some_and(|(number, _)| *number < turn) {
            self.calls.pop_front();
        }
        let call = self.calls.pop_front_if(|(number, _)| *number == turn);
        call.map(|(_, call)| call).unwrap_or_else(|| {
            // Before us, or elsewhere: of all that surrounded it the log has this.
            let trace = self.log.trace_of(turn).cloned();
            Call {
                trace,
                ..Call::new(self.scope.clone())
            }
        })
    }

    /// Tells the agent that a task of its was canceled while it did nothing for it. The task has ended whatever it does.
    async fn tell_canceled(&self) {
        let told = timeout(
            self.engine.settings.cancel_grace,
            self.worker.agent.canceled(&self.log.task),
        )
        .await;
        if let Ok(Err(failure)) = told {
            let cause = failure.cause() as &dyn std::error::Error;
            let agent = &self.scope.agent;
            tracing::warn!(task = %self.id, %agent, cause, "agent failed while it was told of a cancel");
        }
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

    /// Whose task it is.
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether somebody wants something of the task.
    pub(super) fn is_wanted(&self) -> bool {
        self.wished.as_ref().is_some_and(Wished::is_wanted)
    }

    /// Gives back room that one who waits does not need.
    pub(super) fn rest(&mut self) {
        rest(&mut self.spare);
        rest(&mut self.pending);
    }

    /// Whether the fold should go to the store when nothing is on its way there.
    pub(super) fn fold_is_due(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| live.should_be_kept(self.engine.journal.long, false, false))
    }

    /// What happens next, apart from the agent.
    pub(super) async fn news(&mut self) -> News {
        if !self.engine.journal.store.is_shared() {
            return News::Wish(next(&mut self.wished).await);
        }
        let watch = self
            .watch
            .get_or_insert_with(|| self.engine.journal.watch(&self.id));
        let known = self.durable.max(self.looked);
        tokio::select! {
            biased;
            wish = next(&mut self.wished) => News::Wish(wish),
            at = grown(watch, known) => {
                // Once for every announcement: what is not there yet is announced again.
                self.looked = at;
                News::Elsewhere
            }
        }
    }

    /// Takes in what others wrote while we wait for leave to run: a cancel needs none.
    async fn catch_up(&mut self) -> Result<()> {
        self.refresh().await?;
        if self.canceled && !self.log.task.is_ended() {
            self.plan([status(TaskState::Canceled)]);
            self.commit(None, true).await?;
        }
        Ok(())
    }

    /// Whether somebody elsewhere has ended the task, or asked for that.
    pub(super) fn is_stopped(&self) -> bool {
        self.canceled || self.log.task.is_ended()
    }

    /// Whether somebody elsewhere has asked for the task to be canceled since this was last looked at.
    pub(super) fn was_canceled(&mut self) -> bool {
        std::mem::take(&mut self.canceled)
    }
}

impl Drop for Runner {
    /// Only one that was cut off still is the task's: those who follow must not wait for it.
    fn drop(&mut self) {
        if self.wished.is_some() {
            self.lose();
            if std::thread::panicking() {
                self.hand_over();
            }
        }
    }
}

/// What reaches a runner from outside.
pub(super) enum News {
    /// Somebody wants something.
    Wish(Wish),
    /// Somebody else has added to the log.
    Elsewhere,
}

/// Ready when the log reaches further than we know.
async fn grown(watch: &mut watch::Receiver<Seq>, known: Seq) -> Seq {
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
pub(super) fn rest(events: &mut Vec<Event>) {
    if events.is_empty() && events.capacity() > FEW {
        *events = Vec::new();
    }
}

async fn next(wished: &mut Option<Wished>) -> Wish {
    match wished {
        Some(wished) => wished.next().await,
        None => std::future::pending().await,
    }
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
        Self {
            count: engine.waiting.clone(),
            number,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
