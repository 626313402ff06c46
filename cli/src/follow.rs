//! Follows a task until it ends or needs somebody, whatever happens to the connection on the way.

mod pace;

use std::time::Duration;

use attache::model::{
    GetTaskRequest, SendMessageResponse, Seq, StreamResponse, SubscribeToTaskRequest, Task, TaskId, TaskState,
};
use attache::{Error, ErrorKind, EventStream};
use tokio::time::sleep;

use crate::failure::{Failure, Outcome};
use crate::session::Session;
use pace::Pace;

/// So long an answer to a single look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// The events of one task, from wherever they can be had.
pub(crate) struct Follow<'a, 's> {
    session: &'a Session<'s>,
    from: Source,
    pace: Pace,
    /// What all events so far make of the task.
    pub(crate) task: Option<Task>,
    position: Option<Seq>,
    /// Interruptions to wait through: they are resolved elsewhere, or by the message that was just sent.
    through: Vec<TaskState>,
    /// A state to stop at as well.
    until: Option<TaskState>,
    first: bool,
    continuing: bool,
    ended: bool,
}

enum Source {
    /// One event is known already; then look now and then.
    Known(Box<StreamResponse>),
    Stream(Box<EventStream>),
    /// The stream was cut.
    Cut,
    /// No stream to be had: look now and then; the first time at once.
    Look {
        at_once: bool,
    },
}

impl<'a, 's> Follow<'a, 's> {
    pub(crate) fn stream(session: &'a Session<'s>, events: EventStream) -> Self {
        Self::new(session, Source::Stream(Box::new(events)))
    }

    /// From an answer that may not be the end.
    pub(crate) fn answer(session: &'a Session<'s>, answer: SendMessageResponse) -> Self {
        let event = match answer {
            SendMessageResponse::Task(task) => StreamResponse::Task(task),
            SendMessageResponse::Message(message) => StreamResponse::Message(message),
        };
        Self::new(session, Source::Known(Box::new(event)))
    }

    /// By looking now and then.
    pub(crate) fn looking(session: &'a Session<'s>, id: TaskId) -> Self {
        let task = Task { id, ..Task::default() };
        Self { task: Some(task), ..Self::new(session, Source::Look { at_once: true }) }
    }

    fn new(session: &'a Session<'s>, from: Source) -> Self {
        let pace = Pace::new(session.settings.poll_interval);
        Self {
            session,
            from,
            pace,
            task: None,
            position: None,
            through: Vec::new(),
            until: None,
            first: true,
            continuing: false,
            ended: false,
        }
    }

    /// The message continues a task: what it says of its last interruption is old.
    pub(crate) fn continuing(self, continuing: bool) -> Self {
        Self { continuing, ..self }
    }

    /// Goes on through these interruptions.
    pub(crate) fn through(self, through: Vec<TaskState>) -> Self {
        Self { through, ..self }
    }

    /// Stops at this state too.
    pub(crate) fn until(self, until: Option<TaskState>) -> Self {
        Self { until, ..self }
    }

