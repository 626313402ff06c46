//! Plans and commits: what is folded, then durable, then seen.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Accepted, Error, Result, Runner};
use crate::metrics::{self, Stopwatch};
use crate::model::{ContextId, Event, Seq, TaskId, TaskState, TaskStatus};
use crate::store::{self, Batch, Head, Key, NewTask, Opened, Registered, Seen, Underway};

/// What rides with the opening of a log.
pub(super) struct Birth {
    pub(super) context_id: ContextId,
    pub(super) key: Option<Key>,
    pub(super) alias: Option<TaskId>,
    pub(super) config: Option<Box<Registered>>,
    pub(super) followed: bool,
    pub(super) answer: Answer,
}

/// Who waits for a log to be open.
type Answer = oneshot::Sender<Result<Box<Accepted>>>;

/// A log that is about to be opened, and who waits for that.
struct Unopened {
    task: NewTask,
    weight: usize,
    followed: bool,
    answer: Answer,
    begun: Stopwatch,
}

/// A batch that was given to the store, and what became of it.
pub(in crate::engine) struct Sent {
    batch: Batch,
    weight: usize,
    begun: Stopwatch,
    written: store::Result<Seq>,
}

impl Sent {
    pub(in crate::engine) fn is_written(&self) -> bool {
        self.written.is_ok()
    }

    pub(in crate::engine) fn into_events(self) -> Vec<Event> {
        self.batch.events
    }
}

/// How many entries are read at once.
const PAGE: usize = 1000;

impl Runner {
    /// Folds events that will be written with the next commit.
    pub(in crate::engine) fn plan(&mut self, events: impl IntoIterator<Item = Event>) {
        let folded = self.pending.len();
        self.pending.extend(events);
        self.plan_from(folded);
    }

    /// The same for those behind this, which are in their place already.
    pub(super) fn plan_from(&mut self, folded: usize) {
        let weight = self.pending[folded..].iter().map(Event::weight).sum();
        self.fold(folded, weight);
    }

    /// The same for events that were weighed before, all together. Leaves room for more in their place.
    pub(in crate::engine) fn plan_weighed(&mut self, events: &mut Vec<Event>, weight: usize) {
        if events.is_empty() {
            // What waits for the next status counts from now on.
            self.weight += weight;
            return;
        }
        let folded = self.pending.len();
        match folded {
            0 => std::mem::swap(&mut self.pending, events),
            // To where the more of them are: there is room for most of them, or for all.
            few if few < events.len() => {
                events.splice(..0, self.pending.drain(..));
                std::mem::swap(&mut self.pending, events);
            }
            _ => self.pending.append(events),
        }
        self.fold(folded, weight);
    }

    /// Folds what was added behind this.
    fn fold(&mut self, folded: usize, weight: usize) {
        let now = self.engine.clock.now();
        if folded == 0 {
            self.since = now;
        }
        let log = &mut self.log;
        self.pending[folded..]
            .iter_mut()
            .for_each(|event| log.take(now, event));
        self.weight += weight;
        self.pending_weight += weight;
    }

    pub(in crate::engine) fn has_plans(&self) -> bool {
        !self.pending.is_empty()
    }

    /// How many events are planned and not given to the store.
    pub(in crate::engine) fn planned(&self) -> usize {
        self.pending.len()
    }

    /// Gives what was planned to the store, behind so many events that are on their way to it.
    pub(in crate::engine) fn send(
        &mut self,
        head: &Arc<Head>,
        ahead: usize,
    ) -> impl Future<Output = Sent> + Send + use<> {
        let (engine, head) = (self.engine.clone(), head.clone());
        let ((batch, weight), begun) = (self.batch(None), Stopwatch::start());
        let at = Seq(self.durable.0 + ahead as u64);
        async move {
            let written = engine.journal.append(&head, at, &batch).await;
            Sent {
                batch,
                weight,
                begun,
                written,
            }
        }
    }

    /// Lets readers see what was sent, or gives back what the store has not taken.
    pub(in crate::engine) fn take_result(
        &mut self,
        sent: Sent,
    ) -> Result<(), (store::Error, Vec<Event>)> {
        let Sent {
            batch,
            weight,
            begun,
            written,
        } = sent;
        match written {
            Ok(_) => {
                self.count(&metrics::states(&batch.events), batch.events.len(), &begun);
                self.written(batch.events.len(), Some((batch, weight)));
                Ok(())
            }
            Err(error) => Err((error, batch.events)),
        }
    }

