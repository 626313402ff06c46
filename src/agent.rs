//! What users implement: an agent works one turn at a time and says how each one ended.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::model::{Artifact, Call, ContextId, Event, Message, Part, Role, TaskId, TaskState, TaskStatus};

/// What does the work. A turn is one message of a task and everything the agent does about it.
///
/// ```
/// use attache::{Agent, Failure, Outcome, Turn};
///
/// struct Shout;
///
/// impl Agent for Shout {
///     async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
///         turn.write("shout", turn.text().to_uppercase()).await;
///         Ok(Outcome::Completed)
///     }
/// }
/// ```
pub trait Agent: Send + Sync + 'static {
    /// Works one turn and says how it ended. The task exists before this is called.
    ///
    /// An error or a panic fails the task; callers learn the name of the error's type, only the log its text.
    fn run(&self, turn: Turn) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Answers without a task when a plain message is enough. Asked only while there is no task; nothing is stored.
    fn reply(&self, message: &Message, call: &Call) -> impl Future<Output = Option<Message>> + Send {
        let _ = (message, call);
        async { None }
    }
}

/// One message to work on, and the way to say and write things about it.
#[derive(Debug)]
pub struct Turn {
    task_id: TaskId,
    context_id: ContextId,
    message: Arc<Message>,
    queue: mpsc::Sender<Said>,
}

/// How a turn ended. The words are for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The work is done.
    Completed,
    /// The agent needs an answer to this question before it can go on; the next message is a new turn.
    InputRequired(String),
    /// The agent needs credentials before it can go on, and says which.
    AuthRequired(String),
    /// The agent declines, and says why.
    Rejected(String),
    /// The work could not be done, and the caller may know why.
    Failed(String),
}

/// A fault in the agent. The caller reads [`Failure::kind`], the cause goes to the log alone.
///
/// Made from any error by `?`.
pub struct Failure {
    kind: &'static str,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

/// What comes out of an agent, in the order it was said.
#[derive(Debug)]
pub(crate) enum Said {
    /// Something happened to the task. Ids that are empty are for the engine to fill.
    Event(Event),
    /// The turn is over.
    Ended(Result<Outcome, Failure>),
}

impl Turn {
    pub(crate) fn new(
        task_id: TaskId,
        context_id: ContextId,
        message: Arc<Message>,
        queue: mpsc::Sender<Said>,
    ) -> Self {
        Self { task_id, context_id, message, queue }
    }

    /// The message this turn is about.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// What was asked: the text parts of the message, a line each.
    #[must_use]
    pub fn text(&self) -> String {
        self.message.text()
    }

    /// The task.
    #[must_use]
    pub fn task_id(&self) -> &TaskId {
        &self.task_id
    }

    /// The conversation the task belongs to.
    #[must_use]
    pub fn context_id(&self) -> &ContextId {
        &self.context_id
    }

    /// Adds a result of one text to the task. Waits while the log is behind; without effect once the turn is over.
    pub async fn write(&self, name: impl Into<String>, text: impl Into<String>) {
        let (name, parts) = (Some(name.into()), vec![Part::text(text)]);
        let artifact = Artifact { name, parts, ..Artifact::default() };
        self.send(Event::Artifact { artifact, append: false, last_chunk: true, metadata: None }).await;
    }

    /// Tells the caller how the work goes: the task is working, with this message. Waits and ends as `write` does.
    pub async fn say(&self, text: impl Into<String>) {
        let message = status_message(&self.task_id, &self.context_id, text.into());
        let status = TaskStatus::new(TaskState::Working).with_message(message);
        self.send(Event::Status { status, metadata: None }).await;
    }

    async fn send(&self, event: Event) {
        // The queue closes with the turn; what is said after it has nobody to hear it.
        let _ = self.queue.send(Said::Event(event)).await;
    }
}

/// What the agent says with a status; its id is left to the engine.
pub(crate) fn status_message(task: &TaskId, context: &ContextId, text: String) -> Message {
    let message = Message { role: Role::Agent, parts: vec![Part::text(text)], ..Message::default() };
    message.in_task(task.clone()).in_context(context.clone())
}

impl Failure {
    /// The name of the error's type, which the caller may know.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.kind
    }

    /// What happened, for the log alone.
    #[must_use]
    pub fn cause(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.cause
    }

    fn panic(payload: Box<dyn Any + Send>) -> Self {
        let text = payload.downcast::<&'static str>().map(|text| (*text).to_owned());
        let text = text.or_else(|payload| payload.downcast::<String>().map(|text| *text));
        Self { kind: "panic", cause: text.unwrap_or_else(|_| "not a text".to_owned()).into() }
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(cause: E) -> Self {
        Self { kind: kind_of(std::any::type_name::<E>()), cause: cause.into() }
    }
}

/// The last name of a type's path: callers are not told which libraries are used.
fn kind_of(type_name: &'static str) -> &'static str {
    let path = type_name.split('<').next().unwrap_or_default();
    match path.rsplit("::").next().unwrap_or_default() {
        "Box" | "String" | "&str" | "" => "Error",
        name => name,
    }
}

impl fmt::Display for Failure {
    /// What the caller reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent execution failed ({})", self.kind)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("kind", &self.kind).field("cause", &self.cause).finish()
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any agent behind one type. A panic in it is a failure like any other: nobody outside this file meets one.
pub(crate) trait AnyAgent: Send + Sync {
    fn run(&self, turn: Turn) -> Boxed<'_, Result<Outcome, Failure>>;
    fn reply<'a>(
        &'a self,
        message: &'a Message,
        call: &'a Call,
    ) -> Boxed<'a, Result<Option<Message>, Failure>>;
}

impl<A: Agent> AnyAgent for A {
    fn run(&self, turn: Turn) -> Boxed<'_, Result<Outcome, Failure>> {
        Box::pin(async { calm(async { Agent::run(self, turn).await }).await? })
    }

    fn reply<'a>(
        &'a self,
        message: &'a Message,
        call: &'a Call,
    ) -> Boxed<'a, Result<Option<Message>, Failure>> {
        Box::pin(calm(async { Agent::reply(self, message, call).await }))
    }
}

/// Runs a future to its end, or to its panic.
async fn calm<F: Future>(future: F) -> Result<F::Output, Failure> {
    let mut future = pin!(future);
    // Unwind safe: after a panic the future is dropped and never polled again.
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => std::task::Poll::Ready(Err(Failure::panic(payload))),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails<E: Into<Failure>>(error: E) -> String {
        error.into().to_string()
    }

    #[test]
    fn callers_read_the_kind_and_never_the_cause() {
        let io = || std::io::Error::other("/etc/secret");
        assert_eq!(fails(io()), "Agent execution failed (Error)");
        assert_eq!(fails("x".parse::<u8>().unwrap_err()), "Agent execution failed (ParseIntError)");
        assert_eq!(fails("password"), "Agent execution failed (Error)");
        assert_eq!(fails(Box::<dyn std::error::Error + Send + Sync>::from(io())), fails("password"));
        assert!(Failure::from(io()).cause().to_string().contains("/etc/secret"));
    }

    #[tokio::test]
    async fn a_panic_is_a_failure() {
        let failure = calm(async { panic!("at {}", "/etc/secret") }).await.map(|(): ()| ()).unwrap_err();
        assert_eq!(failure.to_string(), "Agent execution failed (panic)");
        assert_eq!(failure.cause().to_string(), "at /etc/secret");
        assert_eq!(calm(async { 7 }).await.unwrap(), 7);
    }
}
