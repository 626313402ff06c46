//! The content of an answer, in the order in which it arrives, each piece once.

use std::collections::HashMap;

use attache::model::{
    Artifact, Content, Message, Part, Role, StreamResponse, Task, TaskState, TaskStatus,
};

use super::text::{file_description, pretty_data};

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerPiece {
    /// Text that continues the text before it.
    Text(String),
    /// The next piece belongs to another part or artifact.
    PartEnd,
    /// A data part, as formatted JSON.
    Data(String),
    /// Description of a file part.
    File(String),
    /// What the agent is doing. No part of the answer.
    Progress(String),
}

/// Tracks which pieces of an answer were returned, across events, snapshots after a reconnect and the final task.
#[derive(Debug, Default)]
pub(super) struct AnswerState {
    artifacts: HashMap<String, SeenArtifact>,
    /// Id of the artifact that the last piece belongs to.
    current: Option<String>,
    /// Whether any content was returned.
    has_content: bool,
}

/// What was returned of an artifact.
#[derive(Debug, Default)]
struct SeenArtifact {
    text: String,
    /// Number of parts without text.
    others: usize,
}

impl AnswerState {
    /// Returns the new pieces of an event.
    pub(super) fn pieces_of_event(&mut self, event: &StreamResponse) -> Vec<AnswerPiece> {
        let mut pieces = Vec::new();
        match event {
            StreamResponse::Task(task) => {
                self.add_artifacts(&task.artifacts, &mut pieces);
                pieces.extend(progress(&task.status));
            }
            StreamResponse::StatusUpdate(update) => pieces.extend(progress(&update.status)),
            StreamResponse::ArtifactUpdate(update) if update.append => {
                self.add_chunk(&update.artifact, &mut pieces);
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.artifacts.remove(update.artifact.artifact_id.as_str());
                self.add_artifact(&update.artifact, &mut pieces);
            }
            StreamResponse::Message(message) => self.add_message(message, &mut pieces),
        }
        pieces
    }

    /// Returns the pieces of the final task that no event contained. A status message is content if the task completed
    /// without other text, or if it asks a question.
    pub(super) fn pieces_of_task(&mut self, task: &Task) -> Vec<AnswerPiece> {
        let mut pieces = Vec::new();
        self.add_artifacts(&task.artifacts, &mut pieces);
        let state = task.status.state;
        let result = task.result();
        if let Some(output) = &result.output {
            self.begin_part(&mut pieces);
            pieces.push(AnswerPiece::Text(output.clone()));
        }
        let is_status = |message: &Message| Some(message) == task.status.message.as_deref();
        if is_unsuccessful(state) {
            // The messages are progress, or the reason, which the caller prints with the state.
            return pieces;
        }
        for message in result.messages {
            if is_status(message) && !state.is_interrupted() && self.has_content {
                continue;
            }
            self.add_message(message, &mut pieces);
        }
        pieces
    }

    /// Returns the pieces of a message that answers without a task.
    pub(super) fn pieces_of_reply(&mut self, message: &Message) -> Vec<AnswerPiece> {
        let mut pieces = Vec::new();
        if !self.has_content {
            self.add_message(message, &mut pieces);
        }
        pieces
    }

    /// Returns the messages of a conversation; a mark precedes those of the user.
    pub(super) fn pieces_of_history(
        &mut self,
        history: &[impl AsRef<Message>],
    ) -> Vec<AnswerPiece> {
        let mut pieces = Vec::new();
        for message in history.iter().map(AsRef::as_ref) {
            if message.role == Role::User {
                self.begin_part(&mut pieces);
                pieces.push(AnswerPiece::Text("› ".to_owned()));
                self.has_content = false;
            }
            self.add_message(message, &mut pieces);
        }
        pieces
    }

    fn add_artifacts(&mut self, artifacts: &[Artifact], pieces: &mut Vec<AnswerPiece>) {
        for artifact in artifacts {
            self.add_artifact(artifact, pieces);
        }
    }

