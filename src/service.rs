//! The operations of the protocol, whatever carries them: validate, look within the caller's scope, call the engine.

mod again;
mod answers;
mod budget;
mod cursor;
mod directory;
mod modes;
mod offer;
mod places;
mod push;
mod send;
mod stream;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Worker};
use crate::model::{
    Call, CancelTaskRequest, Error, ErrorKind, GetTaskRequest, Limits, ListTasksRequest,
    ListTasksResponse, Request, Response, Result, SendMessageResponse, Seq, SubscribeToTaskRequest,
    Task, TaskId,
};
use crate::push::Pushes;
use crate::store::Head;

pub(crate) use budget::Budget;
pub(crate) use directory::{Asking, Directory, Resident};
pub(crate) use modes::Enforced;
pub(crate) use offer::Offer;
pub(crate) use places::{Most, Places};
pub(crate) use stream::{Item, Stream};

pub(crate) use crate::engine::Standing;

/// What a binding calls.
pub(crate) struct Service {
    engine: Engine,
    /// Who answers; `None`: nobody takes messages any more.
    worker: Option<Arc<Worker>>,
    offer: Offer,
    limits: Limits,
    places: Arc<Places>,
    pushes: Pushes,
    budget: Budget,
    /// How long a stream stays with a task that waits for somebody outside.
    patience: Option<Duration>,
    /// How long a call waits for the end of a turn.
    max_wait: Option<Duration>,
}

/// What an operation gives.
pub(crate) enum Answer {
    /// All at once.
    One(Response),
    /// A task, all of it: whoever reads it next may be given the same bytes.
    Task(Standing),
    /// As it happens.
    Stream(Box<Stream>),
}

impl From<Stream> for Answer {
    fn from(stream: Stream) -> Self {
        Self::Stream(Box::new(stream))
    }
}

impl From<SendMessageResponse> for Answer {
    fn from(response: SendMessageResponse) -> Self {
        Self::One(Response::SendMessage(response))
    }
}

/// An operation that is under way.
type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer>> + Send + 'a>>;

/// An operation that may be done.
pub(crate) enum Called<'a> {
    /// It is done: that needed no waiting.
    Done(Answer),
    /// It is done by whoever waits for it.
    Waits(Answering<'a>),
}

/// An operation whose answer comes in one piece.
fn one<'a>(response: impl Future<Output = Result<Response>> + Send + 'a) -> Answering<'a> {
    Box::pin(async { Ok(Answer::One(response.await?)) })
}

impl Service {
    pub(crate) fn new(
        engine: Engine,
        worker: Option<Arc<Worker>>,
        offer: Offer,
        limits: Limits,
        (places, pushes): (Arc<Places>, Pushes),
        (patience, max_wait): (Option<Duration>, Option<Duration>),
    ) -> Self {
        Self {
            engine,
            worker,
            offer,
            limits,
            places,
            pushes,
            budget: Budget::default(),
            patience,
            max_wait,
        }
    }

