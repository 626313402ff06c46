//! A task, followed to its end: whatever the peer can, and whatever happens on the way.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::event_stream::stream_cut_error;
use super::retry::{Backoff, deadline_exceeded, is_transient, is_unsupported};
use super::task_fold::TaskFold;
use super::{Client, EventStream};
use crate::model::{
    CancelTaskRequest, Error, ErrorKind, GetTaskRequest, Result, SendMessageRequest,
    SendMessageResponse, Seq, StreamResponse, SubscribeToTaskRequest, Task, TaskId, TaskState,
};

/// How long a stream may go on when its task has come to rest: some servers tell the last things behind the end, and
/// some never close.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A task as it is worked on. A stream that is cut is opened again behind the last event, or else with the task as it
/// stands; a peer that does not stream is asked from time to time. What was told is not told again.
///
/// Dropping it closes the stream; the task goes on, unless [`cancel_on_drop`](Self::cancel_on_drop) says otherwise.
pub struct TaskStream {
    client: Client,
    source: TaskStreamState,
    fold: TaskFold,
    /// To send again, while it is not known to have arrived.
    sent: Option<SendMessageRequest>,
    /// The first thing to tell is the task, as soon as there is one.
    pub(super) tells_early: bool,
    /// The peer does not take the message in one of the two ways.
    is_refused: bool,
    /// What is known is how the task stood when the message reached it, not what became of it.
    is_stale: bool,
    /// Ends only with the task, not when it waits for somebody.
    to_the_end: bool,
    /// Goes on while the task waits for this.
    through: Vec<TaskState>,
    /// A peer that cannot tell is no peer, until it has told something.
    is_strict: bool,
    backoff: Backoff,
    pause: Duration,
    deadline: Option<Instant>,
    reconnects: u32,
    /// The stream that is open, or was last, has told something.
    has_spoken: bool,
    /// And something new.
    has_news: bool,
    cancels: bool,
}

/// Where the next event comes from.
enum TaskStreamState {
    Open(EventStream),
    /// The task is at rest; what else there is comes soon.
    Draining(EventStream),
    /// The stream is to be opened, then.
    Closed(Instant),
    /// The task is to be looked at, then.
    Polling(Instant),
    /// The message is to be sent without a stream.
    Unsent,
    Ended,
}

/// What there is to tell, if anything yet.
type NextEvent = Result<Option<StreamResponse>>;

impl TaskStream {
    pub(super) fn new(client: Client, fold: TaskFold, sent: Option<SendMessageRequest>) -> Self {
        let settings = client.settings.clone();
        Self {
            source: TaskStreamState::Closed(Instant::now()),
            to_the_end: sent.is_none(),
            fold,
            sent,
            tells_early: false,
            is_refused: false,
            is_stale: false,
            through: Vec::new(),
            is_strict: false,
            backoff: Backoff::new(&settings.retries),
            pause: settings.polling.initial_interval,
            deadline: settings.timeouts.wait.map(|wait| Instant::now() + wait),
            reconnects: 0,
            has_spoken: false,
            has_news: false,
            cancels: false,
            client,
        }
    }

    /// Begins by sending the message and asking for nothing but an answer.
    pub(super) fn without_stream(mut self) -> Self {
        self.source = TaskStreamState::Unsent;
        self
    }

    /// Sends the message, or opens the stream; what was refused is refused here.
    pub(super) async fn open_now(mut self) -> Result<Self> {
        while let TaskStreamState::Closed(then) = self.source
            && self.fold.id().is_none()
        {
            let deadline = self.deadline;
            let open_now = async {
                // The first time that is now; then it is when the peer, or our own patience, says.
                sleep_until(then).await;
                self.open().await
            };
            match deadline {
                Some(deadline) => timeout_at(deadline, open_now)
                    .await
                    .unwrap_or_else(|_| Err(self.wait_exceeded())),
                None => open_now.await,
            }?;
        }
        Ok(self)
    }

    /// The next event; `None` when the task has ended, or waits for us. An error is the last item: what was known
    /// then is in [`task`](Self::task). Dropping the future loses no event.
    ///
    /// # Errors
    /// Of the agent; a connection that does not come back; the time allowed ran out. Where the task is known, the
    /// metadata of the error have its `taskId`: it may still be worked on.
    pub async fn next(&mut self) -> Option<Result<StreamResponse>> {
        let event = match self.deadline {
            Some(deadline) => {
                let event = timeout_at(deadline, self.advance()).await;
                event.unwrap_or_else(|_| Err(self.wait_exceeded()))
            }
            None => self.advance().await,
        };
        if event.is_err() {
            self.source = TaskStreamState::Ended;
        }
        event.map_err(|error| self.with_task_id(error)).transpose()
    }

