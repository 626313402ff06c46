//! One message to work on, and the ways to speak about it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::EventQueue;
use super::event_queue::PushError;
use crate::model::{
    Artifact, ArtifactId, Call, Caller, Content, ContextId, Event, Message, Object, Part, Role,
    Scope, Task, TaskId, TaskState, TaskStatus, TraceContext,
};
use crate::telemetry::metrics;
use crate::telemetry::trace;

/// One message to work on, and the ways to speak about it.
///
/// Speaking waits while the log is behind. Once the turn is over it has no effect, but for an entry in the log that says so.
#[derive(Clone)]
pub struct Turn(Arc<TurnContext>);

/// What surrounds a turn.
pub(crate) struct TurnContext {
    pub(crate) task: Arc<Task>,
    pub(crate) message: Arc<Message>,
    /// Whether the message stands for an answer that did not come.
    pub(crate) is_unanswered: bool,
    pub(crate) call: Call,
    /// Which attempt it is, from 1.
    pub(crate) attempt: u32,
    pub(crate) queue: EventQueue,
    /// Made by whoever listens, or has something to say: most turns have neither.
    pub(crate) cancel: OnceLock<CancellationToken>,
    /// Whether the agent listens for a cancel, and so gets time to end well.
    pub(crate) awaits_cancel: AtomicBool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) task_lookup: Arc<dyn TaskLookup>,
}

/// Where a turn looks things up, within its own scope.
#[async_trait]
pub(crate) trait TaskLookup: Send + Sync {
    /// A task of this scope; `None` for any other.
    async fn task(&self, scope: &Scope, id: &TaskId) -> Option<Task>;
    /// Records that something of this task was said after the end of its turn.
    async fn record_late_event(self: Arc<Self>, scope: &Scope, id: &TaskId);
    /// The newest tasks of a conversation in this scope, oldest first, without the one being worked on.
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

