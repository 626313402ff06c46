//! Approximate memory sizes of tasks and events. Caches, queues and page sizes are bounded by them.

use super::{Artifact, Content, Event, Message, Object, Part, Task};

/// Approximate size of a struct with its allocations, without its text.
const STRUCT_OVERHEAD_BYTES: usize = 200;

impl Task {
    /// Returns the approximate size in memory, in bytes.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let messages = self
            .history
            .iter()
            .chain(&self.status.message)
            .map(|message| message_size(message));
        let artifacts = self.artifacts.iter().map(artifact_size);
        2 * STRUCT_OVERHEAD_BYTES
            + object_size(self.metadata.as_ref())
            + messages.chain(artifacts).sum::<usize>()
    }
}

impl Event {
    /// Returns the approximate size in memory, in bytes.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        STRUCT_OVERHEAD_BYTES
            + match self {
                Self::Created { metadata, .. } | Self::CancelRequested { metadata } => {
                    object_size(metadata.as_ref())
                }
                Self::Message(message) => message_size(message),
                Self::TraceContext(trace) => trace.memory_size(),
                Self::Status { status, metadata } => {
                    let message = status
                        .message
                        .as_ref()
                        .map_or(0, |message| message_size(message));
                    message + object_size(metadata.as_ref())
                }
                Self::Artifact {
                    artifact, metadata, ..
                } => artifact_size(artifact) + object_size(metadata.as_ref()),
                Self::Ignored { reason } => reason.len(),
                Self::TurnStarted | Self::TurnEnded => 0,
            }
    }
}

fn message_size(message: &Message) -> usize {
    let texts = message.extensions.iter().map(String::len);
    let ids = message
        .reference_task_ids
        .iter()
        .map(|id| id.as_str().len());
    let lists = texts
        .chain(ids)
        .map(|length| length + STRUCT_OVERHEAD_BYTES / 4)
        .sum::<usize>();
    STRUCT_OVERHEAD_BYTES
        + lists
        + object_size(message.metadata.as_ref())
        + parts_size(&message.parts)
}

fn artifact_size(artifact: &Artifact) -> usize {
    let texts = artifact
        .extensions
        .iter()
        .chain(&artifact.name)
        .chain(&artifact.description);
    let texts = texts
        .map(|text| text.len() + STRUCT_OVERHEAD_BYTES / 4)
        .sum::<usize>();
    STRUCT_OVERHEAD_BYTES
        + texts
        + object_size(artifact.metadata.as_ref())
        + parts_size(&artifact.parts)
}

fn parts_size(parts: &[Part]) -> usize {
    parts.iter().map(part_size).sum()
}

fn part_size(part: &Part) -> usize {
    let content = match &part.content {
        Content::Text(text) => text.capacity(),
        Content::Raw(bytes) => bytes.as_str().len(),
        Content::Url(url) => url.len(),
        Content::Data(data) => data.get().len(),
    };
    let names = part.filename().map_or(0, str::len) + part.media_type().map_or(0, str::len);
    STRUCT_OVERHEAD_BYTES / 4 + content + names + object_size(part.metadata())
}

fn object_size(object: Option<&Object>) -> usize {
    object.map_or(0, |object| {
        object.as_str().len() + STRUCT_OVERHEAD_BYTES / 4
    })
}