    /// Waits until the task has ended, or waits for somebody, and gives the whole of it; or the message, if that is
    /// the answer.
    ///
    /// # Errors
    /// As [`next`](Self::next). A task that failed is no error.
    pub async fn finish(mut self) -> Result<SendMessageResponse> {
        while !self.is_at_rest() {
            if self.next().await.transpose()?.is_none() {
                break;
            }
        }
        if self.fold.needs_refetch || self.fold.is_partial {
            // What we have is not nothing, if they have no more.
            let _ = self.fetch_task().await;
        }
        self.response()
    }

    /// The answer as far as it is known.
    pub(super) fn response(&self) -> Result<SendMessageResponse> {
        match (self.fold.task(), self.fold.message()) {
            (Some(task), _) => Ok(SendMessageResponse::Task(task.clone())),
            (None, Some(message)) => Ok(SendMessageResponse::Message(message.clone())),
            (None, None) => Err(super::invalid_response("the stream ended before it began")),
        }
    }

    /// The task as far as it is known; `None` if nothing has come yet, or the answer is a plain message.
    #[must_use]
    pub fn task(&self) -> Option<&Task> {
        self.fold.task()
    }

    /// The position of the last event, where the peer gives one: [`Client::follow`] goes on behind it.
    #[must_use]
    pub fn position(&self) -> Option<Seq> {
        self.fold.position()
    }

    /// How often the stream was opened again.
    #[must_use]
    pub fn reconnects(&self) -> u32 {
        self.reconnects
    }

