//! Staging and committing events of a task: fold first, then append, then publish.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::timeout;
use tracing::Span;

use super::{Runner, RunnerResult};
use crate::engine::journal::SizedBatch;
use crate::engine::tail::SnapshotOccasion;
use crate::engine::{AcceptedMessage, Result};
use crate::model::{Event, Message, Seq, TaskState, TaskStatus, Timestamp};
use crate::store::{self, Head, IdempotencyKey, StoreFuture};
use crate::telemetry::metrics::{self, Stopwatch};
use crate::telemetry::trace;

/// Whether the runner has more to do after a commit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::engine) enum CommitPoint {
    /// A turn runs or follows.
    Interim,
    /// No turn follows. A task that is created by this commit needs no inbox and no tail.
    Final,
}

/// A batch that was handed to the store, and the store's answer.
pub(in crate::engine) struct AppendAttempt {
    sized_batch: SizedBatch,
    started: Stopwatch,
    result: store::Result<Seq>,
}

/// A batch that the store has not written.
pub(in crate::engine) struct FailedAppend {
    pub(in crate::engine) error: store::Error,
    pub(in crate::engine) events: Vec<Event>,
}

impl AppendAttempt {
    pub(in crate::engine) fn is_written(&self) -> bool {
        self.result.is_ok()
    }

    pub(in crate::engine) fn event_count(&self) -> usize {
        self.sized_batch.batch.events.len()
    }

    pub(in crate::engine) fn into_events(self) -> Vec<Event> {
        self.sized_batch.batch.events
    }
}

impl Runner {
    /// Stages events: folds them now, and appends them with the next commit.
    pub(in crate::engine) fn stage(&mut self, events: impl IntoIterator<Item = Event>) {
        let first = self.pipeline.staged.len();
        self.pipeline.staged.extend(events);
        let events = self.pipeline.staged[first..].iter();
        let bytes = events.map(Event::memory_size).sum();
        self.fold_staged(first, bytes, self.engine.inner.clock.now());
    }

    /// Stages events of `bytes` in total, and leaves an empty buffer in their place.
    pub(in crate::engine) fn stage_sized(&mut self, events: &mut Vec<Event>, bytes: usize) {
        if events.is_empty() {
            // Metadata that is held for the next status counts from now on.
            self.pipeline.task_bytes += bytes;
            return;
        }
        let first = self.pipeline.staged.len();
        self.pipeline.take_events(events);
        self.fold_staged(first, bytes, self.engine.inner.clock.now());
    }

    /// Folds the staged events from an index on, which are `bytes` in total.
    pub(super) fn fold_staged(&mut self, first: usize, bytes: usize, now: Timestamp) {
        self.pipeline.fold(&mut self.log, first, bytes, now);
        if let Some(span) = &self.turn_span {
            trace::record_entries(span, &self.pipeline.staged[first..]);
        }
    }

    /// Records all entries until [`end_turn_trace`](Self::end_turn_trace) in a span, and those that are staged.
    pub(in crate::engine) fn begin_turn_trace(&mut self, span: &Span, message: &Arc<Message>) {
        if span.is_disabled() {
            return;
        }
        let staged = &self.pipeline.staged;
        if !staged
            .iter()
            .any(|event| matches!(event, Event::Message(_)))
        {
            // Committed before the turn.
            trace::record_entries(span, &[Event::Message(message.clone())]);
        }
        trace::record_entries(span, staged);
        self.turn_span = Some(Box::new(span.clone()));
    }

    pub(in crate::engine) fn end_turn_trace(&mut self) {
        self.turn_span = None;
    }

    pub(in crate::engine) fn has_staged(&self) -> bool {
        !self.pipeline.staged.is_empty()
    }

    pub(in crate::engine) fn staged_count(&self) -> usize {
        self.pipeline.staged.len()
    }

    /// Approximate size of the task in bytes, including staged events.
    pub(in crate::engine) fn task_bytes(&self) -> usize {
        self.pipeline.task_bytes
    }