    /// Adds what is new in an artifact.
    fn add_artifact(&mut self, artifact: &Artifact, pieces: &mut Vec<AnswerPiece>) {
        let id = artifact.artifact_id.as_str();
        let text: String = artifact.parts.iter().filter_map(Part::as_text).collect();
        let others = artifact
            .parts
            .iter()
            .filter(|part| part.as_text().is_none());
        let others = others.count();
        let seen = self.artifacts.get(id);
        let is_known = seen.is_some_and(|seen| seen.text == text && seen.others == others);
        if is_known {
            return;
        }
        match seen.and_then(|seen| text.strip_prefix(seen.text.as_str())) {
            Some(rest) if seen.is_some_and(|seen| seen.others == others) => {
                let rest = rest.to_owned();
                self.enter(id, pieces);
                self.push_text(rest, pieces);
            }
            _ => {
                self.current = None;
                self.enter(id, pieces);
                self.add_parts(&artifact.parts, pieces);
            }
        }
        self.artifacts
            .insert(id.to_owned(), SeenArtifact { text, others });
    }

    /// Adds a chunk, whose text continues that of its artifact.
    fn add_chunk(&mut self, chunk: &Artifact, pieces: &mut Vec<AnswerPiece>) {
        let id = chunk.artifact_id.as_str();
        self.enter(id, pieces);
        for part in &chunk.parts {
            let seen = self.artifacts.entry(id.to_owned()).or_default();
            match part.as_text() {
                Some(text) => {
                    seen.text.push_str(text);
                    self.push_text(text.to_owned(), pieces);
                }
                None => {
                    seen.others += 1;
                    self.add_parts(std::slice::from_ref(part), pieces);
                }
            }
        }
    }

    /// Ends the part before it, unless it belongs to the same artifact.
    fn enter(&mut self, id: &str, pieces: &mut Vec<AnswerPiece>) {
        if self.current.as_deref() != Some(id) {
            self.begin_part(pieces);
            self.current = Some(id.to_owned());
        }
    }

    fn begin_part(&self, pieces: &mut Vec<AnswerPiece>) {
        if self.has_content {
            pieces.push(AnswerPiece::PartEnd);
        }
    }

    fn push_text(&mut self, text: String, pieces: &mut Vec<AnswerPiece>) {
        if !text.is_empty() {
            self.has_content = true;
            pieces.push(AnswerPiece::Text(text));
        }
    }

    fn add_message(&mut self, message: &Message, pieces: &mut Vec<AnswerPiece>) {
        self.begin_part(pieces);
        self.current = None;
        self.add_parts(&message.parts, pieces);
    }

    fn add_parts(&mut self, parts: &[Part], pieces: &mut Vec<AnswerPiece>) {
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                self.begin_part(pieces);
            }
            let piece = match &part.content {
                Content::Text(text) if text.is_empty() => continue,
                Content::Text(text) => AnswerPiece::Text(text.to_string()),
                Content::Data(data) => AnswerPiece::Data(pretty_data(data)),
                Content::Raw(_) | Content::Url(_) => AnswerPiece::File(file_description(part)),
            };
            self.has_content = true;
            pieces.push(piece);
        }
    }
}

/// Whether the message of the status is the reason of the state, and no answer.
pub(super) fn is_unsuccessful(state: TaskState) -> bool {
    match state {
        TaskState::Failed | TaskState::Rejected | TaskState::Canceled => true,
        TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::InputRequired
        | TaskState::AuthRequired => false,
    }
}

/// The message of a status that is neither final nor an interruption.
fn progress(status: &TaskStatus) -> Option<AnswerPiece> {
    if status.state.is_terminal() || status.state.is_interrupted() {
        return None;
    }
    let message = status.message.as_ref()?;
    let text = Some(message.text()).filter(|text| !text.is_empty());
    let text = text.or_else(|| message.parts.iter().find_map(step_description))?;
    Some(AnswerPiece::Progress(text))
}