    /// Asks the agent to stop if this is dropped before the task is at rest: nobody will read what comes of it.
    #[must_use]
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancels = true;
        self
    }

    /// Goes on while the task waits for one of these: somebody else gives it what it needs.
    #[must_use]
    pub fn wait_through(mut self, states: impl IntoIterator<Item = TaskState>) -> Self {
        self.through = states.into_iter().collect();
        self
    }

    /// Looks at the task from time to time, though the peer may stream.
    #[must_use]
    pub fn with_polling(mut self) -> Self {
        self.source = TaskStreamState::Polling(Instant::now());
        self
    }

    /// A task that cannot be streamed, because it has ended or the peer does not stream, is an error, unless something
    /// of it was told before; otherwise such a task is looked at.
    #[must_use]
    pub fn require_streaming(mut self) -> Self {
        self.is_strict = true;
        self
    }

    fn is_at_rest(&self) -> bool {
        let state = self.fold.state();
        let waits = state.is_interrupted() && !self.is_stale && !self.through.contains(&state);
        state.is_terminal() || waits || self.fold.message().is_some()
    }

    /// Whether nothing more is expected to be told.
    fn is_over(&self) -> bool {
        let state = self.fold.state();
        let asks = state == TaskState::InputRequired && !self.through.contains(&state);
        state.is_terminal()
            || self.fold.message().is_some()
            || (asks && !self.to_the_end && !self.is_stale)
    }

    async fn advance(&mut self) -> NextEvent {
        loop {
            let event = match &mut self.source {
                TaskStreamState::Ended => return Ok(None),
                TaskStreamState::Open(stream) => {
                    let item = stream.next().await;
                    self.handle_item(item)?
                }
                TaskStreamState::Draining(stream) => {
                    let item = timeout(DRAIN_TIMEOUT, stream.next()).await;
                    match item {
                        Ok(Some(Ok((at, event)))) => self.fold.apply(at, event),
                        Ok(None | Some(Err(_))) | Err(_) => self.finish_stream().await,
                    }
                }
                TaskStreamState::Closed(then) => {
                    sleep_until(*then).await;
                    self.open().await?;
                    None
                }
                TaskStreamState::Polling(then) => {
                    sleep_until(*then).await;
                    self.poll().await?
                }
                TaskStreamState::Unsent => self.send().await?,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// What a stream brought.
    fn handle_item(&mut self, item: Option<Result<(Option<Seq>, StreamResponse)>>) -> NextEvent {
        let lost = match item {
            Some(Ok((at, event))) => {
                self.backoff.reset();
                (self.has_spoken, self.is_strict) = (true, false);
                let continues = self
                    .sent
                    .take()
                    .is_some_and(|sent| sent.message.task_id.is_some());
                let event = self.fold.apply(at, event);
                if event.is_some() {
                    (self.has_news, self.pause) =
                        (true, self.client.settings.polling.initial_interval);
                }
                self.is_stale = continues && self.fold.state().is_interrupted();
                self.drain_if_over();
                return Ok(event);
            }
            None if self.is_at_rest() || self.is_stale => {
                self.source = TaskStreamState::Ended;
                return Ok(None);
            }
            // A clean end before the task's own is a cut: somebody in between had enough.
            None => stream_cut_error(),
            Some(Err(error)) => error,
        };
        match self.fold.id() {
            // Some servers hang up instead of saying that the task has ended.
            Some(_) if is_transient(&lost) && !self.has_spoken => {
                self.source = TaskStreamState::Polling(self.retry_at(lost)?)
            }
            Some(_) => self.recover_stream(lost)?,
            None => self.recover_send(lost)?,
        }
        Ok(None)
    }

    fn drain_if_over(&mut self) {
        if self.is_over() {
            self.source = match std::mem::replace(&mut self.source, TaskStreamState::Ended) {
                TaskStreamState::Open(stream) => TaskStreamState::Draining(stream),
                _ => TaskStreamState::Ended,
            };
        }
    }

    /// The stream of a known task went wrong: it is opened again, or the task is looked at.
    fn recover_stream(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::TaskNotFound | ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
                Err(error)
            }
            _ if is_transient(&error) => {
                let then = self.retry_at(error)?;
                // A stream that brought nothing new was worth a look, and is not opened more often than one looks.
                self.source = TaskStreamState::Closed(match std::mem::take(&mut self.has_news) {
                    true => then,
                    false => then.max(self.next_poll()),
                });
                Ok(())
            }
            _ if self.is_strict => Err(error),
            // It has ended, or the peer cannot do that, or says what nobody understands.
            _ => {
                self.source = TaskStreamState::Polling(Instant::now());
                Ok(())
            }
        }
    }

    /// The message may or may not have arrived.
    fn recover_send(&mut self, error: Error) -> Result<()> {
        self.source = match &mut self.sent {
            Some(sent)
                if self.client.supports_streaming() == Some(true)
                    && refers_to_task(&error, sent) =>
            {
                return Err(error);
            }
            Some(sent)
                if is_unsupported(&error) && !std::mem::replace(&mut self.is_refused, true) =>
            {
                if self.tells_early {
                    sent.configuration
                        .get_or_insert_default()
                        .return_immediately = true;
                }
                TaskStreamState::Unsent
            }
            Some(_) if self.client.can_resend(&error) => {
                TaskStreamState::Closed(self.retry_at(error)?)
            }
            Some(_) | None => return Err(error),
        };
        Ok(())
    }

    /// When to look at the task, and longer between looks from then on.
    fn next_poll(&mut self) -> Instant {
        let then = Instant::now() + self.pause;
        self.pause = (self.pause * 3 / 2).min(self.client.settings.polling.max_interval);
        then
    }

    fn retry_at(&mut self, error: Error) -> Result<Instant> {
        match self.backoff.next(&error) {
            Some(pause) => Ok(Instant::now() + pause),
            None => Err(error),
        }
    }

    /// Opens the stream: of the message, or again of its task.
    async fn open(&mut self) -> Result<()> {
        let open_now = match (self.fold.id(), &self.sent) {
            (Some(id), _) => {
                let request = SubscribeToTaskRequest {
                    id: id.clone(),
                    ..Default::default()
                };
                self.client
                    .subscribe_to_task(request, self.fold.position())
                    .await
            }
            (None, Some(sent)) => self.client.send_streaming_message(sent.clone()).await,
            (None, None) => Err(super::invalid_response("the stream ended before it began")),
        };
        match open_now {
            Ok(stream) => {
                if self.fold.task().is_some() {
                    self.reconnects += 1;
                    self.fold.mark_resumed();
                }
                self.has_spoken = false;
                self.source = TaskStreamState::Open(stream);
                Ok(())
            }
            Err(error) if self.fold.id().is_some() => self.recover_stream(error),
            Err(error) => self.recover_send(error),
        }
    }

    /// Sends the message without a stream; what comes back may be anything.
    async fn send(&mut self) -> NextEvent {
        let Some(sent) = self.sent.clone() else {
            return Ok(None);
        };
        let continues = sent.message.task_id.is_some() && sent.returns_immediately();
        let event = match self.client.send_message(sent).await {
            Ok(SendMessageResponse::Task(task)) => StreamResponse::Task(task),
            Ok(SendMessageResponse::Message(message)) => StreamResponse::Message(message),
            // Some do nothing but stream. Who does not stream either has said so before.
            Err(error)
                if is_unsupported(&error)
                    && !self.is_refused
                    && self.client.supports_streaming() != Some(false) =>
            {
                self.is_refused = true;
                self.source = TaskStreamState::Closed(Instant::now());
                return Ok(None);
            }
            Err(error) if self.client.can_resend(&error) => {
                sleep_until(self.retry_at(error)?).await;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.sent = None;
        let event = self.fold.apply(None, event);
        self.is_stale = continues && self.fold.state().is_interrupted();
        let supports_streaming = self.client.supports_streaming().unwrap_or(true);
        self.source = match self.is_at_rest() {
            true => TaskStreamState::Ended,
            false if supports_streaming => TaskStreamState::Closed(Instant::now()),
            false => TaskStreamState::Polling(self.next_poll()),
        };
        Ok(event)
    }

    /// Looks at the task.
    async fn poll(&mut self) -> NextEvent {
        let event = match self.fetch_task().await {
            Ok(event) => event,
            Err(error) if is_transient(&error) => {
                let then = self.retry_at(error)?;
                self.source = TaskStreamState::Polling(then.max(self.next_poll()));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.backoff.reset();
        self.is_strict = false;
        self.source = match self.is_at_rest() {
            true => TaskStreamState::Ended,
            false => TaskStreamState::Polling(self.next_poll()),
        };
        Ok(event)
    }

    async fn fetch_task(&mut self) -> NextEvent {
        let id = self.fold.id().cloned().unwrap_or_default();
        let task = self
            .client
            .get_task(GetTaskRequest {
                id,
                ..Default::default()
            })
            .await?;
        self.is_stale = false;
        Ok(self.fold.replace(task))
    }

    /// The stream is over: if we may have missed something, the task itself says.
    async fn finish_stream(&mut self) -> Option<StreamResponse> {
        let event = if self.fold.needs_refetch {
            self.fetch_task().await.unwrap_or_default()
        } else {
            None
        };
        self.source = TaskStreamState::Ended;
        event
    }

    fn wait_exceeded(&self) -> Error {
        deadline_exceeded(self.client.settings.timeouts.wait.unwrap_or_default())
    }

    fn with_task_id(&self, error: Error) -> Error {
        match self.fold.id() {
            Some(id) => error.with_detail("taskId", id.as_str()),
            None => error,
        }
    }
}

/// Whether a refusal means the task that a message continues, and not the way it was sent: it has ended.
fn refers_to_task(error: &Error, sent: &SendMessageRequest) -> bool {
    error.kind() == ErrorKind::UnsupportedOperation && sent.message.task_id.is_some()
}

impl Client {
    /// Follows a task to its end, from behind a position that an earlier stream gave, or as it stands. Where the peer
    /// cannot stream, or the task has ended, it is looked at.
    #[must_use]
    pub fn follow(&self, id: impl Into<TaskId>, after: Option<Seq>) -> TaskStream {
        let stream = TaskStream::new(self.clone(), TaskFold::for_task(id.into(), after), None);
        if self.supports_streaming() == Some(false) {
            stream.with_polling()
        } else {
            stream
        }
    }
}

impl Drop for TaskStream {
    fn drop(&mut self) {
        let Some(id) = self
            .fold
            .id()
            .filter(|_| self.cancels && !self.is_at_rest())
            .cloned()
        else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let client = self.client.clone();
        let errand = async move {
            // Nobody is left to tell.
            let _ = client
                .cancel_task(CancelTaskRequest {
                    id,
                    ..Default::default()
                })
                .await;
        };
        self.client.background_tasks.spawn_on(errand, &runtime);
    }
}

impl std::fmt::Debug for TaskStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskStream")
            .field("fold", &self.fold)
            .finish_non_exhaustive()
    }
}
