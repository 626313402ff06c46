//! A command that says line by line what happens: each line is an object of JSON.

use attache::model::{Artifact, Json, Message, Object, TaskState};
use attache::{ArtifactWriter, Outcome, Question, Turn};
use serde::Deserialize;

/// One line. What is left out does not happen.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OutputLine {
    /// A piece of the text that streams into the artifact `output`.
    text: Option<String>,
    /// A whole result, as the protocol has it: `name` and `parts`.
    artifact: Option<Artifact>,
    /// Words for the caller: how the work goes, or with `state` how it ended.
    message: Option<String>,
    /// How the turn ends; `working` says that it goes on.
    state: Option<TaskState>,
    /// What the caller is asked; the answer is the next turn.
    question: Option<String>,
    /// The same for programs.
    request: Option<Json>,
    /// Added to the metadata of the task.
    metadata: Option<Object>,
}

/// What has come so far.
pub(super) struct JsonLines<'a> {
    turn: &'a Turn,
    partial_line: Vec<u8>,
    line_count: usize,
    text: Option<ArtifactWriter>,
    outcome: Option<Outcome>,
}

impl<'a> JsonLines<'a> {
    pub(super) fn new(turn: &'a Turn) -> Self {
        Self {
            turn,
            partial_line: Vec::new(),
            line_count: 0,
            text: None,
            outcome: None,
        }
    }

    /// Does what every whole line says.
    ///
    /// # Errors
    /// A line makes no sense: which, in words for the caller.
    pub(super) async fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.partial_line.extend_from_slice(bytes);
        let whole = self
            .partial_line
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let rest = self.partial_line.split_off(whole);
        let lines = std::mem::replace(&mut self.partial_line, rest);
        for line in lines.split(|byte| *byte == b'\n') {
            self.line(line).await?;
        }
        Ok(())
    }

    /// The last line may lack its end.
    pub(super) async fn finish(mut self) -> Result<Option<Outcome>, String> {
        let rest = std::mem::take(&mut self.partial_line);
        self.line(&rest).await?;
        if let Some(writer) = self.text {
            writer.finish().await;
        }
        Ok(self.outcome)
    }

    async fn line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        self.line_count += 1;
        let wrong = |why: &str| {
            format!(
                "line {} of the output makes no sense: {why}",
                self.line_count
            )
        };
        let line: OutputLine =
            serde_json::from_slice(line).map_err(|error| match error.classify() {
                serde_json::error::Category::Eof => wrong("it ends too early"),
                serde_json::error::Category::Data => {
                    wrong("it has an unknown member, or one of another type")
                }
                serde_json::error::Category::Syntax | serde_json::error::Category::Io => {
                    wrong("it is no JSON")
                }
            })?;
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
                return Err(wrong("an artifact has at least one part"));
            }
            self.turn.add_artifact(artifact).await;
        }
        if let Some(question) = line.question {
            let question = Question {
                request: line.request,
                ..Question::from(question)
            };
            self.outcome = Some(Outcome::InputRequired(question));
            return Ok(());
        }
        match end(line.state, line.message.as_deref()) {
            LineEffect::Continue(Some(words)) => self.turn.say(words).await,
            LineEffect::Continue(None) => {}
            LineEffect::EndTurn(outcome) => self.outcome = Some(outcome),
            LineEffect::InvalidState => {
                return Err(wrong("a command cannot put its task into this state"));
            }
        }
        Ok(())
    }
}

/// What a line says of the end of the turn.
enum LineEffect {
    Continue(Option<String>),
    EndTurn(Outcome),
    InvalidState,
}

fn end(state: Option<TaskState>, words: Option<&str>) -> LineEffect {
    let message = || Message::agent(words.unwrap_or_default());
    LineEffect::EndTurn(match state {
        None | Some(TaskState::Working) => return LineEffect::Continue(words.map(str::to_owned)),
        Some(TaskState::Completed) if words.is_none() => Outcome::Completed,
        Some(TaskState::Completed) => Outcome::CompletedWith(message()),
        Some(TaskState::InputRequired) => Outcome::ask(words.unwrap_or_default()),
        Some(TaskState::AuthRequired) => Outcome::AuthRequired(message()),
        Some(TaskState::Rejected) => Outcome::Rejected(message()),
        Some(TaskState::Failed) => Outcome::Failed(message()),
        Some(TaskState::Canceled | TaskState::Submitted | TaskState::Unspecified) => {
            return LineEffect::InvalidState;
        }
    })
}
