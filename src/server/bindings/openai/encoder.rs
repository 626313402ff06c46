//! Encoder of a task stream as chat completion chunks.

use super::{failure_message, failure_status, stream_interrupted, with_task};
use crate::model::{Error, Message, NO_CONTENT, Result, StreamResponse, Task, TaskStatus};
use crate::server::chunk_buffer::ChunkBuffer;
use crate::server::event_encoder::EventEncoder;
use crate::server::reply::log_failure;
use crate::service::{StreamItem, TaskEventStream};
use crate::wire::openai::{
    CompletionUsage, CompletionWriter, OpenAiError, artifact_text, message_text, task_text,
    write_error,
};
use crate::wire::sse;

/// Encoder of one streamed completion.
pub(super) struct CompletionEncoder {
    writer: CompletionWriter,
    includes_usage: bool,
    usage: Option<CompletionUsage>,
    /// Whether a chunk was written. The first one names the role.
    has_started: bool,
    /// Id of the artifact of the last chunk. A blank line separates artifacts.
    last_artifact: Option<String>,
    /// Messages of the agent while it works: the result, if there is no other.
    progress: Vec<String>,
    state: CompletionState,
}

/// Progress of a streamed completion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompletionState {
    /// More events are expected.
    Open,
    /// The last event was written. The end marker is missing.
    Complete,
    /// The end marker or an error was written.
    Closed,
}

impl CompletionEncoder {
    pub(super) fn new(writer: CompletionWriter, includes_usage: bool) -> Self {
        Self {
            writer,
            includes_usage,
            usage: None,
            has_started: false,
            last_artifact: None,
            progress: Vec::new(),
            state: CompletionState::Open,
        }
    }

    fn write_response(&mut self, out: &mut Vec<u8>, response: &StreamResponse, closes: bool) {
        match response {
            StreamResponse::Task(task) => {
                self.writer = with_task(self.writer.clone(), task);
                // Artifacts of a running task belong to an earlier completion.
                if task.status.state.is_terminal() {
                    self.write_ended_task(out, task);
                }
            }
            StreamResponse::Message(message) => self.write_message(out, message),
            StreamResponse::StatusUpdate(event) => {
                self.usage = CompletionUsage::from_metadata(event.metadata.as_ref()).or(self.usage);
                self.write_status(out, &event.status, closes);
            }
            StreamResponse::ArtifactUpdate(event) => {
                self.write_artifact(
                    out,
                    event.artifact.artifact_id.as_str(),
                    &artifact_text(&event.artifact),
                );
            }
        }
    }

    fn write_message(&mut self, out: &mut Vec<u8>, message: &Message) {
        self.writer.context = message.context_id.as_ref().map(ToString::to_string);
        self.write_text(out, &message_text(message));
        self.state = CompletionState::Complete;
    }

    fn write_ended_task(&mut self, out: &mut Vec<u8>, task: &Task) {
        if failure_status(task.status.state).is_some() {
            return self.write_status(out, &task.status, true);
        }
        self.write_text(out, &task_text(task));
        self.state = CompletionState::Complete;
    }

    /// Writes a chunk of an artifact, after a blank line if the artifact is another one.
    fn write_artifact(&mut self, out: &mut Vec<u8>, id: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.last_artifact.as_deref().is_some_and(|last| last != id) {
            self.write_text(out, "\n\n");
        }
        self.last_artifact = Some(id.to_owned());
        self.progress.clear();
        self.write_text(out, text);
    }

    /// Writes the last status: its message, or an error. The messages of earlier ones are written
    /// only if the completion would be empty without them.
    fn write_status(&mut self, out: &mut Vec<u8>, status: &TaskStatus, closes: bool) {
        let text = status.message.as_ref().map(|message| message_text(message));
        let text = text.unwrap_or_default();
        if !closes {
            if !self.has_started && !text.is_empty() {
                self.progress.push(text);
            }
            return;
        }
        if let Some((_, code)) = failure_status(status.state) {
            let task = Task {
                status: status.clone(),
                ..Task::default()
            };
            let message = failure_message(&task);
            let error = OpenAiError {
                message: &message,
                kind: "server_error",
                param: None,
                code,
            };
            write_sse_event(out, |out| error.write(out));
            self.state = CompletionState::Closed;
            return;
        }
        self.state = CompletionState::Complete;
        let progress = std::mem::take(&mut self.progress).join("\n\n");
        match (self.has_started, text.is_empty()) {
            (true, true) => {}
            (true, false) => self.write_text(out, &format!("\n\n{text}")),
            (false, false) => self.write_text(out, &text),
            (false, true) if !progress.is_empty() => self.write_text(out, &progress),
            (false, true) => self.write_text(out, NO_CONTENT),
        }
    }

    fn write_text(&mut self, out: &mut Vec<u8>, text: &str) {
        let first = !std::mem::replace(&mut self.has_started, true);
        write_sse_event(out, |out| self.writer.write_chunk(out, first, text));
    }
}

impl EventEncoder for CompletionEncoder {
    fn write(
        &mut self,
        out: &mut ChunkBuffer,
        stream: &TaskEventStream,
        item: StreamItem,
    ) -> Result<()> {
        match item {
            StreamItem::Full(response, _) => self.write_response(out, &response, false),
            // Completions begin with the message of the client, and never with a large task.
            StreamItem::LargeTask(..) => return Err(Error::internal("stream of a subscription")),
            StreamItem::Update { entry, closes } => {
                let (task, context) = stream.ids();
                if let Some(response) = entry.update(task, context) {
                    self.write_response(out, &response, closes);
                }
            }
        }
        Ok(())
    }

    fn encode_failure(&mut self, error: Error) -> Vec<u8> {
        let mut out = Vec::new();
        write_sse_event(&mut out, |out| write_error(out, &log_failure(error)));
        self.state = CompletionState::Closed;
        out
    }

    fn finish(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(&mut self.state, CompletionState::Closed) {
            CompletionState::Open => return Some(self.encode_failure(stream_interrupted())),
            CompletionState::Complete => {}
            CompletionState::Closed => return None,
        }
        let mut out = Vec::new();
        if !self.has_started {
            self.write_text(&mut out, "");
        }
        write_sse_event(&mut out, |out| self.writer.write_finish(out));
        if let Some(usage) = self.usage.filter(|_| self.includes_usage) {
            write_sse_event(&mut out, |out| self.writer.write_usage(out, usage));
        }
        write_sse_event(&mut out, |out| out.extend_from_slice(b"[DONE]"));
        Some(out)
    }
}

fn write_sse_event(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    sse::begin_event(out, None);
    write(out);
    sse::end_event(out);
}
