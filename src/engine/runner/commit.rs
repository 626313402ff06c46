//! Plans and commits: what is folded, then durable, then seen.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{AcceptedMessage, Error, Result, Runner};
use crate::model::{ContextId, Event, Seq, TaskId, TaskState, TaskStatus};
use crate::store::{
    self, Batch, CreateResult, Head, IdempotencyKey, IdempotencyRecord, NewTask, PushRegistration,
    StoreFuture,
};
use crate::telemetry::metrics::{self, Stopwatch};

/// What rides with the opening of a log.
pub(super) struct CreateParams {
    pub(super) context_id: ContextId,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) alias: Option<TaskId>,
    pub(super) config: Option<Box<PushRegistration>>,
    pub(super) is_followed: bool,
    pub(super) reply: CreateReply,
}

/// Who waits for a log to be open.
type CreateReply = oneshot::Sender<Result<Box<AcceptedMessage>>>;

/// A log that is about to be opened, and who waits for that.
struct PendingCreate {
    task: NewTask,
    weight: usize,
    is_followed: bool,
    reply: CreateReply,
    started: Stopwatch,
}

/// A batch that was given to the store, and what became of it.
pub(in crate::engine) struct AppendAttempt {
    batch: Batch,
    weight: usize,
    started: Stopwatch,
    written: store::Result<Seq>,
}

impl AppendAttempt {
    pub(in crate::engine) fn is_written(&self) -> bool {
        self.written.is_ok()
    }

    pub(in crate::engine) fn into_events(self) -> Vec<Event> {
        self.batch.events
    }
}

/// How many entries are read at once.
const READ_PAGE_ENTRIES: usize = 1000;

impl Runner {
    /// Folds events that will be written with the next commit.
    pub(in crate::engine) fn stage(&mut self, events: impl IntoIterator<Item = Event>) {
        let folded = self.staged.len();
        self.staged.extend(events);
        self.stage_from(folded);
    }

    /// The same for those behind this, which are in their place already.
    pub(super) fn stage_from(&mut self, folded: usize) {
        let weight = self.staged[folded..].iter().map(Event::memory_size).sum();
        self.fold_staged(folded, weight);
    }

    /// The same for events that were weighed before, all together. Leaves room for more in their place.
    pub(in crate::engine) fn stage_sized(&mut self, events: &mut Vec<Event>, weight: usize) {
        if events.is_empty() {
            // What waits for the next status counts from now on.
            self.task_bytes += weight;
            return;
        }
        let folded = self.staged.len();
        match folded {
            0 => std::mem::swap(&mut self.staged, events),
            // To where the more of them are: there is room for most of them, or for all.
            few if few < events.len() => {
                events.splice(..0, self.staged.drain(..));
                std::mem::swap(&mut self.staged, events);
            }
            _ => self.staged.append(events),
        }
        self.fold_staged(folded, weight);
    }

    /// Folds what was added behind this.
    fn fold_staged(&mut self, folded: usize, weight: usize) {
        let now = self.engine.clock.now();
        if folded == 0 {
            self.staged_since = now;
        }
        let log = &mut self.log;
        self.staged[folded..]
            .iter_mut()
            .for_each(|event| log.apply_next(now, event));
        self.task_bytes += weight;
        self.staged_bytes += weight;
    }

    pub(in crate::engine) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// How many events are planned and not given to the store.
    pub(in crate::engine) fn staged_count(&self) -> usize {
        self.staged.len()
    }

    /// Gives what was planned to the store, behind so many events that are on their way to it.
    pub(in crate::engine) fn start_append(
        &mut self,
        head: &Arc<Head>,
        in_flight: usize,
    ) -> impl Future<Output = AppendAttempt> + Send + use<> {
        let (engine, head) = (self.engine.clone(), head.clone());
        let ((batch, weight), started) = (self.take_batch(None), Stopwatch::start());
        let position = Seq(self.durable_position.0 + in_flight as u64);
        async move {
            let written = engine.journal.append(&head, position, &batch).await;
            AppendAttempt {
                batch,
                weight,
                started,
                written,
            }
        }
    }

    /// Lets readers see what was sent, or gives back what the store has not taken.
    pub(in crate::engine) fn complete_append(
        &mut self,
        sent: AppendAttempt,
    ) -> Result<(), (store::Error, Vec<Event>)> {
        let AppendAttempt {
            batch,
            weight,
            started,
            written,
        } = sent;
        match written {
            Ok(_) => {
                self.record_commit(
                    &metrics::state_changes(&batch.events),
                    batch.events.len(),
                    &started,
                );
                self.publish_durable(batch.events.len(), Some((batch, weight)));
                Ok(())
            }
            Err(error) => Err((error, batch.events)),
        }
    }

