//! Fast encoder for stream events, from log entries.
//!
//! Streams consist mostly of text chunks of one artifact. In 1.0 these are written without cloning
//! the artifact and without the generic serializer: about 1,000 instead of 2,700 instructions per
//! chunk. The constant prefix of the chunks is cached. Everything else uses the general path.
//!
//! The unit tests compare the output byte by byte with `Serialize` of the model.

use super::encode::write_text;
use crate::model::{Artifact, ArtifactId, ClientDialect, ContextId, Entry, Event, TaskId};
use crate::wire::{Dialect, write_event, write_json};

/// Writer for the events of one stream in one dialect.
#[derive(Debug)]
pub struct StreamEventWriter {
    dialect: Dialect,
    chunk: Option<ChunkPrefix>,
}

/// Cached prefix of the chunks of an artifact.
#[derive(Debug)]
struct ChunkPrefix {
    task: TaskId,
    context: ContextId,
    artifact: ArtifactId,
    bytes: Vec<u8>,
}

impl StreamEventWriter {
    /// Creates a writer.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            chunk: None,
        }
    }

    /// Returns the dialect.
    #[must_use]
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Selects the dialect for a client with a dialect of its own, as [`Dialect::with_client_dialect`].
    pub fn select_dialect(&mut self, client: Option<ClientDialect>) {
        if client.is_some() {
            self.dialect = self.dialect.clone().with_client_dialect(client);
        }
    }

    /// Writes the stream event of an entry, like [`write_event`]. Writes nothing for internal
    /// entries.
    pub fn write_entry(
        &mut self,
        out: &mut Vec<u8>,
        entry: &Entry,
        task: &TaskId,
        context: &ContextId,
        closes: bool,
    ) {
        if self.dialect == Dialect::V1
            && let Event::Artifact {
                artifact,
                append,
                last_chunk,
                metadata: None,
            } = &entry.event
            && let Some(text) = single_text(artifact)
        {
            out.extend_from_slice(self.prefix(task, context, &artifact.artifact_id));
            write_text(out, text);
            return out.extend_from_slice(chunk_suffix(*append, *last_chunk));
        }
        if let Some(event) = entry.update(task, context) {
            write_event(out, &event, closes, &self.dialect);
        }
    }

    fn prefix(&mut self, task: &TaskId, context: &ContextId, artifact: &ArtifactId) -> &[u8] {
        let is_known = |chunk: &ChunkPrefix| {
            chunk.artifact == *artifact && chunk.task == *task && chunk.context == *context
        };
        if !self.chunk.as_ref().is_some_and(is_known) {
            self.chunk = None;
        }
        &self
            .chunk
            .get_or_insert_with(|| ChunkPrefix::new(task, context, artifact))
            .bytes
    }
}

impl ChunkPrefix {
    fn new(task: &TaskId, context: &ContextId, artifact: &ArtifactId) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(br#"{"artifactUpdate":{"taskId":"#);
        write_json(&mut bytes, task);
        bytes.extend_from_slice(br#","contextId":"#);
        write_json(&mut bytes, context);
        bytes.extend_from_slice(br#","artifact":{"artifactId":"#);
        write_json(&mut bytes, artifact);
        bytes.extend_from_slice(br#","parts":[{"text":"#);
        Self {
            task: task.clone(),
            context: context.clone(),
            artifact: artifact.clone(),
            bytes,
        }
    }
}

/// Returns the end of a chunk after its text.
fn chunk_suffix(append: bool, last_chunk: bool) -> &'static [u8] {
    match (append, last_chunk) {
        (false, false) => br#"}]}}}"#,
        (true, false) => br#"}]},"append":true}}"#,
        (false, true) => br#"}]},"lastChunk":true}}"#,
        (true, true) => br#"}]},"append":true,"lastChunk":true}}"#,
    }
}

/// Returns the text of an artifact with a single text part and no other attributes.
fn single_text(artifact: &Artifact) -> Option<&str> {
    let Artifact {
        artifact_id: _,
        name: None,
        description: None,
        parts,
        extensions,
        metadata: None,
    } = artifact
    else {
        return None;
    };
    match &**parts {
        [part] if part.is_plain() && extensions.is_empty() => part.as_text(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Object, Part, Seq, TaskState, TaskStatus, Timestamp};

    /// Asserts that the writer produces the same bytes as `Serialize`.
    #[track_caller]
    fn check(updates: &mut StreamEventWriter, event: Event) {
        let entry = Entry {
            seq: Seq(3),
            time: Timestamp::default(),
            event,
        };
        for (task, context) in [
            ("task \"1\"", "context"),
            ("task 2", "context"),
            ("task 2", "\t"),
        ] {
            let task = TaskId::from(task);
            let context = ContextId::from(context);
            let mut out = b"> ".to_vec();
            updates.write_entry(&mut out, &entry, &task, &context, false);
            let expected = entry
                .update(&task, &context)
                .map(|event| serde_json::to_string(&event).unwrap());
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!("> {}", expected.unwrap_or_default())
            );
        }
    }

    fn chunk(updates: &mut StreamEventWriter, artifact: Artifact) {
        for (append, last_chunk) in [(false, false), (true, false), (false, true), (true, true)] {
            for metadata in [
                None,
                Some([("key", "value")].into_iter().collect::<Object>()),
            ] {
                check(
                    updates,
                    Event::Artifact {
                        artifact: artifact.clone(),
                        append,
                        last_chunk,
                        metadata,
                    },
                );
            }
        }
    }

    #[test]
    fn fast_output_equals_generic_output() {
        let updates = &mut StreamEventWriter::new(Dialect::V1);
        let long = "über ".repeat(40);
        let before = format!("\t{long}");
        let behind = format!("{long}\t");
        for text in [
            "", "plain", "\"", "\\", "\n", "\u{1f}", "\u{7f} ", &long, &before, &behind,
        ] {
            chunk(
                updates,
                Artifact {
                    name: None,
                    ..Artifact::text("", text).with_id("an/id")
                },
            );
            chunk(
                updates,
                Artifact {
                    name: None,
                    ..Artifact::text("", text).with_id("an \"id\"").part("more")
                },
            );
            chunk(updates, Artifact::text("named", text));
        }
        let bare = || Artifact {
            name: None,
            ..Artifact::text("", "text")
        };
        chunk(
            updates,
            Artifact {
                parts: vec![Part::data(serde_json::json!({"a": 1}))],
                ..bare()
            },
        );
        chunk(
            updates,
            Artifact {
                parts: vec![Part::text("x").with_media_type("text/html")],
                ..bare()
            },
        );
        chunk(
            updates,
            Artifact {
                parts: Vec::new(),
                ..bare()
            },
        );
        chunk(
            updates,
            Artifact {
                description: Some("what it is".to_owned()),
                ..bare()
            },
        );
        chunk(
            updates,
            Artifact {
                extensions: vec!["urn:x".to_owned()],
                ..bare()
            },
        );
        chunk(
            updates,
            Artifact {
                metadata: Some(Object::new()),
                ..bare()
            },
        );
        check(
            updates,
            Event::Status {
                status: TaskStatus::new(TaskState::Working),
                metadata: None,
            },
        );
        check(updates, Event::TurnStarted);
    }
}