    /// The next event; `None` when the task has ended, or waits for somebody.
    pub(crate) async fn next(&mut self) -> Outcome<Option<StreamResponse>> {
        while !self.ended {
            let event = match &mut self.from {
                Source::Known(event) => {
                    let event = (**event).clone();
                    self.from = Source::Look { at_once: false };
                    Some(event)
                }
                Source::Stream(events) => match events.next().await {
                    Some(Ok((position, event))) => {
                        self.position = position.or(self.position);
                        Some(event)
                    }
                    end => self.cut(end.and_then(Result::err))?,
                },
                Source::Cut => self.reconnect().await?,
                Source::Look { at_once } => {
                    let at_once = std::mem::replace(at_once, false);
                    self.look(at_once).await?
                }
            };
            if let Some(event) = event.filter(|event| self.is_news(event)) {
                self.take(&event);
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// A stream that ended too early: find out what can be done about it.
    fn cut(&mut self, error: Option<Error>) -> Outcome<Option<StreamResponse>> {
        match (&self.task, error) {
            (None, Some(error)) => Err(self.session.failure(&error)),
            (None, None) => Err(Failure::protocol(
                ErrorKind::InvalidAgentResponse,
                "the stream ended before it said anything",
            )),
            (Some(_), Some(error)) if !is_passing(&error) => Err(self.session.failure(&error)),
            (Some(_), _) => {
                self.from = Source::Cut;
                Ok(None)
            }
        }
    }

    async fn reconnect(&mut self) -> Outcome<Option<StreamResponse>> {
        let Some(task) = &self.task else { return Ok(None) };
        sleep(self.pace.before_retry()).await;
        if !self.session.streams() {
            self.from = Source::Look { at_once: true };
            return Ok(None);
        }
        let request = SubscribeToTaskRequest { id: task.id.clone(), ..SubscribeToTaskRequest::default() };
        match self.session.client.subscribe_to_task(request, self.position).await {
            Ok(mut events) => match events.next().await {
                Some(Ok((position, event))) => {
                    self.position = position.or(self.position);
                    self.from = Source::Stream(Box::new(events));
                    return Ok(Some(event));
                }
                Some(Err(error)) if is_passing(&error) => self.failed(&error)?,
                // It has ended meanwhile, or cannot be followed: look.
                Some(Err(_)) | None => self.from = Source::Look { at_once: true },
            },
            Err(error) if is_passing(&error) => self.failed(&error)?,
            Err(_) => self.from = Source::Look { at_once: true },
        }
        Ok(None)
    }

    async fn look(&mut self, at_once: bool) -> Outcome<Option<StreamResponse>> {
        let Some(task) = &self.task else { return Ok(None) };
        let request = GetTaskRequest { id: task.id.clone(), ..GetTaskRequest::default() };
        if !at_once {
            sleep(self.pace.before_look()).await;
        }
        let looked = tokio::time::timeout(LOOK_TIMEOUT, self.session.client.get_task(request)).await;
        match looked.unwrap_or_else(|_| Err(ErrorKind::DeadlineExceeded.into())) {
            Ok(task) => {
                self.pace.worked();
                Ok(Some(StreamResponse::Task(task)))
            }
            Err(error) if is_passing(&error) => self.failed(&error).map(|()| None),
            Err(error) => Err(self.session.failure(&error)),
        }
    }

    fn failed(&mut self, error: &Error) -> Outcome {
        match self.pace.failed(error.retry_after()) {
            true => Ok(()),
            false => {
                let failure = self.session.failure(error);
                let id = self.task.as_ref().map(|task| task.id.to_string()).unwrap_or_default();
                let message = format!("lost sight of task {id}: {}", failure.message);
                Err(Failure { message, hint: Some(self.session.resume.wait(&id)), ..failure })
            }
        }
    }

    /// A snapshot that is told again says nothing, unless it settles what was not settled.
    fn is_news(&self, event: &StreamResponse) -> bool {
        match (event, &self.task) {
            (StreamResponse::Task(seen), Some(known)) if !self.first => {
                seen.status != known.status
                    || seen.artifacts != known.artifacts
                    || self.settles(seen.status.state)
            }
            _ => true,
        }
    }

    fn take(&mut self, event: &StreamResponse) {
        let state = match event {
            StreamResponse::Message(_) => {
                self.ended = true;
                return;
            }
            StreamResponse::Task(task) => Some(task.status.state),
            StreamResponse::StatusUpdate(update) => Some(update.status.state),
            StreamResponse::ArtifactUpdate(_) => None,
        };
        self.fold(event);
        let old = self.first && self.continuing && state.is_some_and(TaskState::is_interrupted);
        self.first = false;
        self.ended = !old && state.is_some_and(|state| self.settles(state));
    }

    fn settles(&self, state: TaskState) -> bool {
        state.is_terminal()
            || self.until == Some(state)
            || (state.is_interrupted() && !self.through.contains(&state))
    }

    fn fold(&mut self, event: &StreamResponse) {
        let fresh = |id: &TaskId, context: &attache::model::ContextId| Task {
            id: id.clone(),
            context_id: context.clone(),
            ..Task::default()
        };
        let known = match event {
            StreamResponse::Task(task) if self.first => {
                self.task = Some(task.clone());
                return;
            }
            StreamResponse::Task(task) => self.task.get_or_insert_with(|| task.clone()),
            StreamResponse::StatusUpdate(it) => {
                self.task.get_or_insert_with(|| fresh(&it.task_id, &it.context_id))
            }
            StreamResponse::ArtifactUpdate(it) => {
                self.task.get_or_insert_with(|| fresh(&it.task_id, &it.context_id))
            }
            StreamResponse::Message(_) => return,
        };
        // What does not fit is shown as it came, and does not change what we make of the rest.
        let _ = known.apply_update(event);
    }
}

/// Whether it may be gone by itself.
fn is_passing(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::RateLimited | ErrorKind::DeadlineExceeded | ErrorKind::Canceled
    )
}