    /// Writes what the store has not taken, before all that was planned since; only where others were there first.
    pub(in crate::engine) async fn write_again(
        &mut self,
        error: store::Error,
        mut events: Vec<Event>,
    ) -> Result<()> {
        if !matches!(error, store::Error::Conflict) {
            return Err(error.into());
        }
        events.append(&mut self.pending);
        self.refresh().await?;
        self.plan_again(events);
        self.commit(None, false).await
    }

    /// Writes what was planned in one commit, then lets readers see it. `last` if no work follows.
    pub(in crate::engine) async fn commit(&mut self, key: Option<Key>, last: bool) -> Result<()> {
        if self.head.is_none() {
            return self.open(last).await;
        }
        while self.has_plans() {
            let (batch, weight) = self.batch(key.clone());
            let Some(head) = &self.head else {
                return Ok(());
            };
            let begun = Stopwatch::start();
            let written = self
                .patiently(self.engine.journal.append(head, self.durable, &batch))
                .await;
            match self.take_result(Sent {
                batch,
                weight,
                begun,
                written,
            }) {
                Ok(()) => return Ok(()),
                Err((store::Error::Conflict, events)) => {
                    Box::pin(self.refresh()).await?;
                    self.plan_again(events);
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Plans behind what others wrote: what they made impossible is recorded as ignored, and a turn that they ended
    /// is not begun or ended once more.
    fn plan_again(&mut self, planned: Vec<Event>) {
        for event in planned {
            match event {
                Event::TurnStarted if self.log.task.is_ended() => {}
                Event::TurnEnded if !self.log.turn_runs() => {}
                event => self.plan([event]),
            }
        }
    }

    /// Reads the log again because others wrote to it, and looks at what they did.
    ///
    /// # Errors
    /// They have begun a turn: the task is theirs now, and nothing more of ours may be added to it.
    pub(in crate::engine) async fn refresh(&mut self) -> Result<()> {
        let mut at = self.durable;
        self.reload().await?;
        let Some(head) = &self.head else {
            return Ok(());
        };
        while at < self.durable {
            let entries = self.engine.journal.store.read(head, at, PAGE).await?;
            for entry in entries.iter().filter(|entry| entry.seq <= self.durable) {
                match entry.event {
                    Event::TurnStarted => return Err(Error::Overtaken),
                    Event::CancelRequested { .. } => self.canceled = true,
                    _ => {}
                }
            }
            at = entries.last().ok_or(Error::Gone)?.seq;
        }
        Ok(())
    }

    /// Waits for a commit however long it takes: it may be there in the end. Those who follow are told when that is
    /// too long.
    async fn patiently<T>(&self, mut commit: Underway<'_, T>) -> T {
        // Without a timer, where the store has it at once; and without room for it, where not.
        if let Poll::Ready(committed) =
            poll_fn(|context| Poll::Ready(commit.as_mut().poll(context))).await
        {
            return committed;
        }
        Box::pin(self.more_patiently(commit)).await
    }

    async fn more_patiently<T>(&self, mut commit: Underway<'_, T>) -> T {
        if let Ok(committed) = timeout(self.engine.settings.store_timeout, &mut commit).await {
            return committed;
        }
        tracing::warn!(task = %self.id, "store hangs");
        self.lose();
        commit.await
    }

    /// All that was planned; whoever takes it writes it, or plans it again.
    fn batch(&mut self, key: Option<Key>) -> (Batch, usize) {
        let status = &self.log.task.status;
        let status_time = status.timestamp.unwrap_or(self.since);
        let room = std::mem::take(&mut self.spare);
        let (state, events) = (status.state, std::mem::replace(&mut self.pending, room));
        let (parked, turn) = (self.log.is_parked(), self.log.last_turn());
        let batch = Batch {
            time: self.since,
            events,
            state,
            status_time,
            parked,
            key,
            turn,
        };
        (batch, std::mem::take(&mut self.pending_weight))
    }

    fn count(&self, states: &metrics::States, events: usize, begun: &Stopwatch) {
        metrics::commit(events, begun);
        states.count(&self.scope.agent, self.version);
    }

    /// So many events are durable now; those who follow see the batch.
    fn written(&mut self, events: usize, batch: Option<(Batch, usize)>) {
        let at = self.durable;
        self.durable = Seq(at.0 + events as u64);
        if self.log.task.is_ended() {
            self.engine.count_end();
        } else if self.log.is_parked() {
            self.engine.count_parked(&self.scope);
        }
        match (&self.live, &self.head, batch) {
            (Some(live), Some(head), Some(batch)) => {
                self.spare = self
                    .engine
                    .journal
                    .publish(head, live, at, batch, &self.log);
            }
            _ => self.engine.journal.announce(&self.id, self.durable),
        }
    }

    /// Opens the log with all that was planned. Where a key finds an earlier task, that one is the answer.
    async fn open(&mut self, last: bool) -> Result<()> {
        let Some(unopened) = self.unopened(last) else {
            return Ok(());
        };
        let opened = self
            .patiently(self.engine.journal.open(&unopened.task))
            .await;
        let Some((answer, seen)) = self.opened(*unopened, opened, last)? else {
            return Ok(());
        };
        let _ = answer.send(Box::pin(self.engine.taken(seen)).await);
        Ok(())
    }

    /// What goes to the store. In a box: a turn keeps no room for it.
    fn unopened(&mut self, last: bool) -> Option<Box<Unopened>> {
        let Birth {
            context_id,
            key,
            alias,
            config,
            followed,
            answer,
        } = self.birth.take()?;
        let (batch, weight) = self.batch(key);
        if !last {
            // Before anybody can find the task, so that nobody else begins to work on it.
            let (live, wished) = self.engine.journal.registry.claim(&self.id);
            (self.live, self.wished) = (Some(live), Some(wished));
        }
        let (id, scope) = (self.id.clone(), self.scope.clone());
        let task = NewTask {
            id,
            scope,
            context_id,
            alias,
            config,
            batch,
        };
        Some(Box::new(Unopened {
            task,
            weight,
            followed,
            answer,
            begun: Stopwatch::start(),
        }))
    }

    /// Tells whoever waits for it that the log is open, or why it is not; but for the task of before, where there is one.
    fn opened(
        &mut self,
        unopened: Unopened,
        opened: store::Result<Opened>,
        last: bool,
    ) -> Result<Option<(Answer, Seen)>> {
        let Unopened {
            task,
            weight,
            followed,
            answer,
            begun,
        } = unopened;
        match opened {
            Ok(Opened::New(head)) => {
                self.head = Some(head);
                let events = task.batch.events.len();
                self.count(&metrics::states(&task.batch.events), events, &begun);
                // A quick turn is over before anybody could follow it, but for whoever began it.
                let shown = (!last || followed).then_some(task.batch);
                let (live, opening) = if last { (None, shown) } else { (shown, None) };
                // Watched before there is anything to see: whoever follows it begins with this.
                let watch = (followed && !last).then(|| self.engine.journal.watch(&self.id));
                self.written(events, live.map(|batch| (batch, weight)));
                let mut accepted = self.accepted();
                accepted.opening = opening;
                let _ = answer.send(Ok(accepted));
                drop(watch);
                Ok(None)
            }
            Ok(Opened::Again(seen)) => {
                self.next_wish();
                Ok(Some((answer, seen)))
            }
            // Refused, and nothing was written: there is no task.
            Err(
                error @ (store::Error::Conflict | store::Error::Repeated | store::Error::KeyReused),
            ) => {
                self.next_wish();
                let _ = answer.send(Err(error.into()));
                Ok(None)
            }
            Err(error @ store::Error::Failed(_)) => {
                let _ = answer.send(Err(error.into()));
                Err(Error::Lost)
            }
        }
    }

    pub(super) async fn reload(&mut self) -> Result<()> {
        let Some(head) = &self.head else {
            return Ok(());
        };
        self.log = self.engine.journal.stored(head).await?;
        (self.durable, self.pending, self.pending_weight) = (self.log.at, Vec::new(), 0);
        self.weight = self.log.task.weight();
        if let Some(live) = &self.live {
            live.reset(&self.log);
            self.engine.journal.announce(&self.id, self.durable);
        }
        Ok(())
    }

    pub(super) fn accepted(&self) -> Box<Accepted> {
        let head = self.head.clone().unwrap_or_else(|| self.fresh_head());
        let tail = self
            .live
            .as_ref()
            .map(|live| self.engine.journal.watched(&self.id, live));
        let (turn, log) = (self.log.last_turn(), self.log.clone());
        Box::new(Accepted {
            head,
            turn,
            log,
            opening: None,
            tail,
        })
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
}

pub(in crate::engine) fn status(state: TaskState) -> Event {
    Event::Status {
        status: TaskStatus::new(state),
        metadata: None,
    }
}
