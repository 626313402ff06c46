//! How much memory things take, about: what is kept or sent is bounded by it.

use super::{Artifact, Content, Event, Message, Object, Part, Task};

/// What a struct with its allocations takes beside its text, about.
const STRUCT: usize = 200;

impl Task {
    /// How much memory it takes, in bytes, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        let messages = self
            .history
            .iter()
            .chain(&self.status.message)
            .map(|message| of_message(message));
        let artifacts = self.artifacts.iter().map(of_artifact);
        2 * STRUCT + of_object(self.metadata.as_ref()) + messages.chain(artifacts).sum::<usize>()
    }
}

impl Event {
    /// How much memory it takes, in bytes, about.
    #[must_use]
    pub fn weight(&self) -> usize {
        STRUCT
            + match self {
                Self::Created { metadata, .. } | Self::CancelRequested { metadata } => {
                    of_object(metadata.as_ref())
                }
                Self::Message(message) => of_message(message),
                Self::Traced(trace) => trace.weight(),
                Self::Status { status, metadata } => {
                    let message = status
                        .message
                        .as_ref()
                        .map_or(0, |message| of_message(message));
                    message + of_object(metadata.as_ref())
                }
                Self::Artifact {
                    artifact, metadata, ..
                } => of_artifact(artifact) + of_object(metadata.as_ref()),
                Self::Ignored { reason } => reason.len(),
                Self::TurnStarted | Self::TurnEnded => 0,
            }
    }
}

fn of_message(message: &Message) -> usize {
    let texts = message.extensions.iter().map(String::len);
    let ids = message
        .reference_task_ids
        .iter()
        .map(|id| id.as_str().len());
    let lists = texts
        .chain(ids)
        .map(|length| length + STRUCT / 4)
        .sum::<usize>();
    STRUCT + lists + of_object(message.metadata.as_ref()) + of_parts(&message.parts)
}

fn of_artifact(artifact: &Artifact) -> usize {
    let texts = artifact
        .extensions
        .iter()
        .chain(&artifact.name)
        .chain(&artifact.description);
    let texts = texts.map(|text| text.len() + STRUCT / 4).sum::<usize>();
    STRUCT + texts + of_object(artifact.metadata.as_ref()) + of_parts(&artifact.parts)
}

fn of_parts(parts: &[Part]) -> usize {
    parts.iter().map(of_part).sum()
}

fn of_part(part: &Part) -> usize {
    let content = match &part.content {
        Content::Text(text) => text.capacity(),
        Content::Raw(bytes) => bytes.weight(),
        Content::Url(url) => url.len(),
        Content::Data(data) => data.get().len(),
    };
    let names = part.filename().map_or(0, str::len) + part.media_type().map_or(0, str::len);
    STRUCT / 4 + content + names + of_object(part.metadata())
}

fn of_object(object: Option<&Object>) -> usize {
    object.map_or(0, |object| object.get_text().len() + STRUCT / 4)
}
