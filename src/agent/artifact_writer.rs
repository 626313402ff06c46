//! Writer of an artifact whose text is streamed in chunks.

use super::Turn;
use crate::model::{Artifact, ArtifactId, Event, Part};

/// Writer of an artifact whose text is streamed in chunks. Sets the `append` and `lastChunk` flags.
///
/// If it is dropped without [`finish`](Self::finish), the artifact keeps the written text and has no last chunk.
#[derive(Debug)]
pub struct ArtifactWriter {
    turn: Turn,
    artifact_id: ArtifactId,
    /// Sent with the first chunk.
    name: Option<String>,
    has_started: bool,
}

impl ArtifactWriter {
    pub(super) fn new(turn: Turn, name: String) -> Self {
        Self {
            turn,
            artifact_id: ArtifactId::random(),
            name: Some(name),
            has_started: false,
        }
    }

    /// Sets the artifact id. The first chunk replaces an existing artifact of this id, so a repeated turn does not
    /// duplicate its result.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<ArtifactId>) -> Self {
        self.artifact_id = id.into();
        self
    }

    /// Appends a chunk.
    pub async fn write(&mut self, text: impl Into<String>) {
        let chunk = self.chunk(text.into(), false);
        self.turn.push(chunk).await;
    }

    /// Ends the artifact with an empty last chunk.
    pub async fn finish(mut self) {
        let chunk = self.chunk(String::new(), true);
        self.turn.push(chunk).await;
    }

    fn chunk(&mut self, text: String, last_chunk: bool) -> Event {
        let append = std::mem::replace(&mut self.has_started, true);
        // Every field is set: `Artifact::default()` would generate an id per chunk.
        let artifact = Artifact {
            artifact_id: self.artifact_id.clone(),
            name: self.name.take(),
            parts: vec![Part::text(text)],
            description: None,
            extensions: Vec::new(),
            metadata: None,
        };
        Event::Artifact {
            artifact,
            append,
            last_chunk,
            metadata: None,
        }
    }
}