    /// The message this turn is about.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.0.message
    }

    /// Whether nobody answered in time what the last turn asked for, and the task goes on without: as
    /// [`Settings::on_waiting`](crate::Settings::on_waiting) says. The message only says so; `text` is empty.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.0.is_unanswered
    }

    /// What was asked, as a prompt: texts as they are, data as a line of JSON, and a line that a file is there.
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

    /// The task as it was when the turn began, its message included.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.0.task
    }

    /// The id of the task.
    #[must_use]
    pub fn task_id(&self) -> &TaskId {
        &self.0.task.id
    }

    /// The conversation the task belongs to.
    #[must_use]
    pub fn context_id(&self) -> &ContextId {
        &self.0.task.context_id
    }

    /// Who asks, as authentication knows them.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        self.0.call.caller()
    }

    /// What surrounds the request: scope, extensions, trace.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.0.call
    }

    /// Where what runs now is in a trace: to be passed on, as [`headers`](TraceContext::headers), with whatever is asked of
    /// others for this turn.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        trace::current().or_else(|| self.0.call.trace.clone())
    }

    /// Counts tokens that a model has read and written for this turn, for whoever looks at `/metrics`.
    pub fn count_tokens(&self, input: u64, output: u64) {
        metrics::record_tokens(&self.0.call.scope.agent, input, output);
    }

    /// The how-manieth attempt at this message it is: more than 1 if a restart cut the one before off.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// How long the turn may still take; `None` for as long as it likes.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.0
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Earlier tasks of the same conversation and the same caller, oldest first, at most `limit` of them.
    pub async fn context_tasks(&self, limit: usize) -> Vec<Task> {
        self.0
            .task_lookup
            .context(self.scope(), self.context_id(), self.task_id(), limit)
            .await
    }

    /// The tasks that the message refers to, as far as the caller may see them.
    pub async fn referenced_tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for id in &self.0.message.reference_task_ids {
            tasks.extend(self.0.task_lookup.task(self.scope(), id).await);
        }
        tasks
    }

    /// Ready when the task is to be canceled. An agent that has asked for this gets a grace period to end well; any
    /// other is dropped at once.
    pub async fn cancelled(&self) {
        self.0.awaits_cancel.store(true, Ordering::Release);
        self.0
            .cancel
            .get_or_init(CancellationToken::new)
            .cancelled()
            .await;
    }

    /// Tells the caller how the work goes: the task is working, with this message.
    pub async fn say(&self, part: impl Into<Part>) {
        self.status(TaskState::Working, Some(agent_message(part)), None)
            .await;
    }

    /// The same with a whole message: any parts, and metadata. Its ids are the task's.
    pub async fn say_message(&self, message: Message) {
        let message = Message {
            role: Role::Agent,
            ..message
        };
        self.status(TaskState::Working, Some(message), None).await;
    }

    /// Says which credentials are needed while the agent goes on waiting for them elsewhere. Blocked callers return.
    pub async fn require_auth(&self, part: impl Into<Part>) {
        self.status(TaskState::AuthRequired, Some(agent_message(part)), None)
            .await;
    }

    /// The same with a whole message.
    pub async fn require_auth_message(&self, message: Message) {
        self.status(TaskState::AuthRequired, Some(message), None)
            .await;
    }

    /// Adds to the metadata of the task, which is working then; while it waits for credentials, with what is said
    /// next.
    pub async fn add_metadata(&self, metadata: Object) {
        // What the state is then is not ours to know.
        self.status(TaskState::Unspecified, None, Some(metadata))
            .await;
    }

    /// Adds a result of one text.
    pub async fn write(&self, name: impl Into<String>, text: impl Into<String>) {
        self.add_artifact(Artifact {
            artifact_id: ArtifactId::default(),
            ..Artifact::text(name, text)
        })
        .await;
    }

    /// Adds a result, or replaces the one with its id. One without parts breaks the protocol, and fails the task.
    pub async fn add_artifact(&self, artifact: Artifact) {
        self.push(Event::Artifact {
            artifact,
            append: false,
            last_chunk: true,
            metadata: None,
        })
        .await;
    }

    /// Passes on a piece of a result: behind what is there under its id if `append`, else in its place. To write text,
    /// take a [`writer`](Self::writer), whose flags are always right.
    pub async fn add_artifact_chunk(&self, artifact: Artifact, append: bool, last_chunk: bool) {
        self.push(Event::Artifact {
            artifact,
            append,
            last_chunk,
            metadata: None,
        })
        .await;
    }

    /// Begins a result whose text comes piece by piece.
    pub fn writer(&self, name: impl Into<String>) -> ArtifactWriter {
        let artifact = Artifact {
            name: Some(name.into()),
            artifact_id: ArtifactId::random(),
            ..Artifact::default()
        };
        ArtifactWriter {
            turn: self.clone(),
            artifact,
            begun: false,
        }
    }

    async fn status(&self, state: TaskState, message: Option<Message>, metadata: Option<Object>) {
        let status = TaskStatus {
            message: message.map(Arc::new),
            ..TaskStatus::new(state)
        };
        self.push(Event::Status { status, metadata }).await;
    }

    /// Most of what is said is heard at once, and never carried along by what waits.
    fn push(&self, event: Event) -> impl Future<Output = ()> {
        let push_error = self.0.queue.push(event).err();
        async {
            if let Some(push_error) = push_error {
                self.wait_for_room(push_error).await;
            }
        }
    }

    /// All that its caller may see.
    fn scope(&self) -> &Scope {
        &self.0.call.scope
    }

    async fn wait_for_room(&self, push_error: PushError) {
        let Some(times) = self.0.queue.wait_for_room(push_error).await else {
            return;
        };
        tracing::debug!(task = %self.task_id(), times, "said after the end of the turn");
        if times == 1 {
            // Once is enough to know of, and an agent that goes on and on must not fill the log.
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

/// A result whose text comes piece by piece; its chunk flags are always right.
///
/// Dropped without `finish`, it simply ends: whoever reads it has all that was written.
#[derive(Debug)]
pub struct ArtifactWriter {
    turn: Turn,
    artifact: Artifact,
    begun: bool,
}

impl ArtifactWriter {
    /// Gives the result an id. One that is there under it is replaced by the first piece: a turn that runs again does
    /// not leave what it wrote before beside what it writes now.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<ArtifactId>) -> Self {
        self.artifact.artifact_id = id.into();
        self
    }

    /// Adds a piece.
    pub async fn write(&mut self, text: impl Into<String>) {
        let chunk = self.chunk(text.into(), false);
        self.turn.push(chunk).await;
    }

    /// Says that nothing more comes.
    pub async fn finish(mut self) {
        let chunk = self.chunk(String::new(), true);
        self.turn.push(chunk).await;
    }

    fn chunk(&mut self, text: String, last_chunk: bool) -> Event {
        let parts = vec![Part::text(text)];
        let name = if self.begun {
            None
        } else {
            self.artifact.name.clone()
        };
        let artifact_id = self.artifact.artifact_id.clone();
        // Not from a default: that would make an id to throw away, for every piece.
        let (description, extensions, metadata) = (None, Vec::new(), None);
        let artifact = Artifact {
            artifact_id,
            name,
            parts,
            description,
            extensions,
            metadata,
        };
        let append = std::mem::replace(&mut self.begun, true);
        Event::Artifact {
            artifact,
            append,
            last_chunk,
            metadata: None,
        }
    }
}

/// What the agent says; its ids are left to the engine.
fn agent_message(part: impl Into<Part>) -> Message {
    Message {
        role: Role::Agent,
        parts: vec![part.into()],
        ..Message::default()
    }
}

/// A part as a line of a prompt. File contents are not for prompts; the parts themselves are at hand.
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
