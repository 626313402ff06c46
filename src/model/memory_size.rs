//! Approximate memory sizes of tasks and events. Caches, queues and page sizes are bounded by them.
//!
//! Text counts as it is written in JSON: a control character takes 6 bytes there. The memory of an encoding is thereby about
//! that of the task, and `max_task_bytes` bounds both.

use super::{Artifact, Content, Event, Message, Object, Part, Task};

/// Approximate size of a struct with its allocations, without its text.
const STRUCT_OVERHEAD_BYTES: usize = 200;
/// Length up to which the escapes of a text are not counted. The overhead of its struct covers them.
const MAX_UNSCANNED_BYTES: usize = 32;
/// Bytes that are tested for escapes together.
const CHUNK_BYTES: usize = 8;

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
                Self::CallMetadata(call) => call.extensions.iter().map(String::len).sum(),
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
                Self::Ignored { reason } => text_size(reason),
                Self::TurnStarted | Self::TurnEnded => 0,
            }
    }
}

fn message_size(message: &Message) -> usize {
    let texts = message.extensions.iter().map(|text| text_size(text));
    let ids = message
        .reference_task_ids
        .iter()
        .map(|id| text_size(id.as_str()));
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
        .map(|text| text_size(text) + STRUCT_OVERHEAD_BYTES / 4)
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
        Content::Text(text) => text.capacity() + escape_bytes(text),
        Content::Raw(bytes) => bytes.as_str().len(),
        Content::Url(url) => text_size(url),
        Content::Data(data) => data.get().len(),
    };
    let names = part.filename().map_or(0, text_size) + part.media_type().map_or(0, text_size);
    STRUCT_OVERHEAD_BYTES / 4 + content + names + object_size(part.metadata())
}

fn object_size(object: Option<&Object>) -> usize {
    object.map_or(0, |object| {
        object.as_str().len() + STRUCT_OVERHEAD_BYTES / 4
    })
}

fn text_size(text: &str) -> usize {
    text.len() + escape_bytes(text)
}

/// Returns the number of bytes that the escapes of a text add to its JSON.
fn escape_bytes(text: &str) -> usize {
    if text.len() <= MAX_UNSCANNED_BYTES {
        return 0;
    }
    let bytes = text.as_bytes();
    let (chunks, rest) = bytes.as_chunks::<CHUNK_BYTES>();
    let of_chunks = chunks.iter().filter(|chunk| has_escape(chunk));
    let of_chunks = of_chunks.map(|chunk| escapes(chunk)).sum::<usize>();
    // The last chunk overlaps the one before, so that the rest is tested as a whole too.
    match bytes.last_chunk() {
        Some(last) if !has_escape(last) => of_chunks,
        Some(_) | None => of_chunks + escapes(rest),
    }
}

/// Tests 8 bytes with a few operations on one word, which is fast in unoptimized builds too.
fn has_escape(chunk: &[u8; CHUNK_BYTES]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; CHUNK_BYTES]);
    const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; CHUNK_BYTES]);
    const SPACES: u64 = u64::from_ne_bytes([b' '; CHUNK_BYTES]);
    const QUOTES: u64 = u64::from_ne_bytes([b'"'; CHUNK_BYTES]);
    const BACKSLASHES: u64 = u64::from_ne_bytes([b'\\'; CHUNK_BYTES]);
    let word = u64::from_ne_bytes(*chunk);
    // The high bit of a byte is set if the byte is below the subtrahend, which is at most 128.
    let controls = word.wrapping_sub(SPACES) & !word;
    let quotes = word ^ QUOTES;
    let quotes = quotes.wrapping_sub(ONES) & !quotes;
    let backslashes = word ^ BACKSLASHES;
    let backslashes = backslashes.wrapping_sub(ONES) & !backslashes;
    (controls | quotes | backslashes) & HIGH_BITS != 0
}

fn escapes(bytes: &[u8]) -> usize {
    let added = bytes.iter().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0x00..b' ' => 5,
        _ => 0,
    });
    added.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(text: String) -> Task {
        Task {
            artifacts: vec![Artifact {
                parts: vec![Part::text(text)],
                ..Artifact::default()
            }],
            ..Task::default()
        }
    }

    #[test]
    fn d02_the_size_of_a_task_covers_its_json() {
        for text in ["x", "\u{1}", "\n", "\"", "\\", "ü", "x\u{1}y\u{1f}\u{c}"] {
            for count in [1, 20, 33, 47, 1_000, 10_001] {
                let text = text.repeat(count);
                let escaped = serde_json::to_string(&text).unwrap().len();
                let task = task(text);
                let json = serde_json::to_string(&task).unwrap().len();
                let size = task.memory_size();
                assert!(size >= json, "{size} of {json}");
                assert!(size <= escaped + 1_000, "{size} of {json}");
            }
        }
    }
}
