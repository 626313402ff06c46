//! What happens to a task, as it happens: where such a stream begins, what is in it, and when it ends.

use std::time::Duration;

use tokio::time::timeout;

use super::places::Place;
use crate::engine::{self, Accepted, Engine, Follow, Recorded};
use crate::model::{
    ContextId, Error, Event, Message, Result, Seq, StreamResponse, Task, TaskId, TaskState,
};
use crate::store::Head;

/// What comes out of a stream.
pub(crate) enum Item {
    /// A plain answer, or the task as it stood at this position.
    Whole(Box<StreamResponse>, Option<Seq>),
    /// What happened next.
    Update {
        /// The entry; everybody who follows the task shares it.
        entry: Recorded,
        /// Whether nothing follows.
        closes: bool,
    },
}

/// What happens to a task, as it happens. Dropping it stops nothing but itself.
pub(crate) struct Stream {
    task: TaskId,
    context: ContextId,
    /// What goes out before anything of the log.
    first: Option<Item>,
    /// None where nothing follows.
    follow: Option<Follow>,
    /// The task that is being opened, until its message is in.
    opening: Opening,
    /// The turn whose end is the end of the stream; without one, only the end of the task is.
    turn: Option<u64>,
    turns_ended: u64,
    history_length: Option<i32>,
    /// Whether the task waits for somebody outside.
    parked: bool,
    /// How long to stay while it does.
    patience: Option<Duration>,
    _place: Option<Place>,
}

enum Opening {
    Done,
    Nothing,
    Created(Box<Task>),
}

impl Stream {
    /// A plain answer, and nothing else.
    pub(super) fn message(message: Message) -> Self {
        let ids = (
            TaskId::default(),
            message.context_id.clone().unwrap_or_default(),
        );
        Self::new(
            ids,
            Some(whole(StreamResponse::Message(message), None)),
            None,
        )
    }

    /// A task from its first entry on: even if it has ended meanwhile, all that happened is told.
    pub(super) fn opened(
        engine: &Engine,
        mut accepted: Box<Accepted>,
        history_length: Option<i32>,
        place: Place,
    ) -> Self {
        let follow = engine.follow_accepted(&mut accepted);
        let head = &accepted.head;
        let stream = Self::new(
            (head.id.clone(), head.context_id.clone()),
            None,
            Some(follow),
        );
        let opening = Opening::Nothing;
        Self {
            opening,
            turn: Some(accepted.turn()),
            history_length,
            _place: Some(place),
            ..stream
        }
    }

    /// A task from the message that continues it.
    pub(super) fn continued(
        engine: &Engine,
        mut accepted: Box<Accepted>,
        history_length: Option<i32>,
        place: Place,
    ) -> Self {
        let (head, turn, turns_ended) = (
            accepted.head.clone(),
            accepted.turn(),
            accepted.turns_ended(),
        );
        let follow = (!accepted.is_over()).then(|| engine.follow_rest(&mut accepted));
        let (mut task, at) = accepted.into_task();
        task.limit_history(history_length);
        let first = Some(whole(StreamResponse::Task(task), Some(at)));
        let stream = Self::new((head.id, head.context_id), first, follow);
        Self {
            turn: Some(turn),
            turns_ended,
            _place: Some(place),
            ..stream
        }
    }

    /// A task as it stands, and what comes after that until it ends.
    pub(super) fn subscribed(
        engine: &Engine,
        head: &Head,
        (task, at): (Task, Seq),
        patience: Option<Duration>,
        place: Place,
    ) -> Self {
        let parked = task.status.state.is_interrupted();
        let (ids, follow) = (
            (head.id.clone(), head.context_id.clone()),
            engine.follow(head, at),
        );
        let stream = Self::new(
            ids,
            Some(whole(StreamResponse::Task(task), Some(at))),
            Some(follow),
        );
        Self {
            parked,
            patience,
            _place: Some(place),
            ..stream
        }
    }

    /// What came after a position that the caller has seen, until the task ends.
    pub(super) fn resumed(
        head: &Head,
        follow: Follow,
        patience: Option<Duration>,
        place: Place,
    ) -> Self {
        let parked = head.state.is_interrupted();
        let stream = Self::new(
            (head.id.clone(), head.context_id.clone()),
            None,
            Some(follow),
        );
        Self {
            parked,
            patience,
            _place: Some(place),
            ..stream
        }
    }