    /// Lets callers have so many tasks.
    pub(crate) fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// The same for an agent that is to go: its tasks can be read and canceled, and nothing new begins.
    pub(crate) fn leaving(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            worker: None,
            offer: self.offer.clone(),
            limits: self.limits.clone(),
            places: self.places.clone(),
            pushes: self.pushes.clone(),
            ..*self
        }
    }

    /// Who answers here.
    pub(crate) fn worker(&self) -> Option<&Arc<Worker>> {
        self.worker.as_ref()
    }

    /// Those of the extensions asked for that the agent knows.
    pub(crate) fn activate<'a>(&self, asked: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        self.offer.activate(asked)
    }

    /// Whether tasks can be found now.
    pub(crate) async fn check(&self) -> Result<()> {
        self.engine.check().await.map_err(|error| match error {
            error @ crate::engine::Error::Unwritable(_) => error.into(),
            error => Error::from(error).with_message("the store does not answer"),
        })
    }

    /// Any operation: what is wrong with the request itself comes first, then what the agent does not offer. All that is checked
    /// when this returns.
    ///
    /// # Errors
    /// The request is wrong, or not for this agent.
    pub(crate) fn call<'a>(&'a self, call: &'a Call, mut request: Request) -> Result<Called<'a>> {
        request.validate(&self.limits)?;
        request.drop_reserved();
        self.offer.check(request.operation(), call)?;
        self.offer.check_modes(&request)?;
        if let Request::GetTask(request) = &request
            && let Some(answer) = self.known_task(call, request)
        {
            return Ok(Called::Done(answer));
        }
        Ok(Called::Waits(self.answer(call, request)))
    }

    /// Each in a box of its own size: nobody who waits for one keeps room for another.
    fn answer<'a>(&'a self, call: &'a Call, request: Request) -> Answering<'a> {
        match request {
            Request::SendMessage(request) => Box::pin(self.send_message(call, request)),
            Request::SendStreamingMessage(request) => {
                Box::pin(self.send_streaming_message(call, request))
            }
            Request::GetTask(request) => Box::pin(self.get_task(call, request)),
            Request::SubscribeToTask(request) => Box::pin(self.subscribe_to_task(call, request)),
            Request::ListTasks(request) => {
                one(async { Ok(Response::ListTasks(self.list_tasks(call, request).await?)) })
            }
            Request::CancelTask(request) => {
                one(async { Ok(Response::Task(self.cancel_task(call, request).await?)) })
            }
            Request::CreatePushConfig(config) => one(async {
                Ok(Response::PushConfig(
                    self.create_push_config(call, *config).await?,
                ))
            }),
            Request::GetPushConfig(request) => one(async {
                Ok(Response::PushConfig(
                    self.get_push_config(call, request).await?,
                ))
            }),
            Request::ListPushConfigs(request) => one(async {
                Ok(Response::ListPushConfigs(
                    self.list_push_configs(call, request).await?,
                ))
            }),
            Request::DeletePushConfig(request) => one(async {
                self.delete_push_config(call, request).await?;
                Ok(Response::Empty)
            }),
            Request::GetExtendedAgentCard(_) => {
                one(async { Ok(Response::AgentCard(self.offer.extended_card(call.version)?)) })
            }
        }
    }

    /// Streams what happens to a task that is there: from where it stands, or from where the caller was cut off.
    async fn subscribe_to_task(
        &self,
        call: &Call,
        request: SubscribeToTaskRequest,
    ) -> Result<Answer> {
        let head = self.find(call, &request.id).await?;
        let place = self.places.take(call.caller())?.at(&head.id)?;
        // 01 §6: what can be refused before a stream begins is.
        self.engine.check_recording(&head)?;
        let within_reach = |seen: &Seq| {
            seen.0 > 0
                && *seen <= head.position
                && head.position.0 - seen.0 <= self.limits.max_replayed_entries
        };
        if let Some(seen) = call.last_seen.filter(within_reach) {
            let follow = self.engine.follow(&head, seen);
            if !head.state.is_terminal() || self.has_news(&head, seen).await? {
                return Ok(Stream::resumed(&head, follow, self.patience, place).into());
            }
        }
        let (task, at) = self.engine.task(&head).await?;
        if task.status.state.is_terminal() {
            return Err(Error::new(ErrorKind::UnsupportedOperation)
                .with_message("the task has ended; there is nothing to subscribe to")
                .with("taskId", head.id.as_str())
                .with("state", task.status.state.as_str()));
        }
        let task = shown(&task, self.limits.history(None), true);
        Ok(Stream::subscribed(&self.engine, &head, (task, at), self.patience, place).into())
    }

    /// Whether something that callers are told of came after a position of a task that has ended. All of it is in the
    /// store; whoever wrote it may be about to say so, and is waited for.
    async fn has_news(&self, head: &Head, mut seen: Seq) -> Result<bool> {
        let mut follow = self.engine.follow(head, seen);
        while seen < head.position {
            let entries = follow.next().await?;
            if entries.iter().any(stream::is_visible) {
                return Ok(true);
            }
            seen = entries.last().map_or(head.position, |entry| entry.seq);
        }
        Ok(false)
    }

    /// Reads a task.
    async fn get_task(&self, call: &Call, request: GetTaskRequest) -> Result<Answer> {
        let head = self.find(call, &request.id).await?;
        Ok(self.read(self.engine.standing(&head).await?, &request))
    }

    /// Reads a task that rests and was read before, and so without waiting.
    fn known_task(&self, call: &Call, request: &GetTaskRequest) -> Option<Answer> {
        let kept = self.engine.keeps_tasks();
        let task = kept.then(|| self.engine.known(&call.scope, &request.id))??;
        Some(self.read(task, request))
    }

    /// As much of a task as was asked for.
    fn read(&self, task: Standing, request: &GetTaskRequest) -> Answer {
        let length = self.limits.history(request.history_length);
        match task.history.len() <= messages(length) {
            true => Answer::Task(task),
            false => Answer::One(Response::Task(shown(&task, length, true))),
        }
    }

    /// Lists the caller's tasks, newest status first.
    async fn list_tasks(
        &self,
        call: &Call,
        request: ListTasksRequest,
    ) -> Result<ListTasksResponse> {
        if !self.engine.keeps_tasks() {
            return Ok(ListTasksResponse {
                page_size: request.page_size(),
                ..ListTasksResponse::default()
            });
        }
        let scope = &call.scope;
        let mut query = cursor::query(&request)?;
        let history_length = self.limits.history(request.history_length);
        let size = query.limit;
        // One more than asked for tells whether there is another page.
        query.limit += 1;
        let page = self.engine.list(scope, &query).await?;
        let (mut tasks, mut weight, mut last) = (Vec::with_capacity(size), 0, None);
        for head in page.tasks.iter().take(size) {
            let (task, _) = match self.engine.task(head).await {
                Ok(task) => task,
                // One that was removed since is simply not there.
                Err(crate::engine::Error::Gone) => {
                    last = Some(head);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let task = shown(
                &task,
                history_length,
                request.include_artifacts == Some(true),
            );
            weight += task.weight();
            if weight > self.limits.max_page_bytes && !tasks.is_empty() {
                break;
            }
            tasks.push(task);
            last = Some(head);
        }
        let more = last.is_some_and(|last| page.tasks.last().is_some_and(|end| end.id != last.id));
        let next_page_token = last
            .filter(|_| more)
            .map_or_else(String::new, |last| cursor::write(&request, last));
        let total_size = i32::try_from(page.total).unwrap_or(i32::MAX);
        Ok(ListTasksResponse {
            tasks,
            next_page_token,
            page_size: request.page_size(),
            total_size,
        })
    }

    /// Asks for a task to be canceled.
    async fn cancel_task(&self, call: &Call, request: CancelTaskRequest) -> Result<Task> {
        let head = self.find(call, &request.id).await?;
        self.engine
            .cancel(&head, request.metadata)
            .await
            .map_err(|error| match error {
                crate::engine::Error::Ended(_) => {
                    Error::new(ErrorKind::TaskNotCancelable).with("taskId", request.id.as_str())
                }
                error => error.into(),
            })
    }

    async fn find(&self, call: &Call, id: &TaskId) -> Result<Head> {
        if !self.engine.keeps_tasks() {
            return Err(not_found(id));
        }
        self.engine
            .find(&call.scope, id)
            .await?
            .ok_or_else(|| not_found(id))
    }
}

/// As much of a task as was asked for; others may hold it too, so the rest is not even copied.
fn shown(task: &Task, history_length: Option<i32>, artifacts: bool) -> Task {
    let length = messages(history_length);
    Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: task.status.clone(),
        artifacts: if artifacts {
            task.artifacts.clone()
        } else {
            Vec::new()
        },
        history: task.history[task.history.len().saturating_sub(length)..].to_vec(),
        metadata: task.metadata.clone(),
    }
}

/// How many messages of a history a length stands for.
fn messages(history_length: Option<i32>) -> usize {
    history_length
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or(usize::MAX)
}

fn not_found(id: &TaskId) -> Error {
    Error::new(ErrorKind::TaskNotFound).with("taskId", id.as_str())
}
