//! What users implement: an agent works one turn at a time and says how each one ended.

mod dyn_agent;
mod event_queue;
mod failure;
mod turn;

use crate::model::{Call, Json, Message, Task};

pub(crate) use dyn_agent::{CatchPanic, DynAgent};
pub(crate) use event_queue::EventQueue;
pub use failure::Failure;
pub use turn::{ArtifactWriter, Turn};
pub(crate) use turn::{TaskLookup, TurnContext};

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
///
/// A function is an agent too, for what needs no state of its own:
///
/// ```
/// use attache::{AgentCard, Failure, Outcome, Server, Turn};
///
/// async fn shout(turn: Turn) -> Result<Outcome, Failure> {
///     turn.write("shout", turn.text().to_uppercase()).await;
///     Ok(Outcome::Completed)
/// }
///
/// let server = Server::new(AgentCard::new("Shout", "Says it loudly"), shout);
/// ```
pub trait Agent: Send + Sync + 'static {
    /// Works one turn and says how it ended. The task is in the log before anybody hears of it; an agent whose side
    /// effects need that record first asks for a durable start.
    ///
    /// An error or a panic fails the task; callers learn the name of the error's type, only the log its text.
    fn run(&self, turn: Turn) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Answers without a task when a plain message is enough. Asked only while there is no task; nothing is stored.
    fn reply(
        &self,
        message: &Message,
        call: &Call,
    ) -> impl Future<Output = Option<Message>> + Send {
        let _ = (message, call);
        async { None }
    }

    /// Hears that a task was canceled while no turn of it was running, as when it waits for an answer: what was kept
    /// for it elsewhere can go. Whoever canceled waits for this, but no longer than
    /// [`cancel_grace`](crate::Settings::cancel_grace).
    fn on_canceled(&self, task: &Task) -> impl Future<Output = ()> + Send {
        let _ = task;
        async {}
    }

    /// Whether the task must be on disk before a turn begins, because what the agent does to the world cannot be
    /// done twice. Costs a commit per turn.
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

/// How a turn ended. The words are for the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The work is done.
    Completed,
    /// The work is done, and there is something to say about it.
    CompletedWith(Message),
    /// The agent needs an answer before it can go on; the next message is a new turn.
    InputRequired(Question),
    /// The agent needs credentials before it can go on, and says which.
    AuthRequired(Message),
    /// The agent declines, and says why.
    Rejected(Message),
    /// The work could not be done, and the caller may know why.
    Failed(Message),
}

impl Outcome {
    /// Asks the caller; the next message is a new turn.
    pub fn ask(question: impl Into<Question>) -> Self {
        Self::InputRequired(question.into())
    }

    /// Says which credentials are needed.
    pub fn auth_required(what: impl Into<String>) -> Self {
        Self::AuthRequired(Message::agent(what.into()))
    }

    /// Declines, and says why.
    pub fn rejected(why: impl Into<String>) -> Self {
        Self::Rejected(Message::agent(why.into()))
    }

    /// Gives up, and says why in words that the caller may read.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::Failed(Message::agent(why.into()))
    }
}

/// A question to the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What is asked, for people.
    pub message: Message,
    /// The same for programs, if there is such a form.
    pub request: Option<Json>,
}

impl Question {
    /// Adds the form that programs understand.
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
