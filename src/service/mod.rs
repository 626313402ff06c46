//! The operations of the protocol, whatever carries them: validate, look within the caller's scope, call the engine.

mod capabilities;
mod cursor;
mod directory;
mod idempotency;
mod modes;
mod push_configs;
mod quotas;
mod send;
mod stream;
mod stream_limits;
#[cfg(test)]
mod tests;
mod tool_results;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{AgentHandle, Engine};
use crate::model::{
    Call, CancelTaskRequest, Error, ErrorKind, GetTaskRequest, Limits, ListTasksRequest,
    ListTasksResponse, Request, Response, Result, SendMessageResponse, Seq, SubscribeToTaskRequest,
    Task, TaskId,
};
use crate::push::PushDispatcher;
use crate::store::Head;

pub(crate) use capabilities::Capabilities;
pub(crate) use directory::{AgentEntry, CallMetadata, Directory};
pub(crate) use modes::EnforcedModes;
pub(crate) use quotas::TaskQuota;
pub(crate) use stream::{StreamItem, TaskEventStream};
pub(crate) use stream_limits::{StreamLimiter, StreamLimits};

pub(crate) use crate::engine::TaskView;

/// What a binding calls.
pub(crate) struct Service {
    engine: Engine,
    /// Who answers; `None`: nobody takes messages any more.
    agent: Option<Arc<AgentHandle>>,
    capabilities: Capabilities,
    limits: Limits,
    stream_limiter: Arc<StreamLimiter>,
    push: PushDispatcher,
    quota: TaskQuota,
    /// How long a stream stays with a task that waits for somebody outside.
    waiting_stream_timeout: Option<Duration>,
    /// How long a call waits for the end of a turn.
    max_blocking_wait: Option<Duration>,
}

/// What an operation gives.
pub(crate) enum ServiceResponse {
    /// All at once.
    Single(Response),
    /// A task, all of it: whoever reads it next may be given the same bytes.
    Task(TaskView),
    /// As it happens.
    Stream(Box<TaskEventStream>),
}

impl From<TaskEventStream> for ServiceResponse {
    fn from(stream: TaskEventStream) -> Self {
        Self::Stream(Box::new(stream))
    }
}

impl From<SendMessageResponse> for ServiceResponse {
    fn from(response: SendMessageResponse) -> Self {
        Self::Single(Response::SendMessage(response))
    }
}

/// An operation that is under way.
type ServiceFuture<'a> = Pin<Box<dyn Future<Output = Result<ServiceResponse>> + Send + 'a>>;

/// An operation that may be done.
pub(crate) enum CallResult<'a> {
    /// It is done: that needed no waiting.
    Ready(ServiceResponse),
    /// It is done by whoever waits for it.
    Pending(ServiceFuture<'a>),
}

/// An operation whose answer comes in one piece.
fn single<'a>(response: impl Future<Output = Result<Response>> + Send + 'a) -> ServiceFuture<'a> {
    Box::pin(async { Ok(ServiceResponse::Single(response.await?)) })
}

impl Service {
    pub(crate) fn new(
        engine: Engine,
        agent: Option<Arc<AgentHandle>>,
        capabilities: Capabilities,
        limits: Limits,
        (stream_limiter, push): (Arc<StreamLimiter>, PushDispatcher),
        (waiting_stream_timeout, max_blocking_wait): (Option<Duration>, Option<Duration>),
    ) -> Self {
        Self {
            engine,
            agent,
            capabilities,
            limits,
            stream_limiter,
            push,
            quota: TaskQuota::default(),
            waiting_stream_timeout,
            max_blocking_wait,
        }
    }

    /// Lets callers have so many tasks.
    pub(crate) fn with_quota(self, quota: TaskQuota) -> Self {
        Self { quota, ..self }
    }

