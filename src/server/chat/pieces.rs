//! An answer in pieces: what happens to a task, as a client of chat completions is told.

use super::super::events::Tell;
use super::super::forms::event;
use super::super::reply::logged;
use super::{about, cut, failed, reason};
use crate::model::{Error, Message, StreamResponse, Task, TaskStatus};
use crate::service::{Item, Stream};
use crate::wire::chat::{Answering, Usage, artifact_text, parts_text, write_error, write_failure};
use crate::wire::sse;

/// Writes pieces of one answer.
pub(super) struct Pieces {
    answering: Answering,
    wants_usage: bool,
    usage: Option<Usage>,
    /// Whether something was said.
    begun: bool,
    /// The result that the last piece was of.
    result: Option<String>,
    /// Whether all is said.
    over: bool,
    /// Whether the end of it was written.
    closed: bool,
}

impl Pieces {
    pub(super) fn new(answering: Answering, wants_usage: bool) -> Self {
        Self {
            answering,
            wants_usage,
            usage: None,
            begun: false,
            result: None,
            over: false,
            closed: false,
        }
    }

    fn told(&mut self, out: &mut Vec<u8>, told: &StreamResponse, closes: bool) {
        match told {
            StreamResponse::Task(task) => {
                self.answering = about(self.answering.clone(), task);
                // What a task that goes on has made so far was told to whoever asked for it.
                if task.status.state.is_terminal() {
                    for artifact in &task.artifacts {
                        self.result(out, artifact.artifact_id.as_str(), &artifact_text(artifact));
                    }
                    self.status(out, &task.status, true);
                }
            }
            StreamResponse::Message(message) => self.message(out, message),
            StreamResponse::StatusUpdate(event) => {
                self.usage = Usage::of(event.metadata.as_ref()).or(self.usage);
                self.status(out, &event.status, closes);
            }
            StreamResponse::ArtifactUpdate(event) => {
                self.result(
                    out,
                    event.artifact.artifact_id.as_str(),
                    &artifact_text(&event.artifact),
                );
            }
        }
    }

    fn message(&mut self, out: &mut Vec<u8>, message: &Message) {
        self.answering.context = message.context_id.as_ref().map(ToString::to_string);
        self.piece(out, &parts_text(&message.parts));
        self.over = true;
    }

    /// A piece of a result; another result stands apart from the one before.
    fn result(&mut self, out: &mut Vec<u8>, id: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.result.as_deref().is_some_and(|last| last != id) {
            self.piece(out, "\n\n");
        }
        self.result = Some(id.to_owned());
        self.piece(out, text);
    }

    /// How the work goes is not part of the answer; how it ended is.
    fn status(&mut self, out: &mut Vec<u8>, status: &TaskStatus, closes: bool) {
        if !closes {
            return;
        }
        self.over = true;
        if let Some((_, code)) = failed(status.state) {
            let task = Task {
                status: status.clone(),
                ..Task::default()
            };
            event_of(out, |out| {
                write_failure(out, &reason(&task), ("server_error", None, code))
            });
            self.closed = true;
            return;
        }
        let said = status
            .message
            .as_ref()
            .map(|message| parts_text(&message.parts))
            .unwrap_or_default();
        if !said.is_empty() {
            let apart = if self.begun { "\n\n" } else { "" };
            self.piece(out, &format!("{apart}{said}"));
        }
    }

    fn piece(&mut self, out: &mut Vec<u8>, text: &str) {
        let first = !std::mem::replace(&mut self.begun, true);
        event_of(out, |out| self.answering.write_piece(out, first, text));
    }
}

impl Tell for Pieces {
    fn write(&mut self, out: &mut Vec<u8>, stream: &Stream, item: &Item) {
        match item {
            Item::Whole(told, _) => self.told(out, told, false),
            Item::Update { entry, closes } => {
                event(entry, stream.ids(), |told| self.told(out, told, *closes));
            }
        }
    }

    fn failure(&mut self, error: Error) -> Vec<u8> {
        let mut out = Vec::new();
        event_of(&mut out, |out| write_error(out, &logged(error)));
        self.closed = true;
        out
    }

    fn last(&mut self) -> Option<Vec<u8>> {
        if std::mem::replace(&mut self.closed, true) {
            return None;
        }
        if !self.over {
            return Some(self.failure(cut()));
        }
        let mut out = Vec::new();
        if !self.begun {
            self.piece(&mut out, "");
        }
        event_of(&mut out, |out| self.answering.write_end(out));
        if let Some(usage) = self.usage.filter(|_| self.wants_usage) {
            event_of(&mut out, |out| self.answering.write_usage(out, usage));
        }
        event_of(&mut out, |out| out.extend_from_slice(b"[DONE]"));
        Some(out)
    }
}

fn event_of(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    sse::begin(out, None);
    write(out);
    sse::end(out);
}
