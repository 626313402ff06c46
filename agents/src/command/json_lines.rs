//! Stdout format `json_lines`: every line is a JSON object with text, artifacts, questions or the final state.

use attache::model::{Artifact, Json, Message, Object, TaskState};
use attache::{ArtifactWriter, Outcome, Question, Turn};
use serde::Deserialize;
use serde_json::error::Category;

use crate::line_buffer::LineBuffer;

/// One line. All members are optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OutputLine {
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
    /// Members to merge into the metadata of the task.
    metadata: Option<Object>,
}

/// Parser that applies every line to the turn.
pub(super) struct JsonLines<'a> {
    turn: &'a Turn,
    buffer: LineBuffer,
    line_count: usize,
    /// Artifact `output`, once it has text.
    text: Option<ArtifactWriter>,
    /// Outcome that the last final line declared.
    outcome: Option<Outcome>,
}

impl<'a> JsonLines<'a> {
    pub(super) fn new(turn: &'a Turn) -> Self {
        Self {
            turn,
            buffer: LineBuffer::default(),
            line_count: 0,
            text: None,
            outcome: None,
        }
    }

    /// Applies all complete lines.
    ///
    /// # Errors
    /// A line is invalid. The message is for the caller and has its number.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        let lines = self.buffer.push(bytes);
        for line in lines.split(|byte| *byte == b'\n') {
            self.apply_line(line).await?;
        }
        Ok(())
    }

    /// Applies the last line, which may lack its line break. Returns the outcome that the program declared.
    pub(super) async fn finish(mut self) -> Result<Option<Outcome>, String> {
        let rest = std::mem::take(&mut self.buffer).finish();
        self.apply_line(&rest).await?;
        if let Some(writer) = self.text {
            writer.finish().await;
        }
        Ok(self.outcome)
    }

    async fn apply_line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        self.line_count += 1;
        let number = self.line_count;
        let invalid = |reason: &str| format!("line {number} of the output is invalid: {reason}");
        let line: OutputLine =
            serde_json::from_slice(line).map_err(|error| invalid(json_error(&error)))?;
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
                return Err(invalid("an artifact must have at least one part"));
            }
            self.turn.add_artifact(artifact).await;
        }
        if let Some(reply) = line.reply {
            self.outcome = Some(Outcome::CompletedWith(Message::agent(reply)));
            return Ok(());
        }
        if let Some(question) = line.question {
            let question = Question {
                request: line.request,
                ..Question::from(question)
            };
            self.outcome = Some(Outcome::InputRequired(question));
            return Ok(());
        }
        match line_effect(line.state, line.message) {
            LineEffect::Continue(Some(message)) => self.turn.say(message).await,
            LineEffect::Continue(None) => {}
            LineEffect::EndTurn(outcome) => self.outcome = Some(outcome),
            LineEffect::InvalidState => return Err(invalid("a command cannot set this state")),
        }
        Ok(())
    }
}

/// Describes an error without quoting the program's output.
fn json_error(error: &serde_json::Error) -> &'static str {
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