    fn take_batch(&mut self, key: Option<IdempotencyKey>) -> SizedBatch {
        self.pipeline.take_batch(&self.log, key)
    }

    /// Hands the staged events to the store, after `in_flight` events that are not durable yet.
    pub(in crate::engine) fn start_append(
        &mut self,
        head: &Arc<Head>,
        in_flight: usize,
    ) -> impl Future<Output = AppendAttempt> + Send + use<> {
        let engine = self.engine.clone();
        let head = head.clone();
        let sized_batch = self.take_batch(None);
        let started = Stopwatch::start();
        let position = Seq(self.pipeline.durable_position.0 + in_flight as u64);
        self.begin_append(position, &sized_batch);
        async move {
            let journal = &engine.inner.journal;
            let result = journal.append(&head, position, &sized_batch.batch).await;
            AppendAttempt {
                sized_batch,
                started,
                result,
            }
        }
    }

    /// Tells readers that the store may be ahead of the tail from now on.
    fn begin_append(&self, position: Seq, sized_batch: &SizedBatch) {
        if let Some(inbox) = &self.inbox {
            let end = position.0 + sized_batch.batch.events.len() as u64;
            inbox.task().begin_append(Seq(end));
        }
    }

    /// Publishes a written batch, or returns its events if the store has not written it.
    pub(in crate::engine) fn complete_append(
        &mut self,
        attempt: AppendAttempt,
    ) -> Result<(), FailedAppend> {
        let AppendAttempt {
            sized_batch,
            started,
            result,
        } = attempt;
        if let Err(error) = result {
            let events = sized_batch.batch.events;
            return Err(FailedAppend { error, events });
        }
        let events = &sized_batch.batch.events;
        let count = events.len();
        self.record_commit(&metrics::state_changes(events), count, &started);
        self.publish_durable(count, Some(sized_batch));
        Ok(())
    }

    /// Appends a batch again that was refused because another process had appended first. Its events precede all events
    /// staged since.
    pub(in crate::engine) async fn retry_append(&mut self, failed: FailedAppend) -> RunnerResult {
        let FailedAppend { error, mut events } = failed;
        if !matches!(error, store::Error::Conflict) {
            return Err(error.into());
        }
        events.append(&mut self.pipeline.staged);
        self.refresh().await?;
        self.restage(events);
        self.commit(None, CommitPoint::Interim).await
    }

    /// Commits all staged events in one batch, and publishes them.
    pub(in crate::engine) async fn commit(
        &mut self,
        key: Option<IdempotencyKey>,
        point: CommitPoint,
    ) -> RunnerResult {
        if self.pipeline.head().is_none() {
            self.create(point).await?;
            return Ok(());
        }
        while self.has_staged() {
            let sized_batch = self.take_batch(key.clone());
            let Some(head) = self.pipeline.head() else {
                return Ok(());
            };
            let started = Stopwatch::start();
            let position = self.pipeline.durable_position;
            self.begin_append(position, &sized_batch);
            let journal = &self.engine.inner.journal;
            let append = journal.append(head, position, &sized_batch.batch);
            let result = self.await_commit(append).await;
            let attempt = AppendAttempt {
                sized_batch,
                started,
                result,
            };
            match self.complete_append(attempt) {
                Ok(()) => return Ok(()),
                Err(FailedAppend {
                    error: store::Error::Conflict,
                    events,
                }) => {
                    Box::pin(self.refresh()).await?;
                    self.restage(events);
                }
                Err(failed) => return Err(failed.error.into()),
            }
        }
        Ok(())
    }

