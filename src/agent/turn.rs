//! A turn: one message of a task, and the operations with which its agent reports progress and results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::event_queue::PushError;
use super::{ArtifactWriter, EventQueue};
use crate::model::{
    Artifact, ArtifactId, Call, Caller, Content, ContextId, Event, Message, Object, Part, Role,
    Scope, Task, TaskId, TaskState, TaskStatus, TraceContext,
};
use crate::telemetry::{metrics, trace};

/// One message of a task, and the operations with which its agent reports progress and results.
///
/// Operations that add events wait while the queue to the log is full. After the end of the turn they have no effect,
/// except for one log entry which records that an event was ignored.
#[derive(Clone)]
pub struct Turn(Arc<TurnContext>);

/// State shared by the clones of a [`Turn`] and the engine's turn driver.
pub(crate) struct TurnContext {
    /// Snapshot of the task at the start of the turn.
    pub(crate) task: Arc<Task>,
    pub(crate) message: Arc<Message>,
    /// Whether the message replaces an answer that did not arrive in time.
    pub(crate) is_unanswered: bool,
    pub(crate) call: Call,
    /// Attempt number, starting at 1.
    pub(crate) attempt: u32,
    pub(crate) queue: EventQueue,
    /// Created on first use: most turns are neither canceled nor await it.
    pub(crate) cancel: OnceLock<CancellationToken>,
    /// Whether the agent awaits the cancellation. It then gets the grace period.
    pub(crate) awaits_cancel: AtomicBool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) task_lookup: Arc<dyn TaskLookup>,
}

/// Read access to stored tasks, limited to one scope.
#[async_trait]
pub(crate) trait TaskLookup: Send + Sync {
    /// Returns a task, or `None` if the scope does not contain it.
    async fn task(&self, scope: &Scope, id: &TaskId) -> Option<Task>;

    /// Records that an event of this task arrived after the end of its turn and was ignored.
    async fn record_late_event(self: Arc<Self>, scope: &Scope, id: &TaskId);

    /// Returns the newest tasks of a context, oldest first, without `excluded`.
    async fn context(
        &self,
        scope: &Scope,
        id: &ContextId,
        excluded: &TaskId,
        limit: usize,
    ) -> Vec<Task>;
}

impl Turn {
    pub(crate) fn new(context: Arc<TurnContext>) -> Self {
        Self(context)
    }