/// Describes a step of an agent: reasoning, and calls of tools.
fn step_description(part: &Part) -> Option<String> {
    let Content::Data(data) = &part.content else {
        return None;
    };
    let step: serde_json::Value = data.read().ok()?;
    let text = |key: &str| step[key].as_str().unwrap_or_default();
    match text("type") {
        "reasoning" => Some(text("text").lines().next()?.to_owned()),
        "tool-started" => Some(format!("calls {}", text("name"))),
        "tool-progress" => Some(format!("{}: {}", text("name"), text("text"))),
        "tool-result" if step["failed"] == true => Some(format!("{} failed", text("name"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::{ContextId, TaskArtifactUpdateEvent, TaskId, Timestamp};

    fn update(id: &str, append: bool, text: &str) -> StreamResponse {
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            append,
            artifact: artifact(id, text),
            ..TaskArtifactUpdateEvent::default()
        })
    }

    fn artifact(id: &str, text: &str) -> Artifact {
        Artifact {
            artifact_id: id.into(),
            parts: vec![Part::text(text)],
            ..Artifact::default()
        }
    }

    fn task(state: TaskState, artifacts: Vec<Artifact>, message: Option<&str>) -> Task {
        let mut task = Task::submitted(
            TaskId::from("t"),
            ContextId::from("c"),
            Timestamp::default(),
        );
        task.status.state = state;
        task.status.message = message.map(|text| {
            let message = Message {
                message_id: "m".into(),
                role: Role::Agent,
                parts: vec![Part::text(text)],
                ..Message::default()
            };
            message.into()
        });
        task.artifacts = artifacts;
        task
    }

    fn texts(pieces: &[AnswerPiece]) -> String {
        let texts = pieces.iter().map(|piece| match piece {
            AnswerPiece::Text(text) => text.clone(),
            AnswerPiece::PartEnd => "|".to_owned(),
            AnswerPiece::Data(text) | AnswerPiece::File(text) | AnswerPiece::Progress(text) => {
                format!("<{text}>")
            }
        });
        texts.collect()
    }

    #[test]
    fn chunks_snapshots_and_the_final_task_give_each_text_once() {
        let mut state = AnswerState::default();
        let mut shown = String::new();
        for event in [
            update("a", false, "one "),
            update("a", true, "two "),
            StreamResponse::Task(task(
                TaskState::Working,
                vec![artifact("a", "one two three ")],
                None,
            )),
            update("b", false, "other"),
        ] {
            shown += &texts(&state.pieces_of_event(&event));
        }
        let ended = task(
            TaskState::Completed,
            vec![artifact("a", "one two three "), artifact("b", "other")],
            Some("done"),
        );
        shown += &texts(&state.pieces_of_task(&ended));
        assert_eq!(shown, "one two three |other");
    }

    #[test]
    fn a_replaced_artifact_is_printed_again() {
        let mut state = AnswerState::default();
        let first = texts(&state.pieces_of_event(&update("a", false, "draft")));
        let second = texts(&state.pieces_of_event(&update("a", false, "final")));
        assert_eq!((first.as_str(), second.as_str()), ("draft", "|final"));
    }

    #[test]
    fn the_status_message_is_the_answer_only_without_artifacts_or_as_a_question() {
        let answer = |state, artifacts, message| {
            let ended = task(state, artifacts, Some(message));
            texts(&AnswerState::default().pieces_of_task(&ended))
        };
        assert_eq!(answer(TaskState::Completed, vec![], "hello"), "hello");
        assert_eq!(
            answer(TaskState::Completed, vec![artifact("a", "x")], "done"),
            "x"
        );
        assert_eq!(
            answer(TaskState::InputRequired, vec![artifact("a", "x")], "who?"),
            "x|who?"
        );
        assert_eq!(answer(TaskState::Failed, vec![], "broken"), "");
    }
}
