//! What happens to a task, as it happens: where such a stream begins, what is in it, and when it ends.

use std::time::Duration;

use tokio::time::timeout;

use super::stream_limits::StreamPermit;
use crate::engine::{self, AcceptedMessage, Engine, Follow, SharedEntry};
use crate::model::{
    ContextId, Error, Event, Message, Result, Seq, StreamResponse, Task, TaskId, TaskState,
};
use crate::store::Head;

/// What comes out of a stream.
pub(crate) enum StreamItem {
    /// A plain answer, or the task as it stood at this position.
    Full(Box<StreamResponse>, Option<Seq>),
    /// What happened next.
    Update {
        /// The entry; everybody who follows the task shares it.
        entry: SharedEntry,
        /// Whether nothing follows.
        closes: bool,
    },
}

/// What happens to a task, as it happens. Dropping it stops nothing but itself.
pub(crate) struct TaskEventStream {
    task: TaskId,
    context: ContextId,
    /// What goes out before anything of the log.
    first: Option<StreamItem>,
    /// None where nothing follows.
    follow: Option<Follow>,
    /// The task that is being opened, until its message is in.
    opening: OpeningState,
    /// The turn whose end is the end of the stream; without one, only the end of the task is.
    turn: Option<u64>,
    turns_ended: u64,
    history_length: Option<i32>,
    /// Whether the task waits for somebody outside.
    waiting: bool,
    /// How long to stay while it does.
    waiting_timeout: Option<Duration>,
    _permit: Option<StreamPermit>,
}

enum OpeningState {
    Done,
    AwaitingCreated,
    AwaitingMessage(Box<Task>),
}

impl TaskEventStream {
    /// A plain answer, and nothing else.
    pub(super) fn from_message(message: Message) -> Self {
        let ids = (
            TaskId::default(),
            message.context_id.clone().unwrap_or_default(),
        );
        Self::new(
            ids,
            Some(full_item(StreamResponse::Message(message), None)),
            None,
        )
    }

    /// A task from its first entry on: even if it has ended meanwhile, all that happened is told.
    pub(super) fn for_new_task(
        engine: &Engine,
        mut accepted: Box<AcceptedMessage>,
        history_length: Option<i32>,
        permit: StreamPermit,
    ) -> Self {
        let follow = engine.follow_from_start(&mut accepted);
        let head = &accepted.head;
        let stream = Self::new(
            (head.id.clone(), head.context_id.clone()),
            None,
            Some(follow),
        );
        let opening = OpeningState::AwaitingCreated;
        Self {
            opening,
            turn: Some(accepted.turn()),
            history_length,
            _permit: Some(permit),
            ..stream
        }
    }

    /// A task from the message that continues it.
    pub(super) fn for_continued_task(
        engine: &Engine,
        mut accepted: Box<AcceptedMessage>,
        history_length: Option<i32>,
        permit: StreamPermit,
    ) -> Self {
        let (head, turn, turns_ended) = (
            accepted.head.clone(),
            accepted.turn(),
            accepted.turns_ended(),
        );
        let follow = (!accepted.is_over()).then(|| engine.follow_from_acceptance(&mut accepted));
        let (mut task, at) = accepted.into_task();
        task.limit_history(history_length);
        let first = Some(full_item(StreamResponse::Task(task), Some(at)));
        let stream = Self::new((head.id, head.context_id), first, follow);
        Self {
            turn: Some(turn),
            turns_ended,
            _permit: Some(permit),
            ..stream
        }
    }

    /// A task as it stands, and what comes after that until it ends.
    pub(super) fn for_subscription(
        engine: &Engine,
        head: &Head,
        (task, at): (Task, Seq),
        waiting_timeout: Option<Duration>,
        permit: StreamPermit,
    ) -> Self {
        let waiting = task.status.state.is_interrupted();
        let (ids, follow) = (
            (head.id.clone(), head.context_id.clone()),
            engine.follow(head, at),
        );
        let stream = Self::new(
            ids,
            Some(full_item(StreamResponse::Task(task), Some(at))),
            Some(follow),
        );
        Self {
            waiting,
            waiting_timeout,
            _permit: Some(permit),
            ..stream
        }
    }

