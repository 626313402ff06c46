//! Result of a task: its content, from the first of several sources that has any.
//!
//! Agents put their answer in different places. KAOS has it in `output` or in the history, agno in
//! messages beside the task, agentstack in the messages of working statuses (09, 0.20).

use std::sync::Arc;

use super::{Artifact, Json, Message, Part, Role, Task};

/// Metadata key of the `output` member that tasks of KAOS have.
pub const OUTPUT_KEY: &str = "kaos.output";

/// Notice about a task that completed without any content.
pub const NO_CONTENT: &str = "The agent completed the task without any content.";

/// Content of a task's result. Of artifacts, output and history, the first source with a text is used.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskResult<'a> {
    /// The artifacts.
    pub artifacts: &'a [Artifact],
    /// The `output` of a KAOS agent, if the artifacts have no text.
    pub output: Option<String>,
    /// Messages of the agent, oldest first: that of the status, or those of the history if there is no
    /// other text.
    pub messages: Vec<&'a Arc<Message>>,
}

impl TaskResult<'_> {
    /// Whether there is no content.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let artifacts = self.artifacts.iter().map(|artifact| &artifact.parts);
        let messages = self.messages.iter().map(|message| &message.parts);
        self.output.is_none() && !artifacts.chain(messages).any(|parts| has_content(parts))
    }

    /// Returns the text of the artifacts, else the output, else the text of the messages.
    #[must_use]
    pub fn text(&self) -> String {
        let artifacts = artifacts_text(self.artifacts);
        if !artifacts.is_empty() {
            return artifacts;
        }
        let messages = || joined(self.messages.iter().map(|message| message.text()));
        self.output.clone().unwrap_or_else(messages)
    }
}

impl Task {
    /// Returns the result: artifacts, else `output`, else messages of the agent.
    ///
    /// The message is that of the status. If this is a bare string, as in KAOS (`"Done"`), the last
    /// message of the agent in the history is used instead. Without a status message, all messages of
    /// the agent since the last message of the user are the result.
    #[must_use]
    pub fn result(&self) -> TaskResult<'_> {
        let has_text = !artifacts_text(&self.artifacts).is_empty();
        let output = self.metadata.as_ref().and_then(|it| it.get(OUTPUT_KEY));
        let output = output.and_then(|output| output_text(&output));
        let output = output.filter(|_| !has_text);
        let has_text = has_text || output.is_some();
        TaskResult {
            artifacts: &self.artifacts,
            output,
            messages: self.result_messages(has_text),
        }
    }

    /// Returns the text of the [`result`](Self::result).
    #[must_use]
    pub fn text(&self) -> String {
        self.result().text()
    }

    /// Returns the messages of the result. `has_text` is whether another source has a text.
    fn result_messages(&self, has_text: bool) -> Vec<&Arc<Message>> {
        let has_parts = |message: &&Arc<Message>| has_content(&message.parts);
        let status = self.status.message.as_ref().filter(has_parts);
        let is_bare = self.is_ended() && status.is_some_and(|message| message.is_bare_text());
        match status {
            Some(_) if is_bare && has_text => Vec::new(),
            Some(status) if is_bare => vec![self.agent_messages().next_back().unwrap_or(status)],
            // Data or a file: the text may be in the history.
            Some(status) if !has_text && status.text().is_empty() => {
                let mut messages = self.latest_agent_messages();
                messages.push(status);
                messages
            }
            Some(status) => vec![status],
            None if has_text => Vec::new(),
            None => self.latest_agent_messages(),
        }
    }

    fn agent_messages(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> {
        self.history
            .iter()
            .filter(|message| message.role == Role::Agent && has_content(&message.parts))
    }

    /// Returns the messages of the agent since the last message of the user; the last one of all if
    /// there are none since.
    fn latest_agent_messages(&self) -> Vec<&Arc<Message>> {
        let last_user = self.history.iter().rposition(|one| one.role == Role::User);
        let since = &self.history[last_user.map_or(0, |last| last + 1)..];
        let is_answer = |one: &&Arc<Message>| one.role == Role::Agent && has_content(&one.parts);
        let answers: Vec<_> = since.iter().filter(is_answer).collect();
        if answers.is_empty() {
            return self.agent_messages().next_back().into_iter().collect();
        }
        answers
    }
}

impl Message {
    /// Whether this is the text that a peer sent in place of a message: the reader leaves such a
    /// message without an id.
    #[must_use]
    pub fn is_bare_text(&self) -> bool {
        self.message_id.is_empty()
            && self.context_id.is_none()
            && self.task_id.is_none()
            && self.metadata.is_none()
            && matches!(self.parts.as_slice(), [part] if part.as_text().is_some())
    }
}

fn has_content(parts: &[Part]) -> bool {
    parts
        .iter()
        .any(|part| part.as_text().is_none_or(|text| !text.is_empty()))
}

fn artifacts_text(artifacts: &[Artifact]) -> String {
    joined(artifacts.iter().map(Artifact::as_text))
}

fn joined(texts: impl Iterator<Item = String>) -> String {
    let texts = texts.filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns the output as text; `None` if it is empty.
fn output_text(output: &Json) -> Option<String> {
    let text = match output.get() {
        "null" => String::new(),
        json => output.read().unwrap_or_else(|_| json.to_owned()),
    };
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Object, TaskState, TaskStatus};

    fn kaos_task() -> Task {
        let bare = Message {
            role: Role::Agent,
            parts: vec![Part::text("Done")],
            ..Message::default()
        };
        let history = [Message::user("q"), Message::agent("a"), Message::agent("b")];
        Task {
            status: TaskStatus::new(TaskState::Completed).with_message(bare),
            history: history.map(Arc::new).into(),
            ..Task::default()
        }
    }

    #[test]
    fn seed_0_38_sources_are_used_in_order() {
        let mut task = kaos_task();
        assert_eq!(task.text(), "b", "the last message of the agent");
        let output: Object = [(OUTPUT_KEY, Json::from("out"))].into_iter().collect();
        task.metadata = Some(output);
        assert_eq!(task.text(), "out");
        assert!(task.result().messages.is_empty(), "no bare string");
        task.artifacts.push(Artifact::text("answer", "file"));
        assert_eq!(task.text(), "file");
        assert_eq!(task.result().output, None);
    }

    #[test]
    fn seed_0_38_status_message_precedes_the_history() {
        let mut task = kaos_task();
        task.status.message = Some(Message::agent("status").into());
        assert_eq!(task.text(), "status");
        task.status.message = None;
        assert_eq!(task.text(), "a\nb", "all messages since that of the user");
        task.history.push(Message::user("more").into());
        assert_eq!(task.text(), "b");
        task.history.clear();
        assert!(task.result().is_empty() && task.text().is_empty());
    }

    #[test]
    fn files_do_not_hide_the_answer_in_the_history() {
        let mut task = kaos_task();
        task.status.message = None;
        task.artifacts
            .push(Artifact::new("image", Part::url("https://x.example/i.png")));
        assert_eq!(task.text(), "a\nb");
        assert_eq!(task.result().artifacts.len(), 1);
        task.artifacts.push(Artifact::text("answer", "text"));
        assert!(
            task.result().messages.is_empty(),
            "no progress beside an answer"
        );
    }

    #[test]
    fn seed_0_38_bare_status_is_the_result_if_there_is_no_other() {
        let mut task = kaos_task();
        task.history.truncate(1);
        assert_eq!(task.text(), "Done");
        let mut asking = kaos_task();
        asking.status.state = TaskState::InputRequired;
        assert_eq!(asking.text(), "Done", "a question is not a formality");
    }
}