    /// The same for an agent that is to go: its tasks can be read and canceled, and nothing new begins.
    pub(crate) fn to_draining(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            agent: None,
            capabilities: self.capabilities.clone(),
            limits: self.limits.clone(),
            stream_limiter: self.stream_limiter.clone(),
            push: self.push.clone(),
            ..*self
        }
    }

    /// Who answers here.
    pub(crate) fn agent(&self) -> Option<&Arc<AgentHandle>> {
        self.agent.as_ref()
    }

    /// Those of the extensions asked for that the agent knows.
    pub(crate) fn activate_extensions<'a>(
        &self,
        requested: impl IntoIterator<Item = &'a str>,
    ) -> Vec<String> {
        self.capabilities.activate_extensions(requested)
    }

    /// Whether tasks can be found now.
    pub(crate) async fn check_store(&self) -> Result<()> {
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
    pub(crate) fn call<'a>(
        &'a self,
        call: &'a Call,
        mut request: Request,
    ) -> Result<CallResult<'a>> {
        request.validate(&self.limits)?;
        request.strip_reserved_metadata();
        self.capabilities.check(request.operation(), call)?;
        self.capabilities.check_modes(&request)?;
        if let Request::GetTask(request) = &request
            && let Some(answer) = self.cached_task(call, request)
        {
            return Ok(CallResult::Ready(answer));
        }
        Ok(CallResult::Pending(self.dispatch(call, request)))
    }

    /// Each in a box of its own size: nobody who waits for one keeps room for another.
    fn dispatch<'a>(&'a self, call: &'a Call, request: Request) -> ServiceFuture<'a> {
        match request {
            Request::SendMessage(request) => Box::pin(self.send_message(call, request)),
            Request::SendStreamingMessage(request) => {
                Box::pin(self.send_streaming_message(call, request))
            }
            Request::GetTask(request) => Box::pin(self.get_task(call, request)),
            Request::SubscribeToTask(request) => Box::pin(self.subscribe_to_task(call, request)),
            Request::ListTasks(request) => {
                single(async { Ok(Response::ListTasks(self.list_tasks(call, request).await?)) })
            }
            Request::CancelTask(request) => {
                single(async { Ok(Response::Task(self.cancel_task(call, request).await?)) })
            }
            Request::CreatePushConfig(config) => single(async {
                Ok(Response::PushConfig(
                    self.create_push_config(call, *config).await?,
                ))
            }),
            Request::GetPushConfig(request) => single(async {
                Ok(Response::PushConfig(
                    self.get_push_config(call, request).await?,
                ))
            }),
            Request::ListPushConfigs(request) => single(async {
                Ok(Response::ListPushConfigs(
                    self.list_push_configs(call, request).await?,
                ))
            }),
            Request::DeletePushConfig(request) => single(async {
                self.delete_push_config(call, request).await?;
                Ok(Response::Empty)
            }),
            Request::GetExtendedAgentCard(_) => single(async {
                Ok(Response::AgentCard(
                    self.capabilities.extended_card(call.version)?,
                ))
            }),
        }
    }

    /// Streams what happens to a task that is there: from where it stands, or from where the caller was cut off.
    async fn subscribe_to_task(
        &self,
        call: &Call,
        request: SubscribeToTaskRequest,
    ) -> Result<ServiceResponse> {
        let head = self.find(call, &request.id).await?;
        let permit = self
            .stream_limiter
            .acquire(call.caller())?
            .for_task(&head.id)?;
        // 01 §6: what can be refused before a stream begins is.
        self.engine.check_writable(&head)?;
        let within_reach = |seen: &Seq| {
            seen.0 > 0
                && *seen <= head.position
                && head.position.0 - seen.0 <= self.limits.max_replayed_entries
        };
        if let Some(seen) = call.resume_after.filter(within_reach) {
            let follow = self.engine.follow(&head, seen);
            if !head.state.is_terminal() || self.has_visible_entries_after(&head, seen).await? {
                return Ok(TaskEventStream::from_position(
                    &head,
                    follow,
                    self.waiting_stream_timeout,
                    permit,
                )
                .into());
            }
        }
        let (task, at) = self.engine.task(&head).await?;
        if task.status.state.is_terminal() {
            return Err(Error::new(ErrorKind::UnsupportedOperation)
                .with_message("the task has ended; there is nothing to subscribe to")
                .with_detail("taskId", head.id.as_str())
                .with_detail("state", task.status.state.as_str()));
        }
        let task = trim_task(&task, self.limits.clamp_history_length(None), true);
        Ok(TaskEventStream::for_subscription(
            &self.engine,
            &head,
            (task, at),
            self.waiting_stream_timeout,
            permit,
        )
        .into())
    }

    /// Whether something that callers are told of came after a position of a task that has ended. All of it is in the
    /// store; whoever wrote it may be about to say so, and is waited for.
    async fn has_visible_entries_after(&self, head: &Head, mut seen: Seq) -> Result<bool> {
        let mut follow = self.engine.follow(head, seen);
        while seen < head.position {
            let entries = follow.next().await?;
            if entries.iter().any(stream::is_visible_entry) {
                return Ok(true);
            }
            seen = entries.last().map_or(head.position, |entry| entry.seq);
        }
        Ok(false)
    }

    /// Reads a task.
    async fn get_task(&self, call: &Call, request: GetTaskRequest) -> Result<ServiceResponse> {
        let head = self.find(call, &request.id).await?;
        Ok(self.trimmed_response(self.engine.task_view(&head).await?, &request))
    }

    /// Reads a task that rests and was read before, and so without waiting.
    fn cached_task(&self, call: &Call, request: &GetTaskRequest) -> Option<ServiceResponse> {
        let kept = self.engine.keeps_tasks();
        let task = kept.then(|| self.engine.cached_task(&call.scope, &request.id))??;
        Some(self.trimmed_response(task, request))
    }

    /// As much of a task as was asked for.
    fn trimmed_response(&self, task: TaskView, request: &GetTaskRequest) -> ServiceResponse {
        let length = self.limits.clamp_history_length(request.history_length);
        match task.history.len() <= max_messages(length) {
            true => ServiceResponse::Task(task),
            false => ServiceResponse::Single(Response::Task(trim_task(&task, length, true))),
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
        let mut query = cursor::store_query(&request)?;
        let history_length = self.limits.clamp_history_length(request.history_length);
        let size = query.limit;
        // One more than asked for tells whether there is another page.
        query.limit += 1;
        let page = self.engine.list(scope, &query).await?;
        let (mut tasks, mut weight, mut last) = (Vec::with_capacity(size), 0, None);
        for head in page.tasks.iter().take(size) {
            let (task, _) = match self.engine.task(head).await {
                Ok(task) => task,
                // One that was removed since is simply not there.
                Err(crate::engine::Error::Deleted) => {
                    last = Some(head);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let task = trim_task(
                &task,
                history_length,
                request.include_artifacts == Some(true),
            );
            weight += task.memory_size();
            if weight > self.limits.max_page_bytes && !tasks.is_empty() {
                break;
            }
            tasks.push(task);
            last = Some(head);
        }
        let more = last.is_some_and(|last| page.tasks.last().is_some_and(|end| end.id != last.id));
        let next_page_token = last
            .filter(|_| more)
            .map_or_else(String::new, |last| cursor::encode(&request, last));
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
                crate::engine::Error::Ended(_) => Error::new(ErrorKind::TaskNotCancelable)
                    .with_detail("taskId", request.id.as_str()),
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
fn trim_task(task: &Task, history_length: Option<i32>, artifacts: bool) -> Task {
    let length = max_messages(history_length);
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
fn max_messages(history_length: Option<i32>) -> usize {
    history_length
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or(usize::MAX)
}

fn not_found(id: &TaskId) -> Error {
    Error::new(ErrorKind::TaskNotFound).with_detail("taskId", id.as_str())
}