    /// What came after a position that the caller has seen, until the task ends.
    pub(super) fn from_position(
        head: &Head,
        follow: Follow,
        waiting_timeout: Option<Duration>,
        permit: StreamPermit,
    ) -> Self {
        let waiting = head.state.is_interrupted();
        let stream = Self::new(
            (head.id.clone(), head.context_id.clone()),
            None,
            Some(follow),
        );
        Self {
            waiting,
            waiting_timeout,
            _permit: Some(permit),
            ..stream
        }
    }

    fn new(
        (task, context): (TaskId, ContextId),
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
            waiting: false,
            waiting_timeout: None,
            _permit: None,
        }
    }

    /// The task it is about, and its conversation.
    pub(crate) fn ids(&self) -> (&TaskId, &ContextId) {
        (&self.task, &self.context)
    }

    /// Whatever there is, at least one; waits for it. `None` at the end, and where the stream was cut: then the
    /// task has not ended, and the caller may come again.
    ///
    /// # Errors
    /// Nothing can be recorded for now. The stream is over.
    pub(crate) async fn next(&mut self) -> Option<Result<Vec<StreamItem>>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(vec![first]));
        }
        loop {
            let entries = match self.read_entries().await? {
                Ok(entries) => entries,
                Err(engine::Error::Deleted | engine::Error::ShuttingDown) => return None,
                Err(error) => {
                    self.follow = None;
                    return Some(Err(error.into()));
                }
            };
            match self.collect_items(entries) {
                Ok(items) if items.is_empty() => {}
                items => return Some(items),
            }
        }
    }

    /// The next entries. What a turn ends with is never torn in two, so that it can be told from what goes on.
    async fn read_entries(&mut self) -> Option<engine::Result<Vec<SharedEntry>>> {
        let follow = self.follow.as_mut()?;
        let next = follow.next();
        let read = match self.waiting_timeout.filter(|_| self.waiting) {
            // Apart: most streams have no use for it.
            Some(waiting_timeout) => Box::pin(timeout(waiting_timeout, next)).await.ok()?,
            None => next.await,
        };
        let mut entries = match read {
            Ok(entries) => entries,
            Err(error) => return Some(Err(error)),
        };
        if entries
            .last()
            .is_some_and(|last| entry_state(last).is_some_and(TaskState::is_interrupted))
        {
            match follow.try_next().await {
                Ok(more) => entries.extend(more),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(entries))
    }

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
                    let turn_ends = entries
                        .peek()
                        .is_some_and(|next| matches!(next.event, Event::TurnEnded));
                    self.waiting = status.state.is_interrupted();
                    let closes = status.state.is_terminal()
                        || (self.waiting && turn_ends && self.turn == Some(self.turns_ended + 1));
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
                Event::Created { .. }
                | Event::Message(_)
                | Event::TraceContext(_)
                | Event::TurnStarted
                | Event::CancelRequested { .. }
                | Event::Ignored { .. } => {}
            }
        }
        Ok(items)
    }

    /// 1.0 §3.1.2: the first event is the task, as it was when it took its message.
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
                if matches!(entry.event, Event::Message(_)) {
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

fn full_item(event: StreamResponse, at: Option<Seq>) -> StreamItem {
    StreamItem::Full(Box::new(event), at)
}

/// The state that an entry brings, if it brings one.
fn entry_state(entry: &SharedEntry) -> Option<TaskState> {
    match &entry.event {
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    }
}

/// Whether callers are told of an entry.
pub(super) fn is_visible_entry(entry: &SharedEntry) -> bool {
    matches!(entry.event, Event::Status { .. } | Event::Artifact { .. })
}
