//! Stream of a task's events until the task is at rest, over any peer.
//!
//! [`TaskStream`] is a state machine. It sends the message, reads the stream, reconnects with backoff when the stream
//! is cut, and polls with `GetTask` if the peer does not stream. [`State`] says which of these comes next.

mod fold;
mod policy;
mod received_messages;
mod state;

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::event_stream::stream_cut_error;
use super::retry::{is_transient, is_unsupported};
use super::{Client, EventStream};
use crate::model::{
    CancelTaskRequest, Error, ErrorKind, GetTaskRequest, Message, Result, SendMessageRequest,
    SendMessageResponse, Seq, StreamResponse, SubscribeToTaskRequest, Task, TaskId, TaskState,
};
use fold::TaskFold;
use policy::{Deadline, FollowPolicy, Pacing};
use state::{PendingMessage, State, Step, StreamProgress};

/// Time to wait for another event once the task is at rest. Some servers send events behind the final status, and some
/// never close the stream.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Events of a task until it is at rest.
///
/// A stream that is cut is reopened behind the last event, if the peer numbers its events, and otherwise with a
/// snapshot of the task. If the peer does not stream, the task is polled. Duplicate events are dropped.
///
/// Dropping the stream closes it. The task continues, unless [`cancel_on_drop`](Self::cancel_on_drop) was called.
pub struct TaskStream {
    client: Client,
    state: State,
    fold: TaskFold,
    message: Option<PendingMessage>,
    policy: FollowPolicy,
    pacing: Pacing,
    deadline: Option<Deadline>,
    reconnects: u32,
    /// Whether any event has been received, over a stream or by polling.
    has_received: bool,
    /// Error that the peer reported in the stream. It explains more than that of the call that follows it.
    stream_error: Option<Error>,
}

impl TaskStream {
    /// Returns a stream that starts by sending a message.
    pub(super) fn for_message(client: Client, request: SendMessageRequest) -> Self {
        let message = Some(PendingMessage::new(request));
        Self::new(client, TaskFold::default(), message)
    }

    /// Returns a stream of an existing task, from behind `after` if given.
    pub(super) fn for_task(client: Client, id: TaskId, after: Option<Seq>) -> Self {
        Self::new(client, TaskFold::for_task(id, after), None)
    }

    fn new(client: Client, fold: TaskFold, message: Option<PendingMessage>) -> Self {
        let settings = &client.settings;
        Self {
            state: State::Connecting(Instant::now()),
            fold,
            policy: FollowPolicy::new(message.is_none()),
            message,
            pacing: Pacing::new(settings),
            deadline: settings.timeouts.wait.map(Deadline::after),
            reconnects: 0,
            has_received: false,
            stream_error: None,
            client,
        }
    }

    /// Starts with `SendMessage` instead of `SendStreamingMessage`.
    pub(super) fn without_stream(mut self) -> Self {
        self.send_without_stream();
        self
    }

    fn send_without_stream(&mut self) {
        if let Some(message) = &mut self.message
            && message.wants_early_task
        {
            message.return_immediately();
        }
        self.state = State::Sending;
    }

    /// Makes the first event come as soon as the task exists, even from a peer that does not stream.
    pub(super) fn with_early_task(mut self) -> Self {
        if let Some(message) = &mut self.message {
            message.wants_early_task = true;
        }
        self
    }