    /// Writes what the store has not taken, before all that was planned since; only where others were there first.
    pub(in crate::engine) async fn retry_append(
        &mut self,
        error: store::Error,
        mut events: Vec<Event>,
    ) -> Result<()> {
        if !matches!(error, store::Error::Conflict) {
            return Err(error.into());
        }
        events.append(&mut self.staged);
        self.refresh().await?;
        self.restage(events);
        self.commit(None, false).await
    }

    /// Writes what was planned in one commit, then lets readers see it. `last` if no work follows.
    pub(in crate::engine) async fn commit(
        &mut self,
        key: Option<IdempotencyKey>,
        last: bool,
    ) -> Result<()> {
        if self.head.is_none() {
            return self.create(last).await;
        }
        while self.has_staged() {
            let (batch, weight) = self.take_batch(key.clone());
            let Some(head) = &self.head else {
                return Ok(());
            };
            let started = Stopwatch::start();
            let written = self
                .await_commit(
                    self.engine
                        .journal
                        .append(head, self.durable_position, &batch),
                )
                .await;
            match self.complete_append(AppendAttempt {
                batch,
                weight,
                started,
                written,
            }) {
                Ok(()) => return Ok(()),
                Err((store::Error::Conflict, events)) => {
                    Box::pin(self.refresh()).await?;
                    self.restage(events);
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Plans behind what others wrote: what they made impossible is recorded as ignored, and a turn that they ended
    /// is not begun or ended once more.
    fn restage(&mut self, planned: Vec<Event>) {
        for event in planned {
            match event {
                Event::TurnStarted if self.log.task.is_ended() => {}
                Event::TurnEnded if !self.log.is_turn_running() => {}
                event => self.stage([event]),
            }
        }
    }

    /// Reads the log again because others wrote to it, and looks at what they did.
    ///
    /// # Errors
    /// They have begun a turn: the task is theirs now, and nothing more of ours may be added to it.
    pub(in crate::engine) async fn refresh(&mut self) -> Result<()> {
        let mut position = self.durable_position;
        self.reload().await?;
        let Some(head) = &self.head else {
            return Ok(());
        };
        while position < self.durable_position {
            let entries = self
                .engine
                .journal
                .store
                .read(head, position, READ_PAGE_ENTRIES)
                .await?;
            for entry in entries
                .iter()
                .filter(|entry| entry.seq <= self.durable_position)
            {
                match entry.event {
                    Event::TurnStarted => return Err(Error::Superseded),
                    Event::CancelRequested { .. } => self.cancel_requested = true,
                    _ => {}
                }
            }
            position = entries.last().ok_or(Error::Deleted)?.seq;
        }
        Ok(())
    }

    /// Waits for a commit however long it takes: it may be there in the end. Those who follow are told when that is
    /// too long.
    async fn await_commit<T>(&self, mut commit: StoreFuture<'_, T>) -> T {
        // Without a timer, where the store has it at once; and without room for it, where not.
        if let Poll::Ready(committed) =
            poll_fn(|context| Poll::Ready(commit.as_mut().poll(context))).await
        {
            return committed;
        }
        Box::pin(self.await_commit_slow(commit)).await
    }

    async fn await_commit_slow<T>(&self, mut commit: StoreFuture<'_, T>) -> T {
        if let Ok(committed) = timeout(self.engine.settings.store_timeout, &mut commit).await {
            return committed;
        }
        tracing::warn!(task = %self.id, "store hangs");
        self.mark_unwritable();
        commit.await
    }

    /// All that was planned; whoever takes it writes it, or plans it again.
    fn take_batch(&mut self, key: Option<IdempotencyKey>) -> (Batch, usize) {
        let status = &self.log.task.status;
        let status_time = status.timestamp.unwrap_or(self.staged_since);
        let room = std::mem::take(&mut self.spare_buffer);
        let (state, events) = (status.state, std::mem::replace(&mut self.staged, room));
        let (parked, turn) = (self.log.is_parked(), self.log.newest_turn());
        let batch = Batch {
            time: self.staged_since,
            events,
            state,
            status_time,
            parked,
            key,
            turn,
        };
        (batch, std::mem::take(&mut self.staged_bytes))
    }

    fn record_commit(&self, states: &metrics::StateChanges, events: usize, started: &Stopwatch) {
        metrics::record_commit(events, started);
        states.record(&self.scope.agent, self.version);
    }

    /// So many events are durable now; those who follow see the batch.
    fn publish_durable(&mut self, events: usize, batch: Option<(Batch, usize)>) {
        let position = self.durable_position;
        self.durable_position = Seq(position.0 + events as u64);
        if self.log.task.is_ended() {
            self.engine.count_ended();
        } else if self.log.is_parked() {
            self.engine.count_parked(&self.scope);
        }
        match (&self.active, &self.head, batch) {
            (Some(active), Some(head), Some(batch)) => {
                self.spare_buffer = self
                    .engine
                    .journal
                    .publish(head, active, position, batch, &self.log);
            }
            _ => self
                .engine
                .journal
                .announce(&self.id, self.durable_position),
        }
    }

    /// Opens the log with all that was planned. Where a key finds an earlier task, that one is the answer.
    async fn create(&mut self, last: bool) -> Result<()> {
        let Some(pending_create) = self.prepare_create(last) else {
            return Ok(());
        };
        let created = self
            .await_commit(self.engine.journal.create(&pending_create.task))
            .await;
        let Some((reply, seen)) = self.complete_create(*pending_create, created, last)? else {
            return Ok(());
        };
        let _ = reply.send(Box::pin(self.engine.accepted_replay(seen)).await);
        Ok(())
    }

    /// What goes to the store. In a box: a turn keeps no room for it.
    fn prepare_create(&mut self, last: bool) -> Option<Box<PendingCreate>> {
        let CreateParams {
            context_id,
            key,
            alias,
            config,
            is_followed,
            reply,
        } = self.create_params.take()?;
        let (batch, weight) = self.take_batch(key);
        if !last {
            // Before anybody can find the task, so that nobody else begins to work on it.
            let (active, inbox) = self.engine.journal.active_tasks.claim(&self.id);
            (self.active, self.inbox) = (Some(active), Some(inbox));
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
        Some(Box::new(PendingCreate {
            task,
            weight,
            is_followed,
            reply,
            started: Stopwatch::start(),
        }))
    }

    /// Tells whoever waits for it that the log is open, or why it is not; but for the task of before, where there is one.
    fn complete_create(
        &mut self,
        pending_create: PendingCreate,
        created: store::Result<CreateResult>,
        last: bool,
    ) -> Result<Option<(CreateReply, IdempotencyRecord)>> {
        let PendingCreate {
            task,
            weight,
            is_followed,
            reply,
            started,
        } = pending_create;
        match created {
            Ok(CreateResult::Created(head)) => {
                self.head = Some(head);
                let events = task.batch.events.len();
                self.record_commit(
                    &metrics::state_changes(&task.batch.events),
                    events,
                    &started,
                );
                // A quick turn is over before anybody could follow it, but for whoever began it.
                let shown = (!last || is_followed).then_some(task.batch);
                let (active, opening) = if last { (None, shown) } else { (shown, None) };
                // Watched before there is anything to see: whoever follows it begins with this.
                let watch = (is_followed && !last).then(|| self.engine.journal.watch(&self.id));
                self.publish_durable(events, active.map(|batch| (batch, weight)));
                let mut accepted = self.acceptance();
                accepted.opening = opening;
                let _ = reply.send(Ok(accepted));
                drop(watch);
                Ok(None)
            }
            Ok(CreateResult::Replayed(seen)) => {
                self.next_command();
                Ok(Some((reply, seen)))
            }
            // Refused, and nothing was written: there is no task.
            Err(
                error @ (store::Error::Conflict
                | store::Error::AlreadyApplied
                | store::Error::KeyReused),
            ) => {
                self.next_command();
                let _ = reply.send(Err(error.into()));
                Ok(None)
            }
            Err(error @ store::Error::Failed(_)) => {
                let _ = reply.send(Err(error.into()));
                Err(Error::StoreUnavailable)
            }
        }
    }

    pub(super) async fn reload(&mut self) -> Result<()> {
        let Some(head) = &self.head else {
            return Ok(());
        };
        self.log = self.engine.journal.load_for_runner(head).await?;
        (self.durable_position, self.staged, self.staged_bytes) =
            (self.log.position, Vec::new(), 0);
        self.task_bytes = self.log.task.memory_size();
        if let Some(active) = &self.active {
            active.reset(&self.log);
            self.engine
                .journal
                .announce(&self.id, self.durable_position);
        }
        Ok(())
    }

    pub(super) fn acceptance(&self) -> Box<AcceptedMessage> {
        let head = self.head.clone().unwrap_or_else(|| self.new_head());
        let tail = self
            .active
            .as_ref()
            .map(|active| self.engine.journal.subscribe_tail(&self.id, active));
        let (turn, log) = (self.log.newest_turn(), self.log.clone());
        Box::new(AcceptedMessage {
            head,
            turn,
            log,
            opening: None,
            tail,
        })
    }

    fn new_head(&self) -> Head {
        let status = &self.log.task.status;
        Head {
            id: self.id.clone(),
            scope: self.scope.clone(),
            context_id: self.log.task.context_id.clone(),
            position: self.durable_position,
            state: status.state,
            status_time: status.timestamp.unwrap_or_default(),
        }
    }
}

pub(in crate::engine) fn status_event(state: TaskState) -> Event {
    Event::Status {
        status: TaskStatus::new(state),
        metadata: None,
    }
}