    /// Stages events again after entries of another process. Events that these made impossible become `Ignored`; a
    /// turn that they ended is neither started nor ended once more.
    fn restage(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::TurnStarted if self.log.task.is_ended() => {}
                Event::TurnEnded if !self.log.is_turn_running() => {}
                event => self.stage([event]),
            }
        }
    }

    /// Waits for a commit without a limit, because it may still succeed. After `store_timeout`, subscribers get an
    /// error.
    pub(super) async fn await_commit<T>(&self, mut commit: StoreFuture<'_, T>) -> T {
        // The first poll needs no timer.
        let first_poll = poll_fn(|context| Poll::Ready(commit.as_mut().poll(context)));
        if let Poll::Ready(result) = first_poll.await {
            return result;
        }
        // Boxed: future size.
        Box::pin(self.await_commit_slow(commit)).await
    }

    async fn await_commit_slow<T>(&self, mut commit: StoreFuture<'_, T>) -> T {
        let store_timeout = self.engine.inner.settings.store_timeout;
        if let Ok(result) = timeout(store_timeout, &mut commit).await {
            return result;
        }
        self.report_slow_store();
        commit.await
    }

    /// Logs that an append exceeds `store_timeout`. Until it completes, subscribers get an error.
    pub(in crate::engine) fn report_slow_store(&self) {
        tracing::warn!(task = %self.id, "store does not respond");
        self.mark_unwritable();
    }

    pub(super) fn record_commit(
        &self,
        states: &metrics::StateChanges,
        events: usize,
        started: &Stopwatch,
    ) {
        metrics::record_commit(events, started);
        states.record(&self.scope.agent, self.turns.version);
    }

    /// Advances the durable position by `events`, and publishes the batch to readers.
    pub(super) fn publish_durable(&mut self, events: usize, sized_batch: Option<SizedBatch>) {
        let position = self.pipeline.durable_position;
        self.pipeline.durable_position = Seq(position.0 + events as u64);
        if self.log.task.is_ended() {
            self.engine.count_ended();
        } else if self.log.is_parked() {
            self.engine.count_parked(&self.scope);
        }
        self.announce_takeover();
        let journal = &self.engine.inner.journal;
        match (&self.inbox, self.pipeline.head(), sized_batch) {
            (Some(inbox), Some(head), Some(sized_batch)) => {
                self.pipeline.spare_buffer =
                    journal.publish(head, inbox.task(), position, sized_batch, &self.log);
            }
            _ => journal.announce(&self.id, self.pipeline.durable_position),
        }
    }

    /// Returns whether a snapshot should be saved before further batches are pipelined.
    pub(in crate::engine) fn is_snapshot_due(&self) -> bool {
        let min_entries = self.engine.inner.journal.snapshot_min_entries;
        self.inbox.as_ref().is_some_and(|inbox| {
            let occasion = SnapshotOccasion::WithinTurn;
            inbox.task().is_snapshot_due(min_entries, occasion)
        })
    }

    /// Reads the log from the store, and drops staged events.
    pub(super) async fn reload(&mut self) -> Result<()> {
        let Some(head) = self.pipeline.head() else {
            return Ok(());
        };
        self.log = self.engine.inner.journal.load_for_runner(head).await?;
        self.pipeline.reset(&self.log);
        if let Some(inbox) = &self.inbox {
            inbox.task().reset(&self.log);
            let position = self.pipeline.durable_position;
            self.engine.inner.journal.announce(&self.id, position);
        }
        Ok(())
    }

    /// Returns the reply to the sender of the newest message.
    pub(super) fn acceptance(&self) -> Box<AcceptedMessage> {
        let head = self.pipeline.head().cloned();
        let journal = &self.engine.inner.journal;
        let tail = self
            .inbox
            .as_ref()
            .map(|inbox| journal.subscribe_tail(&self.id, inbox.task()));
        Box::new(AcceptedMessage {
            head: head.unwrap_or_else(|| self.new_head()),
            turn: self.log.newest_turn(),
            log: self.log.clone(),
            batch: None,
            tail,
        })
    }

    fn new_head(&self) -> Head {
        Head {
            position: self.pipeline.durable_position,
            ..self.log.head(self.scope.clone())
        }
    }
}

pub(in crate::engine) fn status_event(state: TaskState) -> Event {
    Event::Status {
        status: TaskStatus::new(state),
        metadata: None,
    }
}
