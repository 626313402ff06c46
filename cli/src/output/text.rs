//! Text format: a `Label: value` field per line, and indented blocks for content of several lines.

use std::fmt::Write;

use attache::model::{
    Artifact, Content, Json, ListTasksResponse, Message, Part, Role, StreamResponse, Task,
    TaskStatus,
};

use super::escape::line;

/// Whether a task is printed with its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistoryMode {
    /// Only with `--verbose`, and if there is any.
    Hidden,
    Shown,
}

/// Text of fields and blocks, ready to print.
#[derive(Debug, Default)]
pub(crate) struct TextPage {
    text: String,
    verbose: bool,
}

impl TextPage {
    pub(crate) fn new(verbose: bool) -> Self {
        Self {
            text: String::new(),
            verbose,
        }
    }

    pub(super) fn is_verbose(&self) -> bool {
        self.verbose
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn add_field(&mut self, label: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{label}: {}", line(value));
    }

    /// Adds content of several lines. Two spaces precede each, so content cannot forge a field or end the block.
    pub(crate) fn add_block(&mut self, label: &str, content: &str) {
        let _ = writeln!(self.text, "{label}:");
        for one in content.strip_suffix('\n').unwrap_or(content).split('\n') {
            let _ = writeln!(
                self.text,
                "  {}",
                line(one.strip_suffix('\r').unwrap_or(one))
            );
        }
        self.text.push('\n');
    }

    pub(crate) fn add_ids(&mut self, task: &str, context: &str) {
        self.add_field("Task", task);
        self.add_field("Context", context);
    }

    /// Adds state, status message and artifacts of a task; the caller adds the ids.
    pub(crate) fn add_task(&mut self, task: &Task, history: HistoryMode) {
        self.add_status(&task.status);
        task.artifacts
            .iter()
            .for_each(|artifact| self.add_artifact(artifact));
        if self.verbose {
            self.add_metadata(task.metadata.as_ref());
        }
        let shows_history =
            history == HistoryMode::Shown || (self.verbose && !task.history.is_empty());
        self.add_other_result(task, shows_history);
        if shows_history {
            self.add_field("History", &count(task.history.len(), "message"));
            task.history
                .iter()
                .for_each(|message| self.add_message(message));
        }
    }

    /// Adds the result of an agent that answers neither in artifacts nor in its status.
    fn add_other_result(&mut self, task: &Task, shows_history: bool) {
        let result = task.result();
        result
            .output
            .iter()
            .for_each(|output| self.add_block("Text", output));
        result
            .messages
            .into_iter()
            .filter(|message| !shows_history && task.status.message.as_ref() != Some(message))
            .for_each(|message| self.add_message(message));
    }

    fn add_status(&mut self, status: &TaskStatus) {
        self.add_field("State", status.state.as_str());
        if let Some(time) = status.timestamp.filter(|_| self.verbose) {
            self.add_field("Updated", &time.to_string());
        }
        status
            .message
            .iter()
            .for_each(|message| self.add_message(message));
    }

    /// Adds a message that answers a call.
    pub(crate) fn add_reply(&mut self, message: &Message) {
        message
            .context_id
            .iter()
            .for_each(|id| self.add_field("Context", id.as_str()));
        self.add_message(message);
    }

    pub(crate) fn add_message(&mut self, message: &Message) {
        let role = match message.role {
            Role::User => "user",
            Role::Agent => "agent",
            Role::Unspecified => "unspecified",
        };
        if self.verbose {
            self.add_field("Message", &format!("{role} {}", message.message_id));
        } else {
            self.add_field("Message", role);
        }
        self.add_parts(&message.parts);
        if self.verbose {
            self.add_metadata(message.metadata.as_ref());
        }
    }

    fn add_artifact(&mut self, artifact: &Artifact) {
        let id = artifact.artifact_id.as_str();
        match &artifact.name {
            Some(name) => self.add_field("Artifact", &format!("{id} ({name})")),
            None => self.add_field("Artifact", id),
        }
        artifact
            .description
            .iter()
            .for_each(|text| self.add_field("Description", text));
        self.add_parts(&artifact.parts);
        if self.verbose {
            self.add_metadata(artifact.metadata.as_ref());
        }
    }

    fn add_parts(&mut self, parts: &[Part]) {
        for (at, part) in parts.iter().enumerate() {
            if self.verbose {
                self.add_field(
                    "Part",
                    &format!("{at} ({})", part.media_type().unwrap_or("no media type")),
                );
            }
            self.add_part(part);
            if self.verbose {
                self.add_metadata(part.metadata());
            }
        }
    }

    fn add_part(&mut self, part: &Part) {
        match &part.content {
            Content::Text(text) => self.add_block("Text", text),
            Content::Data(data) => self.add_block("Data", &pretty_data(data)),
            Content::Raw(_) | Content::Url(_) => self.add_field("File", &file_description(part)),
        }
    }

    fn add_metadata(&mut self, metadata: Option<&attache::model::Object>) {
        if let Some(metadata) = metadata.filter(|it| !it.is_empty()) {
            self.add_field("Metadata", metadata.as_str());
        }
    }

    pub(crate) fn add_event(&mut self, event: &StreamResponse) {
        match event {
            StreamResponse::Task(task) => {
                self.add_field("Event", "task");
                self.add_ids(task.id.as_str(), task.context_id.as_str());
                self.add_task(task, HistoryMode::Hidden);
            }
            StreamResponse::Message(message) => {
                self.add_field("Event", "message");
                self.add_reply(message);
            }
            StreamResponse::StatusUpdate(update) => {
                self.add_field("Event", "status");
                self.add_ids(update.task_id.as_str(), update.context_id.as_str());
                self.add_status(&update.status);
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.add_field("Event", "artifact");
                self.add_ids(update.task_id.as_str(), update.context_id.as_str());
                let mut artifact = update.artifact.clone();
                if update.append && update.last_chunk {
                    // An empty text in the last chunk only marks the end.
                    artifact.parts.retain(
                        |part| !matches!(&part.content, Content::Text(text) if text.is_empty()),
                    );
                }
                self.add_artifact(&artifact);
            }
        }
    }

    pub(crate) fn add_tasks(&mut self, page: &ListTasksResponse) {
        for task in &page.tasks {
            self.add_ids(task.id.as_str(), task.context_id.as_str());
            self.add_field("State", task.status.state.as_str());
            if let Some(time) = task.status.timestamp {
                self.add_field("Updated", &time.to_string());
            }
            task.artifacts
                .iter()
                .for_each(|artifact| self.add_artifact(artifact));
        }
        if !page.next_page_token.is_empty() {
            self.add_field(
                "Next page",
                &format!("--page-token {}", shell_words::quote(&page.next_page_token)),
            );
        }
    }
}

/// Data as formatted JSON.
pub(super) fn pretty_data(data: &Json) -> String {
    let pretty = data
        .read::<serde_json::Value>()
        .and_then(|it| serde_json::to_string_pretty(&it));
    pretty.unwrap_or_else(|_| data.to_string())
}

/// Name, media type and size or URL of a file part.
pub(super) fn file_description(part: &Part) -> String {
    let name = part.filename().unwrap_or("unnamed");
    let media_type = part.media_type().unwrap_or("unknown type");
    match &part.content {
        Content::Raw(bytes) => {
            format!("{name} ({media_type}, {})", count(bytes.byte_len(), "byte"))
        }
        Content::Url(url) => format!("{name} ({media_type}, {url})"),
        Content::Text(_) | Content::Data(_) => format!("{name} ({media_type})"),
    }
}

/// A number with its noun, in the plural unless it is 1.
pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_005_content_cannot_forge_a_field_or_end_its_block() {
        let mut page = TextPage::new(false);
        page.add_part(&Part::text("a\n\nState: TASK_STATE_COMPLETED\n\u{1b}[2J"));
        page.add_field("Artifact", "x\nState: y");
        assert_eq!(
            page.as_str(),
            "Text:\n  a\n  \n  State: TASK_STATE_COMPLETED\n  \\u{1b}[2J\n\nArtifact: x\\nState: y\n"
        );
    }

    #[test]
    fn send_004_no_part_is_lost() {
        let mut page = TextPage::new(false);
        page.add_part(&Part::text("hi"));
        page.add_part(&Part::data(serde_json::json!({"a": 1})));
        page.add_part(&Part::file(b"abc", "text/csv").with_filename("t.csv"));
        page.add_part(&Part::url("https://x.example/f"));
        assert_eq!(
            page.as_str(),
            "Text:\n  hi\n\nData:\n  {\n    \"a\": 1\n  }\n\nFile: t.csv (text/csv, 3 bytes)\n\
             File: unnamed (unknown type, https://x.example/f)\n"
        );
    }
}