    /// Sends the message and opens its stream, with retries.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(super) async fn open_now(mut self) -> Result<Self> {
        while let State::Connecting(at) = self.state
            && self.fold.id().is_none()
        {
            let deadline = self.deadline;
            let open = async {
                sleep_until(at).await;
                self.open().await
            };
            Deadline::limit(deadline, open).await?;
        }
        Ok(self)
    }

    /// Returns the next event, or `None` when the task has ended or waits for the caller.
    ///
    /// An error is the last item; [`task`](Self::task) still returns the task as known. Cancel safe: dropping the
    /// future loses no event.
    ///
    /// # Errors
    /// An error of the agent, a connection that could not be restored, or the timeout
    /// [`wait`](super::Timeouts::wait). If the task id is known, the error's metadata contains it as `taskId`: the task
    /// may still be running.
    pub async fn next(&mut self) -> Option<Result<StreamResponse>> {
        let event = Deadline::limit(self.deadline, self.advance()).await;
        if event.is_err() {
            self.state = State::Ended;
        }
        event.map_err(|error| self.with_task_id(error)).transpose()
    }

    /// Waits until the task has ended or waits for the caller. Returns the complete task, or the message if the agent
    /// answered with one.
    ///
    /// # Errors
    /// As [`next`](Self::next). A failed task is not an error.
    pub async fn finish(mut self) -> Result<SendMessageResponse> {
        // A task that waits for the caller may keep its stream open. Behind the end there may be further events.
        while !self.waits_for_caller() {
            if self.next().await.transpose()?.is_none() {
                break;
            }
        }
        if self.fold.needs_refetch || self.fold.is_partial {
            // If the peer does not return the task, the events received so far are the answer.
            let _ = self.fetch_task().await;
        }
        self.response()
    }

    /// Returns the answer as known so far.
    pub(super) fn response(&self) -> Result<SendMessageResponse> {
        match (self.fold.task(), self.fold.message()) {
            (Some(task), _) => Ok(SendMessageResponse::Task(task.clone())),
            (None, Some(message)) => Ok(SendMessageResponse::Message(message)),
            (None, None) => Err(empty_stream()),
        }
    }

    /// Returns the task as known so far; `None` before the first event, or if the answer is a message.
    #[must_use]
    pub fn task(&self) -> Option<&Task> {
        self.fold.task()
    }

    /// Returns the answer as known so far, if it is a message without a task.
    #[must_use]
    pub fn message(&self) -> Option<Message> {
        self.fold.message()
    }

    /// Returns the peer's copy of the task with the content that only the stream contained, such as messages beside the
    /// task.
    #[must_use]
    pub fn with_received(&self, task: Task) -> Task {
        self.fold.with_received(task)
    }

    /// Returns the position of the last event, if the peer numbers its events. [`Client::follow`] resumes behind it.
    #[must_use]
    pub fn position(&self) -> Option<Seq> {
        self.fold.position()
    }

    /// Returns the number of times the stream was reopened.
    #[must_use]
    pub fn reconnects(&self) -> u32 {
        self.reconnects
    }

    /// Cancels the task if this stream is dropped before the task is at rest.
    #[must_use]
    pub fn cancel_on_drop(mut self) -> Self {
        self.policy.cancel_on_drop = true;
        self
    }

    /// Continues through these interrupted states instead of ending: another party supplies the input.
    #[must_use]
    pub fn wait_through(mut self, states: impl IntoIterator<Item = TaskState>) -> Self {
        self.policy.wait_through = states.into_iter().collect();
        self
    }

    /// Polls the task with `GetTask` even if the peer can stream.
    #[must_use]
    pub fn with_polling(mut self) -> Self {
        self.state = State::Polling(Instant::now());
        self
    }

    /// Returns an error instead of polling if the peer refuses to stream the task, because it has ended or the peer does
    /// not stream. Applies until the first event.
    #[must_use]
    pub fn require_streaming(mut self) -> Self {
        self.policy.require_streaming = true;
        self
    }

    /// Whether the task has ended, waits for the caller, or was answered with a message.
    fn is_at_rest(&self) -> bool {
        let has_ended = self.fold.state().is_terminal() || self.fold.is_message();
        has_ended || self.waits_for_caller()
    }

    fn waits_for_caller(&self) -> bool {
        self.policy.waits_for_caller(self.fold.state()) && !self.fold.is_stale
    }

    /// Whether the open stream is not expected to deliver further events.
    fn is_over(&self) -> bool {
        let state = self.fold.state();
        let needs_input = state == TaskState::InputRequired && self.policy.waits_for_caller(state);
        state.is_terminal()
            || self.fold.is_message()
            || (needs_input && !self.policy.until_terminal && !self.fold.is_stale)
    }

    /// Runs the state machine until there is an event, or `None` at the end.
    async fn advance(&mut self) -> Result<Option<StreamResponse>> {
        loop {
            let step = match &mut self.state {
                State::Sending => self.send().await?,
                State::Connecting(at) => {
                    sleep_until(*at).await;
                    self.open().await?;
                    Step::Continue
                }
                State::Streaming { stream, .. } => {
                    let item = stream.next().await;
                    self.handle_item(item)?
                }
                State::Draining(stream) => match timeout(DRAIN_TIMEOUT, stream.next()).await {
                    Ok(Some(Ok((position, event)))) => self.handle_late_event(position, event),
                    Ok(None | Some(Err(_))) | Err(_) => self.finish_stream().await,
                },
                State::Polling(at) => {
                    sleep_until(*at).await;
                    self.poll().await?
                }
                State::Ended => return Ok(None),
            };
            if let Step::Event(event) = step {
                return Ok(Some(event));
            }
        }
    }

    /// Sends the message without a stream.
    async fn send(&mut self) -> Result<Step> {
        let request = match &self.message {
            Some(message) => message.request.clone(),
            None => return Err(empty_stream()),
        };
        let continues_task = request.message.task_id.is_some() && request.returns_immediately();
        let response = match self.client.send_message(request).await {
            Ok(SendMessageResponse::Task(task)) => StreamResponse::Task(task),
            Ok(SendMessageResponse::Message(message)) => StreamResponse::Message(message),
            Err(error) => return self.recover_plain_send(error).await,
        };
        self.message = None;
        let event = self.fold.apply(None, response);
        self.fold.is_stale = continues_task && self.fold.state().is_interrupted();
        self.state = if self.is_at_rest() {
            State::Ended
        } else if self.client.supports_streaming().unwrap_or(true) {
            State::Connecting(Instant::now())
        } else {
            State::Polling(self.pacing.next_poll())
        };
        Ok(event.into())
    }

    /// Handles a failed `SendMessage`: switches to a stream if the peer only streams, or waits and sends again.
    async fn recover_plain_send(&mut self, error: Error) -> Result<Step> {
        if let Some(message) = &mut self.message
            && is_unsupported(&error)
            && !message.was_refused
            && self.client.supports_streaming() != Some(false)
        {
            message.was_refused = true;
            self.state = State::Connecting(Instant::now());
        } else if self.client.can_resend(&error) {
            sleep_until(self.pacing.retry_at(error)?).await;
        } else {
            return Err(error);
        }
        Ok(Step::Continue)
    }

    /// Opens a stream: of the message, or of its task once the id is known.
    async fn open(&mut self) -> Result<()> {
        let opened = match (self.fold.id(), &self.message) {
            (Some(id), _) => {
                let request = SubscribeToTaskRequest {
                    id: id.clone(),
                    ..Default::default()
                };
                let after = self.fold.position();
                self.client.subscribe_to_task(request, after).await
            }
            (None, Some(message)) => {
                let request = message.request.clone();
                self.client.send_streaming_message(request).await
            }
            (None, None) => Err(empty_stream()),
        };
        match opened {
            Ok(stream) => {
                self.start_streaming(stream);
                Ok(())
            }
            Err(error) if self.fold.id().is_some() => self.recover_stream(error),
            Err(error) => self.recover_send(error),
        }
    }

    fn start_streaming(&mut self, stream: EventStream) {
        if self.fold.task().is_some() {
            self.reconnects += 1;
            self.fold.mark_resumed();
        }
        self.state = State::Streaming {
            stream,
            progress: StreamProgress::Nothing,
        };
    }

    /// Handles an item of the open stream.
    fn handle_item(&mut self, item: Option<Result<(Option<Seq>, StreamResponse)>>) -> Result<Step> {
        match item {
            Some(Ok((position, event))) => Ok(self.handle_event(position, event)),
            None if self.is_at_rest() || self.fold.is_stale => {
                self.state = State::Ended;
                Ok(Step::Continue)
            }
            // A clean end before the task is at rest is a cut, for example by the time limit of a proxy.
            None => self.handle_cut(stream_cut_error()),
            Some(Err(error)) => self.handle_cut(error),
        }
    }

    fn handle_event(&mut self, position: Option<Seq>, event: StreamResponse) -> Step {
        self.pacing.reset_backoff();
        self.has_received = true;
        let sent = self.message.take();
        let event = self.fold.apply(position, event);
        if event.is_some() {
            self.state.record(StreamProgress::NewEvents);
            self.pacing.reset_poll_interval();
        } else {
            self.state.record(StreamProgress::Duplicates);
        }
        let continues_task = sent.is_some_and(|message| message.continues_task());
        self.fold.is_stale = continues_task && self.fold.state().is_interrupted();
        if self.is_over() {
            self.state.drain();
        }
        event.into()
    }

    /// Handles an event behind the one that seemed to be the last: a task may follow its first message.
    fn handle_late_event(&mut self, position: Option<Seq>, event: StreamResponse) -> Step {
        let event = self.fold.apply(position, event);
        if !self.is_over() {
            self.state.resume();
        }
        event.into()
    }

    /// Handles the loss of the open stream.
    fn handle_cut(&mut self, error: Error) -> Result<Step> {
        let is_empty = self.state.progress() == StreamProgress::Nothing;
        if self.fold.id().is_none() {
            self.recover_send(error)?;
        } else if is_empty && is_transient(&error) {
            // Some servers close the connection instead of reporting that the task has ended.
            self.state = State::Polling(self.pacing.retry_at(error)?);
        } else if !is_empty && error.kind() == ErrorKind::Unauthenticated {
            // The credential has ended during the stream. A renewed one opens it again; otherwise that call is refused.
            self.state = State::Connecting(self.pacing.retry_at(error)?);
        } else {
            self.recover_stream(error)?;
        }
        Ok(Step::Continue)
    }

    /// Handles an error of the stream of a known task: reconnects after a delay, or switches to polling.
    fn recover_stream(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::TaskNotFound | ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
                Err(error)
            }
            _ if is_transient(&error) => {
                let has_progressed = self.state.progress() == StreamProgress::NewEvents;
                let retry = self.pacing.retry_at(error)?;
                // Streams without new events are reopened at most as often as the task would be polled.
                self.state = State::Connecting(if has_progressed {
                    retry
                } else {
                    retry.max(self.pacing.next_poll())
                });
                Ok(())
            }
            _ if self.policy.require_streaming && !self.has_received => Err(error),
            // The task has ended, or the peer does not stream, or its error is unknown to us.
            kind => {
                if kind == ErrorKind::Internal {
                    self.stream_error = Some(error);
                }
                self.state = State::Polling(Instant::now());
                Ok(())
            }
        }
    }

    /// Handles a failed `SendStreamingMessage`. The message may or may not have reached the agent.
    fn recover_send(&mut self, error: Error) -> Result<()> {
        let Some(message) = &mut self.message else {
            return Err(error);
        };
        if self.client.supports_streaming() == Some(true) && message.is_task_refused(&error) {
            return Err(error);
        }
        if is_unsupported(&error) && !message.was_refused {
            message.was_refused = true;
            self.send_without_stream();
        } else if self.client.can_resend(&error) {
            self.state = State::Connecting(self.pacing.retry_at(error)?);
        } else {
            return Err(error);
        }
        Ok(())
    }

    async fn poll(&mut self) -> Result<Step> {
        let event = match self.fetch_task().await {
            Ok(event) => event,
            Err(error) if is_transient(&error) => {
                let retry = self.pacing.retry_at(error)?;
                self.state = State::Polling(retry.max(self.pacing.next_poll()));
                return Ok(Step::Continue);
            }
            Err(error) => return Err(self.stream_error.take().unwrap_or(error)),
        };
        self.stream_error = None;
        self.pacing.reset_backoff();
        self.has_received = true;
        self.state = if self.is_at_rest() {
            State::Ended
        } else {
            State::Polling(self.pacing.next_poll())
        };
        Ok(event.into())
    }

    /// Reads the task with `GetTask` and returns it if it has changed.
    async fn fetch_task(&mut self) -> Result<Option<StreamResponse>> {
        let id = self.fold.id().cloned().unwrap_or_default();
        let request = GetTaskRequest {
            id,
            ..Default::default()
        };
        let task = self.client.get_task(request).await?;
        Ok(self.fold.replace(task))
    }

    /// Ends the stream; reads the task itself if events may be missing.
    async fn finish_stream(&mut self) -> Step {
        let event = if self.fold.needs_refetch {
            self.fetch_task().await.unwrap_or_default()
        } else {
            None
        };
        self.state = State::Ended;
        event.into()
    }

    fn with_task_id(&self, error: Error) -> Error {
        match self.fold.id() {
            Some(id) => error.with_detail("taskId", id.as_str()),
            None => error,
        }
    }
}

fn empty_stream() -> Error {
    super::invalid_response("the stream ended before its first event")
}

impl Drop for TaskStream {
    /// Cancels the task in the background, if [`cancel_on_drop`](Self::cancel_on_drop) was called.
    fn drop(&mut self) {
        if !self.policy.cancel_on_drop || self.is_at_rest() {
            return;
        }
        let Some(id) = self.fold.id().cloned() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let client = self.client.clone();
        let cancel = async move {
            let request = CancelTaskRequest {
                id,
                ..Default::default()
            };
            // The stream is gone: there is no caller to return the result to.
            let _ = client.cancel_task(request).await;
        };
        self.client.background_tasks.spawn_on(cancel, &runtime);
    }
}

impl std::fmt::Debug for TaskStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskStream")
            .field("fold", &self.fold)
            .finish_non_exhaustive()
    }
}
