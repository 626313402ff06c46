//! The agent side of the library: the [`Agent`] trait, the [`Turn`] it works on, and the [`Outcome`] or [`Failure`]
//! that ends a turn.
//!
//! Events of a turn go through a bounded queue ([`EventQueue`]) to the engine, which is the only writer of the log.

mod artifact_writer;
mod dyn_agent;
mod event_queue;
mod failure;
mod turn;

use crate::model::{Call, Json, Message, Task};

pub use artifact_writer::ArtifactWriter;
pub(crate) use dyn_agent::{CatchPanic, DynAgent};
pub(crate) use event_queue::EventQueue;
pub use failure::Failure;
pub use turn::Turn;
pub(crate) use turn::{TaskLookup, TurnContext};

/// An agent: runs one turn at a time. A turn is one message of a task and everything the agent does about it.
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
///
/// A function is an agent too, if it needs no state:
///
/// ```
/// use attache::{AgentCard, Failure, Outcome, Server, Turn};
///
/// async fn shout(turn: Turn) -> Result<Outcome, Failure> {
///     turn.write("shout", turn.text().to_uppercase()).await;
///     Ok(Outcome::Completed)
/// }
///
/// let server = Server::new(AgentCard::new("Shout", "Repeats the message in capitals"), shout);
/// ```
pub trait Agent: Send + Sync + 'static {
    /// Runs one turn and returns how it ended.
    ///
    /// The task is durable before a client sees it. It is not necessarily durable before `run` is called; see
    /// [`needs_durable_start`](Self::needs_durable_start).
    ///
    /// An error or a panic fails the task. Callers see the type name of the error; its text goes to the log.
    ///
    /// Cancellation: unless the agent awaits [`Turn::cancelled`], this future is dropped when the task is canceled.
    fn run(&self, turn: Turn) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Answers a message that names no task with a plain message instead of a task. `None` (the default) creates a
    /// task. Nothing of the exchange is stored.
    fn reply(
        &self,
        message: &Message,
        call: &Call,
    ) -> impl Future<Output = Option<Message>> + Send {
        let _ = message;
        let _ = call;
        async { None }
    }

    /// Releases resources of a task that was canceled while no turn was running, for example while it waited for
    /// input.
    ///
    /// The cancel call waits for this, for at most [`cancel_grace`](crate::Settings::cancel_grace).
    fn on_canceled(&self, task: &Task) -> impl Future<Output = ()> + Send {
        let _ = task;
        async {}
    }

    /// Returns whether the task must be durable before a turn starts, because side effects of the agent must not
    /// happen twice. Costs one commit per turn. The default is `false`.
    fn needs_durable_start(&self) -> bool {
        false
    }
}

impl<F, R> Agent for F
where
    F: Fn(Turn) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, Failure>> + Send,
{
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        self(turn).await
    }
}

/// How a turn ended. The messages are for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The task is completed.
    Completed,
    /// The task is completed, with a final message.
    CompletedWith(Message),
    /// The agent needs an answer to continue. The caller's next message starts a new turn.
    InputRequired(Question),
    /// The agent needs credentials to continue. The message says which.
    AuthRequired(Message),
    /// The agent declines the task. The message says why.
    Rejected(Message),
    /// The task failed. The message says why, in words for the caller.
    Failed(Message),
}

impl Outcome {
    /// Asks the caller a question. The caller's next message starts a new turn.
    pub fn ask(question: impl Into<Question>) -> Self {
        Self::InputRequired(question.into())
    }

    /// Requests credentials; `needed` says which.
    pub fn auth_required(needed: impl Into<String>) -> Self {
        Self::AuthRequired(Message::agent(needed.into()))
    }

    /// Declines the task; `reason` is for the caller.
    pub fn rejected(reason: impl Into<String>) -> Self {
        Self::Rejected(Message::agent(reason.into()))
    }

    /// Fails the task; `reason` is for the caller.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(Message::agent(reason.into()))
    }
}

/// A question to the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The question as text for people.
    pub message: Message,
    /// The question in a machine-readable form, if the agent has one.
    pub request: Option<Json>,
}

impl Question {
    /// Adds the machine-readable form.
    #[must_use]
    pub fn with_request(mut self, request: impl Into<Json>) -> Self {
        self.request = Some(request.into());
        self
    }
}

impl<T: Into<String>> From<T> for Question {
    fn from(text: T) -> Self {
        Self {
            message: Message::agent(text.into()),
            request: None,
        }
    }
}
