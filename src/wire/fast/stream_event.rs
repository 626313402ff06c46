//! What callers are told of entries, written straight from the log.
//!
//! A stream is mostly chunks of one text: in 1.0 these are put down without a copy of the artifact, and without a generic
//! writer. Whatever has more to it is written as the model says.

use super::encode::write_text;
use crate::model::{Artifact, ArtifactId, ContextId, Entry, Event, TaskId};
use crate::wire::{Dialect, write_event, write_json};

/// Writes the entries of one stream, in one dialect.
#[derive(Debug)]
pub struct StreamEventWriter {
    dialect: Dialect,
    chunk: Option<ChunkPrefix>,
}

/// How the chunks of an artifact bytes, which is the same for all of them.
#[derive(Debug)]
struct ChunkPrefix {
    task: TaskId,
    context: ContextId,
    artifact: ArtifactId,
    bytes: Vec<u8>,
}

impl StreamEventWriter {
    /// Nothing is written yet.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            chunk: None,
        }
    }

    /// The dialect.
    #[must_use]
    pub fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Writes what callers are told of an entry, as [`write_event`] would; nothing where they are not told of it.
    pub fn write_entry(
        &mut self,
        out: &mut Vec<u8>,
        entry: &Entry,
        (task, context): (&TaskId, &ContextId),
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

/// What stands behind the text of a chunk.
fn chunk_suffix(append: bool, last_chunk: bool) -> &'static [u8] {
    match (append, last_chunk) {
        (false, false) => br#"}]}}}"#,
        (true, false) => br#"}]},"append":true}}"#,
        (false, true) => br#"}]},"lastChunk":true}}"#,
        (true, true) => br#"}]},"append":true,"lastChunk":true}}"#,
    }
}

/// The text of an artifact that has nothing else but its id.
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

    /// The same bytes that the model writes.
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
            let (task, context) = (TaskId::from(task), ContextId::from(context));
            let mut out = b"> ".to_vec();
            updates.write_entry(&mut out, &entry, (&task, &context), false);
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
    fn what_is_written_in_short_is_what_the_model_writes() {
        let updates = &mut StreamEventWriter::new(Dialect::V1);
        let long = "über ".repeat(40);
        let (before, behind) = (format!("\t{long}"), format!("{long}\t"));
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