    fn new(
        (task, context): (TaskId, ContextId),
        first: Option<Item>,
        follow: Option<Follow>,
    ) -> Self {
        Self {
            task,
            context,
            first,
            follow,
            opening: Opening::Done,
            turn: None,
            turns_ended: 0,
            history_length: None,
            parked: false,
            patience: None,
            _place: None,
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
    pub(crate) async fn next(&mut self) -> Option<Result<Vec<Item>>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(vec![first]));
        }
        loop {
            let entries = match self.read().await? {
                Ok(entries) => entries,
                Err(engine::Error::Gone | engine::Error::Stopped) => return None,
                Err(error) => {
                    self.follow = None;
                    return Some(Err(error.into()));
                }
            };
            match self.take(entries) {
                Ok(items) if items.is_empty() => {}
                items => return Some(items),
            }
        }
    }

    /// The next entries. What a turn ends with is never torn in two, so that it can be told from what goes on.
    async fn read(&mut self) -> Option<engine::Result<Vec<Recorded>>> {
        let follow = self.follow.as_mut()?;
        let next = follow.next();
        let read = match self.patience.filter(|_| self.parked) {
            // Apart: most streams have no use for it.
            Some(patience) => Box::pin(timeout(patience, next)).await.ok()?,
            None => next.await,
        };
        let mut entries = match read {
            Ok(entries) => entries,
            Err(error) => return Some(Err(error)),
        };
        if entries
            .last()
            .is_some_and(|last| state(last).is_some_and(TaskState::is_interrupted))
        {
            match follow.ready().await {
                Ok(more) => entries.extend(more),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(entries))
    }

    fn take(&mut self, entries: Vec<Recorded>) -> Result<Vec<Item>> {
        let mut items = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter().peekable();
        while let Some(entry) = entries.next() {
            if !matches!(self.opening, Opening::Done) {
                items.extend(self.open(&entry)?);
                continue;
            }
            match &entry.event {
                Event::Status { status, .. } => {
                    let turn_ends = entries
                        .peek()
                        .is_some_and(|next| matches!(next.event, Event::TurnEnded));
                    self.parked = status.state.is_interrupted();
                    let closes = status.state.is_terminal()
                        || (self.parked && turn_ends && self.turn == Some(self.turns_ended + 1));
                    items.push(Item::Update { entry, closes });
                    if closes {
                        self.follow = None;
                        break;
                    }
                }
                Event::Artifact { .. } => items.push(Item::Update {
                    entry,
                    closes: false,
                }),
                Event::TurnEnded => self.turns_ended += 1,
                Event::Created { .. }
                | Event::Message(_)
                | Event::Traced(_)
                | Event::TurnStarted
                | Event::CancelRequested { .. }
                | Event::Ignored { .. } => {}
            }
        }
        Ok(items)
    }

    /// 1.0 §3.1.2: the first event is the task, as it was when it took its message.
    fn open(&mut self, entry: &Recorded) -> Result<Option<Item>> {
        let opening = std::mem::replace(&mut self.opening, Opening::Done);
        match (opening, &entry.event) {
            (
                Opening::Nothing,
                Event::Created {
                    id,
                    context_id,
                    metadata,
                },
            ) => {
                let mut task = Task::submitted(id.clone(), context_id.clone(), entry.time);
                task.metadata.clone_from(metadata);
                self.opening = Opening::Created(Box::new(task));
                Ok(None)
            }
            (Opening::Created(mut task), _) => {
                task.apply(entry).map_err(Error::internal)?;
                if matches!(entry.event, Event::Message(_)) {
                    task.limit_history(self.history_length);
                    return Ok(Some(whole(StreamResponse::Task(*task), Some(entry.seq))));
                }
                self.opening = Opening::Created(task);
                Ok(None)
            }
            (opening @ (Opening::Nothing | Opening::Done), _) => {
                self.opening = opening;
                Ok(None)
            }
        }
    }
}

fn whole(event: StreamResponse, at: Option<Seq>) -> Item {
    Item::Whole(Box::new(event), at)
}

/// The state that an entry brings, if it brings one.
fn state(entry: &Recorded) -> Option<TaskState> {
    match &entry.event {
        Event::Status { status, .. } => Some(status.state),
        _ => None,
    }
}

/// Whether callers are told of an entry.
pub(super) fn is_visible(entry: &Recorded) -> bool {
    matches!(entry.event, Event::Status { .. } | Event::Artifact { .. })
}
