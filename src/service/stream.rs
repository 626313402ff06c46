//! The event stream of one task: its first event, the updates after it, and the condition that ends it.
//!
//! A stream reads the task's log through a [`Follow`]. It ends with the task or, for a stream that sent a message, with the
//! turn that handles this message. It ends with an error if the credential of its caller ends.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use super::stream_limits::StreamPermit;
use crate::engine::{self, AcceptedMessage, Engine, Follow, SharedEntry, TaskView};
use crate::model::{
    CallerKey, ClientDialect, ContextId, Error, Event, Message, Result, Seq, StreamResponse, Task,
    TaskId, TaskState,
};
use crate::rt::{ByteBudget, Reservation, is_counted};
use crate::store::Head;

/// One event of a stream.
pub(crate) enum StreamItem {
    /// A direct reply, or a snapshot of the task at this position.
    Full(Box<StreamResponse>, Option<Seq>),
    /// A snapshot of a large task, whose encoding is shared by all subscribers.
    LargeTask(Box<TaskView>, Seq),
    /// A status or artifact update.
    Update {
        /// Shared by all streams of the task.
        entry: SharedEntry,
        /// Whether this is the last event of the stream.
        closes: bool,
    },
}

/// Future that ends a stream with an error.
pub(crate) type StreamEnd = Pin<Box<dyn Future<Output = Error> + Send>>;

/// Events of a task. Dropping the stream does not affect the task.
pub(crate) struct TaskEventStream {
    task: TaskId,
    context: ContextId,
    /// Emitted before the first log entry.
    first: Option<StreamItem>,
    /// `None` after the last entry.
    follow: Option<Follow>,
    opening: OpeningState,
    /// The turn that ends the stream; `None`: only the end of the task does.
    turn: Option<u64>,
    turns_ended: u64,
    history_length: Option<i32>,
    /// Dialect of the client that sent the last message with one.
    client_dialect: Option<ClientDialect>,
    /// Whether the task waits for input or authentication.
    is_waiting: bool,
    /// How long the stream stays open while the task waits.
    waiting_timeout: Option<Duration>,
    /// Ends the stream before the task; `None` after it did.
    end: Option<StreamEnd>,
    /// Holds the stream's slot until the stream is dropped.
    permit: Option<StreamPermit>,
    /// Budget that large pages of the log count against.
    outgoing: Option<Arc<ByteBudget>>,
    /// Part of the budget for the items that were returned last. Boxed: future size.
    reservation: Option<Box<Reservation>>,
}

/// Assembly of the first event of a new task: the task with its first message.
enum OpeningState {
    /// The first event has been emitted, or the stream does not begin with the log.
    Done,
    AwaitingCreated,
    AwaitingMessage(Box<Task>),
}

impl TaskEventStream {
    /// A stream with a direct reply as its only event.
    pub(super) fn from_message(message: Message) -> Self {
        let context = message.context_id.clone().unwrap_or_default();
        let first = full_item(StreamResponse::Message(message), None);
        Self::new(TaskId::default(), context, Some(first), None)
    }

    /// A stream from the first log entry. It has all events even if the task has ended already.
    pub(super) fn for_new_task(
        engine: &Engine,
        mut accepted: Box<AcceptedMessage>,
        history_length: Option<i32>,
        permit: StreamPermit,
    ) -> Self {
        let follow = engine.follow_from_start(&mut accepted);
        let task = accepted.head.id.clone();
        let context = accepted.head.context_id.clone();
        Self {
            opening: OpeningState::AwaitingCreated,
            turn: Some(accepted.turn()),
            history_length,
            permit: Some(permit),
            ..Self::new(task, context, None, Some(follow))
        }
    }

    /// A stream from the message that continues a task: a snapshot, then the entries after it.
    pub(super) fn for_continued_task(
        engine: &Engine,
        mut accepted: Box<AcceptedMessage>,
        history_length: Option<i32>,
        permit: StreamPermit,
    ) -> Self {
        let id = accepted.head.id.clone();
        let context = accepted.head.context_id.clone();
        let turn = accepted.turn();
        let turns_ended = accepted.turns_ended();
        let follow = (!accepted.is_over()).then(|| engine.follow_from_acceptance(&mut accepted));
        let (mut task, position) = accepted.into_task();
        task.limit_history(history_length);
        let client_dialect = task.client_dialect();
        let first = full_item(StreamResponse::Task(task), Some(position));
        Self {
            client_dialect,
            turn: Some(turn),
            turns_ended,
            permit: Some(permit),
            ..Self::new(id, context, Some(first), follow)
        }
    }

