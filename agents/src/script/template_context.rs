//! Values for templates: the message, and the progress of a step.

use attache::model::{Content, Message, Part};
use serde::Deserialize;
use serde_json::Value;

use super::template::Placeholder;

/// Values for the placeholders of a template.
#[derive(Debug, Clone)]
pub(super) struct TemplateContext<'a> {
    message: &'a Message,
    help: &'a str,
    text: String,
    /// Number of leading words of the text that belong to the rule.
    words: usize,
    progress: Option<Progress>,
}

/// Progress of a step: chunks or seconds.
#[derive(Debug, Clone)]
struct Progress {
    count: String,
    total: String,
}

impl<'a> TemplateContext<'a> {
    pub(super) fn new(message: &'a Message, words: usize, help: &'a str) -> Self {
        Self {
            message,
            help,
            text: message.text(),
            words,
            progress: None,
        }
    }

    /// Returns a copy with the progress of a step.
    pub(super) fn with_progress(&self, count: impl ToString, total: impl ToString) -> Self {
        Self {
            progress: Some(Progress {
                count: count.to_string(),
                total: total.to_string(),
            }),
            ..self.clone()
        }
    }

    pub(super) fn message(&self) -> &'a Message {
        self.message
    }

    /// Returns the n-th word after those of the rule, counted from 1.
    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.text
            .split_whitespace()
            .nth(self.words + at.checked_sub(1)?)
    }

    /// Returns the value of a placeholder.
    pub(super) fn resolve(&self, placeholder: &Placeholder) -> String {
        let progress = self.progress.as_ref();
        match placeholder {
            Placeholder::Text => self.text.clone(),
            Placeholder::Args => self.args().to_owned(),
            Placeholder::Word(at, default) => self.word(*at).unwrap_or(default).to_owned(),
            Placeholder::Files => self.lines(file_line, "no file came in"),
            Placeholder::Data => self.lines(data_line, "no data came in"),
            Placeholder::Result => self.result().unwrap_or_else(|| self.text.clone()),
            Placeholder::Help => self.help.to_owned(),
            Placeholder::Count => progress.map_or_else(String::new, |step| step.count.clone()),
            Placeholder::Total => progress.map_or_else(String::new, |step| step.total.clone()),
        }
    }

    /// Returns the text after the words of the rule.
    fn args(&self) -> &str {
        (0..self.words).fold(self.text.trim(), |rest, _| {
            rest.split_once(char::is_whitespace)
                .map_or("", |(_, rest)| rest.trim_start())
        })
    }

    fn lines(&self, line: impl Fn(&Part) -> Option<String>, none: &str) -> String {
        let lines: Vec<_> = self.message.parts.iter().filter_map(line).collect();
        if lines.is_empty() {
            none.to_owned()
        } else {
            lines.join("\n")
        }
    }

    /// Returns the first result of a client's tool in the message.
    fn result(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ToolResult {
            #[serde(rename = "toolUseId")]
            _tool_use_id: String,
            result: Value,
        }
        let results = self
            .message
            .parts
            .iter()
            .filter_map(|part| match &part.content {
                Content::Data(data) => data.read::<ToolResult>().ok(),
                Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
            });
        results.map(|answer| answer.result.to_string()).next()
    }
}

/// Describes a file part in one line.
fn file_line(part: &Part) -> Option<String> {
    let name = part.filename().unwrap_or("unnamed");
    let kind = part.media_type().unwrap_or("unknown type");
    match &part.content {
        Content::Raw(bytes) => Some(format!("{name}: {kind}, {} bytes", bytes.byte_len())),
        Content::Url(url) => Some(format!("{name}: {kind}, at {url}")),
        Content::Text(_) | Content::Data(_) => None,
    }
}

/// Returns the JSON of a data part.
fn data_line(part: &Part) -> Option<String> {
    match &part.content {
        Content::Data(data) => Some(data.get().to_owned()),
        Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
    }
}
