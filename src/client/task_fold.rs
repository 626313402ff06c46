//! What a follower knows of its task, folded from whatever comes: each event on its own merits.

use crate::model::{FoldError, Message, Seq, StreamResponse, Task, TaskId, TaskState};

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct TaskFold {
    id: Option<TaskId>,
    task: Option<Task>,
    message: Option<Message>,
    position: Option<Seq>,
    /// Something may have been missed, or was told twice: only the peer knows the whole task.
    pub(super) needs_refetch: bool,
    /// What came before the first position was told to somebody else: what follows is right, and not the whole task.
    pub(super) is_partial: bool,
    /// The stream was opened again, and nothing has come yet.
    resumption: Option<Resumption>,
    /// Events that were told before may be told again.
    may_repeat: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Resumption {
    /// Behind a position: exactly what was missed follows.
    AtPosition,
    /// Anywhere: a peer that keeps to the protocol begins with the task.
    Unknown,
}

impl TaskFold {
    pub(super) fn for_task(id: TaskId, position: Option<Seq>) -> Self {
        Self {
            id: Some(id),
            position,
            is_partial: position.is_some(),
            ..Self::default()
        }
    }

    pub(super) fn id(&self) -> Option<&TaskId> {
        self.id.as_ref()
    }

    pub(super) fn task(&self) -> Option<&Task> {
        self.task.as_ref()
    }

    pub(super) fn message(&self) -> Option<&Message> {
        self.message.as_ref()
    }

    pub(super) fn position(&self) -> Option<Seq> {
        self.position
    }

    pub(super) fn state(&self) -> TaskState {
        self.task
            .as_ref()
            .map(|task| task.status.state)
            .unwrap_or_default()
    }

    /// The stream was opened again, behind the position if there is one.
    pub(super) fn mark_resumed(&mut self) {
        self.may_repeat = true;
        self.resumption = Some(if self.position.is_some() {
            Resumption::AtPosition
        } else {
            Resumption::Unknown
        });
    }

    /// Takes in what came; gives it back if it is news.
    pub(super) fn apply(
        &mut self,
        position: Option<Seq>,
        event: StreamResponse,
    ) -> Option<StreamResponse> {
        if position.is_some() && position <= self.position && self.task.is_some() {
            return None;
        }
        self.position = position.or(self.position);
        if self.resumption.take() == Some(Resumption::Unknown)
            && !matches!(event, StreamResponse::Task(_))
        {
            self.needs_refetch = true;
        }
        let event = match event {
            StreamResponse::Message(message) if self.id.is_none() => {
                self.message = Some(message.clone());
                return Some(StreamResponse::Message(message));
            }
            event => self.with_own_task_id(event)?,
        };
        self.update(event)
    }

    /// The whole task, from the peer itself; gives it back if it is news.
    pub(super) fn replace(&mut self, task: Task) -> Option<StreamResponse> {
        (self.needs_refetch, self.is_partial) = (false, false);
        self.id.get_or_insert_with(|| task.id.clone());
        let known = self.task.replace(task.clone());
        let is_news = known
            .is_none_or(|known| known.status != task.status || known.artifacts != task.artifacts);
        is_news.then_some(StreamResponse::Task(task))
    }

    /// With the id of our task, if it has none; nothing if it is of another.
    fn with_own_task_id(&mut self, mut event: StreamResponse) -> Option<StreamResponse> {
        let id = match &mut event {
            StreamResponse::Task(task) => &mut task.id,
            StreamResponse::StatusUpdate(event) => &mut event.task_id,
            StreamResponse::ArtifactUpdate(event) => &mut event.task_id,
            // A peer that mixes them: the task is what counts.
            StreamResponse::Message(_) => return None,
        };
        let ours = self.id.get_or_insert_with(|| id.clone());
        if id.as_str().is_empty() {
            id.clone_from(ours);
        }
        (id == ours).then_some(event)
    }

    fn update(&mut self, event: StreamResponse) -> Option<StreamResponse> {
        self.is_partial &= !matches!(event, StreamResponse::Task(_));
        let Some(task) = &mut self.task else {
            self.start_from(&event);
            return Some(event);
        };
        if self.may_repeat && is_duplicate(task, &event) {
            return None;
        }
        match task.apply_update(&event) {
            Ok(()) => Some(event),
            // The end stands, whatever comes behind it.
            Err(FoldError::TaskEnded(_)) => {
                self.needs_refetch |= matches!(event, StreamResponse::ArtifactUpdate(_));
                None
            }
            Err(_) => {
                self.needs_refetch = true;
                Some(event)
            }
        }
    }

    /// Not every peer begins with the task.
    fn start_from(&mut self, event: &StreamResponse) {
        let (mut task, is_whole) = match event {
            StreamResponse::Task(task) => (task.clone(), true),
            StreamResponse::StatusUpdate(event) => (
                Task {
                    context_id: event.context_id.clone(),
                    ..Task::default()
                },
                false,
            ),
            StreamResponse::ArtifactUpdate(event) => (
                Task {
                    context_id: event.context_id.clone(),
                    ..Task::default()
                },
                false,
            ),
            StreamResponse::Message(_) => return,
        };
        task.id = self.id.clone().unwrap_or_default();
        if !is_whole {
            self.needs_refetch |= task.apply_update(event).is_err();
        }
        self.task = Some(task);
    }
}

fn is_duplicate(task: &Task, event: &StreamResponse) -> bool {
    match event {
        StreamResponse::Task(seen) => {
            seen.status == task.status && seen.artifacts == task.artifacts
        }
        StreamResponse::StatusUpdate(event) => event.status == task.status,
        StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => false,
    }
}