    /// A subscription: a snapshot at `position`, then every update until the task ends.
    pub(super) fn for_subscription(
        task: Task,
        position: Seq,
        follow: Follow,
        permit: StreamPermit,
    ) -> Self {
        let id = task.id.clone();
        let context = task.context_id.clone();
        let is_waiting = task.status.state.is_interrupted();
        let client_dialect = task.client_dialect();
        let first = full_item(StreamResponse::Task(task), Some(position));
        Self {
            client_dialect,
            is_waiting,
            permit: Some(permit),
            ..Self::new(id, context, Some(first), Some(follow))
        }
    }

    /// A subscription like [`for_subscription`](Self::for_subscription) to a large task.
    pub(super) fn for_large_task(
        task: TaskView,
        position: Seq,
        follow: Follow,
        permit: StreamPermit,
    ) -> Self {
        let id = task.id.clone();
        let context = task.context_id.clone();
        let is_waiting = task.status.state.is_interrupted();
        let client_dialect = task.client_dialect();
        let first = StreamItem::LargeTask(Box::new(task), position);
        Self {
            client_dialect,
            is_waiting,
            permit: Some(permit),
            ..Self::new(id, context, Some(first), Some(follow))
        }
    }

    /// A resumed subscription: every update after the position of `follow` until the task ends, without a snapshot.
    pub(super) fn from_position(
        head: &Head,
        client_dialect: Option<ClientDialect>,
        follow: Follow,
        permit: StreamPermit,
    ) -> Self {
        Self {
            client_dialect,
            is_waiting: head.state.is_interrupted(),
            permit: Some(permit),
            ..Self::new(head.id.clone(), head.context_id.clone(), None, Some(follow))
        }
    }

    /// Closes the stream when the task has been waiting for input for this long.
    pub(super) fn with_waiting_timeout(self, waiting_timeout: Option<Duration>) -> Self {
        Self {
            waiting_timeout,
            ..self
        }
    }

    /// Counts large pages of the log against a budget.
    pub(super) fn with_budget(self, outgoing: &Arc<ByteBudget>) -> Self {
        Self {
            outgoing: Some(outgoing.clone()),
            ..self
        }
    }

    /// Adds the part of the byte budget that was reserved for the first event.
    pub(super) fn with_reservation(self, reservation: Option<Box<Reservation>>) -> Self {
        Self {
            reservation,
            ..self
        }
    }

    /// Counts a snapshot of a task as the first event against the budget. The snapshot loses its content if the budget is
    /// exhausted: the updates after it and their message must not wait for it.
    pub(super) fn with_counted_snapshot(mut self) -> Self {
        let Some(StreamItem::Full(event, _)) = &mut self.first else {
            return self;
        };
        let StreamResponse::Task(task) = &mut **event else {
            return self;
        };
        if self.reservation.is_some() {
            return self;
        }
        let bytes = task.memory_size();
        if let Some((outgoing, permit)) = self.outgoing.as_ref().zip(self.permit.as_ref())
            && is_counted(bytes)
        {
            match outgoing.try_reserve(permit.caller(), bytes) {
                Ok(reservation) => self.reservation = Some(Box::new(reservation)),
                Err(_) => *task = task.without_content(),
            }
        }
        self
    }

    /// Also ends the stream with the error of `end`, for example when the caller's credential ends.
    pub(crate) fn end_with(&mut self, end: StreamEnd) {
        self.end = Some(end);
    }

    fn new(
        task: TaskId,
        context: ContextId,
        first: Option<StreamItem>,
        follow: Option<Follow>,
    ) -> Self {
        Self {
            task,
            context,
            first,
            follow,
            opening: OpeningState::Done,
            turn: None,
            turns_ended: 0,
            history_length: None,
            client_dialect: None,
            is_waiting: false,
            waiting_timeout: None,
            end: None,
            permit: None,
            outgoing: None,
            reservation: None,
        }
    }

