//! Output of a program for one turn: JSON objects with text, artifacts, questions or the final state.

use attache::model::{Artifact, Json, Message, Object, Role, TaskState};
use attache::{ArtifactWriter, Outcome, Question, Turn};
use serde::Deserialize;
use serde_json::error::Category;

/// One object. All members are optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OutputLine {
    /// Text to append to the artifact `output`.
    text: Option<String>,
    /// Complete artifact in the form of the protocol: `name` and `parts`.
    artifact: Option<Artifact>,
    /// Status message. With `state` it is the final one.
    message: Option<String>,
    /// Final state of the turn; `working` means that the turn continues.
    state: Option<TaskState>,
    /// Answer as a plain message. In a task it is the final message of the completed task.
    reply: Option<String>,
    /// Question to the caller. The answer starts the next turn.
    question: Option<String>,
    /// Structured form of the question, for programs.
    request: Option<Json>,
    /// Value that the program receives again with the answer to its question.
    remember: Option<Json>,
    /// Members to merge into the metadata of the task.
    metadata: Option<Object>,
}

/// Metadata of a question: the value that the program remembers until the answer. Callers do not receive it.
const MEMORY_KEY: &str = "attache.memory";

/// Returns the value that the program remembered with its last question, if this turn answers it.
pub(crate) fn remembered(turn: &Turn) -> Option<Json> {
    let history = &turn.task().history;
    let mut questions = history
        .iter()
        .rev()
        .filter(|message| message.role == Role::Agent);
    questions.next()?.metadata.as_ref()?.get(MEMORY_KEY)
}

/// Applies the objects of one turn.
pub(crate) struct TurnOutput<'a> {
    turn: &'a Turn,
    /// Artifact `output`, once it has text.
    text: Option<ArtifactWriter>,
    /// Outcome that the last final object declared.
    outcome: Option<Outcome>,
}

impl<'a> TurnOutput<'a> {
    pub(crate) fn new(turn: &'a Turn) -> Self {
        Self {
            turn,
            text: None,
            outcome: None,
        }
    }

    /// Applies all members of an object.
    ///
    /// # Errors
    /// A member is invalid. The reason is for the caller.
    pub(crate) async fn apply(&mut self, line: OutputLine) -> Result<(), &'static str> {
        if let Some(metadata) = line.metadata {
            self.turn.add_metadata(metadata).await;
        }
        if let Some(text) = line.text {
            self.text
                .get_or_insert_with(|| self.turn.writer("output"))
                .write(text)
                .await;
        }
        if let Some(artifact) = line.artifact {
            if artifact.parts.is_empty() {
                return Err("an artifact must have at least one part");
            }
            self.turn.add_artifact(artifact).await;
        }
        if let Some(reply) = line.reply {
            self.outcome = Some(Outcome::CompletedWith(Message::agent(reply)));
            return Ok(());
        }
        if let Some(question) = line.question {
            let mut question = Question {
                request: line.request,
                ..Question::from(question)
            };
            if let Some(memory) = line.remember {
                let metadata = question.message.metadata.get_or_insert_default();
                metadata.insert(MEMORY_KEY, memory);
            }
            self.outcome = Some(Outcome::InputRequired(question));
            return Ok(());
        }
        match line_effect(line.state, line.message) {
            LineEffect::Continue(Some(message)) => self.turn.say(message).await,
            LineEffect::Continue(None) => {}
            LineEffect::EndTurn(outcome) => self.outcome = Some(outcome),
            LineEffect::InvalidState => return Err("an agent cannot set this state"),
        }
        Ok(())
    }

    /// Whether an object declared the outcome of the turn.
    pub(crate) fn has_outcome(&self) -> bool {
        self.outcome.is_some()
    }

    /// Completes the artifact. Returns the declared outcome.
    pub(crate) async fn finish(self) -> Option<Outcome> {
        if let Some(writer) = self.text {
            writer.finish().await;
        }
        self.outcome
    }
}

/// Describes an error without quoting the program's output.
pub(crate) fn json_error(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        Category::Eof => "it ends too early",
        Category::Data => "it has an unknown member, or one of the wrong type",
        Category::Syntax | Category::Io => "it is not JSON",
    }
}

/// Effect of `state` and `message` on the turn.
enum LineEffect {
    Continue(Option<String>),
    EndTurn(Outcome),
    InvalidState,
}

fn line_effect(state: Option<TaskState>, text: Option<String>) -> LineEffect {
    let Some(state) = state.filter(|state| *state != TaskState::Working) else {
        return LineEffect::Continue(text);
    };
    let has_text = text.is_some();
    let text = text.unwrap_or_default();
    LineEffect::EndTurn(match state {
        TaskState::Completed if has_text => Outcome::CompletedWith(Message::agent(text)),
        TaskState::Completed => Outcome::Completed,
        TaskState::InputRequired => Outcome::ask(text),
        TaskState::AuthRequired => Outcome::AuthRequired(Message::agent(text)),
        TaskState::Rejected => Outcome::Rejected(Message::agent(text)),
        TaskState::Failed => Outcome::Failed(Message::agent(text)),
        TaskState::Working
        | TaskState::Canceled
        | TaskState::Submitted
        | TaskState::Unspecified => return LineEffect::InvalidState,
    })
}