    /// The message of this turn.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.0.message
    }

    /// Whether the question of the previous turn was not answered in time and the task continues without an answer
    /// (see [`Settings::on_waiting`](crate::Settings::on_waiting)). The message then only states this, and
    /// [`text`](Self::text) is empty.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.0.is_unanswered
    }

    /// The message as a prompt, one line per part: text unchanged, data as JSON, files as a description.
    #[must_use]
    pub fn text(&self) -> String {
        if self.0.is_unanswered {
            return String::new();
        }
        match &*self.0.message.parts {
            [part] => prompt_text(part),
            parts => parts.iter().map(prompt_text).collect::<Vec<_>>().join("\n"),
        }
    }

    /// Snapshot of the task at the start of the turn, including its message.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.0.task
    }

    /// Id of the task.
    #[must_use]
    pub fn task_id(&self) -> &TaskId {
        &self.0.task.id
    }

    /// Id of the context (conversation) of the task. Callers may choose it: state that an agent keeps by this id must also be
    /// separated by the scope of the [`call`](Self::call).
    #[must_use]
    pub fn context_id(&self) -> &ContextId {
        &self.0.task.context_id
    }

    /// The authenticated caller.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        self.0.call.caller()
    }

    /// Metadata of the call: scope, extensions, trace.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.0.call
    }

    /// The current trace context. Send its [`headers`](TraceContext::headers) with outgoing calls of this turn.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        trace::current().or_else(|| self.0.call.trace.clone())
    }

    /// Adds to the token counters of `/metrics`: tokens that a model has read and written for this turn.
    pub fn count_tokens(&self, input: u64, output: u64) {
        metrics::record_tokens(&self.0.call.scope.agent, input, output);
    }

    /// Attempt number, starting at 1. More than 1 if a restart interrupted the previous attempt.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// Time until the turn's deadline. `None` if it has no deadline.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.0
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns up to `limit` earlier tasks of the same context and caller, oldest first.
    pub async fn context_tasks(&self, limit: usize) -> Vec<Task> {
        self.0
            .task_lookup
            .context(self.scope(), self.context_id(), self.task_id(), limit)
            .await
    }

    /// Returns the tasks that the message refers to, if the caller can access them.
    pub async fn referenced_tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for id in &self.0.message.reference_task_ids {
            tasks.extend(self.0.task_lookup.task(self.scope(), id).await);
        }
        tasks
    }

    /// Waits until the task is canceled.
    ///
    /// An agent that has called this gets [`cancel_grace`](crate::Settings::cancel_grace) to finish after a cancel.
    /// Any other agent is dropped immediately.
    pub async fn cancelled(&self) {
        self.0.awaits_cancel.store(true, Ordering::Release);
        self.0
            .cancel
            .get_or_init(CancellationToken::new)
            .cancelled()
            .await;
    }

    /// Reports progress: sets the status to `working` with this message.
    pub async fn say(&self, part: impl Into<Part>) {
        self.set_status(TaskState::Working, Some(agent_message(part)), None)
            .await;
    }

    /// Reports progress with a whole message, including metadata. The engine replaces its task and context ids.
    pub async fn say_message(&self, message: Message) {
        let message = Message {
            role: Role::Agent,
            ..message
        };
        self.set_status(TaskState::Working, Some(message), None)
            .await;
    }

    /// Requests credentials while the turn continues: sets the status to `auth-required`. Blocking callers return.
    pub async fn require_auth(&self, part: impl Into<Part>) {
        self.set_status(TaskState::AuthRequired, Some(agent_message(part)), None)
            .await;
    }

    /// Requests credentials with a whole message; see [`require_auth`](Self::require_auth).
    pub async fn require_auth_message(&self, message: Message) {
        self.set_status(TaskState::AuthRequired, Some(message), None)
            .await;
    }

    /// Adds to the metadata of the task and sets its status to `working`. While the task is `auth-required`, the
    /// metadata is held until the next status.
    pub async fn add_metadata(&self, metadata: Object) {
        // `Unspecified` leaves the choice of the state to the engine, which knows the current one.
        self.set_status(TaskState::Unspecified, None, Some(metadata))
            .await;
    }

    /// Adds an artifact with one text part.
    pub async fn write(&self, name: impl Into<String>, text: impl Into<String>) {
        self.add_artifact(Artifact {
            artifact_id: ArtifactId::default(),
            ..Artifact::text(name, text)
        })
        .await;
    }

    /// Adds an artifact, or replaces the one with the same id. An artifact without parts violates the protocol and
    /// fails the task.
    pub async fn add_artifact(&self, artifact: Artifact) {
        self.push(Event::Artifact {
            artifact,
            append: false,
            last_chunk: true,
            metadata: None,
        })
        .await;
    }

    /// Adds a chunk of an artifact: appends it to the artifact of the same id if `append`, else replaces that one.
    ///
    /// To stream text, use a [`writer`](Self::writer), which sets the flags.
    pub async fn add_artifact_chunk(&self, artifact: Artifact, append: bool, last_chunk: bool) {
        self.push(Event::Artifact {
            artifact,
            append,
            last_chunk,
            metadata: None,
        })
        .await;
    }

    /// Starts an artifact whose text is streamed in chunks.
    pub fn writer(&self, name: impl Into<String>) -> ArtifactWriter {
        ArtifactWriter::new(self.clone(), name.into())
    }

    async fn set_status(
        &self,
        state: TaskState,
        message: Option<Message>,
        metadata: Option<Object>,
    ) {
        let status = TaskStatus {
            message: message.map(Arc::new),
            ..TaskStatus::new(state)
        };
        self.push(Event::Status { status, metadata }).await;
    }

    /// Queues an event. The push happens before the first poll: the returned future contains the event only if the
    /// queue is full.
    pub(super) fn push(&self, event: Event) -> impl Future<Output = ()> {
        let push_error = self.0.queue.push(event).err();
        async {
            if let Some(push_error) = push_error {
                self.wait_for_room(push_error).await;
            }
        }
    }

    fn scope(&self) -> &Scope {
        &self.0.call.scope
    }

    async fn wait_for_room(&self, push_error: PushError) {
        let Some(times) = self.0.queue.wait_for_room(push_error).await else {
            return;
        };
        tracing::debug!(task = %self.task_id(), times, "event after the end of the turn");
        if times == 1 {
            // Recorded once per turn, so that an agent which does not stop cannot fill the log.
            self.0
                .task_lookup
                .clone()
                .record_late_event(self.scope(), self.task_id())
                .await;
        }
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn")
            .field("task", self.task_id())
            .finish_non_exhaustive()
    }
}

/// Creates a message of the agent. The engine fills in its ids.
fn agent_message(part: impl Into<Part>) -> Message {
    Message {
        role: Role::Agent,
        parts: vec![part.into()],
        ..Message::default()
    }
}

/// Formats a part as a line of a prompt. Files are described, not included.
fn prompt_text(part: &Part) -> String {
    let name = part.filename().unwrap_or("unnamed");
    let kind = part.media_type().unwrap_or("unknown type");
    match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.get().to_owned(),
        Content::Raw(bytes) => format!("[file {name}, {kind}, {} bytes]", bytes.byte_len()),
        Content::Url(url) => format!("[file {name}, {kind}, at {url}]"),
    }
}