    /// Dialect of the client, as its messages before the last returned events have shown it.
    pub(crate) fn client_dialect(&self) -> Option<ClientDialect> {
        self.client_dialect
    }

    /// The task's id and context id.
    pub(crate) fn ids(&self) -> (&TaskId, &ContextId) {
        (&self.task, &self.context)
    }

    /// Waits for the next events and returns at least one. `None` at the end of the stream; if the task has not ended, the
    /// client may subscribe again.
    ///
    /// # Errors
    /// The log cannot be read, or the credential of the caller has ended. The stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Result<Vec<StreamItem>>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(vec![first]));
        }
        // The last items have been sent.
        self.reservation = None;
        loop {
            let entries = match self.read_until_end().await {
                Ok(None | Some(Err(engine::Error::Deleted | engine::Error::ShuttingDown))) => {
                    return None;
                }
                Ok(Some(Ok(entries))) => entries,
                Ok(Some(Err(error))) => return Some(Err(self.close_with(error.into()))),
                Err(error) => return Some(Err(self.close_with(error))),
            };
            if let Some(bytes) = self.missing_bytes() {
                // Not held while this waits.
                drop(entries);
                // Boxed: future size.
                match Box::pin(self.reserve(bytes)).await {
                    Ok(()) => continue,
                    Err(error) => return Some(Err(self.close_with(error))),
                }
            }
            match self.collect_items(entries) {
                Ok(items) if items.is_empty() => self.reservation = None,
                items => return Some(items),
            }
        }
    }

    /// Reserves the memory of the page that was read last. Returns its size if the budget is exhausted; the page is to
    /// be read again.
    fn missing_bytes(&mut self) -> Option<usize> {
        let bytes = self.follow.as_ref().map_or(0, Follow::page_bytes);
        if !is_counted(bytes) || self.reservation.is_some() {
            return None;
        }
        let (outgoing, permit) = self.outgoing.as_ref().zip(self.permit.as_ref())?;
        match outgoing.try_reserve(permit.caller(), bytes) {
            Ok(reservation) => {
                self.reservation = Some(Box::new(reservation));
                None
            }
            Err(_) => {
                self.follow.as_mut()?.rewind();
                Some(bytes)
            }
        }
    }

    /// Waits for the memory of the next page.
    ///
    /// # Errors
    /// Unavailable: the budget is exhausted.
    async fn reserve(&mut self, bytes: usize) -> Result<()> {
        if let Some((outgoing, permit)) = self.outgoing.as_ref().zip(self.permit.as_ref()) {
            let reserved = outgoing.reserve(permit.caller(), bytes).await?;
            self.reservation = Some(Box::new(reserved));
        }
        Ok(())
    }

    /// Returns the large task of the first event.
    pub(crate) fn large_task(&mut self) -> Option<&mut TaskView> {
        match &mut self.first {
            Some(StreamItem::LargeTask(task, _)) => Some(task),
            Some(StreamItem::Full(..) | StreamItem::Update { .. }) | None => None,
        }
    }

    /// Returns the budget of the stream and its caller.
    pub(crate) fn outgoing(&self) -> Option<(&Arc<ByteBudget>, &CallerKey)> {
        let permit = self.permit.as_ref()?;
        Some((self.outgoing.as_ref()?, permit.caller()))
    }

    fn close_with(&mut self, error: Error) -> Error {
        self.follow = None;
        self.end = None;
        error
    }

    /// Reads the next entries, as [`read_entries`].
    ///
    /// # Errors
    /// The error of `end`, which takes precedence over entries.
    async fn read_until_end(&mut self) -> Result<Option<engine::Result<Vec<SharedEntry>>>> {
        let Some(follow) = &mut self.follow else {
            return Ok(None);
        };
        let waiting_timeout = self.waiting_timeout.filter(|_| self.is_waiting);
        let mut read = pin!(read_entries(follow, waiting_timeout));
        let end = &mut self.end;
        poll_fn(|context| {
            if let Some(end) = end
                && let Poll::Ready(error) = end.as_mut().poll(context)
            {
                return Poll::Ready(Err(error));
            }
            read.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Converts log entries to stream events; stops after the event that closes the stream.
    fn collect_items(&mut self, entries: Vec<SharedEntry>) -> Result<Vec<StreamItem>> {
        let mut items = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter().peekable();
        while let Some(entry) = entries.next() {
            if !matches!(self.opening, OpeningState::Done) {
                items.extend(self.apply_opening_entry(&entry)?);
                continue;
            }
            match &entry.event {
                Event::Status { status, .. } => {
                    let ends_turn = entries
                        .peek()
                        .is_some_and(|next| matches!(next.event, Event::TurnEnded));
                    let closes = self.observe_status(status.state, ends_turn);
                    items.push(StreamItem::Update { entry, closes });
                    if closes {
                        self.follow = None;
                        break;
                    }
                }
                Event::Artifact { .. } => items.push(StreamItem::Update {
                    entry,
                    closes: false,
                }),
                Event::TurnEnded => self.turns_ended += 1,
                Event::Message(message) => self.observe_message(message),
                Event::Created { .. }
                | Event::TraceContext(_)
                | Event::CallMetadata(_)
                | Event::TurnStarted
                | Event::CancelRequested { .. }
                | Event::Ignored { .. } => {}
            }
        }
        Ok(items)
    }

    /// Records a status and returns whether it closes the stream: the task has ended, or the stream's turn ends interrupted.
    fn observe_status(&mut self, state: TaskState, ends_turn: bool) -> bool {
        self.is_waiting = state.is_interrupted();
        let ends_own_turn = ends_turn && self.turn == Some(self.turns_ended + 1);
        state.is_terminal() || (self.is_waiting && ends_own_turn)
    }

    fn observe_message(&mut self, message: &Message) {
        self.client_dialect = message.client_dialect().or(self.client_dialect);
    }

    /// Folds the entries before the first event, which is the task with its first message (1.0 §3.1.2).
    fn apply_opening_entry(&mut self, entry: &SharedEntry) -> Result<Option<StreamItem>> {
        let opening = std::mem::replace(&mut self.opening, OpeningState::Done);
        match (opening, &entry.event) {
            (
                OpeningState::AwaitingCreated,
                Event::Created {
                    id,
                    context_id,
                    metadata,
                },
            ) => {
                let mut task = Task::submitted(id.clone(), context_id.clone(), entry.time);
                task.metadata.clone_from(metadata);
                self.opening = OpeningState::AwaitingMessage(Box::new(task));
                Ok(None)
            }
            (OpeningState::AwaitingMessage(mut task), _) => {
                task.apply(entry).map_err(Error::internal)?;
                if let Event::Message(message) = &entry.event {
                    self.observe_message(message);
                    task.limit_history(self.history_length);
                    return Ok(Some(full_item(
                        StreamResponse::Task(*task),
                        Some(entry.seq),
                    )));
                }
                self.opening = OpeningState::AwaitingMessage(task);
                Ok(None)
            }
            (opening @ (OpeningState::AwaitingCreated | OpeningState::Done), _) => {
                self.opening = opening;
                Ok(None)
            }
        }
    }
}

/// Reads the next entries; `None` after the last one, or after the timeout of a waiting task.
///
/// An interrupted status and the end of its turn are always returned together: [`TaskEventStream::collect_items`] must see
/// both to know whether the stream ends.
async fn read_entries(
    follow: &mut Follow,
    waiting_timeout: Option<Duration>,
) -> Option<engine::Result<Vec<SharedEntry>>> {
    let next = follow.next();
    let read = match waiting_timeout {
        // Boxed: future size.
        Some(limit) => Box::pin(timeout(limit, next)).await.ok()?,
        None => next.await,
    };
    let mut entries = match read {
        Ok(entries) => entries,
        Err(error) => return Some(Err(error)),
    };
    let last_state = entries.last().and_then(entry_state);
    if last_state.is_some_and(TaskState::is_interrupted) {
        match follow.try_more().await {
            Ok(more) => entries.extend(more),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(entries))
}

fn full_item(event: StreamResponse, position: Option<Seq>) -> StreamItem {
    StreamItem::Full(Box::new(event), position)
}

/// The state of a status entry.
fn entry_state(entry: &SharedEntry) -> Option<TaskState> {
    match &entry.event {
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    }
}

/// Whether streams report this entry.
pub(super) fn is_visible_entry(entry: &SharedEntry) -> bool {
    matches!(entry.event, Event::Status { .. } | Event::Artifact { .. })
}
